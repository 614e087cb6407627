// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of queue pairs: bound manually, and by type or process. The values of a counter are
 * exact, and the port goes on counting all queue pairs.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_stat.h"

#define LEN 8192
#define AUTO_OFF "rdma statistic qp set link r1/1 auto off"

static struct end a[2], b[2];
static struct stats port;

static void exchange(int pair)
{
	static uint64_t wr_id;

	wr_id++;
	post_recv(&b[pair], wr_id, 0, LEN);
	post_send(&a[pair], &b[pair], IBV_WR_SEND, wr_id, 0, 64, IBV_SEND_SIGNALED);
	expect(&a[pair], wr_id, IBV_WC_SUCCESS);
	expect(&b[pair], wr_id, IBV_WC_SUCCESS);
}

/*
 * Checks that `n` SENDs of one packet, and their acknowledgments, were counted; returns the number
 * of packets sent. A request whose acknowledgment is late, as on a slow machine, is sent twice,
 * unless it has not left the host when the probe is due, and the acknowledgment comes before it
 * has.
 */
static long long sent(struct stats *stats, int n)
{
	long long probes, packets;
	struct stats now;

	stats_read(&now, stats->what);
	probes = stats_get(&now, "roce_adp_retrans") - stats_get(stats, "roce_adp_retrans");
	packets = stats_get(&now, "sent_pkts") - stats_get(stats, "sent_pkts");
	CHECK(packets >= n && packets <= n + probes);
	STATS_GREW(stats, { "sent_pkts", packets }, { "sent_bytes", packets * WIRE(BTH, 64) },
		   { "rdma_sends", n }, { "roce_adp_retrans", probes },
		   { "rcvd_pkts", packets }, { "rcvd_bytes", packets * WIRE(BTH + AETH, 0) },
		   { "duplicate_response", packets - n });
	return packets;
}

static void sent_none(struct stats *stats)
{
	stats_grew(stats, (struct growth[]){ {} });
}

static void open_pairs(void)
{
	for (int i = 0; i < 2; i++)
		pair_open(&a[i], &b[i], IBV_QPT_RC, LEN);
	stats_read(&port, "show link r1/1");
}

static void close_pairs(void)
{
	for (int i = 0; i < 2; i++)
		pair_close(&a[i], &b[i]);
}

/*
 * Returns the counter that a queue pair of r1 is bound to, or 0. The tool prints the number of a
 * counter, its values, and "LQPN: <1,2>".
 */
static int counter_of(uint32_t qpn)
{
	char *at = stats_text("qp show link r1/1"), *end;
	int id = 0, found = 0;

	for (; *at; at++) {
		if (!strncmp(at, "cntn ", 5))
			id = atoi(at + 5);
		if (strncmp(at, "LQPN: <", 7))
			continue;
		for (at += 7; *at && *at != '>'; at = end > at ? end : at + 1)
			if (strtoul(at, &end, 10) == qpn)
				found = id;
		if (!*at)
			break;
	}
	return found;
}

static void counter_read(struct stats *stats, int id)
{
	static char what[2][64];
	static int next;
	char *text = what[next++ % 2];

	snprintf(text, sizeof(what[0]), "qp show link r1/1 cntn %d", id);
	stats_read(stats, text);
}

static int count(struct end *e)
{
	shell("rdma statistic qp bind link r1/1 lqpn %u >/dev/null", e->qp->qp_num);
	return counter_of(e->qp->qp_num);
}

static void count_no_more(struct end *e, int id)
{
	shell("rdma statistic qp unbind link r1/1 cntn %d lqpn %u", id, e->qp->qp_num);
}

static void refused(const char *format, uint32_t qpn)
{
	char command[256], all[300];

	snprintf(command, sizeof(command), format, qpn);
	snprintf(all, sizeof(all), "! %s 2>/dev/null", command);
	shell("%s", all);
}

static void test_bind(void)
{
	struct stats mine;
	int id;

	open_pairs();
	exchange(0);
	sent(&port, 1);
	id = count(&a[0]);
	CHECK(id > 0);
	CHECK_EQ(counter_of(a[1].qp->qp_num), 0);
	counter_read(&mine, id);
	CHECK_EQ(stats_get(&mine, "sent_pkts"), 0);
	/* Only a port has gauges. */
	CHECK_EQ(stats_get(&mine, "pool_qp"), 0);
	CHECK(stats_get(&port, "pool_qp") > 0);
	exchange(0);
	sent(&mine, 1);
	sent(&port, 1);
	/* The other queue pair counts only for the port. */
	exchange(1);
	sent(&port, 1);
	sent_none(&mine);
	/* The port keeps the values of the counter. */
	count_no_more(&a[0], id);
	CHECK_EQ(counter_of(a[0].qp->qp_num), 0);
	sent_none(&port);
	exchange(0);
	sent(&port, 1);
	close_pairs();
}

/* Errors are counted per queue pair, too. */
static void test_mishaps(void)
{
	struct stats mine;
	int id;

	open_pairs();
	id = count(&a[0]);
	counter_read(&mine, id);
	end_modify(&b[0], IBV_QPS_ERR);
	end_modify(&b[0], IBV_QPS_RESET);
	a[0].timeout = 8;
	end_modify(&a[0], IBV_QPS_RESET);
	a[0].retry_cnt = 1;
	end_to(&a[0], &b[0], IBV_QPS_RTS);
	post_send(&a[0], &b[0], IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a[0], 1, IBV_WC_RETRY_EXC_ERR);
	STATS_GREW(&mine, { "sent_pkts", 2 }, { "sent_bytes", 2 * WIRE(BTH, 64) },
		   { "ack_timeout", 2 }, { "completer_retry_err", 1 },
		   { "retry_exceeded_err", 1 });
	STATS_GREW(&port, { "sent_pkts", 2 }, { "sent_bytes", 2 * WIRE(BTH, 64) },
		   { "ack_timeout", 2 }, { "completer_retry_err", 1 },
		   { "retry_exceeded_err", 1 });
	close_pairs();
}

static void test_two_on_one(void)
{
	struct stats mine;
	int id;

	open_pairs();
	id = count(&a[0]);
	shell("rdma statistic qp bind link r1/1 lqpn %u cntn %d", a[1].qp->qp_num, id);
	CHECK_EQ(counter_of(a[1].qp->qp_num), id);
	counter_read(&mine, id);
	exchange(0);
	sent(&mine, 1);
	exchange(1);
	sent(&mine, 1);
	count_no_more(&a[0], id);
	exchange(0);
	sent_none(&mine);
	exchange(1);
	sent(&mine, 1);
	/* A bound queue pair may be destroyed, and the port keeps its values. */
	stats_read(&port, "show link r1/1");
	end_close(&a[1]);
	stats_grew_among(&port, (struct growth[]){ { "rdma_sends", 0 }, { "sent_bytes", 0 }, {} });
	end_close(&b[1]);
	pair_close(&a[0], &b[0]);
}

static long long port_packets(void)
{
	return port_file("r1", "counters", "port_xmit_packets");
}

/* The same packets in the port's other counters. */
static void test_port(void)
{
	long long packets;
	int id;

	open_pairs();
	packets = port_packets();
	id = count(&a[0]);
	exchange(0);
	packets += sent(&port, 1);
	CHECK_EQ(port_packets(), packets);
	count_no_more(&a[0], id);
	CHECK_EQ(port_packets(), packets);
	exchange(0);
	packets += sent(&port, 1);
	CHECK_EQ(port_packets(), packets);
	close_pairs();
}

static void test_refused(void)
{
	uint32_t qpn;
	int id;

	open_pairs();
	qpn = a[0].qp->qp_num;
	id = count(&a[0]);
	refused("rdma statistic qp bind link r1/1 lqpn %u", qpn);
	refused("rdma statistic qp bind link r1/1 lqpn %u", 0xabcdef);
	refused("rdma statistic qp bind link r1/1 lqpn %u cntn 123456", a[1].qp->qp_num);
	refused("rdma statistic qp unbind link r1/1 cntn 123456 lqpn %u", qpn);
	/* Manual and automatic binding exclude each other. */
	refused("rdma statistic qp set link r1/1 auto type on", 0);
	count_no_more(&a[0], id);
	refused("rdma statistic qp unbind link r1/1 cntn 1 lqpn %u", qpn);
	close_pairs();
}

/* Each type of queue pairs has a counter. */
static void test_auto_type(void)
{
	struct stats rc, ud;
	struct end from, to;

	shell_undo(AUTO_OFF, "rdma statistic qp set link r1/1 auto type on");
	open_pairs();
	pair_open(&from, &to, IBV_QPT_UD, LEN);
	CHECK(counter_of(a[0].qp->qp_num) > 0);
	CHECK_EQ(counter_of(a[0].qp->qp_num), counter_of(a[1].qp->qp_num));
	CHECK(counter_of(from.qp->qp_num) > 0);
	CHECK(counter_of(from.qp->qp_num) != counter_of(a[0].qp->qp_num));
	refused("rdma statistic qp bind link r1/1 lqpn %u", a[0].qp->qp_num);
	counter_read(&rc, counter_of(a[0].qp->qp_num));
	counter_read(&ud, counter_of(from.qp->qp_num));
	exchange(0);
	sent(&rc, 1);
	sent(&port, 1);
	exchange(1);
	sent(&rc, 1);
	sent_none(&ud);
	pair_close(&from, &to);
	close_pairs();
	undo_last();
	open_pairs();
	CHECK_EQ(counter_of(a[0].qp->qp_num), 0);
	close_pairs();
}

/* Each process has a counter. One that is killed leaves none behind. */
static void test_auto_pid(void)
{
	int ready[2], own;
	pid_t child;
	uint32_t qpn;

	shell_undo(AUTO_OFF, "rdma statistic qp set link r1/1 auto pid on");
	CHECK_EQ(pipe(ready), 0);
	child = child_fork();
	if (!child) {
		devs_open();
		open_pairs();
		exchange(0);
		qpn = a[0].qp->qp_num;
		if (write(ready[1], &qpn, sizeof(qpn)) == sizeof(qpn))
			pause();
		_exit(1);
	}
	close(ready[1]);
	CHECK_EQ(read(ready[0], &qpn, sizeof(qpn)), sizeof(qpn));
	open_pairs();
	own = counter_of(a[0].qp->qp_num);
	CHECK(own > 0);
	CHECK_EQ(counter_of(a[1].qp->qp_num), own);
	CHECK(counter_of(qpn) > 0);
	CHECK(counter_of(qpn) != own);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, NULL, 0), child);
	wait_begin();
	while (counter_of(qpn))
		wait_more_program("the end of a process");
	close(ready[0]);
	close_pairs();
	undo_last();
}

/* Bound and unbound while there is traffic: nothing gets lost, and nothing counts twice. */
static void test_under_traffic(void)
{
	atomic_int *rounds = mmap(NULL, sizeof(*rounds), PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	int status;

	CHECK(rounds != MAP_FAILED);
	open_pairs();
	child = child_fork();
	if (!child) {
		for (int i = 0; i < 5 || *rounds < 10; i++)
			count_no_more(&a[0], count(&a[0]));
		_exit(0);
	}
	while (!waitpid(child, &status, WNOHANG)) {
		exchange(0);
		++*rounds;
	}
	CHECK_EQ(status, 0);
	sent(&port, *rounds);
	close_pairs();
	munmap(rounds, sizeof(*rounds));
}

static const struct test tests[] = {
	{ "bind and unbind", test_bind },
	{ "errors", test_mishaps },
	{ "two on one counter", test_two_on_one },
	{ "the port's other counters", test_port },
	{ "invalid requests", test_refused },
	{ "by type", test_auto_type },
	{ "by process", test_auto_pid },
	{ "under traffic", test_under_traffic },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
