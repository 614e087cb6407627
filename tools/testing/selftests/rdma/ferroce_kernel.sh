#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A consumer in the kernel: regions with the maximum number of pages, atomic operations, completions of destroyed queue
# pairs (modules/ferroce_consumer.c).

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
consumer=$(dirname "$0")/ferroce_consumer.ko
need_module
[ -e "$consumer" ] || skip_all "no $consumer"
# shellcheck disable=SC2034
after_each=clean

kernel_consumer() {
	local rc=0

	make_net
	add_links
	insmod "$consumer" || rc=$?
	dmesg | grep ferroce_consumer: || true
	delete_links
	[ "$rc" = 0 ] && rmmod ferroce_consumer
}

test_case "regions of 512 pages, atomic operations" kernel_consumer

run_cases "$@"
