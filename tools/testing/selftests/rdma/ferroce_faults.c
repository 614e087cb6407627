// SPDX-License-Identifier: GPL-2.0
/*
 * Every verb that creates, changes or destroys an object, while one of its allocations fails.
 *
 * ferroce_faults.sh runs this and then removes the module, and checks that nothing is left.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_faults.h"
#include "ferroce_mcast.h"
#include "ferroce_traffic.h"

#define REGION (2 << 20)

static unsigned char *buf;
static struct ibv_context *ctx;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_mw *mw;
static struct ibv_ah *ah;
static struct ibv_qp *qp;

/* The result of a function that returns an object, or NULL and sets errno. */
#define GOT(object) ((errno = 0, (object)) ? 0 : errno ?: EIO)

/*
 * Checks the result of destroying an object again after a failed attempt. If only the response was
 * lost, the object is gone already, and the library does not know.
 */
static void check_rest(int err)
{
	CHECK(!err || err == EINVAL || err == ENOENT);
}

static struct ibv_device *device(const char *name)
{
	static struct ibv_device **list;

	/* Kept: a context that is opened refers to it. */
	if (!list)
		list = ibv_get_device_list(NULL);
	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return list[i];
	CHECK(false);
	return NULL;
}

static int try_open(void)
{
	return GOT(ctx = ibv_open_device(device("r1")));
}

static void undo_open(void)
{
	CHECK_EQ(ibv_close_device(ctx), 0);
}

static int try_alloc_pd(void)
{
	return GOT(pd = ibv_alloc_pd(r1.ctx));
}

static void do_alloc_pd(void)
{
	CHECK_EQ(try_alloc_pd(), 0);
}

static int try_dealloc_pd(void)
{
	int err = ibv_dealloc_pd(pd);

	if (!err)
		pd = NULL;
	return err;
}

static void rest_pd(void)
{
	if (pd)
		check_rest(ibv_dealloc_pd(pd));
	pd = NULL;
}

static void test_contexts(void)
{
	device("r1");
	inject(&(struct call){ "open", NULL, try_open, undo_open });
	inject(&(struct call){ "alloc_pd", NULL, try_alloc_pd, rest_pd });
	inject(&(struct call){ "dealloc_pd", do_alloc_pd, try_dealloc_pd, NULL, rest_pd });
}

/* Rights of the region to be registered. */
static unsigned int region_access;
/* Selects an implicit region: all memory of the process. */
static bool implicit;

static int try_reg_mr(void)
{
	if (implicit)
		return GOT(mr = ibv_reg_mr(r1.pd, NULL, SIZE_MAX, region_access));
	return GOT(mr = ibv_reg_mr(r1.pd, buf, REGION, region_access));
}

static void do_reg_mr(void)
{
	CHECK_EQ(try_reg_mr(), 0);
}

static int try_dereg_mr(void)
{
	int err = ibv_dereg_mr(mr);

	if (!err)
		mr = NULL;
	return err;
}

static void rest_mr(void)
{
	if (mr)
		check_rest(ibv_dereg_mr(mr));
	mr = NULL;
}

static int try_rereg_memory(void)
{
	return mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
			buf + REGION, REGION, (uintptr_t)buf, NULL, region_access);
}

static int try_rereg_pd(void)
{
	return mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, NULL, 0, 0, r1.pd, 0);
}

static void test_regions(void)
{
	static const unsigned int rights[] = { FULL_ACCESS, FULL_ACCESS | IBV_ACCESS_ON_DEMAND };
	static const char *const names[] = { "pinned", "on demand" };
	char name[64];

	for (size_t i = 0; i < ARRAY_LEN(rights); i++) {
		region_access = rights[i];
		snprintf(name, sizeof(name), "reg_mr, %s", names[i]);
		inject(&(struct call){ name, NULL, try_reg_mr, rest_mr });
		snprintf(name, sizeof(name), "rereg_mr of the memory, %s", names[i]);
		inject(&(struct call){ name, do_reg_mr, try_rereg_memory, NULL, rest_mr });
		snprintf(name, sizeof(name), "rereg_mr of the domain, %s", names[i]);
		inject(&(struct call){ name, do_reg_mr, try_rereg_pd, NULL, rest_mr });
		snprintf(name, sizeof(name), "dereg_mr, %s", names[i]);
		inject(&(struct call){ name, do_reg_mr, try_dereg_mr, NULL, rest_mr });
	}
	implicit = true;
	inject(&(struct call){ "reg_mr, implicit", NULL, try_reg_mr, rest_mr });
	implicit = false;
}

static void do_reg_odp(void)
{
	region_access = FULL_ACCESS | IBV_ACCESS_ON_DEMAND;
	do_reg_mr();
	CHECK_EQ(madvise(buf, REGION, MADV_DONTNEED), 0);
}

static int try_prefetch(void)
{
	struct ibv_sge sge = { (uintptr_t)buf, 65536, mr->lkey };

	return advise_mr(r1.pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			 IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

static void test_prefetch(void)
{
	inject(&(struct call){ "advise_mr", do_reg_odp, try_prefetch, NULL, rest_mr });
}

static enum ibv_mw_type window_type;

static int try_alloc_mw(void)
{
	return GOT(mw = ibv_alloc_mw(r1.pd, window_type));
}

static void do_alloc_mw(void)
{
	CHECK_EQ(try_alloc_mw(), 0);
}

static int try_dealloc_mw(void)
{
	int err = ibv_dealloc_mw(mw);

	if (!err)
		mw = NULL;
	return err;
}

static void rest_mw(void)
{
	if (mw)
		check_rest(ibv_dealloc_mw(mw));
	mw = NULL;
}

static void test_windows(void)
{
	for (window_type = IBV_MW_TYPE_1; window_type <= IBV_MW_TYPE_2; window_type++) {
		inject(&(struct call){ "alloc_mw", NULL, try_alloc_mw, rest_mw });
		inject(&(struct call){ "dealloc_mw", do_alloc_mw, try_dealloc_mw, NULL, rest_mw });
	}
}

static int try_channel(void)
{
	return GOT(channel = ibv_create_comp_channel(r1.ctx));
}

static void undo_channel(void)
{
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* Creates a completion queue, which maps the ring, too. */
static int try_create_cq(void)
{
	return GOT(cq = ibv_create_cq(r1.ctx, 300, NULL, channel, 0));
}

static void do_create_cq(void)
{
	CHECK_EQ(try_create_cq(), 0);
}

static int try_resize_cq(void)
{
	return ibv_resize_cq(cq, 3000);
}

static int try_notify(void)
{
	return ibv_req_notify_cq(cq, 0);
}

static int try_destroy_cq(void)
{
	int err = ibv_destroy_cq(cq);

	if (!err)
		cq = NULL;
	return err;
}

static void rest_cq(void)
{
	if (cq)
		check_rest(ibv_destroy_cq(cq));
	cq = NULL;
}

static void test_completion_queues(void)
{
	inject(&(struct call){ "create_comp_channel", NULL, try_channel, undo_channel });
	CHECK_EQ(try_channel(), 0);
	inject(&(struct call){ "create_cq", NULL, try_create_cq, rest_cq });
	inject(&(struct call){ "resize_cq", do_create_cq, try_resize_cq, NULL, rest_cq });
	inject(&(struct call){ "req_notify_cq", do_create_cq, try_notify, NULL, rest_cq });
	inject(&(struct call){ "destroy_cq", do_create_cq, try_destroy_cq, NULL, rest_cq });
	/* The library still counts a queue if only the response to its destruction was lost. */
	if (ibv_destroy_comp_channel(channel))
		close(channel->fd);
	channel = NULL;
}

static int try_create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 100, .max_sge = 4 } };

	return GOT(srq = ibv_create_srq(r1.pd, &init));
}

static void do_create_srq(void)
{
	CHECK_EQ(try_create_srq(), 0);
}

static int try_limit_srq(void)
{
	return ibv_modify_srq(srq, &(struct ibv_srq_attr){ .srq_limit = 5 }, IBV_SRQ_LIMIT);
}

static int try_resize_srq(void)
{
	return ibv_modify_srq(srq, &(struct ibv_srq_attr){ .max_wr = 1000 }, IBV_SRQ_MAX_WR);
}

static int try_query_srq(void)
{
	struct ibv_srq_attr attr;

	return ibv_query_srq(srq, &attr);
}

static int try_destroy_srq(void)
{
	int err = ibv_destroy_srq(srq);

	if (!err)
		srq = NULL;
	return err;
}

static void rest_srq(void)
{
	if (srq)
		check_rest(ibv_destroy_srq(srq));
	srq = NULL;
}

static void test_shared_receive_queues(void)
{
	inject(&(struct call){ "create_srq", NULL, try_create_srq, rest_srq });
	inject(&(struct call){ "modify_srq, limit", do_create_srq, try_limit_srq, NULL, rest_srq });
	inject(&(struct call){ "modify_srq, size", do_create_srq, try_resize_srq, NULL, rest_srq });
	inject(&(struct call){ "query_srq", do_create_srq, try_query_srq, NULL, rest_srq });
	inject(&(struct call){ "destroy_srq", do_create_srq, try_destroy_srq, NULL, rest_srq });
}

static enum ibv_qp_type qp_type;

static int try_create_qp(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = qp_type,
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = { 100, srq ? 0 : 100, 4, srq ? 0 : 4, 64 },
	};

	return GOT(qp = ibv_create_qp(r1.pd, &init));
}

static void do_create_qp(void)
{
	CHECK_EQ(try_create_qp(), 0);
}

static int try_destroy_qp(void)
{
	int err = ibv_destroy_qp(qp);

	if (!err)
		qp = NULL;
	return err;
}

static void rest_qp(void)
{
	if (qp)
		check_rest(ibv_destroy_qp(qp));
	qp = NULL;
}

static const struct {
	enum ibv_qp_type type;
	const char *name;
} types[] = {
	{ IBV_QPT_RC, "RC" },
	{ IBV_QPT_UC, "UC" },
	{ IBV_QPT_UD, "UD" },
	{ IBV_QPT_RAW_PACKET, "raw packets" },
};

static void test_queue_pairs(void)
{
	char name[64];

	do_create_cq();
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		qp_type = types[i].type;
		snprintf(name, sizeof(name), "create_qp, %s", types[i].name);
		inject(&(struct call){ name, NULL, try_create_qp, rest_qp });
		snprintf(name, sizeof(name), "destroy_qp, %s", types[i].name);
		inject(&(struct call){ name, do_create_qp, try_destroy_qp, NULL, rest_qp });
	}
	qp_type = IBV_QPT_RC;
	do_create_srq();
	inject(&(struct call){ "create_qp with an SRQ", NULL, try_create_qp, rest_qp });
	rest_srq();
	rest_cq();
}

/* The queue pair whose state changes, its peer, and the change. */
static struct end one, other;
static enum ibv_qp_state from;
static struct ibv_qp_attr change;
static int change_mask;

static void do_from(void)
{
	end_create(&one);
	end_to(&one, &other, from);
}

static int try_modify(void)
{
	return ibv_modify_qp(one.qp, &change, change_mask);
}

static int try_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	return ibv_query_qp(one.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init);
}

static void rest_end(void)
{
	end_close(&one);
	one.ah = NULL;
}

static void test_states(void)
{
	char name[64];

	for (size_t i = 0; i < 3; i++) {
		bool ud = types[i].type == IBV_QPT_UD;

		end_init(&other, &r2, types[i].type, 4096);
		end_create(&other);
		end_init(&one, &r1, types[i].type, 4096);
		for (int to = IBV_QPS_INIT; to <= IBV_QPS_RTS; to++) {
			from = to - 1;
			change_mask = end_change(&one, &other, to, &change);
			snprintf(name, sizeof(name), "modify_qp to state %d, %s", to,
				 types[i].name);
			inject(&(struct call){ name, do_from, try_modify, NULL, rest_end });
		}
		from = IBV_QPS_RTS;
		for (int to = IBV_QPS_RESET; to <= IBV_QPS_ERR; to++) {
			if (to == IBV_QPS_INIT || to == IBV_QPS_RTR || to == IBV_QPS_SQE)
				continue;
			change = (struct ibv_qp_attr){ .qp_state = to };
			change_mask = IBV_QP_STATE;
			snprintf(name, sizeof(name), "modify_qp from RTS to state %d, %s", to,
				 types[i].name);
			inject(&(struct call){ name, do_from, try_modify, NULL, rest_end });
		}
		if (!ud)
			inject(&(struct call){ "query_qp", do_from, try_query, NULL, rest_end });
		end_close(&other);
	}
}

static struct ibv_ah_attr path;
static bool over_six;

static int try_create_ah(void)
{
	return GOT(ah = ibv_create_ah(r1.pd, &path));
}

static void do_create_ah(void)
{
	CHECK_EQ(try_create_ah(), 0);
}

static int try_destroy_ah(void)
{
	int err = ibv_destroy_ah(ah);

	if (!err)
		ah = NULL;
	return err;
}

static void rest_ah(void)
{
	if (ah)
		check_rest(ibv_destroy_ah(ah));
	ah = NULL;
}

static void test_address_handles(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		end_init(&one, &r1, IBV_QPT_UD, 0);
		end_init(&other, &r2, IBV_QPT_UD, 0);
		one.v6 = v6;
		path = end_path(&one, &other);
		inject(&(struct call){ "create_ah", NULL, try_create_ah, rest_ah });
		inject(&(struct call){ "destroy_ah", do_create_ah, try_destroy_ah, NULL, rest_ah });
	}
}

static union ibv_gid group(void)
{
	return over_six ? group6(0x0102) : group4(0x0102);
}

static int try_attach(void)
{
	union ibv_gid gid = group();

	return ibv_attach_mcast(qp, &gid, 0);
}

static void do_attach(void)
{
	CHECK_EQ(try_attach(), 0);
}

static int try_detach(void)
{
	union ibv_gid gid = group();

	return ibv_detach_mcast(qp, &gid, 0);
}

/* Checks that the net device is in the IP group as well. */
static void undo_attach(void)
{
	if (over_six)
		shell("nsenter --net=/run/netns/n1 grep -qi 'ff15.*00070102 ' /proc/net/igmp6");
	else
		shell("nsenter --net=/run/netns/n1 grep -qi '020107EF' /proc/net/igmp");
}

static void rest_detach(void)
{
	int err = try_detach();

	/* EINVAL: it is no longer a member. */
	CHECK(!err || err == EINVAL);
}

static void test_multicast(void)
{
	do_create_cq();
	qp = bare_qp(&r1, cq);
	for (int v6 = 0; v6 < 2; v6++) {
		over_six = v6;
		inject(&(struct call){
			"attach_mcast", NULL, try_attach, undo_attach, rest_detach });
		inject(&(struct call){ "detach_mcast", do_attach, try_detach, NULL, rest_detach });
	}
	rest_qp();
	rest_cq();
}

static void set_up(void)
{
	inject_open();
	buf = mmap(NULL, 2 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(buf != MAP_FAILED);
	/* No huge pages: each page is separate. A kernel without them rejects the advice. */
	CHECK(!madvise(buf, 2 * REGION, MADV_NOHUGEPAGE) || errno == EINVAL);
	memset(buf, 0x22, 2 * REGION);
}

static const struct test tests[] = {
	{ "verb: contexts and protection domains", test_contexts },
	{ "verb: memory regions", test_regions },
	{ "verb: prefetch", test_prefetch },
	{ "verb: memory windows", test_windows },
	{ "verb: completion queues", test_completion_queues },
	{ "verb: shared receive queues", test_shared_receive_queues },
	{ "verb: queue pairs", test_queue_pairs },
	{ "verb: states of queue pairs", test_states },
	{ "verb: address handles", test_address_handles },
	{ "verb: multicast", test_multicast },
	{ "link: added and deleted", test_links },
	{ "link: counters of queue pairs", test_counters },
	{ "data: requests that are posted", test_posted },
	{ "data: datagrams that are posted", test_posted_datagrams },
	{ "data: frames that are posted", test_posted_frames },
	{ "data: a consumer in the kernel", test_consumer },
	{ "traffic: packets in flight", test_traffic_window },
	{ "traffic: memory on demand", test_traffic_on_demand },
	{ "traffic: multicast", test_traffic_group },
	{ "traffic: packets that are moved", test_traffic_realloc },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
