// SPDX-License-Identifier: GPL-2.0

#include <net/dst.h>

__rust_helper struct dst_entry *rust_helper_dst_check(struct dst_entry *dst,
						      u32 cookie)
{
	return dst_check(dst, cookie);
}

__rust_helper struct net_device *
rust_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

__rust_helper struct net *
rust_helper_dst_dev_net_rcu(const struct dst_entry *dst)
{
	return dst_dev_net_rcu(dst);
}

__rust_helper void rust_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

__rust_helper void rust_helper_skb_dst_set_noref(struct sk_buff *skb,
						 struct dst_entry *dst)
{
	skb_dst_set_noref(skb, dst);
}

__rust_helper u32 rust_helper_dst_mtu(const struct dst_entry *dst)
{
	return dst_mtu(dst);
}

__rust_helper unsigned int
rust_helper_dst_reserved_space(const struct dst_entry *dst)
{
	return LL_RESERVED_SPACE(dst_dev_rcu(dst));
}

__rust_helper bool rust_helper_dst_is_ipv4(const struct dst_entry *dst)
{
	return dst->ops->family == AF_INET;
}

__rust_helper bool rust_helper_dst_encapsulates(const struct dst_entry *dst)
{
	return dst_xfrm(dst) || dst->lwtstate ||
	       READ_ONCE(dst->flags) & DST_XFRM_QUEUE;
}
