// SPDX-License-Identifier: GPL-2.0
/*
 * Compare and swap, fetch and add: their results, concurrent operations on a word, a lossy link,
 * which does not affect them, and errors.
 */
#include <pthread.h>
#include <sched.h>
#include "ferroce_util.h"

#define LEN 4096
/* The offset of the word in the buffer. Writes on either side of it would show. */
#define AT 512
#define ATOMIC_ACCESS (FULL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC)
#define ATOMIC_OPS (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static void atomic_init(struct end *a, struct end *b, size_t len)
{
	end_init(a, &r1, IBV_QPT_RC, len);
	end_init(b, &r2, IBV_QPT_RC, len);
	a->access = ATOMIC_ACCESS;
	a->region = ATOMIC_ACCESS;
	b->access = ATOMIC_ACCESS;
	b->region = ATOMIC_ACCESS;
}

static void atomic_open(struct end *a, struct end *b, size_t len)
{
	atomic_init(a, b, len);
	pair_create(a, b);
}

static uint64_t load(struct end *e, size_t off)
{
	return __atomic_load_n((uint64_t *)(e->buf + off), __ATOMIC_ACQUIRE);
}

static void store(struct end *e, size_t off, uint64_t value)
{
	__atomic_store_n((uint64_t *)(e->buf + off), value, __ATOMIC_RELEASE);
}

/* Posts an operation on a word of the peer; the original value goes to `off` of the own buffer. */
static void post_atomic(struct end *e, struct end *to, enum ibv_wr_opcode op, uint64_t wr_id,
			size_t off, size_t remote, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, e, to, op, wr_id, off, 8, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)to->buf + remote;
	wr.wr.atomic.rkey = to->mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	post_wr(e, &wr);
}

static void test_device(void)
{
	struct ibv_device_attr attr;

	CHECK_EQ(ibv_query_device(r1.ctx, &attr), 0);
	CHECK_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
	CHECK_EQ(attr.max_qp_rd_atom, 16);
	CHECK_EQ(attr.max_qp_init_rd_atom, 16);
	CHECK(attr.max_res_rd_atom >= attr.max_qp_rd_atom);
}

static void test_compare_swap(void)
{
	struct end a, b;
	struct ibv_wc wc;

	atomic_open(&a, &b, LEN);
	memset(b.buf, 0x22, LEN);
	store(&b, AT, 100);
	post_atomic(&a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 0, AT, 100, 0x1122334455667788);
	wc = expect(&a, 1, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_COMP_SWAP);
	CHECK_EQ(wc.byte_len, 8);
	CHECK_EQ(load(&a, 0), 100);
	CHECK_EQ(load(&b, AT), 0x1122334455667788);
	/* The comparison fails. */
	post_atomic(&a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 8, AT, 100, 5);
	expect(&a, 2, IBV_WC_SUCCESS);
	CHECK_EQ(load(&a, 8), 0x1122334455667788);
	CHECK_EQ(load(&b, AT), 0x1122334455667788);
	CHECK(all_bytes(b.buf, AT, 0x22));
	CHECK(all_bytes(b.buf + AT + 8, LEN - AT - 8, 0x22));
	CHECK(all_bytes(a.buf + 16, LEN - 16, 0));
	expect_none(&b);
	pair_close(&a, &b);
}

/* More additions than either side remembers, on the last word of a region; the sum wraps around. */
static void test_fetch_add(void)
{
	struct end a, b;

	atomic_open(&a, &b, LEN);
	store(&b, LEN - 8, -30);
	for (uint64_t i = 0; i < 60; i++)
		post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, i, i * 8, LEN - 8, 1, 99);
	for (uint64_t i = 0; i < 60; i++)
		CHECK_EQ(expect(&a, i, IBV_WC_SUCCESS).opcode, IBV_WC_FETCH_ADD);
	for (uint64_t i = 0; i < 60; i++)
		CHECK_EQ(load(&a, i * 8), i - 30);
	CHECK_EQ(load(&b, LEN - 8), 30);
	pair_close(&a, &b);
}

/* The extended functions, and several buffers. */
static void test_extended(void)
{
	struct ibv_sge sges[2];
	struct ibv_qp_ex *qp;
	struct end a, b;

	atomic_init(&a, &b, LEN);
	a.ops = ATOMIC_OPS;
	pair_create(&a, &b);
	memset(a.buf, 0x11, LEN);
	store(&b, AT, 7);
	sges[0] = (struct ibv_sge){ (uintptr_t)a.buf + 3, 5, a.mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)a.buf + 100, 3, a.mr->lkey };
	qp = ex_begin(&a, 1, IBV_SEND_SIGNALED);
	ibv_wr_atomic_fetch_add(qp, b.mr->rkey, (uintptr_t)b.buf + AT, 0x0101010101010101);
	ibv_wr_set_sge_list(qp, 2, sges);
	qp->wr_id = 2;
	ibv_wr_atomic_cmp_swp(qp, b.mr->rkey, (uintptr_t)b.buf + AT, 0x0101010101010108, 42);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf + 200, 8);
	ex_post(&a);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&a, 2, IBV_WC_SUCCESS);
	CHECK(!memcmp(a.buf + 3, "\7\0\0\0", 5) && all_bytes(a.buf + 100, 3, 0));
	CHECK(all_bytes(a.buf + 103, 97, 0x11));
	CHECK_EQ(load(&a, 200), 0x0101010101010108);
	CHECK_EQ(load(&b, AT), 42);
	pair_close(&a, &b);
}

/* The buffers must be exactly as long as a word: otherwise the request is not even sent. */
static void test_lengths(void)
{
	static const uint32_t lens[] = { 0, 4, 7, 9, 16, 64 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_qp_ex *qp;
	struct end a, b;

	for (size_t i = 0; i < 2 * ARRAY_LEN(lens); i++) {
		uint32_t len = lens[i / 2];

		printf("# %u bytes\n", len);
		atomic_init(&a, &b, LEN);
		a.ops = ATOMIC_OPS;
		pair_create(&a, &b);
		memset(a.buf, 0x11, LEN);
		store(&b, AT, 7);
		/* ibv_post_send() itself refuses less than a word. */
		if (i & 1 || len < 8) {
			qp = ex_begin(&a, 1, IBV_SEND_SIGNALED);
			ibv_wr_atomic_fetch_add(qp, b.mr->rkey, (uintptr_t)b.buf + AT, 1);
			ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, len);
			ex_post(&a);
		} else {
			make_send(&wr, &sge, &a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 1, 0, len, 0);
			wr.wr.atomic.remote_addr = (uintptr_t)b.buf + AT;
			wr.wr.atomic.rkey = b.mr->rkey;
			wr.wr.atomic.compare_add = 7;
			wr.wr.atomic.swap = 8;
			post_wr(&a, &wr);
		}
		expect(&a, 1, IBV_WC_LOC_LEN_ERR);
		end_await(&a, IBV_QPS_ERR);
		CHECK_EQ(end_state(&b), IBV_QPS_RTS);
		CHECK_EQ(load(&b, AT), 7);
		CHECK(all_bytes(a.buf, LEN, 0x11));
		pair_close(&a, &b);
	}
}

#define ADDS 200

static void *add_here(void *arg)
{
	uint64_t *word = arg;

	for (int i = 0; i < ADDS; i++) {
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
		sched_yield();
	}
	return NULL;
}

/* Three queue pairs and the CPU add to one word. No addition is lost. */
static void test_together(void)
{
	struct end a[3], b[3];
	int posted[3] = {}, done[3] = {}, n;
	pthread_t thread;
	struct ibv_wc wc;

	for (int i = 0; i < 3; i++)
		atomic_open(&a[i], &b[i], LEN);
	CHECK_EQ(pthread_create(&thread, NULL, add_here, b[0].buf + AT), 0);
	wait_begin();
	while (done[0] + done[1] + done[2] < 3 * ADDS) {
		for (int i = 0; i < 3; i++) {
			while (posted[i] < ADDS && posted[i] - done[i] < 32) {
				post_atomic(&a[i], &b[0], IBV_WR_ATOMIC_FETCH_AND_ADD, posted[i],
					    0, AT, 1, 0);
				posted[i]++;
			}
			while ((n = ibv_poll_cq(a[i].cq, 1, &wc))) {
				CHECK_EQ(n, 1);
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(wc.wr_id, done[i]);
				done[i]++;
			}
		}
		wait_more("atomics");
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(load(&b[0], AT), 4 * ADDS);
	for (int i = 0; i < 3; i++)
		pair_close(&a[i], &b[i]);
}

/*
 * Requests and responses get lost, duplicated and delayed; each addition is made once, and returns
 * the result of those before it.
 */
static void test_loss(void)
{
	const int count = 200;
	int posted = 0, done = 0;
	struct end a, b;

	atomic_init(&a, &b, LEN);
	/* Probes recover from each loss. The first response is a sample of the round-trip time. */
	a.timeout = 0;
	pair_create(&a, &b);
	post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, AT, 0, 0);
	expect(&a, 0, IBV_WC_SUCCESS);
	shell_undo(BOTH("tc -n n$i qdisc del dev v$i root"),
		   BOTH("tc -n n$i qdisc add dev v$i root netem %s"),
		   "loss 3% duplicate 3% delay 1ms 1ms");
	while (done < count) {
		for (; posted < count && posted - done < 16; posted++)
			post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, posted, posted % 16 * 8,
				    AT, 3, 0);
		expect(&a, done, IBV_WC_SUCCESS);
		CHECK_EQ(load(&a, done % 16 * 8), 3 * done);
		done++;
	}
	CHECK_EQ(load(&b, AT), 3 * count);
	/* Some packets were lost, and some requests arrived twice. */
	shell("for i in 1 2; do tc -n n$i -s qdisc show dev v$i; done | grep -q 'dropped [1-9]'");
	shell("! grep -qx 0 /sys/class/infiniband/r2/ports/1/hw_counters/duplicate_request");
	undo_last();
	pair_close(&a, &b);
}

enum fault {
	WRONG_KEY,
	OTHER_PD,
	DEREGISTERED,
	BEFORE,
	BEYOND,
	NO_RIGHT,
	FAULTS
};

static const char *const fault_names[] = {
	"wrong key",
	"other protection domain",
	"deregistered",
	"before",
	"beyond",
	"no right",
};

static void one_fault(enum fault fault)
{
	struct ibv_pd *pd = ibv_alloc_pd(r2.ctx);
	int access = ATOMIC_ACCESS;
	unsigned char *at;
	struct ibv_mr *mr;
	struct end a, b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	printf("# %s\n", fault_names[fault]);
	atomic_open(&a, &b, LEN);
	memset(b.buf, 0x22, LEN);
	memset(a.buf, 0x11, LEN);
	at = b.buf + AT;
	if (fault == NO_RIGHT)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	mr = ibv_reg_mr(fault == OTHER_PD ? pd : r2.pd, at, 64, access);
	CHECK(mr);
	make_send(&wr, &sge, &a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)at;
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 1;
	switch (fault) {
	case WRONG_KEY:
		wr.wr.atomic.rkey ^= 1;
		break;
	case DEREGISTERED:
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		mr = NULL;
		break;
	case BEFORE:
		wr.wr.atomic.remote_addr -= 8;
		break;
	case BEYOND:
		wr.wr.atomic.remote_addr += 64;
		break;
	default:
		break;
	}
	post_wr(&a, &wr);
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	end_await(&a, IBV_QPS_ERR);
	end_await(&b, IBV_QPS_ERR);
	expect_event(&b, IBV_EVENT_QP_ACCESS_ERR);
	CHECK(all_bytes(b.buf, LEN, 0x22));
	CHECK(all_bytes(a.buf, LEN, 0x11));
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&a, &b);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void test_faults(void)
{
	for (int fault = 0; fault < FAULTS; fault++)
		one_fault(fault);
}

/* Requests that the responder must refuse as invalid: unaligned, or not allowed on its QP. */
static void test_invalid(void)
{
	struct ibv_qp_ex *qp;
	struct end a, b;

	for (int kind = 0; kind < 3; kind++) {
		atomic_init(&a, &b, LEN);
		a.ops = ATOMIC_OPS;
		if (kind == 1)
			b.access = FULL_ACCESS;
		if (kind == 2)
			b.rd_atomic = 0;
		pair_create(&a, &b);
		qp = ex_begin(&a, 1, IBV_SEND_SIGNALED);
		ibv_wr_atomic_cmp_swp(qp, b.mr->rkey, (uintptr_t)b.buf + AT + (kind ? 0 : 4), 0, 1);
		ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.buf, 8);
		ex_post(&a);
		expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
		end_await(&a, IBV_QPS_ERR);
		end_await(&b, IBV_QPS_ERR);
		expect_event(&b, IBV_EVENT_QP_REQ_ERR);
		CHECK(all_bytes(b.buf, LEN, 0));
		pair_close(&a, &b);
	}
}

/* A request that the own queue pair does not allow is not sent; a bad lkey is an error. */
static void test_own_side(void)
{
	struct end a, b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	atomic_init(&a, &b, LEN);
	a.rd_atomic = 0;
	pair_create(&a, &b);
	post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, AT, 1, 0);
	expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK_EQ(load(&b, AT), 0);
	pair_close(&a, &b);

	atomic_open(&a, &b, LEN);
	make_send(&wr, &sge, &a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)b.buf + AT;
	wr.wr.atomic.rkey = b.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	sge.lkey ^= 1;
	post_wr(&a, &wr);
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(load(&b, AT), 1);
	CHECK(all_bytes(a.buf, LEN, 0));
	pair_close(&a, &b);

	pair_open(&a, &b, IBV_QPT_UC, LEN);
	post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, AT, 1, 0);
	expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
	pair_close(&a, &b);
}

/* A fenced SEND waits for the result of the operation before it, and sends that. */
static void test_fence(void)
{
	struct end a, b;

	atomic_open(&a, &b, LEN);
	for (uint64_t i = 0; i < 20; i++) {
		post_recv(&b, i, 0, 8);
		post_atomic(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, i, 0, AT, 5, 0);
		post_send(&a, &b, IBV_WR_SEND, 100 + i, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&a, 100 + i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
		CHECK_EQ(load(&b, 0), i * 5);
	}
	pair_close(&a, &b);
}

static const struct test tests[] = {
	{ "device capabilities", test_device },
	{ "compare and swap", test_compare_swap },
	{ "fetch and add", test_fetch_add },
	{ "extended functions", test_extended },
	{ "buffers not as long as a word", test_lengths },
	{ "concurrent with other queue pairs and the CPU", test_together },
	{ "over a lossy link", test_loss },
	{ "the fence", test_fence },
	{ "forbidden memory", test_faults },
	{ "invalid requests", test_invalid },
	{ "local errors", test_own_side },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
