// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows of memory on demand, and of a region whose registration fails; a word that is not
 * aligned in the memory of a window.
 */
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include "ferroce_fault.h"
#include "ferroce_windows.h"

#define LEN (16 * PAGE)
/* The part that a window shows: not on the boundary of a page. */
#define AT (3 * PAGE + 100)
#define ROOM (6 * PAGE)
#define PIECE (2 * PAGE + 1000)

#define REGION (FULL_ACCESS | IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_ATOMIC)
#define WINDOW (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static unsigned char *buf;

static void set_up(void)
{
	buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buf != MAP_FAILED);
}

/* `a` is the peer, `b` has the region and the window. */
static struct end a, b;
static struct ibv_mr *mr;
static struct ibv_mw *mw;

static void scene_open(enum ibv_mw_type type, void *start, size_t len, int access)
{
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	b.access |= IBV_ACCESS_REMOTE_ATOMIC;
	pair_create(&a, &b);
	mr = ibv_reg_mr(r2.pd, start, len, access);
	CHECK(mr);
	mw = ibv_alloc_mw(r2.pd, type);
	CHECK(mw);
}

static void scene_close(void)
{
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&a, &b);
}

/* Connects both sides again after a failure. */
static void reconnect(void)
{
	end_modify(&a, IBV_QPS_RESET);
	end_modify(&b, IBV_QPS_RESET);
	end_to(&a, &b, IBV_QPS_RTS);
	end_to(&b, &a, IBV_QPS_RTS);
}

static void bind_room(void)
{
	uint64_t addr = (uintptr_t)buf + AT;

	if (mw->type == IBV_MW_TYPE_1)
		CHECK_EQ(bind_verb(&b, mw, mr, addr, ROOM, WINDOW), IBV_WC_SUCCESS);
	else
		CHECK_EQ(bind_request(&b, mw, mr, addr, ROOM, WINDOW), IBV_WC_SUCCESS);
}

static void post_fetch_and_add(uint64_t va, uint64_t add)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, &a, NULL, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = va;
	wr.wr.atomic.rkey = mw->rkey;
	wr.wr.atomic.compare_add = add;
	post_wr(&a, &wr);
}

static void fetch_and_add(uint64_t off, uint64_t add, uint64_t found)
{
	post_fetch_and_add((uintptr_t)buf + off, add);
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)a.buf, found);
}

/* Memory that is discarded each time: all data arrives, and nothing beside the window changes. */
static void comes_and_goes(void)
{
	uint64_t at = (uintptr_t)buf + AT;

	for (uint32_t round = 0; round < 8; round++) {
		bind_room();
		CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
		fill(a.buf, PIECE, round);
		CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, mw->rkey, at, PIECE), IBV_WC_SUCCESS);
		CHECK(filled(buf + AT, PIECE, round));
		CHECK(all_bytes(buf, AT, 0));
		CHECK(all_bytes(buf + AT + PIECE, LEN - AT - PIECE, 0));

		/* A READ returns zeros. */
		CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
		CHECK_EQ(access_by(&a, IBV_WR_RDMA_READ, mw->rkey, at, PIECE), IBV_WC_SUCCESS);
		CHECK(all_bytes(a.buf, PIECE, 0));

		CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
		fetch_and_add(4 * PAGE, round + 5, 0);
		CHECK_EQ(*(uint64_t *)(buf + 4 * PAGE), round + 5);

		if (mw->type == IBV_MW_TYPE_2)
			CHECK_EQ(invalidate(&b, IBV_WR_LOCAL_INV, mw->rkey), IBV_WC_SUCCESS);
	}
	/* One byte beyond the end. */
	bind_room();
	CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, mw->rkey, at + ROOM - 1, 2),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK(all_bytes(buf, LEN, 0));
	reconnect();
}

static void test_on_demand(void)
{
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		scene_open(type, buf, LEN, REGION | IBV_ACCESS_ON_DEMAND);
		comes_and_goes();
		scene_close();
	}
}

static void test_implicit(void)
{
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		scene_open(type, NULL, SIZE_MAX, REGION | IBV_ACCESS_ON_DEMAND);
		comes_and_goes();
		scene_close();
	}
}

/* A packet waits for memory of a window; the invalidation of the window does not wait for it. */
static void test_waiting(void)
{
	uint64_t at;
	int fd;

	scene_open(IBV_MW_TYPE_2, buf, LEN, REGION | IBV_ACCESS_ON_DEMAND);
	bind_room();
	fd = userfault(buf, LEN);
	memset(a.buf, 0x11, 64);
	post_access(&a, IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buf + AT, 64);
	at = wanted(fd);
	CHECK_EQ(invalidate(&b, IBV_WR_LOCAL_INV, mw->rkey), IBV_WC_SUCCESS);
	bring(fd, at);
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	close(fd);
	CHECK(all_bytes(buf, LEN, 0));
	scene_close();
}

/* A registration whose response cannot be written. */
struct half_made {
	void *response;
	ssize_t ret;
	int err;
};

static void *register_half(void *arg)
{
	struct half_made *half = arg;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_reg_mr reg;
	} cmd = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_REG_MR,
			.in_words = sizeof(cmd) / 4,
			.out_words = sizeof(struct ib_uverbs_reg_mr_resp) / 4,
		},
		.reg = {
			.response = (uintptr_t)half->response,
			.start = (uintptr_t)buf,
			.length = LEN,
			.hca_va = (uintptr_t)buf,
			.pd_handle = r2.pd->handle,
			.access_flags = REGION,
		},
	};

	half->ret = write(r2.ctx->cmd_fd, &cmd, sizeof(cmd));
	half->err = errno;
	return NULL;
}

/* Returns the local key of the newest region of r2, which the core shows to root, or 0. */
static uint32_t newest_key(void)
{
	FILE *out = popen("rdma resource show mr dev r2 | sed -n '$s/.*lkey //p'", "r");
	unsigned int key = 0;

	if (!out)
		return 0;
	if (fscanf(out, "%x", &key) != 1)
		key = 0;
	pclose(out);
	return key;
}

/*
 * A process learns the key of a region before the kernel returns it, and binds a window to the
 * region; then the kernel fails to return the key. The region goes, and with it the binding.
 */
static void test_half_made(void)
{
	uint64_t at = (uintptr_t)buf + AT;
	struct half_made half = {};
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	struct uffdio_range range;
	struct ibv_mr *next;
	struct ibv_mr known;
	pthread_t thread;
	bool bound;
	int fd;

	scene_open(IBV_MW_TYPE_1, buf, LEN, REGION);
	memset(buf, 0x22, LEN);
	half.response = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	CHECK(half.response != MAP_FAILED);
	fd = userfault(half.response, PAGE);
	CHECK_EQ(pthread_create(&thread, NULL, register_half, &half), 0);
	range = (struct uffdio_range){ .start = wanted(fd), .len = PAGE };
	CHECK_EQ(range.start, (uintptr_t)half.response);

	known = *mr;
	known.lkey = newest_key();
	bound = known.lkey && known.lkey != mr->lkey &&
		bind_verb(&b, mw, &known, at, ROOM, WINDOW) == IBV_WC_SUCCESS;
	if (bound)
		status = access_by(&a, IBV_WR_RDMA_READ, mw->rkey, at, PIECE);

	/* No check before this: the kernel waits for the memory, and the device for the kernel. */
	mprotect(half.response, PAGE, PROT_NONE);
	ioctl(fd, UFFDIO_WAKE, &range);
	pthread_join(thread, NULL);
	CHECK_EQ(half.ret, -1);
	CHECK_EQ(half.err, EFAULT);
	CHECK(bound);
	CHECK_EQ(status, IBV_WC_SUCCESS);
	CHECK(all_bytes(a.buf, PIECE, 0x22));
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_READ, mw->rkey, at, PIECE), IBV_WC_REM_ACCESS_ERR);
	reconnect();
	/* The window can be bound again. */
	next = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	CHECK(next);
	CHECK_EQ(bind_verb(&b, mw, next, at, ROOM, WINDOW), IBV_WC_SUCCESS);
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_READ, mw->rkey, at, PIECE), IBV_WC_SUCCESS);
	CHECK_EQ(bind_verb(&b, mw, next, 0, 0, 0), IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(next), 0);
	close(fd);
	munmap(half.response, PAGE);
	scene_close();
}

/* A word whose address is aligned to 8 bytes, but whose memory is not: the request is invalid. */
static void test_unaligned_word(void)
{
	for (int on_demand = 0; on_demand < 2; on_demand++) {
		scene_open(IBV_MW_TYPE_2, buf, LEN,
			   REGION | (on_demand ? IBV_ACCESS_ON_DEMAND : 0));
		memset(buf, 0, LEN);
		CHECK_EQ(bind_request(&b, mw, mr, (uintptr_t)buf + AT, ROOM,
				      WINDOW | IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
		post_fetch_and_add(PAGE, 1);
		expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
		end_await(&b, IBV_QPS_ERR);
		expect_event(&b, IBV_EVENT_QP_REQ_ERR);
		CHECK(all_bytes(buf, LEN, 0));
		scene_close();
	}
}

static const struct test tests[] = {
	{ "memory on demand", test_on_demand },
	{ "all memory on demand", test_implicit },
	{ "invalidation while a packet waits for memory", test_waiting },
	{ "failed registration of a region", test_half_made },
	{ "atomic on a word that is not aligned in memory", test_unaligned_word },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
