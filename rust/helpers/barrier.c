// SPDX-License-Identifier: GPL-2.0

#include <asm/barrier.h>

__rust_helper void rust_helper_pmem_wmb(void)
{
	pmem_wmb();
}
