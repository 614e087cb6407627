// SPDX-License-Identifier: GPL-2.0
/*
 * Functions that show each attribute of the device in use or at its bound. See ferroce_caps.c.
 */
#include <strings.h>
#include <sys/mman.h>
#include "ferroce_caps.h"

#define LEN 65536

/* Informative only: there is nothing to show. */
void identity(void)
{
}

void show_guid(void)
{
	unsigned char mac[6], guid[8];
	FILE *file = popen("ip -n n1 -o link show v1 | grep -o 'link/ether [^ ]*'", "r");

	CHECK(file);
	CHECK_EQ(fscanf(file, "link/ether %hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1],
			&mac[2], &mac[3], &mac[4], &mac[5]),
		 6);
	pclose(file);
	/* The modified EUI-64 of the address of the net device. */
	guid[0] = mac[0] ^ 2;
	guid[1] = mac[1];
	guid[2] = mac[2];
	guid[3] = 0xff;
	guid[4] = 0xfe;
	memcpy(guid + 5, mac + 3, 3);
	CHECK(!memcmp(&dev.orig_attr.node_guid, guid, sizeof(guid)));
	CHECK(!memcmp(&dev.orig_attr.sys_image_guid, guid, sizeof(guid)));
}

/* Creates a queue pair of the type with the capacities; returns an errno. */
static int try_qp(enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .qp_type = type, .cap = cap };
	struct ibv_qp *qp;
	int err;

	init.send_cq = ibv_create_cq(r1.ctx, 1, NULL, NULL, 0);
	CHECK(init.send_cq);
	init.recv_cq = init.send_cq;
	qp = ibv_create_qp(r1.pd, &init);
	err = qp ? 0 : errno;
	if (qp) {
		CHECK(init.cap.max_send_wr >= cap.max_send_wr);
		CHECK(init.cap.max_recv_wr >= cap.max_recv_wr);
		CHECK(init.cap.max_send_sge >= cap.max_send_sge);
		CHECK(init.cap.max_recv_sge >= cap.max_recv_sge);
		CHECK(init.cap.max_inline_data >= cap.max_inline_data);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
	}
	CHECK_EQ(ibv_destroy_cq(init.send_cq), 0);
	return err;
}

void show_qp_wr(void)
{
	uint32_t max = dev.orig_attr.max_qp_wr;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		CHECK_EQ(try_qp(type, (struct ibv_qp_cap){ max, max, 1, 1, 0 }), 0);
		CHECK_EQ(try_qp(type, (struct ibv_qp_cap){ max + 1, 1, 1, 1, 0 }), EINVAL);
		CHECK_EQ(try_qp(type, (struct ibv_qp_cap){ 1, max + 1, 1, 1, 0 }), EINVAL);
	}
}

/* As many SGEs on both sides as allowed, and no more. */
void show_sge(void)
{
	uint32_t max = dev.orig_attr.max_sge;
	struct ibv_sge out[256], in[256];
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = in, .num_sge = max }, *bad;
	struct ibv_send_wr send = { .wr_id = 2,
				    .sg_list = out,
				    .num_sge = max,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	struct end a, b;

	CHECK(max <= ARRAY_LEN(out));
	CHECK_EQ(try_qp(IBV_QPT_RC, (struct ibv_qp_cap){ 1, 1, max + 1, 1, 0 }), EINVAL);
	CHECK_EQ(try_qp(IBV_QPT_RC, (struct ibv_qp_cap){ 1, 1, 1, max + 1, 0 }), EINVAL);
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cap.max_send_sge = max;
	b.cap.max_recv_sge = max;
	pair_create(&a, &b);
	fill(a.buf, max * 100, 1);
	/* Gathers from front to back, and scatters from back to front. */
	for (uint32_t i = 0; i < max; i++) {
		out[i] = (struct ibv_sge){ (uintptr_t)a.buf + i * 100, 100, a.mr->lkey };
		in[i] = (struct ibv_sge){ (uintptr_t)b.buf + (max - 1 - i) * 100, 100,
					  b.mr->lkey };
	}
	CHECK_EQ(ibv_post_recv(b.qp, &recv, &bad), 0);
	post_wr(&a, &send);
	expect(&a, 2, IBV_WC_SUCCESS);
	CHECK_EQ(expect(&b, 1, IBV_WC_SUCCESS).byte_len, max * 100);
	for (uint32_t i = 0; i < max; i++)
		CHECK(!memcmp(a.buf + i * 100, b.buf + (max - 1 - i) * 100, 100));
	pair_close(&a, &b);
}

void show_sge_rd(void)
{
	uint32_t max = dev.orig_attr.max_sge_rd;
	struct ibv_sge in[256];
	struct ibv_send_wr read = { .wr_id = 2,
				    .sg_list = in,
				    .num_sge = max,
				    .opcode = IBV_WR_RDMA_READ,
				    .send_flags = IBV_SEND_SIGNALED };
	struct end a, b;

	CHECK(max <= ARRAY_LEN(in));
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.cap.max_send_sge = max;
	pair_create(&a, &b);
	fill(b.buf, max * 100, 3);
	for (uint32_t i = 0; i < max; i++)
		in[i] = (struct ibv_sge){ (uintptr_t)a.buf + i * 200, 100, a.mr->lkey };
	read.wr.rdma.remote_addr = (uintptr_t)b.buf;
	read.wr.rdma.rkey = b.mr->rkey;
	post_wr(&a, &read);
	expect(&a, 2, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < max; i++)
		CHECK(!memcmp(a.buf + i * 200, b.buf + i * 100, 100));
	pair_close(&a, &b);
}

void show_cqe(void)
{
	struct ibv_cq *cq = ibv_create_cq(r1.ctx, dev.orig_attr.max_cqe, NULL, NULL, 0);

	CHECK(cq);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK(!ibv_create_cq(r1.ctx, dev.orig_attr.max_cqe + 1, NULL, NULL, 0));
	CHECK_EQ(errno, EINVAL);
}

/* Creates a shared receive queue with the limits; returns an errno. */
static int try_srq(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = wr, .max_sge = sge } };
	struct ibv_srq *srq = ibv_create_srq(r1.pd, &init);

	if (!srq)
		return errno;
	CHECK(init.attr.max_wr >= wr && init.attr.max_sge >= sge);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	return 0;
}

void show_srq_wr(void)
{
	CHECK_EQ(try_srq(dev.orig_attr.max_srq_wr, 1), 0);
	CHECK_EQ(try_srq(dev.orig_attr.max_srq_wr + 1, 1), EINVAL);
}

void show_srq_sge(void)
{
	CHECK_EQ(try_srq(1, dev.orig_attr.max_srq_sge), 0);
	CHECK_EQ(try_srq(1, dev.orig_attr.max_srq_sge + 1), EINVAL);
}

/*
 * There is not enough memory for the largest region, so this uses address space without memory
 * (EFAULT). A larger region is refused for its size (EINVAL), and not for lack of memory.
 */
void show_mr_size(void)
{
	uint64_t max = dev.orig_attr.max_mr_size;
	void *at = mmap(NULL, max + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);

	CHECK(at != MAP_FAILED);
	CHECK(!ibv_reg_mr(r1.pd, at, max, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(errno, EFAULT);
	CHECK(!ibv_reg_mr(r1.pd, at, max + 4096, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(errno, EINVAL);
	munmap(at, max + 4096);
}

/* Pages of the smallest size, at any alignment; those of 2 MiB are in another program. */
void show_page_size(void)
{
	struct end a;

	CHECK(dev.orig_attr.page_size_cap & 4096);
	CHECK_EQ(dev.orig_attr.page_size_cap & 4095, 0);
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_create(&a);
	end_close(&a);
}

static struct end *open_many(int n)
{
	struct end *many = calloc(n, sizeof(*many));

	CHECK(many);
	for (int i = 0; i < n; i++) {
		end_init(&many[i], &r1, IBV_QPT_RC, 4096);
		many[i].cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
		many[i].cqe = 1;
		end_create(&many[i]);
		for (int k = 0; k < i; k++)
			CHECK(many[i].qp->qp_num != many[k].qp->qp_num &&
			      many[i].mr->rkey != many[k].mr->rkey);
	}
	return many;
}

/* Queue pairs, completion queues and regions, many more of each than fit in one page of a table. */
void show_many(void)
{
	enum { MANY = 300 };
	struct end *many;

	CHECK(dev.orig_attr.max_qp >= MANY && dev.orig_attr.max_cq >= MANY &&
	      dev.orig_attr.max_mr >= MANY);
	many = open_many(MANY);
	for (int i = 0; i < MANY; i++)
		end_close(&many[i]);
	free(many);
}

void show_many_srqs(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srqs[300];

	CHECK(dev.orig_attr.max_srq >= (int)ARRAY_LEN(srqs));
	for (size_t i = 0; i < ARRAY_LEN(srqs); i++) {
		srqs[i] = ibv_create_srq(r1.pd, &init);
		CHECK(srqs[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(srqs); i++)
		CHECK_EQ(ibv_destroy_srq(srqs[i]), 0);
}

void show_many_windows(void)
{
	struct ibv_mw *mws[300];

	CHECK(dev.orig_attr.max_mw >= (int)ARRAY_LEN(mws));
	for (size_t i = 0; i < ARRAY_LEN(mws); i++) {
		mws[i] = ibv_alloc_mw(r1.pd, i & 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		CHECK(mws[i]);
		for (size_t k = 0; k < i; k++)
			CHECK(mws[i]->rkey != mws[k]->rkey);
	}
	for (size_t i = 0; i < ARRAY_LEN(mws); i++)
		CHECK_EQ(ibv_dealloc_mw(mws[i]), 0);
}

/*
 * The maximum for all processes on all devices: r1.pd and r2.pd are two of them. Those of the
 * kernel do not count.
 */
void show_pds(void)
{
	int max = dev.orig_attr.max_pd, n = 2;
	struct ibv_pd **pds = calloc(max + 1, sizeof(*pds));

	CHECK(pds);
	for (int i = n; i < max; i++) {
		pds[i] = ibv_alloc_pd(r1.ctx);
		CHECK(pds[i]);
	}
	CHECK(!ibv_alloc_pd(r1.ctx));
	CHECK_EQ(errno, ENOMEM);
	CHECK_EQ(ibv_dealloc_pd(pds[n]), 0);
	pds[n] = ibv_alloc_pd(r1.ctx);
	CHECK(pds[n]);
	for (int i = n; i < max; i++)
		CHECK_EQ(ibv_dealloc_pd(pds[i]), 0);
	free(pds);
}

void show_ahs(void)
{
	enum { MANY = 5000 };
	static struct ibv_ah *ahs[MANY];
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .dgid = r2.gid, .sgid_index = r1.gid_index, .hop_limit = 64 },
	};

	CHECK(dev.orig_attr.max_ah >= MANY);
	for (int i = 0; i < MANY; i++) {
		ahs[i] = ibv_create_ah(r1.pd, &attr);
		CHECK(ahs[i]);
	}
	for (int i = 0; i < MANY; i++)
		CHECK_EQ(ibv_destroy_ah(ahs[i]), 0);
}

/* Moves a queue pair to RTR and RTS with these numbers of outstanding READs; returns an errno. */
static int try_rd_atom(int as_responder, int as_requester)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.max_dest_rd_atomic = as_responder,
	}, rts = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = as_requester,
	};
	struct end a, b;
	int err;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	end_create(&a);
	end_create(&b);
	end_to(&a, &b, IBV_QPS_INIT);
	rtr.ah_attr = end_path(&a, &b);
	rtr.dest_qp_num = b.qp->qp_num;
	err = ibv_modify_qp(a.qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!err)
		err = ibv_modify_qp(a.qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
						IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC);
	pair_close(&a, &b);
	return err;
}

void show_rd_atom(void)
{
	int dest = dev.orig_attr.max_qp_rd_atom, init = dev.orig_attr.max_qp_init_rd_atom;
	struct end a, b;

	CHECK_EQ(try_rd_atom(dest, init), 0);
	CHECK_EQ(try_rd_atom(dest + 1, init), EINVAL);
	CHECK_EQ(try_rd_atom(dest, init + 1), EINVAL);

	/* More READs than may be outstanding at a time, and all of them complete. */
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.rd_atomic = init;
	b.rd_atomic = dest;
	pair_create(&a, &b);
	fill(b.buf, LEN, 8);
	for (int i = 0; i < 60; i++)
		post_send(&a, &b, IBV_WR_RDMA_READ, i, i * 1000, 1000, IBV_SEND_SIGNALED);
	for (int i = 0; i < 60; i++)
		expect(&a, i, IBV_WC_SUCCESS);
	CHECK(!memcmp(a.buf, b.buf, 60000));
	pair_close(&a, &b);
}

/* Each queue pair has its own resources for READs: no shared pool can run out. */
void show_res_rd_atom(void)
{
	CHECK_EQ(dev.orig_attr.max_res_rd_atom,
		 dev.orig_attr.max_qp * dev.orig_attr.max_qp_rd_atom);
}

void show_pkeys(void)
{
	__be16 pkey;

	CHECK_EQ(dev.orig_attr.max_pkeys, port.pkey_tbl_len);
	for (int i = 0; i < dev.orig_attr.max_pkeys; i++) {
		CHECK_EQ(ibv_query_pkey(r1.ctx, 1, i, &pkey), 0);
		CHECK_EQ(pkey, 0xffff);
	}
	CHECK(ibv_query_pkey(r1.ctx, 1, dev.orig_attr.max_pkeys, &pkey));
}

/* The peer adds this to its own timeout when it waits for a response. Five bits. */
void show_ack_delay(void)
{
	CHECK(dev.orig_attr.local_ca_ack_delay < 32);
}

void show_ports(void)
{
	struct ibv_port_attr attr;

	CHECK_EQ(dev.orig_attr.phys_port_cnt, 1);
	CHECK_EQ(dev.phys_port_cnt_ex, 1);
	CHECK_EQ(ibv_query_port(r1.ctx, 1, &attr), 0);
	CHECK(ibv_query_port(r1.ctx, 2, &attr));
	CHECK(ibv_query_port(r1.ctx, 0, &attr));
}

void show_flags_ex(void)
{
	CHECK_EQ((uint32_t)dev.device_cap_flags_ex, dev.orig_attr.device_cap_flags);
}

/* An address vector of another port is refused when the handle is created. */
void show_av_port(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 2,
		.grh = { .dgid = r2.gid, .sgid_index = r1.gid_index, .hop_limit = 64 },
	};

	CHECK(!ibv_create_ah(r1.pd, &attr));
	attr.port_num = 0;
	CHECK(!ibv_create_ah(r1.pd, &attr));
}

void show_rnr(void)
{
	struct end a, b;

	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.rnr_retry = 1;
	pair_create(&a, &b);
	post_send(&a, &b, IBV_WR_SEND, 1, 0, 64, IBV_SEND_SIGNALED);
	expect(&a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_close(&a, &b);
}

void show_srq_resize(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 3, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(r1.pd, &init);
	struct ibv_srq_attr attr = { .max_wr = 100 };

	CHECK(srq);
	CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
	CHECK_EQ(ibv_query_srq(srq, &attr), 0);
	CHECK(attr.max_wr >= 100);
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* Messages in packets of the largest MTU, which the tests' net devices allow. */
void show_mtu(void)
{
	struct end a, b;

	CHECK_EQ(port.max_mtu, IBV_MTU_4096);
	CHECK_EQ(port.active_mtu, IBV_MTU_4096);
	end_init(&a, &r1, IBV_QPT_RC, LEN);
	end_init(&b, &r2, IBV_QPT_RC, LEN);
	a.mtu = port.active_mtu;
	b.mtu = port.active_mtu;
	pair_create(&a, &b);
	fill(a.buf, 40000, 4);
	post_recv(&b, 1, 0, 40000);
	post_send(&a, &b, IBV_WR_SEND, 2, 0, 40000, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_SUCCESS);
	expect(&b, 1, IBV_WC_SUCCESS);
	CHECK(filled(b.buf, 40000, 4));
	pair_close(&a, &b);
}

static void change_addresses(const char *how, int n)
{
	FILE *ip = popen("ip -n n1 -batch -", "w");

	CHECK(ip);
	for (int i = 0; i < n; i++)
		fprintf(ip, "addr %s fd78::%x:1/128 dev v1\n", how, i + 1);
	CHECK_EQ(pclose(ip), 0);
}

/* Fills the GID table with addresses. */
void show_gids(void)
{
	/* More entries than the table has, and fewer bytes than the library's limit. */
	static struct ibv_gid_entry entries[1500];
	union ibv_gid gid;

	CHECK(port.gid_tbl_len <= (int)ARRAY_LEN(entries));
	CHECK_EQ(ibv_query_gid(r1.ctx, 1, port.gid_tbl_len - 1, &gid), 0);
	CHECK(ibv_query_gid(r1.ctx, 1, port.gid_tbl_len, &gid));
	change_addresses("add", port.gid_tbl_len);
	wait_begin();
	for (int best = 0; best < port.gid_tbl_len;) {
		int n = ibv_query_gid_table(r1.ctx, entries, ARRAY_LEN(entries), 0);

		CHECK(n >= 0);
		if (n > best) {
			best = n;
			wait_begin();
		}
		wait_more_verb("a full table");
	}
	change_addresses("del", port.gid_tbl_len);
	while (ibv_query_gid_table(r1.ctx, entries, ARRAY_LEN(entries), 0) == port.gid_tbl_len)
		wait_more_verb("room in the table");
}

static double read_number(const char *command)
{
	FILE *out = popen(command, "r");
	double value;

	CHECK(out);
	CHECK_EQ(fscanf(out, "%lf", &value), 1);
	pclose(out);
	return value;
}

/* Width and speed make up the rate in sysfs, which is the speed of the net device. */
void show_speed(void)
{
	/* By enum ib_port_width. */
	static const int lanes[] = { [1] = 1, [2] = 4, [4] = 8, [8] = 12, [16] = 2 };
	/* In Mbit/s of a lane, by the bit of enum ib_port_speed. */
	static const int speeds[] = { 2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000 };
	int bit = ffs(port.active_speed) - 1;
	double rate;

	CHECK(port.active_width < ARRAY_LEN(lanes) && bit >= 0 && bit < (int)ARRAY_LEN(speeds));
	CHECK_EQ(port.active_speed, 1 << bit);
	CHECK_EQ(port.active_speed_ex, port.active_speed);
	rate = lanes[port.active_width] * speeds[bit];
	CHECK_EQ(read_number("cat /sys/class/infiniband/r1/ports/1/rate") * 1000, rate);
	CHECK_EQ(read_number("ip netns exec n1 cat /sys/class/net/v1/speed"), rate);
}

void show_state(void)
{
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	CHECK_EQ(port.phys_state, 5);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
}

void show_grh_required(void)
{
	struct ibv_ah_attr attr = { .port_num = 1, .dlid = 1 };

	CHECK_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
	CHECK(!ibv_create_ah(r1.pd, &attr));
}
