// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues: the order of requests, empty queues, the limit event, resizing with
 * requests in the queue and under traffic, and queue pairs that fail.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "ferroce_raw.h"

#define PAIRS 3
#define LEN 65536
#define SLOT 4096

/* The receivers, on r1, and their senders. */
static struct end to[PAIRS], from[PAIRS];

static struct ibv_srq *make_srq(uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = max_wr, .max_sge = max_sge } };
	struct ibv_srq *srq = ibv_create_srq(r1.pd, &init);

	CHECK(srq);
	CHECK(init.attr.max_wr >= max_wr && init.attr.max_sge >= max_sge);
	return srq;
}

static struct ibv_srq_attr query(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;

	memset(&attr, 0xff, sizeof(attr));
	CHECK_EQ(ibv_query_srq(srq, &attr), 0);
	return attr;
}

static int set_limit(struct ibv_srq *srq, uint32_t limit)
{
	struct ibv_srq_attr attr = { .srq_limit = limit };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
}

static int resize(struct ibv_srq *srq, uint32_t max_wr)
{
	struct ibv_srq_attr attr = { .max_wr = max_wr };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

/* Opens pairs whose receivers share a queue. */
static void open_shared(int n, enum ibv_qp_type type, uint32_t max_wr)
{
	struct ibv_srq *srq = make_srq(max_wr, 4);

	for (int i = 0; i < n; i++) {
		end_init(&to[i], &r1, type, LEN);
		end_init(&from[i], &r2, type, LEN);
		to[i].srq = srq;
		pair_create(&to[i], &from[i]);
	}
}

static void close_shared(int n)
{
	struct ibv_srq *srq = to[0].srq;

	for (int i = 0; i < n; i++) {
		CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
		pair_close(&to[i], &from[i]);
	}
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* Posts memory of the first receiver, for any of them: all are of one protection domain. */
static void post(uint64_t wr_id)
{
	post_recv(&to[0], wr_id, wr_id % (LEN / SLOT) * SLOT, SLOT);
}

static int try_post(uint64_t wr_id, int num_sge, uint32_t lkey)
{
	struct ibv_sge sge[64];
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = sge, .num_sge = num_sge }, *bad;

	for (int i = 0; i < 64; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)to[0].buf, SLOT, lkey };
	return ibv_post_srq_recv(to[0].srq, &wr, &bad);
}

static void send_one(int i, uint64_t wr_id, uint32_t len)
{
	fill(from[i].buf, len, wr_id);
	post_send(&from[i], &to[i], IBV_WR_SEND, wr_id, 0, len, IBV_SEND_SIGNALED);
}

static void arrived(int i, uint64_t wr_id, uint32_t seed, uint32_t len)
{
	uint32_t grh = to[i].type == IBV_QPT_UD ? GRH_LEN : 0;
	unsigned char *at = to[0].buf + wr_id % (LEN / SLOT) * SLOT;

	CHECK_EQ(expect(&to[i], wr_id, IBV_WC_SUCCESS).byte_len, len + grh);
	CHECK(filled(at + grh, len, seed));
}

static void test_create(void)
{
	static const struct ibv_srq_attr bad[] = {
		{ .max_wr = 0, .max_sge = 1 },
		{ .max_wr = UINT32_MAX, .max_sge = 1 },
		{ .max_wr = 1, .max_sge = UINT32_MAX },
		{ .max_wr = 1, .max_sge = 0x10000000 },
	};
	struct ibv_srq_init_attr init;
	struct ibv_device_attr dev;
	struct ibv_srq *srq;

	CHECK_EQ(ibv_query_device(r1.ctx, &dev), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		init = (struct ibv_srq_init_attr){ .attr = bad[i] };
		CHECK(!ibv_create_srq(r1.pd, &init));
		CHECK_EQ(errno, EINVAL);
	}
	init = (struct ibv_srq_init_attr){ .attr = { .max_wr = dev.max_srq_wr + 1, .max_sge = 1 } };
	CHECK(!ibv_create_srq(r1.pd, &init));
	CHECK_EQ(errno, EINVAL);
	init.attr = (struct ibv_srq_attr){ .max_wr = 1, .max_sge = dev.max_srq_sge + 1 };
	CHECK(!ibv_create_srq(r1.pd, &init));
	CHECK_EQ(errno, EINVAL);

	srq = make_srq(dev.max_srq_wr, dev.max_srq_sge);
	CHECK_EQ(query(srq).max_wr, dev.max_srq_wr);
	CHECK_EQ(query(srq).max_sge, dev.max_srq_sge);
	CHECK_EQ(resize(srq, dev.max_srq_wr + 1), EINVAL);
	CHECK_EQ(resize(srq, 0), EINVAL);
	CHECK_EQ(ibv_destroy_srq(srq), 0);

	for (uint32_t wr = 1; wr <= 9; wr++) {
		srq = make_srq(wr, 0);
		CHECK(query(srq).max_wr >= wr && query(srq).max_wr < 2 * wr + 1);
		CHECK_EQ(query(srq).srq_limit, 0);
		CHECK_EQ(ibv_destroy_srq(srq), 0);
	}
}

/* A ring holds as many requests as a query returns, and the library refuses more, or more SGEs. */
static void test_post(void)
{
	uint32_t max;

	open_shared(1, IBV_QPT_RC, 10);
	max = query(to[0].srq).max_wr;
	CHECK(try_post(0, query(to[0].srq).max_sge + 1, to[0].mr->lkey));
	for (uint32_t i = 0; i < max; i++)
		CHECK_EQ(try_post(i, 1, to[0].mr->lkey), 0);
	CHECK(try_post(max, 1, to[0].mr->lkey));
	for (uint32_t i = 0; i < max; i++) {
		send_one(0, 100 + i, 64);
		expect(&from[0], 100 + i, IBV_WC_SUCCESS);
		CHECK_EQ(expect(&to[0], i, IBV_WC_SUCCESS).byte_len, 64);
		/* The slot of a request is free as soon as the request was taken. */
		CHECK_EQ(try_post(i, 1, to[0].mr->lkey), 0);
	}
	close_shared(1);
}

/* Any queue pair that needs a request gets the one that was posted first. */
static void share(enum ibv_qp_type type)
{
	uint32_t grh = type == IBV_QPT_UD ? GRH_LEN : 0;
	uint64_t seed = type;

	open_shared(PAIRS, type, 16);
	for (uint64_t k = 0; k < 10; k++)
		post(k);
	for (uint64_t k = 0; k < 200; k++) {
		int i = rnd(&seed) % PAIRS;
		uint32_t len = 1 + rnd(&seed) % ((type == IBV_QPT_UD ? 1024 : SLOT) - grh);

		send_one(i, 1000 + k, len);
		expect(&from[i], 1000 + k, IBV_WC_SUCCESS);
		arrived(i, k, 1000 + k, len);
		post(k + 10);
	}
	for (int i = 0; i < PAIRS; i++)
		expect_none(&to[i]);
	close_shared(PAIRS);
}

static void test_rc(void)
{
	share(IBV_QPT_RC);
}

static void test_uc(void)
{
	share(IBV_QPT_UC);
}

static void test_ud(void)
{
	share(IBV_QPT_UD);
}

/* WRITE with immediate takes a request too, READ and WRITE do not. */
static void test_rdma(void)
{
	open_shared(1, IBV_QPT_RC, 4);
	post(1);
	fill(from[0].buf, 3000, 5);
	post_send(&from[0], &to[0], IBV_WR_RDMA_WRITE, 2, 0, 3000, IBV_SEND_SIGNALED);
	expect(&from[0], 2, IBV_WC_SUCCESS);
	post_send(&from[0], &to[0], IBV_WR_RDMA_READ, 3, 0, 3000, IBV_SEND_SIGNALED);
	expect(&from[0], 3, IBV_WC_SUCCESS);
	expect_none(&to[0]);
	post_send(&from[0], &to[0], IBV_WR_RDMA_WRITE_WITH_IMM, 4, 0, 3000, IBV_SEND_SIGNALED);
	expect(&from[0], 4, IBV_WC_SUCCESS);
	CHECK_EQ(expect(&to[0], 1, IBV_WC_SUCCESS).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(filled(to[0].buf, 3000, 5));
	close_shared(1);
}

/* RC waits for a request, as long as rnr_retry allows. */
static void test_empty_rc(void)
{
	open_shared(2, IBV_QPT_RC, 4);
	send_one(0, 1, 64);
	send_one(1, 2, 64);
	for (int k = 0; k < 200; k++) {
		CHECK_EQ(end_state(&from[0]), IBV_QPS_RTS);
		expect_none(&from[0]);
		expect_none(&from[1]);
	}
	post(1);
	post(2);
	expect(&from[0], 1, IBV_WC_SUCCESS);
	expect(&from[1], 2, IBV_WC_SUCCESS);
	close_shared(2);

	end_init(&to[0], &r1, IBV_QPT_RC, LEN);
	end_init(&from[0], &r2, IBV_QPT_RC, LEN);
	to[0].srq = make_srq(4, 1);
	from[0].rnr_retry = 2;
	pair_create(&to[0], &from[0]);
	send_one(0, 3, 64);
	expect(&from[0], 3, IBV_WC_RNR_RETRY_EXC_ERR);
	close_shared(1);
}

/* UC and UD lose the message, and nothing else. */
static void test_empty_datagrams(void)
{
	for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type++) {
		open_shared(2, type, 4);
		send_one(0, 1, 700);
		expect(&from[0], 1, IBV_WC_SUCCESS);
		/* A ping on the same path comes after the messages. */
		send_one(1, 2, 700);
		expect(&from[1], 2, IBV_WC_SUCCESS);
		shell("ip netns exec n2 ping -qc 1 -W 10 10.77.0.1 >/dev/null");
		expect_none(&to[0]);
		expect_none(&to[1]);
		post(7);
		send_one(1, 3, 700);
		expect(&from[1], 3, IBV_WC_SUCCESS);
		arrived(1, 7, 3, 700);
		CHECK_EQ(end_state(&to[0]), IBV_QPS_RTS);
		close_shared(2);
	}
}

static void take(int n)
{
	for (int k = 0; k < n; k++) {
		send_one(0, 1, 64);
		expect(&from[0], 1, IBV_WC_SUCCESS);
		CHECK_EQ(next_wc(to[0].cq).status, IBV_WC_SUCCESS);
	}
}

/* Checks that there is no event, even after another message. */
static void no_event(void)
{
	take(1);
	for (int k = 0; k < 100; k++) {
		CHECK(!have_event(&to[0]));
		query(to[0].srq);
	}
}

static void test_limit(void)
{
	struct ibv_srq_attr both = { .max_wr = 31, .srq_limit = 20 };

	open_shared(1, IBV_QPT_RC, 15);
	CHECK_EQ(set_limit(to[0].srq, query(to[0].srq).max_wr + 1), EINVAL);
	CHECK_EQ(query(to[0].srq).srq_limit, 0);
	for (int k = 0; k < 15; k++)
		post(k);
	/* Not armed: no event. */
	no_event();
	CHECK_EQ(set_limit(to[0].srq, 10), 0);
	CHECK_EQ(query(to[0].srq).srq_limit, 10);
	take(3);
	/* Ten are not less than ten; nine are. */
	CHECK(!have_event(&to[0]));
	CHECK_EQ(query(to[0].srq).srq_limit, 10);
	take(1);
	take(1);
	expect_event(&to[0], IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK_EQ(query(to[0].srq).srq_limit, 0);
	/* The event comes once. */
	no_event();
	/* The event comes at once if the limit is already reached. */
	CHECK_EQ(set_limit(to[0].srq, 12), 0);
	expect_event(&to[0], IBV_EVENT_SRQ_LIMIT_REACHED);
	no_event();
	/* Zero disarms. */
	CHECK_EQ(set_limit(to[0].srq, 3), 0);
	CHECK_EQ(set_limit(to[0].srq, 0), 0);
	take(4);
	no_event();
	/* Both at once; the limit may be as large as the new size. */
	CHECK_EQ(ibv_modify_srq(to[0].srq, &both, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
	expect_event(&to[0], IBV_EVENT_SRQ_LIMIT_REACHED);
	CHECK(query(to[0].srq).max_wr >= 31);
	close_shared(1);
}

/* Posted requests stay, in their order, and a size that is too small for them is refused. */
static void test_resize(void)
{
	static const uint32_t sizes[] = { 100, 15, 7, 40, 4000, 6 };
	uint64_t next = 0, end = 5;

	open_shared(1, IBV_QPT_RC, 7);
	for (uint64_t k = 0; k < end; k++)
		post(k);
	for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
		uint32_t max;

		CHECK_EQ(resize(to[0].srq, sizes[s]), 0);
		max = query(to[0].srq).max_wr;
		CHECK(max >= sizes[s]);
		/* The indices wrap around the new ring. */
		for (uint32_t k = 0; k < 20; k++) {
			send_one(0, 1000 + next, 500);
			expect(&from[0], 1000 + next, IBV_WC_SUCCESS);
			arrived(0, next, 1000 + next, 500);
			next++;
			post(end++);
		}
		while (end - next < max)
			post(end++);
		CHECK(try_post(end, 1, to[0].mr->lkey));
		if (max > 7)
			CHECK_EQ(resize(to[0].srq, max / 2), EINVAL);
		CHECK_EQ(query(to[0].srq).max_wr, max);
		CHECK_EQ(set_limit(to[0].srq, 5), 0);
		CHECK_EQ(resize(to[0].srq, 3), EINVAL);
		CHECK_EQ(set_limit(to[0].srq, 0), 0);
		while (end - next > 5) {
			send_one(0, 1000 + next, 500);
			expect(&from[0], 1000 + next, IBV_WC_SUCCESS);
			arrived(0, next, 1000 + next, 500);
			next++;
		}
	}
	close_shared(1);
}

static atomic_bool stop;
static atomic_bool failed;
static atomic_int resized, rounds;

static void *resizer(void *arg)
{
	static const uint32_t sizes[] = { 63, 1023, 127, 8191, 255 };
	int n = 0, seen = 0;

	while (!stop) {
		if (resize(arg, sizes[n++ % ARRAY_LEN(sizes)])) {
			failed = true;
			return NULL;
		}
		resized++;
		/* A resize holds the library's lock, which is unfair to other threads. */
		while (rounds == seen && !stop)
			sched_yield();
		seen = rounds;
	}
	return NULL;
}

/* Every message takes the next request, from the old ring or the new one. */
static void test_resize_traffic(void)
{
	uint64_t posted = 0, taken = 0;
	pthread_t thread;

	open_shared(2, IBV_QPT_RC, 63);
	stop = false;
	failed = false;
	resized = 0;
	rounds = 0;
	CHECK_EQ(pthread_create(&thread, NULL, resizer, to[0].srq), 0);
	/* The number of resizes during the messages is not known. */
	for (int round = 0; round < 300 || (resized <= 5 && !failed); round++) {
		int i = round & 1;

		rounds++;
		while (posted - taken < 50)
			post(posted++);
		for (int k = 0; k < 8; k++)
			post_send(&from[i], &to[i], IBV_WR_SEND, k, 0, 64,
				  k == 7 ? IBV_SEND_SIGNALED : 0);
		expect(&from[i], 7, IBV_WC_SUCCESS);
		for (int k = 0; k < 8; k++)
			expect(&to[i], taken++, IBV_WC_SUCCESS);
	}
	stop = true;
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(!failed);
	printf("# resized %d times\n", resized);
	close_shared(2);
}

/* A queue pair that fails consumes only the request that it holds. */
static void test_last_wqe(void)
{
	struct packet p;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		open_shared(2, type, 7);
		for (int k = 0; k < 4; k++)
			post(k);
		if (type != IBV_QPT_UD) {
			/* The first packet of a message that never ends. */
			p = make((type == IBV_QPT_UC ? UC : 0) | RC_SEND_FIRST, to[0].qp->qp_num,
				 next_psn(&to[0]));
			add_payload(&p, 1024);
			send_packet(&p);
			shell("ip netns exec n2 ping -qc 1 -W 10 10.77.0.1 >/dev/null");
			expect_none(&to[0]);
		}
		end_modify(&to[0], IBV_QPS_ERR);
		if (type != IBV_QPT_UD)
			expect(&to[0], 0, IBV_WC_WR_FLUSH_ERR);
		expect_event(&to[0], IBV_EVENT_QP_LAST_WQE_REACHED);
		/* The event comes once. */
		end_modify(&to[0], IBV_QPS_ERR);
		doorbell(&to[0]);
		/* The other receiver gets the rest. */
		for (int k = type == IBV_QPT_UD ? 0 : 1; k < 4; k++) {
			send_one(1, k + 10, 64);
			expect(&from[1], k + 10, IBV_WC_SUCCESS);
			arrived(1, k, k + 10, 64);
			CHECK(!have_event(&to[1]));
		}
		expect_none(&to[0]);
		/* It comes again after RESET. */
		end_modify(&to[0], IBV_QPS_RESET);
		end_to(&to[0], &from[0], IBV_QPS_INIT);
		end_modify(&to[0], IBV_QPS_ERR);
		expect_event(&to[0], IBV_EVENT_QP_LAST_WQE_REACHED);
		expect_none(&to[0]);
		close_shared(2);
	}
}

/* An unusable request fails the queue pair that took it. The shared queue is not affected. */
static void test_bad_requests(void)
{
	struct ibv_pd *foreign = ibv_alloc_pd(r1.ctx);
	struct ibv_mr *mr;

	CHECK(foreign);
	open_shared(2, IBV_QPT_RC, 7);
	mr = ibv_reg_mr(foreign, to[0].buf, LEN, FULL_ACCESS);
	CHECK(mr);
	for (int kind = 0; kind < 3; kind++) {
		memset(to[0].buf, 0x44, LEN);
		/* No key; one of another protection domain; too short. */
		if (kind == 2)
			post_recv(&to[0], 1, 0, 10);
		else
			CHECK_EQ(try_post(1, 1, kind ? mr->lkey : 0), 0);
		post(2);
		send_one(0, 10, 64);
		expect(&from[0], 10,
		       kind == 2 ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
		expect(&to[0], 1, kind == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
		end_await(&to[0], IBV_QPS_ERR);
		expect_event(&to[0], IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK(all_bytes(to[0].buf, LEN, 0x44));
		send_one(1, 20, 64);
		expect(&from[1], 20, IBV_WC_SUCCESS);
		arrived(1, 2, 20, 64);
		end_modify(&to[0], IBV_QPS_RESET);
		end_modify(&from[0], IBV_QPS_RESET);
		end_to(&to[0], &from[0], IBV_QPS_RTS);
		end_to(&from[0], &to[0], IBV_QPS_RTS);
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_shared(2);
	CHECK_EQ(ibv_dealloc_pd(foreign), 0);
}

/* The keys of a request are those of the shared queue's protection domain, not the receiver's. */
static void test_domains(void)
{
	struct ibv_pd *other = ibv_alloc_pd(r1.ctx);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_mr *mr;

	CHECK(other);
	end_init(&to[0], &r1, IBV_QPT_RC, LEN);
	end_init(&from[0], &r2, IBV_QPT_RC, LEN);
	to[0].srq = ibv_create_srq(other, &init);
	CHECK(to[0].srq);
	pair_create(&to[0], &from[0]);
	CHECK_EQ(ibv_dealloc_pd(other), EBUSY);
	mr = ibv_reg_mr(other, to[0].buf, LEN, FULL_ACCESS);
	CHECK(mr);
	CHECK_EQ(try_post(0, 1, mr->lkey), 0);
	send_one(0, 1, 64);
	expect(&from[0], 1, IBV_WC_SUCCESS);
	arrived(0, 0, 1, 64);
	CHECK_EQ(try_post(0, 1, to[0].mr->lkey), 0);
	send_one(0, 2, 64);
	expect(&from[0], 2, IBV_WC_REM_OP_ERR);
	expect(&to[0], 0, IBV_WC_LOC_PROT_ERR);
	expect_event(&to[0], IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_shared(1);
	CHECK_EQ(ibv_dealloc_pd(other), 0);
}

static const struct test tests[] = {
	{ "create and query", test_create },
	{ "post", test_post },
	{ "RC", test_rc },
	{ "UC", test_uc },
	{ "UD", test_ud },
	{ "RDMA operations", test_rdma },
	{ "nothing posted: RC", test_empty_rc },
	{ "nothing posted: UC and UD", test_empty_datagrams },
	{ "limit", test_limit },
	{ "resize", test_resize },
	{ "resize under traffic", test_resize_traffic },
	{ "last WQE reached", test_last_wqe },
	{ "unusable receive requests", test_bad_requests },
	{ "protection domains", test_domains },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, raw_open, tests, ARRAY_LEN(tests));
}
