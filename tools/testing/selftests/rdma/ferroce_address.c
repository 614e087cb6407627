// SPDX-License-Identifier: GPL-2.0
/*
 * An address that is removed and added again gets another entry of the GID table. Queue pairs and
 * address handles that name the first entry go on working, as they must when a bond changes its
 * active link.
 */
#include "ferroce_util.h"

#define LEN 4096
#define MESSAGE 1000

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

/* Datagrams and UC messages get lost while there is no address or neighbour: repeat. */
static void exchange(struct end *a, struct end *b, uint64_t wr_id)
{
	size_t grh = a->type == IBV_QPT_UD ? GRH_LEN : 0;
	struct ibv_wc wc;

	fill(a->buf, MESSAGE, wr_id);
	post_recv(b, wr_id, 0, MESSAGE + grh);
	wait_begin();
	for (;;) {
		post_send(a, b, IBV_WR_SEND, wr_id, 0, MESSAGE, IBV_SEND_SIGNALED);
		expect(a, wr_id, IBV_WC_SUCCESS);
		for (int i = 0; i < 1000; i++) {
			int n = ibv_poll_cq(b->cq, 1, &wc);

			if (n) {
				CHECK_EQ(n, 1);
				CHECK_EQ(wc.status, IBV_WC_SUCCESS);
				CHECK_EQ(wc.wr_id, wr_id);
				CHECK(filled(b->buf + grh, MESSAGE, wr_id));
				return;
			}
			wait_more_verb("a message");
		}
		CHECK(a->type != IBV_QPT_RC);
	}
}

/* Changes the address of r1 between messages. With `remove`, it is gone before `add` runs. */
static void change(const char *remove, const char *add, bool v6)
{
	struct end a[ARRAY_LEN(types)], b[ARRAY_LEN(types)];
	const union ibv_gid *gid = v6 ? &r1.gid6 : &r1.gid;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		end_init(&a[i], &r1, types[i], LEN);
		end_init(&b[i], &r2, types[i], LEN);
		a[i].v6 = v6;
		b[i].v6 = v6;
		pair_create(&a[i], &b[i]);
		exchange(&a[i], &b[i], 1);
		exchange(&b[i], &a[i], 2);
	}
	if (remove) {
		shell("%s", remove);
		wait_begin();
		while (find_gid(r1.ctx, gid, 0) >= 0)
			wait_more_verb("the removal of an address");
	}
	shell("%s", add);
	dev_wait(&r1);
	/* The neighbour entries have the old MAC address. */
	shell("ip -n n2 neigh flush dev v2");
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		exchange(&a[i], &b[i], 3);
		exchange(&b[i], &a[i], 4);
		pair_close(&a[i], &b[i]);
	}
	/* The GID entry that the ends held is free now. */
	dev_wait(&r1);
}

static void test_ipv4(void)
{
	int before = r1.gid_index;

	change("ip -n n1 addr del 10.77.0.1/24 dev v1", "ip -n n1 addr add 10.77.0.1/24 dev v1",
	       false);
	CHECK(r1.gid_index != before);
}

static void test_ipv6(void)
{
	int before = r1.gid6_index;

	change("ip -n n1 addr del fd77::1/64 dev v1", "ip -n n1 addr add fd77::1/64 dev v1 nodad",
	       true);
	CHECK(r1.gid6_index != before);
}

static void test_mac(void)
{
	change(NULL, "ip -n n1 link set v1 address 02:00:00:00:77:01", false);
	change(NULL, "ip -n n1 link set v1 address 02:00:00:00:77:02", true);
}

#define VLAN_IFINDEX 107

/* Waits until the GID of a net device is there, or is gone. */
static void wait_gid(const struct dev *dev, int ifindex, bool there)
{
	wait_begin();
	while ((find_gid(dev->ctx, &dev->gid, ifindex) >= 0) != there)
		wait_more_verb("a GID of a VLAN");
}

/* Adds a VLAN with an address, and makes `dev` use the GID of that address. */
static void add_vlan(struct dev *dev, int number, int id, int ifindex)
{
	char text[INET6_ADDRSTRLEN];

	shell("ip -n n%d link add link v%d name vlan%d index %d type vlan id %d", number, number,
	      id, ifindex, id);
	/* Without a link-local address, so that it has one GID, at the first free index. */
	shell("ip -n n%d link set vlan%d addrgenmode none up", number, id);
	shell("ip -n n%d addr add 10.99.0.%d/24 dev vlan%d", number, number, id);
	snprintf(text, sizeof(text), "::ffff:10.99.0.%d", number);
	inet_pton(AF_INET6, text, &dev->gid);
	wait_gid(dev, ifindex, true);
	dev->gid_index = find_gid(dev->ctx, &dev->gid, ifindex);
}

/* The net device below the VLAN has the same address. A connection over the VLAN never uses it. */
static void test_vlan(void)
{
	struct dev one = r1, two = r2;
	struct end a, b;

	add_vlan(&one, 1, 7, VLAN_IFINDEX);
	add_vlan(&two, 2, 7, VLAN_IFINDEX);
	shell("ip -n n1 addr add 10.99.0.1/24 dev v1");
	end_init(&a, &one, IBV_QPT_RC, LEN);
	end_init(&b, &two, IBV_QPT_RC, LEN);
	a.timeout = 18;
	a.retry_cnt = 1;
	pair_create(&a, &b);
	exchange(&a, &b, 1);
	shell("ip -n n1 addr del 10.99.0.1/24 dev vlan7");
	wait_gid(&one, VLAN_IFINDEX, false);
	post_recv(&b, 2, 0, MESSAGE);
	post_send(&a, &b, IBV_WR_SEND, 2, 0, MESSAGE, IBV_SEND_SIGNALED);
	expect(&a, 2, IBV_WC_RETRY_EXC_ERR);
	expect_none(&b);
	pair_close(&a, &b);
	shell("ip -n n1 addr del 10.99.0.1/24 dev v1");
	shell("ip -n n1 link del vlan7 && ip -n n2 link del vlan7");
}

/* Sends a datagram from `one` to `two`, and destroys its address handle. */
static void open_datagrams(struct end *a, struct dev *one, struct end *b, struct dev *two)
{
	end_init(a, one, IBV_QPT_UD, LEN);
	end_init(b, two, IBV_QPT_UD, LEN);
	pair_create(a, b);
	exchange(a, b, 1);
	CHECK_EQ(ibv_destroy_ah(a->ah), 0);
}

/* Sends a datagram with a new address handle, and closes both ends. */
static void send_again(struct end *a, struct end *b)
{
	struct ibv_ah_attr path = end_path(a, b);

	a->ah = ibv_create_ah(a->dev->pd, &path);
	CHECK(a->ah);
	exchange(a, b, 2);
	pair_close(a, b);
}

/*
 * The net device of an address is created again, under another index, while no address handle is
 * left. Datagrams with a new handle, which is like the old one, use the new net device.
 */
static void test_new_vlan(void)
{
	struct dev one = r1, two = r2;
	struct end a, b;
	int before;

	add_vlan(&one, 1, 7, VLAN_IFINDEX);
	add_vlan(&two, 2, 7, VLAN_IFINDEX);
	open_datagrams(&a, &one, &b, &two);
	before = one.gid_index;
	shell("ip -n n1 link del vlan7");
	wait_gid(&one, VLAN_IFINDEX, false);
	add_vlan(&one, 1, 7, VLAN_IFINDEX + 1);
	CHECK_EQ(one.gid_index, before);
	send_again(&a, &b);
	shell("ip -n n1 link del vlan7 && ip -n n2 link del vlan7");
}

/*
 * Two VLANs have the same address, and exchange their entries in the GID table. A datagram leaves
 * through the VLAN of its address handle, not through that of the last datagram.
 */
static void test_two_vlans(void)
{
	struct dev one = r1, two = r2;
	struct end a, b;
	int first;

	add_vlan(&two, 2, 7, VLAN_IFINDEX);
	add_vlan(&two, 2, 8, VLAN_IFINDEX + 1);
	add_vlan(&one, 1, 7, VLAN_IFINDEX);
	first = one.gid_index;
	add_vlan(&one, 1, 8, VLAN_IFINDEX + 1);
	one.gid_index = first;
	open_datagrams(&a, &one, &b, &two);
	for (int id = 7; id <= 8; id++) {
		shell("ip -n n1 addr del 10.99.0.1/24 dev vlan%d", id);
		wait_gid(&one, VLAN_IFINDEX + id - 7, false);
	}
	for (int id = 8; id >= 7; id--) {
		shell("ip -n n1 addr add 10.99.0.1/24 dev vlan%d", id);
		wait_gid(&one, VLAN_IFINDEX + id - 7, true);
	}
	CHECK_EQ(find_gid(one.ctx, &one.gid, VLAN_IFINDEX + 1), first);
	shell("ip -n n2 link set vlan7 down");
	send_again(&a, &b);
	for (int id = 7; id <= 8; id++)
		shell("ip -n n1 link del vlan%d && ip -n n2 link del vlan%d", id, id);
}

static const struct test tests[] = {
	{ "IPv4 address removed and added", test_ipv4 },
	{ "IPv6 address removed and added", test_ipv6 },
	{ "MAC address changed", test_mac },
	{ "same address on a VLAN and below it", test_vlan },
	{ "VLAN created again under a datagram queue pair", test_new_vlan },
	{ "same addresses on two VLANs, whose entries are exchanged", test_two_vlans },
};

int main(int argc, char **argv)
{
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
