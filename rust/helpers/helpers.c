// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros cannot be called from Rust. Each file included
 * here wraps those of one C header: one call each, the same name with the
 * prefix rust_helper_, the same parameters, no logic.
 *
 * Sorted alphabetically.
 */

#include <linux/compiler_types.h>

#ifdef __BINDGEN__
/* bindgen ignores inline functions. */
#define __rust_helper
#else
#define __rust_helper
#endif

#include "bottom_half.c"
#include "dst.c"
#include "gfp.c"
#include "ib_umem.c"
#include "ib_verbs.c"
#include "if_vlan.c"
#include "inetdevice.c"
#include "ip6_fib.c"
#include "ipv6.c"
#include "list.c"
#include "memcontrol.c"
#include "mm.c"
#include "mmu_notifier.c"
#include "module.c"
#include "net_namespace.c"
#include "netdevice.c"
#include "netlink.c"
#include "page_pool.c"
#include "percpu.c"
#include "refcount.c"
#include "route.c"
#include "sched.c"
#include "sched_mm.c"
#include "skbuff.c"
#include "sock.c"
#include "spinlock.c"
#include "udp.c"
#include "udp_tunnel.c"
#include "uverbs_ioctl.c"
#include "vmalloc.c"
#include "workqueue.c"
#include "xarray.c"
