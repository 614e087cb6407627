// SPDX-License-Identifier: GPL-2.0
/*
 * A client of the RDMA core that keeps the core waiting while it adds or removes a device, until
 * the parameter hold_add or hold_remove is cleared. in_add and in_remove say that it waits.
 *
 * The core holds devices_rwsem for reading when it calls add(), so meanwhile no other device gets
 * past the places where the core takes it for writing.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

static bool hold_add;
module_param(hold_add, bool, 0644);
MODULE_PARM_DESC(hold_add, "keep the core waiting when it adds a device");

static bool hold_remove;
module_param(hold_remove, bool, 0644);
MODULE_PARM_DESC(hold_remove, "keep the core waiting when it removes a device");

static bool in_add;
module_param(in_add, bool, 0444);
MODULE_PARM_DESC(in_add, "the core waits, adding a device");

static bool in_remove;
module_param(in_remove, bool, 0444);
MODULE_PARM_DESC(in_remove, "the core waits, removing a device");

static void hold(const bool *held, bool *inside)
{
	while (READ_ONCE(*held)) {
		WRITE_ONCE(*inside, true);
		msleep(20);
	}
	WRITE_ONCE(*inside, false);
}

static int add(struct ib_device *dev)
{
	hold(&hold_add, &in_add);
	return 0;
}

static void remove(struct ib_device *dev, void *data)
{
	hold(&hold_remove, &in_remove);
}

static struct ib_client client = {
	.name = "ferroce_hold",
	.add = add,
	.remove = remove,
};

static int __init hold_init(void)
{
	return ib_register_client(&client);
}
module_init(hold_init);

static void __exit hold_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(hold_exit);

MODULE_DESCRIPTION("Keeps the RDMA core waiting while it adds or removes a device");
MODULE_LICENSE("GPL");
