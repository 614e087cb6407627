// SPDX-License-Identifier: GPL-2.0

#include <linux/refcount.h>

__rust_helper bool rust_helper_refcount_inc_not_zero(refcount_t *r)
{
	return refcount_inc_not_zero(r);
}
