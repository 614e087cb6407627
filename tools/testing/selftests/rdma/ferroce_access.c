// SPDX-License-Identifier: GPL-2.0
/*
 * Remote access to memory, and the errors of bad requests: RDMA WRITE and READ with bad keys,
 * bounds and rights, messages that do not fit, receivers that are not ready and peers that are
 * gone.
 */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "ferroce_stat.h"

#define LEN 16384
/*
 * The region of the target is in the middle of the buffer, so that writes outside it, on either
 * side, show.
 */
#define AT 4096
#define ROOM 8192

enum fault {
	WRONG_KEY,
	OTHER_PD,
	DEREGISTERED,
	BEFORE,
	BEYOND,
	TOO_LONG,
	WRAPS,
	NO_RIGHT,
	FAULTS
};

static const char *const fault_names[] = {
	"wrong key",
	"other protection domain",
	"deregistered",
	"a byte before",
	"a byte beyond",
	"too long",
	"wraps around",
	"no right",
};

static void one_fault(enum ibv_wr_opcode op, enum fault fault, bool is_rc, enum ibv_mtu mtu)
{
	/* Only the packet with the immediate data takes a receive request. */
	bool takes = op == IBV_WR_RDMA_WRITE_WITH_IMM && mtu == IBV_MTU_4096 && fault != TOO_LONG;
	struct ibv_pd *pd = ibv_alloc_pd(r2.ctx);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct end a, b;

	printf("# opcode %d: %s\n", op, fault_names[fault]);
	end_init(&a, &r1, is_rc ? IBV_QPT_RC : IBV_QPT_UC, LEN);
	end_init(&b, &r2, is_rc ? IBV_QPT_RC : IBV_QPT_UC, LEN);
	a.mtu = mtu;
	b.mtu = mtu;
	pair_create(&a, &b);
	memset(a.buf, 0x11, LEN);
	memset(b.buf, 0x22, LEN);
	if (fault == NO_RIGHT)
		access &= ~(op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
						     IBV_ACCESS_REMOTE_WRITE);
	mr = ibv_reg_mr(fault == OTHER_PD ? pd : r2.pd, b.buf + AT, ROOM, access);
	CHECK(mr);
	make_send(&wr, &sge, &a, &b, op, 1, AT, 3000, IBV_SEND_SIGNALED);
	wr.wr.rdma.rkey = mr->rkey;
	switch (fault) {
	case WRONG_KEY:
		wr.wr.rdma.rkey ^= 1;
		break;
	case DEREGISTERED:
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		mr = NULL;
		break;
	case BEFORE:
		wr.wr.rdma.remote_addr -= 1;
		break;
	case BEYOND:
		wr.wr.rdma.remote_addr += ROOM - 2999;
		break;
	case TOO_LONG:
		sge.length = ROOM + 1;
		break;
	case WRAPS:
		wr.wr.rdma.remote_addr = UINT64_MAX - 1000;
		break;
	default:
		break;
	}
	if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
		post_recv(&b, 9, LEN - 64, 64);
	post_wr(&a, &wr);
	if (is_rc) {
		expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
		end_await(&a, IBV_QPS_ERR);
		end_await(&b, IBV_QPS_ERR);
		if (op == IBV_WR_RDMA_WRITE_WITH_IMM)
			expect(&b, 9, takes ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
		/* The consumer of the target gets one asynchronous error (C9-222.1). */
		if (!takes)
			expect_event(&b, IBV_EVENT_QP_ACCESS_ERR);
		CHECK(!have_event(&b));
	} else {
		expect(&a, 1, IBV_WC_SUCCESS);
		/* Neither side gets an error, and the next message arrives. */
		post_recv(&b, 10, LEN - 64, 64);
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
		expect(&a, 2, IBV_WC_SUCCESS);
		expect(&b, op == IBV_WR_RDMA_WRITE_WITH_IMM ? 9 : 10, IBV_WC_SUCCESS);
		CHECK(all_bytes(b.buf + LEN - 64, 64, 0x11));
		memset(b.buf + LEN - 64, 0x22, 64);
	}
	CHECK(all_bytes(b.buf, LEN, 0x22));
	CHECK(all_bytes(a.buf, LEN, 0x11));
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	pair_close(&a, &b);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void test_rc_write(void)
{
	for (int fault = 0; fault < FAULTS; fault++)
		one_fault(IBV_WR_RDMA_WRITE, fault, true, IBV_MTU_1024);
}

static void test_rc_write_imm(void)
{
	for (int fault = 0; fault < FAULTS; fault++) {
		one_fault(IBV_WR_RDMA_WRITE_WITH_IMM, fault, true, IBV_MTU_1024);
		one_fault(IBV_WR_RDMA_WRITE_WITH_IMM, fault, true, IBV_MTU_4096);
	}
}

static void test_rc_read(void)
{
	for (int fault = 0; fault < FAULTS; fault++) {
		/* READs of more packets are requested in parts: those before the fault succeed. */
		enum ibv_mtu mtu = fault == TOO_LONG ? IBV_MTU_4096 : IBV_MTU_1024;

		one_fault(IBV_WR_RDMA_READ, fault, true, mtu);
	}
}

static void test_uc_write(void)
{
	for (int fault = 0; fault < FAULTS; fault++) {
		one_fault(IBV_WR_RDMA_WRITE, fault, false, IBV_MTU_1024);
		one_fault(IBV_WR_RDMA_WRITE_WITH_IMM, fault, false, IBV_MTU_4096);
	}
}

/* Requests of zero length are valid with any key and address. */
static void test_no_length(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						  IBV_WR_RDMA_READ };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	for (int is_rc = 0; is_rc < 2; is_rc++) {
		pair_open(&a, &b, is_rc ? IBV_QPT_RC : IBV_QPT_UC, LEN);
		memset(b.buf, 0x22, LEN);
		for (size_t i = 0; i < ARRAY_LEN(ops) - !is_rc; i++) {
			make_send(&wr, &sge, &a, &b, ops[i], i, 0, 0, IBV_SEND_SIGNALED);
			wr.num_sge = 0;
			wr.wr.rdma.rkey = i ? 0 : 0x12345;
			wr.wr.rdma.remote_addr = UINT64_MAX;
			post_recv(&b, i, 0, 1);
			post_wr(&a, &wr);
			expect(&a, i, IBV_WC_SUCCESS);
			if (ops[i] == IBV_WR_RDMA_WRITE_WITH_IMM)
				CHECK_EQ(expect(&b, 0, IBV_WC_SUCCESS).byte_len, 0);
			else
				expect_none(&b);
		}
		CHECK_EQ(end_state(&b), IBV_QPS_RTS);
		CHECK(all_bytes(b.buf, LEN, 0x22));
		pair_close(&a, &b);
	}
}

/* The queue pair of the target does not allow the access that the region allows. */
static void test_qp_rights(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct end a, b;

	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &r2, IBV_QPT_RC, LEN);
		b.access = i ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
		pair_create(&a, &b);
		memset(a.buf, 0x11, LEN);
		memset(b.buf, 0x22, LEN);
		post_send(&a, &b, ops[i], 1, AT, 64, IBV_SEND_SIGNALED);
		/* C9-87 requires Invalid Request; other devices send Remote Access Error. */
		expect(&a, 1, IBV_WC_REM_INV_REQ_ERR);
		end_await(&a, IBV_QPS_ERR);
		end_await(&b, IBV_QPS_ERR);
		CHECK(all_bytes(b.buf, LEN, 0x22));
		CHECK(all_bytes(a.buf, LEN, 0x11));
		expect_event(&b, IBV_EVENT_QP_REQ_ERR);
		pair_close(&a, &b);
	}
}

/*
 * The requester may not have more READs outstanding than the target can remember. If that is none,
 * a READ is an error.
 */
static void test_no_reads(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.rd_atomic = 0;
	b.rd_atomic = 0;
	pair_create(&a, &b);
	memset(a.buf, 0x11, LEN);
	post_send(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK(all_bytes(a.buf, LEN, 0x11));
	pair_close(&a, &b);
}

/* Many READs and WRITEs at once, more than either side keeps in flight. */
static void test_many_reads(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	fill(b.buf, LEN / 2, 5);
	for (uint64_t i = 0; i < 60; i++)
		post_send(&a, &b, i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i,
			  i & 1 ? 128 * i : LEN - 64, i & 1 ? 64 : 8, IBV_SEND_SIGNALED);
	for (uint64_t i = 0; i < 60; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	for (uint64_t i = 1; i < 60; i += 2)
		CHECK(!memcmp(a.buf + 128 * i, b.buf + 128 * i, 64));
	pair_close(&a, &b);
}

/* A SEND longer than the posted receive buffer. */
static void test_send_too_long(void)
{
	static const uint32_t lens[] = { 65, 1024, 1025, 5000 };
	struct end a, b;

	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
			uint32_t grh = type == IBV_QPT_UD ? GRH_LEN : 0;

			if (grh && lens[i] > 4096)
				continue;
			pair_open(&a, &b, type, LEN);
			memset(a.buf, 0x11, LEN);
			memset(b.buf, 0x22, LEN);
			post_recv(&b, 3, AT, lens[i] - 1 + grh);
			post_send(&a, &b, IBV_WR_SEND, 1, 0, lens[i], IBV_SEND_SIGNALED);
			expect(&b, 3, IBV_WC_LOC_LEN_ERR);
			expect(&a, 1, type == IBV_QPT_RC ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
			if (grh)
				CHECK_EQ(end_state(&b), IBV_QPS_RTS);
			else
				end_await(&b, IBV_QPS_ERR);
			CHECK(all_bytes(b.buf, AT, 0x22));
			CHECK(all_bytes(b.buf + AT + lens[i] - 1 + grh,
					LEN - AT - lens[i] + 1 - grh, 0x22));
			pair_close(&a, &b);
		}
	}
}

/* No receive is posted: the sender gives up after rnr_retry retries. */
static void test_rnr(void)
{
	struct end a, b;
	long long before;

	shell("echo 0 >/sys/class/infiniband/r1/ports/1/hw_counters/lifespan");
	for (int retries = 0; retries < 3; retries++) {
		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &r2, IBV_QPT_RC, LEN);
		a.rnr_retry = retries;
		pair_create(&a, &b);
		before = port_file("r1", "hw_counters", "rcvd_rnr_err");
		post_send(&a, &b, IBV_WR_SEND, 1, 0, 64, 0);
		post_send(&a, &b, IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
		expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
		end_await(&a, IBV_QPS_ERR);
		/* The kernel caches counters for a jiffy. */
		wait_begin();
		while (port_file("r1", "hw_counters", "rcvd_rnr_err") < before + retries + 1)
			wait_more_program("RNR NAKs");
		CHECK_EQ(port_file("r1", "hw_counters", "rcvd_rnr_err"), before + retries + 1);
		CHECK_EQ(end_state(&b), IBV_QPS_RTS);
		pair_close(&a, &b);
	}
	/* An rnr_retry of 7 means forever: the queries last longer than fewer retries would. */
	pair_open(&a, &b, IBV_QPT_RC, LEN);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(end_state(&a), IBV_QPS_RTS);
	expect_none(&a);
	post_recv(&b, 2, 0, 64);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* The peer's queue pair is destroyed, reset, or connected to another one. */
static void test_peer_gone(void)
{
	struct end a, b;

	for (int kind = 0; kind < 3; kind++) {
		end_init(&a, &r1, IBV_QPT_RC, LEN);
		end_init(&b, &r2, IBV_QPT_RC, LEN);
		a.timeout = 10;
		a.retry_cnt = 2;
		end_create(&a);
		end_create(&b);
		end_to(&a, &b, IBV_QPS_RTS);
		end_to(&b, kind == 2 ? &b : &a, IBV_QPS_RTS);
		post_recv(&b, 1, 0, 64);
		if (kind == 0)
			end_close(&b);
		else if (kind == 1)
			end_modify(&b, IBV_QPS_RESET);
		post_send(&a, NULL, IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
		post_send(&a, NULL, IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
		expect(&a, 2, IBV_WC_WR_FLUSH_ERR);
		end_await(&a, IBV_QPS_ERR);
		end_close(&a);
		if (kind) {
			expect_none(&b);
			end_close(&b);
		}
	}
}

#define WORKER_CPUS "/sys/devices/virtual/workqueue/cpumask"

/* Refuses the last of `n` READs. The responses to the others stay ahead of the NAK. */
static void refuse(struct end *a, struct end *b, int n)
{
	struct ibv_send_wr wrs[2];
	struct ibv_sge sges[2];

	make_chain(wrs, sges, n, a, b, IBV_WR_RDMA_READ, 1000, IBV_SEND_SIGNALED);
	wrs[n - 1].wr.rdma.rkey ^= 1;
	post_wr(a, wrs);
	for (int i = 0; i < n - 1; i++)
		expect(a, i, IBV_WC_SUCCESS);
	expect(a, n - 1, IBV_WC_REM_ACCESS_ERR);
	CHECK(n == 1 || filled(a->buf, 1000, 1));
	expect_event(b, IBV_EVENT_QP_ACCESS_ERR);
	end_await(a, IBV_QPS_ERR);
}

/* The peer disconnects as soon as it has a message, whose acknowledgment was lost. */
static void disconnect(struct end *a, struct end *b, int n)
{
	post_recv(b, n, 0, 64);
	post_send(a, b, IBV_WR_SEND, n, 0, 64, IBV_SEND_SIGNALED);
	expect(b, n, IBV_WC_SUCCESS);
	end_modify(b, IBV_QPS_ERR);
	expect(a, n, IBV_WC_SUCCESS);
}

/*
 * The queue of the peer has room for one packet and holds it for 20 ms: first that of a WRITE. So
 * all packets that `finish` elicits have to wait, for less than the 50 ms after which they count as
 * lost. Returns whether they did: on a slow host, the WRITE may be gone.
 */
static bool in_full_queue(void (*finish)(struct end *a, struct end *b, int n), int n)
{
	struct stats before, after;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	fill(b.buf, LEN, 1);
	stats_read(&before, "show link r2/1");
	shell_undo("tc -n n2 qdisc del dev v2 root",
		   "tc -n n2 qdisc add dev v2 root netem limit 1 delay 20ms");
	post_send(&b, &a, IBV_WR_RDMA_WRITE, 0, ROOM, 64, 0);
	finish(&a, &b, n);
	undo_last();
	stats_read(&after, "show link r2/1");
	pair_close(&a, &b);
	return stats_get(&after, "tx_queue_full") > stats_get(&before, "tx_queue_full");
}

/* On one CPU, the timer of the queue is not late if those of the queue pair are in time. */
static void until_full(void (*finish)(struct end *a, struct end *b, int n), int n)
{
	bool was_full = false;

	stay_on_cpu(0);
	shell_undo("cat /run/ferroce_cpumask >" WORKER_CPUS,
		   "cp " WORKER_CPUS " /run/ferroce_cpumask && echo 1 >" WORKER_CPUS);
	for (int i = 0; i < 20 && !was_full; i++)
		was_full = in_full_queue(finish, n);
	undo_last();
	if (!was_full)
		test_skip("the queue was never full");
}

/* No retry elicits the NAK again, because the peer is in ERR. */
static void test_nak_waits(void)
{
	until_full(refuse, 1);
}

static void test_nak_waits_for_responses(void)
{
	until_full(refuse, 2);
}

static void test_ack_waits(void)
{
	until_full(disconnect, 1);
}

/* Sets the number of transmit queues of v2. */
static void set_tx_queues(int n)
{
	struct ethtool_channels channels = {
		.cmd = ETHTOOL_SCHANNELS,
		.rx_count = 1,
		.tx_count = n,
	};
	struct ifreq ifr = { .ifr_name = "v2", .ifr_data = (void *)&channels };
	int before = enter_ns("n2"), fd;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	CHECK_EQ(ioctl(fd, SIOCETHTOOL, &ifr), 0);
	close(fd);
	leave_ns(before);
}

/*
 * Another CPU refuses a WRITE while READ responses wait in the queue of the first one. That lets 20
 * kB pass at once. veth returns packets just before it queues them for the peer, so a NAK may
 * overtake them there, once in a while. With RPS it cannot overtake them later.
 */
static void test_nak_of_other_cpu(void)
{
	const int rounds = 6;
	int in_order = 0;
	struct end a, b;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return test_skip("only one CPU");
	if (is_debug_kernel())
		return test_skip("the debug kernel has no tbf");
	set_tx_queues(2);
	receive_in_order(1);
	shell_undo("tc -n n2 qdisc del dev v2 root",
		   "ip netns exec n2 sh -ec 'cd /sys/class/net/v2/queues;"
		   "echo 1 >tx-0/xps_cpus; echo 2 >tx-1/xps_cpus;"
		   "tc qdisc add dev v2 root handle 1: mq;"
		   "tc qdisc add dev v2 parent 1:1 tbf rate 8mbit burst 20000 limit 100000'");
	for (int i = 0; i < rounds; i++) {
		struct ibv_wc wc;

		pair_open(&a, &b, IBV_QPT_RC, LEN);
		stay_on_cpu(0);
		/*
		 * A poll counts only after the next completion. Without this WRITE, WRITE 5 would
		 * be left to the work item, which may run on the first CPU.
		 */
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 4, 0, 64, IBV_SEND_SIGNALED);
		expect(&a, 4, IBV_WC_SUCCESS);
		fill(b.buf, LEN, i);
		post_send(&a, &b, IBV_WR_RDMA_READ, 1, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
		post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, LEN, IBV_SEND_SIGNALED);
		stay_on_cpu(1);
		b.mr->rkey ^= 0x100;
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 5, 0, 64, IBV_SEND_SIGNALED);
		b.mr->rkey ^= 0x100;
		wc = next_wc(a.cq);
		CHECK_EQ(wc.wr_id, 2);
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK(filled(a.buf, LEN, i));
			in_order++;
		}
		expect(&a, 5, IBV_WC_REM_ACCESS_ERR);
		pair_close(&a, &b);
	}
	undo_last();
	set_tx_queues(1);
	CHECK(in_order > rounds / 2);
}

static const struct test tests[] = {
	{ "RC, bad WRITEs", test_rc_write },
	{ "RC, bad WRITEs with immediate data", test_rc_write_imm },
	{ "RC, bad READs", test_rc_read },
	{ "UC, bad WRITEs", test_uc_write },
	{ "zero length, any key", test_no_length },
	{ "rights of the queue pair", test_qp_rights },
	{ "READ with max_rd_atomic 0", test_no_reads },
	{ "many READs", test_many_reads },
	{ "SENDs longer than the buffer", test_send_too_long },
	{ "receiver not ready", test_rnr },
	{ "peer gone", test_peer_gone },
	{ "a NAK waits for room", test_nak_waits },
	{ "a NAK and the responses before it wait for room", test_nak_waits_for_responses },
	{ "the last acknowledgment waits for room", test_ack_waits },
	{ "a NAK of another CPU stays behind the responses", test_nak_of_other_cpu },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
