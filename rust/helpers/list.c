// SPDX-License-Identifier: GPL-2.0

#include <linux/list.h>

__rust_helper void rust_helper_list_del_init(struct list_head *entry)
{
	list_del_init(entry);
}
