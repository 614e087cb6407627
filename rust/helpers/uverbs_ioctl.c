// SPDX-License-Identifier: GPL-2.0

#include <rdma/uverbs_ioctl.h>

__rust_helper struct ib_ucontext *
rust_helper_rdma_udata_to_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}
