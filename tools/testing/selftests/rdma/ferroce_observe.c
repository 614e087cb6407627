// SPDX-License-Identifier: GPL-2.0
/*
 * The driver's part of "rdma -dd resource show", for objects that are stopped in a state in which
 * each value is known.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "ferroce_look.h"
#include "ferroce_traffic.h"

static void idle(void)
{
	struct end a, b;

	open_pair(&a, &b);
	pair_create(&a, &b);
	look_at(&a);
	CHECK(says("state", "RTS"));
	CHECK_EQ(number("drv_number"), a.qp->qp_num);
	CHECK(says("drv_sq_state", "running") && says("drv_sq_waits_for", "nothing"));
	CHECK(says("drv_rq_state", "idle"));
	CHECK(!strstr(seen, "sq_due_us"));
	CHECK_EQ(number("drv_sq_posted"), 0);
	CHECK_EQ(number("drv_sq_size"), a.cap.max_send_wr);
	CHECK_EQ(number("drv_sq_una"), PSN_A);
	CHECK_EQ(number("drv_sq_next"), PSN_A);
	CHECK_EQ(number("drv_sq_retries_left"), a.retry_cnt);
	CHECK_EQ(number("drv_sq_rnr_left"), a.rnr_retry);
	CHECK_EQ(number("drv_rq_size"), a.cap.max_recv_wr);
	CHECK_EQ(number("drv_rq_expects"), PSN_B);
	CHECK_EQ(number("drv_rq_msn"), 0);
	/* No addresses of the kernel. */
	CHECK(!strstr(seen, "ffff8") && !strstr(seen, "ffffc9"));
	end_modify(&a, IBV_QPS_SQD);
	look_at(&a);
	CHECK(says("drv_sq_state", "drained"));
	end_modify(&a, IBV_QPS_ERR);
	look_at(&a);
	CHECK(says("drv_sq_state", "error"));
	pair_close(&a, &b);
}

/* Checks that PSNs and the number of the peer, which a forged packet needs, are not shown. */
static void see_nothing(struct end *a)
{
	CHECK(says("state", "RTS"));
	CHECK_EQ(number("drv_sq_size"), a->cap.max_send_wr);
	CHECK_EQ(number("sq-psn"), 0);
	CHECK_EQ(number("rq-psn"), 0);
	CHECK_EQ(number("rqpn"), 0);
	CHECK(!strstr(seen, "drv_sq_una") && !strstr(seen, "drv_sq_next"));
	CHECK(!strstr(seen, "drv_rq_expects") && !strstr(seen, "drv_rq_acked"));
	CHECK(!strstr(seen, "drv_sgid") && !strstr(seen, "drv_dgid"));
}

/*
 * Checks that a process without capabilities can query all attributes of its own queue pair. In a
 * child: uverbs refuses the doorbell to a process that has changed its credentials.
 */
static bool told_owner(struct end *a, struct end *b)
{
	int mask = IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_DEST_QPN, status;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	pid_t child = child_fork();

	if (!child)
		_exit(setuid(65534) || ibv_query_qp(a->qp, &attr, mask, &init) ||
		      attr.sq_psn != PSN_A || attr.rq_psn != PSN_B ||
		      attr.dest_qp_num != b->qp->qp_num);
	CHECK_EQ(waitpid(child, &status, 0), child);
	return status == 0;
}

/* CAP_NET_ADMIN counts in the user namespace that owns the device, not in one of the user's own. */
static void unprivileged(void)
{
	static const char show[] = "rdma -dd resource show qp link r1/1 lqpn %u";
	struct end a, b;
	char command[256];

	open_pair(&a, &b);
	pair_create(&a, &b);
	snprintf(command, sizeof(command), show, a.qp->qp_num);
	look("%s", command);
	CHECK_EQ(number("sq-psn"), PSN_A);
	CHECK_EQ(number("rq-psn"), PSN_B);
	CHECK_EQ(number("rqpn"), b.qp->qp_num);
	look("setpriv --reuid 65534 --clear-groups %s", command);
	see_nothing(&a);
	/* The kernel may have no user namespaces. */
	if (!access("/proc/self/ns/user", F_OK)) {
		look("unshare --user --map-root-user %s", command);
		see_nothing(&a);
	}

	CHECK(told_owner(&a, &b));
	pair_close(&a, &b);
}

/* A peer in RESET, which does not respond: all requests stay outstanding. */
static void unanswered(void)
{
	struct end a, b;

	open_pair(&a, &b);
	/* More than two hours. */
	a.timeout = 31;
	pair_create(&a, &b);
	end_modify(&b, IBV_QPS_RESET);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED);
	post_send(&a, &b, IBV_WR_SEND, 2, 0, 0, IBV_SEND_SIGNALED);
	look_at(&a);
	CHECK(says("drv_sq_state", "running") && says("drv_sq_waits_for", "ack"));
	CHECK_EQ(number("drv_sq_una"), PSN_A);
	CHECK_EQ(number("drv_sq_next"), PSN_A + 4);
	CHECK_EQ(number("sq-psn"), PSN_A + 4);
	CHECK_EQ(number("drv_sq_posted"), 2);
	CHECK_EQ(number("drv_sq_producer"), 2);
	CHECK_EQ(number("drv_sq_consumer"), 0);
	CHECK_EQ(number("drv_sq_taken"), 2);
	CHECK_EQ(number("drv_sq_reads"), 0);
	CHECK_EQ(number("drv_sq_window"), 16);
	CHECK(number("drv_sq_due_us") > 8000000000 && number("drv_sq_due_us") <= 8796093023);
	post_send(&a, &b, IBV_WR_RDMA_READ, 3, 0, 10, IBV_SEND_SIGNALED);
	/* The work item sends it, as the third request in a row. */
	wait_begin();
	for (;;) {
		look_at(&a);
		if (number("drv_sq_reads") == 1)
			break;
		wait_more_program("a READ on its way");
	}
	CHECK_EQ(number("drv_sq_next"), PSN_A + 5);

	end_modify(&a, IBV_QPS_ERR);
	for (int i = 1; i <= 3; i++)
		expect(&a, i, IBV_WC_WR_FLUSH_ERR);
	look_at(&a);
	CHECK(says("drv_sq_state", "error") && says("drv_sq_waits_for", "nothing"));
	CHECK_EQ(number("drv_sq_posted"), 0);
	CHECK_EQ(number("drv_sq_consumer"), 3);
	pair_close(&a, &b);
}

static void no_receive(void)
{
	struct end a, b;

	open_pair(&a, &b);
	/* 655 ms. */
	b.min_rnr_timer = 0;
	pair_create(&a, &b);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 10, IBV_SEND_SIGNALED);
	wait_begin();
	for (;;) {
		look_at(&a);
		if (!strncmp(behind("drv_sq_waits_for"), "rnr ", 4))
			break;
		wait_more_program("an RNR NAK");
	}
	CHECK_EQ(number("drv_sq_una"), PSN_A);
	CHECK_EQ(number("drv_sq_next"), PSN_A);
	CHECK_EQ(number("sq-psn"), PSN_A + 1);
	CHECK_EQ(number("drv_sq_posted"), 1);
	CHECK(number("drv_sq_due_us") <= 655360);
	look_at(&b);
	CHECK(says("drv_rq_state", "idle"));
	CHECK_EQ(number("drv_rq_posted"), 0);
	CHECK_EQ(number("drv_rq_expects"), PSN_A);

	post_recv(&b, 2, 0, 20);
	post_recv(&b, 3, 0, 20);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	look_at(&a);
	CHECK(says("drv_sq_waits_for", "nothing"));
	CHECK_EQ(number("drv_sq_una"), PSN_A + 1);
	CHECK_EQ(number("drv_sq_posted"), 0);
	look_at(&b);
	CHECK_EQ(number("drv_rq_posted"), 1);
	CHECK_EQ(number("drv_rq_producer"), 2);
	CHECK_EQ(number("drv_rq_consumer"), 1);
	CHECK_EQ(number("drv_rq_expects"), PSN_A + 1);
	CHECK_EQ(number("drv_rq_acked"), PSN_A);
	CHECK_EQ(number("drv_rq_msn"), 1);
	pair_close(&a, &b);
}

/*
 * A device that sends almost nothing: the send half waits until its packets have left. On UC, as it
 * has no window: that of RC may stay below the size of the device's queue on a busy host.
 */
static void slow_device(void)
{
	static const char slow[] = "netem limit 10000 slot 100s 100s packets 1";
	enum { N = 16 };
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UC, LEN);
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root %s", slow);
	for (int i = 0; i < N; i++)
		post_send(&a, &b, IBV_WR_RDMA_WRITE, i, 0, LEN, IBV_SEND_SIGNALED);
	/*
	 * A few packets left before the device was slow. The half may first wait for 100 ms with
	 * fewer packets, because another CPU has sent them.
	 */
	wait_begin();
	for (;;) {
		look_at(&a);
		if (says("drv_sq_waits_for", "device") && number("drv_sq_queued") > 64)
			break;
		wait_more_program("the device");
	}
	/* 120, and one packet more for each 100 ms, but by far not all. */
	CHECK(number("drv_sq_queued") < N * LEN / 1024 / 2);
	CHECK(!strstr(seen, "drv_sq_una") && !strstr(seen, "drv_sq_window"));
	undo_last();
	for (int i = 0; i < N; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	look_at(&a);
	CHECK(says("drv_sq_waits_for", "nothing"));
	CHECK_EQ(number("drv_sq_queued"), 0);
	pair_close(&a, &b);
}

/* Connected queue pairs that do not send do not reduce the packets others may have in flight. */
static void idle_neighbours(void)
{
	static struct end idle[64];
	struct end peer;

	end_init(&peer, &r2, IBV_QPT_RC, LEN);
	end_create(&peer);
	for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
		end_init(&idle[i], &r1, IBV_QPT_RC, 0);
		end_create(&idle[i]);
		end_to(&idle[i], &peer, IBV_QPS_RTS);
	}
	slow_device();
	for (size_t i = 0; i < ARRAY_LEN(idle); i++)
		end_close(&idle[i]);
	end_close(&peer);
}

static void completion_queue(void)
{
	struct end a, b;

	open_pair(&a, &b);
	pair_create(&a, &b);
	look("rdma -dd resource show cq dev r1 pid %d", getpid());
	CHECK_EQ(number("drv_size"), 255);
	CHECK_EQ(number("drv_waiting"), 0);
	CHECK(says("drv_armed", "no"));
	CHECK_EQ(number("drv_overrun"), 0);
	CHECK_EQ(ibv_req_notify_cq(a.cq, 1), 0);
	look("rdma -dd resource show cq dev r1 pid %d", getpid());
	CHECK(says("drv_armed", "solicited"));
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 1, IBV_SEND_SIGNALED);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 2, 0, 1, 0);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3, 0, 1, IBV_SEND_SIGNALED);
	wait_begin();
	for (;;) {
		look("rdma -dd resource show cq dev r1 pid %d", getpid());
		if (number("drv_waiting") == 2)
			break;
		wait_more_program("two completions");
	}
	CHECK_EQ(number("drv_producer"), 2);
	CHECK_EQ(number("drv_consumer"), 0);
	expect(&a, 1, IBV_WC_SUCCESS);
	look("rdma -dd resource show cq dev r1 pid %d", getpid());
	CHECK_EQ(number("drv_waiting"), 1);
	CHECK_EQ(number("drv_consumer"), 1);
	CHECK_EQ(ibv_req_notify_cq(a.cq, 0), 0);
	look("rdma -dd resource show cq dev r1 pid %d", getpid());
	CHECK(says("drv_armed", "any"));
	expect(&a, 3, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 10, .max_sge = 2 } };
	struct ibv_srq_attr attr = { .srq_limit = 1 };
	struct end a, b;
	uint32_t srqn;

	open_pair(&a, &b);
	b.srq = ibv_create_srq(r2.pd, &init);
	CHECK(b.srq);
	pair_create(&a, &b);
	for (int i = 0; i < 3; i++)
		post_recv(&b, i, 0, 20);
	CHECK_EQ(ibv_modify_srq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 20, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 0, IBV_WC_SUCCESS);
	look("rdma -dd resource show srq dev r2 pid %d", getpid());
	srqn = number("drv_number");
	CHECK_EQ(number("drv_posted"), 2);
	CHECK_EQ(number("drv_size"), init.attr.max_wr);
	CHECK_EQ(number("drv_producer"), 3);
	CHECK_EQ(number("drv_consumer"), 1);
	CHECK_EQ(number("drv_max_sge"), 2);
	CHECK_EQ(number("drv_limit"), 1);
	CHECK_EQ(number("drv_resizing"), 0);
	look_at(&b);
	CHECK_EQ(number("drv_rq_srq"), srqn);
	CHECK(!strstr(seen, "rq_posted"));
	pair_close(&a, &b);
	CHECK_EQ(ibv_destroy_srq(b.srq), 0);
}

static void region(unsigned int access, const char *kind)
{
	/* A length that no other region has. */
	size_t len = 12345;
	void *buf = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(r1.pd, buf, len, access);
	struct ibv_mw *mw = ibv_alloc_mw(r1.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr, .addr = (uintptr_t)buf, .length = 10 },
	};
	struct end a, b;

	open_pair(&a, &b);
	pair_create(&a, &b);
	CHECK(mr && mw);
	look("rdma -dd resource show mr dev r1 mrlen %zu", len);
	CHECK(says("drv_memory", kind));
	CHECK_EQ(number("drv_access"), access);
	CHECK_EQ(number("drv_windows"), 0);
	CHECK_EQ(ibv_bind_mw(a.qp, mw, &bind), 0);
	expect(&a, 1, IBV_WC_SUCCESS);
	look("rdma -dd resource show mr dev r1 mrlen %zu", len);
	CHECK_EQ(number("drv_windows"), 1);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	look("rdma -dd resource show mr dev r1 mrlen %zu", len);
	CHECK_EQ(number("drv_windows"), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	munmap(buf, len);
	pair_close(&a, &b);
}

static void regions(void)
{
	region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, "pinned");
	region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND, "on-demand");
}

static void described(bool v6)
{
	const char *net = v6 ? "fd77::" : "10.77.0.";
	struct end a, b;
	char text[32];

	open_pair(&a, &b);
	a.v6 = v6;
	b.v6 = v6;
	a.timeout = 31;
	pair_create(&a, &b);
	end_modify(&b, IBV_QPS_RESET);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED);
	post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, 10, IBV_SEND_SIGNALED);
	post_recv(&a, 3, 0, 20);
	look_at(&a);
	CHECK(says("type", "RC") && says("state", "RTS"));
	CHECK_EQ(number("rqpn"), b.qp->qp_num);
	snprintf(text, sizeof(text), "%s1", net);
	CHECK(says("drv_sgid", text));
	snprintf(text, sizeof(text), "%s2", net);
	CHECK(says("drv_dgid", text));
	CHECK_EQ(number("drv_path_mtu"), 1024);
	CHECK_EQ(number("drv_timeout_us"), 8796093022);
	CHECK_EQ(number("drv_retry_cnt"), 7);
	CHECK_EQ(number("drv_rnr_retry"), 7);
	CHECK_EQ(number("drv_max_rd_atomic"), 4);
	CHECK_EQ(number("drv_max_dest_rd_atomic"), 4);
	CHECK(says("drv_sq_state", "running") && says("drv_sq_waits_for", "ack"));
	CHECK(number("drv_sq_due_us") > 8700000000);
	CHECK_EQ(number("drv_sq_posted"), 2);
	CHECK_EQ(number("drv_sq_size"), a.cap.max_send_wr);
	CHECK_EQ(number("drv_sq_producer"), 2);
	CHECK_EQ(number("drv_sq_consumer"), 0);
	CHECK_EQ(number("drv_sq_taken"), 2);
	CHECK_EQ(number("drv_sq_not_begun"), 0);
	CHECK(says("drv_sq_oldest", "WRITE"));
	CHECK_EQ(number("drv_sq_oldest_len"), 3000);
	CHECK_EQ(number("drv_sq_oldest_psn"), PSN_A);
	CHECK_EQ(number("drv_sq_oldest_last"), PSN_A + 2);
	CHECK_EQ(number("drv_sq_una"), PSN_A);
	CHECK_EQ(number("drv_sq_next"), PSN_A + 4);
	CHECK_EQ(number("sq-psn"), PSN_A + 4);
	CHECK_EQ(number("drv_sq_window"), 16);
	CHECK_EQ(number("drv_sq_reads"), 1);
	CHECK_EQ(number("drv_sq_retries_left"), 7);
	CHECK_EQ(number("drv_sq_rnr_left"), 7);
	CHECK_EQ(number("drv_sq_queued"), 0);
	CHECK_EQ(number("drv_sq_backlog"), 0);
	CHECK(says("drv_rq_state", "idle"));
	CHECK_EQ(number("drv_rq_posted"), 1);
	CHECK_EQ(number("drv_rq_size"), a.cap.max_recv_wr);
	CHECK_EQ(number("drv_rq_producer"), 1);
	CHECK_EQ(number("drv_rq_consumer"), 0);
	CHECK_EQ(number("drv_rq_expects"), PSN_B);
	CHECK_EQ(number("drv_rq_acked"), PSN_B - 1);
	CHECK_EQ(number("drv_rq_msn"), 0);
	CHECK_EQ(number("drv_rq_queued"), 0);
	CHECK_EQ(number("drv_rq_backlog"), 0);
	CHECK_EQ(number("drv_rq_early"), 0);
	look_at(&b);
	CHECK(says("state", "RESET"));
	CHECK(says("drv_sq_state", "stopped") && says("drv_sq_waits_for", "nothing"));
	CHECK(!strstr(seen, "drv_sq_oldest") && !strstr(seen, "drv_dgid"));
	pair_close(&a, &b);
}

static void described_v4(void)
{
	described(false);
}

static void described_v6(void)
{
	described(true);
}

/* More objects than one message of netlink holds. */
static void many(void)
{
	static struct end ends[64];

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		end_init(&ends[i], &r1, IBV_QPT_UD, 0);
		end_create(&ends[i]);
	}
	look("rdma -dd resource show qp");
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		CHECK_EQ(count(" lqpn %u ", ends[i].qp->qp_num), 1);
	/* The core has one queue pair on each device. */
	CHECK_EQ(count(" drv_sq_state "), ARRAY_LEN(ends) + 2);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		end_close(&ends[i]);
}

static atomic_bool ended;

static void *show_all(void *arg)
{
	static const char command[] =
		"for what in qp cq mr srq; do rdma -dd resource show $what >/dev/null || exit; "
		"done";
	int rounds = 4;

	while (rounds-- && !system(command))
		;
	atomic_store(&ended, true);
	return rounds < 0 ? NULL : "a command failed";
}

/* Objects are created, changed and destroyed while they are shown. */
static void coming_and_going(void)
{
	pthread_t shower;
	void *result;
	struct end a, b;

	atomic_store(&ended, false);
	CHECK_EQ(pthread_create(&shower, NULL, show_all, NULL), 0);
	while (!atomic_load(&ended)) {
		open_pair(&a, &b);
		pair_create(&a, &b);
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
		for (int i = 0; i < 20; i++)
			CHECK_EQ(mr_rereg(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, b.buf, LEN - i,
					  (uintptr_t)b.buf, NULL, 0), 0);
		pair_close(&a, &b);
	}
	CHECK_EQ(pthread_join(shower, &result), 0);
	CHECK(!result);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "resources: an idle queue pair", idle },
		{ "resources: a reader without privileges", unprivileged },
		{ "resources: an unresponsive peer", unanswered },
		{ "resources: a receiver that is not ready", no_receive },
		{ "resources: a slow net device", slow_device },
		{ "resources: the same beside idle queue pairs", idle_neighbours },
		{ "resources: a completion queue", completion_queue },
		{ "resources: a shared receive queue", shared_queue },
		{ "resources: regions", regions },
		{ "resources: a queue pair over IPv4", described_v4 },
		{ "resources: a queue pair over IPv6", described_v6 },
		{ "resources: many queue pairs", many },
		{ "resources: objects created, changed and destroyed", coming_and_going },
	};

	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
