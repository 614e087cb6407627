// SPDX-License-Identifier: GPL-2.0
/*
 * The commands of RDMA netlink that make and change devices, while one of their allocations fails.
 * The kernel serves them in the context of the process that sends them.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ferroce_faults.h"

/* A command with its attributes. */
struct command {
	struct nlmsghdr hdr;
	char attrs[256];
};

static int sock = -1;

static void open_sock(void)
{
	if (sock >= 0)
		close(sock);
	/* A new socket, as a lost acknowledgment leaves an error on the old one. */
	sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	CHECK(sock >= 0);
}

static void begin(struct command *cmd, int op)
{
	memset(cmd, 0, sizeof(*cmd));
	cmd->hdr.nlmsg_len = NLMSG_LENGTH(0);
	cmd->hdr.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op);
	cmd->hdr.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
}

static void put(struct command *cmd, int type, const void *data, size_t len)
{
	struct nlattr *attr = (void *)((char *)cmd + NLMSG_ALIGN(cmd->hdr.nlmsg_len));

	attr->nla_type = type;
	attr->nla_len = NLA_HDRLEN + len;
	memcpy((char *)attr + NLA_HDRLEN, data, len);
	cmd->hdr.nlmsg_len = NLMSG_ALIGN(cmd->hdr.nlmsg_len) + NLA_ALIGN(attr->nla_len);
}

static void put_text(struct command *cmd, int type, const char *text)
{
	put(cmd, type, text, strlen(text) + 1);
}

static void put_number(struct command *cmd, int type, uint32_t number)
{
	put(cmd, type, &number, sizeof(number));
}

/* Sends a command; returns 0 or an errno, which may mean that the response was lost. */
static int run(struct command *cmd)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	char answer[1024];
	struct nlmsghdr *hdr = (void *)answer;

	if (sendto(sock, cmd, cmd->hdr.nlmsg_len, 0, (void *)&kernel, sizeof(kernel)) < 0)
		return errno;
	for (;;) {
		if (recv(sock, answer, sizeof(answer), 0) < 0)
			return errno;
		if (hdr->nlmsg_type == NLMSG_ERROR)
			return -((struct nlmsgerr *)NLMSG_DATA(hdr))->error;
	}
}

/* Returns the index of a device, or -1. */
static int index_of(const char *name)
{
	int number = -1, found = -1;
	char line[512], other[64];
	FILE *out;

	fflush(stdout);
	out = popen("rdma dev", "r");
	CHECK(out);
	while (fgets(line, sizeof(line), out))
		if (sscanf(line, "%d: %63[^:]:", &number, other) == 2 && !strcmp(other, name))
			found = number;
	CHECK_EQ(pclose(out), 0);
	return found;
}

static struct command cmd;

static int try_run(void)
{
	return run(&cmd);
}

static void make_add(void)
{
	open_sock();
	begin(&cmd, RDMA_NLDEV_CMD_NEWLINK);
	put_text(&cmd, RDMA_NLDEV_ATTR_DEV_NAME, "r3");
	put_text(&cmd, RDMA_NLDEV_ATTR_LINK_TYPE, "ferroce");
	put_text(&cmd, RDMA_NLDEV_ATTR_NDEV_NAME, "fault0");
}

static void make_delete(void)
{
	make_add();
	CHECK_EQ(try_run(), 0);
	begin(&cmd, RDMA_NLDEV_CMD_DELLINK);
	put_number(&cmd, RDMA_NLDEV_ATTR_DEV_INDEX, index_of("r3"));
}

/* Deletes r3 if it exists: the command may have failed or succeeded. */
static void rest_link(void)
{
	if (!access("/sys/class/infiniband/r3", F_OK))
		shell("rdma link delete r3");
	CHECK(access("/sys/class/infiniband/r3", F_OK));
}

static bool listens(void)
{
	return !system("cat /proc/net/udp /proc/net/udp6 | grep -q ':12B7 '");
}

void test_links(void)
{
	shell("ip link delete fault0 2>/dev/null; ip link add fault0 type dummy");
	shell("ip addr add 10.78.0.1/24 dev fault0; ip link set fault0 up");
	CHECK(!listens());
	inject(&(struct call){ "link add", make_add, try_run, NULL, rest_link });
	inject(&(struct call){ "link delete", make_delete, try_run, NULL, rest_link });
	shell("ip link delete fault0");
	wait_begin();
	while (listens())
		wait_more_program("the sockets of devices that are gone");
}

static struct end counted;

static void make_bind(void)
{
	end_init(&counted, &r1, IBV_QPT_RC, 0);
	end_create(&counted);
	open_sock();
	begin(&cmd, RDMA_NLDEV_CMD_STAT_SET);
	put_number(&cmd, RDMA_NLDEV_ATTR_DEV_INDEX, index_of("r1"));
	put_number(&cmd, RDMA_NLDEV_ATTR_PORT_INDEX, 1);
	put_number(&cmd, RDMA_NLDEV_ATTR_STAT_MODE, RDMA_COUNTER_MODE_MANUAL);
	put_number(&cmd, RDMA_NLDEV_ATTR_STAT_RES, RDMA_NLDEV_ATTR_RES_QP);
	put_number(&cmd, RDMA_NLDEV_ATTR_RES_LQPN, counted.qp->qp_num);
}

/* Destroying the queue pair ends the counter. */
static void rest_counted(void)
{
	end_close(&counted);
}

void test_counters(void)
{
	inject(&(struct call){ "statistic bind", make_bind, try_run, NULL, rest_counted });
}
