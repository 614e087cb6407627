// SPDX-License-Identifier: GPL-2.0
/*
 * ferroce_random SEED STEPS: threads that call random verbs on r1 and r2 at the same time. Most
 * calls are valid. ferroce_random.sh changes the network meanwhile, kills the program or removes
 * the device.
 *
 * Queue pairs of all types send to each other, to queue pairs that are gone, and with keys of
 * other threads. Objects belong to one thread, because librxe does not protect them from
 * concurrent calls. In the end all objects are destroyed, which must succeed. If the device is
 * removed before, the program ends with status GONE.
 */
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_random.h"

/* The exit status if a device was removed. */
#define GONE 3
#define GROUPS 4

struct dev *const devs[2] = { &r1, &r2 };
atomic_uint qpns[2][64];
atomic_int gid_index[2];
atomic_bool gone;

static struct thread threads[4];

struct ibv_ah_attr path(struct thread *t, int from, int to)
{
	return (struct ibv_ah_attr) {
		.is_global = 1,
		.port_num = 1,
		.static_rate = one_in(t, 10) ? IBV_RATE_5_GBPS : IBV_RATE_MAX,
		.grh = {
			.dgid = devs[to]->gid,
			.sgid_index = gid_index[from],
			.hop_limit = 3,
		},
	};
}

static void create_qp(struct thread *t)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	};
	struct ibv_qp_init_attr init = {
		.qp_type = types[below(t, ARRAY_LEN(types))],
		.sq_sig_all = below(t, 2),
		.cap = {
			.max_send_wr = below(t, 300),
			.max_recv_wr = below(t, 300),
			/* librxe prints a line for each request that it refuses. */
			.max_send_sge = 3 + below(t, 3),
			.max_recv_sge = 1 + below(t, 5),
			.max_inline_data = 64 + below(t, 150),
		},
	};
	struct ibv_qp **qp = any_qp(t);
	int on = below(t, 2);

	if (*qp)
		return;
	for (size_t i = 0; i < ARRAY_LEN(t->on[on].cqs); i++) {
		struct ibv_cq **cq = &t->on[on].cqs[i];

		if (!*cq)
			*cq = ibv_create_cq(devs[on]->ctx, 1 + below(t, 2000), NULL, NULL, 0);
	}
	if (!t->on[on].srq) {
		struct ibv_srq_init_attr srq = {
			.attr = { .max_wr = 1 + below(t, 500), .max_sge = 1 + below(t, 4) },
		};

		t->on[on].srq = ibv_create_srq(devs[on]->pd, &srq);
	}
	init.send_cq = t->on[on].cqs[below(t, ARRAY_LEN(t->on[on].cqs))];
	init.recv_cq = t->on[on].cqs[below(t, ARRAY_LEN(t->on[on].cqs))];
	if (one_in(t, 3))
		init.srq = t->on[on].srq;
	if (!init.send_cq || !init.recv_cq)
		return;
	*qp = ibv_create_qp(devs[on]->pd, &init);
	if (*qp)
		qpns[on][below(t, ARRAY_LEN(qpns[0]))] = (*qp)->qp_num;
}

/* Fails while the queue pair is in a multicast group. */
static void destroy_qp(struct thread *t)
{
	struct ibv_qp **qp = any_qp(t);

	if (*qp && ok(ibv_destroy_qp(*qp)))
		*qp = NULL;
}

/* Fails while it is in use, as does that of a shared receive queue. */
static void destroy_cq(struct thread *t)
{
	struct ibv_cq **cq = any_cq(t);

	if (*cq && ok(ibv_destroy_cq(*cq)))
		*cq = NULL;
}

static void destroy_srq(struct thread *t)
{
	struct ibv_srq **srq = &t->on[below(t, 2)].srq;

	if (*srq && ok(ibv_destroy_srq(*srq)))
		*srq = NULL;
}

static void destroy_ah(struct thread *t)
{
	struct ibv_ah **ah = &t->on[below(t, 2)].ah;

	if (*ah && ok(ibv_destroy_ah(*ah)))
		*ah = NULL;
}

static int modify(struct thread *t, struct ibv_qp *qp, enum ibv_qp_state to, int peer, uint32_t qpn)
{
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = FULL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_256 + below(t, 5),
		.dest_qp_num = qpn,
		.max_rd_atomic = below(t, 17),
		.max_dest_rd_atomic = below(t, 17),
		.min_rnr_timer = 1 + below(t, 3),
		.timeout = 8 + below(t, 4),
		.retry_cnt = below(t, 8),
		.rnr_retry = below(t, 8),
		.ah_attr = path(t, side(qp->context), peer),
		.en_sqd_async_notify = below(t, 2),
	};
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && !ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (to == IBV_QPS_RTR && rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	/* From RTR these are needed, from SQD and SQE they are refused. */
	if (to == IBV_QPS_RTS && qp->state == IBV_QPS_RTR) {
		mask |= IBV_QP_SQ_PSN;
		if (rc)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (to == IBV_QPS_SQD && one_in(t, 2))
		mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
	return ibv_modify_qp(qp, &attr, mask);
}

static void modify_qp(struct thread *t)
{
	struct ibv_qp *qp = *any_qp(t);
	int peer;

	if (!qp)
		return;
	peer = one_in(t, 8) ? side(qp->context) : !side(qp->context);
	ok(modify(t, qp, IBV_QPS_RESET + below(t, IBV_QPS_ERR + 1), peer, any_qpn(t, peer)));
}

/* Connects two queue pairs, also of one device, or a queue pair with itself. */
static void connect_qps(struct thread *t)
{
	struct ibv_qp *a = *any_qp(t), *b = *any_qp(t);

	if (!a || !b || a->qp_type != b->qp_type)
		return;
	for (int state = IBV_QPS_RESET; state <= IBV_QPS_RTS; state++) {
		ok(modify(t, a, state, side(b->context), b->qp_num));
		ok(modify(t, b, state, side(a->context), a->qp_num));
	}
}

static void query_qp(struct thread *t)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp = *any_qp(t);
	struct ibv_qp_attr attr;

	if (qp)
		ok(ibv_query_qp(qp, &attr, -1, &init));
}

static void resize_cq(struct thread *t)
{
	struct ibv_cq *cq = *any_cq(t);

	if (cq)
		ok(ibv_resize_cq(cq, 1 + below(t, 4000)));
}

static void modify_srq(struct thread *t)
{
	struct ibv_srq_attr attr = { .max_wr = 1 + below(t, 1000), .srq_limit = below(t, 100) };
	struct ibv_srq *srq = t->on[below(t, 2)].srq;

	if (srq)
		ok(ibv_modify_srq(srq, &attr, 1 + below(t, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)));
}

static union ibv_gid group(int i)
{
	return (union ibv_gid){ .raw = { [10] = 0xff, 0xff, 239, 0, 0, i } };
}

static void change_group(struct thread *t)
{
	union ibv_gid gid = group(below(t, GROUPS));
	struct ibv_qp *qp = *any_qp(t);

	if (!qp || qp->qp_type != IBV_QPT_UD)
		return;
	if (one_in(t, 2))
		ok(ibv_attach_mcast(qp, &gid, 0));
	else
		ok(ibv_detach_mcast(qp, &gid, 0));
}

/* The script may have removed the address and added it again. */
static void pause_and_look(struct thread *t)
{
	struct ibv_gid_entry entry;
	int on = below(t, 2);

	for (int i = 0; i < 16; i++) {
		if (ibv_query_gid_ex(devs[on]->ctx, 1, i, &entry, 0))
			continue;
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(&entry.gid, &devs[on]->gid, sizeof(entry.gid)))
			gid_index[on] = i;
	}
	usleep(below(t, 2000));
}

static const struct {
	unsigned int weight;
	void (*run)(struct thread *t);
} actions[] = {
	{ 30, post_sends },
	{ 18, poll_cq },
	{ 12, post_recvs },
	{ 6, create_qp },
	{ 6, connect_qps },
	{ 6, change_mr },
	{ 4, modify_qp },
	{ 3, change_memory },
	{ 2, change_mw },
	{ 2, resize_cq },
	{ 2, change_group },
	{ 2, destroy_qp },
	{ 2, pause_and_look },
	{ 1, modify_srq },
	{ 1, query_qp },
	{ 1, destroy_cq },
	{ 1, destroy_srq },
	{ 1, destroy_ah },
};

static void step(struct thread *t)
{
	unsigned int all = 0, chosen;

	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		all += actions[i].weight;
	chosen = below(t, all);
	for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
		if (chosen < actions[i].weight) {
			actions[i].run(t);
			return;
		}
		chosen -= actions[i].weight;
	}
}

static void *run(void *arg)
{
	struct thread *t = arg;

	for (unsigned long i = 0; i < t->steps && !gone; i++)
		step(t);
	return NULL;
}

static void destroy_all(struct thread *t)
{
	for (size_t i = 0; i < ARRAY_LEN(t->qps); i++) {
		if (!t->qps[i])
			continue;
		for (int g = 0; t->qps[i]->qp_type == IBV_QPT_UD && g < GROUPS; g++) {
			union ibv_gid gid = group(g);

			/* Fails if the queue pair is not in the group. */
			ibv_detach_mcast(t->qps[i], &gid, 0);
		}
		CHECK_EQ(ibv_destroy_qp(t->qps[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(t->mws); i++)
		CHECK(!t->mws[i] || !ibv_dealloc_mw(t->mws[i]));
	for (size_t i = 0; i < ARRAY_LEN(t->mrs); i++)
		CHECK(!t->mrs[i] || !ibv_dereg_mr(t->mrs[i]));
	for (int on = 0; on < 2; on++) {
		CHECK(!t->on[on].ah || !ibv_destroy_ah(t->on[on].ah));
		CHECK(!t->on[on].srq || !ibv_destroy_srq(t->on[on].srq));
		for (size_t i = 0; i < ARRAY_LEN(t->on[on].cqs); i++)
			CHECK(!t->on[on].cqs[i] || !ibv_destroy_cq(t->on[on].cqs[i]));
	}
}

static unsigned char *memory(void)
{
	unsigned char *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				 0);

	CHECK(at != MAP_FAILED);
	return at;
}

int main(int argc, char **argv)
{
	unsigned long good = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: %s SEED STEPS\n", argv[0]);
		return 2;
	}
	devs_open();
	gid_index[0] = r1.gid_index;
	gid_index[1] = r2.gid_index;
	printf("running\n");
	fflush(stdout);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		struct thread *t = &threads[i];

		t->seed = strtoull(argv[1], NULL, 0) + i;
		t->steps = strtoul(argv[2], NULL, 0);
		t->plain = memory();
		t->on_demand = memory();
		CHECK_EQ(pthread_create(&t->id, NULL, run, t), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		CHECK_EQ(pthread_join(threads[i].id, NULL), 0);
		good += threads[i].good;
	}
	printf("%lu completions without an error\n", good);
	if (gone)
		return GONE;
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		destroy_all(&threads[i]);
	CHECK(good > 0);
	return 0;
}
