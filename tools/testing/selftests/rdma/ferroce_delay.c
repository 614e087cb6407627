// SPDX-License-Identifier: GPL-2.0
/*
 * A network that delays packets: the requester waits for its peer most of the time, and leaves the
 * sending of data to the work item. Its completions, errors and events come all the same.
 */
#include <time.h>
#include "ferroce_util.h"

/* More packets than the first window of a queue pair. */
#define LEN (256 * 1024)

/* The delay of a packet in each direction. */
#define DELAY_MS 2

static double now_ms(void)
{
	struct timespec now;

	CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &now), 0);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Connects two ends. The first message measures the round trip, which must be delayed. */
static void open_pair(struct end *a, struct end *b)
{
	double before;

	pair_open(a, b, IBV_QPT_RC, LEN);
	before = now_ms();
	post_send(a, b, IBV_WR_RDMA_WRITE, 0, 0, 1, IBV_SEND_SIGNALED);
	expect(a, 0, IBV_WC_SUCCESS);
	CHECK(now_ms() - before >= 2 * DELAY_MS);
}

static void test_writes(void)
{
	struct end a, b;

	open_pair(&a, &b);
	for (uint32_t id = 1; id < 5; id++) {
		fill(a.buf, LEN, id);
		post_send(&a, &b, IBV_WR_RDMA_WRITE, id, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, id, IBV_WC_SUCCESS);
		CHECK(filled(b.buf, LEN, id));
	}
	expect_none(&a);
	pair_close(&a, &b);
}

/* A READ among the requests is in flight while the data behind it is sent. */
static void test_mixed(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
	};
	const uint32_t piece = LEN / ARRAY_LEN(ops);
	struct end a, b;

	open_pair(&a, &b);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct end *from = ops[i] == IBV_WR_RDMA_READ ? &b : &a;

		fill(from->buf + i * piece, piece, i);
		if (ops[i] == IBV_WR_SEND)
			post_recv(&b, 9, i * piece, piece);
	}
	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		post_send(&a, &b, ops[i], i, i * piece, piece, IBV_SEND_SIGNALED);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct end *to = ops[i] == IBV_WR_RDMA_READ ? &a : &b;

		expect(&a, i, IBV_WC_SUCCESS);
		CHECK(filled(to->buf + i * piece, piece, i));
	}
	expect(&b, 9, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

static void test_sqd(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct end a, b;

	open_pair(&a, &b);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
	CHECK_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, LEN, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect_event(&a, IBV_EVENT_SQ_DRAINED);
	expect_none(&a);
	end_modify(&a, IBV_QPS_RTS);
	expect(&a, 2, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* The request that fails has data behind it. */
static void test_error(void)
{
	struct end a, b;

	open_pair(&a, &b);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
	b.mr->rkey ^= 0x100;
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, LEN, IBV_SEND_SIGNALED);
	b.mr->rkey ^= 0x100;
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3, 0, LEN, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_REM_ACCESS_ERR);
	expect(&a, 3, IBV_WC_WR_FLUSH_ERR);
	end_await(&a, IBV_QPS_ERR);
	pair_close(&a, &b);
}

static void test_destroy(void)
{
	struct end a, b;

	for (int i = 0; i < 10; i++) {
		open_pair(&a, &b);
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
		pair_close(&a, &b);
	}
}

static void set_up(void)
{
	for (int i = 1; i <= 2; i++)
		shell("tc -n n%d qdisc add dev v%d root netem limit 10000 delay %dms", i, i,
		      DELAY_MS);
}

static const struct test tests[] = {
	{ "WRITEs", test_writes },
	{ "a READ among data", test_mixed },
	{ "SQD drains", test_sqd },
	{ "a request fails", test_error },
	{ "queue pairs are destroyed", test_destroy },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
