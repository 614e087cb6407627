/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers that rust/bindings of the kernel does not cover. Sorted, except that
 * hrtimer_types.h comes first: it completes an enum that is only forward
 * declared by the others.
 */
#include <linux/hrtimer_types.h>

#include <linux/capability.h>
#include <linux/crc32.h>
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/interval_tree.h>
#include <linux/memcontrol.h>
#include <linux/mmu_notifier.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/vmalloc.h>
#include <net/addrconf.h>
#include <net/flow.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/net_namespace.h>
#include <net/page_pool/helpers.h>
#include <net/route.h>
#include <net/udp_tunnel.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

/* Constants that bindgen cannot evaluate. */
const u32 RUST_CONST_HELPER_CORE_PORT_ROCE_UDP_ENCAP = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
const u32 RUST_CONST_HELPER_IB_MGMT_MAD_SIZE = IB_MGMT_MAD_SIZE;
const u16 RUST_CONST_HELPER_IPSKB_FRAG_PMTU = IPSKB_FRAG_PMTU;
const u32 RUST_CONST_HELPER_IB_ACCESS_OPTIONAL = IB_ACCESS_OPTIONAL;
const gfp_t RUST_CONST_HELPER_GFP_NOFAIL = __GFP_NOFAIL;
const gfp_t RUST_CONST_HELPER_GFP_NORETRY = __GFP_NORETRY;
const gfp_t RUST_CONST_HELPER_XA_FLAGS_ACCOUNT = XA_FLAGS_ACCOUNT;
const gfp_t RUST_CONST_HELPER_XA_FLAGS_LOCK_IRQ = XA_FLAGS_LOCK_IRQ;
