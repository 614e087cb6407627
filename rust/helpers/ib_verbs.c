// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_verbs.h>

__rust_helper void
rust_helper_ib_mark_name_assigned_by_user(struct ib_device *ibdev)
{
	ib_mark_name_assigned_by_user(ibdev);
}

__rust_helper bool rust_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

__rust_helper void *rust_helper_ib_virt_dma_to_ptr(u64 dma_addr)
{
	return ib_virt_dma_to_ptr(dma_addr);
}

__rust_helper u16 rust_helper_rdma_get_udp_sport(u32 fl, u32 lqpn, u32 rqpn)
{
	return rdma_get_udp_sport(fl, lqpn, rqpn);
}

__rust_helper struct net *rust_helper_rdma_dev_net(struct ib_device *device)
{
	return rdma_dev_net(device);
}

__rust_helper enum ib_port_state
rust_helper_ib_get_curr_port_state(struct net_device *net_dev)
{
	return ib_get_curr_port_state(net_dev);
}
