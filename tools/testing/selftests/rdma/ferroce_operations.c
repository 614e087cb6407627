// SPDX-License-Identifier: GPL-2.0
/*
 * ATOMIC WRITE, FLUSH, SEND with invalidate and LOCAL_INV: their effects, and errors.
 */
#include "ferroce_util.h"

#define LEN 16384
#define AT 512
#define OPS (IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE | \
	     IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND)
#define ALL_FLUSHES (IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static void ends_init(struct end *a, struct end *b)
{
	end_init(a, &r1, IBV_QPT_RC, LEN);
	end_init(b, &r2, IBV_QPT_RC, LEN);
	a->ops = OPS;
	b->access = FULL_ACCESS | ALL_FLUSHES;
	b->region = FULL_ACCESS | IBV_ACCESS_FLUSH_GLOBAL;
}

static void ends_open(struct end *a, struct end *b)
{
	ends_init(a, b);
	pair_create(a, b);
}

/* The request was refused, and that is the end of both queue pairs. */
static void expect_refusal(struct end *a, struct end *b, enum ibv_wc_status status)
{
	expect(a, 1, status);
	end_await(a, IBV_QPS_ERR);
	end_await(b, IBV_QPS_ERR);
	expect_event(b, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR :
							  IBV_EVENT_QP_REQ_ERR);
}

static void test_device(void)
{
	struct ibv_device_attr_ex attr;

	CHECK_EQ(ibv_query_device_ex(r1.ctx, NULL, &attr), 0);
	CHECK(attr.device_cap_flags_ex & (1ull << 40));
	CHECK(attr.device_cap_flags_ex & (1ull << 38));
	/* No memory here is persistent. */
	CHECK(!(attr.device_cap_flags_ex & (1ull << 39)));
	CHECK(!ibv_reg_mr(r1.pd, &attr, sizeof(attr),
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT));
	CHECK_EQ(errno, EOPNOTSUPP);
}

static void post_atomic_write(struct end *a, struct end *b, uint64_t wr_id, size_t off,
			      const char *bytes, unsigned int flags)
{
	struct ibv_qp_ex *qp = ex_begin(a, wr_id, flags);

	ibv_wr_atomic_write(qp, b->mr->rkey, (uintptr_t)b->buf + off, bytes);
	ex_post(a);
}

static void test_atomic_write(void)
{
	struct end a, b;
	char bytes[8];

	ends_open(&a, &b);
	memset(b.buf, 0x22, LEN);
	post_atomic_write(&a, &b, 1, AT, "12345678", IBV_SEND_SIGNALED);
	CHECK_EQ(expect(&a, 1, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
	CHECK(!memcmp(b.buf + AT, "12345678", 8));
	CHECK(all_bytes(b.buf, AT, 0x22));
	CHECK(all_bytes(b.buf + AT + 8, LEN - AT - 8, 0x22));
	/* More at once than the peer remembers; all but the last one silent. */
	for (int i = 0; i < 50; i++) {
		memset(bytes, i, 8);
		post_atomic_write(&a, &b, i, LEN - 8, bytes, i == 49 ? IBV_SEND_SIGNALED : 0);
	}
	expect(&a, 49, IBV_WC_SUCCESS);
	CHECK(all_bytes(b.buf + LEN - 8, 8, 49));
	expect_none(&b);
	pair_close(&a, &b);

	/* The WQE of a queue pair without SGEs and inline data has room for the operand, too. */
	ends_init(&a, &b);
	a.cap.max_send_sge = 0;
	a.cap.max_inline_data = 0;
	pair_create(&a, &b);
	post_atomic_write(&a, &b, 1, AT, "12345678", IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(!memcmp(b.buf + AT, "12345678", 8));
	pair_close(&a, &b);
}

static void test_bad_atomic_writes(void)
{
	struct end a, b;

	for (int kind = 0; kind < 4; kind++) {
		ends_init(&a, &b);
		if (kind == 1)
			b.access &= ~IBV_ACCESS_REMOTE_WRITE;
		if (kind == 2)
			b.region = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
		pair_create(&a, &b);
		post_atomic_write(&a, &b, 1, kind == 0 ? AT + 4 : kind == 3 ? LEN : AT, "12345678",
				  IBV_SEND_SIGNALED);
		expect_refusal(&a, &b, kind < 2 ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR);
		CHECK(all_bytes(b.buf, LEN, 0));
		pair_close(&a, &b);
	}
}

static void post_flush(struct end *a, struct end *b, uint64_t wr_id, size_t off, size_t len,
		       uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *qp = ex_begin(a, wr_id, IBV_SEND_SIGNALED);

	ibv_wr_flush(qp, b->mr->rkey, (uintptr_t)b->buf + off, len, type, level);
	ex_post(a);
}

static void test_flush(void)
{
	struct ibv_qp_ex *qp;
	struct end a, b;

	ends_open(&a, &b);
	fill(a.buf, LEN, 1);
	/* A WRITE is there when the FLUSH behind it is complete. */
	qp = ex_begin(&a, 1, 0);
	ibv_wr_rdma_write(qp, b.mr->rkey, (uintptr_t)b.buf);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, LEN);
	ex_post(&a);
	post_flush(&a, &b, 2, 0, LEN, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	CHECK_EQ(expect(&a, 2, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
	CHECK(filled(b.buf, LEN, 1));
	/* All of the region: the range is not looked at. */
	post_flush(&a, &b, 3, 2 * LEN, 0x7fffffff, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
	expect(&a, 3, IBV_WC_SUCCESS);
	post_flush(&a, &b, 4, LEN, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	expect(&a, 4, IBV_WC_SUCCESS);
	for (int i = 0; i < 50; i++)
		post_flush(&a, &b, i, i, 100, IBV_FLUSH_GLOBAL, i & 1);
	for (int i = 0; i < 50; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK(filled(b.buf, LEN, 1));
	pair_close(&a, &b);
}

static void test_bad_flushes(void)
{
	static const struct {
		unsigned int access, region;
		size_t off, len;
		uint8_t type, level;
		enum ibv_wc_status status;
	} flushes[] = {
		/* No placement type; types and levels that do not exist: the requester fails. */
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 0, 0, IBV_WC_LOC_QP_OP_ERR },
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 4, 0, IBV_WC_LOC_QP_OP_ERR },
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 1, 2, IBV_WC_LOC_QP_OP_ERR },
		/* No right of the queue pair, of the region, and out of bounds. */
		{ 0, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 1, 0, IBV_WC_REM_INV_REQ_ERR },
		{ ALL_FLUSHES, 0, 0, 8, 1, 0, IBV_WC_REM_ACCESS_ERR },
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, LEN - 7, 8, 1, 0, IBV_WC_REM_ACCESS_ERR },
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 2, 0, IBV_WC_REM_ACCESS_ERR },
		{ ALL_FLUSHES, IBV_ACCESS_FLUSH_GLOBAL, 0, 8, 3, 1, IBV_WC_REM_ACCESS_ERR },
	};
	struct end a, b;

	for (size_t i = 0; i < ARRAY_LEN(flushes); i++) {
		printf("# flush %zu\n", i);
		ends_init(&a, &b);
		b.access = FULL_ACCESS | flushes[i].access;
		b.region = FULL_ACCESS | flushes[i].region;
		pair_create(&a, &b);
		post_flush(&a, &b, 1, flushes[i].off, flushes[i].len, flushes[i].type,
			   flushes[i].level);
		if (flushes[i].status == IBV_WC_LOC_QP_OP_ERR) {
			expect(&a, 1, flushes[i].status);
			CHECK_EQ(end_state(&b), IBV_QPS_RTS);
		} else {
			expect_refusal(&a, &b, flushes[i].status);
		}
		pair_close(&a, &b);
	}
}

static void post_invalidate(struct end *a, uint64_t wr_id, uint32_t key, bool local)
{
	struct ibv_qp_ex *qp = ex_begin(a, wr_id, IBV_SEND_SIGNALED);

	if (local) {
		ibv_wr_local_inv(qp, key);
	} else {
		ibv_wr_send_inv(qp, key);
		ibv_wr_set_sge(qp, a->mr->lkey, (uintptr_t)a->buf, 64);
	}
	ex_post(a);
}

/*
 * Regions that a verb has registered cannot be invalidated, neither by the peer nor by the own
 * side. They go on to work.
 */
static void test_send_invalidate(void)
{
	struct end a, b, c, d;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	ends_init(&a, &b);
	/* The target does not answer (class J), so the requester asks again. */
	a.timeout = 10;
	a.retry_cnt = 1;
	pair_create(&a, &b);
	post_recv(&b, 5, AT, 64);
	post_recv(&b, 6, AT, 64);
	post_invalidate(&a, 1, b.mr->rkey, false);
	expect(&b, 5, IBV_WC_REM_INV_REQ_ERR);
	expect(&b, 6, IBV_WC_WR_FLUSH_ERR);
	end_await(&b, IBV_QPS_ERR);
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);

	pair_open(&c, &d, IBV_QPT_RC, LEN);
	memset(c.buf, 0x33, 64);
	make_send(&wr, &sge, &c, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED);
	post_wr(&c, &wr);
	expect(&c, 1, IBV_WC_SUCCESS);
	CHECK(all_bytes(b.buf, 64, 0x33));
	pair_close(&c, &d);
	pair_close(&a, &b);
}

static void test_local_invalidate(void)
{
	struct ibv_qp_ex *qp;
	struct end a, b;

	ends_open(&a, &b);
	post_recv(&b, 5, AT, 64);
	/* It fails in order: the request before it succeeds, the one after it is flushed. */
	qp = ex_begin(&a, 1, IBV_SEND_SIGNALED);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 64);
	ex_post(&a);
	post_invalidate(&a, 2, a.mr->rkey, true);
	post_invalidate(&a, 3, 0x12345678, true);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_MW_BIND_ERR);
	expect(&a, 3, IBV_WC_WR_FLUSH_ERR);
	expect(&b, 5, IBV_WC_SUCCESS);
	end_await(&a, IBV_QPS_ERR);
	CHECK_EQ(end_state(&b), IBV_QPS_RTS);
	pair_close(&a, &b);
}

static const struct test tests[] = {
	{ "device capabilities", test_device },
	{ "ATOMIC WRITE", test_atomic_write },
	{ "ATOMIC WRITE, refused", test_bad_atomic_writes },
	{ "FLUSH", test_flush },
	{ "FLUSH, refused", test_bad_flushes },
	{ "SEND with invalidate of a region", test_send_invalidate },
	{ "LOCAL_INV of a region", test_local_invalidate },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
