// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of the port that every RDMA device has: the files of sysfs, and the management
 * datagrams that read them, which other nodes may send too.
 */
#include "ferroce_mcast.h"
#include "ferroce_raw.h"
#include "ferroce_stat.h"

#define LEN 8192
#define MAD_LEN 256
#define GSI_QKEY 0x80010000

enum {
	PERF_MGMT = 0x04,
	GET = 0x01,
	SET = 0x02,
	GET_RESP = 0x81,
	CLASS_PORT_INFO = 0x0001,
	PORT_SAMPLES = 0x0010,
	PORT_COUNTERS = 0x0012,
	PORT_COUNTERS_EXT = 0x001d,
};

/* A file of the directory "counters". */
static long long port_counter(const char *dev, const char *name)
{
	return port_file(dev, "counters", name);
}

/* Checks a growth: each probe, if an acknowledgment is late, sends a packet again. */
static void grew(long long by, long long wanted, long long most, long long probes)
{
	if (!probes)
		CHECK_EQ(by, wanted);
	CHECK(by >= wanted && by <= wanted + probes * most);
}

/* Traffic of a known size; data is in words of four bytes. */
static void test_sysfs(void)
{
	static const char *const names[] = { "port_xmit_data", "port_rcv_data", "port_xmit_packets",
					     "port_rcv_packets" };
	long long before[2][4], grown[2][4], bytes = 10 * (WIRE(BTH, 1024) + WIRE(BTH, 1001));
	long long ack = WIRE(BTH + AETH, 0), most = WIRE(BTH, 1024), probes;
	struct stats stats;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	stats_read(&stats, "show link r1/1");
	probes = -stats_get(&stats, "roce_adp_retrans");
	for (int dev = 0; dev < 2; dev++)
		for (int i = 0; i < 4; i++)
			before[dev][i] = port_counter(dev ? "r2" : "r1", names[i]);
	for (int i = 0; i < 10; i++) {
		post_recv(&b, i, 0, LEN);
		post_send(&a, &b, IBV_WR_SEND, i, 0, 2025, IBV_SEND_SIGNALED);
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
	}
	for (int dev = 0; dev < 2; dev++)
		for (int i = 0; i < 4; i++)
			grown[dev][i] = port_counter(dev ? "r2" : "r1", names[i]) - before[dev][i];
	stats_read(&stats, "show link r1/1");
	probes += stats_get(&stats, "roce_adp_retrans");
	/* All sizes are whole words. */
	grew(grown[0][0], bytes / 4, most / 4, probes);
	grew(grown[0][1], 10 * ack / 4, ack / 4, probes);
	grew(grown[0][2], 20, 1, probes);
	grew(grown[0][3], 10, 1, probes);
	grew(grown[1][0], 10 * ack / 4, ack / 4, probes);
	grew(grown[1][1], bytes / 4, most / 4, probes);
	grew(grown[1][2], 10, 1, probes);
	grew(grown[1][3], 20, 1, probes);
	pair_close(&a, &b);
}

/* Sends a datagram to a group. */
static void send_group(struct end *e, union ibv_gid group)
{
	struct ibv_ah *ah = group_ah(e, group);
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, e, e, IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	post_wr(e, &wr);
	expect(e, 1, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
}

/* Has r1 send to a group, receive from it, send a datagram that is too long, and drop packets. */
static void make_events(void)
{
	union ibv_gid group = group4(0x0c0d);
	struct end a, b;
	struct packet p;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
	for (int i = 2; i <= 3; i++)
		post_recv(&a, i, LEN / 2, LEN / 2);
	send_group(&a, group);
	send_group(&b, group);
	/* Its own datagram, and that of r2. */
	for (int i = 2; i <= 3; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);

	p = make(UD_SEND_ONLY, a.qp->qp_num, 0);
	add_deth(&p, QKEY);
	p.bad_icrc = true;
	send_packet(&p);
	p.bad_icrc = false;
	p.bytes[2] ^= 0x40; /* P_Key */
	send_packet(&p);

	post_send(&a, &b, IBV_WR_SEND, 4, 0, 4097, IBV_SEND_SIGNALED);
	expect(&a, 4, IBV_WC_LOC_LEN_ERR);
	pair_close(&a, &b);
}

/* Counters without a source exist and are zero; the others equal hardware counters. */
static void test_all_files(void)
{
	static const char *const zero[] = {
		"symbol_error",
		"link_error_recovery",
		"port_rcv_remote_physical_errors",
		"port_rcv_switch_relay_errors",
		"port_xmit_constraint_errors",
		"local_link_integrity_errors",
		"excessive_buffer_overrun_errors",
		"VL15_dropped",
		"port_xmit_wait",
	};
	static const char *const sources[] = {
		"link_downed",
		"rx_malformed",
		"rx_bad_icrc",
		"rx_bad_pkey",
		"send_err",
		"sent_mcast_pkts",
		"rcvd_mcast_pkts",
	};
	struct stats now;
	size_t seen;

	for (size_t i = 0; i < ARRAY_LEN(zero); i++)
		CHECK_EQ(port_counter("r1", zero[i]), 0);
	shell("ip -n n1 link set v1 down; ip -n n1 link set v1 up");
	shell("ip -n n1 addr replace fd77::1/64 dev v1 nodad");
	/* ARP requests are dropped until the link is up again. */
	shell("ip netns exec n2 ping -qc 1 -w 60 10.77.0.1 >/dev/null");
	/* Not a RoCE packet. */
	shell("ip netns exec n2 bash -c 'echo no >/dev/udp/10.77.0.1/4791'");
	make_events();
	wait_begin();
	for (;;) {
		stats_read(&now, "show link r1/1");
		for (seen = 0; seen < ARRAY_LEN(sources); seen++)
			if (!stats_get(&now, sources[seen]))
				break;
		if (seen == ARRAY_LEN(sources))
			break;
		wait_more_program(sources[seen]);
	}
	CHECK_EQ(port_counter("r1", "link_downed"), stats_get(&now, "link_downed"));
	CHECK_EQ(port_counter("r1", "port_rcv_errors"),
		 stats_get(&now, "rx_malformed") + stats_get(&now, "rx_bad_icrc") +
			 stats_get(&now, "rx_backlog_full") + stats_get(&now, "rx_no_memory"));
	CHECK_EQ(port_counter("r1", "port_rcv_constraint_errors"), stats_get(&now, "rx_bad_pkey"));
	CHECK_EQ(port_counter("r1", "port_xmit_discards"), stats_get(&now, "send_err"));
	CHECK_EQ(port_counter("r1", "multicast_xmit_packets"), stats_get(&now, "sent_mcast_pkts"));
	CHECK_EQ(port_counter("r1", "multicast_rcv_packets"), stats_get(&now, "rcvd_mcast_pkts"));
	CHECK_EQ(port_counter("r1", "unicast_xmit_packets"),
		 stats_get(&now, "sent_pkts") - stats_get(&now, "sent_mcast_pkts"));
	CHECK_EQ(port_counter("r1", "unicast_rcv_packets"),
		 stats_get(&now, "rcvd_pkts") - stats_get(&now, "rcvd_mcast_pkts"));
}

static struct end asker;
static struct ibv_ah *manager;

/* Sends the first `len` bytes of the buffer to queue pair 1 of r1. */
static void ask_bytes(size_t len)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, &asker, &asker, IBV_WR_SEND, 1, 0, len, IBV_SEND_SIGNALED);
	wr.wr.ud.ah = manager;
	wr.wr.ud.remote_qpn = 1;
	wr.wr.ud.remote_qkey = GSI_QKEY;
	post_wr(&asker, &wr);
	expect(&asker, 1, IBV_WC_SUCCESS);
}

/* Sends a management datagram to queue pair 1 of r1. */
static void ask(const unsigned char *mad)
{
	memcpy(asker.buf, mad, MAD_LEN);
	ask_bytes(MAD_LEN);
}

static void make_mad(unsigned char *mad, int method, int attribute, int port)
{
	memset(mad, 0, MAD_LEN);
	mad[0] = 1;
	mad[1] = PERF_MGMT;
	mad[2] = 1;
	mad[3] = method;
	memcpy(mad + 8, "transact", 8);
	mad[16] = attribute >> 8;
	mad[17] = attribute;
	mad[65] = port;
}

/* Sends a query and returns the response, which must have this status. */
static const unsigned char *answer(int method, int attribute, int port, int status)
{
	unsigned char mad[MAD_LEN];
	const unsigned char *in = asker.buf + 4096 + GRH_LEN;

	make_mad(mad, method, attribute, port);
	post_recv(&asker, 2, 4096, 4096);
	ask(mad);
	CHECK_EQ(expect(&asker, 2, IBV_WC_SUCCESS).byte_len, GRH_LEN + MAD_LEN);
	CHECK_EQ(in[1], PERF_MGMT);
	CHECK_EQ(in[3], GET_RESP);
	CHECK_EQ(in[4] << 8 | in[5], status);
	/* The transaction ID: the kernel changes its upper half only in datagrams of its own. */
	CHECK(!memcmp(in + 8, "transact", 8));
	CHECK_EQ(in[16] << 8 | in[17], attribute);
	return in;
}

static uint64_t word(const unsigned char *at, size_t len)
{
	uint64_t value = 0;

	while (len--)
		value = value << 8 | *at++;
	return value;
}

static void open_asker(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = GSI_QKEY };
	struct ibv_ah_attr path;

	end_init(&asker, &r2, IBV_QPT_UD, LEN);
	end_create(&asker);
	CHECK_EQ(ibv_modify_qp(asker.qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
		 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(asker.qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(asker.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	path = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = r1.gid, .sgid_index = r2.gid_index, .hop_limit = 64 },
	};
	manager = ibv_create_ah(r2.pd, &path);
	CHECK(manager);
}

static void close_asker(void)
{
	CHECK_EQ(ibv_destroy_ah(manager), 0);
	end_close(&asker);
}

/* Queries from another node. */
static void test_wire(void)
{
	const unsigned char *in;
	struct stats now;

	open_asker();
	in = answer(GET, CLASS_PORT_INFO, 0, 0);
	CHECK_EQ(word(in + 64, 4), 0x01010200);
	in = answer(GET, PORT_COUNTERS, 1, 0);
	CHECK_EQ(in[65], 1);
	stats_read(&now, "show link r1/1");
	/* The query is counted before the response is built, and the response is not yet. */
	CHECK_EQ(word(in + 100, 4), stats_get(&now, "rcvd_pkts"));
	CHECK_EQ(word(in + 96, 4), stats_get(&now, "sent_pkts") - 1);
	CHECK_EQ(word(in + 92, 4), stats_get(&now, "rcvd_bytes") / 4);
	in = answer(GET, PORT_COUNTERS_EXT, 1, 0);
	stats_read(&now, "show link r1/1");
	CHECK_EQ(word(in + 96, 8), stats_get(&now, "rcvd_pkts"));
	CHECK_EQ(word(in + 80, 8), stats_get(&now, "rcvd_bytes") / 4);
	close_asker();
}

/* Unsupported requests get an error status; a response gets no response. */
static void test_refused(void)
{
	unsigned char mad[MAD_LEN];
	struct stats before, after;

	open_asker();
	answer(GET, PORT_SAMPLES, 1, 0x0c);
	answer(GET, PORT_COUNTERS, 2, 0x1c);
	answer(GET, PORT_COUNTERS_EXT, 255, 0x1c);
	/* The counters cannot be reset. */
	stats_read(&before, "show link r1/1");
	answer(SET, PORT_COUNTERS, 1, 0x0c);
	stats_read(&after, "show link r1/1");
	CHECK(stats_get(&after, "rcvd_pkts") > stats_get(&before, "rcvd_pkts"));
	/* Responses to responses could go on forever. */
	make_mad(mad, GET_RESP, PORT_COUNTERS, 1);
	ask(mad);
	answer(GET, CLASS_PORT_INFO, 0, 0);
	expect_none(&asker);
	close_asker();
}

/*
 * Datagrams to queue pair 1 that are no MADs are dropped, more than ib_mad has posted requests for
 * (mad_recvq_size): it would not repost one that was too short, read old bytes behind a short
 * datagram, and log each unknown version.
 */
static void test_no_mads(void)
{
	static const struct {
		unsigned char version;
		size_t len;
	} kinds[] = { { 1, MAD_LEN + 1 }, { 1, MAD_LEN - 1 }, { 1, 24 }, { 0, MAD_LEN } };
	const int n = 600;
	struct stats before, after;

	/* The answer must not overtake them. */
	stay_on_cpu(0);
	open_asker();
	stats_read(&before, "show link r1/1");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		make_mad(asker.buf, GET, CLASS_PORT_INFO, 0);
		asker.buf[0] = kinds[i].version;
		for (int j = 0; j < n; j++)
			ask_bytes(kinds[i].len);
	}
	answer(GET, CLASS_PORT_INFO, 0, 0);
	stats_read(&after, "show link r1/1");
	CHECK_EQ(stats_get(&after, "rx_bad_length"),
		 stats_get(&before, "rx_bad_length") + n * ARRAY_LEN(kinds));
	expect_none(&asker);
	close_asker();
}

static const struct test tests[] = {
	{ "traffic in sysfs", test_sysfs },
	{ "the files of sysfs", test_all_files },
	{ "query from another node", test_wire },
	{ "unsupported query from another node", test_refused },
	{ "datagrams that ib_mad is not prepared for", test_no_mads },
};

int main(int argc, char **argv)
{
	/* So that a copy of a packet cannot overtake it. */
	stay_on_cpu(0);
	run_tests(argc, argv, raw_open, tests, ARRAY_LEN(tests));
}
