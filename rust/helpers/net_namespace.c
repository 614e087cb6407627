// SPDX-License-Identifier: GPL-2.0

#include <net/net_namespace.h>

__rust_helper struct net *rust_helper_get_net(struct net *net)
{
	return get_net(net);
}

__rust_helper struct net *rust_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

__rust_helper void rust_helper_put_net(struct net *net)
{
	put_net(net);
}
