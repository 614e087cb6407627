// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic while allocations fail. On RC nothing is lost for good, and a datagram that is lost
 * leaves nothing behind.
 */
#include "ferroce_faults.h"
#include "ferroce_stat.h"

#define LEN 16384
/* Bytes of a message, which takes several packets. */
#define MESSAGE 5000

static struct end a, b;
static enum ibv_wr_opcode opcode;
static uint64_t number;

static const struct {
	enum ibv_wr_opcode opcode;
	const char *name;
} ops[] = {
	{ IBV_WR_SEND, "SEND" },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE with immediate" },
	{ IBV_WR_RDMA_READ, "READ" },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, "FETCH AND ADD" },
};

static void open_pair(enum ibv_qp_type type)
{
	end_init(&a, &r1, type, LEN);
	end_init(&b, &r2, type, LEN);
	for (int i = 0; i < 2; i++) {
		struct end *e = i ? &b : &a;

		/* 134 ms, the delay that each lost packet causes. */
		e->timeout = 15;
		e->access |= IBV_ACCESS_REMOTE_ATOMIC;
		e->region |= IBV_ACCESS_REMOTE_ATOMIC;
	}
	pair_create(&a, &b);
}

static bool is_received(void)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void make_ready(void)
{
	number++;
	fill(a.buf, LEN, number);
	fill(b.buf, LEN, number + 1000000);
	if (is_received())
		post_recv(&b, number, 0, MESSAGE);
}

/* Posts a request. An error of the library does not matter: the request is in the ring. */
static int post(void)
{
	uint32_t len = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : MESSAGE;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	make_send(&wr, &sge, &a, &b, opcode, number, 0, len, IBV_SEND_SIGNALED);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)b.buf;
		wr.wr.atomic.compare_add = 3;
		wr.wr.atomic.rkey = b.mr->rkey;
	}
	return ibv_post_send(a.qp, &wr, &bad);
}

/* Checks that the request completes once, with the right data. */
static void finish(void)
{
	unsigned char wanted[8];
	uint64_t got;

	doorbell(&a);
	expect(&a, number, IBV_WC_SUCCESS);
	if (is_received())
		expect(&b, number, IBV_WC_SUCCESS);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		fill(wanted, 8, number + 1000000);
		CHECK(!memcmp(a.buf, wanted, 8));
		memcpy(&got, b.buf, 8);
		got -= 3;
		CHECK(!memcmp(&got, wanted, 8));
	} else if (opcode == IBV_WR_RDMA_READ) {
		CHECK(filled(a.buf, MESSAGE, number + 1000000));
	} else {
		CHECK(filled(b.buf, MESSAGE, number));
	}
	expect_none(&a);
	expect_none(&b);
}

void test_posted(void)
{
	open_pair(IBV_QPT_RC);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		char name[64];

		opcode = ops[i].opcode;
		snprintf(name, sizeof(name), "post_send of a %s", ops[i].name);
		inject(&(struct call){ name, make_ready, post, NULL, finish });
	}
	pair_close(&a, &b);
}

/* The number of posted receives. */
static int receives;

/* A datagram may get lost; the one behind it arrives. */
static void make_datagram(void)
{
	number++;
	fill(a.buf, LEN, number);
	for (; receives < 2; receives++)
		post_recv(&b, 0, 0, GRH_LEN + 1000);
}

static int post_datagram(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	make_send(&wr, &sge, &a, &b, IBV_WR_SEND_WITH_IMM, number, 0, 1000, IBV_SEND_SIGNALED);
	return ibv_post_send(a.qp, &wr, &bad);
}

static void finish_datagram(void)
{
	struct ibv_wc wc;

	doorbell(&a);
	expect(&a, number, IBV_WC_SUCCESS);
	number++;
	CHECK_EQ(post_datagram(), 0);
	expect(&a, number, IBV_WC_SUCCESS);
	do {
		wc = expect(&b, 0, IBV_WC_SUCCESS);
		receives--;
		CHECK_EQ(wc.byte_len, GRH_LEN + 1000);
	} while (ntohl(wc.imm_data) != number);
	CHECK(filled(b.buf + GRH_LEN, 1000, number - 1));
}

void test_posted_datagrams(void)
{
	open_pair(IBV_QPT_UD);
	receives = 0;
	inject(&(struct call){
		"post_send of a datagram", make_datagram, post_datagram, NULL, finish_datagram });
	pair_close(&a, &b);
}

static struct end raw;

static void open_raw(void)
{
	end_init(&raw, &r1, IBV_QPT_RAW_PACKET, LEN);
	end_create(&raw);
	end_to(&raw, NULL, IBV_QPS_RTS);
	memset(raw.buf, 0x02, LEN);
}

static int post_frame(void)
{
	struct ibv_sge sge = { (uintptr_t)raw.buf, 1000, raw.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = ++number,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	return ibv_post_send(raw.qp, &wr, &bad);
}

static void finish_frame(void)
{
	doorbell(&raw);
	expect(&raw, number, IBV_WC_SUCCESS);
}

void test_posted_frames(void)
{
	long long before = port_file("r1", "hw_counters", "tx_no_memory");

	open_raw();
	inject(&(struct call){ "post_send of a frame", NULL, post_frame, NULL, finish_frame });
	end_close(&raw);
	CHECK(port_file("r1", "hw_counters", "tx_no_memory") > before);
}
