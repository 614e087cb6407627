// SPDX-License-Identifier: GPL-2.0

#include <linux/mm.h>

__rust_helper void rust_helper_put_page(struct page *page)
{
	put_page(page);
}

__rust_helper struct page *rust_helper_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}
