#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Fault injection: ferroce_faults makes each allocation of a verb and a packet fail once. This checks that nothing is left of it
# when the module is gone. Leaks of memory are found only if the kernel was started with kmemleak=on.
# ferroce_faults_link.sh does the same with the link commands.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
[ -e /proc/self/fail-nth ] || skip_all "the kernel injects no faults"

leaks=/sys/kernel/debug/kmemleak

# pins: prints the number of pages pinned for devices. The refresh adds the counts of each processor to the total.
pins() {
	echo 1 >/proc/sys/vm/stat_refresh
	awk '$1 == "nr_foll_pin_acquired" { n += $2 } $1 == "nr_foll_pin_released" { n -= $2 } END { print n + 0 }' /proc/vmstat
}

pins_are() {
	[ "$(pins)" = "$1" ]
}

# no_leaks: checks that there are no unreferenced objects. An object that was just allocated, or is between two references, is
# recognized by the second scan at the latest. It fails if kmemleak has turned itself off.
no_leaks() {
	[[ $(</proc/cmdline) = *kmemleak=on* ]] || return 0
	echo scan >"$leaks"
	echo scan >"$leaks"
	leaked >"$tmp/leaks"
	fails grep . "$tmp/leaks"
}

# leaked: prints kmemleak's report without two leaks of Linux 7.3 that occur with any driver. If a device cannot be opened,
# UVERBS_METHOD_GET_CONTEXT frees the context without rdma_restrack_put(), and keeps a reference to the task. If a device cannot
# be registered, uverbs_alloc_api() leaves those nodes of its radix tree that have no entries yet.
leaked() {
	local known='dup_task_struct|copy_signal|prepare_exec_creds|alloc_task_exec_state|uverbs_alloc_api'

	awk -v RS='unreferenced object' -v known="$known" 'NR > 1 && $0 !~ known { print "unreferenced object" $0 }' "$leaks"
}

forget_leaks() {
	[ ! -e "$leaks" ] || echo clear >"$leaks" 2>/dev/null || true
}

# pass PATTERN: runs the cases of ferroce_faults with this in their name, then removes the module and checks for leaks.
pass() {
	local before

	if loaded ferroce; then rmmod ferroce; fi
	# Each entry has files in sysfs, and each file takes some allocations of "rdma link add".
	load_module gid_table=8
	forget_leaks
	before=$(pins)
	"$programs/ferroce_faults" "$1" >"$tmp/$1.log" 2>&1 || { cat "$tmp/$1.log"; return 1; }
	# Print the number of faults.
	grep '^# ' "$tmp/$1.log" >&3
	fails device r1
	rmmod ferroce
	wait_for pins_are "$before"
	# Only the devices of these cases are in this network namespace.
	[ "$1" != link: ] || fails socket ""
	no_leaks
}

exec 3>&1
[ -n "${parts-}" ] || parts=(verb: data: traffic:)
for what in "${parts[@]}"; do
	test_case "faults in a ${what%:}" pass "$what"
done

run_cases "$@"
