// SPDX-License-Identifier: GPL-2.0
/*
 * The longest messages, 2^31 bytes, over little memory: the pages of a small file appear again and
 * again in the address space.
 *
 * The files of the two sides are of different length, so that the contents of the target at the
 * end show which part of the message was written there.
 */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_util.h"

#define GIB2 0x80000000ul
#define MIB 0x100000ul

#define SOURCE_LEN (4 * MIB)
#define TARGET_LEN (4 * MIB + 8192)

static struct end a, b;
/* Mappings of 2^31 bytes each. */
static unsigned char *source, *target;
static struct ibv_mr *source_mr[2], *target_mr[2];

/* Maps a file of `period` bytes as often as it takes to fill `total`. */
static unsigned char *map_many(size_t period, size_t total)
{
	unsigned char *at =
		mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("ferroce", MFD_CLOEXEC);

	CHECK(at != MAP_FAILED && fd >= 0);
	CHECK_EQ(ftruncate(fd, period), 0);
	for (size_t i = 0; i < total; i += period) {
		size_t n = total - i < period ? total - i : period;

		CHECK(mmap(at + i, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
		      MAP_FAILED);
	}
	close(fd);
	return at;
}

static uint32_t psn(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(e->qp, &attr, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN, &init), 0);
	return attr.sq_psn ^ attr.rq_psn << 8;
}

/* Waits for a completion for as long as either side makes progress. */
static struct ibv_wc expect_long(struct end *e, uint64_t wr_id, enum ibv_wc_status status)
{
	struct pollfd fd = { .fd = e->channel->fd, .events = POLLIN };
	uint32_t before = 0, now;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int idle = 0, n;

	CHECK_EQ(ibv_req_notify_cq(e->cq, 0), 0);
	while (!(n = ibv_poll_cq(e->cq, 1, &wc))) {
		if (poll(&fd, 1, 20) == 1 && !ibv_get_cq_event(e->channel, &cq, &context)) {
			ibv_ack_cq_events(cq, 1);
			CHECK_EQ(ibv_req_notify_cq(e->cq, 0), 0);
		}
		now = psn(&a) ^ psn(&b);
		idle = now == before ? idle + 1 : 0;
		before = now;
		CHECK(idle < 1000);
	}
	CHECK_EQ(n, 1);
	if (wc.status != status)
		printf("# %s: at PSNs %#x and %#x\n",
		       ibv_wc_status_str(wc.status), psn(&a), psn(&b));
	CHECK_EQ(wc.status, status);
	CHECK_EQ(wc.wr_id, wr_id);
	return wc;
}

/* Checks the target after `len` bytes: each of its pages has the data that was written last. */
static void check_target(const unsigned char *from, size_t from_len, const unsigned char *to,
			 size_t to_len, size_t len)
{
	for (size_t page = 0; page < to_len; page += 4096) {
		size_t last = (len - 1 - page) / to_len * to_len + page;

		if (page < len)
			CHECK(!memcmp(to + page, from + last % from_len, 4096));
	}
}

static void transfer(enum ibv_wr_opcode op, size_t len)
{
	bool is_read = op == IBV_WR_RDMA_READ, is_send = op == IBV_WR_SEND;
	struct ibv_sge sge = { (uintptr_t)source, len, source_mr[0]->lkey };
	struct ibv_send_wr wr = { .wr_id = 1,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = op,
				  .send_flags = IBV_SEND_SIGNALED };

	memset(target, 0, TARGET_LEN);
	wr.wr.rdma.remote_addr = (uintptr_t)target;
	wr.wr.rdma.rkey = target_mr[1]->rkey;
	if (is_read) {
		sge.addr = (uintptr_t)target;
		sge.lkey = target_mr[0]->lkey;
		wr.wr.rdma.remote_addr = (uintptr_t)source;
		wr.wr.rdma.rkey = source_mr[1]->rkey;
	}
	if (is_send) {
		/* Receives into two buffers. */
		struct ibv_sge to[2] = {
			{ (uintptr_t)target, len / 2, target_mr[1]->lkey },
			{ (uintptr_t)target + len / 2, len - len / 2, target_mr[1]->lkey },
		};
		struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = to, .num_sge = 2 }, *bad;

		CHECK_EQ(ibv_post_recv(b.qp, &recv, &bad), 0);
	}
	post_wr(&a, &wr);
	expect_long(&a, 1, IBV_WC_SUCCESS);
	if (is_send)
		CHECK_EQ(expect(&b, 2, IBV_WC_SUCCESS).byte_len, len);
	check_target(source, SOURCE_LEN, target, TARGET_LEN, len);
}

static size_t longest(void)
{
	/* A debug kernel is too slow for 2^31 bytes. */
	return is_debug_kernel() ? 9 * MIB : GIB2;
}

static void test_write(void)
{
	transfer(IBV_WR_RDMA_WRITE, longest());
}

static void test_read(void)
{
	transfer(IBV_WR_RDMA_READ, longest());
}

static void test_send(void)
{
	transfer(IBV_WR_SEND, longest() / 16);
}

/*
 * One byte more than the maximum, in two SGEs, since one cannot exceed the region of 2^31 bytes.
 */
static void test_too_long(void)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
						  IBV_WR_SEND };

	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct ibv_sge sge[2] = {
			{ (uintptr_t)target, GIB2, target_mr[0]->lkey },
			{ (uintptr_t)target, 1, target_mr[0]->lkey },
		};
		struct ibv_send_wr wr = {
			.wr_id = 1, .sg_list = sge, .num_sge = 2, .opcode = ops[i]
		};
		struct end c, d;

		pair_open(&c, &d, IBV_QPT_RC, 4096);
		wr.wr.rdma.remote_addr = (uintptr_t)target;
		wr.wr.rdma.rkey = target_mr[1]->rkey;
		post_recv(&d, 1, 0, 64);
		memset(target, 0x44, 4096);
		post_wr(&c, &wr);
		expect(&c, 1, IBV_WC_LOC_LEN_ERR);
		end_await(&c, IBV_QPS_ERR);
		expect_none(&d);
		CHECK(all_bytes(target, 4096, 0x44));
		/* A length that does not fit in 32 bits. */
		pair_close(&c, &d);
		pair_open(&c, &d, IBV_QPT_RC, 4096);
		sge[1].length = GIB2;
		post_wr(&c, &wr);
		expect(&c, 1, IBV_WC_LOC_LEN_ERR);
		pair_close(&c, &d);
	}
}

static void set_up(void)
{
	struct dev *devs[] = { &r1, &r2 };

	source = map_many(SOURCE_LEN, GIB2);
	target = map_many(TARGET_LEN, GIB2);
	fill(source, SOURCE_LEN, 1);
	for (int i = 0; i < 2; i++) {
		source_mr[i] = ibv_reg_mr(devs[i]->pd, source, GIB2, FULL_ACCESS);
		target_mr[i] = ibv_reg_mr(devs[i]->pd, target, GIB2, FULL_ACCESS);
		CHECK(source_mr[i] && target_mr[i]);
	}
	end_init(&a, &r1, IBV_QPT_RC, 0);
	end_init(&b, &r2, IBV_QPT_RC, 0);
	a.mtu = IBV_MTU_4096;
	b.mtu = IBV_MTU_4096;
	pair_create(&a, &b);
}

static const struct test tests[] = {
	{ "RDMA WRITE", test_write },
	{ "RDMA READ", test_read },
	{ "SEND", test_send },
	{ "one byte too long", test_too_long },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
