// SPDX-License-Identifier: GPL-2.0
/* Counters of the device: each kind of traffic or error increments its own counter and no other. */
#include <fcntl.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ferroce_look.h"
#include "ferroce_mcast.h"
#include "ferroce_raw.h"
#include "ferroce_stat.h"

#define GROUP "239.7.0.9"

static struct stats s1, s2;

static void begin(void)
{
	stats_read(&s1, "show link r1/1");
	stats_read(&s2, "show link r2/1");
}

/* Checks that no counter of the device has grown. */
static void quiet(struct stats *stats)
{
	stats_grew(stats, (struct growth[]){ {} });
}

/* A reliable connection: a message of three packets gets one acknowledgment. */
static void test_rc(void)
{
	long long bytes = 2 * WIRE(BTH, 1024) + WIRE(BTH, 952), ack = WIRE(BTH + AETH, 0);
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	begin();
	post_recv(&b, 1, 0, LEN);
	post_send(&a, &b, IBV_WR_SEND, 2, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "sent_pkts", 3 }, { "sent_bytes", bytes }, { "rdma_sends", 1 },
		   { "rcvd_pkts", 1 }, { "rcvd_bytes", ack }, { "tx_trains", 1 },
		   { "tx_train_pkts", 3 });
	STATS_GREW(&s2, { "sent_pkts", 1 }, { "sent_bytes", ack }, { "rdma_recvs", 1 },
		   { "rcvd_pkts", 3 }, { "rcvd_bytes", bytes });

	/* A READ takes one request packet and three response packets. */
	bytes = 2 * WIRE(BTH + AETH, 1024) + WIRE(BTH + AETH, 952) - AETH;
	post_send(&a, &b, IBV_WR_RDMA_READ, 3, 0, 3000, IBV_SEND_SIGNALED);
	expect(&a, 3, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH + RETH, 0) },
		   { "rcvd_pkts", 3 }, { "rcvd_bytes", bytes });
	STATS_GREW(&s2, { "sent_pkts", 3 }, { "sent_bytes", bytes }, { "rcvd_pkts", 1 },
		   { "rcvd_bytes", WIRE(BTH + RETH, 0) }, { "tx_trains", 1 },
		   { "tx_train_pkts", 3 });
	pair_close(&a, &b);
}

static void test_datagrams(void)
{
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	begin();
	for (int i = 0; i < 10; i++) {
		post_recv(&b, i, 0, LEN);
		post_send(&a, &b, IBV_WR_SEND, i, 0, 101, IBV_SEND_SIGNALED);
		expect(&a, i, IBV_WC_SUCCESS);
		expect(&b, i, IBV_WC_SUCCESS);
	}
	STATS_GREW(&s1, { "sent_pkts", 10 }, { "sent_bytes", 10 * WIRE(BTH + DETH, 101) },
		   { "rdma_sends", 10 });
	STATS_GREW(&s2, { "rcvd_pkts", 10 }, { "rcvd_bytes", 10 * WIRE(BTH + DETH, 101) },
		   { "rdma_recvs", 10 });
	pair_close(&a, &b);
}

/* A datagram to a group counts once, however many members it has. */
static void test_multicast(void)
{
	union ibv_gid group = group4(9);
	struct ibv_ah *ah;
	struct end a, b, c;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	end_init(&c, &r2, IBV_QPT_UD, LEN);
	end_create(&c);
	end_to(&c, &a, IBV_QPS_RTS);
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c.qp, &group, 0), 0);
	ah = group_ah(&a, group);
	begin();
	post_recv(&b, 1, 0, LEN);
	post_recv(&c, 2, 0, LEN);
	for (int i = 0; i < 2; i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		make_send(&wr, &sge, &a, &b, IBV_WR_SEND, i, 0, 100, IBV_SEND_SIGNALED);
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = MULTICAST_QPN;
		post_wr(&a, &wr);
		expect(&a, i, IBV_WC_SUCCESS);
	}
	STATS_GREW(&s1, { "sent_pkts", 2 }, { "sent_bytes", 2 * WIRE(BTH + DETH, 100) },
		   { "sent_mcast_pkts", 2 }, { "rdma_sends", 2 });
	/* There is no receive request for the second datagram. */
	STATS_GREW(&s2, { "rcvd_pkts", 2 }, { "rcvd_bytes", 2 * WIRE(BTH + DETH, 100) },
		   { "rcvd_mcast_pkts", 2 }, { "rdma_recvs", 2 }, { "rx_no_wqe", 2 });
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c.qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_close(&c);
	pair_close(&a, &b);
}

/* Sends a packet to r1, and checks that r1 drops it for this reason. */
static void dropped(struct packet *p, const char *reason)
{
	send_packet(p);
	STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", RAW_HEADERS + p->len + 4 },
		   { reason, 1 });
}

static struct packet datagram(uint32_t qpn)
{
	struct packet p = make(UD_SEND_ONLY, qpn, 0);

	add_deth(&p, QKEY);
	add_payload(&p, 64);
	return p;
}

/* Drops of packets that are invalid, or that no queue pair can receive. */
static void test_drops(void)
{
	struct packet p;
	struct end a, b;
	uint32_t qpn;

	pair_open(&a, &b, IBV_QPT_UD, LEN);
	qpn = a.qp->qp_num;
	begin();
	p = datagram(qpn);
	p.bytes[1] |= 1; /* transport version */
	dropped(&p, "rx_malformed");
	p = datagram(qpn);
	p.len = 14;
	dropped(&p, "rx_malformed");
	p = datagram(qpn);
	p.bytes[2] ^= 0x40;
	dropped(&p, "rx_bad_pkey");
	p = datagram(qpn);
	p.bad_icrc = true;
	dropped(&p, "rx_bad_icrc");
	p = datagram(0xabcdef);
	dropped(&p, "rx_no_qp");
	p = make(RC_SEND_ONLY, qpn, 0);
	dropped(&p, "rx_bad_opcode");
	p = datagram(qpn);
	p.bytes[15] ^= 1; /* Q_Key */
	dropped(&p, "rx_bad_qkey");
	p = datagram(qpn);
	dropped(&p, "rx_no_wqe");
	end_modify(&a, IBV_QPS_RESET);
	dropped(&p, "rx_bad_state");
	quiet(&s2);
	pair_close(&a, &b);
}

/* Packets to a group that an ordinary socket has joined, and no queue pair. */
static void test_group_drops(void)
{
	struct ip_mreqn join = {};
	int before = enter_ns("n1"), fd;
	struct packet p;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	inet_pton(AF_INET, GROUP, &join.imr_multiaddr);
	join.imr_ifindex = if_nametoindex("v1");
	CHECK_EQ(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)), 0);
	leave_ns(before);
	begin();
	p = datagram(MULTICAST_QPN);
	p.dest = GROUP;
	dropped(&p, "rx_no_group");
	p.bad_icrc = true;
	dropped(&p, "rx_bad_icrc");
	p = make(RC_SEND_ONLY, MULTICAST_QPN, 0);
	p.dest = GROUP;
	dropped(&p, "rx_bad_opcode");
	close(fd);
}

/* Bad requests of a connected peer. */
static void test_bad_requests(void)
{
	struct end a, b;
	struct packet p;
	uint32_t qpn, psn;

	end_init(&a, &r1, IBV_QPT_UC, LEN);
	end_init(&b, &r2, IBV_QPT_UC, LEN);
	a.access = 0;
	pair_create(&a, &b);
	qpn = a.qp->qp_num;
	psn = next_psn(&a);
	begin();
	p = make(UC | RC_SEND_ONLY, qpn, psn);
	p.source = "10.77.0.3";
	dropped(&p, "rx_bad_address");
	p = make(UC | RC_WRITE_ONLY, qpn, psn);
	add_reth(&p, a.buf, a.mr->rkey, 0);
	dropped(&p, "rx_no_access");
	psn = next_psn(&a);
	p = make(UC | RC_SEND_FIRST, qpn, psn);
	add_payload(&p, 64);
	dropped(&p, "rx_bad_length");
	psn = next_psn(&a);
	p = make(UC | RC_SEND_LAST, qpn, psn + 5);
	add_payload(&p, 64);
	dropped(&p, "rx_psn_gap");
	pair_close(&a, &b);

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	qpn = a.qp->qp_num;
	psn = next_psn(&a);
	begin();
	/*
	 * One NAK, and none for the packets that follow; one copy of each is kept. A wrong key ends
	 * the connection. No program runs meanwhile: after 5 s, kept packets would be dropped.
	 */
	p = make(RC_SEND_ONLY, qpn, psn + 5);
	send_packet(&p);
	send_packet(&p);
	p = make(RC_SEND_ONLY, qpn, psn + 6);
	send_packet(&p);
	p = make(RC_SEND_ONLY, qpn, psn - 1);
	send_packet(&p);
	p = make(RC_WRITE_ONLY, qpn, psn);
	add_reth(&p, a.buf, a.mr->rkey ^ 0x100, 64);
	add_payload(&p, 64);
	send_packet(&p);
	STATS_GREW(&s1, { "rcvd_pkts", 5 },
		   { "rcvd_bytes", 4 * WIRE(BTH, 0) + WIRE(BTH + RETH, 64) },
		   { "out_of_seq_request", 1 }, { "out_of_order_request", 2 }, { "rx_psn_gap", 1 },
		   { "duplicate_request", 1 }, { "send_nak_err", 1 },
		   { "resp_remote_access_errors", 1 }, { "rx_bad_state", 2 }, { "sent_pkts", 3 },
		   { "sent_bytes", 3 * WIRE(BTH + AETH, 0) });
	STATS_GREW(&s2, { "rcvd_pkts", 3 }, { "rcvd_bytes", 3 * WIRE(BTH + AETH, 0) },
		   { "duplicate_response", 3 });
	end_await(&a, IBV_QPS_ERR);
	dropped(&p, "rx_bad_state");
	pair_close(&a, &b);
}

/* A duplicate READ request gets its response again. */
static void test_duplicate_read(void)
{
	struct packet p;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	begin();
	p = make(RC_READ_REQUEST, a.qp->qp_num, next_psn(&a));
	add_reth(&p, a.buf, a.mr->rkey, 100);
	for (int again = 0; again < 2; again++) {
		send_packet(&p);
		STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + RETH, 0) },
			   { "duplicate_request", again }, { "sent_pkts", 1 },
			   { "sent_bytes", WIRE(BTH + AETH, 100) });
	}
	pair_close(&a, &b);
}

static struct packet response(struct end *e, unsigned int opcode, uint32_t psn, uint32_t syndrome)
{
	struct packet p = make(opcode, e->qp->qp_num, psn);

	add_aeth(&p, syndrome, 5);
	return p;
}

/* Forged responses to r1. The peer is in RESET and sends nothing. */
static void test_responses(void)
{
	struct end a, b;
	struct packet p;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	end_create(&a);
	end_create(&b);
	a.timeout = 0;
	end_to(&a, &b, IBV_QPS_RTR);
	begin();
	p = response(&a, RC_ACK, a.psn, ACK);
	dropped(&p, "rx_unexpected_response");
	end_modify(&a, IBV_QPS_RESET);
	end_to(&a, &b, IBV_QPS_RTS);
	dropped(&p, "duplicate_response");

	/* A NAK for a sequence error: the request is sent again. */
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 0, IBV_SEND_SIGNALED);
	STATS_GREW(&s1, { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH, 0) });
	p = response(&a, RC_ACK, a.psn, 0x60);
	send_packet(&p);
	STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 0) },
		   { "rcvd_seq_err", 1 }, { "completer_retry_err", 1 }, { "sent_pkts", 1 },
		   { "sent_bytes", WIRE(BTH, 0) });
	STATS_GREW(&s2, { "rcvd_pkts", 2 }, { "rcvd_bytes", 2 * WIRE(BTH, 0) },
		   { "rx_bad_state", 2 });
	p = response(&a, RC_ACK, a.psn, ACK);
	send_packet(&p);
	expect(&a, 1, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 0) },
		   { "rdma_sends", 1 });

	/* The second of two responses first: the first is requested again. It is too short. */
	post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, 2000, IBV_SEND_SIGNALED);
	STATS_GREW(&s1, { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH + RETH, 0) });
	p = response(&a, RC_READ_LAST, a.psn + 2, ACK);
	add_payload(&p, 976);
	send_packet(&p);
	STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 976) },
		   { "implied_nak_seq_err", 1 }, { "completer_retry_err", 1 }, { "sent_pkts", 1 },
		   { "sent_bytes", WIRE(BTH + RETH, 0) }, { "out_of_order_response", 1 });
	p = response(&a, RC_READ_FIRST, a.psn + 1, ACK);
	add_payload(&p, 64);
	send_packet(&p);
	expect(&a, 2, IBV_WC_BAD_RESP_ERR);
	STATS_GREW(&s1, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 64) },
		   { "rx_bad_response", 1 }, { "rx_bad_state", 1 });
	pair_close(&a, &b);
}

/* Requests that fail because the peer is not ready, is gone, or refuses them. */
static void test_failures(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.rnr_retry = 1;
	pair_create(&a, &b);
	begin();
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 0, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	STATS_GREW(&s1, { "sent_pkts", 2 }, { "sent_bytes", 2 * WIRE(BTH, 0) },
		   { "rcvd_pkts", 2 }, { "rcvd_bytes", 2 * WIRE(BTH + AETH, 0) },
		   { "rcvd_rnr_err", 2 }, { "retry_rnr_exceeded_err", 1 });
	STATS_GREW(&s2, { "rcvd_pkts", 2 }, { "rcvd_bytes", 2 * WIRE(BTH, 0) },
		   { "sent_pkts", 2 }, { "sent_bytes", 2 * WIRE(BTH + AETH, 0) },
		   { "send_rnr_err", 2 });
	pair_close(&a, &b);

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.timeout = 10;
	a.retry_cnt = 2;
	end_create(&a);
	end_create(&b);
	end_to(&a, &b, IBV_QPS_RTS);
	begin();
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 0, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_RETRY_EXC_ERR);
	STATS_GREW(&s1, { "sent_pkts", 3 }, { "sent_bytes", 3 * WIRE(BTH, 0) },
		   { "ack_timeout", 3 }, { "completer_retry_err", 2 },
		   { "retry_exceeded_err", 1 });
	STATS_GREW(&s2, { "rcvd_pkts", 3 }, { "rcvd_bytes", 3 * WIRE(BTH, 0) },
		   { "rx_bad_state", 3 });
	pair_close(&a, &b);

	pair_open(&a, &b, IBV_QPT_RC, LEN);
	begin();
	b.mr->rkey ^= 0x100;
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED);
	b.mr->rkey ^= 0x100;
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	STATS_GREW(&s1, { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH + RETH, 64) },
		   { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 0) },
		   { "rcvd_nak_err", 1 });
	STATS_GREW(&s2, { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + RETH, 64) },
		   { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH + AETH, 0) },
		   { "send_nak_err", 1 }, { "resp_remote_access_errors", 1 });
	pair_close(&a, &b);
}

/* Datagrams that are not sent: too long, no route, no room in a queue. */
static void test_not_sent(void)
{
	struct end a, b;
	uint64_t wr_id = 0;

	shell_undo("ip -n n1 link set v1 mtu 4200", "ip -n n1 link set v1 mtu 1500");
	end_init(&a, &r1, IBV_QPT_UD, LEN);
	end_init(&b, &r2, IBV_QPT_UD, LEN);
	a.v6 = true;
	pair_create(&a, &b);
	begin();
	post_send(&a, &b, IBV_WR_SEND, ++wr_id, 0, 2000, IBV_SEND_SIGNALED);
	expect(&a, wr_id, IBV_WC_LOC_LEN_ERR);
	STATS_GREW(&s1, { "send_err", 1 }, { "tx_oversize", 1 });
	end_modify(&a, IBV_QPS_RTS);
	undo_last();

	/* The IPv4 stack assumes that an address without a route is on the link. */
	shell_undo("ip -n n1 -6 route add fd77::/64 dev v1", "ip -n n1 -6 route del fd77::/64");
	post_send(&a, &b, IBV_WR_SEND, ++wr_id, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, wr_id, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "send_err", 1 }, { "tx_no_route", 1 }, { "rdma_sends", 1 });
	undo_last();

	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root bfifo limit 1");
	post_send(&a, &b, IBV_WR_SEND, ++wr_id, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, wr_id, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "send_err", 1 }, { "tx_rejected", 1 }, { "rdma_sends", 1 });
	undo_last();
	quiet(&s2);
	pair_close(&a, &b);

	/* Retries run out, as if the packet were lost on the wire. */
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.timeout = 10;
	a.retry_cnt = 2;
	pair_create(&a, &b);
	begin();
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root bfifo limit 1");
	post_send(&a, &b, IBV_WR_SEND, ++wr_id, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, wr_id, IBV_WC_RETRY_EXC_ERR);
	STATS_GREW(&s1, { "tx_queue_full", 3 }, { "send_err", 3 }, { "tx_rejected", 3 },
		   { "ack_timeout", 3 }, { "completer_retry_err", 2 },
		   { "retry_exceeded_err", 1 });
	undo_last();
	pair_close(&a, &b);
}

/* Executes requests until one has found the queue of r1 full. */
static void fill_queue(struct end *e, struct end *peer, enum ibv_wr_opcode opcode)
{
	const struct growth lossless[] = { { "send_err", 0 }, { "completer_retry_err", 0 }, {} };
	long long full = stats_get(&s1, "tx_queue_full");

	for (wait_begin(); stats_get(&s1, "tx_queue_full") == full; wait_more_program("a queue")) {
		post_send(e, peer, opcode, 1, 0, 4 * LEN, IBV_SEND_SIGNALED);
		expect(e, 1, IBV_WC_SUCCESS);
		stats_grew_among(&s1, lossless);
		stats_grew_among(&s2, lossless);
	}
}

/* A slow queue is full with one train. (netem would orphan it: its packets would not count.) */
static void test_full_queue(void)
{
	struct end a, b;

	if (is_debug_kernel())
		return test_skip("the debug kernel has no tbf");
	end_init(&a, &r1, IBV_QPT_RC, 4 * LEN);
	end_init(&b, &r2, IBV_QPT_RC, 4 * LEN);
	a.timeout = 0;
	b.timeout = 0;
	pair_create(&a, &b);
	open_windows(&a, &b);
	begin();
	receive_in_order(2);
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root tbf rate 8mbit burst 70k limit 70k");
	fill_queue(&a, &b, IBV_WR_RDMA_WRITE);
	fill_queue(&b, &a, IBV_WR_RDMA_READ);
	undo_last();
	pair_close(&a, &b);
}

/* The maximum number of requests that wait while the response to a READ is sent. */
#define WAITING 512

static void test_backlog(void)
{
	long long first, sent;
	struct end a, b;
	struct packet p;

	pair_open(&a, &b, IBV_QPT_RC, 1 << 20);
	begin();
	first = stats_get(&s1, "sent_pkts");
	/* The responder stops once 120 packets are in flight, and these do not arrive. */
	shell_undo(QDISC_DEL, "tc -n n1 qdisc add dev v1 root netem limit 999 slot 100s packets 1");
	p = make(RC_READ_REQUEST, a.qp->qp_num, next_psn(&a));
	add_reth(&p, a.buf, a.mr->rkey, 1 << 20);
	send_packet(&p);
	wait_begin();
	do {
		wait_more_program("a full queue");
		sent = stats_get(&s1, "sent_pkts") - first;
		stats_read(&s1, "show link r1/1");
	} while (sent < 120 || stats_get(&s1, "sent_pkts") - first != sent);
	CHECK(sent < 140);
	/* Copies of an old request, which have no effect. */
	p = make(RC_SEND_ONLY, a.qp->qp_num, a.psn - 100);
	for (int i = 0; i < WAITING + 7; i++)
		send_packet(&p);
	STATS_GREW(&s1, { "rcvd_pkts", WAITING + 7 },
		   { "rcvd_bytes", (WAITING + 7) * WIRE(BTH, 0) }, { "rx_backlog_full", 7 });
	/* RESET drops the requests that wait. */
	end_modify(&a, IBV_QPS_RESET);
	STATS_GREW(&s1, { "rx_bad_state", WAITING });
	undo_last();
	pair_close(&a, &b);
}

/* A response that arrives before its memory is present. */
static void test_deferred(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.region = FULL_ACCESS | IBV_ACCESS_ON_DEMAND;
	pair_create(&a, &b);
	begin();
	post_send(&a, &b, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	STATS_GREW(&s1, { "sent_pkts", 1 }, { "sent_bytes", WIRE(BTH + RETH, 0) },
		   { "rcvd_pkts", 1 }, { "rcvd_bytes", WIRE(BTH + AETH, 64) },
		   { "ack_deferred", 1 });
	pair_close(&a, &b);
}

static void await_port(struct dev *dev, enum ibv_port_state state)
{
	struct ibv_port_attr port;

	wait_begin();
	while (!ibv_query_port(dev->ctx, 1, &port) && port.state != state)
		wait_more_verb("a state of the port");
}

/* An active port that goes down, itself or with its peer, counts; one that is down does not. */
static void test_link_downed(void)
{
	begin();
	shell_undo("ip -n n1 link set v1 up && ip -n n1 addr replace fd77::1/64 dev v1 nodad",
		   "ip -n n1 link set v1 down");
	shell("ip -n n1 link set v1 down");
	STATS_GREW(&s1, { "link_downed", 1 });
	STATS_GREW(&s2, { "link_downed", 1 });
	undo_last();
	await_port(&r1, IBV_PORT_ACTIVE);
	await_port(&r2, IBV_PORT_ACTIVE);
	quiet(&s1);
	quiet(&s2);
}

/* The files of sysfs have the same names and values. */
static void test_sysfs(void)
{
	struct stats now;

	shell("echo 0 >/sys/class/infiniband/r1/ports/1/hw_counters/lifespan");
	/* The core caches a value for the rest of a jiffy. */
	usleep(20000);
	stats_read(&now, "show link r1/1");
	for (size_t i = 0; i < now.n; i++)
		CHECK_EQ(port_file("r1", "hw_counters", now.values[i].name), now.values[i].value);
	shell("test $(ls /sys/class/infiniband/r1/ports/1/hw_counters | wc -l) = %zu", now.n + 1);
}

static void set_up(void)
{
	stay_on_cpu(0);
	raw_open();
	/* Trains are split, with and without a packet socket that captures them. */
	shell("ip -n n1 link set v1 gso_max_segs 1");
	shell("ip -n n2 link set v2 gso_max_segs 1");
}

static const struct test tests[] = {
	{ "RC", test_rc },
	{ "datagrams", test_datagrams },
	{ "multicast", test_multicast },
	{ "drops", test_drops },
	{ "drops of a group", test_group_drops },
	{ "bad requests", test_bad_requests },
	{ "a duplicate READ", test_duplicate_read },
	{ "responses", test_responses },
	{ "failed requests", test_failures },
	{ "datagrams that are not sent", test_not_sent },
	{ "a full queue", test_full_queue },
	{ "a full backlog", test_backlog },
	{ "deferred response", test_deferred },
	{ "link down", test_link_downed },
	{ "sysfs", test_sysfs },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
