# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Finds lines that a clean run does not log.

# One pattern a line. Taint lines are no complaint: an out-of-tree module always taints.
LOG_COMPLAINTS='\bWARNING: |\bBUG\b|\bOops\b|\bKASAN\b|\bUBSAN\b|\bKCSAN\b|Kernel panic|general protection|unable to handle
possible circular locking|possible recursive locking|inconsistent lock state|inconsistent \{|suspicious RCU usage
lock held when returning|bad unlock balance|invalid wait context|DEBUG_LOCKS_WARN|lock order
sleeping function called|scheduling while atomic|soft lockup|hard LOCKUP|blocked for more than
rcu:? .*(stall|self-detected)|rcu_tasks.*stalls|refcount_t: |ODEBUG: |list_(add|del) corruption|double free|use-after-free
stalled pool shutdown|waiting for packets of [0-9]+ queue pair
kmemleak: [0-9]+ new|unreferenced object|unregister_netdevice: waiting|leaked|rust_kernel: panicked|panicked at'

# scan_log FILE [ALLOWED]: prints the lines that look like a bug and do not match the regular expression ALLOWED, each with
# the lines after it, because the call trace shows the place.
scan_log() {
	local pattern

	pattern=$(paste -sd '|' <<<"$LOG_COMPLAINTS")
	grep -avE "${2:-^\$}" "$1" | tr -d '\r' | grep -aE -A 12 "$pattern" || true
}
