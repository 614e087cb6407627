// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions that do not simply map a part of the address space: their first byte has the
 * address zero, or they are changed while they are in use.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_traffic.h"

#define LEN 16384
/* The region is in the middle of the buffer, so that writes on either side of it show. */
#define AT 4196
#define ROOM 8000
#define PIECE 3000

/* Buffers of the target, beside those of its queue pair. */
static unsigned char *buf, *other;

static void set_up(void)
{
	buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	other = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buf != MAP_FAILED && other != MAP_FAILED);
}

/*
 * Has a new peer write or read some bytes with the key, and returns the status. A WRITE brings
 * 0x11, and a READ must return the bytes of `wanted`.
 */
static enum ibv_wc_status remote(enum ibv_wr_opcode op, struct ibv_mr *mr, uint64_t va,
				 const void *wanted)
{
	enum ibv_wc_status status;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	memset(a.buf, 0x11, LEN);
	make_send(&wr, &sge, &a, &b, op, 1, 0, PIECE, IBV_SEND_SIGNALED);
	wr.wr.rdma.remote_addr = va;
	wr.wr.rdma.rkey = mr->rkey;
	post_wr(&a, &wr);
	status = next_wc(a.cq).status;
	if (status == IBV_WC_SUCCESS && wanted)
		CHECK(!memcmp(a.buf, wanted, PIECE));
	pair_close(&a, &b);
	return status;
}

static void test_zero_based(void)
{
	int access = FULL_ACCESS | IBV_ACCESS_ZERO_BASED;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct end a, b;

	memset(buf, 0x22, LEN);
	fill(buf + AT + 1000, PIECE, 4);
	mr = ibv_reg_mr(r2.pd, buf + AT, ROOM, access);
	CHECK(mr);
	CHECK_EQ(remote(IBV_WR_RDMA_READ, mr, 1000, buf + AT + 1000), IBV_WC_SUCCESS);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, 0, NULL), IBV_WC_SUCCESS);
	CHECK(all_bytes(buf + AT, PIECE, 0x11));
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, ROOM - PIECE, NULL), IBV_WC_SUCCESS);
	CHECK(all_bytes(buf + AT + ROOM - PIECE, PIECE, 0x11));
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, ROOM - PIECE + 1, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, -1, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, (uintptr_t)buf + AT, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf, AT, 0x22));
	CHECK(all_bytes(buf + AT + ROOM, LEN - AT - ROOM, 0x22));

	/* The owner uses the same addresses. */
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	fill(buf + AT + 16, 100, 5);
	post_recv(&a, 3, 0, 100);
	make_send(&wr, &sge, &b, &a, IBV_WR_SEND, 1, 0, 100, IBV_SEND_SIGNALED);
	sge.addr = 16;
	sge.lkey = mr->lkey;
	post_wr(&b, &wr);
	expect(&a, 3, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(a.buf, 100, 5));
	sge.addr = (uintptr_t)buf + AT;
	post_wr(&b, &wr);
	expect(&b, 1, IBV_WC_LOC_PROT_ERR);
	pair_close(&a, &b);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static int change_access(struct ibv_mr *mr, int access)
{
	return mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0, NULL, access);
}

/* Moves a region to memory that begins at the same offset in a page as `va`. */
static int change_memory(struct ibv_mr *mr, void *start, size_t len, uint64_t va)
{
	return mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, start, len, va, NULL, 0);
}

static int change_both(struct ibv_mr *mr, void *start, size_t len, uint64_t va, int access)
{
	int flags = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;

	return mr_rereg(mr, flags, start, len, va, NULL, access);
}

static void test_change_access(void)
{
	struct ibv_mr *mr;
	uint64_t va = (uintptr_t)buf;

	memset(buf, 0x22, LEN);
	mr = ibv_reg_mr(r2.pd, buf, LEN, FULL_ACCESS);
	CHECK(mr);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_SUCCESS);
	CHECK(all_bytes(buf, PIECE, 0x11));
	CHECK_EQ(change_access(mr, IBV_ACCESS_REMOTE_READ), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_READ, mr, va, buf), IBV_WC_SUCCESS);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va + PIECE, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf + PIECE, LEN - PIECE, 0x22));
	CHECK_EQ(change_access(mr, FULL_ACCESS), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va + PIECE, NULL), IBV_WC_SUCCESS);

	/* A refused change leaves everything as it was. */
	CHECK_EQ(change_access(mr, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_EQ(change_access(mr, FULL_ACCESS | IBV_ACCESS_ON_DEMAND), EINVAL);
	CHECK_EQ(change_access(mr, FULL_ACCESS | IBV_ACCESS_ZERO_BASED), EINVAL);
	CHECK_EQ(mr_rereg(mr, 0, NULL, 0, 0, NULL, 0), EINVAL);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(mr), 0);

	/* Pages that were pinned for reading cannot become writable. */
	mr = ibv_reg_mr(r2.pd, buf, LEN, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	CHECK_EQ(change_access(mr, FULL_ACCESS), EACCES);
	CHECK_EQ(remote(IBV_WR_RDMA_READ, mr, va, buf), IBV_WC_SUCCESS);
	CHECK_EQ(change_both(mr, buf, LEN, va, FULL_ACCESS), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void test_change_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(r2.ctx);
	uint64_t va = (uintptr_t)buf;
	struct ibv_mr *mr;

	CHECK(pd);
	memset(buf, 0x22, LEN);
	mr = ibv_reg_mr(r2.pd, buf, LEN, FULL_ACCESS);
	CHECK(mr);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, NULL, 0, 0, pd, 0), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf, LEN, 0x22));
	/* The new domain is in use now. */
	CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
	CHECK_EQ(mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, NULL, 0, 0, r2.pd, 0), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void test_change_memory(void)
{
	uint64_t va = (uintptr_t)buf + AT;
	struct ibv_mr *mr;

	memset(buf, 0x22, LEN);
	memset(other, 0x33, LEN);
	mr = ibv_reg_mr(r2.pd, buf + AT, ROOM, FULL_ACCESS);
	CHECK(mr);
	/* Other memory at the same address, and more of it. */
	CHECK_EQ(change_memory(mr, other + AT, ROOM + PIECE, va), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va + ROOM, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va + ROOM + 1, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf, LEN, 0x22));
	CHECK(all_bytes(other, AT, 0x33));
	CHECK(all_bytes(other + AT, PIECE, 0x11));
	CHECK(all_bytes(other + AT + PIECE, ROOM - PIECE, 0x33));
	CHECK(all_bytes(other + AT + ROOM, PIECE, 0x11));
	CHECK(all_bytes(other + AT + ROOM + PIECE, LEN - AT - ROOM - PIECE, 0x33));
	/* An attempt with memory that cannot be pinned changes nothing. */
	CHECK_EQ(change_memory(mr, NULL, 4096, 0), EFAULT);
	CHECK_EQ(change_memory(mr, buf, LEN, va), EINVAL);
	CHECK_EQ(change_memory(mr, buf, LEN, -4096), EINVAL);
	memset(other, 0x33, LEN);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va + ROOM, NULL), IBV_WC_SUCCESS);
	CHECK(all_bytes(other + AT + ROOM, PIECE, 0x11));
	/* Change it to a region that begins at zero, in the middle of a page. */
	CHECK_EQ(change_both(mr, buf + AT, ROOM, va, FULL_ACCESS | IBV_ACCESS_ZERO_BASED), 0);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, 0, NULL), IBV_WC_SUCCESS);
	CHECK_EQ(remote(IBV_WR_RDMA_WRITE, mr, va, NULL), IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf + AT, PIECE, 0x11));
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/*
 * Once a region has been moved to other memory, its old memory is not written to any more, and
 * memory other than the old and the new is never written to.
 */
static void test_change_under_traffic(void)
{
	static struct traffic t;
	unsigned char *from = buf, *to = other, *swap;
	unsigned long wanted;
	struct ibv_mr *mr;
	pthread_t thread;

	t = (struct traffic) { .places = 12 };
	pair_open(&t.a, &t.b, IBV_QPT_UC, LEN);
	memset(t.a.buf, 0x11, LEN);
	mr = ibv_reg_mr(r2.pd, buf, LEN, FULL_ACCESS);
	CHECK(mr);
	t.va = (uintptr_t)buf;
	t.rkey = mr->rkey;
	CHECK_EQ(pthread_create(&thread, NULL, traffic_run, &t), 0);
	for (int i = 0; i < 200; i++) {
		CHECK_EQ(change_memory(mr, to, LEN, t.va), 0);
		memset(from, 0x44, LEN);
		memset(to, 0x55, LEN);
		wanted = __atomic_load_n(&t.done, __ATOMIC_ACQUIRE) + 30;
		wait_begin();
		while (__atomic_load_n(&t.done, __ATOMIC_ACQUIRE) < wanted || !traffic_arrived(to))
			wait_more("WRITEs");
		CHECK(all_bytes(from, LEN, 0x44));
		CHECK(all_bytes(to + 12 * 1024, LEN - 12 * 1024, 0x55));
		swap = from;
		from = to;
		to = swap;
	}
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&t.a, &t.b);
}

/* Checks that `bits` do not depend on the previous key: each differs about every other time. */
static void check_random(const uint32_t *keys, int count, uint32_t bits)
{
	for (int bit = 0; bit < 32; bit++) {
		int differ = 0;

		for (int i = 1; i < count; i++)
			differ += (keys[i] ^ keys[i - 1]) >> bit & 1;
		if (bits >> bit & 1 && (differ < count / 4 || differ > count * 3 / 4)) {
			printf("# bit %d differs %d times of %d\n", bit, differ, count - 1);
			CHECK(!"a random bit");
		}
	}
}

/* One bit distinguishes windows; another is 0 in new ones, as programs add to the low bits. */
static void test_keys(void)
{
	enum { COUNT = 400 };
	static struct ibv_mr *mrs[COUNT];
	static struct ibv_mw *mws[COUNT];
	static uint32_t keys[2][COUNT];

	for (int i = 0; i < COUNT; i++) {
		mrs[i] = ibv_reg_mr(r2.pd, buf, LEN, FULL_ACCESS);
		mws[i] = ibv_alloc_mw(r2.pd, IBV_MW_TYPE_2);
		CHECK(mrs[i] && mws[i]);
		keys[0][i] = mrs[i]->rkey;
		keys[1][i] = mws[i]->rkey;
	}
	check_random(keys[0], COUNT, 0x7fffffff);
	check_random(keys[1], COUNT, 0x7fffff7f);
	for (int i = 0; i < COUNT; i++) {
		CHECK_EQ(ibv_dealloc_mw(mws[i]), 0);
		CHECK_EQ(ibv_dereg_mr(mrs[i]), 0);
	}
}

static const struct test tests[] = {
	{ "unpredictable keys", test_keys },
	{ "zero-based region", test_zero_based },
	{ "change of access flags", test_change_access },
	{ "change of protection domain", test_change_pd },
	{ "change of memory", test_change_memory },
	{ "change of memory while a peer writes", test_change_under_traffic },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
