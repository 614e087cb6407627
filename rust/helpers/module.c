// SPDX-License-Identifier: GPL-2.0

#include <linux/module.h>

__rust_helper struct kset *rust_helper_this_module_kset(void)
{
	return THIS_MODULE->mkobj.kobj.kset;
}
