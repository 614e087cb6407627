// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that the ferroce test programs share. See ferroce_util.h.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "ferroce_util.h"
#include "kselftest.h"

struct dev r1, r2;

static sigjmp_buf failed;
static bool in_child, in_test, skipped;
static unsigned long waited;
static time_t began;

/*
 * The number of polls, and the seconds, after which a missing event counts as lost. Both must have
 * passed: a slow machine polls seldom, and on a busy host the processor that has the work may not
 * run while this one polls.
 */
#define MAX_WAIT 8000000ul
#define MAX_SECONDS 60
/* A verb, and a program, take this many times as long as a poll of a ring. */
#define VERB_WEIGHT 40ul
#define PROGRAM_WEIGHT (4000 * VERB_WEIGHT)

static void give_up(void)
{
	fflush(stdout);
	if (in_child)
		_exit(1);
	if (in_test)
		siglongjmp(failed, 1);
	ksft_exit_fail_msg("the set-up failed\n");
}

void check(bool ok, const char *what, const char *func, int line)
{
	int err = errno;

	if (ok)
		return;
	printf("# %s:%d: failed: %s (errno %d, %s)\n", func, line, what, err, strerror(err));
	give_up();
}

void check_eq(long long got, long long wanted, const char *what, const char *func, int line)
{
	int err = errno;

	if (got == wanted)
		return;
	printf("# %s:%d: failed: %s: %lld, not %lld (errno %d)\n", func, line, what, got, wanted,
	       err);
	give_up();
}

void test_skip(const char *why)
{
	printf("# %s\n", why);
	skipped = true;
}

void shell(const char *format, ...)
{
	char command[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	fflush(stdout);
	if (system(command)) {
		printf("# failed: %s\n", command);
		give_up();
	}
}

pid_t child_fork(void)
{
	pid_t parent = getpid(), child;

	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child) {
		case_child(child);
		return child;
	}
	in_child = true;
	/* The parent cleans up the network. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	/* A child that is left over would keep the standard output open. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	return 0;
}

bool is_debug_kernel(void)
{
	struct utsname name;

	CHECK_EQ(uname(&name), 0);
	return strstr(name.release, "debug");
}

void stay_on_cpu(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

void wait_begin(void)
{
	waited = 0;
	began = seconds();
}

static void wait_weighted(const char *what, unsigned long weight)
{
	waited += weight;
	if (waited > MAX_WAIT && seconds() - began > MAX_SECONDS) {
		printf("# timed out waiting for %s\n", what);
		give_up();
	}
	sched_yield();
}

void wait_more(const char *what)
{
	wait_weighted(what, 1);
}

void wait_more_verb(const char *what)
{
	wait_weighted(what, VERB_WEIGHT);
}

void wait_more_program(const char *what)
{
	wait_weighted(what, PROGRAM_WEIGHT);
}

int find_gid(struct ibv_context *ctx, const union ibv_gid *gid, uint32_t ifindex)
{
	static struct ibv_gid_entry entries[1024];
	ssize_t n;

	n = ibv_query_gid_table(ctx, entries, ARRAY_LEN(entries), 0);
	CHECK(n >= 0);
	for (ssize_t i = 0; i < n; i++)
		if (entries[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    (!ifindex || entries[i].ndev_ifindex == ifindex) &&
		    !memcmp(&entries[i].gid, gid, sizeof(*gid)))
			return entries[i].gid_index;
	return -1;
}

struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	CHECK(list);
	for (int i = 0; list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

void dev_open(struct dev *dev, int number)
{
	char text[INET6_ADDRSTRLEN], name[8];

	snprintf(name, sizeof(name), "r%d", number);
	dev->ctx = open_device(name);
	CHECK(dev->ctx);
	CHECK_EQ(fcntl(dev->ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	dev->pd = ibv_alloc_pd(dev->ctx);
	CHECK(dev->pd);

	snprintf(text, sizeof(text), "::ffff:10.77.0.%d", number);
	inet_pton(AF_INET6, text, &dev->gid);
	snprintf(text, sizeof(text), "fd77::%d", number);
	inet_pton(AF_INET6, text, &dev->gid6);
	dev_wait(dev);
}

void dev_wait(struct dev *dev)
{
	struct ibv_port_attr port;

	wait_begin();
	for (;;) {
		dev->gid_index = find_gid(dev->ctx, &dev->gid, 0);
		dev->gid6_index = find_gid(dev->ctx, &dev->gid6, 0);
		CHECK_EQ(ibv_query_port(dev->ctx, 1, &port), 0);
		if (dev->gid_index >= 0 && dev->gid6_index >= 0 && port.state == IBV_PORT_ACTIVE)
			return;
		wait_more_verb("the port and its GIDs");
	}
}

void devs_open(void)
{
	dev_open(&r1, 1);
	dev_open(&r2, 2);
}

void run_tests(int argc, char **argv, void (*set_up)(void), const struct test *tests, size_t n)
{
	const char *only = argc > 1 ? argv[1] : "";
	size_t planned = 0;

	ksft_print_header();
	if (getuid())
		ksft_exit_skip("not root\n");
	if (system("grep -q '^ferroce ' /proc/modules"))
		ksft_exit_skip("the module ferroce is not loaded\n");
	net_up();
	devs_open();
	if (set_up)
		set_up();

	for (size_t i = 0; i < n; i++)
		planned += !!strstr(tests[i].name, only);
	ksft_set_plan(planned);
	for (size_t i = 0; i < n; i++) {
		if (!strstr(tests[i].name, only))
			continue;
		in_test = true;
		skipped = false;
		if (sigsetjmp(failed, 0)) {
			ksft_test_result_fail("%s\n", tests[i].name);
		} else {
			tests[i].run();
			if (skipped)
				ksft_test_result_skip("%s\n", tests[i].name);
			else
				ksft_test_result_pass("%s\n", tests[i].name);
		}
		in_test = false;
		case_end();
	}
	ksft_finished();
}

void end_init(struct end *e, struct dev *dev, enum ibv_qp_type type, size_t len)
{
	*e = (struct end) {
		.dev = dev,
		.type = type,
		.len = len,
		.cap = {
			.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64,
		},
		.cqe = 255,
		.mtu = IBV_MTU_1024,
		.access = FULL_ACCESS,
		.region = FULL_ACCESS,
		.psn = 0xfffff0,
		.timeout = 20, /* 4.3 s: a processor that fetches memory may stop. */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 1,
		.rd_atomic = 4,
	};
}

void end_create(struct end *e)
{
	struct ibv_qp_init_attr_ex init = {};

	if (e->len) {
		e->buf = mmap(NULL, e->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			      0);
		CHECK(e->buf != MAP_FAILED);
		e->mr = ibv_reg_mr(e->dev->pd, e->buf, e->len, e->region);
		CHECK(e->mr);
	}
	e->channel = ibv_create_comp_channel(e->dev->ctx);
	CHECK(e->channel);
	CHECK_EQ(fcntl(e->channel->fd, F_SETFL, O_NONBLOCK), 0);
	e->cq = ibv_create_cq(e->dev->ctx, e->cqe, NULL, e->channel, e->vector);
	CHECK(e->cq);
	init.send_cq = e->cq;
	init.recv_cq = e->cq;
	init.srq = e->srq;
	init.qp_type = e->type;
	init.cap = e->cap;
	if (e->ops) {
		init.pd = e->dev->pd;
		init.send_ops_flags = e->ops;
		init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		e->qp = ibv_create_qp_ex(e->dev->ctx, &init);
	} else {
		e->qp = ibv_create_qp(e->dev->pd, (struct ibv_qp_init_attr *)&init);
	}
	CHECK(e->qp);
	e->cap = init.cap;
}

void end_close(struct end *e)
{
	if (e->ah)
		CHECK_EQ(ibv_destroy_ah(e->ah), 0);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	CHECK_EQ(ibv_destroy_cq(e->cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(e->channel), 0);
	if (e->mr)
		CHECK_EQ(ibv_dereg_mr(e->mr), 0);
	if (e->buf)
		munmap(e->buf, e->len);
}

struct ibv_ah_attr end_path(struct end *from, struct end *to)
{
	return (struct ibv_ah_attr) {
		.is_global = 1,
		.port_num = 1,
		.static_rate = from->rate,
		.grh = {
			.dgid = from->v6 ? to->dev->gid6 : to->dev->gid,
			.sgid_index = from->v6 ? from->dev->gid6_index : from->dev->gid_index,
			.hop_limit = 64,
			.flow_label = FLOW_LABEL,
		},
	};
}

int end_change(struct end *e, struct end *peer, enum ibv_qp_state state, struct ibv_qp_attr *attr)
{
	bool rc = e->type == IBV_QPT_RC, ud = e->type == IBV_QPT_UD;
	bool raw = e->type == IBV_QPT_RAW_PACKET;
	int mask = IBV_QP_STATE;

	*attr = (struct ibv_qp_attr){ .qp_state = state };
	switch (state) {
	case IBV_QPS_INIT:
		attr->port_num = 1;
		attr->qkey = QKEY;
		attr->qp_access_flags = e->access;
		if (raw)
			return mask | IBV_QP_PORT;
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
		return mask | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		if (!ud && !raw) {
			attr->ah_attr = end_path(e, peer);
			attr->path_mtu = e->mtu;
			attr->dest_qp_num = peer->qp->qp_num;
			attr->rq_psn = peer->psn;
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		}
		if (rc) {
			attr->max_dest_rd_atomic = e->rd_atomic;
			attr->min_rnr_timer = e->min_rnr_timer;
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		}
		return mask;
	case IBV_QPS_RTS:
		if (raw)
			return mask;
		attr->sq_psn = e->psn;
		mask |= IBV_QP_SQ_PSN;
		if (rc) {
			attr->timeout = e->timeout;
			attr->retry_cnt = e->retry_cnt;
			attr->rnr_retry = e->rnr_retry;
			attr->max_rd_atomic = e->rd_atomic;
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
		}
		return mask;
	default:
		return mask;
	}
}

bool end_try(struct end *e, struct end *peer, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask;

	for (int to = IBV_QPS_INIT; to <= (int)state && to <= IBV_QPS_RTS; to++) {
		mask = end_change(e, peer, to, &attr);
		if (ibv_modify_qp(e->qp, &attr, mask))
			return false;
	}
	if (state < IBV_QPS_RTS)
		return true;
	if (e->type == IBV_QPT_UD && !e->ah) {
		struct ibv_ah_attr path = end_path(e, peer);

		e->ah = ibv_create_ah(e->dev->pd, &path);
		CHECK(e->ah);
	}
	if (state != IBV_QPS_RTS)
		end_modify(e, state);
	return true;
}

void end_to(struct end *e, struct end *peer, enum ibv_qp_state state)
{
	CHECK(end_try(e, peer, state));
}

void end_modify(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	CHECK_EQ(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
}

enum ibv_qp_state end_state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

void end_await(struct end *e, enum ibv_qp_state state)
{
	wait_begin();
	while (end_state(e) != state)
		wait_more_verb("a state of a queue pair");
}

void pair_open(struct end *a, struct end *b, enum ibv_qp_type type, size_t len)
{
	end_init(a, &r1, type, len);
	end_init(b, &r2, type, len);
	pair_create(a, b);
}

void pair_create(struct end *a, struct end *b)
{
	end_create(a);
	end_create(b);
	end_to(a, b, IBV_QPS_RTS);
	end_to(b, a, IBV_QPS_RTS);
}

void pair_close(struct end *a, struct end *b)
{
	end_close(a);
	end_close(b);
}

void make_send(struct ibv_send_wr *wr, struct ibv_sge *sge, struct end *e, struct end *to,
	       enum ibv_wr_opcode op, uint64_t wr_id, size_t off, uint32_t len, unsigned int flags)
{
	*sge = (struct ibv_sge){
		.addr = (uintptr_t)e->buf + off,
		.length = len,
		.lkey = e->mr ? e->mr->lkey : 0,
	};
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = op,
		.send_flags = flags,
		.imm_data = htonl(wr_id),
	};
	if (e->type == IBV_QPT_UD) {
		wr->wr.ud.ah = e->ah;
		wr->wr.ud.remote_qpn = to->qp->qp_num;
		wr->wr.ud.remote_qkey = QKEY;
	} else if (to && to->mr) {
		wr->wr.rdma.remote_addr = (uintptr_t)to->buf + off;
		wr->wr.rdma.rkey = to->mr->rkey;
	}
}

void make_chain(struct ibv_send_wr *wrs, struct ibv_sge *sges, int n, struct end *e, struct end *to,
		enum ibv_wr_opcode op, uint32_t len, unsigned int flags)
{
	for (int i = 0; i < n; i++) {
		make_send(&wrs[i], &sges[i], e, to, op, i, 0, len, flags);
		if (i)
			wrs[i - 1].next = &wrs[i];
	}
}

struct ibv_qp_ex *ex_begin(struct end *e, uint64_t wr_id, unsigned int flags)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(e->qp);

	CHECK(qp);
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = flags;
	return qp;
}

void ex_post(struct end *e)
{
	CHECK_EQ(ibv_wr_complete(ibv_qp_to_qp_ex(e->qp)), 0);
}

void post_wr(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK_EQ(ibv_post_send(e->qp, wr, &bad), 0);
}

void post_send(struct end *e, struct end *to, enum ibv_wr_opcode op, uint64_t wr_id, size_t off,
	       uint32_t len, unsigned int flags)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, e, to, op, wr_id, off, len, flags);
	post_wr(e, &wr);
}

void post_recv(struct end *e, uint64_t wr_id, size_t off, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf + off,
		.length = len,
		.lkey = e->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (e->srq)
		CHECK_EQ(ibv_post_srq_recv(e->srq, &wr, &bad), 0);
	else
		CHECK_EQ(ibv_post_recv(e->qp, &wr, &bad), 0);
}

void doorbell(struct end *e)
{
	struct ibv_sge none[256] = {};
	struct ibv_send_wr wr = { .sg_list = none, .num_sge = e->cap.max_send_sge + 1 }, *bad;

	/* The library refuses the request, but rings the doorbell all the same. */
	CHECK(ibv_post_send(e->qp, &wr, &bad));
}

struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	wait_begin();
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		wait_more("a completion");
	CHECK_EQ(n, 1);
	return wc;
}

struct ibv_wc expect(struct end *e, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(e->cq);

	if (wc.wr_id != wr_id || wc.status != status)
		printf("# completion of %#llx: %s\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status));
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.wr_id, wr_id);
	CHECK_EQ(wc.qp_num, e->qp->qp_num);
	return wc;
}

void expect_none(struct end *e)
{
	struct ibv_wc wc;

	CHECK_EQ(ibv_poll_cq(e->cq, 1, &wc), 0);
}
