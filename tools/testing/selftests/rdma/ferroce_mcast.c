// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast over the wire between r1 and r2, IPv4 and IPv6. The connection manager refuses IPv6
 * groups on RoCE v2, so that only the verbs can test these.
 *
 * The program stays on one processor, so that packets arrive in the order in which they are sent.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ferroce_mcast.h"
#include "ferroce_raw.h"
#include "ferroce_stat.h"

#define LEN 1000
#define SLOT 2048

static void send_group(struct end *e, struct ibv_ah *ah, uint64_t wr_id, uint32_t qpn)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, LEN, e->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(wr_id),
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	};

	fill(e->buf, LEN, wr_id);
	post_wr(e, &wr);
	expect(e, wr_id, IBV_WC_SUCCESS);
}

/* Receives of an end are in its second slot and later. */
static void ready(struct end *e, uint64_t wr_id)
{
	size_t slot = 1 + wr_id % 4;

	memset(e->buf + slot * SLOT, 0xee, SLOT);
	post_recv(e, wr_id, slot * SLOT, SLOT);
}

static void received(struct end *e, uint64_t wr_id, struct end *from, uint64_t seed,
		     union ibv_gid group)
{
	unsigned char *at = e->buf + (1 + wr_id % 4) * SLOT;
	struct ibv_wc wc = expect(e, wr_id, IBV_WC_SUCCESS);

	CHECK_EQ(wc.byte_len, LEN + GRH_LEN);
	CHECK_EQ(ntohl(wc.imm_data), seed);
	CHECK_EQ(wc.src_qp, from->qp->qp_num);
	CHECK(wc.wc_flags & IBV_WC_GRH);
	CHECK(filled(at + GRH_LEN, LEN, seed));
	/* The destination is at the end of the IP header, for both versions. */
	if (group.raw[0] == 0xff)
		CHECK(!memcmp(at + 24, group.raw, 16));
	else
		CHECK(!memcmp(at + 36, group.raw + 12, 4));
}

static void open_end(struct end *e, struct dev *dev)
{
	end_init(e, dev, IBV_QPT_UD, 5 * SLOT);
	end_create(e);
	end_to(e, e, IBV_QPS_RTS);
}

static struct end a, b, c, after;

/*
 * Waits until every member on r2 has handled the datagrams sent before: sends another one behind
 * them, to a queue pair that is in no group.
 */
static void settle(struct end *from)
{
	struct ibv_ah_attr path = end_path(from, &after);
	struct ibv_ah *ah = ibv_create_ah(from->dev->pd, &path);

	CHECK(ah);
	ready(&after, 1000);
	send_group(from, ah, 77, after.qp->qp_num);
	CHECK_EQ(expect(&after, 1000, IBV_WC_SUCCESS).byte_len, LEN + GRH_LEN);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
}

static void open_all(void)
{
	open_end(&a, &r1);
	open_end(&b, &r2);
	open_end(&c, &r2);
	open_end(&after, &r2);
}

static void close_all(void)
{
	end_close(&after);
	end_close(&c);
	end_close(&b);
	end_close(&a);
}

/* Members on both sides, the sender too; other queue pairs receive nothing. */
static void deliver(union ibv_gid group, union ibv_gid other)
{
	struct ibv_ah *ah, *ah_other;

	open_all();
	ah = group_ah(&a, group);
	ah_other = group_ah(&a, other);

	/* No members. */
	ready(&a, 1);
	ready(&b, 1);
	ready(&c, 1);
	send_group(&a, ah, 10, MULTICAST_QPN);
	settle(&a);
	expect_none(&a);
	expect_none(&b);
	expect_none(&c);

	/* One member. */
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	send_group(&a, ah, 11, MULTICAST_QPN);
	received(&b, 1, &a, 11, group);
	settle(&a);
	expect_none(&a);
	expect_none(&c);
	ready(&b, 2);

	/* All, each with a receive of its own; the sender too. Other groups do not matter. */
	CHECK_EQ(ibv_attach_mcast(c.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
	send_group(&a, ah_other, 12, MULTICAST_QPN);
	send_group(&a, ah, 13, MULTICAST_QPN);
	received(&b, 2, &a, 13, group);
	received(&c, 1, &a, 13, group);
	received(&a, 1, &a, 13, group);

	/* A member without a receive, or in ERR, does not keep the datagram from the others. */
	end_modify(&b, IBV_QPS_ERR);
	ready(&c, 2);
	send_group(&a, ah, 14, MULTICAST_QPN);
	received(&c, 2, &a, 14, group);
	expect_none(&a);

	/* A datagram to a multicast address does not reach a queue pair by its own number. */
	ready(&c, 3);
	send_group(&a, ah, 15, c.qp->qp_num);
	settle(&a);
	expect_none(&c);

	/* No longer a member. */
	CHECK_EQ(ibv_detach_mcast(c.qp, &group, 0), 0);
	send_group(&a, ah, 16, MULTICAST_QPN);
	settle(&a);
	expect_none(&c);
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);
	ready(&a, 4);
	send_group(&a, ah, 17, MULTICAST_QPN);
	settle(&a);
	expect_none(&a);

	CHECK_EQ(ibv_destroy_ah(ah_other), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	close_all();
}

static void deliver4(void)
{
	deliver(group4(1), group4(2));
}

static void deliver6(void)
{
	deliver(group6(1), group6(2));
}

/* Members that share a receive queue: each copy takes one request. */
static void shared_queue(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };
	union ibv_gid group = group4(9);
	struct ibv_srq *srq = ibv_create_srq(r2.pd, &init);
	struct end members[2], *b = &members[0];
	struct ibv_ah *ah;
	uint64_t taken;

	CHECK(srq);
	open_end(&a, &r1);
	open_end(&after, &r2);
	ah = group_ah(&a, group);
	for (int i = 0; i < 2; i++) {
		end_init(&members[i], &r2, IBV_QPT_UD, 5 * SLOT);
		members[i].srq = srq;
		end_create(&members[i]);
		end_to(&members[i], &members[i], IBV_QPS_RTS);
		CHECK_EQ(ibv_attach_mcast(members[i].qp, &group, 0), 0);
	}
	for (uint64_t round = 0; round < 10; round++) {
		ready(b, 0);
		ready(b, 1);
		send_group(&a, ah, round, MULTICAST_QPN);
		taken = 0;
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = next_wc(members[i].cq);

			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.qp_num, members[i].qp->qp_num);
			CHECK_EQ(wc.byte_len, LEN + GRH_LEN);
			CHECK_EQ(ntohl(wc.imm_data), round);
			taken |= 1 << wc.wr_id;
		}
		CHECK_EQ(taken, 3);
		CHECK(filled(b->buf + SLOT + GRH_LEN, LEN, round));
		CHECK(filled(b->buf + 2 * SLOT + GRH_LEN, LEN, round));
	}
	/* One request for two copies: one of them is lost, and its member still works. */
	ready(b, 2);
	send_group(&a, ah, 50, MULTICAST_QPN);
	settle(&a);
	CHECK_EQ(ibv_poll_cq(members[0].cq, 1, &(struct ibv_wc){}) +
		 ibv_poll_cq(members[1].cq, 1, &(struct ibv_wc){}), 1);
	CHECK(filled(b->buf + 3 * SLOT + GRH_LEN, LEN, 50));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_detach_mcast(members[i].qp, &group, 0), 0);
		end_close(&members[i]);
	}
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_close(&after);
	end_close(&a);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* A member with buffers in absent memory on demand, beside one with pinned memory. */
static void on_demand(void)
{
	union ibv_gid group = group4(10);
	struct ibv_ah *ah;

	open_end(&a, &r1);
	open_end(&c, &r2);
	end_init(&b, &r2, IBV_QPT_UD, 5 * SLOT);
	b.region |= IBV_ACCESS_ON_DEMAND;
	end_create(&b);
	end_to(&b, &b, IBV_QPS_RTS);
	ah = group_ah(&a, group);
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c.qp, &group, 0), 0);
	for (uint64_t round = 0; round < 20; round++) {
		/* The second and the third come while the first waits for memory. */
		for (uint64_t i = 0; i < 3; i++) {
			ready(&b, i);
			ready(&c, i);
		}
		CHECK_EQ(madvise(b.buf, b.len, MADV_DONTNEED), 0);
		for (uint64_t i = 0; i < 3; i++)
			send_group(&a, ah, 3 * round + i, MULTICAST_QPN);
		for (uint64_t i = 0; i < 3; i++) {
			received(&b, i, &a, 3 * round + i, group);
			received(&c, i, &a, 3 * round + i, group);
		}
	}
	CHECK_EQ(ibv_detach_mcast(c.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	end_close(&c);
	end_close(&b);
	end_close(&a);
}

/* Groups that differ only in bits that their MAC addresses do not include. */
static void same_mac(void)
{
	union ibv_gid group = group4(5), other = group4(5);
	struct ibv_ah *ah;

	other.raw[13] |= 0x80;
	open_all();
	ah = group_ah(&a, other);
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	ready(&b, 1);
	send_group(&a, ah, 20, MULTICAST_QPN);
	settle(&a);
	expect_none(&b);
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	close_all();
}

/* A datagram is dropped for members with another Q_Key, not for the others. */
static void keys(void)
{
	union ibv_gid group = group4(6);
	struct ibv_qp_attr attr = { .qkey = QKEY + 1 };
	struct ibv_ah *ah;

	open_all();
	CHECK_EQ(ibv_modify_qp(b.qp, &attr, IBV_QP_QKEY), 0);
	ah = group_ah(&a, group);
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c.qp, &group, 0), 0);
	ready(&b, 1);
	ready(&c, 1);
	send_group(&a, ah, 30, MULTICAST_QPN);
	received(&c, 1, &a, 30, group);
	expect_none(&b);
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c.qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	close_all();
}

/* A group with the maximum number of members: each gets its own copy. */
static void crowd(void)
{
	static struct ibv_qp *qps[64];
	static bool seen[64];
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	union ibv_gid group = group4(0x0c0d);
	struct ibv_recv_wr *bad;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	unsigned char *buf = calloc(ARRAY_LEN(qps), SLOT);

	open_end(&a, &r1);
	ah = group_ah(&a, group);
	cq = ibv_create_cq(r2.ctx, ARRAY_LEN(qps), NULL, NULL, 0);
	CHECK(buf && cq);
	mr = ibv_reg_mr(r2.pd, buf, ARRAY_LEN(qps) * SLOT, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	for (size_t i = 0; i < ARRAY_LEN(qps); i++) {
		struct ibv_sge sge = { (uintptr_t)buf + i * SLOT, SLOT, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 };

		qps[i] = bare_qp(&r2, cq);
		attr.qp_state = IBV_QPS_INIT;
		CHECK_EQ(ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				       IBV_QP_PORT | IBV_QP_QKEY), 0);
		attr.qp_state = IBV_QPS_RTR;
		CHECK_EQ(ibv_modify_qp(qps[i], &attr, IBV_QP_STATE), 0);
		CHECK_EQ(ibv_post_recv(qps[i], &wr, &bad), 0);
		CHECK_EQ(ibv_attach_mcast(qps[i], &group, 0), 0);
	}
	memset(seen, 0, sizeof(seen));
	send_group(&a, ah, 50, MULTICAST_QPN);
	for (size_t n = 0; n < ARRAY_LEN(qps); n++) {
		wc = next_wc(cq);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK(wc.wr_id < ARRAY_LEN(qps) && !seen[wc.wr_id]);
		seen[wc.wr_id] = true;
		CHECK_EQ(wc.qp_num, qps[wc.wr_id]->qp_num);
		CHECK(filled(buf + wc.wr_id * SLOT + GRH_LEN, LEN, 50));
	}
	for (size_t i = 0; i < ARRAY_LEN(qps); i++) {
		CHECK_EQ(ibv_detach_mcast(qps[i], &group, 0), 0);
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	}
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	free(buf);
	end_close(&a);
}

/* A packet to the group that a is in, from a raw socket. */
static struct packet to_group(unsigned int opcode, uint32_t qkey)
{
	struct packet p = make(opcode, MULTICAST_QPN, 0);

	p.dest = "239.7.14.15";
	add_deth(&p, qkey);
	add_payload(&p, 64);
	return p;
}

/* Invalid packets to a group are dropped, and valid ones still arrive. */
static void hostile(void)
{
	union ibv_gid group = group4(0x0e0f);
	long long before;
	struct packet p;

	open_end(&a, &r1);
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
	ready(&a, 1);
	for (int fault = 0; fault < 6; fault++) {
		static const unsigned int opcodes[] = {
			RC_SEND_ONLY, RC_WRITE_ONLY, RC_READ_REQUEST, RC_ACK, UC | RC_SEND_ONLY,
			RC_RESERVED,
		};

		p = to_group(opcodes[fault], QKEY);
		send_packet(&p);
		p = to_group(UD_SEND_ONLY, QKEY ^ (fault == 1));
		p.bad_icrc = fault == 0;
		if (fault == 2)
			p.bytes[2] ^= 0x40; /* P_Key */
		if (fault == 3)
			p.bytes[1] |= 1; /* transport version */
		if (fault == 4)
			p.bytes[7] ^= 1; /* not the multicast QPN */
		if (fault == 5)
			p.dest = "239.7.14.16";
		send_packet(&p);
	}
	for (size_t len = 0; len < 20; len++) {
		p = to_group(UD_SEND_ONLY, QKEY);
		p.len = len;
		send_packet(&p);
	}
	/* To the address of the device, but to the multicast QPN. */
	p = to_group(UD_SEND_ONLY, QKEY);
	p.dest = NULL;
	send_packet(&p);
	p = to_group(UD_SEND_ONLY, QKEY);
	send_packet(&p);
	CHECK_EQ(expect(&a, 1, IBV_WC_SUCCESS).byte_len, 64 + GRH_LEN);

	/* Many packets, for which there is no receive. */
	before = port_file("r1", "hw_counters", "rx_no_wqe");
	for (int i = 0; i < 20000; i++)
		send_packet(&p);
	wait_begin();
	while (port_file("r1", "hw_counters", "rx_no_wqe") == before)
		wait_more_verb("dropped packets");
	ready(&a, 2);
	send_packet(&p);
	CHECK_EQ(expect(&a, 2, IBV_WC_SUCCESS).byte_len, 64 + GRH_LEN);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);
	end_close(&a);
}

/* Waits for a packet for the UDP port of RoCE. `udp` is the offset of the UDP header. */
static void await_frame(int fd, unsigned char *frame, size_t size, size_t udp)
{
	ssize_t len;

	wait_begin();
	do {
		wait_more("the frame of a datagram");
		len = recv(fd, frame, size, 0);
	} while (len < (ssize_t)(udp + 8 + LEN) || frame[udp + 2] != ROCE_PORT >> 8 ||
		 frame[udp + 3] != (ROCE_PORT & 0xff));
}

/* Headers on the wire: MAC and IP address of the group, hop limit and traffic class. */
static void wire(void)
{
	static const unsigned char mac4[] = { 0x01, 0x00, 0x5e, 0x07, 0x01, 0x02 };
	static const unsigned char mac6[] = { 0x33, 0x33, 0x00, 0x07, 0x01, 0x02 };
	union ibv_gid groups[] = { group4(0x102), group6(0x102) };
	unsigned char frame[2048];
	int fd = packet_socket("v2");

	open_end(&a, &r1);
	for (int i = 0; i < 2; i++) {
		struct ibv_ah *ah = group_ah(&a, groups[i]);
		size_t udp = i ? 54 : 34;

		send_group(&a, ah, 40 + i, MULTICAST_QPN);
		await_frame(fd, frame, sizeof(frame), udp);
		CHECK(!memcmp(frame, i ? mac6 : mac4, 6));
		if (i) {
			CHECK(!memcmp(frame + 14 + 24, groups[i].raw, 16));
			CHECK_EQ(frame[14 + 7], 1);
		} else {
			CHECK(!memcmp(frame + 14 + 16, groups[i].raw + 12, 4));
			CHECK_EQ(frame[14 + 8], 1);
		}
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	end_close(&a);
	close(fd);
}

/* Each queue pair has a source port of its own, so that networks can spread datagrams. */
static void source_ports(void)
{
	unsigned char frame[2048], port[2];
	int fd = packet_socket("v2");

	for (int i = 0; i < 3; i++) {
		struct ibv_ah *ah;

		if (i != 1)
			open_end(&a, &r1);
		ah = group_ah(&a, group4(0x102));
		send_group(&a, ah, 50 + i, MULTICAST_QPN);
		await_frame(fd, frame, sizeof(frame), 34);
		if (i == 0)
			memcpy(port, frame + 34, 2);
		CHECK_EQ(!memcmp(port, frame + 34, 2), i != 2);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
		if (i != 0)
			end_close(&a);
	}
	close(fd);
}

static const struct test tests[] = {
	{ "IPv4: every member gets a copy, and no one else", deliver4 },
	{ "IPv6: every member gets a copy, and no one else", deliver6 },
	{ "groups of the same MAC address", same_mac },
	{ "Q_Key of each member", keys },
	{ "maximum number of members", crowd },
	{ "invalid packets, and too many", hostile },
	{ "members with one shared receive queue", shared_queue },
	{ "a member with memory on demand", on_demand },
	{ "frames", wire },
	{ "source ports", source_ports },
};

int main(int argc, char **argv)
{
	stay_on_cpu(0);
	run_tests(argc, argv, raw_open, tests, ARRAY_LEN(tests));
}
