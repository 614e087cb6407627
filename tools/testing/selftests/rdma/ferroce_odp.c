// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is fetched when it is used (on-demand paging): data arrives in it while the process
 * drops it, replaces it and forks. ferroce_odp_bad.c has the errors.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_fault.h"

#define LEN (64 * PAGE)

/* Changes that a process may make to its memory between two messages. */
enum change { KEEP, FORGET, REPLACE, PROTECT, LAZY_FREE, CHANGES };

static void change(struct end *e, enum change change)
{
	switch (change) {
	case FORGET:
		CHECK_EQ(madvise(e->buf, e->len, MADV_DONTNEED), 0);
		break;
	case REPLACE:
		CHECK(mmap(e->buf, e->len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == e->buf);
		break;
	case PROTECT:
		CHECK_EQ(mprotect(e->buf, e->len, PROT_NONE), 0);
		CHECK_EQ(mprotect(e->buf, e->len, PROT_READ | PROT_WRITE), 0);
		break;
	case LAZY_FREE:
		CHECK_EQ(madvise(e->buf, e->len, MADV_FREE), 0);
		break;
	default:
		break;
	}
}

static void one_message(struct end *a, struct end *b, enum ibv_wr_opcode op, uint32_t len,
			enum change how)
{
	bool read = op == IBV_WR_RDMA_READ, ud = a->type == IBV_QPT_UD;
	struct end *from = read ? b : a, *to = read ? a : b;
	size_t off = PAGE - 100, at = op == IBV_WR_SEND ? 2 * PAGE - 30 : off;
	static uint32_t seed;

	seed++;
	change(to, how);
	change(from, how);
	fill(from->buf + off, len, seed);
	if (op == IBV_WR_SEND)
		post_recv(b, seed, at - (ud ? GRH_LEN : 0), len + (ud ? GRH_LEN : 0));
	post_send(a, b, op, seed, off, len, IBV_SEND_SIGNALED);
	expect(a, seed, IBV_WC_SUCCESS);
	if (op == IBV_WR_SEND)
		expect(b, seed, IBV_WC_SUCCESS);
	CHECK(filled(to->buf + at, len, seed));
}

static void traffic(enum ibv_qp_type type, const enum ibv_wr_opcode *ops, size_t n_ops)
{
	static const uint32_t lens[] = { 1, 64, 1000, 5000, 70000 };
	struct end a, b;

	pair_open_odp(&a, &b, type, LEN);
	for (size_t op = 0; op < n_ops; op++) {
		for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
			if (type == IBV_QPT_UD && lens[i] > 1024)
				continue;
			for (int how = 0; how < CHANGES; how++)
				one_message(&a, &b, ops[op], lens[i], how);
		}
	}
	pair_close(&a, &b);
}

static void test_rc(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
	};

	traffic(IBV_QPT_RC, ops, ARRAY_LEN(ops));
}

static void test_ud(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND };

	traffic(IBV_QPT_UD, ops, ARRAY_LEN(ops));
}

/* Atomic operations, ATOMIC WRITE and FLUSH. */
static void test_words(void)
{
	int rights = FULL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL;
	struct ibv_send_wr wr;
	struct ibv_qp_ex *qp;
	struct ibv_sge sge;
	uint64_t *at, *from;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.ops = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE;
	a.region = ODP_ACCESS;
	b.access = rights;
	b.region = rights | IBV_ACCESS_ON_DEMAND;
	pair_create(&a, &b);
	from = (uint64_t *)(a.buf + PAGE - 8);
	at = (uint64_t *)(b.buf + 3 * PAGE + 16);
	for (int how = 0; how < CHANGES; how++) {
		change(&a, how);
		change(&b, how);
		*at = 41;
		make_send(&wr, &sge, &a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, PAGE - 8, 8,
			  IBV_SEND_SIGNALED);
		wr.wr.atomic.remote_addr = (uintptr_t)at;
		wr.wr.atomic.rkey = b.mr->rkey;
		wr.wr.atomic.compare_add = 1;
		post_wr(&a, &wr);
		expect(&a, 1, IBV_WC_SUCCESS);
		CHECK_EQ(*from, 41);
		CHECK_EQ(*at, 42);

		change(&a, how);
		change(&b, how);
		*at = 42;
		wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		wr.wr.atomic.compare_add = 42;
		wr.wr.atomic.swap = 7;
		post_wr(&a, &wr);
		expect(&a, 1, IBV_WC_SUCCESS);
		CHECK_EQ(*from, 42);
		CHECK_EQ(*at, 7);

		change(&b, how);
		qp = ex_begin(&a, 2, 0);
		ibv_wr_atomic_write(qp, b.mr->rkey, (uintptr_t)at, "12345678");
		ex_post(&a);
		qp = ex_begin(&a, 3, IBV_SEND_SIGNALED);
		ibv_wr_flush(qp, b.mr->rkey, (uintptr_t)at, 8, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		ex_post(&a);
		expect(&a, 3, IBV_WC_SUCCESS);
		CHECK(!memcmp(at, "12345678", 8));
	}
	pair_close(&a, &b);
}

/*
 * A datagram whose buffer has to be fetched, and those behind it: each ends up in a buffer of its
 * own, in order.
 */
static void test_ud_burst(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	on_demand(&b);
	for (int round = 0; round < 20; round++) {
		change(&b, FORGET);
		for (uint64_t i = 0; i < 32; i++)
			post_recv(&b, i, i * PAGE, 200 + GRH_LEN);
		fill(a.buf, 32 * 200, round);
		for (uint64_t i = 0; i < 32; i++)
			post_send(&a, &b, IBV_WR_SEND, i, i * 200, 200, IBV_SEND_SIGNALED);
		for (uint64_t i = 0; i < 32; i++) {
			expect(&a, i, IBV_WC_SUCCESS);
			expect(&b, i, IBV_WC_SUCCESS);
			CHECK(!memcmp(b.buf + i * PAGE + GRH_LEN, a.buf + i * 200, 200));
		}
	}
	pair_close(&a, &b);
}

/* Pinned memory and memory on demand in one list. */
static void test_mixed_list(void)
{
	static unsigned char pinned[2 * PAGE];
	struct ibv_sge from[3], to[3];
	struct ibv_send_wr wr = { .sg_list = from, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr recv = { .sg_list = to, .num_sge = 3 }, *bad;
	struct ibv_mr *amr, *bmr;
	struct end a, b;

	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	amr = ibv_reg_mr(r1.pd, pinned, PAGE, FULL_ACCESS);
	bmr = ibv_reg_mr(r2.pd, pinned + PAGE, PAGE, FULL_ACCESS);
	CHECK(amr && bmr);
	from[0] = (struct ibv_sge){ (uintptr_t)a.buf + 10, 1500, a.mr->lkey };
	from[1] = (struct ibv_sge){ (uintptr_t)pinned, 1500, amr->lkey };
	from[2] = (struct ibv_sge){ (uintptr_t)a.buf + 10 * PAGE - 5, 1500, a.mr->lkey };
	to[0] = (struct ibv_sge){ (uintptr_t)pinned + PAGE, 700, bmr->lkey };
	to[1] = (struct ibv_sge){ (uintptr_t)b.buf + PAGE - 700, 2000, b.mr->lkey };
	to[2] = (struct ibv_sge){ (uintptr_t)pinned + PAGE + 700, 1800, bmr->lkey };
	for (int round = 0; round < 10; round++) {
		change(&b, FORGET);
		change(&a, REPLACE);
		memset(pinned, 0, sizeof(pinned));
		fill(a.buf + 10, 1500, round);
		fill(pinned, 1500, round + 100);
		fill(a.buf + 10 * PAGE - 5, 1500, round + 200);
		wr.opcode = IBV_WR_SEND;
		CHECK_EQ(ibv_post_recv(b.qp, &recv, &bad), 0);
		post_wr(&a, &wr);
		expect(&a, 0, IBV_WC_SUCCESS);
		expect(&b, 0, IBV_WC_SUCCESS);
		CHECK(filled(pinned + PAGE, 700, round));
		CHECK(!memcmp(b.buf + PAGE - 700, a.buf + 710, 800));
		CHECK(filled(b.buf + PAGE - 700 + 800, 1200, round + 100));
		CHECK(!memcmp(pinned + PAGE + 700, pinned + 1200, 300));
		CHECK(filled(pinned + PAGE + 1000, 1500, round + 200));
	}
	CHECK_EQ(ibv_dereg_mr(amr), 0);
	CHECK_EQ(ibv_dereg_mr(bmr), 0);
	pair_close(&a, &b);
}

/* Buffers of a shared receive queue. */
static void test_srq(enum ibv_qp_type type)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	uint32_t grh = type == IBV_QPT_UD ? GRH_LEN : 0;
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad;
	struct ibv_sge sge = { .length = 1000 + grh };
	unsigned char *at;
	struct end a, b;

	end_init(&a, &r1, type, LEN);
	end_init(&b, &r2, type, LEN);
	b.srq = ibv_create_srq(r2.pd, &init);
	CHECK(b.srq);
	pair_create(&a, &b);
	on_demand(&b);
	for (uint64_t round = 0; round < 10; round++) {
		change(&b, round & 1 ? FORGET : REPLACE);
		for (uint64_t i = 0; i < 8; i++) {
			sge.addr = (uintptr_t)b.buf + (2 * i + 1) * PAGE - 500;
			sge.lkey = b.mr->lkey;
			recv.wr_id = i;
			recv.sg_list = &sge;
			CHECK_EQ(ibv_post_srq_recv(b.srq, &recv, &bad), 0);
		}
		fill(a.buf, 8000, round);
		for (uint64_t i = 0; i < 8; i++)
			post_send(&a, &b, IBV_WR_SEND, i, i * 1000, 1000, IBV_SEND_SIGNALED);
		for (uint64_t i = 0; i < 8; i++) {
			expect(&a, i, IBV_WC_SUCCESS);
			expect(&b, i, IBV_WC_SUCCESS);
			at = b.buf + (2 * i + 1) * PAGE - 500 + grh;
			CHECK(!memcmp(at, a.buf + i * 1000, 1000));
		}
	}
	pair_close(&a, &b);
	CHECK_EQ(ibv_destroy_srq(b.srq), 0);
}

static void test_srq_rc(void)
{
	test_srq(IBV_QPT_RC);
}

static void test_srq_ud(void)
{
	test_srq(IBV_QPT_UD);
}

/*
 * After a fork, the parent alone sees the data that a peer writes; the child keeps the data from
 * before.
 */
static void test_fork(void)
{
	int to_child[2], status;
	struct end a, b;
	char byte = 0;
	pid_t child;

	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	fill(a.buf, LEN, 1);
	for (int round = 0; round < 5; round++) {
		memset(b.buf, 0x33, LEN);
		/* The device knows the pages, and they are writable. */
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN / 2, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
		memset(b.buf, 0x44, LEN);
		CHECK_EQ(pipe(to_child), 0);
		child = child_fork();
		if (!child) {
			if (read(to_child[0], &byte, 1) != 1)
				_exit(2);
			_exit(!all_bytes(b.buf, LEN, 0x44));
		}
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, 2, IBV_WC_SUCCESS);
		CHECK(filled(b.buf, LEN, 1));
		CHECK_EQ(write(to_child[1], &byte, 1), 1);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
		close(to_child[0]);
		close(to_child[1]);
	}
	pair_close(&a, &b);
}

/* Data that a peer writes to a shared mapping of a file is in the file. */
static void test_shared_file(void)
{
	int fd = syscall(SYS_memfd_create, "odp", 0);
	unsigned char *seen = malloc(LEN);
	struct end a, b;

	CHECK(fd >= 0 && seen);
	CHECK_EQ(ftruncate(fd, LEN), 0);
	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	CHECK(mmap(b.buf, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == b.buf);
	for (int round = 0; round < 5; round++) {
		fill(a.buf, LEN, round);
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
		/* Not mapped any more: the file has only the data that was written back to it. */
		change(&b, FORGET);
		CHECK_EQ(pread(fd, seen, LEN, 0), LEN);
		CHECK(filled(seen, LEN, round));
	}
	pair_close(&a, &b);
	close(fd);
	free(seen);
}

/* A region of all of the address space: memory that was mapped before it, and later. */
static void test_implicit(void)
{
	unsigned char on_stack[3000];
	struct ibv_mr *mr;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	CHECK_EQ(ibv_dereg_mr(a.mr), 0);
	CHECK_EQ(ibv_dereg_mr(b.mr), 0);
	a.mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, ODP_ACCESS);
	b.mr = ibv_reg_mr(r2.pd, NULL, SIZE_MAX, ODP_ACCESS);
	CHECK(a.mr && b.mr);
	for (int how = 0; how < CHANGES; how++) {
		one_message(&a, &b, IBV_WR_SEND, 5000, how);
		one_message(&a, &b, IBV_WR_RDMA_WRITE, 5000, how);
		one_message(&a, &b, IBV_WR_RDMA_READ, 70000, how);
	}
	for (int i = 0; i < 20; i++) {
		unsigned char *late = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		CHECK(late != MAP_FAILED);
		fill(on_stack, sizeof(on_stack), i);
		make_send(&wr, &sge, &a, &b, IBV_WR_RDMA_WRITE, i, 0, sizeof(on_stack),
			  IBV_SEND_SIGNALED);
		sge.addr = (uintptr_t)on_stack;
		wr.wr.rdma.remote_addr = (uintptr_t)late + 2000;
		post_wr(&a, &wr);
		expect(&a, i, IBV_WC_SUCCESS);
		CHECK(filled(late + 2000, sizeof(on_stack), i));
		CHECK_EQ(munmap(late, 4 * PAGE), 0);
	}
	/* A second such region of the same process. */
	mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, ODP_ACCESS);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&a, &b);
}

/* Pages that a message does not need are not fetched with the pages of its first packets. */
static void test_beyond_message(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
	};
	const uint32_t len = PAGE + 100;
	struct end a, b;

	for (size_t op = 0; op < ARRAY_LEN(ops); op++) {
		printf("# opcode %d\n", ops[op]);
		pair_open(&a, &b, IBV_QPT_RC, LEN);
		on_demand(&b);
		if (ops[op] == IBV_WR_SEND)
			post_recv(&b, 1, 0, len);
		post_send(&a, &b, ops[op], 1, 0, len, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
		CHECK_EQ(resident_pages(&b), 2);
		pair_close(&a, &b);
	}
}

static struct end *victim;
static atomic_bool stop;

static void *disturb(void *unused)
{
	uint64_t state = 7;

	(void)unused;
	while (!stop) {
		size_t page = rnd(&state) % (LEN / PAGE);
		size_t pages = 1 + rnd(&state) % (LEN / PAGE - page);
		unsigned char *at = victim->buf + page * PAGE;

		switch (rnd(&state) % 3) {
		case 0:
			madvise(at, pages * PAGE, MADV_DONTNEED);
			break;
		case 1:
			mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		default:
			memset(at, 1, 1);
			break;
		}
	}
	return NULL;
}

/* All requests succeed while pages come and go on each side; the data does not matter. */
static void test_storm(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
	};
	struct end a, b;
	pthread_t thread;

	for (int side = 0; side < 2; side++) {
		pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
		victim = side ? &a : &b;
		stop = false;
		CHECK_EQ(pthread_create(&thread, NULL, disturb, NULL), 0);
		for (uint64_t i = 0; i < 150; i++) {
			enum ibv_wr_opcode op = ops[i % 3];

			if (op == IBV_WR_SEND)
				post_recv(&b, i, 0, 30000);
			post_send(&a, &b, op, i, 5000, 30000, IBV_SEND_SIGNALED);
			expect(&a, i, IBV_WC_SUCCESS);
			if (op == IBV_WR_SEND)
				expect(&b, i, IBV_WC_SUCCESS);
		}
		stop = true;
		pthread_join(thread, NULL);
		pair_close(&a, &b);
	}
}

/* The device reports the capabilities that this file and ferroce_odp_bad.c test. */
static void test_caps(void)
{
	uint32_t ud = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	/* The last two, FLUSH and ATOMIC WRITE, have no name yet. */
	uint32_t rc = ud | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
		      IBV_ODP_SUPPORT_ATOMIC | 1 << 6 | 1 << 7;
	struct ibv_device_attr_ex attr;

	CHECK_EQ(ibv_query_device_ex(r1.ctx, NULL, &attr), 0);
	CHECK_EQ(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	CHECK_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, rc);
	CHECK_EQ(attr.odp_caps.per_transport_caps.uc_odp_caps, 0);
	CHECK_EQ(attr.odp_caps.per_transport_caps.ud_odp_caps, ud);
}

static const struct test tests[] = {
	{ "device capabilities", test_caps },
	{ "RC", test_rc },
	{ "UD", test_ud },
	{ "atomic operations and FLUSH", test_words },
	{ "burst of datagrams", test_ud_burst },
	{ "shared receive queue, RC", test_srq_rc },
	{ "shared receive queue, UD", test_srq_ud },
	{ "pinned and on demand in one SGE list", test_mixed_list },
	{ "memory beyond a message", test_beyond_message },
	{ "fork", test_fork },
	{ "shared file", test_shared_file },
	{ "implicit", test_implicit },
	{ "memory comes and goes", test_storm },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
