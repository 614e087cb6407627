// SPDX-License-Identifier: GPL-2.0
/*
 * ferroce_feature NETDEV FEATURE on|off: changes a feature of a net device, as "ethtool -K" does.
 * Fails if the feature is not in that state afterwards.
 */
#include <err.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define BLOCKS 8

static const char *netdev;

static void request(void *data)
{
	struct ifreq ifr = { .ifr_data = data };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	strncpy(ifr.ifr_name, netdev, IFNAMSIZ - 1);
	if (fd < 0 || ioctl(fd, SIOCETHTOOL, &ifr) < 0)
		err(1, "%s", netdev);
	close(fd);
}

/* Returns the number of a feature. */
static uint32_t find(const char *name)
{
	struct {
		struct ethtool_sset_info info;
		uint32_t count;
	} set = {
		.info = { .cmd = ETHTOOL_GSSET_INFO, .sset_mask = 1ULL << ETH_SS_FEATURES },
	};
	struct ethtool_gstrings *names;

	request(&set);
	names = calloc(1, sizeof(*names) + set.count * ETH_GSTRING_LEN);
	if (!names)
		err(1, "memory");
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_FEATURES;
	names->len = set.count;
	request(names);
	for (uint32_t i = 0; i < set.count; i++)
		if (!strncmp((char *)names->data + i * ETH_GSTRING_LEN, name, ETH_GSTRING_LEN))
			return i;
	errx(1, "no feature %s", name);
}

int main(int argc, char **argv)
{
	struct {
		struct ethtool_sfeatures head;
		struct ethtool_set_features_block blocks[BLOCKS];
	} set = { .head = { .cmd = ETHTOOL_SFEATURES } };
	struct {
		struct ethtool_gfeatures head;
		struct ethtool_get_features_block blocks[BLOCKS];
	} get = { .head = { .cmd = ETHTOOL_GFEATURES, .size = BLOCKS } };
	uint32_t feature, bit;
	bool on;

	if (argc != 4)
		errx(2, "usage: %s NETDEV FEATURE on|off", argv[0]);
	netdev = argv[1];
	on = !strcmp(argv[3], "on");
	feature = find(argv[2]);
	bit = 1U << feature % 32;
	/* Get the number of blocks. */
	request(&get);
	set.head.size = get.head.size;
	set.blocks[feature / 32].valid = bit;
	set.blocks[feature / 32].requested = on ? bit : 0;
	request(&set);
	request(&get);
	if (!!(get.blocks[feature / 32].active & bit) != on)
		errx(1, "%s: %s is not %s", netdev, argv[2], argv[3]);
	return 0;
}
