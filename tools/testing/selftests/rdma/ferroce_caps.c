// SPDX-License-Identifier: GPL-2.0
/*
 * Every flag and every limit that the device reports, each shown in use or at its bound.
 *
 * There is a row for each field that a query returns, and one for each flag. The test fails for a
 * nonzero field without a row, and for a set flag without one, and for a row whose field is zero or
 * whose flag is not set. So a change that makes the device report more adds a row, with a function
 * that shows it, or the name of the test program that does; a change that makes it report less
 * removes one.
 */
#include <unistd.h>
#include <rdma/ib_user_verbs.h>
#include "ferroce_caps.h"

struct ibv_device_attr_ex dev;
struct ibv_port_attr port;

/* A field or flag, and the function or test program that shows it. */
struct row {
	const char *name;
	/* A field, or bits of one. */
	const void *field;
	size_t size;
	uint64_t bits;
	/* Shows it. */
	void (*show)(void);
	/* Or the test program that shows it. */
	const char *program;
};

#define FIELD(expr, ...) \
	{ .name = #expr, .field = &(expr), .size = sizeof(expr), __VA_ARGS__ }
#define FLAG(flag, ...) { .name = #flag, .bits = (flag), __VA_ARGS__ }

static void show(const struct row *row, bool set)
{
	printf("# %s%s%s\n", row->name, row->program ? ": see " : "",
	       row->program ? row->program : "");
	CHECK(set);
	if (row->program)
		CHECK_EQ(access(row->program, X_OK), 0);
	else
		row->show();
}

static bool is_zero(const struct row *row)
{
	for (size_t i = 0; i < row->size; i++)
		if (((const unsigned char *)row->field)[i])
			return false;
	return true;
}

static void go_through(const struct row *rows, size_t n, const void *what, size_t len)
{
	static bool covered[sizeof(struct ibv_device_attr_ex)];
	const unsigned char *bytes = what;

	memset(covered, 0, sizeof(covered));
	for (size_t i = 0; i < n; i++) {
		memset(covered + ((const unsigned char *)rows[i].field - bytes), 1, rows[i].size);
		show(&rows[i], !is_zero(&rows[i]));
	}
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] && !covered[i])
			printf("# byte %zu of %zu has no row\n", i, len);
		CHECK(!bytes[i] || covered[i]);
	}
}

static void go_through_flags(const struct row *rows, size_t n, uint64_t flags)
{
	uint64_t left = flags;

	for (size_t i = 0; i < n; i++) {
		show(&rows[i], (flags & rows[i].bits) == rows[i].bits);
		left &= ~rows[i].bits;
	}
	if (left)
		printf("# flags %#llx have no row\n", (unsigned long long)left);
	CHECK_EQ(left, 0);
}

static const struct row dev_rows[] = {
	FIELD(dev.orig_attr.fw_ver, .show = identity),
	FIELD(dev.orig_attr.node_guid, .show = show_guid),
	FIELD(dev.orig_attr.sys_image_guid, .show = show_guid),
	FIELD(dev.orig_attr.max_mr_size, .show = show_mr_size),
	FIELD(dev.orig_attr.page_size_cap, .show = show_page_size),
	FIELD(dev.orig_attr.vendor_id, .show = identity),
	FIELD(dev.orig_attr.max_qp, .show = show_many),
	FIELD(dev.orig_attr.max_qp_wr, .show = show_qp_wr),
	/* Each flag has a row below. */
	FIELD(dev.orig_attr.device_cap_flags, .show = identity),
	FIELD(dev.orig_attr.max_sge, .show = show_sge),
	FIELD(dev.orig_attr.max_sge_rd, .show = show_sge_rd),
	FIELD(dev.orig_attr.max_cq, .show = show_many),
	FIELD(dev.orig_attr.max_cqe, .show = show_cqe),
	FIELD(dev.orig_attr.max_mr, .show = show_many),
	FIELD(dev.orig_attr.max_mw, .show = show_many_windows),
	FIELD(dev.orig_attr.max_pd, .show = show_pds),
	FIELD(dev.orig_attr.max_qp_rd_atom, .show = show_rd_atom),
	FIELD(dev.orig_attr.max_res_rd_atom, .show = show_res_rd_atom),
	FIELD(dev.orig_attr.max_qp_init_rd_atom, .show = show_rd_atom),
	FIELD(dev.orig_attr.atomic_cap, .program = "ferroce_atomic"),
	FIELD(dev.orig_attr.max_mcast_grp, .program = "ferroce_mcast_groups"),
	FIELD(dev.orig_attr.max_mcast_qp_attach, .program = "ferroce_mcast_groups"),
	FIELD(dev.orig_attr.max_total_mcast_qp_attach, .program = "ferroce_mcast_groups"),
	FIELD(dev.orig_attr.max_ah, .show = show_ahs),
	FIELD(dev.orig_attr.max_srq, .show = show_many_srqs),
	FIELD(dev.orig_attr.max_srq_wr, .show = show_srq_wr),
	FIELD(dev.orig_attr.max_srq_sge, .show = show_srq_sge),
	FIELD(dev.orig_attr.max_pkeys, .show = show_pkeys),
	FIELD(dev.orig_attr.local_ca_ack_delay, .show = show_ack_delay),
	FIELD(dev.orig_attr.phys_port_cnt, .show = show_ports),
	FIELD(dev.odp_caps, .program = "ferroce_odp"),
	FIELD(dev.device_cap_flags_ex, .show = show_flags_ex),
	FIELD(dev.phys_port_cnt_ex, .show = show_ports),
};

/* enum ib_device_cap_flags. */
static const struct row dev_flags[] = {
	FLAG(IBV_DEVICE_UD_AV_PORT_ENFORCE, .show = show_av_port),
	FLAG(IBV_DEVICE_PORT_ACTIVE_EVENT, .program = "ferroce_netdev.sh"),
	FLAG(IBV_DEVICE_SYS_IMAGE_GUID, .show = show_guid),
	FLAG(IBV_DEVICE_RC_RNR_NAK_GEN, .show = show_rnr),
	FLAG(IBV_DEVICE_MEM_WINDOW, .program = "ferroce_windows"),
	FLAG(IBV_DEVICE_MEM_WINDOW_TYPE_2B, .program = "ferroce_windows"),
	FLAG(IBV_DEVICE_MEM_MGT_EXTENSIONS, .program = "ferroce_nvme.sh"),
	FLAG(IBV_DEVICE_SRQ_RESIZE, .show = show_srq_resize),
	FLAG(IB_UVERBS_DEVICE_FLUSH_GLOBAL, .program = "ferroce_operations"),
	FLAG(IB_UVERBS_DEVICE_ATOMIC_WRITE, .program = "ferroce_operations"),
};

static const struct row port_rows[] = {
	FIELD(port.state, .show = show_state),
	FIELD(port.max_mtu, .show = show_mtu),
	FIELD(port.active_mtu, .show = show_mtu),
	FIELD(port.gid_tbl_len, .show = show_gids),
	/* Each flag has a row below. */
	FIELD(port.port_cap_flags, .show = identity),
	FIELD(port.max_msg_sz, .program = "ferroce_big"),
	FIELD(port.pkey_tbl_len, .show = show_pkeys),
	FIELD(port.max_vl_num, .show = identity),
	FIELD(port.active_width, .show = show_speed),
	FIELD(port.active_speed, .show = show_speed),
	FIELD(port.active_speed_ex, .show = show_speed),
	FIELD(port.phys_state, .show = show_state),
	FIELD(port.link_layer, .show = show_state),
	FIELD(port.flags, .show = show_grh_required),
};

/* enum ib_port_capability_mask_bits. */
static const struct row port_flags[] = {
	FLAG(IBV_PORT_CM_SUP, .program = "ferroce_rdmacm.sh"),
};

static void test_device(void)
{
	go_through(dev_rows, ARRAY_LEN(dev_rows), &dev, sizeof(dev));
}

static void test_device_flags(void)
{
	go_through_flags(dev_flags, ARRAY_LEN(dev_flags), dev.device_cap_flags_ex);
}

static void test_port(void)
{
	go_through(port_rows, ARRAY_LEN(port_rows), &port, sizeof(port));
}

static void test_port_flags(void)
{
	go_through_flags(port_flags, ARRAY_LEN(port_flags), port.port_cap_flags);
}

static void set_up(void)
{
	CHECK_EQ(ibv_query_device_ex(r1.ctx, NULL, &dev), 0);
	CHECK_EQ(ibv_query_port(r1.ctx, 1, &port), 0);
}

static const struct test tests[] = {
	{ "the device", test_device },
	{ "flags of the device", test_device_flags },
	{ "the port", test_port },
	{ "flags of the port", test_port_flags },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, set_up, tests, ARRAY_LEN(tests));
}
