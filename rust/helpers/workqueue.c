// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

__rust_helper struct workqueue_struct *
rust_helper_alloc_workqueue(const char *name, unsigned int flags,
			    int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

__rust_helper void rust_helper_INIT_WORK(struct work_struct *work,
					 void (*func)(struct work_struct *))
{
	INIT_WORK(work, func);
}

__rust_helper bool rust_helper_queue_work(struct workqueue_struct *wq,
					  struct work_struct *work)
{
	return queue_work(wq, work);
}
