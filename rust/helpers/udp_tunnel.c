// SPDX-License-Identifier: GPL-2.0

#include <net/udp_tunnel.h>

__rust_helper int rust_helper_udp_sock_create(struct net *net,
					      struct udp_port_cfg *cfg,
					      struct socket **sockp)
{
	return udp_sock_create(net, cfg, sockp);
}
