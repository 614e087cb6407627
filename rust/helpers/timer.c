// SPDX-License-Identifier: GPL-2.0

#include <linux/timer.h>

__rust_helper void rust_helper_timer_setup(struct timer_list *timer,
					   void (*callback)(struct timer_list *),
					   unsigned int flags)
{
	timer_setup(timer, callback, flags);
}
