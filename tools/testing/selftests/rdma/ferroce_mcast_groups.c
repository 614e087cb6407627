// SPDX-License-Identifier: GPL-2.0
/*
 * Membership in multicast groups: the net device joins and leaves with the queue pairs, limits, and
 * refused requests.
 *
 * "ferroce_mcast_groups hold DEVICE" is a process that is in two groups and waits.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_mcast.h"

/* Returns whether a net device of the namespace is in a group, according to a file in /proc/net. */
static bool joined(int number, const char *table, const char *text)
{
	char command[200];

	snprintf(command, sizeof(command),
		 "nsenter --net=/run/netns/n%d cat /proc/net/%s | grep -qi '%s'", number, table,
		 text);
	return system(command) == 0;
}

/* The net device is in the IP group, and takes frames to it, as long as a queue pair is in it. */
static void join(void)
{
	union ibv_gid four = group4(0x0809), six = group6(0x0809);
	struct ibv_cq *cq = ibv_create_cq(r1.ctx, 8, NULL, NULL, 0);
	struct ibv_qp *a, *b;

	CHECK(cq);
	a = bare_qp(&r1, cq);
	b = bare_qp(&r1, cq);
	CHECK(!joined(1, "igmp", "090807EF"));
	CHECK_EQ(ibv_attach_mcast(a, &four, 0), 0);
	CHECK(joined(1, "igmp", "090807EF"));
	CHECK(joined(1, "dev_mcast", "v1 .*01005e070809"));
	CHECK_EQ(ibv_attach_mcast(b, &four, 0), 0);
	CHECK_EQ(ibv_detach_mcast(a, &four, 0), 0);
	CHECK(joined(1, "igmp", "090807EF"));
	CHECK_EQ(ibv_detach_mcast(b, &four, 0), 0);
	CHECK(!joined(1, "igmp", "090807EF"));
	CHECK(!joined(1, "dev_mcast", "v1 .*01005e070809"));

	CHECK(!joined(1, "igmp6", "ff15.*00070809 "));
	CHECK_EQ(ibv_attach_mcast(a, &six, 0), 0);
	CHECK(joined(1, "igmp6", "ff15.*00070809 "));
	CHECK(joined(1, "dev_mcast", "v1 .*333300070809"));
	CHECK_EQ(ibv_detach_mcast(a, &six, 0), 0);
	CHECK(!joined(1, "igmp6", "ff15.*00070809 "));
	CHECK_EQ(ibv_destroy_qp(b), 0);
	CHECK_EQ(ibv_destroy_qp(a), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

/*
 * Joins an IPv4 and an IPv6 group in a process of its own, reports that, and waits forever. No
 * checks: this is not a test case.
 */
static int hold(const char *name, int fd)
{
	union ibv_gid four = group4(0x0a0b), six = group6(0x0a0b);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.cap = { 1, 1, 1, 1, 0 },
	};
	struct ibv_context *ctx = open_device(name);
	struct ibv_qp *qp;

	if (!ctx)
		return 1;
	init.send_cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	init.recv_cq = init.send_cq;
	qp = ibv_create_qp(ibv_alloc_pd(ctx), &init);
	if (!qp || ibv_attach_mcast(qp, &four, 0) || ibv_attach_mcast(qp, &six, 0))
		return 1;
	/* The queue pair may be destroyed only when it is not a member. */
	if (ibv_destroy_qp(qp) != EBUSY)
		return 1;
	if (write(fd, "joined\n", 7) != 7)
		return 1;
	for (;;)
		pause();
}

/* When a process ends, it leaves its groups. */
static void killed(void)
{
	int fds[2], status;
	pid_t child;
	char line[7];

	CHECK_EQ(pipe(fds), 0);
	child = child_fork();
	if (child == 0)
		_exit(hold("r1", fds[1]));
	close(fds[1]);
	CHECK_EQ(read(fds[0], line, sizeof(line)), sizeof(line));
	CHECK(joined(1, "igmp", "0B0A07EF"));
	CHECK(joined(1, "igmp6", "ff15.*00070a0b "));
	kill(child, SIGKILL);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status));
	wait_begin();
	while (joined(1, "igmp", "0B0A07EF") || joined(1, "igmp6", "ff15.*00070a0b "))
		wait_more_program("the groups of a process that is gone");
	close(fds[0]);
}

/* Invalid groups are refused, and attaching twice has no effect. */
static void refused(void)
{
	union ibv_gid group = group4(1), unicast = r2.gid, zero = {};
	struct end a, rc;

	end_init(&a, &r1, IBV_QPT_UD, 4096);
	end_create(&a);
	CHECK_EQ(ibv_attach_mcast(a.qp, &unicast, 0), EINVAL);
	CHECK_EQ(ibv_attach_mcast(a.qp, &zero, 0), EINVAL);
	CHECK_EQ(ibv_attach_mcast(a.qp, &r2.gid6, 0), EINVAL);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), EINVAL);
	/* Attaching twice makes one membership. */
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0), 0);
	/* RoCE has no LIDs, so another LID does not make another membership. */
	CHECK_EQ(ibv_attach_mcast(a.qp, &group, 0xc001), EINVAL);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0xc001), EINVAL);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(a.qp, &group, 0), EINVAL);
	end_close(&a);

	end_init(&rc, &r1, IBV_QPT_RC, 4096);
	end_create(&rc);
	CHECK_EQ(ibv_attach_mcast(rc.qp, &group, 0), EINVAL);
	end_close(&rc);
}

/* The limits are exactly those that the device reports. */
static void limits(void)
{
	static struct ibv_qp *qps[65];
	union ibv_gid group = group4(0);
	struct ibv_device_attr attr;
	struct ibv_cq *cq;
	int groups, members, total, n;

	CHECK_EQ(ibv_query_device(r1.ctx, &attr), 0);
	groups = attr.max_mcast_grp;
	members = attr.max_mcast_qp_attach;
	total = attr.max_total_mcast_qp_attach;
	CHECK(groups > 0 && members > 1 && members < (int)ARRAY_LEN(qps));
	CHECK(total > groups && total / members < groups);
	cq = ibv_create_cq(r1.ctx, 8, NULL, NULL, 0);
	CHECK(cq);
	for (int i = 0; i <= members; i++)
		qps[i] = bare_qp(&r1, cq);

	/* Groups. */
	for (int i = 0; i < groups; i++) {
		group = group4(i);
		CHECK_EQ(ibv_attach_mcast(qps[0], &group, 0), 0);
	}
	group = group6(1);
	CHECK_EQ(ibv_attach_mcast(qps[0], &group, 0), ENOMEM);
	group = group4(groups);
	CHECK_EQ(ibv_attach_mcast(qps[0], &group, 0), ENOMEM);
	group = group4(7);
	CHECK_EQ(ibv_attach_mcast(qps[1], &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(qps[1], &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(qps[0], &group, 0), 0);
	group = group4(groups);
	CHECK_EQ(ibv_attach_mcast(qps[0], &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(qps[0], &group, 0), 0);
	for (int i = 0; i < groups; i++) {
		if (i == 7)
			continue;
		group = group4(i);
		CHECK_EQ(ibv_detach_mcast(qps[0], &group, 0), 0);
	}

	/* Members of one group, and members of all groups. */
	for (n = 0; n < total; n++) {
		group = group4(n / members);
		CHECK_EQ(ibv_attach_mcast(qps[n % members], &group, 0), 0);
		if (n == members - 1)
			CHECK_EQ(ibv_attach_mcast(qps[members], &group, 0), ENOMEM);
	}
	group = group4(total / members + 1);
	CHECK_EQ(ibv_attach_mcast(qps[0], &group, 0), ENOMEM);
	for (n = 0; n < total; n++) {
		group = group4(n / members);
		CHECK_EQ(ibv_detach_mcast(qps[n % members], &group, 0), 0);
	}
	for (int i = 0; i <= members; i++)
		CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
}

static const struct test tests[] = {
	{ "the net device joins and leaves", join },
	{ "a process that is killed leaves its groups", killed },
	{ "invalid requests", refused },
	{ "limits", limits },
};

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "hold"))
		return hold(argv[2], STDOUT_FILENO);
	run_tests(argc, argv, NULL, tests, ARRAY_LEN(tests));
}
