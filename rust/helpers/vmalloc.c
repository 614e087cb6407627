// SPDX-License-Identifier: GPL-2.0

#include <linux/vmalloc.h>

__rust_helper void *rust_helper___vmalloc(unsigned long size, gfp_t gfp_mask)
{
	return __vmalloc(size, gfp_mask);
}
