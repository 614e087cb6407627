// SPDX-License-Identifier: GPL-2.0
/*
 * Modify QP with bad attributes: for every type, state and next state each attribute that is
 * required left out, each that is not allowed added, and each value out of its range. All of these
 * are refused, and nothing changes.
 *
 * The rules below are those of the tables of Modify QP in chapter 11 of the IBTA specification, as
 * Linux interprets it. They are repeated here on purpose, to test the driver's own table.
 */
#include "ferroce_util.h"

enum { RC = 1, UC = 2, UD = 4, ALL = RC | UC | UD };

#define STATES 7
/* The number of the last attribute bit; the state is bit 0. */
#define LAST_ATTR 20

static const struct rule {
	int types;
	enum ibv_qp_state from, to;
	int required, optional;
} rules[] = {
	{ RC | UC, IBV_QPS_RESET, IBV_QPS_INIT,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
	{ RC | UC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ RC, IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ UC, IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ RC, IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
		  IBV_QP_PATH_MIG_STATE },
	{ UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
	  IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE },
	{ UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |
		  IBV_QP_MIN_RNR_TIMER },
	{ UC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE },
	{ UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ ALL, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ RC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
		  IBV_QP_PATH_MIG_STATE },
	{ UC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE },
	{ UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	  IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
		  IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
		  IBV_QP_PATH_MIG_STATE },
	/*
	 * The core adds the port to an address vector here, and then refuses it: UC cannot change
	 * its path.
	 */
	{ UC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE },
	{ UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ RC, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0 },
	{ UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ ALL, IBV_QPS_ERR, IBV_QPS_ERR, 0, 0 },
};

static const struct rule anywhere = { .types = ALL };

/* The peer of the queue pairs under test. */
static struct end peer;

static int type_bit(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC ? RC : type == IBV_QPT_UC ? UC : UD;
}

static const struct rule *find_rule(enum ibv_qp_type type, int from, int to)
{
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return &anywhere;
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if ((rules[i].types & type_bit(type)) && (int)rules[i].from == from &&
		    (int)rules[i].to == to)
			return &rules[i];
	return NULL;
}

/* Returns values that are all valid, and differ from those that end_to() sets. */
static struct ibv_qp_attr good(struct end *e, int from, int to)
{
	return (struct ibv_qp_attr){
		.qp_state = to,
		.cur_qp_state = from,
		.path_mtu = IBV_MTU_512,
		.path_mig_state = IBV_MIG_MIGRATED,
		.qkey = 0x1234,
		.rq_psn = 0x111,
		.sq_psn = 0x222,
		.dest_qp_num = 0x333,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ,
		.ah_attr = end_path(e, &peer),
		.alt_ah_attr = end_path(e, &peer),
		.en_sqd_async_notify = 1,
		.max_rd_atomic = 2,
		.max_dest_rd_atomic = 3,
		.min_rnr_timer = 9,
		.port_num = 1,
		.timeout = 8,
		.retry_cnt = 1,
		.rnr_retry = 2,
		.alt_port_num = 1,
		.cap = { 4, 4, 1, 1, 0 },
	};
}

/* Creates a queue pair in a state; returns false for SQE on RC, which does not exist. */
static bool open_in(struct end *e, enum ibv_qp_type type, enum ibv_qp_state state)
{
	if (type == IBV_QPT_RC && state == IBV_QPS_SQE)
		return false;
	end_init(e, &r1, type, 64);
	end_create(e);
	if (state == IBV_QPS_ERR) {
		end_to(e, &peer, IBV_QPS_INIT);
		end_modify(e, IBV_QPS_ERR);
	} else if (state == IBV_QPS_SQE) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;

		end_to(e, &peer, IBV_QPS_RTS);
		make_send(&wr, &sge, e, &peer, IBV_WR_SEND, 1, 0, 1, 0);
		sge.lkey ^= 1;
		post_wr(e, &wr);
		end_await(e, IBV_QPS_SQE);
	} else {
		end_to(e, &peer, state);
	}
	return true;
}

static struct ibv_qp_attr query(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	CHECK_EQ(ibv_query_qp(e->qp, &attr, 0x1fffff, &init), 0);
	return attr;
}

/* Checks that a modify fails and changes nothing. */
static void refuse(struct end *e, struct ibv_qp_attr attr, int mask, const char *why)
{
	struct ibv_qp_attr before = query(e), after;
	int ret = ibv_modify_qp(e->qp, &attr, mask);

	after = query(e);
	if (!ret || memcmp(&before, &after, sizeof(before)))
		printf("# type %d, state %d to %d, mask %#x: %s: %s\n", e->type, before.qp_state,
		       mask & IBV_QP_STATE ? (int)attr.qp_state : -1, mask, why,
		       ret ? "refused, but something changed" : "not refused");
	CHECK(ret);
	CHECK(!memcmp(&before, &after, sizeof(before)));
}

static void allow(struct end *e, struct ibv_qp_attr attr, int mask)
{
	int from = end_state(e), ret = ibv_modify_qp(e->qp, &attr, mask);

	if (ret)
		printf("# type %d, state %d to %d, mask %#x: refused with %d\n", e->type, from,
		       attr.qp_state, mask, ret);
	CHECK_EQ(ret, 0);
	CHECK_EQ(end_state(e), attr.qp_state);
}

/* Attributes that the rules allow and the driver does not support. */
#define NOT_CARRIED IBV_QP_ALT_PATH

static void masks(enum ibv_qp_type type)
{
	int refused = 0, accepted = 0;

	for (int from = 0; from < STATES; from++) {
		for (int to = 0; to < STATES; to++) {
			const struct rule *rule = find_rule(type, from, to);
			int full = IBV_QP_STATE | (rule ? rule->required : 0);
			struct ibv_qp_attr attr;
			struct end e;

			if (!open_in(&e, type, from))
				break;
			attr = good(&e, from, to);
			if (!rule) {
				refuse(&e, attr, IBV_QP_STATE, "no such transition");
				refuse(&e, attr, 0x1fffff & ~(IBV_QP_CAP | IBV_QP_ALT_PATH),
				       "no such transition, all attributes");
			}
			for (int bit = 1; bit <= LAST_ATTR; bit++) {
				int attribute = 1 << bit;

				if (!rule || !((rule->required | rule->optional) & attribute))
					refuse(&e, attr, full | attribute, "not allowed");
				else if (rule->required & attribute)
					refuse(&e, attr, full & ~attribute, "missing");
				else if (attribute & NOT_CARRIED)
					refuse(&e, attr, full | attribute, "not carried");
				refused++;
			}
			refuse(&e, attr, full | 1 << 25, "rate limit");
			if (rule) {
				allow(&e, attr, full);
				accepted++;
			}
			end_close(&e);
			/* Each optional attribute, on a queue pair of its own. */
			for (int bit = 1; rule && bit <= LAST_ATTR; bit++) {
				if (!(rule->optional & ~NOT_CARRIED & 1 << bit))
					continue;
				open_in(&e, type, from);
				allow(&e, attr, full | 1 << bit);
				accepted++;
				end_close(&e);
			}
		}
	}
	printf("# type %d: %d refused, %d accepted\n", type, refused, accepted);
	CHECK(refused > 600 && accepted > 20);
}

static void test_rc_masks(void)
{
	masks(IBV_QPT_RC);
}

static void test_uc_masks(void)
{
	masks(IBV_QPT_UC);
}

static void test_ud_masks(void)
{
	masks(IBV_QPT_UD);
}

#define BAD(mask, type, field, bad) \
	{ IBV_QP_##mask, offsetof(struct ibv_qp_attr, field), sizeof(type), bad }

/* The position and size of a value, and an invalid value. */
static const struct bad_value {
	int attribute;
	size_t offset;
	size_t size;
	uint32_t value;
} bad_values[] = {
	BAD(PKEY_INDEX, uint16_t, pkey_index, 1),
	BAD(PKEY_INDEX, uint16_t, pkey_index, 0xffff),
	BAD(PORT, uint8_t, port_num, 0),
	BAD(PORT, uint8_t, port_num, 2),
	BAD(PATH_MTU, uint32_t, path_mtu, 0),
	BAD(PATH_MTU, uint32_t, path_mtu, 6),
	BAD(TIMEOUT, uint8_t, timeout, 32),
	BAD(TIMEOUT, uint8_t, timeout, 255),
	BAD(RETRY_CNT, uint8_t, retry_cnt, 8),
	BAD(RNR_RETRY, uint8_t, rnr_retry, 8),
	BAD(MIN_RNR_TIMER, uint8_t, min_rnr_timer, 32),
	BAD(DEST_QPN, uint32_t, dest_qp_num, 1 << 24),
	BAD(MAX_QP_RD_ATOMIC, uint8_t, max_rd_atomic, 129),
	BAD(MAX_DEST_RD_ATOMIC, uint8_t, max_dest_rd_atomic, 129),
	BAD(ACCESS_FLAGS, uint32_t, qp_access_flags, IBV_ACCESS_ZERO_BASED),
	BAD(ACCESS_FLAGS, uint32_t, qp_access_flags, 1u << 31),
	BAD(PATH_MIG_STATE, uint32_t, path_mig_state, IBV_MIG_REARM),
	BAD(PATH_MIG_STATE, uint32_t, path_mig_state, IBV_MIG_ARMED),
	BAD(CUR_STATE, uint32_t, cur_qp_state, IBV_QPS_SQE),
	BAD(AV, uint8_t, ah_attr.port_num, 2),
	BAD(AV, uint8_t, ah_attr.is_global, 0),
	BAD(AV, uint8_t, ah_attr.grh.sgid_index, 255),
	BAD(STATE, uint32_t, qp_state, 7),
};

/* Makes one value invalid; returns the attribute that it belongs to, 0 after the last. */
static int spoil(struct ibv_qp_attr *attr, size_t kind)
{
	if (kind < ARRAY_LEN(bad_values)) {
		/* Little-endian, like all machines that this driver supports. */
		memcpy((char *)attr + bad_values[kind].offset, &bad_values[kind].value,
		       bad_values[kind].size);
		return bad_values[kind].attribute;
	}
	switch (kind - ARRAY_LEN(bad_values)) {
	case 0:
		attr->ah_attr.grh.sgid_index = r1.gid6_index;
		return IBV_QP_AV;
	case 1:
		memset(&attr->ah_attr.grh.dgid, 0, sizeof(attr->ah_attr.grh.dgid));
		return IBV_QP_AV;
	default:
		return 0;
	}
}

/*
 * A bad value alone, and together with all attributes that may be set, in each transition that
 * takes the attribute.
 */
static void test_values(void)
{
	int refused = 0;

	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD; type++) {
		for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
			const struct rule *rule = &rules[i];
			int full = rule->required | IBV_QP_STATE;
			int most = (full | rule->optional) & ~NOT_CARRIED;
			struct ibv_qp_attr attr;
			struct end e;
			int bit;

			if (!(rule->types & type_bit(type)) || !open_in(&e, type, rule->from))
				continue;
			for (size_t kind = 0;; kind++) {
				attr = good(&e, rule->from, rule->to);
				bit = spoil(&attr, kind);
				if (!bit)
					break;
				if (!(most & bit) ||
				    (bit == IBV_QP_CUR_STATE && rule->from == IBV_QPS_SQE))
					continue;
				refuse(&e, attr, full | bit, "bad value");
				refuse(&e, attr, most, "bad value among others");
				refused++;
			}
			end_close(&e);
		}
	}
	printf("# %d values refused\n", refused);
	CHECK(refused > 100);
}

/* A PSN has 24 bits: the core cuts longer ones, or the driver refuses them. */
static void test_long_psn(void)
{
	struct ibv_qp_attr attr;
	struct end e;

	open_in(&e, IBV_QPT_UC, IBV_QPS_RTR);
	attr = good(&e, IBV_QPS_RTR, IBV_QPS_RTS);
	attr.sq_psn = 0xff000456;
	if (!ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		CHECK_EQ(query(&e).sq_psn, 0x456);
	end_close(&e);
}

/* The path MTU must not be larger than that of the port. */
static void test_mtu_of_port(void)
{
	struct ibv_qp_attr attr;
	struct end e;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	shell_undo("ip -n n1 link set v1 mtu 4200", "ip -n n1 link set v1 mtu 1500");
	open_in(&e, IBV_QPT_UC, IBV_QPS_INIT);
	attr = good(&e, IBV_QPS_INIT, IBV_QPS_RTR);
	attr.path_mtu = IBV_MTU_2048;
	refuse(&e, attr, mask, "MTU above that of the port");
	attr.path_mtu = IBV_MTU_1024;
	allow(&e, attr, mask);
	end_close(&e);
	undo_last();
}

static void set_up(void)
{
	end_init(&peer, &r2, IBV_QPT_RC, 64);
	end_create(&peer);
}

static const struct test tests[] = {
	{ "RC, masks", test_rc_masks },
	{ "UC, masks", test_uc_masks },
	{ "UD, masks", test_ud_masks },
	{ "values out of range", test_values },
	{ "PSNs of more than 24 bits", test_long_psn },
	{ "path MTU above the port's", test_mtu_of_port },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
