// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel consumer: tests of code that neither programs nor the kernel consumers of other tests
 * reach. Keys, regions of as many pages as there may be, and atomic operations; completions of a
 * queue pair that is destroyed before they are polled.
 *
 * Loading it runs all tests between the devices r1 and r2, and fails if one fails; the log has the
 * line. ferroce_kernel.sh makes the devices.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define PAGES 512
#define LEN (PAGES * PAGE_SIZE)
#define WAIT_MS 20000

static bool brief;
module_param(brief, bool, 0);
MODULE_PARM_DESC(brief, "one region, one message, one atomic operation");

/* More entries than the driver scans at a time. */
#define CQE 300

#define TO_INIT (IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS)
#define TO_RTR (IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | \
		IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER)
#define TO_RTS (IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | \
		IB_QP_MAX_QP_RD_ATOMIC)

/* One side: a queue pair, and pages in no order that can be registered as one region. */
struct side {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	struct ib_mr *mr;
	u32 gid_index;
	union ib_gid gid;
	struct page *pages[PAGES + 1];
	struct scatterlist sgl[PAGES + 1];
};

static struct side a, b;

/* 0, or an error, which is logged. */
#define TRY(expr) try_result(expr, #expr, __LINE__)
#define TRY_PTR(expr) try_result(PTR_ERR_OR_ZERO(expr), #expr, __LINE__)
#define EXPECT(cond) try_result((cond) ? 0 : -EINVAL, #cond, __LINE__)

static int try_result(int ret, const char *what, int line)
{
	if (ret < 0)
		pr_err("ferroce_consumer: %d: %s: %d\n", line, what, ret);
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

static int open_side(struct side *s)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = {
			.max_send_wr = 16,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};

	int err = EXPECT(s->dev) ?: TRY(find_gid(s)) ?:
		  TRY_PTR(s->pd = ib_alloc_pd(s->dev, 0)) ?:
		  TRY_PTR(s->cq = ib_alloc_cq(s->dev, NULL, 64, 0, IB_POLL_DIRECT));

	if (err)
		return err;
	init.send_cq = s->cq;
	init.recv_cq = s->cq;
	err = TRY_PTR(s->qp = ib_create_qp(s->pd, &init));
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
	if (s->dev)
		ib_device_put(s->dev);
}

static int connect_to(struct side *s, struct side *peer)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
				   IB_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	int err;

	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, 1);
	rdma_ah_set_grh(&attr.ah_attr, &peer->gid, 0, s->gid_index, 64, 0);
	err = TRY(ib_modify_qp(s->qp, &attr, TO_INIT));
	attr.qp_state = IB_QPS_RTR;
	err = err ?: TRY(ib_modify_qp(s->qp, &attr, TO_RTR));
	attr.qp_state = IB_QPS_RTS;
	return err ?: TRY(ib_modify_qp(s->qp, &attr, TO_RTS));
}

static int finish(struct side *s, enum ib_wc_status status)
{
	struct ib_wc wc;

	for (int ms = 0; ms < WAIT_MS; ms++) {
		if (ib_poll_cq(s->cq, 1, &wc) > 0) {
			if (wc.status != status)
				pr_err("ferroce_consumer: %s\n", ib_wc_status_msg(wc.status));
			return EXPECT(wc.status == status);
		}
		usleep_range(1000, 2000);
	}
	return TRY(-ETIMEDOUT);
}

/* Makes the pages one region, of which the first byte has the address 0x10000. */
static int register_pages(struct side *s)
{
	struct ib_reg_wr wr = {
		.wr.opcode = IB_WR_REG_MR,
		.mr = s->mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE |
			  IB_ACCESS_REMOTE_ATOMIC,
	};

	/* One entry more than the region can have is left out. */
	int err = EXPECT(ib_map_mr_sg(s->mr, s->sgl, PAGES + 1, NULL, PAGE_SIZE) == PAGES) ?:
		  EXPECT(s->mr->length == LEN);

	if (err)
		return err;
	ib_update_fast_reg_key(s->mr, s->mr->rkey + 1);
	s->mr->iova = 0x10000;
	wr.key = s->mr->rkey;
	return TRY(ib_post_send(s->qp, &wr.wr, NULL)) ?: finish(s, IB_WC_SUCCESS);
}

static int transfer(enum ib_wr_opcode op, u64 at, u32 len, enum ib_wc_status status)
{
	struct ib_sge sge = { .addr = a.mr->iova + at, .length = len, .lkey = a.mr->lkey };
	struct ib_rdma_wr wr = {
		.wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = b.mr->iova + at,
		.rkey = b.mr->rkey,
	};

	return TRY(ib_post_send(a.qp, &wr.wr, NULL)) ?: finish(&a, status);
}

/* Byte `at` of a region. */
static u8 *byte(struct side *s, u64 at)
{
	return (u8 *)page_address(s->pages[PAGES - at / PAGE_SIZE]) + at % PAGE_SIZE;
}

/* The intended value of a byte of a region. */
static u8 pattern(u64 at)
{
	return at * 31 + at / PAGE_SIZE;
}

static bool has_pattern(struct side *s)
{
	for (u64 at = 0; at < LEN; at++)
		if (*byte(s, at) != pattern(at))
			return false;
	return true;
}

static int test_limit(void)
{
	return EXPECT(a.dev->attrs.max_fast_reg_page_list_len == PAGES) ?:
	       EXPECT(ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, PAGES + 1) == ERR_PTR(-EINVAL)) ?:
	       EXPECT(ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, 0) == ERR_PTR(-EINVAL)) ?:
	       TRY_PTR(a.mr = ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, PAGES)) ?:
	       TRY_PTR(b.mr = ib_alloc_mr(b.pd, IB_MR_TYPE_MEM_REG, PAGES)) ?:
	       register_pages(&a) ?: register_pages(&b);
}

static int test_pages(void)
{
	int err;

	for (u64 at = 0; at < LEN; at++)
		*byte(&a, at) = pattern(at);
	err = transfer(IB_WR_RDMA_WRITE, 0, LEN, IB_WC_SUCCESS) ?: EXPECT(has_pattern(&b));
	if (err)
		return err;
	for (u64 at = 0; at < LEN; at++)
		*byte(&a, at) = 0;
	/* The page that was left out is not part of the region. */
	return transfer(IB_WR_RDMA_READ, 0, LEN, IB_WC_SUCCESS) ?: EXPECT(has_pattern(&a)) ?:
	       EXPECT(!memchr_inv(page_address(b.pages[0]), 0, PAGE_SIZE));
}

static int atomic(enum ib_wr_opcode op, u64 at, u64 compare_add, u64 swap, u64 found)
{
	struct ib_sge sge = { .addr = a.mr->iova, .length = 8, .lkey = a.mr->lkey };
	struct ib_atomic_wr wr = {
		.wr = { .opcode = op, .sg_list = &sge, .num_sge = 1 },
		.remote_addr = b.mr->iova + at,
		.compare_add = compare_add,
		.swap = swap,
		.rkey = b.mr->rkey,
	};

	return TRY(ib_post_send(a.qp, &wr.wr, NULL)) ?: finish(&a, IB_WC_SUCCESS) ?:
	       EXPECT(*(u64 *)byte(&a, 0) == found);
}

/* In the last word of a page and the first of the next, which are not adjacent in memory. */
static int test_atomics(void)
{
	int err;

	for (u64 at = 5 * PAGE_SIZE - 8; at <= 5 * PAGE_SIZE; at += 8) {
		u64 *word = (u64 *)byte(&b, at);

		*word = U64_MAX;
		err = atomic(IB_WR_ATOMIC_FETCH_AND_ADD, at, 8, 0, U64_MAX) ?: EXPECT(*word == 7) ?:
		      atomic(IB_WR_ATOMIC_CMP_AND_SWP, at, 8, 100, 7) ?: EXPECT(*word == 7) ?:
		      atomic(IB_WR_ATOMIC_CMP_AND_SWP, at, 7, 0x1122334455667788, 7) ?:
		      EXPECT(*word == 0x1122334455667788);
		if (err)
			return err;
	}
	return 0;
}

/* Unsupported requests are refused when they are posted, and the queue pair keeps working. */
static int test_unsupported(void)
{
	struct ib_send_wr unknown = { .opcode = IB_WR_MASKED_ATOMIC_FETCH_AND_ADD };
	struct ib_send_wr with_inline = { .opcode = IB_WR_SEND, .send_flags = IB_SEND_INLINE };
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	return TRY(ib_query_qp(a.qp, &attr, IB_QP_CAP, &init)) ?:
	       EXPECT(attr.cap.max_inline_data == 0 && init.cap.max_inline_data == 0) ?:
	       EXPECT(ib_post_send(a.qp, &unknown, NULL) == -EINVAL) ?:
	       EXPECT(ib_post_send(a.qp, &with_inline, NULL) == -EINVAL) ?:
	       transfer(IB_WR_RDMA_WRITE, 0, 1, IB_WC_SUCCESS);
}

/*
 * A key that its owner has invalidated gives no access. Invalidating it again is no error: the peer
 * may do so at the same time.
 */
static int test_invalidate(void)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = b.mr->rkey,
	};

	*byte(&a, 0) = 0xaa;
	*byte(&b, 0) = 0xbb;
	return TRY(ib_post_send(b.qp, &wr, NULL)) ?: finish(&b, IB_WC_SUCCESS) ?:
	       TRY(ib_post_send(b.qp, &wr, NULL)) ?: finish(&b, IB_WC_SUCCESS) ?:
	       transfer(IB_WR_RDMA_WRITE, 0, 1, IB_WC_REM_ACCESS_ERR) ?:
	       EXPECT(*byte(&b, 0) == 0xbb);
}

/* Keys of regions that are not mapped yet: random but for one bit, which means "no window". */
static int test_keys(void)
{
	enum { COUNT = 200, BITS = 31 };
	static struct ib_mr *mrs[COUNT];
	int err = 0, differ, count;

	for (count = 0; count < COUNT && !err; count++)
		err = TRY_PTR(mrs[count] = ib_alloc_mr(a.pd, IB_MR_TYPE_MEM_REG, 1));
	for (int bit = 0; bit < BITS && !err; bit++) {
		differ = 0;
		for (int i = 1; i < COUNT; i++)
			differ += (mrs[i]->rkey ^ mrs[i - 1]->rkey) >> bit & 1;
		err = EXPECT(differ > COUNT / 4 && differ < COUNT * 3 / 4);
		if (err)
			pr_err("ferroce_consumer: bit %d differs %d times\n", bit, differ);
	}
	while (count--)
		if (!IS_ERR(mrs[count]))
			ib_dereg_mr(mrs[count]);
	return err;
}

/* A queue pair in ERR: requests to its send queue have completed when the post returns. */
static struct ib_qp *create_flushing(struct ib_cq *send_cq, struct ib_cq *recv_cq)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };
	struct ib_qp *qp = ib_create_qp(a.pd, &init);
	int err;

	if (IS_ERR(qp))
		return qp;
	err = ib_modify_qp(qp, &attr, TO_INIT);
	attr.qp_state = IB_QPS_ERR;
	err = err ?: ib_modify_qp(qp, &attr, IB_QP_STATE);
	if (err) {
		ib_destroy_qp(qp);
		return ERR_PTR(err);
	}
	return qp;
}

static int post(struct ib_qp *qp, u64 wr_id)
{
	struct ib_send_wr wr = { .wr_id = wr_id, .opcode = IB_WR_SEND };

	return TRY(ib_post_send(qp, &wr, NULL));
}

/* Posts `n` requests to each, in turn. */
static int post_both(struct ib_qp *x, struct ib_qp *y, u32 n)
{
	int err = 0;

	for (u32 i = 0; i < n && !err; i++)
		err = post(x, i) ?: post(y, i);
	return err;
}

/* Checks that all completions are of a queue pair, in the order of the requests, `n` in total. */
static int poll_all(struct ib_cq *cq, struct ib_qp *qp, u32 n)
{
	struct ib_wc wc;
	u32 others = 0;
	u32 count = 0;
	int err = 0;

	while (ib_poll_cq(cq, 1, &wc) > 0) {
		if (wc.qp != qp) {
			/* A consumer may look at it. If it was freed KASAN reports this. */
			if (!others++)
				pr_err("ferroce_consumer: completion of queue pair %u\n",
				       wc.qp->qp_num);
			continue;
		}
		if (wc.wr_id != count || wc.status != IB_WC_WR_FLUSH_ERR)
			err = EXPECT(wc.wr_id == count && wc.status == IB_WC_WR_FLUSH_ERR);
		count++;
	}
	if (others)
		pr_err("ferroce_consumer: %u completions of others\n", others);
	return err ?: EXPECT(!others) ?: EXPECT(count == n);
}

static void received(struct ib_cq *cq, void *done)
{
	complete(done);
}

/* A receive that was flushed, to a queue of its own. */
static int test_destroyed_recv(struct ib_cq *send_cq)
{
	DECLARE_COMPLETION_ONSTACK(done);
	struct ib_cq_init_attr init = { .cqe = 4 };
	struct ib_recv_wr wr = { .wr_id = 1 };
	struct ib_qp *x;
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = ib_create_cq(a.dev, received, NULL, &done, &init));
	if (err)
		return err;
	err = TRY_PTR(x = create_flushing(send_cq, cq));
	if (!err) {
		err = TRY(ib_req_notify_cq(cq, IB_CQ_NEXT_COMP)) ?:
		      TRY(ib_post_recv(x, &wr, NULL)) ?:
		      EXPECT(wait_for_completion_timeout(&done, msecs_to_jiffies(WAIT_MS)));
		ib_destroy_qp(x);
		err = err ?: poll_all(cq, NULL, 0);
	}
	ib_destroy_cq(cq);
	return err;
}

/*
 * Completions name their queue pair, so none is left once it is destroyed, or in RESET. Those of
 * others stay in their order, and there is room again.
 */
static int test_destroyed(void)
{
	struct ib_qp_attr reset = { .qp_state = IB_QPS_RESET };
	struct ib_qp *x = NULL, *y = NULL;
	struct ib_cq *cq;
	int err;

	err = TRY_PTR(cq = ib_alloc_cq(a.dev, NULL, CQE, 0, IB_POLL_DIRECT));
	if (err)
		return err;
	err = TRY_PTR(y = create_flushing(cq, cq));
	/* Each round begins elsewhere in the queue. */
	for (int n = CQE / 2; n > 0 && !err; n -= 37) {
		err = TRY_PTR(x = create_flushing(cq, cq)) ?: post_both(x, y, n);
		if (!IS_ERR_OR_NULL(x))
			ib_destroy_qp(x);
		err = err ?: poll_all(cq, y, n);
	}
	err = err ?: TRY_PTR(x = create_flushing(cq, cq));
	if (!err) {
		err = post_both(x, y, 20) ?: TRY(ib_modify_qp(x, &reset, IB_QP_STATE)) ?:
		      poll_all(cq, y, 20);
		ib_destroy_qp(x);
	}
	err = err ?: TRY_PTR(x = create_flushing(cq, cq));
	if (!err) {
		for (u32 i = 0; i < CQE && !err; i++)
			err = post(x, i);
		ib_destroy_qp(x);
		for (u32 i = 0; i < CQE && !err; i++)
			err = post(y, i);
		err = err ?: poll_all(cq, y, CQE);
	}
	err = err ?: test_destroyed_recv(cq);
	if (!IS_ERR_OR_NULL(y))
		ib_destroy_qp(y);
	ib_free_cq(cq);
	return err;
}

static int run(void)
{
	int err = open_side(&a) ?: open_side(&b) ?: connect_to(&a, &b) ?: connect_to(&b, &a);

	if (err)
		return err;
	if (brief)
		return test_limit() ?: transfer(IB_WR_RDMA_WRITE, 0, 1, IB_WC_SUCCESS) ?:
		       atomic(IB_WR_ATOMIC_FETCH_AND_ADD, 0, 1, 0, *(u64 *)byte(&b, 0));
	return test_keys() ?: test_destroyed() ?: test_limit() ?: test_pages() ?:
	       test_atomics() ?: test_unsupported() ?: test_invalidate();
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
	ret = run();
	close_side(&a);
	close_side(&b);
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
