// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic while allocations of the driver fail in any context: the receive softirq, work items that
 * fault in memory on demand, the doorbell. RC recovers; datagrams may be lost.
 */
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_faults.h"
#include "ferroce_mcast.h"

#define PAGE 4096
#define LEN (64 * PAGE)
/* The bytes that the largest window of packets carries. */
#define WINDOW (128 * PAGE)
/* Bytes of a datagram, and the datagrams in flight: more than the driver keeps memory for. */
#define DATAGRAM 4000
#define BURST 800

static struct end a, b, c;
static uint64_t number;

/* The timeout is 4.096 us * 2^timeout, the delay that each lost packet causes. */
static void open_reliable(unsigned int access, enum ibv_mtu mtu, size_t len, uint8_t timeout)
{
	end_init(&a, &r1, IBV_QPT_RC, len);
	end_init(&b, &r2, IBV_QPT_RC, len);
	for (int i = 0; i < 2; i++) {
		struct end *e = i ? &b : &a;

		e->timeout = timeout;
		e->mtu = mtu;
		e->region |= access;
	}
	pair_create(&a, &b);
}

/* A request failed, which is the end of the connection. */
static bool broken;

/* Waits for the completion of the current request; returns whether it succeeded. */
static bool succeeded(struct end *e)
{
	struct ibv_wc wc = next_wc(e->cq);

	CHECK_EQ(wc.wr_id, number);
	/*
	 * A page that cannot be faulted in is an error of the queue pair. With several faults in a
	 * row the responder's NAK gets no memory either, and is lost. There is no response after
	 * it, so the requester gives up.
	 */
	if (wc.status == IBV_WC_RETRY_EXC_ERR)
		CHECK_EQ(end_state(&b), IBV_QPS_ERR);
	else if (wc.status != IBV_WC_LOC_QP_OP_ERR && wc.status != IBV_WC_REM_OP_ERR)
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	broken = wc.status != IBV_WC_SUCCESS;
	return !broken;
}

/* Posts one request and checks the data. */
static void transfer(enum ibv_wr_opcode op, uint32_t len)
{
	bool read = op == IBV_WR_RDMA_READ;
	struct end *from = read ? &b : &a, *to = read ? &a : &b;

	number++;
	fill(from->buf, len, number);
	if (op == IBV_WR_SEND)
		post_recv(&b, number, 0, len);
	post_send(&a, &b, op, number, 0, len, IBV_SEND_SIGNALED);
	if (!succeeded(&a) || (op == IBV_WR_SEND && !succeeded(&b)))
		return;
	CHECK(filled(to->buf, len, number));
}

/* Drops all pages of both buffers. */
static void forget(void)
{
	CHECK_EQ(madvise(a.buf, LEN, MADV_DONTNEED), 0);
	CHECK_EQ(madvise(b.buf, LEN, MADV_DONTNEED), 0);
}

static enum ibv_wr_opcode opcode;

static void fetch(void)
{
	forget();
	transfer(opcode, 8 * PAGE);
}

/* Connects again after an error, and checks that memory can be fetched for the new connection. */
static void reconnect(void)
{
	if (!broken)
		return;
	pair_close(&a, &b);
	open_reliable(IBV_ACCESS_ON_DEMAND, IBV_MTU_1024, LEN, 17);
	broken = false;
	fetch();
	CHECK(!broken);
}

void test_traffic_on_demand(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		const char *name;
	} ops[] = {
		{ IBV_WR_SEND, "SEND of memory on demand" },
		{ IBV_WR_RDMA_WRITE, "WRITE of memory on demand" },
		{ IBV_WR_RDMA_READ, "READ of memory on demand" },
	};

	broken = false;
	open_reliable(IBV_ACCESS_ON_DEMAND, IBV_MTU_1024, LEN, 17);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		opcode = ops[i].opcode;
		inject_traffic(&(struct traffic_call){ ops[i].name, fetch, reconnect });
	}
	pair_close(&a, &b);
}

/* Each request has a full window of packets in flight, none of which can be reused yet. */
static void start_window(void)
{
	number++;
	fill(a.buf, WINDOW, number);
	fill(b.buf + WINDOW, WINDOW, number);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, number, 0, WINDOW, IBV_SEND_SIGNALED);
	post_send(&a, &b, IBV_WR_RDMA_READ, number + 1, WINDOW, WINDOW, IBV_SEND_SIGNALED);
	/* The faults last this long, which is less than the retries. */
	usleep(200000);
}

static void finish_window(void)
{
	expect(&a, number, IBV_WC_SUCCESS);
	expect(&a, number + 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf, WINDOW, number));
	CHECK(filled(a.buf + WINDOW, WINDOW, number));
	number++;
}

static void begin_delay(unsigned int ms)
{
	shell_undo(BOTH("tc -n n$i qdisc del dev v$i root"),
		   BOTH("tc -n n$i qdisc add dev v$i root netem limit 10000 delay %ums"), ms);
}

static void end_delay(void)
{
	undo_last();
}

void test_traffic_window(void)
{
	static const struct traffic_call call = {
		"packets in flight", start_window, finish_window
	};

	begin_delay(50);
	open_reliable(0, IBV_MTU_4096, 2 * WINDOW, 17);
	inject_periodic(&call);
	pair_close(&a, &b);
	end_delay();
}

static struct ibv_ah *ah;
/* The numbers of posted receives. */
static int receives_b, receives_c;

static void send_datagram(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	number++;
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND_WITH_IMM, number, 0, DATAGRAM, IBV_SEND_SIGNALED);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	fill(a.buf, DATAGRAM, number);
	for (; receives_b < 4; receives_b++)
		post_recv(&b, 0, 0, GRH_LEN + DATAGRAM);
	for (; receives_c < 4; receives_c++)
		post_recv(&c, 0, 0, GRH_LEN + DATAGRAM);
	post_wr(&a, &wr);
	expect(&a, number, IBV_WC_SUCCESS);
}

static void send_burst(void)
{
	for (int i = 0; i < BURST; i++)
		send_datagram();
}

/* Takes the datagrams that have arrived; returns whether the last one has. */
static bool take(struct end *e, int *receives)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(e->cq, 1, &wc))) {
		CHECK_EQ(n, 1);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, GRH_LEN + DATAGRAM);
		(*receives)--;
		if (ntohl(wc.imm_data) != number)
			continue;
		CHECK(filled(e->buf + GRH_LEN, DATAGRAM, number));
		return true;
	}
	return false;
}

/*
 * Sends until both receivers have got the last datagram. An earlier one may have used up the
 * receives.
 */
static void take_group(void)
{
	bool have_b, have_c;

	wait_begin();
	do {
		send_datagram();
		have_b = false;
		have_c = false;
		for (int i = 0; i < 300 && !(have_b && have_c); i++) {
			usleep(10000);
			have_b = have_b || take(&b, &receives_b);
			have_c = have_c || take(&c, &receives_c);
			wait_more_verb("a datagram");
		}
	} while (!have_b || !have_c);
}

static void open_group(void)
{
	union ibv_gid group = group4(0x0103);

	end_init(&a, &r1, IBV_QPT_UD, PAGE);
	end_init(&b, &r2, IBV_QPT_UD, PAGE);
	end_init(&c, &r2, IBV_QPT_UD, PAGE);
	pair_create(&a, &b);
	end_create(&c);
	end_to(&c, &a, IBV_QPS_RTS);
	CHECK_EQ(ibv_attach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(c.qp, &group, 0), 0);
	ah = group_ah(&a, group);
	receives_b = 0;
	receives_c = 0;
}

static void close_group(void)
{
	union ibv_gid group = group4(0x0103);

	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_detach_mcast(b.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(c.qp, &group, 0), 0);
	end_close(&c);
	pair_close(&a, &b);
}

void test_traffic_group(void)
{
	/* Before the delay: the core gives the neighbour of an address handle one second. */
	open_group();
	/* Longer than it takes to post a burst. */
	begin_delay(1500);
	/* Fill the caches of packets. Without memory, a datagram waits, and the burst for it. */
	send_burst();
	take_group();
	inject_periodic(&(struct traffic_call){ "multicast", send_burst, take_group });
	end_delay();
	close_group();
}

static void transfer_all(void)
{
	transfer(IBV_WR_SEND, 5000);
	transfer(IBV_WR_RDMA_WRITE, 5000);
	transfer(IBV_WR_RDMA_READ, 5000);
}

void test_traffic_realloc(void)
{
	open_reliable(0, IBV_MTU_1024, LEN, 15);
	inject_realloc(&(struct traffic_call){ "RC", transfer_all });
	CHECK(!broken);
	pair_close(&a, &b);
	open_group();
	inject_realloc(&(struct traffic_call){ "multicast", send_burst, take_group });
	close_group();
}
