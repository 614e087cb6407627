// SPDX-License-Identifier: GPL-2.0
#include "ferroce_traffic.h"

void *traffic_run(void *arg)
{
	struct traffic *t = arg;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;

	make_send(&wr, &sge, &t->a, &t->b, IBV_WR_RDMA_WRITE, 1, 0, TRAFFIC_PIECE,
		  IBV_SEND_SIGNALED);
	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		wr.wr.rdma.rkey = __atomic_load_n(&t->rkey, __ATOMIC_RELAXED);
		wr.wr.rdma.remote_addr = t->va + t->done % t->places * TRAFFIC_PIECE;
		if (ibv_post_send(t->a.qp, &wr, &bad))
			break;
		while (!ibv_poll_cq(t->a.cq, 1, &wc))
			;
		if (wc.status != IBV_WC_SUCCESS)
			break;
		__atomic_add_fetch(&t->done, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

bool traffic_arrived(const unsigned char *p)
{
	for (int i = 0; i < TRAFFIC_PIECE; i++)
		if (__atomic_load_n(p + i, __ATOMIC_RELAXED) != 0x11)
			return false;
	return true;
}
