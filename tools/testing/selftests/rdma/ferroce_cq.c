// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: sizes, resizing with completions in the queue and while more come, arming, and
 * overflow.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include "ferroce_util.h"

#define LEN 4096

static struct end a, b;

static void open_pair(int cqe)
{
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cqe = cqe;
	a.cap.max_send_wr = 1000;
	pair_create(&a, &b);
}

static void write_some(uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++)
		post_send(&a, &b, IBV_WR_RDMA_WRITE, k, 0, 64, IBV_SEND_SIGNALED);
}

static void expect_some(uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++)
		expect(&a, k, IBV_WC_SUCCESS);
}

/*
 * Waits, without polling `a`, until the requests posted before are most likely complete: the peer
 * has received a later SEND, and then has got an acknowledgment from `a` for a WRITE of its own.
 */
static void settle(void)
{
	post_recv(&b, 4, 0, 64);
	post_send(&a, &b, IBV_WR_SEND, 0, 0, 64, 0);
	expect(&b, 4, IBV_WC_SUCCESS);
	post_send(&b, &a, IBV_WR_RDMA_WRITE, 5, 0, 64, IBV_SEND_SIGNALED);
	expect(&b, 5, IBV_WC_SUCCESS);
}

static void test_sizes(void)
{
	struct ibv_device_attr dev;
	struct ibv_cq *cq;

	CHECK_EQ(ibv_query_device(r1.ctx, &dev), 0);
	CHECK(dev.max_cqe > 32767);
	CHECK(!ibv_create_cq(r1.ctx, 0, NULL, NULL, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(!ibv_create_cq(r1.ctx, dev.max_cqe + 1, NULL, NULL, 0));
	CHECK_EQ(errno, EINVAL);

	cq = ibv_create_cq(r1.ctx, dev.max_cqe, NULL, NULL, 0);
	CHECK(cq);
	CHECK_EQ(cq->cqe, dev.max_cqe);
	CHECK_EQ(ibv_resize_cq(cq, 1), 0);
	CHECK_EQ(cq->cqe, 1);
	CHECK_EQ(ibv_resize_cq(cq, dev.max_cqe + 1), EINVAL);
	CHECK_EQ(ibv_resize_cq(cq, 0), EINVAL);
	CHECK_EQ(ibv_resize_cq(cq, -1), EINVAL);
	CHECK_EQ(cq->cqe, 1);
	for (int cqe = 1; cqe < 9; cqe++) {
		CHECK_EQ(ibv_resize_cq(cq, cqe), 0);
		CHECK(cq->cqe >= cqe && cq->cqe < 2 * cqe + 1);
	}
	CHECK_EQ(ibv_resize_cq(cq, dev.max_cqe), 0);
	CHECK_EQ(cq->cqe, dev.max_cqe);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

/* Completions in the queue keep their order, at any position in the ring. */
static void test_waiting(void)
{
	static const int sizes[] = { 7, 100, 15, 9, 1000, 7 };
	uint64_t next = 0;

	open_pair(7);
	for (int round = 0; round < 50; round++) {
		int size = sizes[round % ARRAY_LEN(sizes)];
		int n = round % 8;

		write_some(next, next + n);
		settle();
		CHECK_EQ(ibv_resize_cq(a.cq, size), 0);
		CHECK(a.cq->cqe >= size);
		expect_some(next, next + n);
		next += n;
		/* More completions follow in the new ring. */
		write_some(next, next + 5);
		expect_some(next, next + 5);
		next += 5;
		expect_none(&a);
	}
	pair_close(&a, &b);
}

/* A size too small for the completions in the queue is refused, and none of them is lost. */
static void test_too_small(void)
{
	int cqe;

	open_pair(63);
	write_some(0, 20);
	wait_begin();
	while (!ibv_resize_cq(a.cq, 19))
		wait_more_verb("twenty completions");
	CHECK_EQ(errno, EINVAL);
	cqe = a.cq->cqe;
	CHECK_EQ(ibv_resize_cq(a.cq, 19), EINVAL);
	CHECK_EQ(ibv_resize_cq(a.cq, 1), EINVAL);
	CHECK_EQ(a.cq->cqe, cqe);
	expect_some(0, 3);
	CHECK_EQ(ibv_resize_cq(a.cq, 16), EINVAL);
	CHECK_EQ(ibv_resize_cq(a.cq, 17), 0);
	CHECK_EQ(a.cq->cqe, 31);
	expect_some(3, 20);
	expect_none(&a);
	pair_close(&a, &b);
}

/* The queue holds as many completions as a resize returns: one more overflows it. */
static void test_room(void)
{
	static const enum ibv_event_type both[] = { IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL };
	uint64_t next = 0;

	open_pair(100);
	for (int size = 4; size <= 64; size *= 2) {
		CHECK_EQ(ibv_resize_cq(a.cq, size), 0);
		for (int wrap = 0; wrap < 2; wrap++) {
			write_some(next, next + a.cq->cqe);
			settle();
			expect_some(next, next + a.cq->cqe);
			next += a.cq->cqe;
		}
	}
	CHECK(!have_event(&a));
	CHECK_EQ(ibv_resize_cq(a.cq, 7), 0);
	write_some(0, 8);
	expect_events(&a, both, 2);
	end_await(&a, IBV_QPS_ERR);
	expect_some(0, 7);
	expect_none(&a);
	pair_close(&a, &b);
}

static void expect_call(void)
{
	struct ibv_cq *cq;
	void *context;

	wait_begin();
	while (ibv_get_cq_event(a.channel, &cq, &context))
		wait_more_verb("a call of the completion handler");
	CHECK(cq == a.cq);
	ibv_ack_cq_events(cq, 1);
}

/* There are as many completion vectors as CPUs, and all of them work. */
static void test_vectors(void)
{
	int vectors = sysconf(_SC_NPROCESSORS_CONF);

	CHECK_EQ(r1.ctx->num_comp_vectors, vectors);
	CHECK(!ibv_create_cq(r1.ctx, 1, NULL, NULL, vectors));
	CHECK_EQ(errno, EINVAL);
	for (int vector = 0; vector < vectors; vector++) {
		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &r2, IBV_QPT_RC, LEN);
		a.vector = vector;
		pair_create(&a, &b);
		CHECK_EQ(ibv_req_notify_cq(a.cq, 0), 0);
		write_some(0, 1);
		expect_call();
		expect_some(0, 1);
		pair_close(&a, &b);
	}
}

/* A queue that is armed stays armed when it is resized. */
static void test_armed(void)
{
	struct ibv_cq *cq;
	void *context;

	open_pair(7);
	for (int round = 0; round < 10; round++) {
		CHECK_EQ(ibv_req_notify_cq(a.cq, 0), 0);
		CHECK_EQ(ibv_resize_cq(a.cq, round & 1 ? 7 : 500), 0);
		CHECK(ibv_get_cq_event(a.channel, &cq, &context));
		write_some(round, round + 1);
		expect_call();
		CHECK_EQ(ibv_resize_cq(a.cq, round & 1 ? 60 : 15), 0);
		expect_some(round, round + 1);
		/* It was armed for one event. */
		write_some(100, 101);
		expect_some(100, 101);
		CHECK(ibv_get_cq_event(a.channel, &cq, &context));
	}
	pair_close(&a, &b);
}

static atomic_bool stop, failed;
static atomic_int resized, rounds;

static void *resizer(void *unused)
{
	static const int sizes[] = { 255, 5000, 300, 1023, 260, 20000 };
	int n = 0, seen = 0;

	while (!stop) {
		failed = ibv_resize_cq(n & 1 ? a.cq : b.cq, sizes[n / 2 % ARRAY_LEN(sizes)]);
		if (failed)
			return "a resize failed";
		resized = ++n;
		/* A resize holds the library's lock, which is unfair and starves others. */
		while (rounds == seen && !stop)
			sched_yield();
		seen = rounds;
	}
	return unused;
}

/* Polls the completions of an end, and checks that they are in order. */
static void reap(struct end *e, uint64_t *next)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(e->cq, ARRAY_LEN(wc), wc);

	CHECK(n >= 0);
	for (int k = 0; k < n; k++) {
		CHECK_EQ(wc[k].status, IBV_WC_SUCCESS);
		CHECK_EQ(wc[k].wr_id, (*next)++);
	}
}

/*
 * Completions of sends and of receives, of which 250 may wait, while both queues change their size
 * all the time: each comes once, in order.
 */
static void test_traffic(void)
{
	uint64_t sent = 0, send_next = 0, posted = 0, recv_next = 0, before, piece;
	pthread_t thread;
	void *result;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cap.max_send_wr = 250;
	b.cap.max_recv_wr = 250;
	pair_create(&a, &b);
	stop = false;
	failed = false;
	resized = 0;
	rounds = 0;
	CHECK_EQ(pthread_create(&thread, NULL, resizer, NULL), 0);
	/* There is no guarantee that the thread runs often while messages are sent. */
	while (recv_next < 3000 || (resized <= 10 && !failed)) {
		rounds++;
		while (posted - recv_next < 250)
			post_recv(&b, posted++, 0, 64);
		/* No more sends than posted receives, in bursts of any size. */
		piece = 97 - sent % 97;
		while (piece-- && sent - recv_next < 250 && sent - send_next < 250)
			post_send(&a, &b, IBV_WR_SEND, sent++, 0, 64, IBV_SEND_SIGNALED);
		before = send_next + recv_next;
		wait_begin();
		while (send_next + recv_next == before) {
			reap(&a, &send_next);
			reap(&b, &recv_next);
			wait_more("completions");
		}
	}
	while (recv_next < sent || send_next < sent) {
		reap(&a, &send_next);
		reap(&b, &recv_next);
		wait_more("the last completions");
	}
	stop = true;
	CHECK_EQ(pthread_join(thread, &result), 0);
	if (result)
		printf("# %s\n", (char *)result);
	CHECK(!result);
	expect_none(&a);
	expect_none(&b);
	printf("# %llu messages, %d times resized\n", (unsigned long long)sent, resized);
	pair_close(&a, &b);
}

static const struct test tests[] = {
	{ "sizes", test_sizes },
	{ "completion vectors", test_vectors },
	{ "resize with pending completions", test_waiting },
	{ "resize below the pending completions", test_too_small },
	{ "capacity after a resize", test_room },
	{ "resize of an armed queue", test_armed },
	{ "resize under traffic", test_traffic },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
