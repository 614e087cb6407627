// SPDX-License-Identifier: GPL-2.0
/*
 * Objects: creation, query and destruction; their limits at the bound and one above; unsupported
 * types; keys, bounds and protection domains of local memory.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_util.h"
#include <rdma/ib_user_verbs.h>
/* After the C library's <netinet/in.h>, because the kernel's header then omits its definitions. */
#include <rdma/rdma_user_rxe.h>

static struct ibv_cq *cq;

/* Creates a queue pair and returns its capacities, or checks that it fails with errno `wanted`. */
static struct ibv_qp_cap try_qp(enum ibv_qp_type type, struct ibv_qp_cap cap, int wanted)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = cap,
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(r1.pd, &init);
	if (wanted) {
		if (qp || errno != wanted)
			printf("# queue pair type %d: errno %d\n", type, errno);
		CHECK(!qp && errno == wanted);
	} else {
		CHECK(qp);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	return init.cap;
}

static void test_device(void)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;

	CHECK_EQ(ibv_query_device(r1.ctx, &attr), 0);
	CHECK_EQ(attr.phys_port_cnt, 1);
	CHECK_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
	CHECK_EQ(attr.max_pkeys, 1);
	CHECK(attr.max_qp_wr > 0 && attr.max_sge == 32 && attr.max_cqe > 0);
	CHECK(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
	CHECK_EQ(attr.device_cap_flags & IBV_DEVICE_XRC, 0);

	CHECK_EQ(ibv_query_port(r1.ctx, 1, &port), 0);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.active_mtu, IBV_MTU_4096);
	CHECK_EQ(port.max_msg_sz, 1u << 31);
	CHECK_EQ(port.pkey_tbl_len, 1);
	CHECK(ibv_query_port(r1.ctx, 2, &port));
	CHECK(ibv_query_port(r1.ctx, 0, &port));
}

static void test_qp_limits(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp_cap full, over, got;

	CHECK_EQ(ibv_query_device(r1.ctx, &attr), 0);
	full = (struct ibv_qp_cap){ attr.max_qp_wr, attr.max_qp_wr, attr.max_sge, attr.max_sge,
				    512 };
	got = try_qp(IBV_QPT_RC, full, 0);
	CHECK(got.max_send_wr >= full.max_send_wr && got.max_recv_wr >= full.max_recv_wr);
	CHECK(got.max_send_sge >= full.max_send_sge && got.max_recv_sge >= full.max_recv_sge);
	CHECK(got.max_inline_data >= full.max_inline_data);

	/* The device does not report how much inline data it takes. */
	for (int i = 0; i < 5; i++) {
		over = (struct ibv_qp_cap){ 16, 16, 1, 1, 0 };
		if (i == 0)
			over.max_send_wr = attr.max_qp_wr + 1;
		if (i == 1)
			over.max_recv_wr = attr.max_qp_wr + 1;
		if (i == 2)
			over.max_send_sge = attr.max_sge + 1;
		if (i == 3)
			over.max_recv_sge = attr.max_sge + 1;
		if (i == 4)
			over.max_inline_data = 513;
		try_qp(IBV_QPT_RC, over, EINVAL);
	}
	full.max_send_wr = 0xffffffff;
	full.max_send_sge = 0xffffffff;
	try_qp(IBV_QPT_UD, full, EINVAL);
}

/* The capacities of a queue pair can be requested again, and a query returns them. */
static void test_qp_caps(void)
{
	for (unsigned int n = 1; n < 600; n = n * 2 + 1) {
		struct ibv_qp_cap ask = { n, n + 1, n % 33, (n + 7) % 33, n % 513 }, again;
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_UC,
			.sq_sig_all = n & 4,
			.cap = ask,
		}, queried;
		struct ibv_qp_attr attr;
		struct ibv_qp *qp;

		qp = ibv_create_qp(r1.pd, &init);
		CHECK(qp);
		CHECK(init.cap.max_send_wr >= ask.max_send_wr &&
		      init.cap.max_recv_wr >= ask.max_recv_wr);
		CHECK(init.cap.max_send_sge >= ask.max_send_sge &&
		      init.cap.max_recv_sge >= ask.max_recv_sge);
		CHECK(init.cap.max_inline_data >= ask.max_inline_data);
		/* SGEs and inline data share the room behind a request. */
		CHECK_EQ(init.cap.max_send_sge, init.cap.max_inline_data / 16);
		CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &queried), 0);
		CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
		CHECK(!memcmp(&attr.cap, &init.cap, sizeof(attr.cap)));
		CHECK(!memcmp(&queried.cap, &init.cap, sizeof(queried.cap)));
		CHECK_EQ(queried.qp_type, IBV_QPT_UC);
		CHECK_EQ(queried.sq_sig_all, !!(n & 4));
		CHECK_EQ(ibv_destroy_qp(qp), 0);
		again = try_qp(IBV_QPT_UC, init.cap, 0);
		CHECK(!memcmp(&again, &init.cap, sizeof(again)));
	}
}

static void test_cq_limits(void)
{
	struct ibv_device_attr attr;
	struct ibv_cq *one;

	CHECK_EQ(ibv_query_device(r1.ctx, &attr), 0);
	one = ibv_create_cq(r1.ctx, attr.max_cqe, NULL, NULL, 0);
	CHECK(one);
	CHECK(one->cqe >= attr.max_cqe);
	CHECK_EQ(ibv_destroy_cq(one), 0);
	for (int n = 1; n < 3000; n = n * 3 + 1) {
		one = ibv_create_cq(r1.ctx, n, NULL, NULL, 0);
		CHECK(one);
		CHECK(one->cqe >= n);
		CHECK_EQ(ibv_destroy_cq(one), 0);
	}
	errno = 0;
	CHECK(!ibv_create_cq(r1.ctx, attr.max_cqe + 1, NULL, NULL, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(!ibv_create_cq(r1.ctx, 0, NULL, NULL, 0));
	CHECK_EQ(errno, EINVAL);
	CHECK(!ibv_create_cq(r1.ctx, 16, NULL, NULL, r1.ctx->num_comp_vectors));
}

/*
 * Sends a command of the write interface, because the library hides the driver's part. Returns
 * whether it succeeds.
 */
static bool try_verb(struct dev *dev, uint32_t command, void *cmd, size_t in, size_t out)
{
	struct ib_uverbs_cmd_hdr *hdr = cmd;

	hdr->command = command;
	hdr->in_words = in / 4;
	hdr->out_words = out / 4;
	return write(dev->ctx->cmd_fd, cmd, in) == (ssize_t)in;
}

static void write_verb(uint32_t command, void *cmd, size_t in, size_t out)
{
	CHECK(try_verb(&r1, command, cmd, in, out));
}

/* A command for a completion queue that the library does not map. */
struct create_cq {
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct mminfo mi;
	} resp;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_create_cq core;
	} cmd;
};

static void make_create_cq(struct create_cq *create, int cqe)
{
	*create = (struct create_cq){
		.cmd.core = {
			.response = (uintptr_t)&create->resp,
			.cqe = cqe,
			.comp_channel = -1,
		},
	};
}

/* The number of rings that are not mapped is limited. */
static void test_unmapped(void)
{
	struct create_cq create;
	struct dev dev;
	int n = 0;

	dev_open(&dev, 1);
	make_create_cq(&create, 1);
	while (try_verb(&dev, IB_USER_VERBS_CMD_CREATE_CQ, &create.cmd, sizeof(create.cmd),
			sizeof(create.resp)))
		CHECK(++n < 2000);
	CHECK_EQ(errno, ENOMEM);
	CHECK(n >= 1000);
	CHECK_EQ(ibv_dealloc_pd(dev.pd), 0);
	CHECK_EQ(ibv_close_device(dev.ctx), 0);
}

/* A ring can be mapped once, and an attempt that cannot succeed does not count. */
static void test_mmap(void)
{
	struct create_cq create;
	typeof(create.resp) *resp = &create.resp;
	struct ib_uverbs_destroy_cq_resp destroyed;
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_destroy_cq core;
	} destroy = { .core = { .response = (uintptr_t)&destroyed } };
	int rw = PROT_READ | PROT_WRITE, fd = r1.ctx->cmd_fd;
	uint32_t *ring;

	make_create_cq(&create, 100);
	write_verb(IB_USER_VERBS_CMD_CREATE_CQ, &create.cmd, sizeof(create.cmd),
		   sizeof(create.resp));
	CHECK(resp->core.cqe >= 100 && resp->mi.offset && resp->mi.size >= 128 * 64);
	CHECK(mmap(NULL, resp->mi.size + 4096, rw, MAP_SHARED, fd, resp->mi.offset) == MAP_FAILED);
	CHECK(mmap(NULL, 1 << 30, rw, MAP_SHARED, fd, resp->mi.offset) == MAP_FAILED);
	CHECK(mmap(NULL, 4096, rw, MAP_SHARED, fd, resp->mi.offset + 4096) == MAP_FAILED);
	CHECK(mmap(NULL, 4096, rw, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(mmap(NULL, 4096, rw, MAP_SHARED, r2.ctx->cmd_fd, resp->mi.offset) == MAP_FAILED);
	ring = mmap(NULL, resp->mi.size, rw, MAP_SHARED, fd, resp->mi.offset);
	CHECK(ring != MAP_FAILED);
	CHECK_EQ(ring[0], 6);
	CHECK_EQ(ring[1], 127);
	CHECK(mmap(NULL, resp->mi.size, rw, MAP_SHARED, fd, resp->mi.offset) == MAP_FAILED);
	destroy.core.cq_handle = resp->core.cq_handle;
	write_verb(IB_USER_VERBS_CMD_DESTROY_CQ, &destroy, sizeof(destroy), sizeof(destroyed));
	/* The mapping outlives the queue. */
	CHECK_EQ(ring[1], 127);
	munmap(ring, resp->mi.size);
}

/* Objects that others need cannot be destroyed. */
static void test_dependencies(void)
{
	struct end a;

	end_init(&a, &r1, IBV_QPT_RC, 4096);
	end_create(&a);
	CHECK_EQ(ibv_destroy_cq(a.cq), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(r1.pd), EBUSY);
	end_close(&a);
}

/* Creates a queue pair without the library, as a process can; returns 0 or the errno. */
static int create_qp_raw(enum ibv_qp_type type)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_create_qp cmd;
	} create = {
		.hdr = { .command = IB_USER_VERBS_CMD_CREATE_QP, .in_words = sizeof(create) / 4 },
		.cmd = {
			.pd_handle = r1.pd->handle,
			.send_cq_handle = cq->handle,
			.recv_cq_handle = cq->handle,
			.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.qp_type = type,
		},
	};
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct rxe_create_qp_resp driver;
	} resp;

	create.cmd.response = (uintptr_t)&resp;
	create.hdr.out_words = sizeof(resp) / 4;
	return write(r1.ctx->cmd_fd, &create, sizeof(create)) < 0 ? errno : 0;
}

static void test_absent_types(void)
{
	static const struct ibv_qp_cap cap = { 4, 4, 1, 1, 0 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = 3, .fd = -1, .oflags = O_CREAT };
	struct ibv_qp_init_attr xrc = { .send_cq = cq,
					.qp_type = IBV_QPT_XRC_SEND,
					.cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	static const int unknown[] = { 1, 5, 6, 7, 11, 0x77 };

	try_qp(IBV_QPT_DRIVER, cap, EOPNOTSUPP);
	for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
		try_qp((enum ibv_qp_type)unknown[i], cap, EINVAL);
	/* The library and the core have their own reasons to refuse this one. */
	CHECK(!ibv_create_qp(r1.pd, &xrc));
	CHECK(!ibv_open_xrcd(r1.ctx, &xrcd));
	/*
	 * An XRC initiator has no receive CQ, and the driver refuses the type. An XRC target has
	 * neither CQs nor a protection domain. The core refuses it: there is no XRC domain for it.
	 */
	CHECK_EQ(create_qp_raw(IBV_QPT_XRC_SEND), EOPNOTSUPP);
	CHECK_EQ(create_qp_raw(IBV_QPT_XRC_RECV), EINVAL);
}

static void test_mr(void)
{
	static char buf[8192];
	struct ibv_mr *mr;

	for (int access = 0; access < 8; access++) {
		bool ok = !(access & IBV_ACCESS_REMOTE_WRITE) || (access & IBV_ACCESS_LOCAL_WRITE);

		mr = ibv_reg_mr(r1.pd, buf + access, 4096 - access, access);
		CHECK_EQ(!!mr, ok);
		if (mr)
			CHECK_EQ(ibv_dereg_mr(mr), 0);
	}
	errno = 0;
	CHECK(!ibv_reg_mr(r1.pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB));
	CHECK_EQ(errno, EOPNOTSUPP);
	/* Unmapped, wraps around, memory of the kernel. */
	CHECK(!ibv_reg_mr(r1.pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_reg_mr(r1.pd, buf, SIZE_MAX - 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK(!ibv_reg_mr(r1.pd, (void *)0xffff888000000000, 4096, IBV_ACCESS_LOCAL_WRITE));
	/* A flag that is only a hint is accepted. */
	mr = ibv_reg_mr(r1.pd, buf, 4096, IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	/* Code cannot be written to. */
	CHECK(!ibv_reg_mr(r1.pd, (void *)((uintptr_t)test_mr & ~4095ul), 16,
			  IBV_ACCESS_LOCAL_WRITE));
}

static void test_ah(void)
{
	struct ibv_ah_attr good, bad;
	struct end a, b;
	struct ibv_ah *ah;

	end_init(&a, &r1, IBV_QPT_UD, 0);
	end_init(&b, &r2, IBV_QPT_UD, 0);
	for (int v6 = 0; v6 < 2; v6++) {
		a.v6 = v6;
		good = end_path(&a, &b);
		ah = ibv_create_ah(r1.pd, &good);
		CHECK(ah);
		CHECK_EQ(ibv_destroy_ah(ah), 0);
		for (int i = 0; i < 6; i++) {
			bad = good;
			bad.port_num = i == 0 ? 2 : i == 1 ? 0 : 1;
			bad.is_global = i != 2;
			if (i == 3)
				bad.grh.sgid_index = 255;
			if (i == 4)
				bad.grh.sgid_index = v6 ? r1.gid_index : r1.gid6_index;
			if (i == 5)
				memset(&bad.grh.dgid, 0, sizeof(bad.grh.dgid));
			CHECK(!ibv_create_ah(r1.pd, &bad));
		}
	}
}

/* One work request that the memory check must refuse, each with a queue pair of its own. */
static void refuse_send(int kind, enum ibv_wc_status status)
{
	struct ibv_pd *pd = ibv_alloc_pd(r1.ctx);
	struct ibv_mr *foreign = NULL;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_RC, 8192);
	memset(b.buf, 0x5a, b.len);
	post_recv(&b, 1, 0, 4096);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 7, 0, 64, 0);
	switch (kind) {
	case 0: /* the key of another protection domain */
		foreign = ibv_reg_mr(pd, a.buf, a.len, IBV_ACCESS_LOCAL_WRITE);
		CHECK(foreign);
		sge.lkey = foreign->lkey;
		break;
	case 1:
		sge.lkey ^= 1;
		break;
	case 2:
		sge.lkey = 0;
		break;
	case 3: /* a key that was good once */
		foreign = ibv_reg_mr(r1.pd, a.buf, a.len, IBV_ACCESS_LOCAL_WRITE);
		CHECK(foreign);
		sge.lkey = foreign->lkey;
		CHECK_EQ(ibv_dereg_mr(foreign), 0);
		foreign = NULL;
		break;
	case 4: /* a byte beyond the end */
		sge.addr += a.len - 63;
		break;
	case 5: /* a byte before the start */
		sge.addr -= 1;
		break;
	case 6: /* wraps around */
		sge.addr = UINT64_MAX - 31;
		break;
	}
	post_wr(&a, &wr);
	expect(&a, 7, status);
	end_await(&a, IBV_QPS_ERR);
	CHECK(all_bytes(b.buf, b.len, 0x5a));
	expect_none(&b);
	pair_close(&a, &b);
	if (foreign)
		CHECK_EQ(ibv_dereg_mr(foreign), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static void test_send_memory(void)
{
	for (int kind = 0; kind < 7; kind++)
		refuse_send(kind, IBV_WC_LOC_PROT_ERR);
}

/* The first packets would fit: they may go out, but the message must not end. */
static void test_send_memory_late(void)
{
	struct end a, b;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	pair_open(&a, &b, IBV_QPT_RC, 65536);
	memset(b.buf, 0x5a, b.len);
	post_recv(&b, 1, 0, 65536);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 7, 32768, 32769, 0);
	post_wr(&a, &wr);
	expect(&a, 7, IBV_WC_LOC_PROT_ERR);
	expect_none(&b);
	CHECK(all_bytes(b.buf + 32768, 32768, 0x5a));
	pair_close(&a, &b);
}

static void test_recv_memory(void)
{
	struct ibv_mr *readonly;
	struct end a, b;

	for (int kind = 0; kind < 4; kind++) {
		struct ibv_sge sge;
		struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;

		pair_open(&a, &b, IBV_QPT_RC, 8192);
		memset(b.buf, 0x5a, b.len);
		readonly = ibv_reg_mr(r2.pd, b.buf, b.len, IBV_ACCESS_REMOTE_READ);
		CHECK(readonly);
		sge = (struct ibv_sge){ (uintptr_t)b.buf, 64, b.mr->lkey };
		if (kind == 0)
			sge.lkey = readonly->lkey;
		else if (kind == 1)
			sge.lkey ^= 0x80;
		else if (kind == 2)
			sge.addr += b.len - 63;
		else
			sge.lkey = a.mr->lkey;
		CHECK_EQ(ibv_post_recv(b.qp, &wr, &bad), 0);
		post_send(&a, &b, IBV_WR_SEND, 7, 0, 64, IBV_SEND_SIGNALED);
		expect(&b, 3, IBV_WC_LOC_PROT_ERR);
		expect(&a, 7, IBV_WC_REM_OP_ERR);
		end_await(&b, IBV_QPS_ERR);
		CHECK(all_bytes(b.buf, b.len, 0x5a));
		CHECK_EQ(ibv_dereg_mr(readonly), 0);
		pair_close(&a, &b);
	}
}

/* An address handle is bound to its protection domain, like a key. */
static void test_foreign_ah(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(r1.ctx);
	struct ibv_ah_attr path;
	struct ibv_send_wr wr;
	struct ibv_ah *ah;
	struct ibv_sge sge;
	struct end a, b;

	pair_open(&a, &b, IBV_QPT_UD, 4096);
	path = end_path(&a, &b);
	ah = ibv_create_ah(pd, &path);
	CHECK(ah);
	post_recv(&b, 1, 0, 1024);
	make_send(&wr, &sge, &a, &b, IBV_WR_SEND, 7, 0, 64, 0);
	wr.wr.ud.ah = ah;
	post_wr(&a, &wr);
	expect(&a, 7, IBV_WC_LOC_QP_OP_ERR);
	end_await(&a, IBV_QPS_SQE);
	expect_none(&b);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	pair_close(&a, &b);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

static const struct test tests[] = {
	{ "device and port", test_device },
	{ "limits of queue pairs", test_qp_limits },
	{ "capacities of queue pairs", test_qp_caps },
	{ "limits of completion queues", test_cq_limits },
	{ "mapping of rings", test_mmap },
	{ "unmapped rings", test_unmapped },
	{ "objects in use", test_dependencies },
	{ "unsupported object types are refused", test_absent_types },
	{ "memory regions", test_mr },
	{ "address handles", test_ah },
	{ "invalid memory to send from", test_send_memory },
	{ "invalid memory to send from, late in the message", test_send_memory_late },
	{ "invalid memory to receive to", test_recv_memory },
	{ "address handle of another protection domain", test_foreign_ah },
};

static void with_cq(void)
{
	cq = ibv_create_cq(r1.ctx, 64, NULL, NULL, 0);
	CHECK(cq);
}

int main(int argc, char **argv)
{
	run_tests(argc, argv, with_cq, tests, ARRAY_LEN(tests));
}
