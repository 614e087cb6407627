// SPDX-License-Identifier: GPL-2.0
/*
 * The states of a queue pair: RESET discards posted requests, SQD drains, SQE flushes one queue.
 * The event of the first message. A query returns the values that were set.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include "ferroce_util.h"
#include <rdma/rdma_user_rxe.h>

/* Fills a ring: the library refuses one more request, and the ring is usable afterwards. */
static void test_full_queue(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct end a, b;
	uint32_t n;

	pair_open(&a, &b, IBV_QPT_RC, 4096);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 0, 0, 8, 0);
	for (n = 0; n < 1000; n++, wr.wr_id++)
		if (ibv_post_send(a.qp, &wr, &bad))
			break;
	CHECK_EQ(n, a.cap.max_send_wr);
	for (uint32_t i = 0; i < n; i++) {
		if (i < b.cap.max_recv_wr)
			post_recv(&b, i, 0, 64);
	}
	for (uint32_t i = 0; i < n && i < b.cap.max_recv_wr; i++)
		expect(&b, i, IBV_WC_SUCCESS);
	post_recv(&b, 7, 0, 64);
	post_send(&a, &b, IBV_WR_SEND, 7, 0, 8, IBV_SEND_SIGNALED);
	expect(&b, 7, IBV_WC_SUCCESS);
	expect(&a, 7, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* None of the posted requests completes, and the queue pair can be used again. */
static void test_reset_discards(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, 4096);
		for (int round = 0; round < 3; round++) {
			for (uint32_t i = 0; i < 10; i++)
				post_recv(&a, 100 + i, 0, 64);
			if (type == IBV_QPT_RC)
				for (uint32_t i = 0; i < 10; i++)
					post_send(&a, &b, IBV_WR_SEND, 200 + i, 0, 64,
						  IBV_SEND_SIGNALED);
			end_modify(&a, IBV_QPS_RESET);
			end_modify(&b, IBV_QPS_RESET);
			CHECK_EQ(end_state(&a), IBV_QPS_RESET);
			expect_none(&a);
			expect_none(&b);

			end_to(&a, &b, IBV_QPS_RTS);
			end_to(&b, &a, IBV_QPS_RTS);
			post_recv(&b, 1, 0, 4096);
			post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
			expect(&a, 2, IBV_WC_SUCCESS);
			expect(&b, 1, IBV_WC_SUCCESS);
			expect_none(&a);
		}
		pair_close(&a, &b);
	}
}

/* Sends before RTS are refused, and are not sent later either. */
static void test_send_too_early(void)
{
	static const enum ibv_qp_state early[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR };
	struct end a, b;

	for (size_t i = 0; i < ARRAY_LEN(early); i++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;

		pair_open(&a, &b, IBV_QPT_RC, 4096);
		post_recv(&b, 1, 0, 64);
		end_modify(&a, IBV_QPS_RESET);
		end_to(&a, &b, early[i]);
		make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 1, 0, 8, IBV_SEND_SIGNALED);
		CHECK(ibv_post_send(a.qp, &wr, &bad));
		end_modify(&a, IBV_QPS_RESET);
		end_to(&a, &b, IBV_QPS_RTS);
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 16, IBV_SEND_SIGNALED);
		expect(&a, 2, IBV_WC_SUCCESS);
		CHECK_EQ(expect(&b, 1, IBV_WC_SUCCESS).byte_len, 16);
		pair_close(&a, &b);
	}
}

static void test_sqd(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr init;
	struct end a, b;

	for (int notify = 0; notify < 2; notify++) {
		pair_open(&a, &b, IBV_QPT_RC, 4096);
		/* The peer has no receive request, so that draining takes a while. */
		post_send(&a, &b, IBV_WR_SEND, 1, 0, 4096, IBV_SEND_SIGNALED);
		attr.en_sqd_async_notify = notify;
		attr.qp_state = IBV_QPS_SQD;
		CHECK_EQ(ibv_modify_qp(a.qp, &attr,
				       IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)),
			 0);
		CHECK_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
		CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
		CHECK_EQ(attr.sq_draining, 1);
		CHECK(!have_event(&a));
		/* A draining queue cannot return to RTS yet. */
		attr.qp_state = IBV_QPS_RTS;
		CHECK_EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), EINVAL);

		/* A request that is posted now waits. */
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
		post_recv(&b, 1, 0, 4096);
		post_recv(&b, 2, 0, 4096);
		expect(&b, 1, IBV_WC_SUCCESS);
		expect(&a, 1, IBV_WC_SUCCESS);
		if (notify)
			expect_event(&a, IBV_EVENT_SQ_DRAINED);
		wait_begin();
		do {
			wait_more_verb("the send queue to drain");
			CHECK_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
		} while (attr.sq_draining);
		CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
		/* The event comes once for each drain. */
		end_modify(&a, IBV_QPS_SQD);
		CHECK(!have_event(&a));
		expect_none(&a);
		expect_none(&b);
		/* Receiving goes on. */
		post_recv(&a, 3, 0, 64);
		post_send(&b, &a, IBV_WR_SEND, 4, 0, 64, IBV_SEND_SIGNALED);
		expect(&b, 4, IBV_WC_SUCCESS);
		expect(&a, 3, IBV_WC_SUCCESS);

		end_modify(&a, IBV_QPS_RTS);
		expect(&b, 2, IBV_WC_SUCCESS);
		expect(&a, 2, IBV_WC_SUCCESS);
		CHECK(!have_event(&a));
		pair_close(&a, &b);
	}
}

/* A request posted in SQD is not started, and does not even fail. */
static void test_sqd_bad(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, 4096);
		end_modify(&a, IBV_QPS_SQD);
		make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 1, 0, 64, 0);
		sge.lkey ^= 1;
		post_wr(&a, &wr);
		/* The first few doorbells handle the queue before they return. */
		doorbell(&a);
		expect_none(&a);
		CHECK_EQ(end_state(&a), IBV_QPS_SQD);
		end_modify(&a, IBV_QPS_RTS);
		expect(&a, 1, IBV_WC_LOC_PROT_ERR);
		end_await(&a, type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
		pair_close(&a, &b);
	}
}

/*
 * UC: a message that has begun fails in SQD. The requests behind it, which have not, are flushed.
 * Its 512 MiB take 1.7 s at 2.5 Gb/s, so that it is not sent before it is to fail.
 */
static void test_sqd_begun_bad(void)
{
	enum { LEN = 16 << 20, SGES = 32 };
	struct ibv_send_wr wr;
	struct ibv_sge sges[SGES];
	struct ibv_mr *mr;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_UC, LEN);
	end_init(&b, &r2, IBV_QPT_UC, 4096);
	a.cap.max_send_sge = SGES;
	a.rate = IBV_RATE_2_5_GBPS;
	pair_create(&a, &b);
	mr = ibv_reg_mr(r1.pd, a.buf, LEN, 0);
	CHECK(mr);
	make_send(&wr, sges, &a, &b, IBV_WR_SEND, 1, 0, LEN, 0);
	sges[0].lkey = mr->lkey;
	for (int i = 1; i < SGES; i++)
		sges[i] = sges[0];
	wr.num_sge = SGES;
	post_wr(&a, &wr);
	end_modify(&a, IBV_QPS_SQD);
	post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(end_state(&a), IBV_QPS_SQE);
	pair_close(&a, &b);
}

/*
 * After an error in the send queue of UC and UD, the rest is flushed, receives go on, and one
 * modify returns to RTS.
 */
static void test_sqe(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type++) {
		pair_open(&a, &b, type, 4096);
		make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 1, 0, 64, 0);
		sge.lkey ^= 1;
		post_wr(&a, &wr);
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, 0);
		expect(&a, 1, IBV_WC_LOC_PROT_ERR);
		expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(end_state(&a), IBV_QPS_SQE);
		post_recv(&a, 3, 0, 128);
		post_send(&b, &a, IBV_WR_SEND, 4, 0, 64, IBV_SEND_SIGNALED);
		expect(&b, 4, IBV_WC_SUCCESS);
		expect(&a, 3, IBV_WC_SUCCESS);
		end_modify(&a, IBV_QPS_RTS);
		post_recv(&b, 5, 0, 128);
		post_send(&a, &b, IBV_WR_SEND, 6, 0, 64, IBV_SEND_SIGNALED);
		expect(&a, 6, IBV_WC_SUCCESS);
		expect(&b, 5, IBV_WC_SUCCESS);
		pair_close(&a, &b);
	}
}

/* RTS comes while requests behind the one that failed are still in the ring: none is sent. */
static void test_sqe_many(void)
{
	enum { N = 1000 };
	static struct ibv_send_wr wrs[N];
	static struct ibv_sge sges[N];
	struct end a, b;

	for (int type = IBV_QPT_UC; type <= IBV_QPT_UD; type++) {
		end_init(&a, &r1, type, 4096);
		end_init(&b, &r2, type, 4096);
		a.cap.max_send_wr = N;
		a.cqe = 2 * N;
		pair_create(&a, &b);
		post_recv(&b, 1, 0, 128);
		make_chain(wrs, sges, N, &a, &b, IBV_WR_SEND, 64, 0);
		sges[0].lkey ^= 1;
		post_wr(&a, wrs);
		expect(&a, 0, IBV_WC_LOC_PROT_ERR);
		end_modify(&a, IBV_QPS_RTS);
		for (int i = 1; i < N; i++)
			expect(&a, i, IBV_WC_WR_FLUSH_ERR);
		post_send(&a, &b, IBV_WR_SEND, 7, 0, 33, IBV_SEND_SIGNALED);
		expect(&a, 7, IBV_WC_SUCCESS);
		CHECK_EQ(expect(&b, 1, IBV_WC_SUCCESS).byte_len,
			 33 + (type == IBV_QPT_UD ? GRH_LEN : 0));
		pair_close(&a, &b);
	}
}

/* Finds a ring that the library has mapped, by its last index. */
static struct rxe_queue_buf *find_ring(uint32_t mask)
{
	struct rxe_queue_buf *buf, *found = NULL;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "uverbs"))
			continue;
		buf = (void *)strtoul(line, NULL, 16);
		if (buf->index_mask == mask)
			found = buf;
	}
	fclose(maps);
	CHECK(found);
	return found;
}

static atomic_bool stop;

/* Posts a request as soon as there is room for one, and rings no doorbell. */
static void *keep_full(void *arg)
{
	struct rxe_queue_buf *sq = arg;
	uint32_t consumer;

	while (!stop) {
		consumer = __atomic_load_n(&sq->consumer_index, __ATOMIC_ACQUIRE);
		__atomic_store_n(&sq->producer_index, (consumer - 1) & sq->index_mask,
				 __ATOMIC_RELEASE);
	}
	return NULL;
}

/*
 * RTS ends SQE while another thread goes on posting. The requests that were posted before are
 * flushed, the others are flushed or sent; but the modify must end although there are always new
 * ones.
 */
static void test_sqe_never_empty(void)
{
	enum { N = (1 << 14) - 1, CQE = (1 << 18) - 1 };
	struct rxe_queue_buf *sq, *cq;
	unsigned char *first;
	struct ibv_send_wr wr;
	uint32_t begin, flushed;
	struct ibv_sge sge;
	struct end a, b;
	pthread_t thread;
	size_t size;

	end_init(&a, &r1, IBV_QPT_UC, 4096);
	end_init(&b, &r2, IBV_QPT_UC, 4096);
	a.cap.max_send_wr = N;
	a.cqe = CQE;
	pair_create(&a, &b);
	sq = find_ring(N);
	cq = find_ring(CQE);
	/* One that can be sent, and completes only if it is flushed, and one that fails. */
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 0, 0);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 2, 0, 64, 0);
	sge.lkey ^= 1;
	post_wr(&a, &wr);
	expect(&a, 2, IBV_WC_LOC_PROT_ERR);
	end_await(&a, IBV_QPS_SQE);
	/* The whole ring is copies of the former. */
	size = 1ul << sq->log2_elem_size;
	first = sq->data;
	for (size_t i = 1; i <= N; i++)
		memcpy(first + i * size, first, size);
	begin = __atomic_load_n(&cq->producer_index, __ATOMIC_ACQUIRE);
	__atomic_store_n(&sq->producer_index, (sq->consumer_index - 1) & N, __ATOMIC_RELEASE);

	stop = false;
	CHECK_EQ(pthread_create(&thread, NULL, keep_full, sq), 0);
	end_modify(&a, IBV_QPS_RTS);
	flushed = (__atomic_load_n(&cq->producer_index, __ATOMIC_ACQUIRE) - begin) & CQE;
	stop = true;
	pthread_join(thread, NULL);
	printf("# %u flushed\n", flushed);
	CHECK(flushed >= N);
	CHECK(flushed < N + 1024);
	pair_close(&a, &b);
}

static void test_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, 4096);
	end_init(&b, &r2, IBV_QPT_RC, 4096);
	a.access = IBV_ACCESS_REMOTE_READ;
	a.mtu = IBV_MTU_512;
	a.psn = 0xabcdef;
	b.psn = 0x123456;
	a.timeout = 31;
	a.retry_cnt = 3;
	a.rnr_retry = 0;
	a.min_rnr_timer = 29;
	a.rd_atomic = 5;
	a.v6 = true;
	end_create(&a);
	end_create(&b);
	end_to(&a, &b, IBV_QPS_RTS);
	CHECK_EQ(ibv_query_qp(a.qp, &attr, 0x1fffff, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQ(attr.cur_qp_state, IBV_QPS_RTS);
	CHECK_EQ(attr.path_mtu, IBV_MTU_512);
	CHECK_EQ(attr.path_mig_state, IBV_MIG_MIGRATED);
	CHECK_EQ(attr.rq_psn, 0x123456);
	CHECK_EQ(attr.sq_psn, 0xabcdef);
	CHECK_EQ(attr.dest_qp_num, b.qp->qp_num);
	CHECK_EQ(attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(attr.pkey_index, 0);
	CHECK_EQ(attr.port_num, 1);
	CHECK_EQ(attr.timeout, 31);
	CHECK_EQ(attr.retry_cnt, 3);
	CHECK_EQ(attr.rnr_retry, 0);
	CHECK_EQ(attr.min_rnr_timer, 29);
	CHECK_EQ(attr.max_rd_atomic, 5);
	CHECK_EQ(attr.max_dest_rd_atomic, 5);
	CHECK_EQ(attr.ah_attr.is_global, 1);
	CHECK_EQ(attr.ah_attr.grh.sgid_index, r1.gid6_index);
	CHECK(!memcmp(&attr.ah_attr.grh.dgid, &r2.gid6, 16));
	CHECK_EQ(attr.ah_attr.grh.hop_limit, 64);
	end_modify(&a, IBV_QPS_RESET);
	CHECK_EQ(ibv_query_qp(a.qp, &attr, 0x1fffff, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
	CHECK_EQ(attr.dest_qp_num, 0);
	pair_close(&a, &b);
}

/*
 * The first message to a queue pair in RTR raises an event, once, since the message that the
 * connection waits for may be lost. In RTS there is no event.
 */
static void test_communication_established(void)
{
	struct end a, b;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UC; type++) {
		for (int state = IBV_QPS_RTR; state <= IBV_QPS_RTS; state++) {
			end_init(&a, &r1, type, 4096);
			end_init(&b, &r2, type, 4096);
			end_create(&a);
			end_create(&b);
			end_to(&a, &b, state);
			end_to(&b, &a, IBV_QPS_RTS);
			for (int i = 0; i < 3; i++) {
				post_recv(&a, i, 0, 64);
				post_send(&b, &a, IBV_WR_SEND, i, 0, 64, IBV_SEND_SIGNALED);
				expect(&b, i, IBV_WC_SUCCESS);
				expect(&a, i, IBV_WC_SUCCESS);
				if (!i && state == IBV_QPS_RTR)
					expect_event(&a, IBV_EVENT_COMM_EST);
			}
			for (int i = 0; i < 50; i++) {
				CHECK(!have_event(&a));
				CHECK_EQ(end_state(&a), state);
			}
			pair_close(&a, &b);
		}
	}
}

static const struct test tests[] = {
	{ "a full queue", test_full_queue },
	{ "RESET discards", test_reset_discards },
	{ "sends before RTS", test_send_too_early },
	{ "SQD drains", test_sqd },
	{ "SQD delays local errors", test_sqd_bad },
	{ "UC, error in SQD", test_sqd_begun_bad },
	{ "SQE and back", test_sqe },
	{ "SQE and back, long queues", test_sqe_many },
	{ "SQE and back, a queue that is never empty", test_sqe_never_empty },
	{ "communication established", test_communication_established },
	{ "query returns the values set", test_query },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
