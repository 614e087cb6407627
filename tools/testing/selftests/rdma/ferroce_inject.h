/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Fault injection: a call is repeated, and each time the next of its allocations fails, until it
 * runs through without a fault.
 *
 * /proc/thread-self/fail-nth covers the calling thread in process context: slab, pages (per-CPU
 * memory and vmalloc come out of these two), and copies from and to user memory where
 * CONFIG_FAULT_INJECTION_USERCOPY is set. It has no effect in softirqs and work items. The
 * attributes in debugfs, with a filter by call chain, cover these.
 */
#ifndef FERROCE_INJECT_H
#define FERROCE_INJECT_H

#include "ferroce_util.h"

/*
 * A call under test. Functions that are not needed may be NULL. All but attempt() run without
 * faults and check their results; attempt() returns 0 or an errno.
 */
struct call {
	const char *name;
	/* Before each attempt. */
	void (*prepare)(void);
	int (*attempt)(void);
	/* Undoes a successful attempt. */
	void (*undo)(void);
	/* After each attempt, and after undo(). */
	void (*tidy)(void);
	/* Only allocations with a function of the driver on the call chain fail. */
	bool driver_only;
};

/* Skips the whole program where the kernel injects no faults; else sets the attributes. */
void inject_open(void);

/* Steps through all the faults of a call, and checks that no object is left. */
void inject(const struct call *call);

/*
 * Traffic under test. run() runs with faults. settle(), which may be NULL, runs after it without
 * faults, and checks that packets get through.
 */
struct traffic_call {
	const char *name;
	void (*run)(void);
	void (*settle)(void);
};

/*
 * Repeats the traffic while the first allocation of the driver fails, then the second one, and so
 * on, in any context (softirq, work item), until a run has no fault. Then the same with several
 * allocations in a row, so that a fallback fails too.
 */
void inject_traffic(const struct traffic_call *call);
/* Runs the traffic while all allocations of the driver fail, then every second one, and so on. */
void inject_periodic(const struct traffic_call *call);
/* Runs the traffic while each skb is reallocated at every check of its headers. */
void inject_realloc(const struct traffic_call *call);

/* Makes the n-th allocation of this thread from here on fail; disarms, and returns the rest. */
void inject_arm(unsigned int n);
unsigned int inject_disarm(void);

#endif
