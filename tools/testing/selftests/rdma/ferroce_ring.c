// SPDX-License-Identifier: GPL-2.0
/*
 * A hostile process: it writes garbage to the rings that it shares with the kernel, tries invalid
 * mappings, and sends invalid commands. A queue pair of another process works meanwhile, and no
 * memory changes except that of registered regions.
 *
 * The hostile process is this program, started again as "ferroce_ring hostile KIND KEY ADDRESS".
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include "ferroce_util.h"

#define LEN 65536
#define MAX_RINGS 64
#define ROUNDS 300

struct ring {
	struct rxe_queue_buf *buf;
	size_t size;
	/* As the kernel set them; the values in the ring may be overwritten. */
	unsigned int shift;
	unsigned int mask;
};

static struct ring rings[MAX_RINGS];
static atomic_int nr_rings;
/* The key and address of the victim's memory, which must not change. */
static uint32_t foreign_key;
static uint64_t foreign_address;
static struct end ends[6];
static atomic_bool stop;

static void add_ring(struct rxe_queue_buf *buf, size_t size)
{
	struct ring ring = { buf, size, buf->log2_elem_size, buf->index_mask };

	CHECK(nr_rings < MAX_RINGS);
	CHECK(ring.shift >= 6 && ring.shift <= 16);
	rings[nr_rings] = ring;
	/* Last, because the other thread reads it. */
	nr_rings++;
}

static void find_rings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];

	CHECK(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;

		if (!strstr(line, "uverbs") || sscanf(line, "%lx-%lx", &from, &to) != 2)
			continue;
		add_ring((void *)from, to - from);
	}
	fclose(maps);
	/* A completion queue, a send and a receive queue each, the latter shared or not. */
	CHECK_EQ(nr_rings, 3 * ARRAY_LEN(ends));
}

static uint32_t pick(uint64_t *seed, const uint32_t *from, size_t n)
{
	return rnd(seed) % 8 ? from[rnd(seed) % n] : rnd(seed);
}

/* Makes garbage that resembles a request as far as that is useful. */
static void garbage_wqe(struct rxe_send_wqe *wqe, size_t room, uint64_t *seed)
{
	struct end *e = &ends[rnd(seed) % ARRAY_LEN(ends)];
	uint32_t lens[] = { 0, 1, 64, 1024, 4096, 65536, 0x7fffffff, 0x80000000, 0xffffffff };
	uint32_t counts[] = { 0, 1, 2, 4, 5, 255, 0x10000000, 0xffffffff };
	uint32_t keys[] = { e->mr->lkey, e->mr->lkey, e->mr->lkey, foreign_key, 0, 0xffffffff };
	uint64_t addresses[] = { (uintptr_t)e->buf, (uintptr_t)e->buf + 1000, foreign_address,
				 UINT64_MAX - 64, 0 };

	wqe->wr.wr_id = rnd(seed);
	wqe->wr.opcode = rnd(seed) % 4 ? rnd(seed) % 5 : rnd(seed) % 256;
	wqe->wr.send_flags = rnd(seed) % 4 ? rnd(seed) % 16 : rnd(seed);
	if (rnd(seed) & 1) {
		wqe->wr.wr.rdma.remote_addr = addresses[rnd(seed) % ARRAY_LEN(addresses)];
		wqe->wr.wr.rdma.rkey = pick(seed, keys, ARRAY_LEN(keys));
	} else {
		wqe->wr.wr.ud.remote_qpn = rnd(seed) & 1 ? e->qp->qp_num : rnd(seed);
		wqe->wr.wr.ud.remote_qkey = QKEY;
		wqe->wr.wr.ud.ah_num = rnd(seed) % 16;
	}
	wqe->iova = rnd(seed);
	wqe->dma.length = pick(seed, lens, ARRAY_LEN(lens));
	wqe->dma.resid = pick(seed, lens, ARRAY_LEN(lens));
	wqe->dma.cur_sge = pick(seed, counts, ARRAY_LEN(counts));
	wqe->dma.num_sge = pick(seed, counts, ARRAY_LEN(counts));
	wqe->dma.sge_offset = rnd(seed);
	for (size_t i = 0; sizeof(*wqe) + (i + 1) * sizeof(wqe->dma.sge[0]) <= room; i++) {
		wqe->dma.sge[i].addr = addresses[rnd(seed) % ARRAY_LEN(addresses)];
		wqe->dma.sge[i].length = pick(seed, lens, ARRAY_LEN(lens));
		wqe->dma.sge[i].lkey = pick(seed, keys, ARRAY_LEN(keys));
	}
}

static void scribble(struct ring *ring, uint64_t *seed)
{
	unsigned char *slot = ring->buf->data + ((size_t)(rnd(seed) & ring->mask) << ring->shift);
	size_t room = 1ul << ring->shift;

	switch (rnd(seed) % 8) {
	case 0:
		ring->buf->producer_index = rnd(seed);
		break;
	case 1:
		ring->buf->consumer_index = rnd(seed);
		break;
	case 2:
		ring->buf->producer_index = rnd(seed) & ring->mask;
		break;
	case 3:
		ring->buf->log2_elem_size = rnd(seed);
		ring->buf->index_mask = rnd(seed);
		break;
	case 4:
		for (size_t i = 0; i < room; i += 4)
			*(uint32_t *)(slot + i) = rnd(seed);
		break;
	default:
		if (room > sizeof(struct rxe_send_wqe)) {
			garbage_wqe((void *)slot, room, seed);
		} else {
			struct rxe_recv_wqe *wqe = (void *)slot;

			wqe->dma.num_sge = rnd(seed) % 8;
			for (size_t i = 0; sizeof(*wqe) + (i + 1) * sizeof(wqe->dma.sge[0]) <= room;
			     i++) {
				wqe->dma.sge[i].addr = rnd(seed) & 1 ? (uintptr_t)ends[0].buf :
								       foreign_address;
				wqe->dma.sge[i].length = rnd(seed) & 1 ? rnd(seed) % 9000 :
									 rnd(seed);
				wqe->dma.sge[i].lkey =
					rnd(seed) & 1 ? ends[rnd(seed) % 6].mr->lkey : foreign_key;
			}
		}
	}
}

static void *scribbler(void *unused)
{
	uint64_t seed = 7;

	while (!stop)
		scribble(&rings[rnd(&seed) % nr_rings], &seed);
	return unused;
}

/* Sends a command by write(), which the kernel accepts from programs older than ioctl(). */
static int command(struct ibv_context *ctx, uint32_t number, const void *body, size_t len,
		   size_t out_len)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		unsigned char body[512];
	} cmd = { .hdr = { number, (sizeof(cmd.hdr) + len) / 4, out_len / 4 } };
	ssize_t ret;

	memcpy(cmd.body, body, len);
	ret = write(ctx->cmd_fd, &cmd, sizeof(cmd.hdr) + len);
	return ret < 0 ? errno : 0;
}

static int ring_bell(struct end *e)
{
	static struct ib_uverbs_post_send_resp resp;
	struct ib_uverbs_post_send cmd = {
		.response = (uintptr_t)&resp,
		.qp_handle = e->qp->handle,
		.wqe_size = sizeof(struct ib_uverbs_send_wr),
	};

	return command(e->dev->ctx, IB_USER_VERBS_CMD_POST_SEND, &cmd, sizeof(cmd), sizeof(resp));
}

/* Maps a ring without the library. */
static void map_ring(struct ibv_context *ctx, const struct mminfo *info)
{
	void *at;

	if (!info->size || nr_rings == MAX_RINGS)
		return;
	at = mmap(NULL, info->size, PROT_READ | PROT_WRITE, MAP_SHARED, ctx->cmd_fd, info->offset);
	if (at != MAP_FAILED)
		add_ring(at, info->size);
}

/* Makes the kernel replace a completion queue's ring, while the library keeps the old one. */
static void resize_cq(struct ibv_cq *cq, uint64_t *seed)
{
	static struct {
		struct ib_uverbs_resize_cq_resp resp;
		struct rxe_resize_cq_resp driver;
	} resp;
	uint32_t sizes[] = { 1, 7, 63, 255, 4000, 0, 0x40000, 0xffffffff };
	struct ib_uverbs_resize_cq cmd = {
		.response = rnd(seed) % 8 ? (uintptr_t)&resp : 8,
		.cq_handle = cq->handle,
		.cqe = pick(seed, sizes, ARRAY_LEN(sizes)),
	};

	resp.driver.mi.size = 0;
	if (!command(cq->context, IB_USER_VERBS_CMD_RESIZE_CQ, &cmd, sizeof(cmd),
		     rnd(seed) % 8 ? sizeof(resp) : sizeof(resp.resp)))
		map_ring(cq->context, &resp.driver.mi);
}

/*
 * Makes the kernel replace a shared receive queue's ring, or try to, without the library: the
 * kernel writes the new offset to an arbitrary address, and the library keeps the old ring.
 */
static void modify_srq(struct ibv_srq *srq, uint64_t *seed)
{
	static struct mminfo info;
	uint64_t addresses[] = { (uintptr_t)&info, (uintptr_t)&info, (uintptr_t)&info,
				 UINT64_MAX - 7,   0xffff888000000000, 8 };
	uint32_t sizes[] = { 3, 15, 63, 255, 4000, 0, 0x10000, 0xffffffff };
	struct {
		struct ib_uverbs_modify_srq cmd;
		struct rxe_modify_srq_cmd driver;
	} cmd = {
		.cmd = {
			.srq_handle = srq->handle,
			.attr_mask = rnd(seed) % 8 ? rnd(seed) % 4 : rnd(seed),
			.max_wr = pick(seed, sizes, ARRAY_LEN(sizes)),
			.srq_limit = pick(seed, sizes, ARRAY_LEN(sizes)),
		},
		.driver = { addresses[rnd(seed) % ARRAY_LEN(addresses)] },
	};

	info.size = 0;
	if (!command(srq->context, IB_USER_VERBS_CMD_MODIFY_SRQ, &cmd,
		     rnd(seed) % 8 ? sizeof(cmd) : sizeof(cmd.cmd), 0))
		map_ring(srq->context, &info);
}

/* As pair_open(), with shared receive queues. */
static void pair_open_srq(struct end *a, struct end *b, enum ibv_qp_type type)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 4 } };

	end_init(a, &r1, type, LEN);
	end_init(b, &r2, type, LEN);
	a->srq = ibv_create_srq(r1.pd, &init);
	b->srq = ibv_create_srq(r2.pd, &init);
	CHECK(a->srq && b->srq);
	pair_create(a, b);
}

static void hostile_rings(bool shared)
{
	uint64_t seed = 3;
	pthread_t thread;
	int raised = 0;

	for (int i = 0; i < 6; i += 2) {
		if (shared)
			pair_open_srq(&ends[i], &ends[i + 1], IBV_QPT_RC + i / 2);
		else
			pair_open(&ends[i], &ends[i + 1], IBV_QPT_RC + i / 2, LEN);
	}
	for (int i = 0; i < 6; i++) {
		/* Only the middle is registered. */
		CHECK_EQ(ibv_dereg_mr(ends[i].mr), 0);
		memset(ends[i].buf, 0x77, LEN);
		ends[i].mr =
			ibv_reg_mr(ends[i].dev->pd, ends[i].buf + 1000, LEN - 2000, FULL_ACCESS);
		CHECK(ends[i].mr);
	}
	find_rings();
	CHECK_EQ(pthread_create(&thread, NULL, scribbler, NULL), 0);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 6; i++) {
			enum ibv_qp_state state = end_state(&ends[i]);

			if (state == IBV_QPS_ERR || state == IBV_QPS_SQE || rnd(&seed) % 16 == 0) {
				end_modify(&ends[i], IBV_QPS_RESET);
				CHECK_EQ(end_state(&ends[i]), IBV_QPS_RESET);
				/* Packets of the peer may move it to ERR before it gets there. */
				raised += end_try(&ends[i], &ends[i ^ 1], IBV_QPS_RTS);
			}
			for (int k = 0; k < 40; k++)
				scribble(&rings[rnd(&seed) % nr_rings], &seed);
			CHECK_EQ(ring_bell(&ends[i]), 0);
			CHECK_EQ(ibv_req_notify_cq(ends[i].cq, 0), 0);
			if (shared && rnd(&seed) % 4 == 0)
				modify_srq(ends[i].srq, &seed);
			if (rnd(&seed) % 8 == 0)
				resize_cq(ends[i].cq, &seed);
		}
	}
	/* The queue pairs must have been in RTS often enough. */
	printf("# %d times from RESET to RTS\n", raised);
	CHECK(raised > ROUNDS / 4);
	stop = true;
	pthread_join(thread, NULL);
	for (int i = 0; i < 6; i++) {
		CHECK(all_bytes(ends[i].buf, 1000, 0x77));
		CHECK(all_bytes(ends[i].buf + LEN - 1000, 1000, 0x77));
	}
	/* The other half is left for the kernel to clean up when the process ends. */
	for (int i = 0; i < 3; i++)
		end_close(&ends[i]);
}

static void hostile_mmap(void)
{
	struct {
		struct ib_uverbs_create_cq_resp resp;
		struct rxe_create_cq_resp driver;
	} resp = {};
	struct ib_uverbs_create_cq cmd = { .response = (uintptr_t)&resp,
					   .cqe = 100,
					   .comp_channel = -1 };
	uint64_t seed = 5;
	void *at;

	/* Rings that the library has mapped cannot be mapped again, and there are no others. */
	pair_open(&ends[0], &ends[1], IBV_QPT_RC, LEN);
	for (unsigned long offset = 0; offset < 256; offset++)
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, r1.ctx->cmd_fd, offset << 12) ==
		      MAP_FAILED);
	for (int i = 0; i < 200; i++)
		CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, r1.ctx->cmd_fd,
			   ((uint64_t)rnd(&seed) << 32 | rnd(&seed)) & 0x7ffffffffffff000) ==
		      MAP_FAILED);

	for (int kind = 0; kind < 6; kind++) {
		size_t size;
		off_t offset;

		CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_CQ, &cmd, sizeof(cmd),
				 sizeof(resp)),
			 0);
		size = resp.driver.mi.size;
		offset = resp.driver.mi.offset;
		CHECK(size >= 101 * 64 && offset);
		switch (kind) {
		case 0: /* beyond the end */
			CHECK(mmap(NULL, size + 4096, PROT_READ, MAP_SHARED, r1.ctx->cmd_fd,
				   offset) == MAP_FAILED);
			break;
		case 1: /* in the middle */
			CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, r1.ctx->cmd_fd,
				   offset + 4096) == MAP_FAILED);
			break;
		case 2: /* another context */
			CHECK(mmap(NULL, size, PROT_READ, MAP_SHARED, r2.ctx->cmd_fd, offset) ==
			      MAP_FAILED);
			break;
		case 3: /* a part is allowed, once, and it does not grow */
			at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r1.ctx->cmd_fd,
				  offset);
			CHECK(at != MAP_FAILED);
			CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, r1.ctx->cmd_fd, offset) ==
			      MAP_FAILED);
			CHECK(mremap(at, 4096, size, MREMAP_MAYMOVE) == MAP_FAILED);
			CHECK(mprotect(at, 4096, PROT_READ) == 0);
			break;
		case 4: /* pages that stay mapped are not reused */
			at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, r1.ctx->cmd_fd,
				  offset);
			CHECK(at != MAP_FAILED);
			break;
		case 5: /* never mapped */
			break;
		}
		if (kind != 5) {
			struct ib_uverbs_destroy_cq_resp out;
			struct ib_uverbs_destroy_cq destroy = { .response = (uintptr_t)&out,
								.cq_handle = resp.resp.cq_handle };

			CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_DESTROY_CQ, &destroy,
					 sizeof(destroy), sizeof(out)),
				 0);
		}
		if (kind == 4)
			memset(at, 0xff, size);
	}
	pair_close(&ends[0], &ends[1]);
}

static void hostile_commands(void)
{
	struct {
		struct ib_uverbs_create_qp cmd;
		uint64_t extra[2];
	} qp = {};
	struct {
		struct ib_uverbs_post_send cmd;
		struct ib_uverbs_send_wr wr;
		struct ib_uverbs_sge sge;
	} post = {};
	unsigned char resp[256];
	struct ib_uverbs_create_cq cq = { .response = (uintptr_t)resp,
					  .cqe = 100,
					  .comp_channel = -1 };

	pair_open(&ends[0], &ends[1], IBV_QPT_RC, LEN);
	/* A request in the command, which may only ring the doorbell. */
	post.cmd.response = (uintptr_t)resp;
	post.cmd.qp_handle = ends[0].qp->handle;
	post.cmd.wqe_size = sizeof(post.wr);
	post.cmd.wr_count = 1;
	CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_POST_SEND, &post,
			 sizeof(post.cmd) + sizeof(post.wr), 8),
		 EINVAL);
	post.cmd.sge_count = 1;
	post.wr.num_sge = 1;
	post.wr.opcode = 2;
	CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_POST_SEND, &post, sizeof(post), 8), EINVAL);
	post.cmd.qp_handle = 0x7fffffff;
	CHECK(command(r1.ctx, IB_USER_VERBS_CMD_POST_SEND, &post, sizeof(post), 8));
	/* Verbs that use the rings are not supported as commands. */
	post.cmd.qp_handle = ends[0].qp->handle;
	CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_POST_RECV, &post, sizeof(post), 8), EOPNOTSUPP);
	CHECK_EQ(command(r1.ctx, IB_USER_VERBS_CMD_POLL_CQ, &post, 24, 64), EOPNOTSUPP);

	/* No room for the driver's response. */
	for (size_t room = 0; room < sizeof(struct rxe_create_cq_resp); room += 4)
		CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq),
			      sizeof(struct ib_uverbs_create_cq_resp) + room));
	qp.cmd = (struct ib_uverbs_create_qp){
		.response = (uintptr_t)resp,
		.pd_handle = r1.pd->handle,
		.send_cq_handle = ends[0].cq->handle,
		.recv_cq_handle = ends[0].cq->handle,
		.max_send_wr = 4,
		.max_recv_wr = 4,
		.qp_type = IBV_QPT_RC,
	};
	for (size_t room = 0; room < sizeof(struct rxe_create_qp_resp); room += 4)
		CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp.cmd),
			      sizeof(struct ib_uverbs_create_qp_resp) + room));
	/* Input for the driver, which takes none. */
	CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp),
		      sizeof(struct ib_uverbs_create_qp_resp) + sizeof(struct rxe_create_qp_resp)));
	/* A response that cannot be written; a shared receive queue that does not exist. */
	qp.cmd.response = 8;
	CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp.cmd),
		      sizeof(struct ib_uverbs_create_qp_resp) + sizeof(struct rxe_create_qp_resp)));
	cq.response = 8;
	CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_CQ, &cq, sizeof(cq),
		      sizeof(struct ib_uverbs_create_cq_resp) + sizeof(struct rxe_create_cq_resp)));
	qp.cmd.response = (uintptr_t)resp;
	qp.cmd.is_srq = 1;
	CHECK(command(r1.ctx, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp.cmd),
		      sizeof(struct ib_uverbs_create_qp_resp) + sizeof(struct rxe_create_qp_resp)));
	/* Valid requests still work. */
	CHECK_EQ(ring_bell(&ends[0]), 0);
	post_recv(&ends[1], 1, 0, 64);
	post_send(&ends[0], &ends[1], IBV_WR_SEND, 2, 0, 64, IBV_SEND_SIGNALED);
	expect(&ends[0], 2, IBV_WC_SUCCESS);
	expect(&ends[1], 1, IBV_WC_SUCCESS);
	pair_close(&ends[0], &ends[1]);
}

static void hostile_own_rings(void)
{
	hostile_rings(false);
}

static void hostile_shared_rings(void)
{
	hostile_rings(true);
}

static void (*const kinds[])(void) = {
	hostile_own_rings,
	hostile_mmap,
	hostile_commands,
	hostile_shared_rings,
};

static void run_hostile(int kind)
{
	char number[16], key[16], address[32];
	struct end live[2];
	uint32_t seed = 0;
	int status;
	pid_t pid;

	pair_open(&live[0], &live[1], IBV_QPT_RC, LEN);
	memset(live[0].buf, 0x66, LEN);
	pid = child_fork();
	if (!pid) {
		snprintf(number, sizeof(number), "%d", kind);
		snprintf(key, sizeof(key), "%u", live[0].mr->rkey);
		snprintf(address, sizeof(address), "%lu", (unsigned long)(uintptr_t)live[0].buf);
		execl("/proc/self/exe", "ferroce_ring", "hostile", number, key, address, NULL);
		_exit(127);
	}
	/* This process's queue pairs work while the hostile process runs. */
	do {
		fill(live[1].buf, 3000, ++seed);
		post_recv(&live[0], seed, 8192, 4096);
		post_send(&live[1], &live[0], IBV_WR_SEND, seed, 0, 3000, IBV_SEND_SIGNALED);
		expect(&live[1], seed, IBV_WC_SUCCESS);
		expect(&live[0], seed, IBV_WC_SUCCESS);
		CHECK(filled(live[0].buf + 8192, 3000, seed));
		memset(live[0].buf + 8192, 0x66, 3000);
		CHECK(all_bytes(live[0].buf, LEN, 0x66));
	} while (!waitpid(pid, &status, WNOHANG));
	printf("# %u messages meanwhile\n", seed);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
	pair_close(&live[0], &live[1]);
}

static void test_rings(void)
{
	run_hostile(0);
}

static void test_mmap(void)
{
	run_hostile(1);
}

static void test_commands(void)
{
	run_hostile(2);
}

static void test_shared_rings(void)
{
	run_hostile(3);
}

static const struct test tests[] = {
	{ "garbage in the rings", test_rings },
	{ "mappings", test_mmap },
	{ "commands", test_commands },
	{ "garbage in shared receive queues", test_shared_rings },
};

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "hostile")) {
		unsigned int kind = atoi(argv[2]);

		setvbuf(stdout, NULL, _IOLBF, 0);
		foreign_key = strtoul(argv[3], NULL, 10);
		foreign_address = strtoull(argv[4], NULL, 10);
		devs_open();
		if (kind < ARRAY_LEN(kinds))
			kinds[kind]();
		return 0;
	}
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
