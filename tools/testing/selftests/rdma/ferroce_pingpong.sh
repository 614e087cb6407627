#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The pingpongs of rdma-core: every service type, size and MTU, both IP versions, polling and with events.

# shellcheck disable=SC2317,SC2034 # The cases are called by name; lib.sh reads "ip" and the namespaces.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong

# over IP-VERSION COMMAND...
over() {
	local ip=$1

	shift
	"$@"
}

# Both ends on r1: packets go through the namespace's lo.
loopback() {
	local client_ns=n1 index

	index=$(gid_index r1 10.77.0.1)
	run_both 18515 "$* -d r1 -g $index" "$* -d r1 -g $index 10.77.0.1"
}

# netdev_mtu MTU COMMAND...
netdev_mtu() {
	local i

	for i in 1 2; do ip -n "n$i" link set "v$i" mtu "$1"; done
	shift
	"$@"
}

set_up make_net
set_up add_links

mtus=(256 512 1024 2048 4096)
! slow || mtus=(256 4096)
for type in rc uc; do
	for mtu in "${mtus[@]}"; do
		test_case "ibv_${type}_pingpong MTU $mtu size 65536" exchange "ibv_${type}_pingpong" -c -n 10 -m "$mtu" -s 65536
	done
	for size in 1 4096; do
		test_case "ibv_${type}_pingpong MTU 1024 size $size" exchange "ibv_${type}_pingpong" -c -n 10 -m 1024 -s "$size"
	done
done
test_case "ibv_rc_pingpong size 1048576" exchange ibv_rc_pingpong -c -n 3 -m 4096 -s 1048576
test_case "ibv_rc_pingpong size 5001, MTU 512" exchange ibv_rc_pingpong -c -n 10 -m 512 -s 5001
for size in 1 1000 4096; do
	test_case "ibv_ud_pingpong size $size" exchange ibv_ud_pingpong -c -n 10 -s "$size"
done
for size in 1 4096 65536; do
	test_case "ibv_srq_pingpong size $size" exchange ibv_srq_pingpong -c -n 10 -q 4 -r 64 -s "$size"
done
for type in rc uc ud srq; do
	test_case "ibv_${type}_pingpong IPv6" over 6 exchange "ibv_${type}_pingpong" -c -n 10 -s 4096
	test_case "ibv_${type}_pingpong with events" exchange "ibv_${type}_pingpong" -c -n 10 -s 4096 -e
	test_case "ibv_${type}_pingpong on one device" loopback "ibv_${type}_pingpong" -c -n 10 -s 1024
done
for size in 1 1024; do
	test_case "ibv_ud_pingpong net device MTU 1500 size $size" netdev_mtu 1500 exchange ibv_ud_pingpong -c -n 10 -s "$size"
done
# IP could fragment such packets, but the port does not carry them.
test_case "ibv_ud_pingpong over the port MTU is refused" \
	refused 'larger than port MTU' netdev_mtu 1500 exchange ibv_ud_pingpong -c -n 10 -s 4096
for type in rc uc; do
	test_case "ibv_${type}_pingpong net device MTU 1500" netdev_mtu 1500 exchange "ibv_${type}_pingpong" -c -n 10 -s 65536
done

run_cases "$@"
