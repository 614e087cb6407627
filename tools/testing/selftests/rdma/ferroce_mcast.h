/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Multicast groups, and queue pairs to attach to them.
 */
#ifndef FERROCE_MCAST_H
#define FERROCE_MCAST_H

#include "ferroce_util.h"

/* The destination QPN of a datagram to a group. */
#define MULTICAST_QPN 0xffffff

/* IPv4 groups 239.7.x.x. */
static inline union ibv_gid group4(unsigned int n)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, [11] = 0xff, [12] = 239, [13] = 7 } };

	gid.raw[14] = n >> 8;
	gid.raw[15] = n;
	return gid;
}

/* IPv6 groups ff15::7:x. */
static inline union ibv_gid group6(unsigned int n)
{
	union ibv_gid gid = { .raw = { 0xff, 0x15, [13] = 7 } };

	gid.raw[14] = n >> 8;
	gid.raw[15] = n;
	return gid;
}

/* Creates the address handle by which an end sends to a group. */
static inline struct ibv_ah *group_ah(struct end *e, union ibv_gid group)
{
	bool v6 = group.raw[0] == 0xff;
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = group,
			.sgid_index = v6 ? e->dev->gid6_index : e->dev->gid_index,
			.hop_limit = 1,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(e->dev->pd, &attr);

	CHECK(ah);
	return ah;
}

/* Creates a UD queue pair in RESET. */
static inline struct ibv_qp *bare_qp(struct dev *dev, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 1, 1, 1, 1, 0 },
	};
	struct ibv_qp *qp = ibv_create_qp(dev->pd, &init);

	CHECK(qp);
	return qp;
}

#endif
