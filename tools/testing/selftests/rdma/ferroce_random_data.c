// SPDX-License-Identifier: GPL-2.0
/*
 * The requests, completions and memory of ferroce_random.
 */
#include <sys/mman.h>
#include <unistd.h>
#include "ferroce_random.h"

/* Remote keys of any device, which may be invalid by now. */
static atomic_uint keys[256];

/* A region of one of the devices, seldom of the other one; may be NULL. */
static struct ibv_mr *any_mr(struct thread *t, int on)
{
	struct ibv_mr *mr = NULL;

	for (int tries = 0; tries < 10; tries++) {
		mr = t->mrs[below(t, ARRAY_LEN(t->mrs))];
		if (mr && side(mr->context) == on)
			break;
	}
	return mr;
}

static uint32_t any_key(struct thread *t)
{
	return keys[below(t, ARRAY_LEN(keys))];
}

static void publish_key(struct thread *t, uint32_t key)
{
	keys[below(t, ARRAY_LEN(keys))] = key;
}

/* A range of a region, seldom one that is too long. */
static struct ibv_sge range(struct thread *t, struct ibv_mr *mr)
{
	uint32_t off = below(t, LEN), len = below(t, one_in(t, 4) ? 60000 : 5000);

	if (off + len > LEN && !one_in(t, 8))
		len = LEN - off;
	return (struct ibv_sge){ (uintptr_t)mr->addr + off, len, mr->lkey };
}

static bool fill_ud(struct thread *t, struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	int on = side(qp->context);

	if (!t->on[on].ah) {
		struct ibv_ah_attr attr = path(t, on, !on);

		t->on[on].ah = ibv_create_ah(devs[on]->pd, &attr);
		if (!t->on[on].ah)
			return false;
	}
	wr->opcode = one_in(t, 2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
	wr->wr.ud.ah = t->on[on].ah;
	wr->wr.ud.remote_qpn = any_qpn(t, !on);
	wr->wr.ud.remote_qkey = QKEY;
	if (wr->num_sge) {
		wr->num_sge = 1;
		wr->sg_list[0].length %= 2000;
	}
	return true;
}

static void fill_connected(struct thread *t, struct ibv_send_wr *wr, struct ibv_mr *mr)
{
	struct ibv_mr *remote = any_mr(t, !side(mr->context)) ?: mr;
	uint64_t to = (uintptr_t)remote->addr + below(t, one_in(t, 50) ? LEN - 8 : LEN / 8);
	uint32_t rkey = one_in(t, 50) ? any_key(t) : remote->rkey;

	wr->opcode = IBV_WR_RDMA_WRITE + below(t, IBV_WR_ATOMIC_FETCH_AND_ADD + 1);
	if (wr->opcode < IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr->wr.rdma.remote_addr = to;
		wr->wr.rdma.rkey = rkey;
		return;
	}
	wr->wr.atomic.remote_addr = to & ~7ull;
	wr->wr.atomic.rkey = rkey;
	wr->send_flags &= ~IBV_SEND_INLINE;
	wr->num_sge = 1;
	wr->sg_list[0] = (struct ibv_sge){ (uintptr_t)mr->addr, 8, mr->lkey };
}

void post_sends(struct thread *t)
{
	struct ibv_qp *qp = *any_qp(t);

	for (int n = below(t, 40); qp && n >= 0; n--) {
		struct ibv_mr *mr = any_mr(t, side(qp->context));
		struct ibv_sge sges[3] = {};
		struct ibv_send_wr wr = {
			.wr_id = n,
			.sg_list = sges,
			.num_sge = below(t, ARRAY_LEN(sges) + 1),
			.send_flags = below(t, 2 * IBV_SEND_SOLICITED),
		}, *bad;

		if (!mr)
			return;
		for (int i = 0; i < wr.num_sge; i++)
			sges[i] = range(t, mr);
		if (wr.num_sge && one_in(t, 10)) {
			wr.num_sge = 1;
			sges[0].length %= 64;
			wr.send_flags |= IBV_SEND_INLINE;
		}
		if (qp->qp_type != IBV_QPT_UD)
			fill_connected(t, &wr, mr);
		else if (!fill_ud(t, qp, &wr))
			return;
		if (!ok(ibv_post_send(qp, &wr, &bad)))
			return;
	}
}

void post_recvs(struct thread *t)
{
	struct ibv_qp *qp = *any_qp(t);

	for (int n = below(t, 30); qp && n >= 0; n--) {
		struct ibv_recv_wr wr = { .wr_id = n, .num_sge = below(t, 2) }, *bad;
		struct ibv_mr *mr = any_mr(t, side(qp->context));
		struct ibv_sge sge;
		int err;

		if (!mr)
			return;
		sge = range(t, mr);
		wr.sg_list = &sge;
		if (qp->srq)
			err = ibv_post_srq_recv(qp->srq, &wr, &bad);
		else
			err = ibv_post_recv(qp, &wr, &bad);
		if (err)
			return;
	}
}

void poll_cq(struct thread *t)
{
	struct ibv_cq *cq = *any_cq(t);
	struct ibv_wc wcs[16];

	if (!cq)
		return;
	for (int tries = below(t, 20); tries >= 0; tries--) {
		int n = ibv_poll_cq(cq, ARRAY_LEN(wcs), wcs);

		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			t->good += wcs[i].status == IBV_WC_SUCCESS;
		if (!n)
			break;
	}
	if (one_in(t, 4))
		ok(ibv_req_notify_cq(cq, below(t, 2)));
}

static int any_access(struct thread *t, unsigned char **memory)
{
	int access = FULL_ACCESS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	*memory = one_in(t, 2) ? t->on_demand : t->plain;
	return access | (*memory == t->on_demand ? IBV_ACCESS_ON_DEMAND : 0);
}

void change_mr(struct thread *t)
{
	struct ibv_mr **mr = &t->mrs[below(t, ARRAY_LEN(t->mrs))];
	unsigned char *memory;
	int access = any_access(t, &memory);

	if (!*mr) {
		*mr = ibv_reg_mr(devs[below(t, 2)]->pd, memory, LEN, access);
	} else if (one_in(t, 3)) {
		/* Fails while a window is bound to it. */
		if (ok(ibv_dereg_mr(*mr)))
			*mr = NULL;
	} else if (one_in(t, 3)) {
		/* The access and the memory change together, because plain memory stays pinned. */
		ok(ibv_rereg_mr(*mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
				NULL, memory, LEN, access));
	}
	if (*mr)
		publish_key(t, (*mr)->rkey);
}

static void bind_mw(struct thread *t, struct ibv_mw *mw, struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_mw_bind_info info = {
		.mr = mr,
		.addr = (uintptr_t)mr->addr,
		.length = below(t, LEN),
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad;

	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = { .bind_info = info };

		ok(ibv_bind_mw(qp, mw, &bind));
		return;
	}
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = info;
	if (one_in(t, 3)) {
		wr.opcode = IBV_WR_LOCAL_INV;
		wr.invalidate_rkey = mw->rkey;
	}
	if (ok(ibv_post_send(qp, &wr, &bad)) && wr.opcode == IBV_WR_BIND_MW)
		mw->rkey = wr.bind_mw.rkey;
}

void change_mw(struct thread *t)
{
	struct ibv_mw **mw = &t->mws[below(t, ARRAY_LEN(t->mws))];
	struct ibv_qp *qp = *any_qp(t);
	struct ibv_mr *mr = any_mr(t, below(t, 2));

	if (!*mw) {
		*mw = ibv_alloc_mw(devs[below(t, 2)]->pd,
				   one_in(t, 2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	} else if (one_in(t, 3)) {
		if (ok(ibv_dealloc_mw(*mw)))
			*mw = NULL;
	} else if (qp && mr && qp->pd == (*mw)->pd && mr->pd == (*mw)->pd &&
		   qp->qp_type == IBV_QPT_RC) {
		bind_mw(t, *mw, qp, mr);
	}
	if (*mw)
		publish_key(t, (*mw)->rkey);
}

/* Changes memory on demand under the traffic. */
void change_memory(struct thread *t)
{
	unsigned char *at = t->on_demand + below(t, 48) * PAGE;
	size_t len = (1 + below(t, 16)) * PAGE;

	switch (below(t, 5)) {
	case 0:
		madvise(at, len, MADV_DONTNEED);
		break;
	case 1:
		mprotect(at, len, PROT_READ);
		usleep(below(t, 500));
		mprotect(at, len, PROT_READ | PROT_WRITE);
		break;
	case 2:
		memset(at, below(t, 256), len);
		break;
	case 3:
		CHECK(mmap(at, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		break;
	case 4:
		madvise(at, len, MADV_PAGEOUT);
		break;
	}
}
