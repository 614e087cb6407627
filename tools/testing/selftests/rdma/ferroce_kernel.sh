#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A consumer in the kernel: the verbs that programs do not have, or that behave differently for them (modules/consumer_*.c).

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
consumer=$(dirname "$0")/ferroce_consumer.ko
need_module
[ -e "$consumer" ] || skip_all "no $consumer"
# shellcheck disable=SC2034
after_each=clean

# kernel_consumer GROUP: a group of tests of the module, between r1 and r2.
kernel_consumer() {
	local rc=0

	make_net
	add_links
	insmod "$consumer" only="$1" || rc=$?
	dmesg | grep ferroce_consumer: || true
	delete_links
	[ "$rc" = 0 ] && rmmod ferroce_consumer
}

test_case "regions of 512 pages, atomic operations" kernel_consumer mr
test_case "chains of requests, UC, address handles" kernel_consumer qp
test_case "completion queues, drains, shared receive queues" kernel_consumer cq

run_cases "$@"
