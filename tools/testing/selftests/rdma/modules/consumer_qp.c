// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs of kernel consumers: chains of requests of which one is refused, UC, and datagrams
 * with address handles.
 */
#include <linux/delay.h>
#include <linux/ip.h>
#include <linux/slab.h>

#include "consumer.h"

/*
 * Posts WRITEs of bytes 0 to 2 of the region, of which one is spoiled. Those before it are
 * executed, it and those behind it are not.
 */
static int post_spoiled(int at, enum ib_wr_opcode opcode, int num_sge, int flags)
{
	static struct ib_sge sges[64];
	const struct ib_send_wr *bad = NULL;
	struct ib_rdma_wr wr[3] = {};
	int err;

	for (int i = 0; i < 3; i++) {
		wr[i].wr = (struct ib_send_wr){
			.next = i < 2 ? &wr[i + 1].wr : NULL,
			.wr_id = i,
			.opcode = IB_WR_RDMA_WRITE,
			.sg_list = &sges[i],
			.num_sge = 1,
		};
		wr[i].remote_addr = b.mr->iova + i;
		wr[i].rkey = b.mr->rkey;
		sges[i] = in_region(&a, i, 1);
		*byte(&a, i) = 0x55;
		*byte(&b, i) = 0;
	}
	wr[at].wr.opcode = opcode;
	wr[at].wr.num_sge = num_sge;
	wr[at].wr.send_flags = flags;
	err = EXPECT(ib_post_send(a.qp, &wr[0].wr, &bad) == -EINVAL) ?:
	      EXPECT(bad == &wr[at].wr);
	for (int i = 0; i < at && !err; i++)
		err = expect_wc(a.cq, i, IB_WC_SUCCESS);
	/* Had another one been posted, it would complete before this one. */
	err = err ?: transfer(IB_WR_RDMA_WRITE, 3, 1, IB_WC_SUCCESS);
	for (int i = 0; i < 3 && !err; i++)
		err = EXPECT(*byte(&b, i) == (i < at ? 0x55 : 0));
	return err;
}

/* A request in a chain that is refused when it is posted. */
static int test_chain(void)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr = {};
	int err = TRY(ib_query_qp(a.qp, &attr, IB_QP_CAP, &init));
	int too_many = attr.cap.max_send_sge + 1;

	err = err ?: EXPECT(too_many > 1 && too_many < 64) ?:
	      EXPECT(attr.cap.max_inline_data == 0 && init.cap.max_inline_data == 0);
	for (int at = 0; at < 3 && !err; at++)
		err = post_spoiled(at, IB_WR_RDMA_READ_WITH_INV, 1, 0) ?:
		      /* The kernel has no structures for the arguments of these. */
		      post_spoiled(at, IB_WR_FLUSH, 1, 0) ?:
		      post_spoiled(at, IB_WR_ATOMIC_WRITE, 1, 0) ?:
		      post_spoiled(at, IB_WR_MASKED_ATOMIC_FETCH_AND_ADD, 1, 0) ?:
		      post_spoiled(at, IB_WR_RDMA_WRITE, too_many, 0) ?:
		      post_spoiled(at, IB_WR_RDMA_WRITE, 1, IB_SEND_INLINE);
	return err;
}

/* Sends a message of no bytes, which the receive `wr_id` takes. */
static int send_to_recv(struct pair *p, u64 wr_id)
{
	return post_send(p->a, 5, 0, 0, 0) ?: expect_wc(a.cq, 5, IB_WC_SUCCESS) ?:
	       expect_wc(b.cq, wr_id, IB_WC_SUCCESS);
}

/* The same for receives, and for a receive queue that is full. */
static int test_recv_chain(void)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	struct ib_recv_wr more = { .wr_id = 1000 };
	struct ib_qp_attr attr;
	struct pair p = {};
	int refused, max, err;

	err = open_pair(&p, &init) ?: TRY(ib_query_qp(p.b, &attr, IB_QP_CAP, &init)) ?:
	      EXPECT(attr.cap.max_recv_sge < 64);
	if (err)
		goto out;
	max = attr.cap.max_recv_wr;
	err = EXPECT(post_recvs(p.b, 0, 3, 1, attr.cap.max_recv_sge + 1, &refused) == -EINVAL) ?:
	      EXPECT(refused == 1) ?: TRY(ib_post_recv(p.b, &more, NULL)) ?:
	      send_to_recv(&p, 0) ?: send_to_recv(&p, 1000) ?:
	      EXPECT(post_recvs(p.b, 0, max + 2, 0, 1, &refused) == -ENOMEM) ?:
	      EXPECT(refused == max) ?: EXPECT(ib_post_recv(p.b, &more, NULL) == -ENOMEM);
	for (int i = 0; i < max && !err; i++)
		/* The receive that has completed leaves room for another one. */
		err = send_to_recv(&p, i) ?: TRY(ib_post_recv(p.b, &more, NULL));
	err = err ?: send_to_recv(&p, 1000);
out:
	close_pair(&p);
	return err;
}

/*
 * A send queue that is full. The requests in it wait for receives, so none completes meanwhile. All
 * that were accepted complete, in their order.
 */
static int test_full(void)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_RC);
	const struct ib_send_wr *bad = NULL;
	struct ib_send_wr *wr = NULL;
	struct ib_qp_attr attr;
	struct pair p = {};
	int refused, max, err;

	init.cap.max_recv_wr = 32;
	err = open_pair(&p, &init) ?: TRY(ib_query_qp(p.a, &attr, IB_QP_CAP, &init)) ?:
	      EXPECT(attr.cap.max_send_wr < 32);
	if (err)
		goto out;
	max = attr.cap.max_send_wr;
	err = EXPECT(wr = kcalloc(max + 2, sizeof(*wr), GFP_KERNEL));
	if (err)
		goto out;
	for (int i = 0; i < max + 2; i++) {
		wr[i].next = i <= max ? &wr[i + 1] : NULL;
		wr[i].wr_id = i;
		wr[i].opcode = IB_WR_SEND;
	}
	err = EXPECT(ib_post_send(p.a, wr, &bad) == -ENOMEM) ?: EXPECT(bad == &wr[max]) ?:
	      EXPECT(ib_post_send(p.a, &wr[max + 1], &bad) == -ENOMEM) ?:
	      EXPECT(bad == &wr[max + 1]) ?: TRY(post_recvs(p.b, 0, max + 1, 0, 1, &refused));
	for (int i = 0; i < max && !err; i++)
		err = expect_wc(a.cq, i, IB_WC_SUCCESS) ?: expect_wc(b.cq, i, IB_WC_SUCCESS);
	err = err ?: send_to_recv(&p, max);
out:
	kfree(wr);
	close_pair(&p);
	return err;
}

static int post_recv(struct ib_qp *qp, u64 wr_id, struct ib_sge sge)
{
	struct ib_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	return TRY(ib_post_recv(qp, &wr, NULL));
}

static bool equal(u64 at_a, u64 at_b, u32 len)
{
	for (u32 i = 0; i < len; i++)
		if (*byte(&a, at_a + i) != *byte(&b, at_b + i))
			return false;
	return true;
}

/* Waits for bytes of which no completion tells that they have arrived. */
static int wait_equal(u64 at, u32 len)
{
	for (int ms = 0; ms < WAIT_MS && !equal(at, at, len); ms++)
		usleep_range(1000, 2000);
	return EXPECT(equal(at, at, len));
}

/* Fills bytes of both sides. */
static void prepare(u32 len, u8 seed)
{
	for (u32 i = 0; i < len; i++) {
		*byte(&a, i) = i * 7 + seed;
		*byte(&b, i) = 0;
	}
}

/* Requests can be posted and completions polled while interrupts are off. */
static int test_interrupts_off(void)
{
	struct ib_sge from = in_region(&a, 0, 5000), to = in_region(&b, 0, 5000);
	struct ib_send_wr send = {
		.wr_id = 1,
		.opcode = IB_WR_SEND,
		.sg_list = &from,
		.num_sge = 1,
	};
	struct ib_recv_wr recv = { .wr_id = 2, .sg_list = &to, .num_sge = 1 };
	unsigned long flags;
	int posted, received, polled;
	struct ib_wc wc;

	prepare(5000, 4);
	local_irq_save(flags);
	polled = ib_poll_cq(a.cq, 1, &wc);
	received = ib_post_recv(b.qp, &recv, NULL);
	posted = ib_post_send(a.qp, &send, NULL);
	local_irq_restore(flags);
	return EXPECT(!polled && !received && !posted) ?: finish_op(&a, IB_WC_SEND) ?:
	       expect_wc(b.cq, 2, IB_WC_SUCCESS) ?: EXPECT(equal(0, 0, 5000));
}

/* SEND, WRITE and WRITE with immediate data of several packets over UC. */
static int test_uc(void)
{
	enum { BYTES = 5000 };
	struct ib_qp_init_attr init = qp_init(IB_QPT_UC);
	struct ib_sge sge = in_region(&a, 0, BYTES);
	struct ib_rdma_wr with_imm = {
		.wr = {
			.opcode = IB_WR_RDMA_WRITE_WITH_IMM,
			.ex.imm_data = cpu_to_be32(0x12345678),
			.sg_list = &sge,
			.num_sge = 1,
		},
		.remote_addr = b.mr->iova,
		.rkey = b.mr->rkey,
	};
	struct pair p = {};
	struct ib_wc wc;
	int err;

	err = open_pair(&p, &init);
	if (err)
		goto out;
	prepare(BYTES, 1);
	err = post_recv(p.b, 1, in_region(&b, 0, BYTES)) ?:
	      post_recv(p.b, 2, in_region(&b, 0, 0)) ?:
	      rdma(p.a, IB_WR_SEND, in_region(&a, 0, BYTES), 0, 0, IB_WC_SUCCESS) ?:
	      wait_wc(b.cq, &wc) ?: EXPECT(wc.status == IB_WC_SUCCESS && wc.wr_id == 1) ?:
	      EXPECT(wc.opcode == IB_WC_RECV && wc.byte_len == BYTES && !wc.wc_flags) ?:
	      EXPECT(wc.qp == p.b) ?: EXPECT(equal(0, 0, BYTES));
	if (err)
		goto out;
	prepare(2 * BYTES, 2);
	err = rdma(p.a, IB_WR_RDMA_WRITE, in_region(&a, BYTES, BYTES), b.mr->iova + BYTES,
		   b.mr->rkey, IB_WC_SUCCESS) ?: wait_equal(BYTES, BYTES) ?:
	      EXPECT(!*byte(&b, BYTES - 1)) ?:
	      TRY(ib_post_send(p.a, &with_imm.wr, NULL)) ?: finish_op(&a, IB_WC_RDMA_WRITE) ?:
	      wait_wc(b.cq, &wc) ?: EXPECT(wc.status == IB_WC_SUCCESS && wc.wr_id == 2) ?:
	      EXPECT(wc.opcode == IB_WC_RECV_RDMA_WITH_IMM && wc.byte_len == BYTES) ?:
	      EXPECT(wc.wc_flags == IB_WC_WITH_IMM) ?:
	      EXPECT(wc.ex.imm_data == cpu_to_be32(0x12345678)) ?:
	      EXPECT(equal(0, 0, 2 * BYTES)) ?: post_recv(p.b, 3, in_region(&b, 0, 0));
	/* UC does not report an error of the peer: the WRITE completes, but has no effect. */
	*byte(&b, 0) = 0xbb;
	err = err ?: rdma(p.a, IB_WR_RDMA_WRITE, in_region(&a, 0, 1), b.mr->iova,
			  b.mr->rkey + 1, IB_WC_SUCCESS) ?:
	      rdma(p.a, IB_WR_SEND, in_region(&a, 0, 0), 0, 0, IB_WC_SUCCESS) ?:
	      expect_wc(b.cq, 3, IB_WC_SUCCESS) ?: EXPECT(*byte(&b, 0) == 0xbb);
out:
	close_pair(&p);
	return err;
}

/* The attributes of an address handle from one side to the other. */
static struct rdma_ah_attr ah_attr(struct side *s, struct side *peer, u8 hop_limit,
				   u8 traffic_class)
{
	struct rdma_ah_attr attr = { .type = RDMA_AH_ATTR_TYPE_ROCE };

	rdma_ah_set_port_num(&attr, 1);
	rdma_ah_set_grh(&attr, &peer->gid, 0, s->gid_index, hop_limit, traffic_class);
	return attr;
}

/* The address handle has these attributes. */
static int check_ah(struct ib_ah *ah, struct rdma_ah_attr *want)
{
	const struct ib_global_route *grh, *want_grh = rdma_ah_read_grh(want);
	struct rdma_ah_attr attr = {};
	int err = TRY(rdma_query_ah(ah, &attr));

	if (err)
		return err;
	grh = rdma_ah_read_grh(&attr);
	return EXPECT(attr.type == RDMA_AH_ATTR_TYPE_ROCE) ?:
	       EXPECT(rdma_ah_get_port_num(&attr) == 1) ?:
	       EXPECT(rdma_ah_get_ah_flags(&attr) == IB_AH_GRH) ?:
	       EXPECT(!memcmp(&grh->dgid, &want_grh->dgid, sizeof(grh->dgid))) ?:
	       EXPECT(grh->sgid_index == want_grh->sgid_index) ?:
	       EXPECT(grh->hop_limit == want_grh->hop_limit) ?:
	       EXPECT(grh->traffic_class == want_grh->traffic_class) ?:
	       EXPECT(grh->flow_label == want_grh->flow_label);
}

static int refuse_ah(struct rdma_ah_attr *attr)
{
	struct ib_ah *ah = rdma_create_ah(a.pd, attr, RDMA_CREATE_AH_SLEEPABLE);

	if (!IS_ERR(ah))
		rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
	return EXPECT(ah == ERR_PTR(-EINVAL));
}

/* Attributes that are refused: a rate, a port, and no GID of the peer. */
static int refuse_ahs(struct ib_ah *ah, struct rdma_ah_attr *valid)
{
	struct rdma_ah_attr rate = *valid, port = *valid, global = *valid;

	rdma_ah_set_static_rate(&rate, 200);
	rdma_ah_set_port_num(&port, 2);
	rdma_ah_set_ah_flags(&global, 0);
	return refuse_ah(&rate) ?: refuse_ah(&port) ?: refuse_ah(&global) ?:
	       EXPECT(rdma_modify_ah(ah, &rate) == -EINVAL) ?: check_ah(ah, valid);
}

/* Posts a datagram of bytes 0 to `len` of the pages. */
static int post_datagram(struct side *s, struct ib_qp *qp, struct ib_ah *ah, u32 qpn, u32 qkey,
			 u32 len, u32 imm)
{
	struct ib_sge sge = in_page(s, 0, len);
	struct ib_ud_wr wr = {
		.wr = {
			.opcode = IB_WR_SEND_WITH_IMM,
			.ex.imm_data = cpu_to_be32(imm),
			.sg_list = &sge,
			.num_sge = 1,
		},
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = qkey,
	};

	return TRY(ib_post_send(qp, &wr.wr, NULL)) ?: finish_op(s, IB_WC_SEND);
}

/* The next datagram: its completion, and the IP header in the first 40 bytes of the buffer. */
static int receive(struct side *s, struct ib_qp *qp, u32 src_qp, u32 len, u32 imm, u8 hop_limit,
		   u8 traffic_class, struct ib_wc *wc)
{
	const union rdma_network_hdr *hdr = (void *)byte(s, PAGE_SIZE);
	const struct iphdr *ip = &hdr->roce4grh;

	return wait_wc(s->cq, wc) ?: EXPECT(wc->status == IB_WC_SUCCESS) ?:
	       EXPECT(wc->opcode == IB_WC_RECV && wc->qp == qp) ?:
	       EXPECT(wc->byte_len == sizeof(struct ib_grh) + len) ?:
	       EXPECT(wc->src_qp == src_qp) ?:
	       EXPECT(wc->wc_flags ==
		      (IB_WC_GRH | IB_WC_WITH_IMM | IB_WC_WITH_NETWORK_HDR_TYPE)) ?:
	       EXPECT(wc->ex.imm_data == cpu_to_be32(imm)) ?:
	       EXPECT(wc->port_num == 1 && wc->network_hdr_type == RDMA_NETWORK_IPV4) ?:
	       EXPECT(ip->version == 4 && ip->protocol == IPPROTO_UDP) ?:
	       EXPECT(ip->ttl == hop_limit) ?:
	       /* The two lowest bits are for congestion notification. */
	       EXPECT(ip->tos >> 2 == traffic_class >> 2) ?:
	       EXPECT(!memcmp(&ip->daddr, &s->gid.raw[12], 4));
}

/* Datagrams from a to b, and a reply to their source. */
static int exchange(struct pair *p, struct ib_ah *ah)
{
	struct ib_sge at_b = in_page(&b, PAGE_SIZE, PAGE_SIZE);
	struct ib_ah *reply = NULL;
	struct ib_wc wc;
	int err;

	prepare(900, 3);
	/* The first one has a wrong Q_Key, and is dropped. */
	err = post_recv(p->b, 1, at_b) ?:
	      post_datagram(&a, p->a, ah, p->b->qp_num, QKEY + 1, 900, 1) ?:
	      post_datagram(&a, p->a, ah, p->b->qp_num, QKEY, 900, 2) ?:
	      receive(&b, p->b, p->a->qp_num, 900, 2, 33, 0x28, &wc) ?:
	      EXPECT(equal(0, PAGE_SIZE + sizeof(struct ib_grh), 900)) ?:
	      TRY_PTR(reply = ib_create_ah_from_wc(b.pd, &wc, (void *)byte(&b, PAGE_SIZE), 1));
	if (err)
		return err;
	err = post_recv(p->a, 3, in_page(&a, PAGE_SIZE, PAGE_SIZE)) ?:
	      post_datagram(&b, p->b, reply, wc.src_qp, QKEY, 1, 4) ?: wait_wc(a.cq, &wc) ?:
	      EXPECT(wc.status == IB_WC_SUCCESS && wc.wr_id == 3) ?:
	      EXPECT(wc.src_qp == p->b->qp_num && wc.ex.imm_data == cpu_to_be32(4)) ?:
	      /* A Q_Key with its highest bit set stands for that of the sender. */
	      post_recv(p->b, 5, at_b) ?:
	      post_datagram(&a, p->a, ah, p->b->qp_num, BIT(31) | 1, 0, 6) ?:
	      receive(&b, p->b, p->a->qp_num, 0, 6, 33, 0x28, &wc);
	rdma_destroy_ah(reply, RDMA_DESTROY_AH_SLEEPABLE);
	return err;
}

/*
 * Address handles can be queried and modified, and datagrams have their attributes. They can be
 * created, modified and destroyed where sleeping is not allowed.
 */
static int test_datagrams(void)
{
	struct ib_qp_init_attr init = qp_init(IB_QPT_UD);
	struct rdma_ah_attr attr = ah_attr(&a, &b, 33, 0x28);
	struct rdma_ah_attr other = ah_attr(&a, &b, 44, 0x48);
	struct ib_ah *ah;
	struct pair p = {};
	struct ib_wc wc;
	int err;

	local_bh_disable();
	ah = rdma_create_ah(a.pd, &attr, 0);
	local_bh_enable();
	err = TRY_PTR(ah) ?: open_pair(&p, &init) ?: check_ah(ah, &attr) ?:
	      refuse_ahs(ah, &attr) ?: exchange(&p, ah);
	if (err)
		goto out;
	local_bh_disable();
	err = TRY(rdma_modify_ah(ah, &other));
	local_bh_enable();
	err = err ?: check_ah(ah, &other) ?:
	      post_recv(p.b, 7, in_page(&b, PAGE_SIZE, PAGE_SIZE)) ?:
	      post_datagram(&a, p.a, ah, p.b->qp_num, QKEY, 8, 9) ?:
	      receive(&b, p.b, p.a->qp_num, 8, 9, 44, 0x48, &wc);
out:
	local_bh_disable();
	if (!IS_ERR(ah))
		rdma_destroy_ah(ah, 0);
	local_bh_enable();
	close_pair(&p);
	return err;
}

int test_qp(void)
{
	return TRY(test_chain()) ?: TRY(test_recv_chain()) ?:
	       TRY(test_full()) ?: TRY(test_interrupts_off()) ?: TRY(test_uc()) ?:
	       TRY(test_datagrams());
}
