// SPDX-License-Identifier: GPL-2.0

#include <net/sock.h>

__rust_helper void
rust_helper_sock_lock_init_class_and_name(struct sock *sk, const char *sname,
					  struct lock_class_key *skey,
					  const char *name,
					  struct lock_class_key *key)
{
	sock_lock_init_class_and_name(sk, sname, skey, name, key);
}

__rust_helper void rust_helper_sk_owner_clear(struct sock *sk)
{
	sk_owner_clear(sk);
}

__rust_helper void rust_helper_sk_owner_put(struct sock *sk)
{
	sk_owner_put(sk);
}

__rust_helper unsigned short rust_helper_sock_family(const struct sock *sk)
{
	return sk->sk_family;
}
