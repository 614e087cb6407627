// SPDX-License-Identifier: GPL-2.0
/*
 * Packets from a raw socket. See ferroce_raw.h.
 */
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include "ferroce_raw.h"

static int sock = -1, replies = -1;

void raw_open(void)
{
	int before = enter_ns("n2");
	struct in_addr from;

	sock = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
	CHECK(sock >= 0);
	inet_pton(AF_INET, "10.77.0.2", &from);
	CHECK_EQ(setsockopt(sock, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)), 0);
	/* Gets a copy of every packet, in addition to the device. */
	replies = socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK, IPPROTO_UDP);
	CHECK(replies >= 0);
	leave_ns(before);
}

int packet_socket(const char *name)
{
	struct sockaddr_ll addr = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int before = enter_ns("n2"), fd;

	fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	CHECK(fd >= 0);
	addr.sll_ifindex = if_nametoindex(name);
	CHECK_EQ(bind(fd, (void *)&addr, sizeof(addr)), 0);
	leave_ns(before);
	return fd;
}

static bool next_reply(unsigned char *bth, size_t len)
{
	unsigned char in[65536];
	ssize_t got = recv(replies, in, sizeof(in), 0);

	if (got < 0) {
		CHECK_EQ(errno, EAGAIN);
		return false;
	}
	memset(bth, 0, len);
	if (got > RAW_HEADERS)
		memcpy(bth, in + RAW_HEADERS,
		       got - RAW_HEADERS < len ? got - RAW_HEADERS : len);
	return true;
}

void raw_drain(void)
{
	unsigned char bth[24];

	while (next_reply(bth, sizeof(bth)))
		;
}

struct reply raw_reply(uint32_t qpn, unsigned int opcode, uint32_t psn)
{
	unsigned char bth[24];
	struct reply reply = {};
	uint32_t words[2];

	wait_begin();
	for (;; wait_more_verb("a reply")) {
		if (!next_reply(bth, sizeof(bth)))
			continue;
		memcpy(words, bth + 4, sizeof(words));
		if (bth[0] == opcode && (ntohl(words[0]) & 0xffffff) == qpn &&
		    (ntohl(words[1]) & 0xffffff) == (psn & 0xffffff))
			break;
	}
	reply.syndrome = bth[12];
	for (int i = 0; i < 8; i++)
		reply.found = reply.found << 8 | bth[16 + i];
	return reply;
}

static uint32_t crc(uint32_t state, const void *data, size_t len)
{
	const unsigned char *p = data;

	while (len--) {
		state ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			state = state >> 1 ^ (state & 1 ? 0xedb88320 : 0);
	}
	return state;
}

void await_sent(struct end *e, uint32_t count)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	wait_begin();
	do {
		wait_more_verb("requests to be sent");
		CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_SQ_PSN, &init), 0);
	} while (attr.sq_psn != ((e->psn + count) & 0xffffff));
}

void send_packet(struct packet *p)
{
	static uint16_t id = 1;
	static const uint64_t ones = ~0ull;
	unsigned char out[RAW_HEADERS + sizeof(p->bytes) + 4];
	unsigned char masked[RAW_HEADERS + sizeof(p->bytes)];
	size_t len = RAW_HEADERS + p->len + 4;
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct iphdr *ip = (void *)out, *masked_ip = (void *)masked;
	struct udphdr *udp = (void *)(ip + 1), *masked_udp = (void *)(masked_ip + 1);
	uint32_t icrc;

	inet_pton(AF_INET, p->dest ?: "10.77.0.1", &to.sin_addr);
	memset(out, 0, RAW_HEADERS);
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = p->tos;
	ip->tot_len = htons(len);
	ip->id = htons(id++ ?: id++);
	ip->frag_off = htons(0x4000);
	ip->ttl = 64;
	ip->protocol = IPPROTO_UDP;
	inet_pton(AF_INET, p->source ?: "10.77.0.2", &ip->saddr);
	ip->daddr = to.sin_addr.s_addr;
	udp->source = htons(p->sport ?: SOURCE_PORT);
	udp->dest = htons(ROCE_PORT);
	udp->len = htons(len - sizeof(*ip));
	memcpy(out + RAW_HEADERS, p->bytes, p->len);

	memcpy(masked, out, RAW_HEADERS + p->len);
	masked_ip->tos = 0xff;
	masked_ip->ttl = 0xff;
	masked_ip->check = 0xffff;
	masked_udp->check = 0xffff;
	if (p->len > 4)
		masked[RAW_HEADERS + 4] = 0xff;
	icrc = ~crc(crc(~0u, &ones, sizeof(ones)), masked, RAW_HEADERS + p->len);
	if (p->bad_icrc)
		icrc ^= 1 << (id & 31);
	memcpy(out + RAW_HEADERS + p->len, &icrc, 4);
	CHECK_EQ(sendto(sock, out, len, 0, (struct sockaddr *)&to, sizeof(to)), len);
}

struct packet make(unsigned int opcode, uint32_t qpn, uint32_t psn)
{
	struct packet p = { .len = 12 };
	uint32_t words[2] = { htonl(qpn & 0xffffff), htonl((psn & 0xffffff) | 1u << 31) };

	p.bytes[0] = opcode;
	p.bytes[2] = 0xff;
	p.bytes[3] = 0xff;
	memcpy(p.bytes + 4, words, 8);
	return p;
}

void add(struct packet *p, const void *data, size_t len)
{
	memcpy(p->bytes + p->len, data, len);
	p->len += len;
}

void add_reth(struct packet *p, const void *va, uint32_t rkey, uint32_t len)
{
	uint32_t reth[4] = { htonl((uintptr_t)va >> 32), htonl((uintptr_t)va), htonl(rkey),
			     htonl(len) };

	add(p, reth, sizeof(reth));
}

void add_deth(struct packet *p, uint32_t qkey)
{
	uint32_t deth[2] = { htonl(qkey), htonl(0x77) };

	add(p, deth, sizeof(deth));
}

void add_aeth(struct packet *p, uint32_t syndrome, uint32_t msn)
{
	uint32_t aeth = htonl(syndrome << 24 | msn);

	add(p, &aeth, sizeof(aeth));
}

void add_payload(struct packet *p, size_t len)
{
	memset(p->bytes + p->len, 0xbd, len);
	p->len += len;
}

uint32_t next_psn(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_RQ_PSN, &init), 0);
	return attr.rq_psn;
}
