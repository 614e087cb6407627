// SPDX-License-Identifier: GPL-2.0

#include <linux/libnvdimm.h>

__rust_helper void rust_helper_arch_wb_cache_pmem(void *addr, size_t size)
{
	arch_wb_cache_pmem(addr, size);
}
