// SPDX-License-Identifier: GPL-2.0
/*
 * ferroce_peer SIDE IP-VERSION MTU TEST PORT [SERVER]: one side of a test between two machines; the
 * other runs the same program with the same test. The one without an address is the server, which
 * listens on a TCP port and is the target of the operations. Either side may have any driver.
 *
 * Both go through a test in step (in_step()). The side that receives data, by any operation, checks
 * each byte of it, and the bytes around it.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ferroce_mcast.h"

/* The longest message, and the margin around it. */
#define LONGEST 1048576
#define MARGIN 64
#define LEN (LONGEST + 2 * MARGIN + GRH_LEN)
#define UNTOUCHED 0xee
/* The exit code if no multicast arrives, and the number of tries. */
#define NOT_RECEIVED 3
#define TRIES 200
/* Immediate data of datagrams by destination; the number of datagrams to check. */
#define GROUP 1000
#define DIRECT 1001
#define COPIES 20
#define SLOT 8192

/* Data that the sides exchange. */
struct hello {
	union ibv_gid gid, gid6;
	uint32_t qpn, psn, rkey;
	uint64_t addr;
};

static int conn;
static bool server, v6;
static enum ibv_mtu mtu;
static unsigned int mtu_bytes;

static struct dev dev, far_dev;
static struct ibv_qp far_qp;
static struct ibv_mr far_mr;
/* `far` stands for the other side where a function takes an end. */
static struct end me, far;

static void swap(const void *ours, void *theirs, size_t len)
{
	CHECK_EQ(send(conn, ours, len, MSG_NOSIGNAL), len);
	CHECK_EQ(recv(conn, theirs, len, MSG_WAITALL), len);
}

/* Waits until the other side gets here, too. `step` must be the same. */
static void in_step(unsigned int step)
{
	unsigned int theirs;

	swap(&step, &theirs, sizeof(step));
	CHECK_EQ(theirs, step);
}

static void tcp_connect(const char *port, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	CHECK(fd >= 0);
	server = !address;
	if (server) {
		CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
		CHECK_EQ(bind(fd, (void *)&to, sizeof(to)), 0);
		CHECK_EQ(listen(fd, 1), 0);
		conn = accept(fd, NULL, NULL);
		CHECK(conn >= 0);
	} else {
		CHECK_EQ(inet_pton(AF_INET, address, &to.sin_addr), 1);
		CHECK_EQ(connect(fd, (void *)&to, sizeof(to)), 0);
		conn = fd;
	}
	CHECK_EQ(setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
}

/* Takes a queue pair on each side to RTS. */
static void ends_open(enum ibv_qp_type type, uint64_t ops, unsigned int access)
{
	struct hello ours, theirs;

	end_init(&me, &dev, type, LEN);
	me.v6 = v6;
	me.mtu = mtu;
	me.ops = ops;
	me.access |= access;
	me.region |= access;
	/* 2.1 s, seven times: the other machine may stop for seconds. */
	me.timeout = 19;
	/* C rxe takes 7 to mean forever. */
	me.retry_cnt = 6;
	end_create(&me);
	ours = (struct hello) {
		.gid = dev.gid,
		.gid6 = dev.gid6,
		.qpn = me.qp->qp_num,
		.psn = me.psn,
		.rkey = me.mr->rkey,
		.addr = (uintptr_t)me.buf,
	};
	swap(&ours, &theirs, sizeof(ours));
	far_dev.gid = theirs.gid;
	far_dev.gid6 = theirs.gid6;
	far_qp.qp_num = theirs.qpn;
	far_mr.rkey = theirs.rkey;
	far = (struct end) {
		.dev = &far_dev,
		.qp = &far_qp,
		.mr = &far_mr,
		.psn = theirs.psn,
		.buf = (void *)(uintptr_t)theirs.addr,
	};
	end_to(&me, &far, IBV_QPS_RTS);
	in_step(0);
}

/* Clears the buffer; data is received behind a margin. */
static void clear(size_t len)
{
	memset(me.buf, UNTOUCHED, len + 2 * MARGIN);
}

static void arrived(size_t at, size_t len, uint32_t seed)
{
	CHECK(all_bytes(me.buf, at, UNTOUCHED));
	CHECK(filled(me.buf + at, len, seed));
	CHECK(all_bytes(me.buf + at + len, MARGIN, UNTOUCHED));
}

static bool takes_receive(enum ibv_wr_opcode op)
{
	return op != IBV_WR_RDMA_WRITE && op != IBV_WR_RDMA_READ;
}

/* One operation of one length. */
static void transfer(enum ibv_wr_opcode op, size_t len, unsigned int step)
{
	size_t grh = me.type == IBV_QPT_UD ? GRH_LEN : 0;
	bool reads = op == IBV_WR_RDMA_READ;

	if (server == reads) {
		fill(me.buf + MARGIN, len, step);
	} else {
		clear(len + grh);
		if (takes_receive(op))
			post_recv(&me, step, MARGIN, len + grh);
	}
	in_step(step);
	if (!server) {
		post_send(&me, &far, op, step, MARGIN, len, IBV_SEND_SIGNALED);
		expect(&me, step, IBV_WC_SUCCESS);
		if (reads)
			arrived(MARGIN, len, step);
	} else if (takes_receive(op)) {
		struct ibv_wc wc = expect(&me, step, IBV_WC_SUCCESS);

		CHECK_EQ(wc.byte_len, len + grh);
		if (op != IBV_WR_SEND)
			CHECK_EQ(ntohl(wc.imm_data), step);
		if (grh)
			CHECK(filled(me.buf + MARGIN + grh, len, step));
		else
			arrived(MARGIN, len, step);
	}
	in_step(step);
	if (server && op == IBV_WR_RDMA_WRITE)
		arrived(MARGIN, len, step);
	expect_none(&me);
}

static void transfers(const enum ibv_wr_opcode *ops, size_t n, size_t longest)
{
	const size_t lengths[] = {
		0, 1, 2, 3, 4, 64, mtu_bytes - 1, mtu_bytes, mtu_bytes + 1, 2 * mtu_bytes,
		5 * mtu_bytes + 3, 65536, LONGEST - 1, LONGEST,
	};
	unsigned int step = 1;

	for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
		for (size_t op = 0; op < n && lengths[i] <= longest; op++)
			transfer(ops[op], lengths[i], step++);
}

/* The first three complete at the target, too, which UC needs; UD has the first two. */
static const enum ibv_wr_opcode all_ops[] = {
	IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_READ,
};

static void test_rc(void)
{
	ends_open(IBV_QPT_RC, 0, 0);
	transfers(all_ops, ARRAY_LEN(all_ops), LONGEST);
}

static void test_uc(void)
{
	ends_open(IBV_QPT_UC, 0, 0);
	transfers(all_ops, 3, LONGEST);
}

static void test_ud(void)
{
	ends_open(IBV_QPT_UD, 0, 0);
	transfers(all_ops, 2, mtu_bytes);
}

/*
 * Messages of all lengths in both directions at once, several in flight, with READs in between:
 * each message must find its own receive, in order.
 */
static void test_stream(void)
{
	enum { MESSAGES = 200, WINDOW = 8, SPACE = 32768, READ_FROM = 2 * WINDOW * SPACE };
	unsigned int posted = 0, sent = 0, received = 0, ready = 0;
	uint64_t state = 1;
	uint32_t lengths[MESSAGES];
	struct ibv_wc wc;
	int n;

	for (unsigned int i = 0; i < MESSAGES; i++)
		lengths[i] = rnd(&state) % (i % 5 ? 3 * mtu_bytes : SPACE);
	ends_open(IBV_QPT_RC, 0, 0);
	fill(me.buf + READ_FROM, SPACE, server);
	for (; ready < WINDOW; ready++)
		post_recv(&me, ready, ready * SPACE, SPACE);
	in_step(1);
	wait_begin();
	while (sent < MESSAGES || received < MESSAGES) {
		if (posted < MESSAGES && posted - sent < WINDOW / 2) {
			size_t at = (WINDOW + posted % WINDOW) * SPACE;
			struct ibv_send_wr wr;
			struct ibv_sge sge;

			make_send(&wr, &sge, &me, &far, IBV_WR_SEND_WITH_IMM, MESSAGES + posted, at,
				  lengths[posted], IBV_SEND_SIGNALED);
			if (posted % 4 == 3) {
				wr.opcode = IBV_WR_RDMA_READ;
				wr.wr.rdma.remote_addr = (uintptr_t)far.buf + READ_FROM;
				memset(me.buf + at, UNTOUCHED, SPACE);
			} else {
				fill(me.buf + at, lengths[posted], posted);
			}
			post_wr(&me, &wr);
			posted++;
		}
		n = ibv_poll_cq(me.cq, 1, &wc);
		CHECK(n >= 0);
		if (!n) {
			wait_more("a completion");
			continue;
		}
		wait_begin();
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.wr_id >= MESSAGES) {
			CHECK_EQ(wc.wr_id, MESSAGES + sent);
			if (sent % 4 == 3)
				CHECK(filled(me.buf + (WINDOW + sent % WINDOW) * SPACE,
					     lengths[sent], !server));
			sent++;
			continue;
		}
		/* READs consume no receive request. */
		if (received % 4 == 3)
			received++;
		CHECK_EQ(ntohl(wc.imm_data), MESSAGES + received);
		CHECK_EQ(wc.byte_len, lengths[received]);
		CHECK(filled(me.buf + wc.wr_id * SPACE, wc.byte_len, received));
		received++;
		if (received == MESSAGES - 1)
			received++;
		post_recv(&me, wc.wr_id, wc.wr_id * SPACE, SPACE);
	}
	in_step(2);
}

static void post_atomic(enum ibv_wr_opcode op, uint64_t compare_add, uint64_t swap,
			unsigned int slot)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, &me, &far, op, slot, MARGIN + 8 * slot, 8, IBV_SEND_SIGNALED);
	wr.wr.atomic.remote_addr = (uintptr_t)far.buf + MARGIN;
	wr.wr.atomic.rkey = far.mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	post_wr(&me, &wr);
}

/* Compare and swap with and without a match, and many additions at once. */
static void test_atomic(void)
{
	enum { ADDS = 48 };
	uint64_t *words, value = 0x1122334455667788;

	ends_open(IBV_QPT_RC, 0, IBV_ACCESS_REMOTE_ATOMIC);
	words = (uint64_t *)(me.buf + MARGIN);
	clear(8);
	if (server)
		*words = value;
	in_step(1);
	if (!server) {
		post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, value, 1000, 0);
		expect(&me, 0, IBV_WC_SUCCESS);
		CHECK_EQ(words[0], value);
		post_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, value, 2000, 0);
		expect(&me, 0, IBV_WC_SUCCESS);
		CHECK_EQ(words[0], 1000);
		for (unsigned int i = 0; i < ADDS; i++)
			post_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, i + 1, 0, i);
		for (unsigned int i = 0; i < ADDS; i++) {
			expect(&me, i, IBV_WC_SUCCESS);
			CHECK_EQ(words[i], 1000 + i * (i + 1) / 2);
		}
	}
	in_step(2);
	if (server) {
		CHECK_EQ(*words, 1000 + ADDS * (ADDS + 1) / 2);
		CHECK(all_bytes(me.buf, MARGIN, UNTOUCHED));
		CHECK(all_bytes(me.buf + MARGIN + 8, MARGIN, UNTOUCHED));
	}
}

static void test_atomic_write(void)
{
	struct ibv_qp_ex *qp;
	char bytes[8];

	ends_open(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE, 0);
	for (unsigned int i = 1; i <= 20; i++) {
		clear(8);
		in_step(2 * i);
		if (!server) {
			fill(bytes, 8, i);
			qp = ex_begin(&me, i, IBV_SEND_SIGNALED);
			ibv_wr_atomic_write(qp, far.mr->rkey, (uintptr_t)far.buf + MARGIN, bytes);
			ex_post(&me);
			CHECK_EQ(expect(&me, i, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
		}
		in_step(2 * i + 1);
		if (server)
			arrived(MARGIN, 8, i);
	}
}

/* A WRITE, followed by a FLUSH of its range or of the whole region. */
static void test_flush(void)
{
	const size_t len = 20000;
	struct ibv_qp_ex *qp;

	ends_open(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_FLUSH,
		  IBV_ACCESS_FLUSH_GLOBAL);
	for (unsigned int i = 1; i <= 20; i++) {
		if (server)
			clear(len);
		else
			fill(me.buf + MARGIN, len, i);
		in_step(2 * i);
		if (!server) {
			qp = ex_begin(&me, i, 0);
			ibv_wr_rdma_write(qp, far.mr->rkey, (uintptr_t)far.buf + MARGIN);
			ibv_wr_set_sge(qp, me.mr->lkey, (uintptr_t)me.buf + MARGIN, len);
			ex_post(&me);
			qp = ex_begin(&me, i, IBV_SEND_SIGNALED);
			ibv_wr_flush(qp, far.mr->rkey, (uintptr_t)far.buf + MARGIN, len,
				     IBV_FLUSH_GLOBAL, i & 1 ? IBV_FLUSH_RANGE : IBV_FLUSH_MR);
			ex_post(&me);
			CHECK_EQ(expect(&me, i, IBV_WC_SUCCESS).opcode, IBV_WC_FLUSH);
		}
		in_step(2 * i + 1);
		if (server)
			arrived(MARGIN, len, i);
	}
}

/* Sends a datagram to the group, or to the server's queue pair itself. */
static void send_datagram(struct ibv_ah *ah, uint32_t qpn, uint32_t seed)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	fill(me.buf, mtu_bytes, seed);
	make_send(&wr, &sge, &me, &far, IBV_WR_SEND_WITH_IMM, seed, 0, mtu_bytes,
		  IBV_SEND_SIGNALED);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	post_wr(&me, &wr);
	expect(&me, seed, IBV_WC_SUCCESS);
}

/* Returns the next completion of the server, and checks its datagram. */
static struct ibv_wc next_datagram(void)
{
	struct ibv_wc wc = next_wc(me.cq);

	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, mtu_bytes + GRH_LEN);
	CHECK_EQ(wc.src_qp, far.qp->qp_num);
	CHECK(filled(me.buf + wc.wr_id * SLOT + GRH_LEN, mtu_bytes, ntohl(wc.imm_data)));
	return wc;
}

/*
 * Waits until the group reaches the server: net devices add new addresses to their filters with
 * some delay. Each try is followed by a datagram that does not go to the group.
 */
static bool group_reached(struct ibv_ah *ah)
{
	bool reached = false, theirs;

	/* There are two receives for each try, alternately in two slots. */
	if (server)
		post_recv(&me, 2, 2 * SLOT, SLOT);
	for (int i = 0; i < TRIES && !reached; i++) {
		unsigned int slot = 1 + i % 2;

		if (server)
			post_recv(&me, slot, slot * SLOT, SLOT);
		in_step(i);
		if (server) {
			reached = ntohl(next_datagram().imm_data) == GROUP;
			if (reached)
				CHECK_EQ(ntohl(next_datagram().imm_data), DIRECT);
		} else {
			send_datagram(ah, MULTICAST_QPN, GROUP);
			send_datagram(me.ah, far.qp->qp_num, DIRECT);
		}
		swap(&reached, &theirs, sizeof(reached));
		reached |= theirs;
	}
	return reached;
}

/* Returns whether the destination address, at the end of the IP header, is that of `gid`. */
static bool went_to(const unsigned char *grh, union ibv_gid gid)
{
	return v6 ? !memcmp(grh + 24, gid.raw, 16) : !memcmp(grh + 36, gid.raw + 12, 4);
}

static void test_mcast(void)
{
	union ibv_gid group = v6 ? group6(9) : group4(9);
	struct ibv_ah_attr path;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	ends_open(IBV_QPT_UD, 0, 0);
	path = end_path(&me, &far);
	path.grh.dgid = group;
	path.grh.hop_limit = 1;
	ah = ibv_create_ah(dev.pd, &path);
	CHECK(ah);
	if (server)
		CHECK_EQ(ibv_attach_mcast(me.qp, &group, 0), 0);
	in_step(0);
	if (!group_reached(ah)) {
		printf("# nothing that was sent to the group arrived\n");
		exit(NOT_RECEIVED);
	}
	for (unsigned int i = 1; server && i <= COPIES; i++)
		post_recv(&me, i, i * SLOT, SLOT);
	in_step(TRIES);
	for (unsigned int i = 1; i <= COPIES; i++) {
		if (!server) {
			send_datagram(ah, MULTICAST_QPN, i);
			continue;
		}
		wc = next_datagram();
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(ntohl(wc.imm_data), i);
		CHECK(wc.wc_flags & IBV_WC_GRH);
		CHECK(went_to(me.buf + i * SLOT, group));
	}
	in_step(TRIES + 1);
	expect_none(&me);
	if (server)
		CHECK_EQ(ibv_detach_mcast(me.qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
}

static const struct test tests[] = {
	{ "rc", test_rc },
	{ "uc", test_uc },
	{ "ud", test_ud },
	{ "stream", test_stream },
	{ "atomic", test_atomic },
	{ "atomic_write", test_atomic_write },
	{ "flush", test_flush },
	{ "mcast", test_mcast },
};

int main(int argc, char **argv)
{
	if (argc < 6) {
		fprintf(stderr, "usage: %s SIDE IP-VERSION MTU TEST PORT [SERVER]\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	v6 = atoi(argv[2]) == 6;
	mtu_bytes = atoi(argv[3]);
	for (mtu = IBV_MTU_256; mtu < IBV_MTU_4096 && 128u << mtu < mtu_bytes; mtu++)
		;
	dev_open(&dev, atoi(argv[1]));
	tcp_connect(argv[5], argv[6]);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
		if (!strcmp(tests[i].name, argv[4])) {
			tests[i].run();
			end_close(&me);
			printf("# %s: done\n", argv[4]);
			return 0;
		}
	}
	fprintf(stderr, "there is no test %s\n", argv[4]);
	return 2;
}
