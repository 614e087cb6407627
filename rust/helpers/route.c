// SPDX-License-Identifier: GPL-2.0

#include <net/route.h>

__rust_helper struct dst_entry *rust_helper_rtable_dst(struct rtable *rt)
{
	return &rt->dst;
}

__rust_helper unsigned int rust_helper_rtable_flags(const struct rtable *rt)
{
	return rt->rt_flags;
}
