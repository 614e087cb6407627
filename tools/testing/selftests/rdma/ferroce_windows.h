/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests that bind, use and invalidate memory windows.
 */
#ifndef FERROCE_WINDOWS_H
#define FERROCE_WINDOWS_H

#include "ferroce_util.h"

static inline enum ibv_wc_status one_completion(struct end *e)
{
	struct ibv_wc wc;

	wait_begin();
	while (!ibv_poll_cq(e->cq, 1, &wc))
		wait_more("a completion");
	return wc.status;
}

/* Binds by a request, as windows of type 2 are; the window has the key afterwards. */
static inline enum ibv_wc_status
bind_request(struct end *e, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr, uint64_t len,
	     int access)
{
	struct ibv_send_wr wr = {
		.wr_id = 7,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw,
			.rkey = ibv_inc_rkey(mw->rkey),
			.bind_info = {
				.mr = mr,
				.addr = addr,
				.length = len,
				.mw_access_flags = access,
			},
		},
	};
	enum ibv_wc_status status;

	post_wr(e, &wr);
	status = one_completion(e);
	if (status == IBV_WC_SUCCESS)
		mw->rkey = wr.bind_mw.rkey;
	return status;
}

/* Binds by the verb, as windows of type 1 are. */
static inline enum ibv_wc_status
bind_verb(struct end *e, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t addr, uint64_t len,
	  int access)
{
	struct ibv_mw_bind info = {
		.wr_id = 7,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = mr,
			.addr = addr,
			.length = len,
			.mw_access_flags = access,
		},
	};

	CHECK_EQ(ibv_bind_mw(e->qp, mw, &info), 0);
	return one_completion(e);
}

/* An access of the peer. */
static inline void post_access(struct end *e, enum ibv_wr_opcode op, uint32_t rkey, uint64_t va,
			       uint32_t len)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	make_send(&wr, &sge, e, NULL, op, 1, 0, len, IBV_SEND_SIGNALED);
	wr.wr.rdma.remote_addr = va;
	wr.wr.rdma.rkey = rkey;
	post_wr(e, &wr);
}

/* The same; returns the status of its completion. */
static inline enum ibv_wc_status access_by(struct end *e, enum ibv_wr_opcode op, uint32_t rkey,
					   uint64_t va, uint32_t len)
{
	post_access(e, op, rkey, va, len);
	return one_completion(e);
}

static inline enum ibv_wc_status invalidate(struct end *e, enum ibv_wr_opcode op, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	};

	post_wr(e, &wr);
	return one_completion(e);
}

#endif
