// SPDX-License-Identifier: GPL-2.0
/*
 * Rust can neither call inline functions and macros, nor access fields of
 * structures that are opaque to it. Each file included here has functions for
 * those of one C header, with the prefix rust_helper_.
 *
 * Sorted alphabetically.
 */

#include <linux/compiler_types.h>

#define __rust_helper

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
