// SPDX-License-Identifier: GPL-2.0

#include <linux/netdevice.h>
#include <net/sch_generic.h>

__rust_helper void rust_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

__rust_helper void rust_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

__rust_helper struct net *rust_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

__rust_helper struct net_device *
rust_helper_netdev_notifier_info_to_dev(const struct netdev_notifier_info *info)
{
	return netdev_notifier_info_to_dev(info);
}

__rust_helper bool rust_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

/* struct net_device is opaque to Rust: one function for each field in use. */

__rust_helper unsigned char
rust_helper_net_device_addr_len(const struct net_device *dev)
{
	return dev->addr_len;
}

__rust_helper const unsigned char *
rust_helper_net_device_dev_addr(const struct net_device *dev)
{
	return dev->dev_addr;
}

__rust_helper int rust_helper_net_device_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

__rust_helper unsigned int
rust_helper_net_device_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

__rust_helper bool
rust_helper_net_device_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

__rust_helper const char *
rust_helper_net_device_name(const struct net_device *dev)
{
	return dev->name;
}

__rust_helper unsigned short
rust_helper_net_device_hard_header_len(const struct net_device *dev)
{
	return READ_ONCE(dev->hard_header_len);
}

__rust_helper unsigned int
rust_helper_net_device_gso_max_segs(const struct net_device *dev)
{
	return READ_ONCE(dev->gso_max_segs);
}

__rust_helper bool
rust_helper_net_device_is_loopback(const struct net_device *dev)
{
	return READ_ONCE(dev->flags) & IFF_LOOPBACK;
}

/* Returns true if nothing attached to the device can delay, change, drop or redirect packets. */
__rust_helper bool
rust_helper_net_device_is_bare(const struct net_device *dev)
{
#ifdef CONFIG_NET_XGRESS
	if (rcu_access_pointer(dev->tcx_ingress) ||
	    rcu_access_pointer(dev->tcx_egress))
		return false;
#endif
#ifdef CONFIG_NETFILTER_INGRESS
	if (rcu_access_pointer(dev->nf_hooks_ingress))
		return false;
#endif
#ifdef CONFIG_NETFILTER_EGRESS
	if (rcu_access_pointer(dev->nf_hooks_egress))
		return false;
#endif
	return !rcu_access_pointer(dev->xdp_prog) &&
	       qdisc_txq_has_no_queue(netdev_get_tx_queue(dev, 0));
}

__rust_helper __be16
rust_helper_dev_parse_header_protocol(const struct sk_buff *skb)
{
	return dev_parse_header_protocol(skb);
}

__rust_helper int rust_helper_dev_queue_xmit(struct sk_buff *skb)
{
	return dev_queue_xmit(skb);
}
