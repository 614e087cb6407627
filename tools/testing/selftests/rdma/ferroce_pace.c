// SPDX-License-Identifier: GPL-2.0
/*
 * The static rate of an address vector limits the pace of packets, which is measured at the net
 * device.
 *
 * No WINDOW packets may be faster than the rate, on any machine. This is a test only on a machine
 * that is faster without a rate, and the slowest rate is 2.5 Gb/s; elsewhere the case is skipped,
 * at its end. An emulated machine is fast enough if its clock counts instructions: the suite "pace"
 * of scripts/check, in which a skip is a failure.
 *
 * Packets are for a queue pair that does not exist, and the far net device drops them: no time is
 * spent on receiving them.
 */
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "ferroce_raw.h"

/* More packets than may be queued below. */
#define PACKETS 192
#define WINDOW 60
#define MTU 4096
#define LEN (PACKETS * MTU)
#define NOBODY 0xfffffe
/* The time that packets may catch up on after a late timer, in nanoseconds. */
#define SLACK 50000

/* Bytes on the wire: Ethernet with preamble and gap, IPv4, UDP, BTH, ICRC. */
#define WIRE (38 + 20 + 8 + 12 + 4)
#define DETH 8

static const struct {
	const char *name;
	uint8_t code;
	/* 0 for none. */
	uint32_t mbps;
} rates[] = {
	{ "none", 0, 0 },
	{ "2.5 Gb/s", 2, 2500 },
	{ "5 Gb/s", 5, 5000 },
};

static int tap;

/* Opens a tap that sees all packets that leave the first net device. */
static void set_up(void)
{
	int before, one = 1, room = 16 << 20;
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
	};

	raw_open();
	/* The device takes trains apart, so that the tap sees each packet. */
	shell("ip -n n1 link set v1 gso_max_segs 1");
	before = enter_ns("n1");
	tap = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0);
	CHECK(tap >= 0);
	CHECK_EQ(setsockopt(tap, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one)), 0);
	CHECK_EQ(setsockopt(tap, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)), 0);
	at.sll_ifindex = if_nametoindex("v1");
	CHECK(at.sll_ifindex);
	CHECK_EQ(bind(tap, (struct sockaddr *)&at, sizeof(at)), 0);
	leave_ns(before);
	/* Behind the IPv4 and UDP headers, the number of the queue pair ends the second word. */
	shell("tc -n n2 qdisc add dev v2 clsact");
	shell("tc -n n2 filter add dev v2 ingress proto ip u32 match u32 %u %u at 32 action drop",
	      NOBODY, 0xffffff);
}

/* Takes one packet; returns whether it was one to NOBODY, and sets the time when it left. */
static bool tap_next(uint64_t *time)
{
	unsigned char head[14 + RAW_HEADERS + 12], control[CMSG_SPACE(sizeof(struct timespec))];
	struct iovec iov = { head, sizeof(head) };
	struct sockaddr_ll from;
	struct msghdr msg = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	const unsigned char *bth = head + 14 + RAW_HEADERS;
	struct cmsghdr *cmsg;
	struct timespec at;
	ssize_t len;

	len = recvmsg(tap, &msg, 0);
	if (len < 0) {
		CHECK_EQ(errno, EAGAIN);
		return false;
	}
	if (from.sll_pkttype != PACKET_OUTGOING || len < (ssize_t)sizeof(head) ||
	    head[23] != IPPROTO_UDP || (bth[5] << 16 | bth[6] << 8 | bth[7]) != NOBODY)
		return false;
	cmsg = CMSG_FIRSTHDR(&msg);
	CHECK(cmsg && cmsg->cmsg_type == SO_TIMESTAMPNS);
	memcpy(&at, CMSG_DATA(cmsg), sizeof(at));
	*time = at.tv_sec * 1000000000ull + at.tv_nsec;
	return true;
}

/* The least time, per packet, that WINDOW packets in a row took. */
static uint64_t fastest(int packets)
{
	uint64_t times[PACKETS], least = UINT64_MAX, took;

	wait_begin();
	for (int i = 0; i < packets;) {
		if (tap_next(&times[i]))
			i++;
		else
			wait_more_verb("packets");
	}
	for (int i = 0; i + WINDOW < packets; i++) {
		took = times[i + WINDOW] - times[i];
		if (took < least)
			least = took;
	}
	return least / WINDOW;
}

/* Connects the first end to a queue pair of the second device that does not exist. */
static void connect_nobody(struct end *a, struct end *b, enum ibv_qp_type type, uint8_t rate)
{
	end_init(a, &r1, type, LEN);
	end_init(b, &r2, type, MTU);
	a->mtu = IBV_MTU_4096;
	a->rate = rate;
	a->psn = 0;
	/* Small requests, which are fetched soon. */
	a->cap.max_send_wr = 2 * WINDOW;
	a->cap.max_send_sge = 1;
	a->cap.max_inline_data = 0;
	end_create(a);
	end_create(b);
	b->qp->qp_num = NOBODY;
	b->psn = 0;
	end_to(a, b, IBV_QPS_RTS);
}

static uint64_t message(uint8_t rate)
{
	struct end a, b;
	uint64_t least;

	connect_nobody(&a, &b, IBV_QPT_UC, rate);
	post_send(&a, NULL, IBV_WR_SEND, 1, 0, LEN, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	least = fastest(PACKETS);
	end_close(&a);
	end_close(&b);
	return least;
}

static uint64_t datagrams(uint8_t rate)
{
	struct ibv_send_wr wrs[2 * WINDOW];
	struct ibv_sge sges[2 * WINDOW];
	int n = 2 * WINDOW;
	struct end a, b;
	uint64_t least;

	connect_nobody(&a, &b, IBV_QPT_UD, rate);
	/* All with one doorbell. */
	make_chain(wrs, sges, n, &a, &b, IBV_WR_SEND, MTU, 0);
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	post_wr(&a, wrs);
	expect(&a, n - 1, IBV_WC_SUCCESS);
	least = fastest(n);
	end_close(&a);
	end_close(&b);
	return least;
}

static uint64_t responses(uint8_t rate)
{
	struct packet request;
	struct end a, b;
	uint64_t least;

	connect_nobody(&a, &b, IBV_QPT_RC, rate);
	request = make(RC_READ_REQUEST, a.qp->qp_num, 0);
	add_reth(&request, a.buf, a.mr->rkey, LEN);
	send_packet(&request);
	least = fastest(PACKETS);
	end_close(&a);
	end_close(&b);
	return least;
}

/* Compares the times of packets at each rate; `payload` is their length beside WIRE. */
static void compare(uint64_t (*send)(uint8_t rate), uint32_t payload)
{
	uint64_t took[ARRAY_LEN(rates)], gap;

	/* The first packets resolve the route and the neighbour, and allocate memory. */
	send(0);
	for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
		took[i] = send(rates[i].code);
		gap = rates[i].mbps ? (WIRE + payload) * 8000ull / rates[i].mbps : 0;
		printf("# rate %s: %llu ns a packet, the least is %llu\n", rates[i].name,
		       (unsigned long long)took[i], (unsigned long long)gap);
		if (gap)
			CHECK(took[i] * WINDOW >= gap * (WINDOW - 1) - SLACK);
	}
	gap = (WIRE + payload) * 8000ull / rates[1].mbps;
	if (took[0] >= gap * 9 / 10) {
		test_skip("without a rate it is as slow: this shows nothing here");
		return;
	}
	/* It must not be much slower than the rate, either. */
	CHECK(took[1] < gap * 5 / 4);
}

static void test_message(void)
{
	compare(message, MTU);
}

static void test_datagrams(void)
{
	compare(datagrams, MTU + DETH);
}

static void test_responses(void)
{
	/* Responses in the middle have no further header. */
	compare(responses, MTU);
}

/* Both directions of a connection with a pace: acknowledgments do not wait, and data arrives. */
static void test_data(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.rate = rates[1].code;
	b.rate = rates[1].code;
	pair_create(&a, &b);
	fill(a.buf, LEN, 1);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 1, 0, LEN, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf, LEN, 1));
	fill(b.buf, LEN, 2);
	post_send(&a, &b, IBV_WR_RDMA_READ, 2, 0, LEN, IBV_SEND_SIGNALED);
	post_send(&b, &a, IBV_WR_RDMA_READ, 3, 0, 0, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 3, IBV_WC_SUCCESS);
	CHECK(filled(a.buf, LEN, 2));
	pair_close(&a, &b);
}

/* Checks that each request completes once, in order, and none successfully after a flushed one. */
static void all_end(struct end *e, uint64_t n)
{
	enum ibv_wc_status last = IBV_WC_SUCCESS;

	for (uint64_t i = 0; i < n; i++) {
		struct ibv_wc wc = next_wc(e->cq);

		CHECK_EQ(wc.wr_id, i);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == last);
		last = wc.status;
	}
}

/* Queue pairs that are reset, fail or are destroyed while they wait for their pace. */
static void test_end(void)
{
	struct end a, b;

	for (int round = 0; round < 30; round++) {
		connect_nobody(&a, &b, IBV_QPT_UC, rates[1].code);
		for (int i = 0; i < 8; i++)
			post_send(&a, NULL, IBV_WR_SEND, i, 0, LEN, IBV_SEND_SIGNALED);
		if (round % 3 == 1)
			end_modify(&a, IBV_QPS_RESET);
		if (round % 3 == 2) {
			end_modify(&a, IBV_QPS_ERR);
			all_end(&a, 8);
		}
		end_close(&a);
		end_close(&b);
	}
}

static void test_codes(void)
{
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	struct end a;

	end_init(&a, &r1, IBV_QPT_UD, 4096);
	end_create(&a);
	attr = end_path(&a, &a);
	for (int code = 0; code < 256; code++) {
		bool known = code == 0 || (code >= 2 && code <= 23) || code == 25;

		attr.static_rate = code;
		ah = ibv_create_ah(r1.pd, &attr);
		CHECK_EQ(!!ah, known);
		if (ah)
			CHECK_EQ(ibv_destroy_ah(ah), 0);
	}
	end_close(&a);
}

static const struct test tests[] = {
	{ "a message", test_message },
	{ "datagrams", test_datagrams },
	{ "READ responses", test_responses },
	{ "data", test_data },
	{ "end of a waiting queue pair", test_end },
	{ "codes", test_codes },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
