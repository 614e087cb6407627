// SPDX-License-Identifier: GPL-2.0
/*
 * Tracepoints: the events and their fields.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <rdma/rdma_netlink.h>
#include "ferroce_look.h"

#define TRACING "/sys/kernel/tracing/"
#define EVENTS TRACING "events/ferroce/enable"
/* The length of packets over IPv4. "payload" includes all headers after the BTH. */
#define PACKETS(packets, payload) ((packets) * (20 + 8 + 12 + 4) + (payload))
#define AETH 4
#define RETH 16

/* The number of requests with one doorbell. */
#define CHAIN 3
/* The number of requests that a process sends itself if it does not poll. */
#define MAX_DIRECT 2
/* The initial window. */
#define WINDOW 16
/* The reason why a queue pair drops packets in RESET. */
#define DROP_REASON "rx_bad_state"

static void trace_on(void)
{
	shell("echo 0 >" EVENTS " && echo >" TRACING "trace && echo 1 >" EVENTS);
}

static void read_trace(void)
{
	read_all("cat " TRACING "trace");
}

static void await_events(const char *text, int wanted)
{
	wait_begin();
	for (;;) {
		read_trace();
		if (count("%s", text) >= wanted)
			return;
		wait_more_program(text);
	}
}

/* Returns whether a packet was traced as sent or received. */
static bool packet(const char *event, const char *device, uint32_t qpn, const char *opcode,
		   unsigned int psn, unsigned int len)
{
	return has("ferroce_%s: device=%s qpn=%u opcode=%s psn=%u len=%u\n", event, device, qpn,
		   opcode, psn, len);
}

/* Returns whether packets were traced as handed over together. */
static bool train(const char *device, uint32_t qpn, const char *half, int packets, int bytes,
		  const char *result)
{
	return has("ferroce_train: device=%s qpn=%u half=%s packets=%d bytes=%d result=%s\n",
		   device, qpn, half, packets, bytes, result);
}

static void traced_send(void)
{
	struct end a, b;
	uint32_t qa, qb;

	open_pair(&a, &b);
	pair_create(&a, &b);
	qa = a.qp->qp_num;
	qb = b.qp->qp_num;
	post_recv(&b, 2, 0, 20);
	trace_on();
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 10, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	read_trace();
	CHECK(packet("send", "r1", qa, "RC_SEND_ONLY", 1000, 10));
	CHECK(packet("receive", "r2", qb, "RC_SEND_ONLY", 1000, 10));
	CHECK(has("ferroce_ack: device=r2 qpn=%u sent psn=1000 syndrome=ACK value=31 msn=1\n", qb));
	CHECK(packet("receive", "r1", qa, "RC_ACKNOWLEDGE", 1000, 0));
	CHECK(has("ferroce_ack: device=r1 qpn=%u received psn=1000 syndrome=ACK ", qa));
	/* One packet makes no train, but is handed over like one. */
	CHECK(train("r1", qa, "send", 1, PACKETS(1, 12), "sent"));
	CHECK_EQ(count(": device="), 6);

	trace_on();
	post_send(&a, &b, IBV_WR_RDMA_READ, 3, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 3, IBV_WC_SUCCESS);
	read_trace();
	CHECK(packet("send", "r1", qa, "RC_RDMA_READ_REQUEST", 1001, 0));
	CHECK(packet("send", "r2", qb, "RC_RDMA_READ_RESPONSE_FIRST", 1001, 1024));
	CHECK(packet("send", "r2", qb, "RC_RDMA_READ_RESPONSE_MIDDLE", 1002, 1024));
	CHECK(packet("receive", "r1", qa, "RC_RDMA_READ_RESPONSE_LAST", 1003, 952));

	/* Events that are off are not traced. */
	shell("echo 0 >" EVENTS " && echo >" TRACING "trace");
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 4, 0, 10, IBV_SEND_SIGNALED);
	expect(&a, 4, IBV_WC_SUCCESS);
	read_trace();
	CHECK_EQ(count(": device="), 0);
	pair_close(&a, &b);
}

/* Posts requests of one length with one doorbell, and waits for the last one. */
static void post_chain(struct end *a, struct end *b, enum ibv_wr_opcode op, unsigned int len)
{
	struct ibv_send_wr wrs[CHAIN];
	struct ibv_sge sges[CHAIN];

	make_chain(wrs, sges, CHAIN, a, b, op, len, 0);
	wrs[CHAIN - 1].send_flags = IBV_SEND_SIGNALED;
	post_wr(a, wrs);
	expect(a, CHAIN - 1, IBV_WC_SUCCESS);
}

/* Packets of several requests leave in one train. */
static void traced_train_of_messages(void)
{
	struct end a, b;
	uint32_t qa;

	open_pair(&a, &b);
	pair_create(&a, &b);
	qa = a.qp->qp_num;
	trace_on();
	post_chain(&a, &b, IBV_WR_RDMA_WRITE, 10);
	post_chain(&a, &b, IBV_WR_RDMA_READ, 10);
	read_trace();
	CHECK(train("r1", qa, "send", CHAIN, PACKETS(CHAIN, CHAIN * (RETH + 12)), "sent"));
	CHECK(train("r1", qa, "send", CHAIN, PACKETS(CHAIN, CHAIN * RETH), "sent"));
	pair_close(&a, &b);
}

/* With a static rate each packet leaves alone. */
static void traced_packets_of_static_rate(void)
{
	struct end a, b;

	open_pair(&a, &b);
	a.rate = IBV_RATE_2_5_GBPS;
	pair_create(&a, &b);
	trace_on();
	post_chain(&a, &b, IBV_WR_RDMA_WRITE, 10);
	read_trace();
	CHECK_EQ(count("ferroce_send: device=r1 "), CHAIN);
	CHECK_EQ(count("ferroce_train: device=r1 "), 0);
	pair_close(&a, &b);
}

static void traced_train(void)
{
	struct end a, b;
	uint32_t qa, qb;

	open_pair(&a, &b);
	a.timeout = 0;
	pair_create(&a, &b);
	qa = a.qp->qp_num;
	qb = b.qp->qp_num;
	trace_on();
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_SUCCESS);
	read_trace();
	CHECK(train("r1", qa, "send", 3, PACKETS(3, RETH + 3000), "sent"));
	CHECK(train("r1", qa, "send", 1, PACKETS(1, RETH), "sent"));
	CHECK(train("r2", qb, "receive", 3, PACKETS(3, 2 * AETH + 3000), "sent"));
	/* Acknowledgments are not handed over together. */
	CHECK_EQ(count("ferroce_train: "), 3);

	/* A queue with room for one packet, and for no train. */
	trace_on();
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root bfifo limit 1500");
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 3, IBV_WC_SUCCESS);
	undo_last();
	read_trace();
	CHECK(train("r1", qa, "send", 3, PACKETS(3, RETH + 3000), "refused"));
	CHECK_EQ(count("ferroce_train: "), 1);
	CHECK_EQ(count("ferroce_send: device=r1 "), 6);

	pair_close(&a, &b);

	/* No route, at three attempts: a train that never left is not sent as single packets. */
	open_pair(&a, &b);
	a.v6 = true;
	b.v6 = true;
	/* 4 ms. */
	a.timeout = 10;
	a.retry_cnt = 2;
	pair_create(&a, &b);
	shell_undo("ip -n n1 -6 route add fd77::/64 dev v1", "ip -n n1 -6 route del fd77::/64");
	trace_on();
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	undo_last();
	read_trace();
	CHECK(train("r1", a.qp->qp_num, "send", 3, PACKETS(3, 3 * 20 + RETH + 3000), "lost"));
	CHECK_EQ(count("ferroce_train: "), 3);
	pair_close(&a, &b);
}

/*
 * Posts a WRITE, and waits for its acknowledgment without polling. Returns whether this process
 * has sent it.
 */
static bool sends_itself(struct end *a, struct end *b, int number)
{
	char acked[80];

	trace_on();
	post_send(a, b, IBV_WR_RDMA_WRITE, number, 0, 10, IBV_SEND_SIGNALED);
	snprintf(acked, sizeof(acked), "ferroce_ack: device=r1 qpn=%u received psn=%d ",
		 a->qp->qp_num, PSN_A + number);
	await_events(acked, 1);
	read_all("grep -m 1 'ferroce_send: device=r1 ' " TRACING "trace");
	return count("-%d ", getpid());
}

/*
 * A process that keeps posting without polling leaves its requests to the work item. Here only
 * the timer queues it: no response is due, and no other request follows.
 */
static void traced_batch(void)
{
	struct end a, b;
	int number = 0;

	open_pair(&a, &b);
	pair_create(&a, &b);
	for (; number < MAX_DIRECT; number++)
		CHECK(sends_itself(&a, &b, number));
	for (; number < MAX_DIRECT + 3; number++)
		CHECK(!sends_itself(&a, &b, number));
	for (int i = 0; i < number; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

static void traced_rnr(void)
{
	struct end a, b;

	open_pair(&a, &b);
	/* 10 ms. */
	b.min_rnr_timer = 20;
	pair_create(&a, &b);
	trace_on();
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 10, IBV_SEND_SIGNALED);
	await_events("ferroce_retry: device=r1 ", 1);
	CHECK(has("ferroce_retry: device=r1 qpn=%u psn=1000 left=7 reason=rcvd_rnr_err\n",
		  a.qp->qp_num));
	CHECK(has("qpn=%u sent psn=1000 syndrome=RNR value=20 msn=0\n", b.qp->qp_num));
	CHECK(has("qpn=%u received psn=1000 syndrome=RNR value=20 msn=0\n", a.qp->qp_num));
	post_recv(&b, 2, 0, 20);
	expect(&a, 1, IBV_WC_SUCCESS);
	expect(&b, 2, IBV_WC_SUCCESS);
	pair_close(&a, &b);
}

/* After an RNR wait, the timer leaves all packets to the work item. */
static void traced_packets_of_timer(void)
{
	struct ibv_send_wr wrs[WINDOW];
	struct ibv_sge sges[WINDOW];
	struct end a, b;

	open_pair(&a, &b);
	a.rnr_retry = 1;
	pair_create(&a, &b);
	make_chain(wrs, sges, WINDOW, &a, &b, IBV_WR_SEND, 10, 0);
	trace_on();
	post_wr(&a, wrs);
	expect(&a, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	read_trace();
	CHECK(count("ferroce_send: device=r1 ") > WINDOW);
	read_all("grep -c ' \\[[0-9]*\\] ..s.*: ferroce_send: device=r1 ' " TRACING
		 "trace || true");
	CHECK_EQ(strtoul(seen, NULL, 10), 0);
	pair_close(&a, &b);
}

static void traced_timeout(void)
{
	struct end a, b;
	uint32_t qa;

	open_pair(&a, &b);
	/* 4 ms. */
	a.timeout = 10;
	a.retry_cnt = 2;
	pair_create(&a, &b);
	qa = a.qp->qp_num;
	end_modify(&b, IBV_QPS_RESET);
	trace_on();
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 10, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	/* On a slow machine the peer drops the last packet later than the requester gives up. */
	await_events("ferroce_drop: ", 3);
	CHECK_EQ(count("ferroce_send: device=r1 qpn=%u opcode=RC_SEND_ONLY psn=1000 len=10\n", qa),
		 3);
	CHECK_EQ(count("ferroce_drop: device=r2 qpn=%u opcode=RC_SEND_ONLY psn=1000 len=10 ",
		       b.qp->qp_num), 3);
	CHECK_EQ(count(" len=10 reason=" DROP_REASON "\n"), 3);
	CHECK_EQ(count("ferroce_retry: device=r1 qpn=%u psn=1000 ", qa), 3);
	CHECK(has(" left=1 reason=ack_timeout\n"));
	CHECK(has(" left=0 reason=ack_timeout\n"));
	CHECK(has(" left=0 reason=given_up\n"));
	pair_close(&a, &b);
}

/* Packets to a queue pair that does not exist, and to the internal number of a management one. */
static void traced_stray(void)
{
	uint32_t numbers[] = { 0xabcdef, 0 };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_UD, LEN);
	end_init(&b, &r2, IBV_QPT_UD, LEN);
	a.psn = PSN_A;
	pair_create(&a, &b);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 1, 0, 100, IBV_SEND_SIGNALED);
	read_all("rdma -dd resource show qp link r2/1 lqpn 1");
	numbers[1] = number("drv_number");
	CHECK(numbers[1] > 1);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		wr.wr.ud.remote_qpn = numbers[i];
		trace_on();
		post_wr(&a, &wr);
		expect(&a, 1, IBV_WC_SUCCESS);
		await_events("ferroce_drop: ", 1);
		CHECK(has("device=r2 qpn=%u opcode=UD_SEND_ONLY psn=%zu len=100 reason=rx_no_qp\n",
			  numbers[i], PSN_A + i));
	}
	pair_close(&a, &b);
}

static atomic_bool ended;

static void *switch_events(void *arg)
{
	static const char command[] =
		"for i in $(seq 4); do echo 1 >" EVENTS " && echo 0 >" EVENTS " || exit; done";
	int failed = system(command);

	atomic_store(&ended, true);
	return failed ? "the switch failed" : NULL;
}

/* The branches in the code are patched while other processors run it. */
static void switched(void)
{
	pthread_t switcher;
	struct end a, b;
	void *result;

	open_pair(&a, &b);
	pair_create(&a, &b);
	atomic_store(&ended, false);
	CHECK_EQ(pthread_create(&switcher, NULL, switch_events, NULL), 0);
	while (!atomic_load(&ended)) {
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
	}
	CHECK_EQ(pthread_join(switcher, &result), 0);
	CHECK(!result);
	pair_close(&a, &b);
	/* The events stay on for the next test and for the unload of the module. */
	trace_on();
}

/* A name of the longest kind, which begins like the usual one. */
#define LONG_NAME "r1xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define WRITES 1000

/* One request to the RDMA core, as "rdma dev set" sends it. A program would take long to start. */
static bool rename_to(int fd, uint32_t index, const char *name)
{
	struct {
		struct nlmsghdr head;
		struct nlattr index_attr;
		uint32_t index;
		struct nlattr name_attr;
		char name[64];
	} request = {
		.head = {
			.nlmsg_len = sizeof(request),
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.index_attr = { NLA_HDRLEN + sizeof(uint32_t), RDMA_NLDEV_ATTR_DEV_INDEX },
		.index = index,
		.name_attr = { NLA_HDRLEN + sizeof(request.name), RDMA_NLDEV_ATTR_DEV_NAME },
	};
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[256];
	} answer;

	strcpy(request.name, name);
	return send(fd, &request, sizeof(request), 0) == sizeof(request) &&
	       recv(fd, &answer, sizeof(answer), 0) > 0 &&
	       answer.head.nlmsg_type == NLMSG_ERROR && !answer.error.error;
}

static atomic_int renames;

static void *rename_device(void *arg)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
	uint32_t index = *(uint32_t *)arg;
	bool ok = fd >= 0;

	while (ok && !atomic_load(&ended)) {
		ok = rename_to(fd, index, LONG_NAME) && rename_to(fd, index, "r1");
		renames += 2;
	}
	close(fd);
	atomic_store(&ended, true);
	return ok ? NULL : "the device could not be renamed";
}

/* The number of names with other characters than those of the two names. */
static int spoilt;

/* Checks each name that was read; returns their number. */
static int names(const char *before)
{
	int n = 0;

	for (const char *at = seen; (at = strstr(at, before)); n++) {
		size_t len;

		at += strlen(before);
		len = strspn(at, "r12x");
		if (len < 2 || len >= 64 || at[len] != ' ') {
			if (!spoilt++)
				printf("# %.90s\n", at);
		}
	}
	return n;
}

/* The device gets another name while its name is written to the trace. */
static void renamed(void)
{
	int traced;
	pthread_t renamer;
	uint32_t index;
	struct end a, b;
	void *result;

	open_pair(&a, &b);
	pair_create(&a, &b);
	look("rdma dev show r1");
	index = strtoul(seen, NULL, 10);
	trace_on();
	atomic_store(&ended, false);
	CHECK_EQ(pthread_create(&renamer, NULL, rename_device, &index), 0);
	for (int i = 0; !atomic_load(&ended) && (i < WRITES || !renames); i++) {
		/* The events of more WRITEs would not fit into `seen`. */
		if (i && i % WRITES == 0)
			trace_on();
		post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 10, IBV_SEND_SIGNALED);
		expect(&a, 1, IBV_WC_SUCCESS);
	}
	atomic_store(&ended, true);
	CHECK_EQ(pthread_join(renamer, &result), 0);
	CHECK(!result);
	shell("echo 0 >" EVENTS);
	read_trace();
	traced = names(": device=");
	printf("# %d names traced, %d renames\n", traced, renames);
	CHECK(traced && renames);
	CHECK_EQ(spoilt, 0);
	pair_close(&a, &b);
	trace_on();
}

static void set_up(void)
{
	shell("mountpoint -q " TRACING " || mount -t tracefs none " TRACING);
	/* Otherwise the kernel patches its scheduler, which not every emulator survives. */
	shell("echo 0 >" TRACING "options/record-cmd");
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		{ "a SEND and a READ", traced_send },
		{ "trains", traced_train },
		{ "train of several messages", traced_train_of_messages },
		{ "no trains with a static rate", traced_packets_of_static_rate },
		{ "process that keeps posting", traced_batch },
		{ "receiver not ready", traced_rnr },
		{ "no packets sent by a timer", traced_packets_of_timer },
		{ "unresponsive peer", traced_timeout },
		{ "stray packet", traced_stray },
		{ "on and off under traffic", switched },
		{ "renamed device", renamed },
	};

	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
