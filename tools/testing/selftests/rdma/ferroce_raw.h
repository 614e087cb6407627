/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Packets to the first device from a raw socket on the other end of the link, and its replies.
 */
#ifndef FERROCE_RAW_H
#define FERROCE_RAW_H

#include "ferroce_util.h"

#define RAW_HEADERS 28

enum {
	RC_SEND_FIRST = 0x00,
	RC_SEND_MIDDLE = 0x01,
	RC_SEND_LAST = 0x02,
	RC_SEND_ONLY = 0x04,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_ONLY = 0x0a,
	RC_READ_REQUEST = 0x0c,
	RC_READ_FIRST = 0x0d,
	RC_READ_MIDDLE = 0x0e,
	RC_READ_LAST = 0x0f,
	RC_READ_ONLY = 0x10,
	RC_ACK = 0x11,
	RC_ATOMIC_ACK = 0x12,
	RC_CMP_SWAP = 0x13,
	RC_SEND_LAST_INV = 0x16,
	RC_SEND_ONLY_INV = 0x17,
	RC_RESERVED = 0x1b,
	UC = 0x20,
	UD_SEND_ONLY = 0x64,
	CNP = 0x81,
};

/* A packet to send: the bytes after the UDP header, and its faults. */
struct packet {
	unsigned char bytes[4200];
	size_t len;
	bool bad_icrc;
	const char *source;
	/* The UDP source port; 0 for that of the peer. */
	uint16_t sport;
	/* The type of service. */
	uint8_t tos;
	/* The destination; NULL for the first device. */
	const char *dest;
};

enum {
	ACK = 0x1f,
	NAK_INVALID_REQUEST = 0x61,
	NAK_REMOTE_ACCESS = 0x62,
};

/* A reply: the syndrome, and the original value of an atomic operation. */
struct reply {
	unsigned char syndrome;
	uint64_t found;
};

/* Opens the sockets. */
void raw_open(void);
/* Opens a packet socket, which does not block, on a net device in n2. */
int packet_socket(const char *name);

/* Sends a packet with a checksum behind it. */
void send_packet(struct packet *p);
/* Waits until a queue pair that has just been connected has sent so many packets. */
void await_sent(struct end *e, uint32_t count);
/* Waits for a reply to a queue pair of the second device; others are skipped. */
struct reply raw_reply(uint32_t qpn, unsigned int opcode, uint32_t psn);
/* Forgets replies so far. The socket has room for some hundreds; later ones would be lost. */
void raw_drain(void);

/* A transport header; the rest is appended. */
struct packet make(unsigned int opcode, uint32_t qpn, uint32_t psn);
void add(struct packet *p, const void *data, size_t len);
void add_reth(struct packet *p, const void *va, uint32_t rkey, uint32_t len);
void add_deth(struct packet *p, uint32_t qkey);
void add_aeth(struct packet *p, uint32_t syndrome, uint32_t msn);
/* Adds payload of bytes that no buffer of the tests is filled with. */
void add_payload(struct packet *p, size_t len);

/* Returns the PSN that a queue pair expects. */
uint32_t next_psn(struct end *e);

#endif
