// SPDX-License-Identifier: GPL-2.0

#include <linux/igmp.h>
#include <linux/inetdevice.h>

__rust_helper struct in_device *
rust_helper___in_dev_get_rtnl(const struct net_device *dev)
{
	return __in_dev_get_rtnl(dev);
}

__rust_helper void rust_helper_ip_mc_dec_group(struct in_device *in_dev,
					       __be32 addr)
{
	ip_mc_dec_group(in_dev, addr);
}
