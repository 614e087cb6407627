// SPDX-License-Identifier: GPL-2.0

#include <linux/refcount.h>

__rust_helper bool rust_helper_refcount_inc_not_zero_acquire(refcount_t *r)
{
	return refcount_inc_not_zero_acquire(r);
}

__rust_helper void rust_helper_refcount_set_release(refcount_t *r, int n)
{
	refcount_set_release(r, n);
}
