// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel consumer: tests of code that neither programs nor the kernel consumers of other tests
 * reach. This file has the two sides, and the helpers of the tests.
 *
 * Loading it runs all tests between the devices r1 and r2, or those of one group, and fails if one
 * fails; the log has the line. ferroce_kernel.sh makes the devices.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "consumer.h"

static bool brief;
module_param(brief, bool, 0);
MODULE_PARM_DESC(brief, "one region, one message, one atomic operation");

static char *only;
module_param(only, charp, 0);
MODULE_PARM_DESC(only, "the only group of tests to run: mr, qp or cq");

#define TO_RTR_UC (IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN)
#define TO_RTR (TO_RTR_UC | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER)
#define TO_RTS_UC (IB_QP_STATE | IB_QP_SQ_PSN)
#define TO_RTS (TO_RTS_UC | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | \
		IB_QP_MAX_QP_RD_ATOMIC)

struct side a, b;

int try_result(int ret, const char *what, const char *file, int line)
{
	if (ret < 0)
		pr_err("ferroce_consumer: %s:%d: %s: %d\n", file, line, what, ret);
	return min(ret, 0);
}

/* The GID of an IPv4 address: the others are of link-local addresses. */
static int find_gid(struct side *s)
{
	const struct ib_gid_attr *attr;

	for (u32 i = 0; i < 16; i++) {
		attr = rdma_get_gid_attr(s->dev, 1, i);
		if (IS_ERR(attr))
			continue;
		s->gid = attr->gid;
		s->gid_index = i;
		if (attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		    ipv6_addr_v4mapped((struct in6_addr *)&attr->gid)) {
			rdma_put_gid_attr(attr);
			return 0;
		}
		rdma_put_gid_attr(attr);
	}
	return -ENOENT;
}

struct ib_qp_init_attr qp_init(enum ib_qp_type type)
{
	return (struct ib_qp_init_attr){
		.qp_type = type,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = {
			.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
}

struct ib_qp *make_qp(struct side *s, struct ib_pd *pd, const struct ib_qp_init_attr *from)
{
	struct ib_qp_init_attr init = *from;

	init.send_cq = init.send_cq ?: s->cq;
	init.recv_cq = init.recv_cq ?: s->cq;
	return ib_create_qp(pd, &init);
}

static int open_side(struct side *s)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	int err = EXPECT(s->dev) ?: TRY(find_gid(s)) ?:
		  TRY_PTR(s->pd = ib_alloc_pd(s->dev, 0)) ?:
		  TRY_PTR(s->cq = ib_alloc_cq(s->dev, NULL, 64, 0, IB_POLL_DIRECT)) ?:
		  TRY_PTR(s->qp = make_qp(s, s->pd, &init));

	if (err)
		return err;
	for (int i = 0; i <= PAGES; i++) {
		s->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!s->pages[i])
			return -ENOMEM;
	}
	/* Last page first, so that no two of them are contiguous. */
	sg_init_table(s->sgl, PAGES + 1);
	for (int i = 0; i <= PAGES; i++)
		sg_set_page(&s->sgl[i], s->pages[PAGES - i], PAGE_SIZE, 0);
	return EXPECT(ib_dma_map_sg(s->dev, s->sgl, PAGES + 1, DMA_BIDIRECTIONAL) == PAGES + 1);
}

static void close_side(struct side *s)
{
	if (!IS_ERR_OR_NULL(s->qp))
		ib_destroy_qp(s->qp);
	if (!IS_ERR_OR_NULL(s->mr))
		ib_dereg_mr(s->mr);
	if (!IS_ERR_OR_NULL(s->cq))
		ib_free_cq(s->cq);
	if (!IS_ERR_OR_NULL(s->pd))
		ib_dealloc_pd(s->pd);
	for (int i = 0; i <= PAGES; i++)
		if (s->pages[i])
			__free_page(s->pages[i]);
	memset_after(s, 0, dev);
}

static int connect_to(struct side *s, struct ib_qp *qp, struct side *peer, u32 dest)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_ATOMIC,
		.qkey = QKEY,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = dest,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};
	int to_init = TO_INIT, to_rtr = TO_RTR, to_rts = TO_RTS;
	int err;

	if (qp->qp_type == IB_QPT_UC) {
		to_rtr = TO_RTR_UC;
		to_rts = TO_RTS_UC;
	} else if (qp->qp_type == IB_QPT_UD) {
		to_init = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY;
		to_rtr = IB_QP_STATE;
		to_rts = TO_RTS_UC;
	}
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_ah_set_grh(&attr.ah_attr, &peer->gid, 0, s->gid_index, 64, 0);
	err = TRY(ib_modify_qp(qp, &attr, to_init));
	attr.qp_state = IB_QPS_RTR;
	err = err ?: TRY(ib_modify_qp(qp, &attr, to_rtr));
	attr.qp_state = IB_QPS_RTS;
	return err ?: TRY(ib_modify_qp(qp, &attr, to_rts));
}

int connect_pair(struct pair *p)
{
	return connect_to(&a, p->a, &b, p->b->qp_num) ?: connect_to(&b, p->b, &a, p->a->qp_num);
}

int reset_pair(struct pair *p)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };

	return TRY(ib_modify_qp(p->a, &attr, IB_QP_STATE)) ?:
	       TRY(ib_modify_qp(p->b, &attr, IB_QP_STATE));
}

int open_pair(struct pair *p, const struct ib_qp_init_attr *init)
{
	return TRY_PTR(p->a = make_qp(&a, a.pd, init)) ?:
	       TRY_PTR(p->b = make_qp(&b, b.pd, init)) ?: connect_pair(p);
}

void close_pair(struct pair *p)
{
	if (!IS_ERR_OR_NULL(p->a))
		ib_destroy_qp(p->a);
	if (!IS_ERR_OR_NULL(p->b))
		ib_destroy_qp(p->b);
}

int reconnect(void)
{
	struct pair p = { a.qp, b.qp };

	return reset_pair(&p) ?: connect_pair(&p);
}

int wait_wc(struct ib_cq *cq, struct ib_wc *wc)
{
	for (int ms = 0; ms < WAIT_MS; ms++) {
		if (ib_poll_cq(cq, 1, wc) > 0)
			return 0;
		usleep_range(1000, 2000);
	}
	return TRY(-ETIMEDOUT);
}

static int check_status(const struct ib_wc *wc, enum ib_wc_status status)
{
	if (wc->status != status)
		pr_err("ferroce_consumer: %s\n", ib_wc_status_msg(wc->status));
	return EXPECT(wc->status == status);
}

int expect_wc(struct ib_cq *cq, u64 wr_id, enum ib_wc_status status)
{
	struct ib_wc wc;

	return wait_wc(cq, &wc) ?: check_status(&wc, status) ?: EXPECT(wc.wr_id == wr_id);
}

int finish(struct side *s, enum ib_wc_status status)
{
	struct ib_wc wc;

	return wait_wc(s->cq, &wc) ?: check_status(&wc, status);
}

int finish_op(struct side *s, enum ib_wc_opcode opcode)
{
	struct ib_wc wc;

	return wait_wc(s->cq, &wc) ?: check_status(&wc, IB_WC_SUCCESS) ?:
	       EXPECT(wc.opcode == opcode);
}

int rdma(struct ib_qp *qp, enum ib_wr_opcode op, struct ib_sge sge, u64 remote_addr, u32 rkey,
	 enum ib_wc_status status)
{
	struct ib_rdma_wr wr = {
		.wr = { .wr_id = 77, .opcode = op, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = remote_addr,
		.rkey = rkey,
	};

	return TRY(ib_post_send(qp, &wr.wr, NULL)) ?: expect_wc(qp->send_cq, 77, status);
}

int transfer(enum ib_wr_opcode op, u64 at, u32 len, enum ib_wc_status status)
{
	return rdma(a.qp, op, in_region(&a, at, len), b.mr->iova + at, b.mr->rkey, status);
}

int post_send(struct ib_qp *qp, u64 wr_id, u64 at, u32 len, int flags)
{
	struct ib_sge sge = in_page(&a, at, len);
	struct ib_send_wr wr = {
		.wr_id = wr_id,
		.opcode = IB_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = flags,
	};

	return TRY(ib_post_send(qp, &wr, NULL));
}

int post_recvs(struct ib_qp *qp, int first, int n, int at, int num_sge, int *refused)
{
	struct ib_recv_wr *wr = kcalloc(n, sizeof(*wr), GFP_KERNEL);
	struct ib_sge *sges = kcalloc(n + 64, sizeof(*sges), GFP_KERNEL);
	const struct ib_recv_wr *bad = wr;
	int ret = -ENOBUFS;

	for (int i = 0; i < n && wr && sges; i++) {
		sges[i] = in_page(&b, 8 * (first + i), 8);
		wr[i].next = i < n - 1 ? &wr[i + 1] : NULL;
		wr[i].wr_id = first + i;
		wr[i].sg_list = &sges[i];
		wr[i].num_sge = i == at ? num_sge : 1;
	}
	if (wr && sges)
		ret = qp->srq ? ib_post_srq_recv(qp->srq, wr, &bad) : ib_post_recv(qp, wr, &bad);
	*refused = bad - wr;
	kfree(sges);
	kfree(wr);
	return ret;
}

u8 *byte(struct side *s, u64 at)
{
	return (u8 *)page_address(s->pages[PAGES - at / PAGE_SIZE]) + at % PAGE_SIZE;
}

static const struct {
	const char *name;
	int (*run)(void);
} groups[] = {
	{ "mr", test_mr },
	{ "qp", test_qp },
	{ "cq", test_cq },
};

/* Runs tests with new objects, which the tests before cannot have left in a bad state. */
static int run(int (*tests)(void))
{
	int err = open_side(&a) ?: open_side(&b) ?: reconnect() ?: make_regions() ?: tests();

	close_side(&a);
	close_side(&b);
	return err;
}

static int run_groups(void)
{
	bool found = false;
	int err = 0;

	if (brief)
		return run(test_mr_brief);
	for (int i = 0; i < ARRAY_SIZE(groups) && !err; i++) {
		if (only && strcmp(only, groups[i].name))
			continue;
		found = true;
		err = run(groups[i].run);
	}
	return err ?: EXPECT(found);
}

/* Called for each device while the client is registered. */
static int add_device(struct ib_device *dev)
{
	struct side *s = NULL;

	if (!strcmp(dev_name(&dev->dev), "r1"))
		s = &a;
	if (!strcmp(dev_name(&dev->dev), "r2"))
		s = &b;
	if (!s || !ib_device_try_get(dev))
		return -EOPNOTSUPP;
	s->dev = dev;
	return 0;
}

static struct ib_client client = {
	.name = "ferroce_consumer",
	.add = add_device,
};

static int __init consumer_init(void)
{
	int ret = TRY(ib_register_client(&client));

	if (ret)
		return ret;
	ret = run_groups();
	if (a.dev)
		ib_device_put(a.dev);
	if (b.dev)
		ib_device_put(b.dev);
	ib_unregister_client(&client);
	return ret;
}

static void __exit consumer_exit(void)
{
}

module_init(consumer_init);
module_exit(consumer_exit);
MODULE_DESCRIPTION("Test of ferroce as a kernel consumer sees it");
MODULE_LICENSE("GPL");
