// SPDX-License-Identifier: GPL-2.0
/*
 * SENDs, WRITEs, READs and atomic operations of random lengths over RC, mixed, in both directions,
 * with random SGEs, flags and pauses, over networks that delay and lose packets. Each message is
 * checked, and the program waits for completions in both ways, by polling and by events. Receive
 * requests are often posted late.
 *
 * Each connection is a child with a seed of its own, which it prints if a check fails.
 */
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "ferroce_fault.h"

#define SLOTS 48
#define SLOT 65536u
/* Data that the peer reads, and the sum that it adds to. */
#define CONSTANT (3 * SLOTS * SLOT)
#define SUM (CONSTANT + SLOT)
#define LEN (SUM + SLOT)
#define CONNECTIONS 3

struct request {
	enum ibv_wr_opcode op;
	int slot;
	uint32_t len;
	/* READ: where the data begins in the peer's constant data. */
	uint32_t off;
	/* Atomic operations: the sum before. */
	uint64_t sum;
};

/* One end of the connection. Request i is requests[i % 256]. */
struct side {
	struct end end;
	struct request requests[256];
	unsigned int posted, completed, unsignaled;
	int free[SLOTS], n_free;
	uint64_t sum;
	/* Messages that take a receive request, and the lengths of the last ones. */
	uint32_t sent, received;
	uint32_t lens[256];
	unsigned int recvs, recvs_taken;
};

static uint64_t seed;
static bool memory_on_demand;

static uint32_t below(uint32_t n)
{
	return rnd(&seed) % n;
}

static bool one_in(uint32_t n)
{
	return !below(n);
}

/* Own data, targets of the peer's WRITEs, and receive buffers. */
static unsigned char *own(struct side *s, int slot)
{
	return s->end.buf + slot * SLOT;
}

static unsigned char *written(struct side *s, int slot)
{
	return s->end.buf + (SLOTS + slot) * SLOT;
}

static unsigned char *received(struct side *s, int slot)
{
	return s->end.buf + (2 * SLOTS + slot) * SLOT;
}

/* Memory that keeps its content if the process drops its pages. */
static void open_memory(struct end *e)
{
	int fd = memfd_create("ferroce_mixed", MFD_CLOEXEC);
	unsigned int access = FULL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC;

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, LEN), 0);
	e->buf = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(e->buf != MAP_FAILED);
	close(fd);
	e->len = LEN;
	e->mr = ibv_reg_mr(e->dev->pd, e->buf, LEN,
			   access | (memory_on_demand ? IBV_ACCESS_ON_DEMAND : 0));
	CHECK(e->mr);
}

static void open_sides(struct side *s)
{
	enum ibv_mtu mtu = IBV_MTU_256 + below(5);
	uint8_t rd_atomic = 1 + below(16);

	for (int i = 0; i < 2; i++) {
		struct end *e = &s[i].end;

		memset(&s[i], 0, sizeof(s[i]));
		end_init(e, i ? &r2 : &r1, IBV_QPT_RC, 0);
		e->mtu = mtu;
		e->access |= IBV_ACCESS_REMOTE_ATOMIC;
		e->min_rnr_timer = 1 + below(8);
		/* Each must have the resources for the READs of the other. */
		e->rd_atomic = rd_atomic;
		e->cap.max_inline_data = 200;
		while (s[i].n_free < SLOTS) {
			s[i].free[s[i].n_free] = s[i].n_free;
			s[i].n_free++;
		}
		end_create(e);
		open_memory(e);
		fill(e->buf + CONSTANT, SLOT, i + 1);
	}
	end_to(&s[0].end, &s[1].end, IBV_QPS_RTS);
	end_to(&s[1].end, &s[0].end, IBV_QPS_RTS);
}

/* Splits the only SGE into two. */
static int split(struct ibv_sge *sge, uint32_t at)
{
	sge[1] = sge[0];
	sge[1].addr += at;
	sge[1].length -= at;
	sge[0].length = at;
	return 2;
}

static void post_receives(struct side *s, unsigned int wanted)
{
	while (s->recvs < wanted) {
		struct ibv_sge sges[2] = {
			{ (uintptr_t)received(s, s->recvs_taken % SLOTS), SLOT, s->end.mr->lkey },
		};
		struct ibv_recv_wr wr = {
			.wr_id = UINT64_MAX,
			.sg_list = sges,
			.num_sge = 1,
		}, *bad;

		if (one_in(3))
			wr.num_sge = split(sges, 1 + below(5000));
		CHECK_EQ(ibv_post_recv(s->end.qp, &wr, &bad), 0);
		s->recvs_taken++;
		s->recvs++;
	}
}

static uint32_t any_len(bool large)
{
	switch (below(large ? 4 : 2)) {
	case 0:
		return 1 + below(64);
	case 1:
		return 1 + below(5000);
	case 2:
		return 4096 * (1 + below(4));
	default:
		return 1 + below(SLOT);
	}
}

/* A message that takes a receive request. Its number is its seed, and its immediate data. */
static void fill_message(struct side *s, struct ibv_send_wr *wr, const struct request *r)
{
	fill(own(s, r->slot), r->len, s->sent);
	wr->imm_data = s->sent;
	s->lens[s->sent % ARRAY_LEN(s->lens)] = r->len;
	s->sent++;
}

static void fill_request(struct side *s, struct side *peer, struct ibv_send_wr *wr,
			 struct request *r)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	r->op = ops[below(ARRAY_LEN(ops))];
	wr->opcode = r->op;
	wr->wr.rdma.rkey = peer->end.mr->rkey;
	wr->wr.rdma.remote_addr = (uintptr_t)written(peer, r->slot);
	switch (r->op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		fill_message(s, wr, r);
		break;
	case IBV_WR_RDMA_WRITE:
		fill(own(s, r->slot), r->len, rnd(&seed));
		break;
	case IBV_WR_RDMA_READ:
		r->off = below(SLOT - r->len + 1);
		wr->wr.rdma.remote_addr = (uintptr_t)peer->end.buf + CONSTANT + r->off;
		break;
	default:
		r->len = 8;
		r->sum = s->sum;
		wr->wr.atomic.remote_addr = (uintptr_t)peer->end.buf + SUM;
		wr->wr.atomic.rkey = peer->end.mr->rkey;
		wr->wr.atomic.compare_add = 1 + below(9);
		s->sum += wr->wr.atomic.compare_add;
	}
}

static bool posts_data(enum ibv_wr_opcode op)
{
	return op != IBV_WR_RDMA_READ && op != IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Posts a request, if there is a free slot. */
static void post_request(struct side *s, struct side *peer, bool large, bool signaled)
{
	struct request *r = &s->requests[s->posted % ARRAY_LEN(s->requests)];
	struct ibv_sge sges[2] = {};
	struct ibv_send_wr wr = { .wr_id = s->posted, .sg_list = sges, .num_sge = 1 };

	if (!s->n_free)
		return;
	*r = (struct request){ .slot = s->free[--s->n_free], .len = any_len(large) };
	fill_request(s, peer, &wr, r);
	sges[0] = (struct ibv_sge){ (uintptr_t)own(s, r->slot), r->len, s->end.mr->lkey };
	if (r->op != IBV_WR_ATOMIC_FETCH_AND_ADD && r->len > 1 && one_in(4))
		wr.num_sge = split(sges, 1 + below(r->len - 1));
	if (posts_data(r->op) && r->len <= s->end.cap.max_inline_data && one_in(3))
		wr.send_flags |= IBV_SEND_INLINE;
	if (one_in(6))
		wr.send_flags |= IBV_SEND_FENCE;
	if (one_in(2))
		wr.send_flags |= IBV_SEND_SOLICITED;
	s->unsignaled++;
	if (signaled || s->unsignaled >= 8 || s->n_free < 4 || one_in(3)) {
		wr.send_flags |= IBV_SEND_SIGNALED;
		s->unsignaled = 0;
	}
	s->posted++;
	post_wr(&s->end, &wr);
}

static void check_request(struct side *s, struct side *peer, const struct request *r)
{
	switch (r->op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		CHECK(!memcmp(own(s, r->slot), written(peer, r->slot), r->len));
		break;
	case IBV_WR_RDMA_READ:
		CHECK(!memcmp(own(s, r->slot), peer->end.buf + CONSTANT + r->off, r->len));
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		CHECK_EQ(*(uint64_t *)own(s, r->slot), r->sum);
		break;
	default:
		break;
	}
	s->free[s->n_free++] = r->slot;
}

static void check_receive(struct side *s, struct side *peer, const struct ibv_wc *wc)
{
	uint32_t number = s->received++;
	int slot = (s->recvs_taken - s->recvs) % SLOTS;

	CHECK(s->recvs > 0);
	s->recvs--;
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		CHECK_EQ(wc->imm_data, number);
	CHECK_EQ(wc->byte_len, peer->lens[number % ARRAY_LEN(peer->lens)]);
	if (wc->opcode == IBV_WC_RECV)
		CHECK(filled(received(s, slot), wc->byte_len, number));
	else
		CHECK_EQ(wc->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
}

/* Takes completions; those of requests stand for all unsignaled requests before. */
static int take(struct side *s, struct side *peer, int max)
{
	struct ibv_wc wcs[16];
	int n = ibv_poll_cq(s->end.cq, max < 16 ? max : 16, wcs);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		CHECK_EQ(wcs[i].status, IBV_WC_SUCCESS);
		if (wcs[i].wr_id == UINT64_MAX) {
			check_receive(s, peer, &wcs[i]);
			continue;
		}
		CHECK(wcs[i].wr_id < s->posted && wcs[i].wr_id >= s->completed);
		while (s->completed <= wcs[i].wr_id) {
			check_request(s, peer, &s->requests[s->completed % ARRAY_LEN(s->requests)]);
			s->completed++;
		}
	}
	return n;
}

/* No completion will come before the next request. */
static bool idle(const struct side *s)
{
	for (int i = 0; i < 2; i++) {
		if (s[i].completed + s[i].unsignaled != s[i].posted || s[i].sent != s[!i].received)
			return false;
	}
	return true;
}

static int take_both(struct side *s)
{
	return take(&s[0], &s[1], 1 + below(32)) + take(&s[1], &s[0], 1 + below(32));
}

/* Sleeps until one of the completion queues has a completion. */
static void sleep_for_event(struct side *s)
{
	struct pollfd fds[2];
	struct ibv_cq *cq;
	void *context;

	for (int i = 0; i < 2; i++) {
		fds[i] = (struct pollfd){ .fd = s[i].end.channel->fd, .events = POLLIN };
		CHECK_EQ(ibv_req_notify_cq(s[i].end.cq, 0), 0);
	}
	/* Completions from before the requests for events cause none. */
	if (take_both(s))
		return;
	while (!poll(fds, 2, 1000))
		wait_more_verb("an event");
	for (int i = 0; i < 2; i++) {
		if (fds[i].revents && !ibv_get_cq_event(s[i].end.channel, &cq, &context))
			ibv_ack_cq_events(cq, 1);
	}
}

/* Waits for one completion, or for all, and posts receive requests meanwhile. */
static void wait_for(struct side *s, bool all, bool events, unsigned int recvs)
{
	wait_begin();
	for (;;) {
		int n;

		post_receives(&s[0], recvs);
		post_receives(&s[1], recvs);
		n = take_both(s);
		if (idle(s) || (n && !all))
			return;
		if (n)
			wait_begin();
		else if (events)
			sleep_for_event(s);
		else
			wait_more("a completion");
	}
}

/* Drops pages of a buffer, whose content stays. They may be in use, or being fetched. */
static void drop_pages(struct side *s)
{
	struct end *e = &s[below(2)].end;
	size_t at = below(LEN / PAGE), n = 1 + below(64);

	if (at + n > LEN / PAGE)
		n = LEN / PAGE - at;
	CHECK_EQ(madvise(e->buf + at * PAGE, n * PAGE, MADV_DONTNEED), 0);
}

static void run_phase(struct side *s)
{
	unsigned int burst = 1 + below(one_in(2) ? 4 : SLOTS), rounds = 1 + below(10);
	unsigned int recvs = 1 + below(one_in(2) ? 3 : SLOTS);
	bool both = one_in(2), large = one_in(2), late = one_in(3), events = one_in(2);

	while (rounds--) {
		if (!late) {
			post_receives(&s[0], recvs);
			post_receives(&s[1], recvs);
		}
		for (unsigned int i = 0; i < burst; i++) {
			post_request(&s[0], &s[1], large, false);
			if (both)
				post_request(&s[1], &s[0], large, false);
			if (memory_on_demand && one_in(10))
				drop_pages(s);
			if (one_in(50))
				usleep(below(300));
		}
		if (late)
			usleep(below(2000));
		wait_for(s, one_in(2), events, recvs);
	}
	wait_for(s, true, events, recvs);
}

static void connection(unsigned int requests)
{
	static struct side s[2];

	printf("# seed %llu\n", (unsigned long long)seed);
	devs_open();
	open_sides(s);
	while (s[0].posted + s[1].posted < requests)
		run_phase(s);
	for (int i = 0; i < 2; i++)
		post_request(&s[i], &s[!i], true, true);
	wait_for(s, true, false, SLOTS);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(s[i].completed, s[i].posted);
		CHECK_EQ(*(uint64_t *)(s[i].end.buf + SUM), s[!i].sum);
	}
	pair_close(&s[0].end, &s[1].end);
}

static void run(void)
{
	unsigned int requests = is_debug_kernel() ? 400 : 1500;
	pid_t children[CONNECTIONS];
	struct timespec now;
	int status;

	clock_gettime(CLOCK_REALTIME, &now);
	for (int i = 0; i < CONNECTIONS; i++) {
		children[i] = child_fork();
		if (!children[i]) {
			seed = now.tv_sec * 1000000000ull + now.tv_nsec + i;
			connection(requests);
			fflush(stdout);
			_exit(0);
		}
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
		CHECK_EQ(status, 0);
	}
}

/* Runs over a queueing discipline for packets in both directions. */
static void run_over(const char *qdisc)
{
	shell_undo(BOTH("tc -n n$i qdisc del dev v$i root"),
		   BOTH("tc -n n$i qdisc add dev v$i root %s"), qdisc);
	run();
	undo_last();
}

static void test_plain(void)
{
	run();
}

static void test_on_demand(void)
{
	memory_on_demand = true;
	run();
	memory_on_demand = false;
}

static void test_short(void)
{
	run_over("pfifo limit 2");
}

static void test_rate(void)
{
	if (is_debug_kernel())
		return test_skip("takes long on the debug kernel");
	run_over("netem rate 100mbit limit 20");
}

/* This queue splits trains that are longer than its burst. */
static void test_bucket(void)
{
	if (is_debug_kernel())
		return test_skip("the debug kernel has no tbf");
	run_over("tbf rate 300mbit burst 10k limit 20k");
}

static void test_delay(void)
{
	if (is_debug_kernel())
		return test_skip("takes long on the debug kernel");
	run_over("netem delay 5ms limit 1000");
}

static void test_loss(void)
{
	run_over("netem delay 1ms 1ms loss 1% duplicate 2% reorder 10%");
}

static const struct test tests[] = {
	{ "no disturbance", test_plain },
	{ "memory on demand, pages of which are dropped", test_on_demand },
	{ "queue of two packets", test_short },
	{ "slow network with a queue", test_rate },
	{ "token bucket with a short burst", test_bucket },
	{ "delay", test_delay },
	{ "delay, loss, duplicates and reordering", test_loss },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
