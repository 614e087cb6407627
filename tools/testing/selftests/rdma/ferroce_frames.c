// SPDX-License-Identifier: GPL-2.0
/*
 * RAW_PACKET queue pairs: frames leave the net device of r1 as they are in the buffer, seen by a
 * packet socket on the other end. Nothing is received: librxe has no flow steering.
 */
#include <linux/capability.h>
#include <net/ethernet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_raw.h"

#define LEN 16384
#define HEADER 14
/* The MTU of the net devices (net_up()). */
#define MTU 4200
/* An EtherType for local experiments. */
#define TYPE 0x88b5

static int capture = -1;
static struct end raw;

static void open_capture(void)
{
	capture = packet_socket("v2");
	raw_open();
}

static bool frame_modify(enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = QKEY };

	return !ibv_modify_qp(raw.qp, &attr, mask | IBV_QP_STATE);
}

static void open_raw_on(struct dev *dev, size_t len)
{
	end_init(&raw, dev, IBV_QPT_RAW_PACKET, len);
	end_create(&raw);
	end_to(&raw, NULL, IBV_QPS_RTS);
}

static void open_raw(void)
{
	open_raw_on(&r1, LEN);
}

/* Writes a frame to the start of the buffer, with a VLAN tag or without. */
static void make_frame(size_t len, bool tagged, uint32_t seed)
{
	static const unsigned char macs[12] = { 0x02, 0, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 0, 0x01 };
	uint16_t type = htons(tagged ? ETHERTYPE_VLAN : TYPE);

	fill(raw.buf, len, seed);
	memcpy(raw.buf, macs, sizeof(macs));
	memcpy(raw.buf + 12, &type, sizeof(type));
	if (tagged) {
		type = htons(TYPE);
		raw.buf[14] = 0;
		raw.buf[15] = 5;
		memcpy(raw.buf + 16, &type, sizeof(type));
	}
}

static void send_frame(uint64_t wr_id, size_t len, unsigned int flags)
{
	struct ibv_sge sges[3] = {
		{ (uintptr_t)raw.buf, 7, raw.mr->lkey },
		{ (uintptr_t)raw.buf + 7, 1, raw.mr->lkey },
		{ (uintptr_t)raw.buf + 8, len - 8, raw.mr->lkey },
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sges,
		.num_sge = 3,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | flags,
	};

	post_wr(&raw, &wr);
}

/* Waits for the next frame of this test, skips others, and checks it. The tag is gone by then. */
static void captured(size_t len, bool tagged)
{
	unsigned char in[8192], wanted[8192];
	ssize_t got;

	memcpy(wanted, raw.buf, len);
	if (tagged) {
		memmove(wanted + 12, wanted + 16, len - 16);
		len -= 4;
	}
	wait_begin();
	for (;;) {
		wait_more("a frame");
		got = recv(capture, in, sizeof(in), MSG_DONTWAIT);
		if (got >= HEADER && in[12] == TYPE >> 8 && in[13] == (TYPE & 0xff))
			break;
	}
	CHECK_EQ(got, len);
	CHECK(!memcmp(in, wanted, len));
}

static void nothing_captured(void)
{
	unsigned char in[8192];
	ssize_t got;

	while ((got = recv(capture, in, sizeof(in), MSG_DONTWAIT)) >= 0)
		CHECK(got < HEADER || in[12] != TYPE >> 8 || in[13] != (TYPE & 0xff));
}

static void frames(void)
{
	static const size_t lens[] = { HEADER, HEADER + 1, 60, 61, 1514, MTU + HEADER };

	open_raw();
	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		make_frame(lens[i], false, i);
		send_frame(i, lens[i], 0);
		expect(&raw, i, IBV_WC_SUCCESS);
		captured(lens[i], false);
	}
	make_frame(60, false, 20);
	send_frame(20, 60, IBV_SEND_INLINE);
	expect(&raw, 20, IBV_WC_SUCCESS);
	captured(60, false);
	make_frame(MTU + HEADER + 4, true, 21);
	send_frame(21, MTU + HEADER + 4, 0);
	expect(&raw, 21, IBV_WC_SUCCESS);
	captured(MTU + HEADER + 4, true);
	end_close(&raw);
}

/* More frames than the queue holds, and than may be in flight. */
static void many(void)
{
	open_raw();
	for (int i = 0; i < 2000; i++) {
		make_frame(200, false, i);
		send_frame(i, 200, 0);
		expect(&raw, i, IBV_WC_SUCCESS);
		captured(200, false);
	}
	end_close(&raw);
}

/* Requests that fail: the queue pair goes to SQE, sends nothing, and can go on. */
static void errors(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.wr_id = 4,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
	};

	open_raw();
	for (int i = 0; i < 5; i++) {
		enum ibv_wc_status status = IBV_WC_LOC_LEN_ERR;

		make_frame(MTU + HEADER + 5, i == 2, i);
		sge = (struct ibv_sge){ (uintptr_t)raw.buf, 60, raw.mr->lkey };
		switch (i) {
		case 0:
			send_frame(i, HEADER - 1, 0);
			break;
		case 1:
			/* A frame without a tag may not use the room for one. */
			send_frame(i, MTU + HEADER + 1, 0);
			break;
		case 2:
			send_frame(i, MTU + HEADER + 5, 0);
			break;
		case 3:
			sge.lkey ^= 1;
			wr.opcode = IBV_WR_SEND;
			wr.wr_id = i;
			post_wr(&raw, &wr);
			status = IBV_WC_LOC_PROT_ERR;
			break;
		case 4:
			wr.opcode = IBV_WR_SEND_WITH_IMM;
			wr.wr_id = i;
			post_wr(&raw, &wr);
			status = IBV_WC_LOC_QP_OP_ERR;
			break;
		}
		expect(&raw, i, status);
		end_await(&raw, IBV_QPS_SQE);
		nothing_captured();
		CHECK(frame_modify(IBV_QPS_RTS, 0));
		make_frame(100, false, i);
		send_frame(100 + i, 100, 0);
		expect(&raw, 100 + i, IBV_WC_SUCCESS);
		captured(100, false);
	}
	end_close(&raw);
}

static void add_r5(struct dev *r5, const char *netdev)
{
	shell("ip netns exec n1 rdma link add r5 type ferroce netdev %s", netdev);
	r5->ctx = open_device("r5");
	CHECK(r5->ctx);
	r5->pd = ibv_alloc_pd(r5->ctx);
	CHECK(r5->pd);
}

/* Frames that the MTU of lo allows, but are longer than any packet. */
static void long_frames(void)
{
	static const size_t lens[] = { (1 << 16) + HEADER + 1, 1 << 20 };
	struct dev r5 = {};

	shell_undo("ip -n n1 link set lo mtu 65536", "ip -n n1 link set lo mtu 2000000");
	add_r5(&r5, "lo");
	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		open_raw_on(&r5, 1 << 20);
		send_frame(0, (1 << 16) + HEADER, 0);
		expect(&raw, 0, IBV_WC_SUCCESS);
		send_frame(1, lens[i], 0);
		expect(&raw, 1, IBV_WC_LOC_LEN_ERR);
		end_close(&raw);
	}
	CHECK_EQ(ibv_dealloc_pd(r5.pd), 0);
	CHECK_EQ(ibv_close_device(r5.ctx), 0);
	shell("ip netns exec n1 rdma link delete r5");
	undo_last();
}

static void states(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	end_init(&raw, &r1, IBV_QPT_RAW_PACKET, LEN);
	end_create(&raw);
	CHECK(!frame_modify(IBV_QPS_INIT, 0));
	CHECK(!frame_modify(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_QKEY));
	CHECK(!frame_modify(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX));
	CHECK(frame_modify(IBV_QPS_INIT, IBV_QP_PORT));
	CHECK(!frame_modify(IBV_QPS_RTR, IBV_QP_QKEY));
	CHECK(frame_modify(IBV_QPS_RTR, 0));
	CHECK(!frame_modify(IBV_QPS_RTS, IBV_QP_SQ_PSN));
	CHECK(!frame_modify(IBV_QPS_RTS, IBV_QP_RATE_LIMIT));
	CHECK(frame_modify(IBV_QPS_RTS, 0));
	CHECK_EQ(ibv_query_qp(raw.qp, &attr, IBV_QP_STATE | IBV_QP_PORT, &init), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
	CHECK_EQ(attr.port_num, 1);
	CHECK_EQ(init.qp_type, IBV_QPT_RAW_PACKET);
	CHECK_EQ(init.cap.max_send_wr, raw.cap.max_send_wr);
	CHECK(frame_modify(IBV_QPS_ERR, 0));
	post_recv(&raw, 1, 0, LEN);
	doorbell(&raw);
	expect(&raw, 1, IBV_WC_WR_FLUSH_ERR);
	CHECK(frame_modify(IBV_QPS_RESET, 0));
	end_close(&raw);
}

/* Packets of any transport to the number of the queue pair. */
static void nothing_received(void)
{
	static const unsigned int opcodes[] = { UD_SEND_ONLY, RC_SEND_ONLY, UC | RC_SEND_ONLY,
						RC_WRITE_ONLY, RC_ACK };
	struct end live[2];

	open_raw();
	pair_open(&live[0], &live[1], IBV_QPT_UD, LEN);
	memset(raw.buf, 0x33, LEN);
	post_recv(&raw, 1, 0, LEN);
	for (size_t i = 0; i < ARRAY_LEN(opcodes); i++) {
		for (uint32_t key = 0; key <= 1; key++) {
			struct packet p = make(opcodes[i], raw.qp->qp_num, 0);

			add_deth(&p, key * QKEY);
			add_payload(&p, 64);
			send_packet(&p);
		}
	}
	post_recv(&live[0], 2, 0, LEN);
	post_send(&live[1], &live[0], IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
	expect(&live[0], 2, IBV_WC_SUCCESS);
	expect_none(&raw);
	CHECK(all_bytes(raw.buf, LEN, 0x33));
	CHECK_EQ(end_state(&raw), IBV_QPS_RTS);
	end_close(&live[0]);
	end_close(&live[1]);
	end_close(&raw);
}

/* Only processes with CAP_NET_RAW, which may send frames anyway, can create the queue pair. */
static void privilege(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = {};
	int status;
	pid_t child;

	child = child_fork();
	if (child == 0) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RAW_PACKET,
			.cap = { 1, 1, 1, 1, 0 },
		};
		struct ibv_context *ctx = open_device("r1");
		struct ibv_pd *pd;

		if (!ctx)
			_exit(1);
		pd = ibv_alloc_pd(ctx);
		init.send_cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
		init.recv_cq = init.send_cq;
		if (!pd || !init.send_cq || !ibv_create_qp(pd, &init))
			_exit(2);
		if (syscall(SYS_capget, &header, caps))
			_exit(3);
		caps[0].effective &= ~(1u << CAP_NET_RAW);
		if (syscall(SYS_capset, &header, caps))
			_exit(4);
		if (ibv_create_qp(pd, &init) || errno != EPERM)
			_exit(5);
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

/* Frames are lost as long as the net device is down. */
static void link_down(void)
{
	open_raw();
	shell("ip -n n1 link set v1 down");
	make_frame(100, false, 1);
	send_frame(1, 100, 0);
	expect(&raw, 1, IBV_WC_SUCCESS);
	nothing_captured();
	shell("ip -n n1 link set v1 up");
	/* The carrier is detected a little later. */
	shell("for i in $(seq 1000); do ip -n n1 link show v1 | grep -q LOWER_UP && exit; done;"
	      "exit 1");
	make_frame(100, false, 2);
	send_frame(2, 100, 0);
	expect(&raw, 2, IBV_WC_SUCCESS);
	captured(100, false);
	end_close(&raw);
}

/*
 * Frames are lost once the net device is in another namespace, although its RDMA device is still
 * there: modules/ferroce_hold.c delays the removal. A frame of a packet socket follows.
 */
static void link_moved(void)
{
	struct dev r5 = {};
	int moved;

	/* v5 has a carrier as soon as it is up, because v6 is up already. */
	shell("ip -n n1 link add v5 type veth peer name v6 netns n2");
	shell("ip -n n2 link set v6 up && ip -n n1 link set v5 up");
	add_r5(&r5, "v5");
	open_raw_on(&r5, LEN);
	close(capture);
	capture = packet_socket("v6");
	make_frame(100, false, 1);
	send_frame(1, 100, 0);
	expect(&raw, 1, IBV_WC_SUCCESS);
	captured(100, false);

	shell_undo("echo N >/sys/module/ferroce_hold/parameters/hold_remove; rmmod ferroce_hold",
		   "insmod $(dirname $(readlink /proc/$PPID/exe))/ferroce_hold.ko hold_remove=1");
	shell("ip -n n1 link set v5 netns n2 && ip -n n2 link set v5 up");
	moved = packet_socket("v5");
	wait_begin();
	while (system("grep -q Y /sys/module/ferroce_hold/parameters/in_remove"))
		wait_more_program("the removal of r5");
	make_frame(100, false, 2);
	send_frame(2, 100, 0);
	expect(&raw, 2, IBV_WC_SUCCESS);
	make_frame(100, false, 3);
	wait_begin();
	while (send(moved, raw.buf, 100, 0) != 100)
		wait_more("the carrier");
	captured(100, false);
	close(moved);
	undo_last();
	wait_begin();
	while (!access("/sys/class/infiniband/r5", F_OK))
		wait_more_verb("the end of a device");
}

/* Deleting the net device does not wait for the queue pair. The last case: r1 is gone. */
static void link_deleted(void)
{
	open_raw();
	shell("ip -n n1 link delete v1");
	wait_begin();
	while (!access("/sys/class/infiniband/r1", F_OK))
		wait_more_verb("the end of a device");
}

static const struct test tests[] = {
	{ "frames are sent unchanged", frames },
	{ "many frames", many },
	{ "failed requests", errors },
	{ "frames longer than any packet", long_frames },
	{ "states and attributes", states },
	{ "nothing is received", nothing_received },
	{ "CAP_NET_RAW", privilege },
	{ "net device down", link_down },
	{ "net device moved", link_moved },
	{ "net device deleted", link_deleted },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, open_capture, tests, ARRAY_LEN(tests));
}
