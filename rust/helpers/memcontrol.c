// SPDX-License-Identifier: GPL-2.0

#include <linux/memcontrol.h>

#ifndef CONFIG_MEMCG
__rust_helper struct mem_cgroup *
rust_helper_get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	return get_mem_cgroup_from_mm(mm);
}
#endif

__rust_helper void rust_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}
