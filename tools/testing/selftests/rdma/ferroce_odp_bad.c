// SPDX-License-Identifier: GPL-2.0
/*
 * Memory on demand that is absent, is read-only, is never provided, or is dropped while it is used.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_fault.h"
#include "ferroce_raw.h"

#define LEN (64 * PAGE)
/* The offset of the bad page in the buffer, and the distance from the start of messages to it. */
#define BAD (8 * PAGE)
#define BEFORE 2500

enum damage { HOLE, NO_ACCESS, READ_ONLY, BEYOND_FILE, DAMAGES };

static const char *const damage_names[] = { "hole", "no access", "read-only", "beyond the file" };

/* Damages one page in the middle of a buffer. */
static void damage(struct end *e, enum damage how)
{
	int fd;

	switch (how) {
	case HOLE:
		CHECK_EQ(munmap(e->buf + BAD, PAGE), 0);
		break;
	case NO_ACCESS:
		CHECK_EQ(mprotect(e->buf + BAD, PAGE, PROT_NONE), 0);
		break;
	case READ_ONLY:
		CHECK_EQ(mprotect(e->buf + BAD, PAGE, PROT_READ), 0);
		break;
	default:
		fd = syscall(SYS_memfd_create, "odp", 0);
		CHECK(fd >= 0);
		CHECK(mmap(e->buf + BAD, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			   0) == e->buf + BAD);
		close(fd);
	}
}

/* One end of one operation meets bad memory. */
static void one_damage(enum ibv_wr_opcode op, bool at_target, enum damage how)
{
	bool written = at_target != (op == IBV_WR_RDMA_READ);
	enum ibv_wc_status status = IBV_WC_LOC_PROT_ERR;
	struct end a, b;

	if (how == READ_ONLY && !written)
		return;
	printf("# opcode %d, %s, %s\n", op, at_target ? "target" : "requester", damage_names[how]);
	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	memset(a.buf, 0x11, LEN);
	memset(b.buf, 0x22, LEN);
	damage(at_target ? &b : &a, how);
	if (op == IBV_WR_SEND)
		post_recv(&b, 9, BAD - BEFORE, 2 * BEFORE);
	post_send(&a, &b, op, 1, BAD - BEFORE, 2 * BEFORE, IBV_SEND_SIGNALED);
	if (at_target)
		status = op == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR;
	expect(&a, 1, status);
	end_await(&a, IBV_QPS_ERR);
	if (at_target) {
		end_await(&b, IBV_QPS_ERR);
		if (op == IBV_WR_SEND)
			expect(&b, 9, IBV_WC_LOC_PROT_ERR);
		else
			expect_event(&b, IBV_EVENT_QP_ACCESS_ERR);
	}
	/* The bytes behind the bad page are unchanged. */
	CHECK(all_bytes(a.buf + BAD + PAGE, LEN - BAD - PAGE, 0x11));
	CHECK(all_bytes(b.buf + BAD + PAGE, LEN - BAD - PAGE, 0x22));
	pair_close(&a, &b);
}

static void test_damage(void)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_READ,
	};

	for (size_t op = 0; op < ARRAY_LEN(ops); op++)
		for (int target = 0; target < 2; target++)
			for (int how = 0; how < DAMAGES; how++)
				one_damage(ops[op], target, how);
}

/* Datagrams: the sender's queue goes to SQE, the receiver's queue pair to ERR. */
static void test_damage_ud(void)
{
	struct end a, b;

	for (int target = 0; target < 2; target++) {
		pair_open_odp(&a, &b, IBV_QPT_UD, LEN);
		damage(target ? &b : &a, HOLE);
		post_recv(&b, 9, BAD - GRH_LEN - 100, 1000 + GRH_LEN);
		post_send(&a, &b, IBV_WR_SEND, 1, BAD - 100, 1000, IBV_SEND_SIGNALED);
		expect(&a, 1, target ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR);
		if (target) {
			expect(&b, 9, IBV_WC_LOC_PROT_ERR);
			end_await(&b, IBV_QPS_ERR);
		} else {
			end_await(&a, IBV_QPS_SQE);
			/* Once the page is mapped again, the queue pair works. */
			CHECK(mmap(a.buf + BAD, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a.buf + BAD);
			end_modify(&a, IBV_QPS_RTS);
			fill(a.buf + BAD - 100, 1000, 3);
			post_send(&a, &b, IBV_WR_SEND, 2, BAD - 100, 1000, IBV_SEND_SIGNALED);
			expect(&a, 2, IBV_WC_SUCCESS);
			expect(&b, 9, IBV_WC_SUCCESS);
			CHECK(filled(b.buf + BAD - 100, 1000, 3));
		}
		pair_close(&a, &b);
	}
}

/* Ranges that no process has, and rights that a region does not have. */
static void test_register(void)
{
	int hugetlb = IBV_ACCESS_HUGETLB;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	CHECK(!ibv_reg_mr(r1.pd, a.buf, 0, ODP_ACCESS));
	CHECK(!ibv_reg_mr(r1.pd, (void *)(uintptr_t)-PAGE, 2 * PAGE, ODP_ACCESS));
	/* IBV_ACCESS_HUGETLB is for memory on demand only. */
	CHECK(!ibv_reg_mr(r1.pd, a.buf, LEN, FULL_ACCESS | hugetlb));
	mr = ibv_reg_mr(r1.pd, a.buf, LEN, ODP_ACCESS | hugetlb);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	/* Addresses of the kernel can be registered, and have no memory. */
	mr = ibv_reg_mr(r1.pd, (void *)(uintptr_t)0xffffffff81000000, LEN, ODP_ACCESS);
	CHECK(mr);
	make_send(&wr, &sge, &a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED);
	sge.addr = 0xffffffff81000000;
	sge.lkey = mr->lkey;
	post_wr(&a, &wr);
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&a, &b);

	/* No right to write: a READ has nowhere to put its data. */
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	CHECK_EQ(ibv_dereg_mr(a.mr), 0);
	a.mr = ibv_reg_mr(r1.pd, a.buf, LEN, IBV_ACCESS_ON_DEMAND);
	CHECK(a.mr);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_LOC_PROT_ERR);
	pair_close(&a, &b);
}

/* Memory that is hidden from the kernel itself. */
static void test_secret(void)
{
	int fd = syscall(SYS_memfd_secret, 0);
	struct end a, b;

	if (fd < 0)
		return test_skip("the kernel has no memfd_secret()");
	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	CHECK_EQ(ftruncate(fd, PAGE), 0);
	CHECK(mmap(a.buf, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == a.buf);
	memset(a.buf, 1, PAGE);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_LOC_PROT_ERR);
	pair_close(&a, &b);
	close(fd);
}

static int fault_end(struct end *e)
{
	return userfault(e->buf, e->len);
}

/* Operations, and the side on which each waits for memory. */
static const struct {
	enum ibv_wr_opcode op;
	bool at_target;
} waits[] = {
	{ IBV_WR_SEND, false },
	{ IBV_WR_SEND, true },
	{ IBV_WR_RDMA_WRITE, true },
	{ IBV_WR_RDMA_READ, false },
	{ IBV_WR_RDMA_READ, true },
};

/*
 * Memory that is provided late: nothing is lost, and no message waits for the page behind it, which
 * is never provided.
 */
static void slow_memory(uint32_t len)
{
	struct end a, b;
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(waits); i++) {
		pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
		fill(a.buf, LEN, 1);
		fill(b.buf, LEN, 2);
		fd = fault_end(waits[i].at_target ? &b : &a);
		post_recv(&b, 9, 0, len);
		post_send(&a, &b, waits[i].op, 1, 0, len, IBV_SEND_SIGNALED);
		bring(fd, wanted(fd));
		expect(&a, 1, IBV_WC_SUCCESS);
		if (waits[i].op == IBV_WR_SEND)
			expect(&b, 9, IBV_WC_SUCCESS);
		CHECK(!memcmp(a.buf, b.buf, len));
		close(fd);
		pair_close(&a, &b);
	}
}

static void test_slow_memory(void)
{
	slow_memory(64);
	/* More than one packet. */
	slow_memory(3000);
}

/*
 * A request whose memory does not come delays no earlier one: neither its acknowledgment nor, if
 * the peer is gone, its failure.
 */
static void test_earlier_request(void)
{
	struct ibv_send_wr wrs[2];
	struct ibv_sge sges[2];
	struct end a, b;

	for (int gone = 0; gone < 2; gone++) {
		uint64_t page;
		int fd;

		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &r2, IBV_QPT_RC, LEN);
		if (gone)
			a.timeout = 18;
		pair_create(&a, &b);
		on_demand(&a);
		on_demand(&b);
		post_recv(&b, 8, 0, 64);
		post_recv(&b, 9, 64, 64);
		fd = fault_end(&a);
		make_chain(wrs, sges, 2, &a, &b, IBV_WR_SEND, 64, IBV_SEND_SIGNALED);
		wrs[0].num_sge = 0;
		if (gone)
			end_modify(&b, IBV_QPS_RESET);
		post_wr(&a, wrs);
		page = wanted(fd);
		if (gone) {
			expect(&a, 0, IBV_WC_RETRY_EXC_ERR);
			expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
			bring(fd, page);
		} else {
			expect(&b, 8, IBV_WC_SUCCESS);
			expect(&a, 0, IBV_WC_SUCCESS);
			bring(fd, page);
			expect(&b, 9, IBV_WC_SUCCESS);
			expect(&a, 1, IBV_WC_SUCCESS);
		}
		close(fd);
		pair_close(&a, &b);
	}
}

/*
 * Starts a child that thaws a file system once the other end of the pipe is closed. If that takes
 * too long it does so anyway, and fails: this process may hang while a fetch holds its memory map.
 */
static pid_t thaw_later(const char *mount_point, int until[2])
{
	/* Not by child_fork(): it must thaw even if the case fails or this process is ended. */
	pid_t child = fork();
	struct pollfd end;
	int fd, closed;

	CHECK(child >= 0);
	if (child)
		return child;
	signal(SIGTERM, SIG_IGN);
	close(until[1]);
	fd = open(mount_point, O_RDONLY);
	end = (struct pollfd){ .fd = until[0] };
	closed = poll(&end, 1, 40 * 1000);
	ioctl(fd, FITHAW, 0);
	_exit(closed != 1);
}

/*
 * The pages behind the first one of a message are of a file system that is frozen, so fetching them
 * for writing blocks until it is thawed. The packets for the first page do not wait for them.
 */
static void test_frozen_file(void)
{
	char dir[] = "/tmp/ferroce_odp.XXXXXX", name[64], undo[128];
	uint32_t len = 16 * PAGE;
	int fd, until[2], status;
	struct end a, b;
	pid_t child;

	if (system("modprobe -q null_blk nr_devices=1 gb=1 memory_backed=1"))
		return test_skip("no module null_blk");
	CHECK(mkdtemp(dir));
	/* After a failure the region still uses the file. */
	snprintf(undo, sizeof(undo), "umount -l %s; rmdir %s && modprobe -r null_blk", dir, dir);
	shell_undo(undo, "mkfs.ext4 -q -F /dev/nullb0 && mount /dev/nullb0 %s", dir);
	snprintf(name, sizeof(name), "%s/file", dir);
	shell("dd if=/dev/zero of=%s bs=4096 count=16 status=none", name);
	CHECK_EQ(pipe(until), 0);
	child = thaw_later(dir, until);
	close(until[0]);

	pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
	fd = open(name, O_RDWR);
	CHECK(fd >= 0);
	CHECK(mmap(b.buf + PAGE, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	      b.buf + PAGE);
	fill(a.buf, len, 1);
	memset(b.buf, 0x22, PAGE);
	CHECK_EQ(ioctl(fd, FIFREEZE, 0), 0);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, len, IBV_SEND_SIGNALED);
	wait_begin();
	while (!filled(b.buf, PAGE, 1))
		wait_more("the packets for the first page");
	close(until[1]);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf, len, 1));
	pair_close(&a, &b);
	close(fd);
	undo_last();
}

/*
 * Memory that is never provided does not keep the process from destroying the objects that wait for
 * it, in any order, nor from ending.
 */
static void test_stuck_memory(void)
{
	struct end a, b;
	int fd;

	for (size_t i = 0; i < ARRAY_LEN(waits); i++) {
		pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
		fill(a.buf, LEN, 1);
		fill(b.buf, LEN, 2);
		fd = fault_end(waits[i].at_target ? &b : &a);
		post_recv(&b, 9, 0, 64);
		post_send(&a, &b, waits[i].op, 1, 0, 64, IBV_SEND_SIGNALED);
		wanted(fd);
		if (i & 1) {
			CHECK_EQ(ibv_dereg_mr(a.mr), 0);
			CHECK_EQ(ibv_dereg_mr(b.mr), 0);
			a.mr = NULL;
			b.mr = NULL;
		} else {
			/* Requests that wait are flushed. */
			end_modify(&a, IBV_QPS_ERR);
			end_modify(&b, IBV_QPS_ERR);
			expect(&a, 1, IBV_WC_WR_FLUSH_ERR);
			expect(&b, 9, IBV_WC_WR_FLUSH_ERR);
		}
		pair_close(&a, &b);
		close(fd);
	}
}

/* Sends an acknowledgment of `count` requests, and waits for the completions of the last `last`. */
static void acknowledge(struct end *end, uint32_t count, uint32_t last)
{
	struct packet ack = make(RC_ACK, end->qp->qp_num, end->psn + count - 1);

	add_aeth(&ack, ACK, count);
	send_packet(&ack);
	for (uint64_t i = count - last; i < count; i++)
		expect(end, i, IBV_WC_SUCCESS);
}

/*
 * One acknowledgment completes many requests while the next one waits for memory: all are reported,
 * though nothing else happens. The peer is in RESET and sends nothing itself.
 */
static void test_many_end(void)
{
	/* The first window, which its acknowledgment doubles, and more requests. */
	enum { FIRST = 16, MANY = FIRST + 31 };
	struct end a, b;
	int fd;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	end_create(&a);
	end_create(&b);
	a.timeout = 0;
	end_to(&a, &b, IBV_QPS_RTS);
	on_demand(&a);
	fd = fault_end(&a);
	for (uint64_t i = 0; i < FIRST; i++)
		post_send(&a, &b, IBV_WR_SEND, i, 0, 0, IBV_SEND_SIGNALED);
	await_sent(&a, FIRST);
	acknowledge(&a, FIRST, FIRST);
	for (uint64_t i = FIRST; i < MANY; i++)
		post_send(&a, &b, IBV_WR_SEND, i, 0, 0, IBV_SEND_SIGNALED);
	post_send(&a, &b, IBV_WR_SEND, MANY, 0, 64, IBV_SEND_SIGNALED);
	wanted(fd);
	acknowledge(&a, MANY, MANY - FIRST);
	end_modify(&a, IBV_QPS_ERR);
	expect(&a, MANY, IBV_WC_WR_FLUSH_ERR);
	pair_close(&a, &b);
	close(fd);
}

/* A process ends while fetches wait for its memory, and only its end ends their wait. */
static void test_exit(void)
{
	int status;
	pid_t child;

	child = child_fork();
	if (!child) {
		struct end a, b;
		int fd;

		/* Contexts of its own: those of the parent belong to the parent. */
		devs_open();
		pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
		fd = fault_end(&a);
		post_send(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED);
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 2, PAGE, 64, IBV_SEND_SIGNALED);
		wanted(fd);
		_exit(7);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 7);
}

static struct end *victim;
static atomic_bool stop;

static void *forget(void *unused)
{
	(void)unused;
	while (!stop)
		madvise(victim->buf, LEN, MADV_DONTNEED);
	return NULL;
}

/* A region that is deregistered while it is written and read and its pages are dropped. */
static void test_dereg(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	enum ibv_wc_status status;
	pthread_t thread;
	struct ibv_wc wc;
	struct end a, b;

	for (int round = 0; round < 10; round++) {
		pair_open_odp(&a, &b, IBV_QPT_RC, LEN);
		victim = round & 1 ? &a : &b;
		stop = false;
		CHECK_EQ(pthread_create(&thread, NULL, forget, NULL), 0);
		for (uint64_t i = 0; i < 20; i++)
			post_send(&a, &b, ops[i & 1], i, 0, LEN / 2, IBV_SEND_SIGNALED);
		for (int i = 0; i < round; i++)
			expect(&a, i, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_dereg_mr(victim->mr), 0);
		victim->mr = NULL;
		/* Each request ends once, in order, and those behind a bad one are flushed. */
		status = IBV_WC_SUCCESS;
		for (uint64_t i = round; i < 20; i++) {
			wc = next_wc(a.cq);
			CHECK_EQ(wc.wr_id, i);
			if (status != IBV_WC_SUCCESS)
				CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
			status = wc.status;
		}
		stop = true;
		pthread_join(thread, NULL);
		pair_close(&a, &b);
	}
}

static const struct test tests[] = {
	{ "invalid registrations", test_register },
	{ "bad memory", test_damage },
	{ "bad memory, datagrams", test_damage_ud },
	{ "secret memory", test_secret },
	{ "slow memory", test_slow_memory },
	{ "slow memory behind another request", test_earlier_request },
	{ "frozen file behind the first page", test_frozen_file },
	{ "memory that never comes", test_stuck_memory },
	{ "many completions while memory is awaited", test_many_end },
	{ "exit while memory is awaited", test_exit },
	{ "deregistered in use", test_dereg },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, raw_open, tests, ARRAY_LEN(tests));
}
