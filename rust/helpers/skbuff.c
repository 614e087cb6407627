// SPDX-License-Identifier: GPL-2.0

#include <linux/skbuff.h>

__rust_helper struct sk_buff *rust_helper_alloc_skb(unsigned int size,
						    gfp_t priority)
{
	return alloc_skb(size, priority);
}

__rust_helper void rust_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

__rust_helper void rust_helper_consume_skb(struct sk_buff *skb)
{
	consume_skb(skb);
}

__rust_helper int rust_helper_skb_cloned(const struct sk_buff *skb)
{
	return skb_cloned(skb);
}

__rust_helper int rust_helper_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

__rust_helper int rust_helper_skb_network_offset(const struct sk_buff *skb)
{
	return skb_network_offset(skb);
}

__rust_helper unsigned int rust_helper_SKB_HEAD_ALIGN(unsigned int size)
{
	return SKB_HEAD_ALIGN(size);
}

__rust_helper void rust_helper_skb_ext_reset(struct sk_buff *skb)
{
	skb_ext_reset(skb);
}

__rust_helper int rust_helper_skb_cow_head(struct sk_buff *skb,
					   unsigned int headroom)
{
	return skb_cow_head(skb, headroom);
}

__rust_helper void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

__rust_helper bool
rust_helper_skb_transport_header_was_set(const struct sk_buff *skb)
{
	return skb_transport_header_was_set(skb);
}

__rust_helper int rust_helper_skb_transport_offset(const struct sk_buff *skb)
{
	return skb_transport_offset(skb);
}

__rust_helper int rust_helper_skb_shared(const struct sk_buff *skb)
{
	return skb_shared(skb);
}

__rust_helper struct skb_shared_info *
rust_helper_skb_shinfo(const struct sk_buff *skb)
{
	return skb_shinfo(skb);
}

__rust_helper void *rust_helper___skb_push(struct sk_buff *skb,
					   unsigned int len)
{
	return __skb_push(skb, len);
}

__rust_helper int rust_helper_skb_mac_offset(const struct sk_buff *skb)
{
	return skb_mac_offset(skb);
}

__rust_helper void rust_helper_skb_reset_mac_header(struct sk_buff *skb)
{
	skb_reset_mac_header(skb);
}

__rust_helper void rust_helper_skb_set_network_header(struct sk_buff *skb,
						      int offset)
{
	skb_set_network_header(skb, offset);
}

/* Unused while the packet has no inner headers: a train keeps its gso_size here. */
__rust_helper u16 rust_helper_sk_buff_inner_protocol(const struct sk_buff *skb)
{
	return (__force u16)skb->inner_protocol;
}

__rust_helper void rust_helper_sk_buff_set_inner_protocol(struct sk_buff *skb,
							  u16 value)
{
	skb->inner_protocol = (__force __be16)value;
}
