// SPDX-License-Identifier: GPL-2.0
/*
 * Prefetch of memory on demand. The provider does not support it: this calls the core directly.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include "ferroce_fault.h"
#include "ferroce_traffic.h"

/* More pages than are fetched before the key is looked up again. */
#define PAGES 600
#define LEN (PAGES * PAGE)

#define READ IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
#define WRITE IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH IB_UVERBS_ADVISE_MR_FLAG_FLUSH

static unsigned char *buf;

static void set_up(void)
{
	buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buf != MAP_FAILED);
	/* Each page is fetched by itself. */
	CHECK_EQ(madvise(buf, LEN, MADV_NOHUGEPAGE), 0);
}

static int advise_one(int advice, uint32_t flags, struct ibv_mr *mr, size_t off, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)buf + off, len, mr->lkey };

	return advise_mr(r1.pd, advice, flags, &sge, 1);
}

/* Returns the number of pages of the buffer in memory. */
static int resident(void)
{
	unsigned char pages[PAGES];
	int n = 0;

	CHECK_EQ(mincore(buf, LEN, pages), 0);
	for (int i = 0; i < PAGES; i++)
		n += pages[i] & 1;
	return n;
}

static void forget(void)
{
	/* An earlier prefetch may still be running. */
	wait_begin();
	do {
		CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
		wait_more_verb("the end of an earlier prefetch");
	} while (resident());
}

static void test_flush(void)
{
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, buf, LEN, ODP_ACCESS);
	struct ibv_sge sges[2];

	CHECK(mr);
	forget();
	CHECK_EQ(advise_one(WRITE, FLUSH, mr, 0, LEN), 0);
	CHECK_EQ(resident(), PAGES);
	CHECK(all_bytes(buf, LEN, 0));
	forget();
	CHECK_EQ(advise_one(READ, FLUSH, mr, 3 * PAGE + 7, PAGE), 0);
	CHECK_EQ(resident(), 2);
	CHECK_EQ(advise_one(NO_FAULT, FLUSH, mr, 0, LEN), 0);
	CHECK_EQ(resident(), 2);
	forget();
	sges[0] = (struct ibv_sge){ (uintptr_t)buf, 1, mr->lkey };
	sges[1] = (struct ibv_sge){ (uintptr_t)buf + LEN - 1, 1, mr->lkey };
	CHECK_EQ(advise_mr(r1.pd, WRITE, FLUSH, sges, 2), 0);
	CHECK_EQ(resident(), 2);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void test_later(void)
{
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, buf, LEN, ODP_ACCESS);
	unsigned char *old;

	CHECK(mr);
	forget();
	CHECK_EQ(advise_one(WRITE, 0, mr, 0, LEN), 0);
	wait_begin();
	while (resident() != PAGES)
		wait_more_verb("memory");
	/* The region is deregistered during a prefetch, and the process gets its memory back. */
	for (int i = 0; i < 50; i++) {
		CHECK_EQ(madvise(buf, LEN, MADV_DONTNEED), 0);
		CHECK_EQ(advise_one(READ, 0, mr, 0, LEN), 0);
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		mr = ibv_reg_mr(r1.pd, buf, LEN, ODP_ACCESS);
		CHECK(mr);
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	/* A prefetch that still runs must not disturb the next tests: it finds no memory. */
	old = buf;
	set_up();
	CHECK_EQ(munmap(old, LEN), 0);
}

static void test_implicit(void)
{
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, ODP_ACCESS);

	CHECK(mr);
	forget();
	CHECK_EQ(advise_one(WRITE, FLUSH, mr, PAGE, 10 * PAGE), 0);
	CHECK_EQ(resident(), 10);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void test_refused(void)
{
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, buf, LEN, ODP_ACCESS);
	struct ibv_mr *pinned = ibv_reg_mr(r1.pd, buf, PAGE, FULL_ACCESS);
	struct ibv_mr *constant = ibv_reg_mr(r1.pd, buf, LEN, IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *other = ibv_reg_mr(r2.pd, buf, LEN, ODP_ACCESS);
	struct ibv_sge sge;

	CHECK(mr && pinned && constant && other);
	for (uint32_t flags = 0; flags <= FLUSH; flags++) {
		CHECK_EQ(advise_one(READ, flags, pinned, 0, PAGE), EINVAL);
		CHECK_EQ(advise_one(READ, flags, other, 0, PAGE), EINVAL);
		sge = (struct ibv_sge){ (uintptr_t)buf, PAGE, mr->lkey ^ 1 };
		CHECK_EQ(advise_mr(r1.pd, READ, flags, &sge, 1), EINVAL);
		CHECK_EQ(advise_one(WRITE, flags, constant, 0, PAGE), EPERM);
		CHECK_EQ(advise_one(READ, flags, constant, 0, PAGE), 0);
		CHECK_EQ(advise_one(READ, flags, mr, LEN - 10, 11), EFAULT);
		CHECK_EQ(advise_one(READ, flags, mr, -1, 2), EFAULT);
		CHECK_EQ(advise_one(77, flags, mr, 0, PAGE), EOPNOTSUPP);
	}
	/* Unmapped memory is an error of a synchronous prefetch, not of an asynchronous one. */
	CHECK_EQ(ibv_dereg_mr(pinned), 0);
	CHECK_EQ(munmap(buf + 5 * PAGE, PAGE), 0);
	CHECK_EQ(advise_one(READ, FLUSH, mr, 0, LEN), EFAULT);
	CHECK_EQ(advise_one(READ, 0, mr, 0, LEN), 0);
	CHECK_EQ(advise_one(NO_FAULT, FLUSH, mr, 0, LEN), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(constant), 0);
	CHECK_EQ(ibv_dereg_mr(other), 0);
}

/* Returns the kilobytes of unreclaimable slab memory. */
static long kernel_memory(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	char line[80];
	long kb = -1;

	CHECK(f);
	while (kb < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "SUnreclaim: %ld", &kb);
	fclose(f);
	CHECK(kb >= 0);
	return kb;
}

/* An unmapped range of addresses, in which each 2 MB have a page table of their own. */
#define NOWHERE 0x100000000000ull
#define MB2 (2ull << 20)
#define TABLES 4000
#define ROUNDS 8

static void test_no_tables(void)
{
	/* A quarter of the memory that the tables would take, in KB, if they stayed. */
	long limit = TABLES * ROUNDS * 4l / 4, before;
	static struct ibv_sge sges[TABLES];
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, ODP_ACCESS);

	CHECK(mr);
	before = kernel_memory();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < TABLES; i++)
			sges[i] = (struct ibv_sge){
				NOWHERE + (round * TABLES + i) * MB2, 1, mr->lkey
			};
		CHECK_EQ(advise_mr(r1.pd, NO_FAULT, FLUSH, sges, TABLES), 0);
	}
	CHECK(kernel_memory() < before + limit);

	/* No tables may stay for memory that was mapped only for a moment, either. */
	for (int i = 0; i < TABLES * ROUNDS; i++) {
		void *page = (void *)(uintptr_t)(NOWHERE + i * MB2);

		CHECK_EQ(mmap(page, PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), page);
		sges[0] = (struct ibv_sge){ (uintptr_t)page, 1, mr->lkey };
		CHECK_EQ(advise_mr(r1.pd, READ, FLUSH, sges, 1), 0);
		CHECK_EQ(munmap(page, PAGE), 0);
	}
	CHECK(kernel_memory() < before + limit);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* Returns the clock ticks that a process has spent in the kernel. */
static long kernel_time(pid_t pid)
{
	char path[32];
	long ticks;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	CHECK(f);
	/* After the name, the state, ten others and the time in user mode. */
	CHECK_EQ(fscanf(f, "%*[^)]) %*c%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%ld", &ticks), 1);
	fclose(f);
	return ticks;
}

/* A range so long that prefetching it would take hours: the process can be killed. */
static void test_kill(void)
{
	static struct ibv_sge sges[TABLES];
	int status;
	pid_t pid;

	pid = child_fork();
	if (!pid) {
		struct ibv_mr *mr;

		dev_open(&r1, 1);
		mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, ODP_ACCESS);
		for (int i = 0; i < TABLES; i++)
			sges[i] = (struct ibv_sge){ NOWHERE + i * (4ull << 30), -PAGE, mr->lkey };
		_exit(advise_mr(r1.pd, NO_FAULT, FLUSH, sges, TABLES));
	}
	wait_begin();
	while (kernel_time(pid) < 20)
		wait_more("the program to be in the kernel");
	CHECK_EQ(kill(pid, SIGKILL), 0);
	wait_begin();
	while (!waitpid(pid, &status, WNOHANG))
		wait_more("the program to end");
	CHECK(WIFSIGNALED(status));
}

static const struct test tests[] = {
	{ "synchronous", test_flush },
	{ "asynchronous", test_later },
	{ "implicit", test_implicit },
	{ "invalid requests", test_refused },
	{ "no page tables for unmapped ranges", test_no_tables },
	{ "SIGKILL during a long prefetch", test_kill },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
