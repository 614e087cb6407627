// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of a hostile or buggy peer: to the UDP port of the device from a raw socket on the other
 * end of the link, with right and wrong checksums. No packet may change memory that was not
 * offered, or stop a queue pair that it does not belong to.
 *
 * The program stays on one processor, so that a message that is sent after a packet also arrives
 * after it.
 */
#include <sys/socket.h>
#include <unistd.h>
#include "ferroce_raw.h"
#include "ferroce_stat.h"

#define LEN 16384

/*
 * The queue pairs that packets are sent to, and live[], to which none are sent. On r1 are rc[0],
 * uc[0], ud[0] and live[0].
 */
static struct end rc[2], uc[2], ud[2], live[2];

static void exchange(struct end *to, struct end *from, uint32_t seed)
{
	uint32_t grh = to->type == IBV_QPT_UD ? GRH_LEN : 0;

	fill(from->buf, 3000, seed);
	post_recv(to, seed, 8192 - grh, 4096);
	post_send(from, to, IBV_WR_SEND, seed, 0, 3000, IBV_SEND_SIGNALED);
	expect(from, seed, IBV_WC_SUCCESS);
	CHECK_EQ(expect(to, seed, IBV_WC_SUCCESS).byte_len, 3000 + grh);
	CHECK(filled(to->buf + 8192, 3000, seed));
	memset(to->buf + 8192 - grh, 0x33, 4096 + grh);
	memset(from->buf, 0x33, 3000);
}

/*
 * Waits until all packets so far have been handled, and checks that live[] works and its memory is
 * unchanged.
 */
static void settle(void)
{
	static uint32_t seed;

	exchange(&live[0], &live[1], ++seed);
	CHECK(all_bytes(live[0].buf, LEN, 0x33));
}

/* Checks that no packet so far affected the pair: no completion, nothing written, and it works. */
static void unharmed(struct end pair[2], uint32_t seed)
{
	settle();
	CHECK_EQ(end_state(&pair[0]), IBV_QPS_RTS);
	CHECK_EQ(end_state(&pair[1]), IBV_QPS_RTS);
	expect_none(&pair[0]);
	expect_none(&pair[1]);
	CHECK(all_bytes(pair[0].buf, LEN, 0x33));
	exchange(&pair[0], &pair[1], seed);
	exchange(&pair[1], &pair[0], seed);
}

static void open_pair(struct end pair[2], enum ibv_qp_type type)
{
	pair_open(&pair[0], &pair[1], type, LEN);
	memset(pair[0].buf, 0x33, LEN);
	memset(pair[1].buf, 0x33, LEN);
}

static void all_unharmed(uint32_t seed)
{
	unharmed(rc, seed);
	unharmed(uc, seed);
	unharmed(ud, seed);
}

/* A valid packet arrives; with any single fault it does not. */
static void test_control(void)
{
	struct stats stats = {};

	for (int fault = 0; fault < 11; fault++) {
		struct packet p =
			make(UD_SEND_ONLY, ud[0].qp->qp_num ^ (fault == 1 ? 0x100 : 0), fault);

		add_deth(&p, QKEY ^ (fault == 2));
		add_payload(&p, 64);
		p.bad_icrc = fault == 3;
		if (fault == 4)
			p.bytes[2] ^= 0x40; /* P_Key */
		if (fault == 5)
			p.bytes[1] |= 1; /* transport version */
		if (fault == 6)
			p.source = "10.77.0.99"; /* any host may send a datagram */
		if (fault == 7)
			p.len = 12 + 8 + 2, p.bytes[1] |= 3 << 4; /* more padding than payload */
		if (fault == 8)
			p.len = 12 + 7;
		if (fault == 9)
			p.len += 4096 - 64 + 4; /* over the MTU of the port, but not of the link */
		post_recv(&ud[0], 100 + fault, 8192 - GRH_LEN, 8192);
		stats_read(&stats, "show link r1/1");
		send_packet(&p);
		settle();
		stats_grew_among(&stats, (struct growth[]){ { "rx_bad_length", fault == 9 }, {} });
		if (fault == 0 || fault == 10 || fault == 6) {
			struct ibv_wc wc = expect(&ud[0], 100 + fault, IBV_WC_SUCCESS);

			CHECK_EQ(wc.byte_len, 64 + GRH_LEN);
			CHECK_EQ(wc.src_qp, 0x77);
			CHECK(all_bytes(ud[0].buf + 8192, 64, 0xbd));
			CHECK(all_bytes(ud[0].buf + 8192 + 64, 4096 - 64, 0x33));
			memset(ud[0].buf + 8192 - GRH_LEN, 0x33, 4096 + GRH_LEN);
		} else {
			expect_none(&ud[0]);
			CHECK(all_bytes(ud[0].buf, LEN, 0x33));
			end_modify(&ud[0], IBV_QPS_RESET);
			end_to(&ud[0], &ud[1], IBV_QPS_RTS);
		}
	}
	all_unharmed(1);
}

/* Every length from zero on, for each service, with a correct checksum and with a wrong one. */
static void test_truncated(void)
{
	static const unsigned int opcodes[] = { RC_SEND_ONLY, RC_WRITE_ONLY, RC_READ_REQUEST,
						RC_ACK,	      RC_READ_ONLY,  RC_CMP_SWAP };

	for (size_t len = 0; len <= 64; len++) {
		for (size_t i = 0; i < ARRAY_LEN(opcodes) + 2; i++) {
			/* Not the expected PSN, or RC would rightly accept some of them. */
			struct packet p = make(i < 6 ? opcodes[i] : UC | RC_WRITE_ONLY,
					       rc[0].qp->qp_num, next_psn(&rc[0]) + 5000);

			if (i == 6)
				p = make(UC | RC_SEND_ONLY, uc[0].qp->qp_num, len);
			if (i == 7)
				p = make(UD_SEND_ONLY, ud[0].qp->qp_num, len);
			add_payload(&p, 64);
			p.len = len;
			send_packet(&p);
			p.bad_icrc = true;
			send_packet(&p);
		}
		settle();
	}
	all_unharmed(2);
}

static void test_opcodes(void)
{
	struct end *targets[] = { &rc[0], &uc[0], &ud[0] };

	for (int opcode = 0; opcode < 256; opcode++) {
		for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
			struct packet p =
				make(opcode, targets[i]->qp->qp_num, next_psn(&rc[0]) + 5000);

			add_payload(&p, 80);
			send_packet(&p);
			p.bad_icrc = true;
			send_packet(&p);
			/* The expected PSN, but a wrong checksum or another source. */
			p = make(opcode, targets[i]->qp->qp_num, next_psn(targets[i]));
			add_reth(&p, targets[i]->buf, targets[i]->mr->rkey, 64);
			add_payload(&p, 64);
			p.bad_icrc = true;
			send_packet(&p);
			p.bad_icrc = false;
			p.source = "10.77.0.3";
			if (targets[i]->type != IBV_QPT_UD)
				send_packet(&p);
		}
		if (opcode % 16 == 15)
			settle();
	}
	all_unharmed(3);
}

static void test_numbers(void)
{
	static const uint32_t qpns[] = { 0, 1, 2, 0x10, 0xffffff, 0xfffffe, 0x800000 };
	uint64_t seed = 1;

	for (int i = 0; i < 500; i++) {
		uint32_t qpn = i < 7 ? qpns[i] : rnd(&seed) & 0xffffff;
		struct packet p = make(i & 1 ? UD_SEND_ONLY : rnd(&seed) & 0xff, qpn, rnd(&seed));

		if (qpn == rc[0].qp->qp_num || qpn == uc[0].qp->qp_num || qpn == ud[0].qp->qp_num)
			continue;
		add_deth(&p, QKEY);
		add_payload(&p, rnd(&seed) & 1023);
		send_packet(&p);
		if (i % 100 == 99)
			settle();
	}
	all_unharmed(4);
}

/* Unsolicited responses, with PSNs around those in use. */
static void test_responses(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(rc[0].qp, &attr, IBV_QP_SQ_PSN, &init), 0);
	for (int d = -3; d <= 3; d++) {
		for (int syndrome = 0; syndrome < 256; syndrome += syndrome % 32 == 7 ? 25 : 1) {
			for (unsigned int opcode = RC_READ_FIRST; opcode <= RC_ATOMIC_ACK;
			     opcode++) {
				struct packet p = make(opcode, rc[0].qp->qp_num, attr.sq_psn + d);

				if (opcode != RC_READ_MIDDLE)
					add_aeth(&p, syndrome, 5);
				else if (syndrome)
					continue;
				if (opcode != RC_ACK)
					add_payload(&p, 1024);
				send_packet(&p);
			}
		}
		settle();
	}
	unharmed(rc, 5);
}

/*
 * The PSN and all layers below are right, but the peer violates the protocol. RC moves to ERR, UC
 * drops the message.
 */
struct violation {
	const char *name;
	unsigned int opcode;
	/* Length in the RETH, and a kind of key: 0 none, 1 good, 2 bad. */
	uint32_t reth_len;
	int key;
	size_t payload;
	unsigned int pad;
};

static const struct violation violations[] = {
	{ "middle without first", RC_SEND_MIDDLE, 0, 0, 1024, 0 },
	{ "last without first", RC_SEND_LAST, 0, 0, 64, 0 },
	{ "WRITE middle without first", RC_WRITE_MIDDLE, 0, 0, 1024, 0 },
	{ "WRITE last without first", RC_WRITE_LAST, 0, 0, 64, 0 },
	{ "short first", RC_SEND_FIRST, 0, 0, 1020, 0 },
	{ "long first", RC_SEND_FIRST, 0, 0, 1028, 0 },
	{ "first without payload", RC_SEND_FIRST, 0, 0, 0, 0 },
	{ "only above the MTU", RC_SEND_ONLY, 0, 0, 1028, 0 },
	{ "WRITE, less than it says", RC_WRITE_ONLY, 128, 1, 64, 0 },
	{ "WRITE, more than it says", RC_WRITE_ONLY, 60, 1, 64, 0 },
	{ "WRITE of nothing with payload", RC_WRITE_ONLY, 0, 1, 64, 0 },
	{ "WRITE, padding that lies", RC_WRITE_ONLY, 64, 1, 64, 3 },
	{ "WRITE first of 2^31", RC_WRITE_FIRST, 1u << 31, 1, 1024, 0 },
	{ "WRITE first of 2^31 + 1", RC_WRITE_FIRST, (1u << 31) + 1, 1, 1024, 0 },
	{ "WRITE first of 2^32 - 1", RC_WRITE_FIRST, 0xffffffff, 1, 1024, 0 },
	{ "WRITE first that ends at once", RC_WRITE_FIRST, 1024, 1, 1024, 0 },
	{ "WRITE with a bad key", RC_WRITE_ONLY, 64, 2, 64, 0 },
	{ "READ of 2^31", RC_READ_REQUEST, 1u << 31, 1, 0, 0 },
	{ "READ of 2^32 - 1", RC_READ_REQUEST, 0xffffffff, 1, 0, 0 },
	{ "READ with a bad key", RC_READ_REQUEST, 64, 2, 0, 0 },
	{ "SEND that invalidates a bad key", RC_SEND_ONLY_INV, 0, 0, 64, 0 },
	{ "atomic operation that is not allowed", RC_CMP_SWAP, 0, 1, 12, 0 },
	{ "reserved opcode", RC_RESERVED, 0, 0, 0, 0 },
	{ "reserved opcode with payload", RC_RESERVED, 64, 1, 64, 0 },
};

/*
 * Checks that the queue pair fails. For operations without a receive request, also checks the NAK
 * for the packet, and the event that the consumer gets (C9-222.1).
 */
static void refused(struct end pair[2], const struct violation *v, uint32_t psn)
{
	end_await(&pair[0], IBV_QPS_ERR);
	if (v->opcode != RC_CMP_SWAP && v->opcode != RC_RESERVED)
		return;
	CHECK_EQ(raw_reply(pair[1].qp->qp_num, RC_ACK, psn).syndrome, NAK_INVALID_REQUEST);
	expect_event(&pair[0], IBV_EVENT_QP_REQ_ERR);
	expect(&pair[0], 1, IBV_WC_WR_FLUSH_ERR);
}

static void test_violations(void)
{
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UC; type++) {
		for (size_t i = 0; i < ARRAY_LEN(violations); i++) {
			const struct violation *v = &violations[i];
			struct end pair[2];
			struct packet p;
			uint32_t psn;

			if (type == IBV_QPT_UC && v->opcode > RC_WRITE_ONLY + 1)
				continue;
			open_pair(pair, type);
			psn = next_psn(&pair[0]);
			raw_drain();
			post_recv(&pair[0], 1, 0, 4096);
			p = make(v->opcode | (type == IBV_QPT_UC ? UC : 0), pair[0].qp->qp_num,
				 psn);
			if (v->key)
				add_reth(&p, pair[0].buf + 4096, pair[0].mr->rkey ^ (v->key == 2),
					 v->reth_len);
			add_payload(&p, v->payload);
			p.bytes[1] |= v->pad << 4;
			printf("# type %d: %s\n", type, v->name);
			send_packet(&p);
			settle();
			CHECK(all_bytes(pair[0].buf + 4096, LEN - 4096, 0x33));
			if (type == IBV_QPT_RC) {
				refused(pair, v, psn);
			} else {
				CHECK_EQ(end_state(&pair[0]), IBV_QPS_RTS);
				expect_none(&pair[0]);
				post_send(&pair[1], &pair[0], IBV_WR_SEND, 9, 0, 64,
					  IBV_SEND_SIGNALED);
				expect(&pair[1], 9, IBV_WC_SUCCESS);
				CHECK_EQ(expect(&pair[0], 1, IBV_WC_SUCCESS).byte_len, 64);
			}
			pair_close(&pair[0], &pair[1]);
		}
	}
	all_unharmed(6);
}

/*
 * The peer refuses a request while the response to a READ before it is missing. The request that
 * was refused fails, and the READ, for which there will be no response, is flushed.
 */
static void test_refused_behind_read(void)
{
	for (int refused = 2; refused <= 5; refused++) {
		struct end pair[2];
		struct packet p;

		end_init(&pair[0], &r1, IBV_QPT_RC, LEN);
		end_init(&pair[1], &r2, IBV_QPT_RC, LEN);
		/* A timeout of more than two hours. */
		pair[0].timeout = 31;
		pair_create(&pair[0], &pair[1]);
		/* The peer does not respond. */
		end_modify(&pair[1], IBV_QPS_RESET);
		for (int i = 1; i <= 5; i++)
			post_send(&pair[0], &pair[1], i == 2 ? IBV_WR_RDMA_READ : IBV_WR_SEND, i, 0,
				  64, IBV_SEND_SIGNALED);
		await_sent(&pair[0], 5);
		p = make(RC_ACK, pair[0].qp->qp_num, pair[0].psn + refused - 1);
		add_aeth(&p, NAK_REMOTE_ACCESS, 1);
		send_packet(&p);
		expect(&pair[0], 1, IBV_WC_SUCCESS);
		for (int i = 2; i <= 5; i++)
			expect(&pair[0], i,
			       i == refused ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
		end_await(&pair[0], IBV_QPS_ERR);
		pair_close(&pair[0], &pair[1]);
	}
}

/* Read from sysfs: starting a program could take some seconds. */
static long long sent_by_r1(void)
{
	return port_file("r1", "counters", "port_xmit_packets");
}

/*
 * A queue pair that moves to ERR or RESET or is destroyed soon after a message sends the last
 * acknowledgment again, three times, because the first one may have been lost. After some idle
 * seconds it does not: the peer would have sent the request again.
 */
static void test_last_acknowledgment(void)
{
	const enum ibv_qp_state states[] = { IBV_QPS_ERR, IBV_QPS_RESET };
	struct end pair[2];
	long long before;

	/* The third queue pair is destroyed at once, and the fourth one after some idle seconds. */
	for (size_t i = 0; i < 4; i++) {
		open_pair(pair, IBV_QPT_RC);
		exchange(&pair[0], &pair[1], 1);
		sleep(i == 3 ? 6 : 0);
		before = sent_by_r1();
		if (i < ARRAY_LEN(states)) {
			end_modify(&pair[0], states[i]);
			CHECK_EQ(sent_by_r1() - before, 3);
		}
		end_close(&pair[0]);
		CHECK_EQ(sent_by_r1() - before, i == 3 ? 0 : 3);
		end_close(&pair[1]);
	}
	all_unharmed(9);
}

/* Random datagrams from an ordinary socket. */
static void test_noise(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(ROCE_PORT) };
	unsigned char bytes[4096];
	uint64_t seed = 2;
	int before, fd;

	inet_pton(AF_INET, "10.77.0.1", &to.sin_addr);
	for (int ns = 1; ns <= 2; ns++) {
		before = enter_ns(ns == 1 ? "n1" : "n2");
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK(fd >= 0);
		for (int i = 0; i < 1000; i++) {
			size_t len = i < 128 ? i : rnd(&seed) % sizeof(bytes);

			for (size_t k = 0; k < len; k++)
				bytes[k] = rnd(&seed);
			CHECK_EQ(sendto(fd, bytes, len, 0, (struct sockaddr *)&to, sizeof(to)),
				 len);
			if (i % 100 == 99)
				settle();
		}
		close(fd);
		leave_ns(before);
	}
	all_unharmed(7);
}

static void bad_port(struct packet *p, struct stats *stats)
{
	p->sport = SOURCE_PORT + 1;
	send_packet(p);
	settle();
	stats_grew_among(stats, (struct growth[]){ { "rx_bad_sport", 1 }, {} });
}

/*
 * Packets that are valid except for the UDP source port. A request and a response, each from
 * another port than that of the peer, and then from the right one.
 */
static void test_source_port(void)
{
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UC; type++) {
		struct ibv_qp_init_attr init;
		struct stats stats = {};
		struct ibv_qp_attr attr;
		struct end pair[2];
		struct packet p;

		end_init(&pair[0], &r1, type, LEN);
		end_init(&pair[1], &r2, type, LEN);
		/* A timeout of more than two hours. */
		pair[0].timeout = 31;
		pair_create(&pair[0], &pair[1]);
		memset(pair[0].buf, 0x33, LEN);
		memset(pair[1].buf, 0x33, LEN);
		exchange(&pair[0], &pair[1], 1);
		exchange(&pair[1], &pair[0], 2);
		stats_read(&stats, "show link r1/1");
		post_recv(&pair[0], 3, 8192, 64);
		p = make(RC_SEND_ONLY | (type == IBV_QPT_UC ? UC : 0), pair[0].qp->qp_num,
			 next_psn(&pair[0]));
		add_payload(&p, 64);
		bad_port(&p, &stats);
		expect_none(&pair[0]);
		CHECK(all_bytes(pair[0].buf, LEN, 0x33));
		p.sport = 0;
		send_packet(&p);
		expect(&pair[0], 3, IBV_WC_SUCCESS);
		CHECK(all_bytes(pair[0].buf + 8192, 64, 0xbd));

		if (type == IBV_QPT_RC) {
			end_modify(&pair[1], IBV_QPS_RESET);
			post_send(&pair[0], &pair[1], IBV_WR_SEND, 4, 0, 64, IBV_SEND_SIGNALED);
			CHECK_EQ(ibv_query_qp(pair[0].qp, &attr, IBV_QP_SQ_PSN, &init), 0);
			p = make(RC_ACK, pair[0].qp->qp_num, attr.sq_psn - 1);
			add_aeth(&p, ACK, 2);
			bad_port(&p, &stats);
			expect_none(&pair[0]);
			p.sport = 0;
			send_packet(&p);
			expect(&pair[0], 4, IBV_WC_SUCCESS);
		}
		pair_close(&pair[0], &pair[1]);
	}
	all_unharmed(8);
}

/* The port follows from the flow label, which may change in SQD. A retry gets through. */
static void test_changed_port(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	struct end pair[2];

	open_pair(pair, IBV_QPT_RC);
	exchange(&pair[0], &pair[1], 1);
	exchange(&pair[1], &pair[0], 2);
	attr.ah_attr = end_path(&pair[1], &pair[0]);
	attr.ah_attr.grh.flow_label ^= 1;
	end_modify(&pair[1], IBV_QPS_SQD);
	CHECK_EQ(ibv_modify_qp(pair[1].qp, &attr, IBV_QP_STATE | IBV_QP_AV), 0);
	end_modify(&pair[1], IBV_QPS_RTS);
	exchange(&pair[0], &pair[1], 3);
	exchange(&pair[1], &pair[0], 4);
	pair_close(&pair[0], &pair[1]);
}

/* A notification is counted and narrows the window; it acknowledges nothing. */
static void test_congestion(void)
{
	static const struct growth handled[] = { { "rp_cnp_handled", 1 },
						 { "rx_malformed", 4 },
						 {} };
	static const struct growth refused[] = { { "rx_bad_opcode", 2 },
						 { "rx_bad_address", 1 },
						 {} };
	static const struct growth notified[] = { { "np_ecn_marked_roce_packets", 1 },
						  { "np_cnp_sent", 1 },
						  {} };
	static const struct growth silent[] = { { "np_cnp_sent", 0 }, {} };
	static const unsigned char reserved[16];
	struct stats stats = {};
	struct packet p;

	stats_read(&stats, "show link r1/1");
	for (size_t len = 0; len <= 16; len += 4) {
		p = make(CNP, rc[0].qp->qp_num, 0);
		add(&p, reserved, len);
		send_packet(&p);
	}
	stats_grew_among(&stats, handled);
	p = make(CNP, uc[0].qp->qp_num, 0);
	add(&p, reserved, sizeof(reserved));
	send_packet(&p);
	p = make(CNP, ud[0].qp->qp_num, 0);
	add(&p, reserved, sizeof(reserved));
	send_packet(&p);
	p = make(CNP, rc[0].qp->qp_num, 0);
	add(&p, reserved, sizeof(reserved));
	p.source = "10.77.0.99";
	send_packet(&p);
	stats_grew_among(&stats, refused);
	/* A mark on an early request causes a notification. */
	raw_drain();
	p = make(RC_SEND_ONLY, rc[0].qp->qp_num, next_psn(&rc[0]) + 5000);
	p.tos = 3;
	send_packet(&p);
	raw_reply(rc[1].qp->qp_num, CNP, 0);
	stats_grew_among(&stats, notified);
	/* One on an acknowledgment does not: it cannot be sent more slowly. */
	p = make(RC_ACK, rc[0].qp->qp_num, 0);
	add_aeth(&p, ACK, 0);
	p.tos = 3;
	send_packet(&p);
	stats_grew_among(&stats, silent);
	all_unharmed(9);
}

/* Requests behind a gap are kept, but not for a peer that has gone silent. */
static void test_silent_peer(void)
{
	/* The first one counts the packets that were kept. */
	static const struct growth dropped[] = {
		{ "out_of_order_request", 2 }, { "rx_psn_gap", 2 }, {}
	};
	struct stats stats = {};

	stats_read(&stats, "show link r1/1");
	for (uint32_t ahead = 1; ahead <= 2; ahead++) {
		struct packet p =
			make(RC_SEND_ONLY, rc[0].qp->qp_num, next_psn(&rc[0]) + ahead);

		send_packet(&p);
	}
	stats_grew_among(&stats, dropped);
	all_unharmed(10);
}

static void set_up(void)
{
	stay_on_cpu(0);
	raw_open();
	open_pair(rc, IBV_QPT_RC);
	open_pair(uc, IBV_QPT_UC);
	open_pair(ud, IBV_QPT_UD);
	open_pair(live, IBV_QPT_RC);
	settle();
}

static const struct test tests[] = {
	{ "valid and invalid packets", test_control },
	{ "truncated packets", test_truncated },
	{ "opcodes", test_opcodes },
	{ "queue pair numbers", test_numbers },
	{ "responses", test_responses },
	{ "protocol violations", test_violations },
	{ "refused behind a READ without response", test_refused_behind_read },
	{ "last acknowledgment", test_last_acknowledgment },
	{ "random datagrams", test_noise },
	{ "wrong source port", test_source_port },
	{ "peer changes its source port", test_changed_port },
	{ "congestion notifications", test_congestion },
	{ "early packets of a silent peer", test_silent_peer },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
