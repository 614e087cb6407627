// SPDX-License-Identifier: GPL-2.0
/*
 * Pools that all users share: one user takes as much as it can get, and another still gets some.
 *
 * Documentation/infiniband/ferroce/limits.rst describes the pools and the rule.
 */
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include "ferroce_fault.h"
#include "ferroce_look.h"
#include "ferroce_mcast.h"
#include "ferroce_stat.h"
#include "ferroce_traffic.h"

/* Two users without any privilege. */
#define GREEDY 65534
#define OTHER 65533

#define CGROUP "/tmp/ferroce_limits"

/* Makes the calling process one of a user, and opens the devices as that user. */
static void become(uid_t uid)
{
	struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };

	/* RLIMIT_MEMLOCK is not under test. */
	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &all), 0);
	CHECK_EQ(setgroups(0, NULL), 0);
	CHECK_EQ(setgid(uid), 0);
	CHECK_EQ(setuid(uid), 0);
	/* The change of the user has reset this. */
	CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
	devs_open();
}

/* A process that holds all that it could get, and the amount. */
struct holder {
	pid_t pid;
	int got;
};

static struct holder holders[64];
static int n_holders;

/* Has a process of a user take all that it can get; returns the amount. */
static int hold(uid_t uid, int (*take)(int fault))
{
	struct holder *holder = &holders[n_holders];
	int fds[2], fault;

	CHECK(n_holders < (int)ARRAY_LEN(holders));
	CHECK_EQ(pipe(fds), 0);
	holder->pid = child_fork();
	if (!holder->pid) {
		int got;

		close(fds[0]);
		fault = userfault_open();
		become(uid);
		got = take(fault);
		if (write(fds[1], &got, sizeof(got)) != sizeof(got))
			_exit(1);
		for (;;)
			pause();
	}
	n_holders++;
	close(fds[1]);
	CHECK_EQ(read(fds[0], &holder->got, sizeof(holder->got)), sizeof(holder->got));
	close(fds[0]);
	return holder->got;
}

/* Ends all holders, including those of a failed case. */
static void release(void)
{
	while (n_holders)
		child_kill(holders[--n_holders].pid);
}

/* Checks that need() succeeds in a process of a user. */
static void as(uid_t uid, void (*need)(void))
{
	pid_t child;
	int status;

	child = child_fork();
	if (!child) {
		become(uid);
		need();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

/* Protection domains. */

static int take_pds(int fault)
{
	int n = 0;

	(void)fault;
	while (ibv_alloc_pd(r1.ctx))
		n++;
	CHECK_EQ(errno, ENOMEM);
	return n;
}

static void need_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(r1.ctx);

	CHECK(pd);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void pds(void)
{
	release();
	printf("# one process got %d\n", hold(GREEDY, take_pds));
	as(GREEDY, need_pd);
	as(OTHER, need_pd);
	need_pd();
	release();
	as(GREEDY, need_pd);
}

/* Multicast groups. */

static int take_groups(int fault)
{
	struct ibv_cq *cq = ibv_create_cq(r1.ctx, 1, NULL, NULL, 0);
	struct ibv_qp *qp;
	int n;

	(void)fault;
	CHECK(cq);
	qp = bare_qp(&r1, cq);
	for (n = 0; n < 0x10000; n++) {
		union ibv_gid group = group4(n);
		int error = ibv_attach_mcast(qp, &group, 0);

		if (error) {
			CHECK_EQ(error, ENOMEM);
			break;
		}
	}
	return n;
}

static void need_group(void)
{
	struct ibv_cq *cq = ibv_create_cq(r1.ctx, 1, NULL, NULL, 0);
	union ibv_gid group = group6(1);
	struct ibv_qp *qp;

	CHECK(cq);
	qp = bare_qp(&r1, cq);
	CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

static void groups(void)
{
	release();
	printf("# one process got %d\n", hold(GREEDY, take_groups));
	as(GREEDY, need_group);
	as(OTHER, need_group);
	need_group();
	release();
}

/* Members of a group. */

/* The maximum for all processes. */
#define MEMBERS 64

static int take_members(int fault)
{
	struct ibv_cq *cq = ibv_create_cq(r1.ctx, 1, NULL, NULL, 0);
	union ibv_gid group = group6(1);
	int n, error = 0;

	(void)fault;
	CHECK(cq);
	for (n = 0; n < MEMBERS; n++) {
		error = ibv_attach_mcast(bare_qp(&r1, cq), &group, 0);
		if (error)
			break;
	}
	CHECK_EQ(error, ENOMEM);
	return n;
}

static void members(void)
{
	int got;

	release();
	got = hold(GREEDY, take_members);
	printf("# one process got %d\n", got);
	CHECK(got > 1);
	/* They are shared among users, not among the processes of one user. */
	CHECK_EQ(hold(GREEDY, take_members), 0);
	CHECK(hold(OTHER, take_members) > 1);
	need_group();
	release();
}

/* Fetches of memory on demand. */

/* The maximum for all processes. */
#define FETCHES 1024

static int take_fetches(int fault)
{
	size_t len = FETCHES * PAGE;
	char *buf = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;
	int n, error = 0;

	CHECK(buf != MAP_FAILED);
	userfault_add(fault, buf, len);
	mr = ibv_reg_mr(r1.pd, buf, len, ODP_ACCESS);
	CHECK(mr);
	for (n = 0; n < FETCHES; n++) {
		struct ibv_sge sge = { (uintptr_t)buf + n * PAGE, 1, mr->lkey };

		error = advise_mr(r1.pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1);
		if (error)
			break;
	}
	CHECK_EQ(error, EAGAIN);
	return n;
}

static void need_fetch(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, PAGE);
	on_demand(&b);
	post_recv(&b, 9, 0, 64);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 9, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* Returns the use of a pool. */
static long long pool_used(const char *pool)
{
	/* The core caches values for 10 ms. */
	usleep(20000);
	return port_file("r1", "hw_counters", pool);
}

/* Ends all holders, and checks that the pool, of which they held some, is empty then. */
static void release_all(const char *pool)
{
	long long most = pool_used(pool);

	printf("# %s: %lld\n", pool, most);
	CHECK(most > 0);
	release();
	wait_begin();
	/* Each round takes as long as a program. */
	while (pool_used(pool))
		wait_more_program("an empty pool");
}

static void fetches(void)
{
	int processes, total;

	release();
	total = hold(GREEDY, take_fetches);
	printf("# one process got %d\n", total);
	as(GREEDY, need_fetch);
	for (processes = 1; processes < 24 && total < FETCHES; processes++)
		total += hold(GREEDY, take_fetches);
	printf("# %d processes of one user got %d\n", processes, total);
	as(OTHER, need_fetch);
	need_fetch();
	release_all("pool_fetch");
}

/* Memory of packets that wait for memory on demand. */

/* Packets that wait for each queue pair, and queue pairs: together they fill the pool. */
#define WAITING 128
#define QUEUES 64

static void stall(struct end *e, int fault)
{
	end_create(e);
	on_demand(e);
	userfault_add(fault, e->buf, e->len);
	end_to(e, e, IBV_QPS_RTR);
	post_recv(e, 9, 0, 1024);
}

/* Checks that a READ response for absent memory is dropped if it has no room to wait. */
static void need_room_for_response(int fault)
{
	static struct end a, b;
	long long before;

	end_init(&a, &r2, IBV_QPT_RC, PAGE);
	end_create(&a);
	end_init(&b, &r1, IBV_QPT_RC, PAGE);
	end_create(&b);
	end_to(&a, &b, IBV_QPS_RTS);
	end_to(&b, &a, IBV_QPS_RTS);
	on_demand(&a);
	userfault_add(fault, a.buf, a.len);
	before = port_file("r2", "hw_counters", "rx_backlog_full");
	post_send(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED);
	wait_begin();
	while (port_file("r2", "hw_counters", "rx_backlog_full") == before)
		wait_more_verb("a dropped response");
	/* The response is requested, and dropped, repeatedly. */
	end_close(&a);
	end_close(&b);
}

static int take_backlog(int fault)
{
	static struct end b[QUEUES];
	struct end a;

	end_init(&a, &r1, IBV_QPT_UD, PAGE);
	end_create(&a);
	for (int i = 0; i < QUEUES; i++) {
		end_init(&b[i], &r2, IBV_QPT_UD, PAGE);
		stall(&b[i], fault);
	}
	end_to(&a, &b[0], IBV_QPS_RTS);
	/* One more packet, for which the memory is fetched. */
	for (int n = 0; n < WAITING + 1; n++) {
		for (int i = 0; i < QUEUES; i++)
			post_send(&a, &b[i], IBV_WR_SEND, i, 0, 64, IBV_SEND_SIGNALED);
		for (int i = 0; i < QUEUES; i++)
			expect(&a, i, IBV_WC_SUCCESS);
	}
	need_room_for_response(fault);
	return QUEUES;
}

static long long backlog_drops(void)
{
	/* The core caches counters for 10 ms. */
	usleep(50000);
	return port_file("r2", "hw_counters", "rx_backlog_full");
}

/* Checks that none of a few requests is dropped while the memory of the first one is fetched. */
static void need_backlog_from(int fault)
{
	enum { MANY = 10 };
	long long before;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_UD, PAGE);
	end_create(&a);
	end_init(&b, &r2, IBV_QPT_UD, PAGE);
	stall(&b, fault);
	for (int i = 1; i < MANY; i++)
		post_recv(&b, 9 + i, i * 128, 128);
	end_to(&a, &b, IBV_QPS_RTS);
	before = backlog_drops();
	for (int i = 0; i < MANY; i++)
		post_send(&a, &b, IBV_WR_SEND, i, 0, 64, IBV_SEND_SIGNALED);
	for (int i = 0; i < MANY; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	wanted(fault);
	printf("# %lld of %d requests were dropped\n", backlog_drops() - before, MANY);
	CHECK_EQ(backlog_drops(), before);
	bring(fault, (uintptr_t)b.buf);
	for (int i = 0; i < MANY; i++)
		expect(&b, 9 + i, IBV_WC_SUCCESS);
	end_close(&a);
	end_close(&b);
}

static int need_backlog_as(int fault)
{
	need_backlog_from(fault);
	return 1;
}

static void backlog(void)
{
	long long before = backlog_drops();

	release();
	hold(GREEDY, take_backlog);
	printf("# %lld of %d requests to one process were dropped\n", backlog_drops() - before,
	       QUEUES * (WAITING + 1));
	CHECK_EQ(hold(GREEDY, need_backlog_as), 1);
	CHECK_EQ(hold(OTHER, need_backlog_as), 1);
	CHECK_EQ(hold(0, need_backlog_as), 1);
	release_all("pool_backlog");
}

/* Each object is charged to its pool, and uncharged when it is destroyed. */

static const char *const pool_names[] = {
	"pool_pd", "pool_mr", "pool_mw", "pool_cq", "pool_srq", "pool_qp", "pool_ah"
};

static void pools_read(long long *used)
{
	/* The core caches values for the rest of a jiffy. */
	usleep(20000);
	for (size_t i = 0; i < ARRAY_LEN(pool_names); i++)
		used[i] = port_file("r1", "hw_counters", pool_names[i]);
}

static void charged(void)
{
	long long before[ARRAY_LEN(pool_names)], during[ARRAY_LEN(pool_names)];
	long long after[ARRAY_LEN(pool_names)];
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct dev dev = r1;
	struct ibv_srq *srq;
	struct ibv_mw *mw;
	struct end e;

	release();
	shell("echo 0 >/sys/class/infiniband/r1/ports/1/hw_counters/lifespan");
	pools_read(before);
	dev.pd = ibv_alloc_pd(dev.ctx);
	CHECK(dev.pd);
	end_init(&e, &dev, IBV_QPT_UD, PAGE);
	end_create(&e);
	end_to(&e, &e, IBV_QPS_RTS);
	srq = ibv_create_srq(dev.pd, &init);
	CHECK(srq);
	mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_1);
	CHECK(mw);
	pools_read(during);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	end_close(&e);
	CHECK_EQ(ibv_dealloc_pd(dev.pd), 0);
	pools_read(after);
	for (size_t i = 0; i < ARRAY_LEN(pool_names); i++) {
		printf("# %s\n", pool_names[i]);
		CHECK_EQ(during[i], before[i] + 1);
		CHECK_EQ(after[i], before[i]);
	}
}

/* The limits of the rdma cgroup are enforced. */

static int in_cgroup(int fault)
{
	struct ibv_context *ctx;
	int n = 0;

	(void)fault;
	CHECK_EQ(system("echo $PPID >" CGROUP "/limited/cgroup.procs"), 0);
	/* This takes one handle and one object. */
	dev_open(&r1, 1);
	while (ibv_alloc_pd(r1.ctx))
		n++;
	CHECK_EQ(errno, EAGAIN);
	ctx = ibv_open_device(r1.ctx->device);
	CHECK(ctx);
	CHECK(!ibv_open_device(r1.ctx->device));
	CHECK_EQ(ibv_close_device(ctx), 0);
	return n;
}

static void cgroup(void)
{
	release();
	shell_undo("umount " CGROUP " && rmdir " CGROUP,
		   "mkdir -p " CGROUP " && mount -t cgroup2 none " CGROUP);
	shell("echo +rdma >" CGROUP "/cgroup.subtree_control");
	shell_undo("rmdir " CGROUP "/limited", "mkdir " CGROUP "/limited");
	shell("echo r1 hca_handle=2 hca_object=8 >" CGROUP "/limited/rdma.max");
	CHECK_EQ(hold(0, in_cgroup), 7);
	release();
	undo_last();
	undo_last();
}

/* Returns the number of threads that run work items of processes. */
static int busy_workers(void)
{
	FILE *out;
	int n;

	out = popen("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^kworker.*+ferroce$'", "r");
	CHECK(out);
	CHECK_EQ(fscanf(out, "%d", &n), 1);
	pclose(out);
	return n;
}

/*
 * A process that has much to send on many queue pairs sleeps. However many there are, their work
 * items run on about one thread for each CPU.
 */
static void work_items(void)
{
	enum { PAIRS = 32, SENDS = 60, SGES = 4 };
	const struct sched_param first = { .sched_priority = 1 }, last = {};
	static struct end a[PAIRS], b[PAIRS];
	int n, most = 0;

	for (int i = 0; i < PAIRS; i++)
		pair_open(&a[i], &b[i], IBV_QPT_UC, LEN);
	for (int i = 0; i < PAIRS; i++) {
		struct ibv_send_wr wrs[SENDS];
		struct ibv_sge sges[SENDS], all[SGES];

		make_chain(wrs, sges, SENDS, &a[i], &b[i], IBV_WR_SEND, LEN, 0);
		for (int j = 0; j < SGES; j++)
			all[j] = sges[0];
		for (int j = 0; j < SENDS; j++) {
			wrs[j].sg_list = all;
			wrs[j].num_sge = SGES;
		}
		post_wr(&a[i], wrs);
	}
	/* Ahead of the workers, which may be many. */
	CHECK_EQ(sched_setscheduler(0, SCHED_FIFO, &first), 0);
	for (int i = 0; i < 10; i++) {
		n = busy_workers();
		most = n > most ? n : most;
	}
	CHECK_EQ(sched_setscheduler(0, SCHED_OTHER, &last), 0);
	for (int i = 0; i < PAIRS; i++)
		pair_close(&a[i], &b[i]);
	printf("# at most %d threads\n", most);
	/* The names are not read at the same time: a few threads may have taken turns. */
	CHECK(most > 0 && most < PAIRS / 2);
}

static const struct test tests[] = {
	{ "charges are released", charged },
	{ "rdma cgroup", cgroup },
	{ "protection domains", pds },
	{ "multicast groups", groups },
	{ "members of a multicast group", members },
	{ "fetches of memory on demand", fetches },
	{ "packets that wait for memory", backlog },
	{ "threads that run work items", work_items },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
