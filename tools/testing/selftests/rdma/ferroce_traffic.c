// SPDX-License-Identifier: GPL-2.0
#include <sys/ioctl.h>
#include <unistd.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include "ferroce_traffic.h"

void *traffic_run(void *arg)
{
	struct traffic *t = arg;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;
	int n;

	make_send(&wr, &sge, &t->a, &t->b, IBV_WR_RDMA_WRITE, 1, 0, TRAFFIC_PIECE,
		  IBV_SEND_SIGNALED);
	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		wr.wr.rdma.rkey = __atomic_load_n(&t->rkey, __ATOMIC_RELAXED);
		wr.wr.rdma.remote_addr = t->va + t->done % t->places * TRAFFIC_PIECE;
		if (ibv_post_send(t->a.qp, &wr, &bad))
			break;
		/* A check that fails in a thread would not end the case. */
		while (!(n = ibv_poll_cq(t->a.cq, 1, &wc)))
			;
		if (n < 0 || wc.status != IBV_WC_SUCCESS)
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

int mr_rereg(struct ibv_mr *mr, int flags, void *start, size_t len, uint64_t va,
	     struct ibv_pd *pd, int access)
{
	struct ib_uverbs_rereg_mr_resp resp = {};
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} req = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_REREG_MR,
			.in_words = sizeof(req) / 4,
			.out_words = sizeof(resp) / 4,
		},
		.cmd = {
			.response = (uintptr_t)&resp,
			.mr_handle = mr->handle,
			.flags = flags,
			.start = (uintptr_t)start,
			.length = len,
			.hca_va = va,
			.pd_handle = pd ? pd->handle : 0,
			.access_flags = access,
		},
	};

	if (write(mr->context->cmd_fd, &req, sizeof(req)) != sizeof(req))
		return errno;
	CHECK_EQ(resp.lkey, mr->lkey);
	CHECK_EQ(resp.rkey, mr->rkey);
	return 0;
}

int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *sges, int n)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[4];
	} cmd = {
		.hdr = {
			.length = sizeof(cmd),
			.object_id = UVERBS_OBJECT_MR,
			.method_id = UVERBS_METHOD_ADVISE_MR,
			.num_attrs = 4,
			.driver_id = RDMA_DRIVER_RXE,
		},
		.attrs = {
			{
				.attr_id = UVERBS_ATTR_ADVISE_MR_PD_HANDLE,
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = pd->handle,
			},
			{
				.attr_id = UVERBS_ATTR_ADVISE_MR_ADVICE,
				.len = sizeof(uint64_t),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = advice,
			},
			{
				.attr_id = UVERBS_ATTR_ADVISE_MR_FLAGS,
				.len = sizeof(uint32_t),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = flags,
			},
			{
				.attr_id = UVERBS_ATTR_ADVISE_MR_SGE_LIST,
				.len = n * sizeof(*sges),
				.flags = UVERBS_ATTR_F_MANDATORY,
				.data = (uintptr_t)sges,
			},
		},
	};

	return ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &cmd) ? errno : 0;
}
