// SPDX-License-Identifier: GPL-2.0

#include <linux/ipv6.h>
#include <net/ipv6.h>

/* Inline where the kernel has no IPv6. */
__rust_helper struct dst_entry *
rust_helper_ip6_dst_lookup_flow(struct net *net, const struct sock *sk,
				struct flowi6 *fl6,
				const struct in6_addr *final_dst)
{
	return ip6_dst_lookup_flow(net, sk, fl6, final_dst);
}

__rust_helper bool rust_helper_ipv6_mod_enabled(void)
{
	return ipv6_mod_enabled();
}
