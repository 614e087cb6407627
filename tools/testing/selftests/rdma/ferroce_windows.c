// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: the access of a peer through them, the rights to bind and invalidate them, and no
 * access through one that is no longer bound.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_traffic.h"
#include "ferroce_windows.h"

#define LEN 16384
/* The part that a window shows, with bytes of the region on both sides of it. */
#define AT 4196
#define ROOM 8000
#define PIECE 3000

#define REGION (FULL_ACCESS | IBV_ACCESS_MW_BIND)
#define READ_WRITE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* A flag that the device does not know. */
#define UNKNOWN_ACCESS 0x80000

static unsigned char *buf;

static void set_up(void)
{
	buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buf != MAP_FAILED);
}

/* The objects of a test: `a` is the peer, `b` owns the region and the window. */
struct scene {
	struct end a, b;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static void scene_open(struct scene *s, enum ibv_mw_type type)
{
	end_init(&s->a, &r1, IBV_QPT_RC, LEN);
	end_init(&s->b, &r2, IBV_QPT_RC, LEN);
	s->a.ops = IBV_QP_EX_WITH_FLUSH;
	s->b.access |= IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT;
	pair_create(&s->a, &s->b);
	memset(s->a.buf, 0x11, LEN);
	memset(buf, 0x22, LEN);
	s->mr = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	CHECK(s->mr);
	s->mw = ibv_alloc_mw(r2.pd, type);
	CHECK(s->mw);
}

static void scene_close(struct scene *s)
{
	if (s->mw)
		CHECK_EQ(ibv_dealloc_mw(s->mw), 0);
	CHECK_EQ(ibv_dereg_mr(s->mr), 0);
	pair_close(&s->a, &s->b);
}

static void bind_room(struct scene *s, int access)
{
	uint64_t addr = (uintptr_t)buf + AT;
	enum ibv_wc_status status;

	if (s->mw->type == IBV_MW_TYPE_1)
		status = bind_verb(&s->b, s->mw, s->mr, addr, ROOM, access);
	else
		status = bind_request(&s->b, s->mw, s->mr, addr, ROOM, access);
	CHECK_EQ(status, IBV_WC_SUCCESS);
}

static void test_objects(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(r2.ctx);
	struct ibv_device_attr attr;
	struct ibv_mw *mw;

	CHECK_EQ(ibv_query_device(r2.ctx, &attr), 0);
	CHECK(attr.max_mw > 0);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	CHECK(!(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		mw = ibv_alloc_mw(pd, type);
		CHECK(mw);
		CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
	}
	CHECK(!ibv_alloc_mw(pd, 0));
	CHECK(!ibv_alloc_mw(pd, 3));
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

/* The bounds and the rights of accesses by a peer. */
static void test_bounds(void)
{
	static const struct {
		enum ibv_wr_opcode op;
		int64_t off;
		uint32_t len;
		int access;
		bool ok;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, 0, ROOM, READ_WRITE, true },
		{ IBV_WR_RDMA_READ, 0, ROOM, READ_WRITE, true },
		{ IBV_WR_RDMA_WRITE, ROOM - PIECE, PIECE, IBV_ACCESS_REMOTE_WRITE, true },
		{ IBV_WR_RDMA_READ, ROOM - PIECE, PIECE, IBV_ACCESS_REMOTE_READ, true },
		{ IBV_WR_RDMA_WRITE, ROOM, 0, READ_WRITE, true },
		{ IBV_WR_RDMA_WRITE, -1, PIECE, READ_WRITE, false },
		{ IBV_WR_RDMA_WRITE, 1, ROOM, READ_WRITE, false },
		{ IBV_WR_RDMA_READ, -1, PIECE, READ_WRITE, false },
		{ IBV_WR_RDMA_READ, ROOM, 1, READ_WRITE, false },
		{ IBV_WR_RDMA_WRITE, 0, PIECE, IBV_ACCESS_REMOTE_READ, false },
		{ IBV_WR_RDMA_READ, 0, PIECE, IBV_ACCESS_REMOTE_WRITE, false },
	};

	for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
		int64_t off = cases[i / 2].off;
		uint32_t len = cases[i / 2].len;
		bool ok = cases[i / 2].ok;
		enum ibv_wr_opcode op = cases[i / 2].op;
		enum ibv_mw_type type = i % 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;
		unsigned char byte = ok && op == IBV_WR_RDMA_WRITE ? 0x11 : 0x22;
		struct scene s;

		printf("# opcode %d of %u bytes at %lld, type %d\n", op, len, (long long)off, type);
		scene_open(&s, type);
		bind_room(&s, cases[i / 2].access);
		CHECK_EQ(access_by(&s.a, op, s.mw->rkey, (uintptr_t)buf + AT + off, len),
			 ok ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		if (ok) {
			CHECK(all_bytes(buf, AT + off, 0x22));
			CHECK(all_bytes(buf + AT + off, len, byte));
			CHECK(all_bytes(buf + AT + off + len, LEN - AT - off - len,
					0x22));
			if (op == IBV_WR_RDMA_READ)
				CHECK(all_bytes(s.a.buf, len, 0x22));
		} else {
			CHECK(all_bytes(buf, LEN, 0x22));
			CHECK(all_bytes(s.a.buf, LEN, 0x11));
		}
		scene_close(&s);
	}
}

/* A window of type 1 is for the whole protection domain, and each binding ends the one before. */
static void test_type_1(void)
{
	struct end a, b;
	struct scene s;
	uint32_t old;

	scene_open(&s, IBV_MW_TYPE_1);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, 1),
		 IBV_WC_REM_ACCESS_ERR);
	pair_close(&s.a, &s.b);
	pair_open(&s.a, &s.b, IBV_QPT_RC, LEN);
	memset(s.a.buf, 0x11, LEN);
	bind_room(&s, READ_WRITE);
	CHECK_EQ(ibv_dereg_mr(s.mr), EBUSY);
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	memset(a.buf, 0x33, LEN);
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_SUCCESS);
	CHECK(all_bytes(buf + AT, PIECE, 0x33));

	old = s.mw->rkey;
	CHECK_EQ(bind_verb(&s.b, s.mw, s.mr, (uintptr_t)buf, 100, READ_WRITE), IBV_WC_SUCCESS);
	CHECK(old != s.mw->rkey);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf, 100),
		 IBV_WC_SUCCESS);
	CHECK(all_bytes(buf, 100, 0x11));
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, old, (uintptr_t)buf, 100), IBV_WC_REM_ACCESS_ERR);
	pair_close(&a, &b);

	/* Only a binding of length zero invalidates it. */
	CHECK_EQ(invalidate(&s.b, IBV_WR_LOCAL_INV, s.mw->rkey), IBV_WC_MW_BIND_ERR);
	pair_close(&s.a, &s.b);
	pair_open(&s.a, &s.b, IBV_QPT_RC, LEN);
	CHECK_EQ(bind_verb(&s.b, s.mw, s.mr, 0, 0, 0), IBV_WC_SUCCESS);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf, 100),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(ibv_dereg_mr(s.mr), 0);
	s.mr = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	scene_close(&s);
}

/* A window of type 2 is for the queue pair that bound it, until it is invalidated. */
static void test_type_2(void)
{
	struct end a, b;
	struct scene s;

	scene_open(&s, IBV_MW_TYPE_2);
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	bind_room(&s, READ_WRITE);
	CHECK_EQ(ibv_dereg_mr(s.mr), EBUSY);
	CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_REM_ACCESS_ERR);
	pair_close(&a, &b);
	/* Another queue pair does not invalidate it, nor does the peer of one. */
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	CHECK_EQ(invalidate(&b, IBV_WR_LOCAL_INV, s.mw->rkey), IBV_WC_MW_BIND_ERR);
	pair_close(&a, &b);
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	/* The request gets no response. */
	a.timeout = 10;
	a.retry_cnt = 2;
	pair_create(&a, &b);
	post_recv(&b, 3, 0, 64);
	CHECK_EQ(invalidate(&a, IBV_WR_SEND_WITH_INV, s.mw->rkey), IBV_WC_RETRY_EXC_ERR);
	expect(&b, 3, IBV_WC_REM_INV_REQ_ERR);
	pair_close(&a, &b);
	CHECK(all_bytes(buf, LEN, 0x22));
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_SUCCESS);
	CHECK(all_bytes(buf + AT, PIECE, 0x11));

	/* Its own queue pair does. Then it can be bound again, and the region deregistered. */
	CHECK_EQ(invalidate(&s.b, IBV_WR_LOCAL_INV, s.mw->rkey), IBV_WC_SUCCESS);
	bind_room(&s, READ_WRITE);
	post_recv(&s.b, 3, 0, 64);
	CHECK_EQ(invalidate(&s.a, IBV_WR_SEND_WITH_INV, s.mw->rkey), IBV_WC_SUCCESS);
	CHECK_EQ(expect(&s.b, 3, IBV_WC_SUCCESS).invalidated_rkey, s.mw->rkey);
	CHECK_EQ(ibv_dereg_mr(s.mr), 0);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_REM_ACCESS_ERR);
	s.mr = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	scene_close(&s);
}

/* The first byte of a window of type 2 may have the address zero. */
static void test_zero_based(void)
{
	struct scene s;

	scene_open(&s, IBV_MW_TYPE_2);
	bind_room(&s, READ_WRITE | IBV_ACCESS_ZERO_BASED);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, ROOM - PIECE, PIECE),
		 IBV_WC_SUCCESS);
	CHECK(all_bytes(buf, AT + ROOM - PIECE, 0x22));
	CHECK(all_bytes(buf + AT + ROOM - PIECE, PIECE, 0x11));
	CHECK(all_bytes(buf + AT + ROOM, LEN - AT - ROOM, 0x22));
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_REM_ACCESS_ERR);
	scene_close(&s);
}

static enum ibv_wc_status flush_by(struct end *e, uint32_t rkey, uint64_t va, size_t len,
				   uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *qp = ex_begin(e, 1, IBV_SEND_SIGNALED);

	ibv_wr_flush(qp, rkey, va, len, type, level);
	ex_post(e);
	return one_completion(e);
}

/* FLUSH needs the right of the window, and none of its region. */
static void test_flush(void)
{
	static const struct {
		int64_t off;
		size_t len;
		uint8_t type, level;
		int access;
		bool ok;
	} cases[] = {
		{ 0, ROOM, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_ACCESS_FLUSH_GLOBAL, true },
		{ ROOM, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_ACCESS_FLUSH_GLOBAL, true },
		{ -1, LEN, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_ACCESS_FLUSH_GLOBAL, true },
		{ -1, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_ACCESS_FLUSH_GLOBAL, false },
		{ ROOM - 7, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, IBV_ACCESS_FLUSH_GLOBAL, false },
		{ 0, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE, READ_WRITE, false },
		{ 0, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, READ_WRITE, false },
		{ 0, 8, IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR, IBV_ACCESS_FLUSH_GLOBAL, false },
	};

	for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
		enum ibv_mw_type type = i % 2 ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1;
		uint64_t va = (uintptr_t)buf + AT + cases[i / 2].off;
		bool ok = cases[i / 2].ok;
		enum ibv_wc_status wanted = ok ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
		size_t len = cases[i / 2].len;
		struct scene s;

		printf("# FLUSH %zu, type %d\n", i / 2, type);
		scene_open(&s, type);
		bind_room(&s, cases[i / 2].access);
		CHECK_EQ(flush_by(&s.a, s.mw->rkey, va, len, cases[i / 2].type, cases[i / 2].level),
			 wanted);
		scene_close(&s);
	}
}

/* The flags of a region that give a peer no right are accepted, and give none. */
static void test_no_effect(void)
{
	static const int flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
				 IBV_ACCESS_ON_DEMAND | IBV_ACCESS_RELAXED_ORDERING;

	for (int type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct scene s;

		scene_open(&s, type);
		bind_room(&s, IBV_ACCESS_REMOTE_READ | flags);
		CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_READ, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
			 IBV_WC_SUCCESS);
		CHECK(all_bytes(s.a.buf, PIECE, 0x22));
		CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
			 IBV_WC_REM_ACCESS_ERR);
		CHECK(all_bytes(buf, LEN, 0x22));
		scene_close(&s);
	}
}

enum refusal {
	NOT_ALLOWED,
	READ_ONLY,
	OTHER_REGION_PD,
	OTHER_WINDOW_PD,
	STALE_KEY,
	BEFORE,
	BEYOND,
	WRAPS,
	NOTHING,
	BOUND,
	ZERO_REGION,
	TYPE_1_ZERO,
	PERSISTENT,
	HUGE_PAGES,
	UNKNOWN,
	REFUSALS
};

static const char *const refusal_names[] = {
	"a region that does not allow it",
	"writing to a region that is not written to",
	"a region of another domain",
	"a window of another domain",
	"a key that the window does not have",
	"a byte before",
	"a byte beyond",
	"wraps around",
	"nothing, type 2",
	"bound already, type 2",
	"a region that begins at zero",
	"type 1 that begins at zero",
	"FLUSH to persistent memory",
	"huge pages",
	"an unknown flag",
};

/* A binding that is refused ends the queue pair and leaves the window as it was. */
static void test_refusals(void)
{
	for (int i = 0; i < REFUSALS; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(r2.ctx);
		int access = REGION, rights = READ_WRITE;
		uint64_t addr = (uintptr_t)buf + AT, len = ROOM;
		struct ibv_mr *mr;
		struct scene s;

		printf("# %s\n", refusal_names[i]);
		scene_open(&s, i == TYPE_1_ZERO ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		if (i == NOT_ALLOWED)
			access = FULL_ACCESS;
		else if (i == READ_ONLY)
			access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
		else if (i == ZERO_REGION)
			access |= IBV_ACCESS_ZERO_BASED;
		mr = ibv_reg_mr(i == OTHER_REGION_PD ? pd : r2.pd, buf + AT, ROOM, access);
		CHECK(mr);
		if (i == OTHER_WINDOW_PD) {
			CHECK_EQ(ibv_dealloc_mw(s.mw), 0);
			s.mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
			CHECK(s.mw);
		}
		if (i == STALE_KEY)
			s.mw->rkey ^= 1;
		if (i == BOUND)
			bind_room(&s, READ_WRITE);
		if (i == BEFORE)
			addr -= 1;
		if (i == BEYOND)
			len += 1;
		if (i == WRAPS)
			len = -addr;
		if (i == NOTHING)
			len = 0;
		if (i == ZERO_REGION)
			addr = 0;
		if (i == TYPE_1_ZERO)
			rights |= IBV_ACCESS_ZERO_BASED;
		if (i == PERSISTENT)
			rights |= IBV_ACCESS_FLUSH_PERSISTENT;
		if (i == HUGE_PAGES)
			rights |= IBV_ACCESS_HUGETLB;
		if (i == UNKNOWN)
			rights |= UNKNOWN_ACCESS;
		CHECK_EQ(bind_request(&s.b, s.mw, mr, addr, len, rights), IBV_WC_MW_BIND_ERR);
		end_await(&s.b, IBV_QPS_ERR);
		/* The window does not hold the region. */
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		scene_close(&s);
		CHECK_EQ(ibv_dealloc_pd(pd), 0);
	}
}

/* Bindings that end with the window or its queue pair. */
static void test_ends(void)
{
	struct scene s;

	/* The window is deallocated: its key is no longer valid. */
	scene_open(&s, IBV_MW_TYPE_2);
	bind_room(&s, READ_WRITE);
	{
		uint32_t rkey = s.mw->rkey;

		CHECK_EQ(ibv_dealloc_mw(s.mw), 0);
		s.mw = NULL;
		CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, rkey, (uintptr_t)buf + AT, PIECE),
			 IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(all_bytes(buf, LEN, 0x22));
	scene_close(&s);

	/* The queue pair is destroyed: the region is free, and another can bind the window. */
	scene_open(&s, IBV_MW_TYPE_2);
	bind_room(&s, READ_WRITE);
	pair_close(&s.a, &s.b);
	CHECK_EQ(ibv_dereg_mr(s.mr), 0);
	s.mr = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	pair_open(&s.a, &s.b, IBV_QPT_RC, LEN);
	memset(s.a.buf, 0x11, LEN);
	bind_room(&s, READ_WRITE);
	CHECK_EQ(access_by(&s.a, IBV_WR_RDMA_WRITE, s.mw->rkey, (uintptr_t)buf + AT, PIECE),
		 IBV_WC_SUCCESS);
	scene_close(&s);
}

/* Destroying a queue pair unbinds its own windows, also those that another had bound at first. */
static void test_two_queue_pairs(void)
{
	uint64_t addr = (uintptr_t)buf + AT;
	struct ibv_mw *mw[64];
	struct ibv_mr *other;
	struct end a, b;
	struct scene s;

	scene_open(&s, IBV_MW_TYPE_2);
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	other = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	CHECK(other);
	for (size_t i = 0; i < ARRAY_LEN(mw); i++) {
		mw[i] = ibv_alloc_mw(r2.pd, IBV_MW_TYPE_2);
		CHECK(mw[i]);
		CHECK_EQ(bind_request(i % 2 ? &b : &s.b, mw[i], i % 2 ? other : s.mr, addr, ROOM,
				      READ_WRITE), IBV_WC_SUCCESS);
		if (i % 8 < 2)
			CHECK_EQ(invalidate(i % 2 ? &b : &s.b, IBV_WR_LOCAL_INV, mw[i]->rkey),
				 IBV_WC_SUCCESS);
		if (i % 8 == 0)
			CHECK_EQ(bind_request(&b, mw[i], other, addr, ROOM, READ_WRITE),
				 IBV_WC_SUCCESS);
		if (i % 8 == 2 || i % 8 == 3) {
			CHECK_EQ(ibv_dealloc_mw(mw[i]), 0);
			mw[i] = NULL;
		}
	}
	pair_close(&s.a, &s.b);
	CHECK_EQ(ibv_dereg_mr(s.mr), 0);
	CHECK_EQ(ibv_dereg_mr(other), EBUSY);
	for (size_t i = 0; i < ARRAY_LEN(mw); i++)
		if (i % 8 == 0 || i % 8 == 5 || i % 8 == 7)
			CHECK_EQ(access_by(&a, IBV_WR_RDMA_WRITE, mw[i]->rkey, addr, PIECE),
				 IBV_WC_SUCCESS);
	/* The windows of the first one can be bound again. */
	CHECK_EQ(bind_request(&b, mw[4], other, addr, ROOM, READ_WRITE), IBV_WC_SUCCESS);
	pair_close(&a, &b);
	CHECK_EQ(ibv_dereg_mr(other), 0);
	for (size_t i = 0; i < ARRAY_LEN(mw); i++)
		if (mw[i])
			CHECK_EQ(ibv_dealloc_mw(mw[i]), 0);
	CHECK_EQ(ibv_dealloc_mw(s.mw), 0);
}

/* Returns the number of regions of the second device. */
static int count_regions(void)
{
	FILE *f = popen("rdma resource show r2 | sed -n 's/.* mr \\([0-9]*\\).*/\\1/p'", "r");
	int n = -1;

	CHECK(f);
	CHECK_EQ(fscanf(f, "%d", &n), 1);
	CHECK_EQ(pclose(f), 0);
	return n;
}

/*
 * A process ends and leaves a bound window behind. Its objects are destroyed last one first, so it
 * is the region's turn before that of the window that is bound to it.
 */
static void test_process_ends(void)
{
	int before = count_regions(), status;
	pid_t pid = child_fork();

	if (!pid) {
		struct ibv_mw *mw;
		struct dev mine = r2;
		struct end a, b;
		struct ibv_mr *mr;

		mine.ctx = ibv_open_device(r2.ctx->device);
		mine.pd = mine.ctx ? ibv_alloc_pd(mine.ctx) : NULL;
		mw = mine.pd ? ibv_alloc_mw(mine.pd, IBV_MW_TYPE_1) : NULL;
		if (!mw)
			_exit(1);
		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &mine, IBV_QPT_RC, LEN);
		end_create(&a);
		end_create(&b);
		end_to(&b, &a, IBV_QPS_RTS);
		mr = ibv_reg_mr(mine.pd, buf, LEN, REGION);
		if (!mr)
			_exit(2);
		if (bind_verb(&b, mw, mr, (uintptr_t)buf, LEN, READ_WRITE))
			_exit(3);
		_exit(ibv_dereg_mr(mr) == EBUSY ? 0 : 4);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	wait_begin();
	while (count_regions() != before)
		wait_more_program("the regions to go");
}

/* After the completion of an invalidation, no peer writes through the key. */
static void test_invalidate_under_traffic(void)
{
	static struct traffic t;
	unsigned long before;
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	pthread_t thread;

	t = (struct traffic) { .va = (uintptr_t)buf + AT, .places = 1 };
	pair_open(&t.a, &t.b, IBV_QPT_UC, LEN);
	memset(t.a.buf, 0x11, LEN);
	mr = ibv_reg_mr(r2.pd, buf, LEN, REGION);
	mw = ibv_alloc_mw(r2.pd, IBV_MW_TYPE_2);
	CHECK(mr && mw);
	CHECK_EQ(pthread_create(&thread, NULL, traffic_run, &t), 0);
	for (int i = 0; i < 100; i++) {
		memset(buf, 0x22, LEN);
		CHECK_EQ(bind_request(&t.b, mw, mr, (uintptr_t)buf + AT, ROOM, READ_WRITE),
			 IBV_WC_SUCCESS);
		__atomic_store_n(&t.rkey, mw->rkey, __ATOMIC_RELAXED);
		wait_begin();
		while (!traffic_arrived(buf + AT))
			wait_more("a WRITE");
		CHECK_EQ(invalidate(&t.b, IBV_WR_LOCAL_INV, mw->rkey), IBV_WC_SUCCESS);
		memset(buf, 0x33, LEN);
		before = __atomic_load_n(&t.done, __ATOMIC_ACQUIRE);
		while (__atomic_load_n(&t.done, __ATOMIC_ACQUIRE) < before + 30)
			wait_more("WRITEs");
		CHECK(all_bytes(buf, LEN, 0x33));
	}
	__atomic_store_n(&t.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&t.a, &t.b);
}

static const struct test tests[] = {
	{ "objects", test_objects },
	{ "bounds and rights", test_bounds },
	{ "type 1", test_type_1 },
	{ "type 2", test_type_2 },
	{ "zero-based windows", test_zero_based },
	{ "FLUSH", test_flush },
	{ "flags without effect", test_no_effect },
	{ "refused bindings", test_refusals },
	{ "end of windows and queue pairs", test_ends },
	{ "windows of two queue pairs", test_two_queue_pairs },
	{ "process exit", test_process_ends },
	{ "invalidation while a peer writes", test_invalidate_under_traffic },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
