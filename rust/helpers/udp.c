// SPDX-License-Identifier: GPL-2.0

#include <linux/udp.h>
#include <net/udp.h>

__rust_helper void rust_helper_udp_allow_gso(struct sock *sk)
{
	udp_allow_gso(sk);
}

__rust_helper void rust_helper_udp_disable_encap(struct sock *sk)
{
	WRITE_ONCE(udp_sk(sk)->encap_type, 0);
}

__rust_helper struct sk_buff *
rust_helper_udp_rcv_segment(struct sock *sk, struct sk_buff *skb, bool ipv4)
{
	return udp_rcv_segment(sk, skb, ipv4);
}
