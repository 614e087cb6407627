// SPDX-License-Identifier: GPL-2.0

#include <linux/if_vlan.h>

__rust_helper bool rust_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

__rust_helper u16 rust_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}
