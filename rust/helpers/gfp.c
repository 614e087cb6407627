// SPDX-License-Identifier: GPL-2.0

#include <linux/gfp.h>

__rust_helper void *rust_helper_alloc_pages_exact(size_t size, gfp_t gfp_mask)
{
	return alloc_pages_exact(size, gfp_mask);
}
