// SPDX-License-Identifier: GPL-2.0

#include <net/ip6_fib.h>

__rust_helper u32 rust_helper_rt6_get_cookie(const struct dst_entry *dst)
{
	return rt6_get_cookie(dst_rt6_info(dst));
}
