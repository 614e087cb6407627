// SPDX-License-Identifier: GPL-2.0
/*
 * ERR flushes posted requests, with and without a doorbell.
 */
#include <unistd.h>
#include "ferroce_util.h"

static void post_both(struct end *a, struct end *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		post_recv(a, 100 + i, 0, 64);
		post_send(a, b, IBV_WR_SEND, 200 + i, 0, 64, i & 1 ? IBV_SEND_SIGNALED : 0);
	}
}

/* Takes `n` completions of each queue, in order, all flushed. */
static void expect_flushed(struct end *a, uint32_t recvs, uint32_t sends)
{
	uint32_t recv = 0, send = 0;
	struct ibv_wc wc;

	wait_begin();
	while (recv < recvs || send < sends) {
		int n = ibv_poll_cq(a->cq, 1, &wc);

		CHECK(n >= 0);
		if (!n) {
			wait_more("a flushed request");
			continue;
		}
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc.qp_num, a->qp->qp_num);
		CHECK_EQ(wc.wr_id, wc.wr_id < 200 ? 100 + recv++ : 200 + send++);
	}
	CHECK_EQ(recv, recvs);
	CHECK_EQ(send, sends);
	expect_none(a);
}

static void test_both(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, 4096);
		end_modify(&a, IBV_QPS_ERR);
		CHECK_EQ(end_state(&a), IBV_QPS_ERR);
		/* A send rings the doorbell; both queues are flushed then, unsignalled too. */
		post_both(&a, &b, 20);
		expect_flushed(&a, 20, 20);
		/* Receives ring no doorbell: the next doorbell or modify flushes them at once. */
		post_recv(&a, 100, 0, 64);
		doorbell(&a);
		expect_flushed(&a, 1, 0);
		post_recv(&a, 100, 0, 64);
		end_modify(&a, IBV_QPS_ERR);
		expect_flushed(&a, 1, 0);
		pair_close(&a, &b);
	}
}

/* A list of requests with one doorbell, as many as were granted and more than were asked for. */
static void test_granted(void)
{
	static const uint32_t asked[] = { 2, 5, 10 };
	struct ibv_send_wr wrs[16];
	struct ibv_sge sges[16];
	struct end a, b;

	for (size_t i = 0; i < 2 * ARRAY_LEN(asked); i++) {
		enum ibv_qp_type type = i % 2 ? IBV_QPT_RC : IBV_QPT_UC;

		end_init(&a, &r1, type, 4096);
		end_init(&b, &r2, type, 4096);
		a.cap.max_send_wr = asked[i / 2];
		pair_create(&a, &b);
		CHECK(a.cap.max_send_wr > asked[i / 2] && a.cap.max_send_wr <= ARRAY_LEN(wrs));
		end_modify(&a, IBV_QPS_ERR);
		make_chain(wrs, sges, a.cap.max_send_wr, &a, &b, IBV_WR_SEND, 64, 0);
		post_wr(&a, wrs);
		for (uint32_t n = 0; n < a.cap.max_send_wr; n++)
			expect(&a, n, IBV_WC_WR_FLUSH_ERR);
		expect_none(&a);
		pair_close(&a, &b);
	}
}

static void pair_create_long(struct end *a, struct end *b, int type, uint32_t wrs)
{
	end_init(a, &r1, type, 4096);
	end_init(b, &r2, type, 4096);
	a->cap.max_send_wr = wrs;
	a->cap.max_recv_wr = wrs;
	a->cqe = 2 * wrs;
	pair_create(a, b);
}

/* One doorbell for a full ring of the largest size, which holds more than max_send_wr. */
static void test_largest(void)
{
	enum { LIMIT = 16384, ROOM = 2 * LIMIT - 1 };
	static struct ibv_send_wr wrs[ROOM];
	static struct ibv_sge sges[ROOM];
	struct end a, b;

	pair_create_long(&a, &b, IBV_QPT_RC, LIMIT);
	CHECK_EQ(a.cap.max_send_wr, LIMIT);
	end_modify(&a, IBV_QPS_ERR);
	make_chain(wrs, sges, ROOM, &a, &b, IBV_WR_SEND, 64, 0);
	post_wr(&a, wrs);
	for (uint32_t n = 0; n < ROOM; n++)
		expect(&a, n, IBV_WC_WR_FLUSH_ERR);
	expect_none(&a);
	pair_close(&a, &b);
}

/* Receives that are posted in ERR are flushed without a doorbell, at any time. */
static void flushed_unrung(struct end *e, int rounds)
{
	for (int round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < 20; i++)
			post_recv(e, 100 + i, 0, 64);
		expect_flushed(e, 20, 0);
	}
}

static void test_receives(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, 4096);
		end_modify(&a, IBV_QPS_ERR);
		flushed_unrung(&a, 4);
		/* RESET ends that: a receive posted then stays, while the peer's are flushed. */
		end_modify(&a, IBV_QPS_RESET);
		end_modify(&b, IBV_QPS_ERR);
		end_to(&a, &b, IBV_QPS_RTS);
		post_recv(&a, 7, 0, 128);
		flushed_unrung(&b, 6);
		expect_none(&a);
		end_modify(&b, IBV_QPS_RESET);
		end_to(&b, &a, IBV_QPS_RTS);
		post_send(&b, &a, IBV_WR_SEND, 8, 0, 64, IBV_SEND_SIGNALED);
		expect(&b, 8, IBV_WC_SUCCESS);
		expect(&a, 7, IBV_WC_SUCCESS);
		/* ERR starts it again, also without a modify. */
		post_recv(&a, 9, 0, 63);
		if (type != IBV_QPT_UD) {
			post_send(&b, &a, IBV_WR_SEND, 8, 0, 64, IBV_SEND_SIGNALED);
			expect(&a, 9, IBV_WC_LOC_LEN_ERR);
			end_await(&a, IBV_QPS_ERR);
			flushed_unrung(&a, 2);
		}
		pair_close(&a, &b);
	}
}

/*
 * Requests that the peer has not acknowledged are flushed in order, and none of them is sent again.
 * The network drops the packets sent before that, so that none is in flight when the peer posts a
 * receive.
 */
static void test_in_flight(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, 4096);
	end_init(&b, &r2, IBV_QPT_RC, 4096);
	/* 268 ms */
	a.timeout = 16;
	pair_create(&a, &b);
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root netem loss 100%%");
	post_both(&a, &b, 20);
	end_modify(&a, IBV_QPS_ERR);
	expect_flushed(&a, 20, 20);
	undo_last();
	post_recv(&b, 1, 0, 4096);
	usleep(2 * 268 * 1000);
	end_modify(&b, IBV_QPS_ERR);
	expect(&b, 1, IBV_WC_WR_FLUSH_ERR);
	pair_close(&a, &b);
}

/*
 * A net device holds as many packets as may be in flight. The retries run out nevertheless, as the
 * requester sends a few packets more.
 */
static void test_held(void)
{
	enum { LEN = 256 * 1024 };
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	/* 67 ms */
	a.timeout = 14;
	pair_create(&a, &b);
	/*
	 * The window becomes larger than the number of packets that may be in flight. (On a busy
	 * host it may stay smaller; then this shows nothing.)
	 */
	for (uint32_t i = 0; i < 4; i++) {
		post_send(&a, &b, IBV_WR_RDMA_WRITE, i, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, i, IBV_WC_SUCCESS);
	}
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root netem slot 100s 100s packets 1");
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 4, 0, LEN, IBV_SEND_SIGNALED);
	expect(&a, 4, IBV_WC_RETRY_EXC_ERR);
	undo_last();
	pair_close(&a, &b);
}

/* More requests than slots, than a flush budget, and than one call completes. */
static void test_many(void)
{
	struct end a, b;

	pair_create_long(&a, &b, IBV_QPT_RC, 500);
	for (uint32_t i = 0; i < 500; i++)
		post_recv(&a, 1000 + i, 0, 64);
	for (uint32_t i = 0; i < 500; i++)
		post_send(&a, &b, IBV_WR_SEND, 2000 + i, 0, 64, 0);
	end_modify(&a, IBV_QPS_ERR);
	for (uint32_t recv = 0, send = 0; recv + send < 1000;) {
		struct ibv_wc wc = next_wc(a.cq);

		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(wc.wr_id, wc.wr_id < 2000 ? 1000 + recv++ : 2000 + send++);
	}
	expect_none(&a);
	pair_close(&a, &b);
}

/* More receives without a doorbell than the timer flushes at once. */
static void test_many_receives(void)
{
	struct end a, b;

	pair_create_long(&a, &b, IBV_QPT_RC, 3000);
	end_modify(&a, IBV_QPS_ERR);
	/* The first round may use the flush budget of the modify. */
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 3000; i++)
			post_recv(&a, i, 0, 64);
		for (uint32_t i = 0; i < 3000; i++)
			expect(&a, i, IBV_WC_WR_FLUSH_ERR);
	}
	expect_none(&a);
	pair_close(&a, &b);
}

static const struct test tests[] = {
	{ "both queues", test_both },
	{ "receives without a doorbell", test_receives },
	{ "requests in flight", test_in_flight },
	{ "packets that a net device holds", test_held },
	{ "long queues", test_many },
	{ "as many sends as were granted", test_granted },
	{ "largest send ring", test_largest },
	{ "many receives without a doorbell", test_many_receives },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
