// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of every service: all lengths around multiples of the MTU, scatter and gather, inline
 * and immediate data, fences, solicited and unsignalled completions, and the overflow of a
 * completion queue.
 */
#include "ferroce_util.h"

#define LEN 65536

static unsigned int mtu_bytes(enum ibv_mtu mtu)
{
	return 128 << mtu;
}

/* One message of each operation that the service has, with guard bytes around the destination. */
static void one_length(struct end *a, struct end *b, uint32_t len)
{
	static uint32_t seed;
	struct ibv_wc wc;
	/* Odd offsets, so that nothing is aligned unless required. */
	size_t from = 4096 + seed % 13, guard = 64;
	size_t grh = a->type == IBV_QPT_UD ? GRH_LEN : 0;

	fill(a->buf + from, len, ++seed);
	memset(b->buf, 0xa5, b->len);
	post_recv(b, seed, from - grh, len + grh);
	post_send(a, b, IBV_WR_SEND, seed, from, len, IBV_SEND_SIGNALED);
	CHECK_EQ(expect(a, seed, IBV_WC_SUCCESS).byte_len, len);
	wc = expect(b, seed, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, len + grh);
	CHECK_EQ(wc.wc_flags, grh ? IBV_WC_GRH : 0);
	CHECK_EQ(wc.src_qp, grh ? a->qp->qp_num : 0);
	CHECK(filled(b->buf + from, len, seed));
	CHECK(all_bytes(b->buf + from - grh - guard, guard, 0xa5));
	CHECK(all_bytes(b->buf + from + len, guard, 0xa5));
	if (grh)
		return;

	fill(a->buf + from, len, ++seed);
	memset(b->buf, 0xa5, b->len);
	post_recv(b, seed, 0, 0);
	post_send(a, b, IBV_WR_RDMA_WRITE_WITH_IMM, seed, from, len, IBV_SEND_SIGNALED);
	wc = expect(a, seed, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
	CHECK_EQ(wc.byte_len, len);
	wc = expect(b, seed, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(ntohl(wc.imm_data), seed);
	CHECK_EQ(wc.byte_len, len);
	CHECK(filled(b->buf + from, len, seed));
	CHECK(all_bytes(b->buf + from - guard, guard, 0xa5));
	CHECK(all_bytes(b->buf + from + len, guard, 0xa5));
	if (a->type != IBV_QPT_RC)
		return;

	fill(b->buf + from, len, ++seed);
	memset(a->buf, 0xa5, a->len);
	post_send(a, b, IBV_WR_RDMA_READ, seed, from, len, IBV_SEND_SIGNALED);
	wc = expect(a, seed, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_RDMA_READ);
	CHECK(filled(a->buf + from, len, seed));
	CHECK(all_bytes(a->buf + from - guard, guard, 0xa5));
	CHECK(all_bytes(a->buf + from + len, guard, 0xa5));
	expect_none(b);
}

static void lengths(enum ibv_qp_type type, enum ibv_mtu mtu, bool v6)
{
	unsigned int bytes = mtu_bytes(mtu), packets = type == IBV_QPT_UD ? 1 : 3;
	struct end a, b;

	end_init(&a, &r1, type, LEN);
	end_init(&b, &r2, type, LEN);
	a.mtu = mtu;
	b.mtu = mtu;
	a.v6 = v6;
	b.v6 = v6;
	pair_create(&a, &b);
	for (uint32_t len = 0; len < 6; len++)
		one_length(&a, &b, len);
	for (unsigned int n = 1; n <= packets; n++) {
		for (int d = -3; d <= 3; d++)
			if (type != IBV_QPT_UD || d <= 0)
				one_length(&a, &b, n * bytes + d);
	}
	if (type != IBV_QPT_UD)
		one_length(&a, &b, 16 * bytes < LEN / 2 ? 16 * bytes + 1 : LEN / 2);
	pair_close(&a, &b);
}

static void test_rc_lengths(void)
{
	lengths(IBV_QPT_RC, IBV_MTU_256, false);
	lengths(IBV_QPT_RC, IBV_MTU_1024, true);
	lengths(IBV_QPT_RC, IBV_MTU_4096, false);
}

/* The driver copies up to 128 bytes without a string instruction, in blocks that overlap. */
static void test_short_lengths(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	for (uint32_t len = 6; len <= 136; len++)
		one_length(&a, &b, len);
	pair_close(&a, &b);
}

static void test_uc_lengths(void)
{
	lengths(IBV_QPT_UC, IBV_MTU_256, true);
	lengths(IBV_QPT_UC, IBV_MTU_512, false);
	lengths(IBV_QPT_UC, IBV_MTU_2048, false);
}

static void test_ud_lengths(void)
{
	lengths(IBV_QPT_UD, IBV_MTU_4096, false);
	lengths(IBV_QPT_UD, IBV_MTU_4096, true);
}

/*
 * A datagram longer than the MTU fails, signalled or not, and nothing is sent: an error of the send
 * queue, so requests posted behind it are flushed.
 */
static void expect_too_long(struct end *a, struct end *b, uint32_t len)
{
	post_send(a, b, IBV_WR_SEND, 2, 0, len, 0);
	post_send(a, b, IBV_WR_SEND, 3, 0, 64, 0);
	expect(a, 2, IBV_WC_LOC_LEN_ERR);
	expect(a, 3, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(a), IBV_QPS_SQE);
	expect_none(b);
	end_modify(a, IBV_QPS_RTS);
}

static void test_ud_too_long(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	post_recv(&b, 1, 0, LEN);
	expect_too_long(&a, &b, 4097);
	expect_too_long(&a, &b, LEN);
	fill(a.buf, 4096, 5);
	post_send(&a, &b, IBV_WR_SEND, 3, 0, 4096, IBV_SEND_SIGNALED);
	expect(&a, 3, IBV_WC_SUCCESS);
	/* This is the first datagram that arrives. */
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf + GRH_LEN, 4096, 5));
	expect_none(&b);
	pair_close(&a, &b);
}

static void lower_mtu(void)
{
	shell_undo(BOTH("ip -n n$i link set v$i mtu 4200"),
		   BOTH("ip -n n$i link set v$i mtu 1500"));
}

/* Datagrams are limited by the current MTU of the port, not that at the setup of the queue pair. */
static void test_ud_mtu_changes(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	post_recv(&b, 1, 0, LEN);
	lower_mtu();
	expect_too_long(&a, &b, 2000);
	undo_last();
	fill(a.buf, 2000, 6);
	post_send(&a, &b, IBV_WR_SEND, 3, 0, 2000, IBV_SEND_SIGNALED);
	expect(&a, 3, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf + GRH_LEN, 2000, 6));
	expect_none(&b);
	pair_close(&a, &b);
	/* Queue pairs that were set up while the MTU was small. */
	lower_mtu();
	pair_open(&a, &b, IBV_QPT_UD, LEN);
	undo_last();
	one_length(&a, &b, 4096);
	pair_close(&a, &b);
}

/* The address handle is needed only until the datagrams are posted, even if they are many. */
static void test_ud_address_gone(void)
{
	enum { N = 48 };
	struct ibv_send_wr wrs[N];
	struct ibv_sge sges[N];
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	for (int i = 0; i < N; i++)
		post_recv(&b, i, 0, 1024);
	make_chain(wrs, sges, N, &a, &b, IBV_WR_SEND, 64, IBV_SEND_SIGNALED);
	post_wr(&a, wrs);
	CHECK_EQ(ibv_destroy_ah(a.ah), 0);
	a.ah = NULL;
	for (int i = 0; i < N; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	for (int i = 0; i < N; i++)
		expect(&b, i, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* Both queue pairs on one device, by way of the namespace's lo. */
static void test_loopback(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		end_init(&a, &r1, type, LEN);
		end_init(&b, &r1, type, LEN);
		pair_create(&a, &b);
		one_length(&a, &b, 4096);
		one_length(&b, &a, 1);
		/* A queue pair that is connected to itself. */
		end_modify(&a, IBV_QPS_RESET);
		a.psn = 7;
		end_to(&a, &a, IBV_QPS_RTS);
		post_recv(&a, 1, 8192, 4096);
		fill(a.buf, 1024, 99);
		post_send(&a, &a, IBV_WR_SEND, 1, 0, 1024, 0);
		expect(&a, 1, IBV_WC_SUCCESS);
		CHECK(filled(a.buf + 8192 + (type == IBV_QPT_UD ? GRH_LEN : 0), 1024, 99));
		pair_close(&a, &b);
	}
}

/* 32 pieces of different lengths on both sides, none of them in step with the packets. */
static void test_32_sges(void)
{
	struct ibv_sge from[32], to[32];
	struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = to, .num_sge = 32 }, *bad;
	struct ibv_send_wr send;
	uint32_t at = 0, room = 0;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cap.max_send_sge = 32;
	b.cap.max_recv_sge = 32;
	pair_create(&a, &b);
	make_send(&send, from, &a, &b, IBV_WR_SEND, 4, 0, 0, IBV_SEND_SIGNALED);
	memset(b.buf, 0xa5, b.len);
	for (int i = 0; i < 32; i++) {
		/* Some pieces have zero length. */
		uint32_t n = i % 7 ? i * 29 + 1 : 0, m = i % 5 ? 700 - i * 3 : 0;

		from[i] = (struct ibv_sge){ (uintptr_t)a.buf + i * 2000 + i, n, a.mr->lkey };
		to[i] = (struct ibv_sge){ (uintptr_t)b.buf + i * 1500 + 3, m, b.mr->lkey };
		for (uint32_t k = 0; k < n; k++)
			a.buf[i * 2000 + i + k] = (at + k) * 7 >> 3;
		at += n;
		room += m;
	}
	CHECK(room > at);
	send.num_sge = 32;
	CHECK_EQ(ibv_post_recv(b.qp, &recv, &bad), 0);
	post_wr(&a, &send);
	expect(&a, 4, IBV_WC_SUCCESS);
	CHECK_EQ(expect(&b, 5, IBV_WC_SUCCESS).byte_len, at);
	for (uint32_t i = 0, pos = 0; i < 32; i++) {
		for (uint32_t k = 0; k < to[i].length; k++, pos++)
			CHECK_EQ(b.buf[i * 1500 + 3 + k],
				 pos < at ? (unsigned char)(pos * 7 >> 3) : 0xa5);
		CHECK_EQ(b.buf[i * 1500 + 3 + to[i].length], 0xa5);
	}
	send.num_sge = 33;
	CHECK(ibv_post_send(a.qp, &send, &(struct ibv_send_wr *){ NULL }));
	pair_close(&a, &b);
}

/* The program may reuse inline data as soon as the post returns; the lkey is not checked. */
static void inline_data(enum ibv_qp_type type)
{
	size_t grh = type == IBV_QPT_UD ? GRH_LEN : 0;
	struct ibv_send_wr wr, *bad;
	enum ibv_wr_opcode op;
	struct ibv_sge sge;
	struct end a, b;

	pair_open(&a, &b, type, LEN);
	for (uint32_t len = 0; len <= a.cap.max_inline_data; len += len < 6 ? 1 : 29) {
		op = len & 1 || grh ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM;
		post_recv(&b, len, 0, 4096);
		fill(a.buf, len, len);
		make_send(&wr, &sge, &a, &b, op, len, 0, len, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
		sge.lkey = 0xdead;
		post_wr(&a, &wr);
		memset(a.buf, 0, 4096);
		expect(&a, len, IBV_WC_SUCCESS);
		expect(&b, len, IBV_WC_SUCCESS);
		CHECK(filled(b.buf + grh, len, len));
	}
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 1, 0, a.cap.max_inline_data + 1, IBV_SEND_INLINE);
	CHECK(ibv_post_send(a.qp, &wr, &bad));
	pair_close(&a, &b);
}

static void test_inline(void)
{
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++)
		inline_data(type);
}

static void test_imm(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, LEN);
		for (uint32_t id = 0xfffffff0; id != 4; id++) {
			struct ibv_wc wc;

			post_recv(&b, id, 0, 4096);
			post_send(&a, &b, IBV_WR_SEND_WITH_IMM, id, 0, id & 255, IBV_SEND_SIGNALED);
			expect(&a, id, IBV_WC_SUCCESS);
			wc = expect(&b, id, IBV_WC_SUCCESS);
			CHECK(wc.wc_flags & IBV_WC_WITH_IMM);
			CHECK_EQ(ntohl(wc.imm_data), id);
			CHECK_EQ(wc.opcode, IBV_WC_RECV);
		}
		pair_close(&a, &b);
	}
}

/* A fenced SEND begins after the READ before it has completed, and sends the data of the READ. */
static void test_fence(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, 4 * LEN);
	for (uint32_t i = 1; i <= 8; i++) {
		fill(b.buf, LEN, i);
		post_recv(&b, i, 2 * LEN, LEN);
		post_send(&a, &b, IBV_WR_RDMA_READ, 100 + i, 0, LEN, 0);
		post_send(&a, &b, IBV_WR_SEND, i, 0, LEN, IBV_SEND_FENCE | IBV_SEND_SIGNALED);
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
		CHECK(filled(b.buf + 2 * LEN, LEN, i));
	}
	pair_close(&a, &b);
}

/*
 * Only signalled requests generate completions, in order; the room of the others becomes free all
 * the same.
 */
static void test_unsignalled(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, LEN);
		for (uint32_t id = 0; id < 400; id++) {
			post_recv(&b, id, 0, 4096);
			post_send(&a, &b, IBV_WR_SEND, id, 0, 8,
				  id % 20 == 19 ? IBV_SEND_SIGNALED : 0);
			expect(&b, id, IBV_WC_SUCCESS);
			if (id % 20 == 19)
				expect(&a, id, IBV_WC_SUCCESS);
		}
		expect_none(&a);
		pair_close(&a, &b);
	}
}

/*
 * An unsignalled SEND whose acknowledgment is requested only later succeeds, although the receiver
 * leaves the connection as soon as it has the message.
 */
static void test_unsignalled_last(void)
{
	const enum ibv_qp_state states[] = { IBV_QPS_ERR, IBV_QPS_RESET };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end a, b;

	for (size_t i = 0; i < ARRAY_LEN(states); i++) {
		pair_open(&a, &b, IBV_QPT_RC, LEN);
		post_recv(&b, 1, 0, 8);
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 8, 0);
		expect(&b, 1, IBV_WC_SUCCESS);
		end_modify(&b, states[i]);
		/* The queue is drained once every request has succeeded. */
		end_modify(&a, IBV_QPS_SQD);
		wait_begin();
		do {
			wait_more_verb("the acknowledgment");
			CHECK_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
			CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
		} while (attr.sq_draining);
		expect_none(&a);
		pair_close(&a, &b);
	}
}

static bool told(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(e->channel, &cq, &context))
		return false;
	CHECK(cq == e->cq);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void test_solicited(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	CHECK_EQ(ibv_req_notify_cq(b.cq, 1), 0);
	for (uint64_t id = 1; id <= 6; id++)
		post_recv(&b, id, 0, 4096);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 8, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(!told(&b));
	post_send(&a, &b, IBV_WR_SEND, 2, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	wait_begin();
	while (!told(&b))
		wait_more_verb("the event of a solicited completion");
	/* It was armed for one event. */
	post_send(&a, &b, IBV_WR_SEND, 3, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
	expect(&a, 3, IBV_WC_SUCCESS);
	expect(&b, 3, IBV_WC_SUCCESS);
	CHECK(!told(&b));
	/* Armed for any completion; arming for solicited ones then has no effect. */
	CHECK_EQ(ibv_req_notify_cq(b.cq, 0), 0);
	CHECK_EQ(ibv_req_notify_cq(b.cq, 1), 0);
	post_send(&a, &b, IBV_WR_SEND, 4, 0, 8, 0);
	expect(&b, 4, IBV_WC_SUCCESS);
	wait_begin();
	while (!told(&b))
		wait_more_verb("the event of a completion");
	/* An error counts as solicited. */
	CHECK_EQ(ibv_req_notify_cq(b.cq, 1), 0);
	end_modify(&b, IBV_QPS_ERR);
	wait_begin();
	while (!told(&b))
		wait_more_verb("the event of an error");
	expect(&b, 5, IBV_WC_WR_FLUSH_ERR);
	pair_close(&a, &b);
}

/*
 * Checks that the completions after the lost one, for which there is room by now, are those of
 * flushed requests, in order.
 */
static void expect_only_flushed(struct end *e, uint64_t lost)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(e->cq, 1, &wc)) != 0) {
		CHECK_EQ(n, 1);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc.qp_num, e->qp->qp_num);
		CHECK(wc.wr_id > lost);
		lost = wc.wr_id;
	}
}

static const enum ibv_event_type overflow_events[] = { IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL };

/*
 * Without polling, the queue holds as many completions as it promised, reports the overflow once,
 * and never holds wrong entries. A queue pair whose completion is lost goes to ERR, since its
 * consumer would not notice otherwise.
 */
static void test_cq_overflow(void)
{
	struct end a, b;
	uint32_t id;

	end_init(&a, &r1, IBV_QPT_UD, LEN);
	end_init(&b, &r2, IBV_QPT_UD, LEN);
	b.cqe = 5;
	pair_create(&a, &b);
	for (id = 0; id < 50; id++) {
		post_recv(&b, id, 0, 4096);
		post_send(&a, &b, IBV_WR_SEND, id, 0, 8, IBV_SEND_SIGNALED);
		expect(&a, id, IBV_WC_SUCCESS);
	}
	expect_events(&b, overflow_events, 2);
	CHECK_EQ(end_state(&b), IBV_QPS_ERR);
	CHECK_EQ(end_state(&a), IBV_QPS_RTS);
	for (id = 0; id < (uint32_t)b.cq->cqe; id++)
		expect(&b, id, IBV_WC_SUCCESS);
	expect_only_flushed(&b, id);
	CHECK(!have_event(&b));
	pair_close(&a, &b);
}

/* The same on RC. The message without a completion has LEN bytes; STATUS is that of its sender. */
static void overflow_rc(uint32_t len, enum ibv_wc_status status)
{
	struct end a, b;
	uint32_t id;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	b.cqe = 3;
	/* 67 ms, eight times, so that the first messages succeed even on a slow machine. */
	a.timeout = 14;
	pair_create(&a, &b);
	for (id = 0; id < 4; id++)
		post_recv(&b, id, 0, 4096);
	for (id = 0; id < 3; id++) {
		post_send(&a, &b, IBV_WR_SEND, id, 0, 8, IBV_SEND_SIGNALED);
		expect(&a, id, IBV_WC_SUCCESS);
	}
	post_send(&a, &b, IBV_WR_SEND, 3, 0, len, IBV_SEND_SIGNALED);
	expect(&a, 3, status);
	expect_events(&b, overflow_events, 2);
	end_await(&b, IBV_QPS_ERR);
	for (id = 0; id < 3; id++)
		expect(&b, id, IBV_WC_SUCCESS);
	expect_none(&b);
	pair_close(&a, &b);
}

static void test_cq_overflow_rc(void)
{
	struct end a, b;
	uint32_t id;

	/* A message whose completion was lost is not acknowledged; one that failed is refused. */
	overflow_rc(8, IBV_WC_RETRY_EXC_ERR);
	overflow_rc(4097, IBV_WC_REM_INV_REQ_ERR);

	/* The overflow of the sender's own queue. */
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cqe = 1;
	pair_create(&a, &b);
	for (id = 0; id < 2; id++)
		post_send(&a, &b, IBV_WR_RDMA_WRITE, id, 0, 8, IBV_SEND_SIGNALED);
	expect_events(&a, overflow_events, 2);
	CHECK_EQ(end_state(&a), IBV_QPS_ERR);
	expect(&a, 0, IBV_WC_SUCCESS);
	expect_none(&a);
	pair_close(&a, &b);
}

static const struct test tests[] = {
	{ "RC, lengths", test_rc_lengths },
	{ "RC, all short lengths", test_short_lengths },
	{ "UC, lengths", test_uc_lengths },
	{ "UD, lengths", test_ud_lengths },
	{ "UD, too long", test_ud_too_long },
	{ "UD, MTU changes", test_ud_mtu_changes },
	{ "UD, address handle destroyed", test_ud_address_gone },
	{ "loopback on one device", test_loopback },
	{ "32 SGEs", test_32_sges },
	{ "inline data", test_inline },
	{ "immediate data", test_imm },
	{ "fence", test_fence },
	{ "unsignalled requests", test_unsignalled },
	{ "unsignalled request before a disconnect", test_unsignalled_last },
	{ "solicited events", test_solicited },
	{ "completion queue overflow", test_cq_overflow },
	{ "completion queue overflow, RC", test_cq_overflow_rc },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
