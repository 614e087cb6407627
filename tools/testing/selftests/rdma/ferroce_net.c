// SPDX-License-Identifier: GPL-2.0
/*
 * The network that the ferroce test programs share. See ferroce_util.h.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ferroce_util.h"

int enter_ns(const char *name)
{
	int before, fd;
	char path[64];

	before = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(before >= 0);
	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(setns(fd, CLONE_NEWNET), 0);
	close(fd);
	return before;
}

void leave_ns(int before)
{
	CHECK_EQ(setns(before, CLONE_NEWNET), 0);
	close(before);
}

#define NET_DOWN "rdma link delete r1; rdma link delete r2; ip netns delete n1; ip netns delete n2"

static void net_down(void)
{
	if (system(NET_DOWN))
		printf("# the devices and namespaces did not go away\n");
}

static void on_signal(int sig)
{
	undo_all();
	shell_signal(NET_DOWN);
	_exit(128 + sig);
}

void receive_in_order(int number)
{
	shell("ip netns exec n%d sh -c 'echo 1 >/sys/class/net/v%d/queues/rx-0/rps_cpus'", number,
	      number);
}

void net_up(void)
{
	atexit(net_down);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	/*
	 * Few programs are started: if each instruction is checked, that takes the most time.
	 * make_net() in net.sh explains the indexes.
	 */
	shell("ip -batch - <<-END\n"
	      "netns add n1\n"
	      "netns add n2\n"
	      "link add v1 index 101 netns n1 type veth peer name v2 index 102 netns n2\n"
	      "END");
	for (int i = 1; i <= 2; i++) {
		char name[8];
		int before;

		snprintf(name, sizeof(name), "n%d", i);
		before = enter_ns(name);
		shell("echo 0 >/proc/sys/net/ipv6/conf/v%d/accept_dad", i);
		shell("ip -batch - <<-END\n"
		      "link set lo up\n"
		      "addr add 10.77.0.%d/24 dev v%d\n"
		      "addr add fd77::%d/64 dev v%d nodad\n"
		      "link set v%d mtu 4200 up\n"
		      "END",
		      i, i, i, i, i);
		shell("rdma link add r%d type ferroce netdev v%d", i, i);
		leave_ns(before);
	}
}
