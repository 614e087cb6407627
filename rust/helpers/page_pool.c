// SPDX-License-Identifier: GPL-2.0

#include <net/page_pool/helpers.h>

__rust_helper void *rust_helper_page_pool_alloc_va(struct page_pool *pool,
						   unsigned int *size,
						   gfp_t gfp)
{
	return page_pool_alloc_va(pool, size, gfp);
}

__rust_helper void rust_helper_page_pool_free_va(struct page_pool *pool,
						 void *va, bool allow_direct)
{
	page_pool_free_va(pool, va, allow_direct);
}
