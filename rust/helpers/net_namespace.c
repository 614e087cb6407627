// SPDX-License-Identifier: GPL-2.0

#include <net/net_namespace.h>
#include <net/netns/generic.h>

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

__rust_helper int rust_helper_check_net(const struct net *net)
{
	return check_net(net);
}

__rust_helper void *rust_helper_net_generic(const struct net *net,
					    unsigned int id)
{
	return net_generic(net, id);
}
