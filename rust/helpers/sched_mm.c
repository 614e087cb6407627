// SPDX-License-Identifier: GPL-2.0

#include <linux/sched/mm.h>

__rust_helper struct mem_cgroup *
rust_helper_set_active_memcg(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}
