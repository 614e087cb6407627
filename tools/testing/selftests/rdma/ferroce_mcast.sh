#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Multicast through the connection manager (mckey), and the end of group memberships when a device is removed. The verbs
# themselves are tested by ferroce_mcast.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs mckey stdbuf
cd "$(dirname "$0")" || exit 1
# shellcheck disable=SC2034
after_each=clean

prepare() {
	make_net
	add_links
}

# route DEVICE_PREFIX DEVICE_SUFFIX: adds the routes by which the connection manager selects the device for a group.
route() {
	ip -n n1 route add 239.0.0.0/8 dev "$1"1"$2"
	ip -n n2 route add 239.0.0.0/8 dev "$1"2"$2"
}

# mckeys GROUP RECEIVER SENDER [OPTIONS]: runs mckey. The receiver, bound to its address in n1, ends when it has got everything.
mckeys() {
	local group=$1 receiver=$2 sender=$3 server

	shift 3
	start receiver n1 stdbuf -oL mckey -m "$group" -b "$receiver" "$@"
	server=$pid
	wait_for -t 100 in_file 'receiving data' "$tmp/receiver.log"
	start sender n2 mckey -m "$group" -b "$sender" -s "$@"
	if ! { ends "$pid" && ends "$server"; }; then
		cat "$tmp/receiver.log" "$tmp/sender.log"
		return 1
	fi
	grep 'data transfers complete' "$tmp/receiver.log"
	grep 'test complete' "$tmp/sender.log"
	grep 'return status 0' "$tmp/sender.log"
}

cm() {
	prepare
	route v ''
	mckeys 239.8.8.8 10.77.0.1 10.77.0.2 "$@"
	wait_for no_objects r1
	wait_for no_objects r2
}

# The connection manager joins the group on the VLAN device itself.
cm_vlan() {
	local i

	prepare
	make_vlans 5 10.81.0
	for i in 1 2; do gid_index "r$i" "10.81.0.$i"; done
	route v .5
	mckeys 239.8.8.9 10.81.0.1 10.81.0.2
}

# A member receives datagrams of its group again after the net device was down.
down_and_up() {
	prepare
	route v ''
	hold
	ip -n n1 link set v1 down
	wait_state r1 DOWN
	ip -n n1 link set v1 up
	wait_state r1 ACTIVE
	gid_index r1 10.77.0.1
	joined n1
	# The kernel removed the route when the device went down.
	ip -n n1 route add 239.0.0.0/8 dev v1
	ip -n n1 addr replace fd77::1/64 dev v1 nodad
	in_ns n1 sh -c 'grep -q 01005e070a0b /proc/net/dev_mcast && grep -q 333300070a0b /proc/net/dev_mcast'
	mckeys 239.7.10.12 10.77.0.1 10.77.0.2
}

# joined NETNS: checks that the net device v1 is in both of the groups of "hold".
joined() {
	in_ns "$1" cat /proc/net/igmp | grep -q 0B0A07EF &&
		in_ns "$1" cat /proc/net/igmp6 | grep -q 'v1.*ff15.*00070a0b'
}

left() {
	! in_ns "$1" cat /proc/net/igmp | grep -q 0B0A07EF &&
		! in_ns "$1" cat /proc/net/igmp6 | grep -q 'ff15.*00070a0b'
}

# hold: starts a process with a queue pair of r1 in two groups.
hold() {
	start member "" ./ferroce_mcast_groups hold r1
	wait_for in_file joined "$tmp/member.log"
	joined n1
}

link_deleted() {
	prepare
	hold
	rdma link delete r1
	left n1
	wait_gone r1
	add_link r1 n1 v1
	left n1
}

netdev_deleted() {
	prepare
	hold
	ip -n n1 link delete v1
	wait_gone r1 r2
}

namespace_deleted() {
	prepare
	hold
	ip netns delete n1
	wait_gone r1 r2
}

# The groups of a net device do not move with it into another namespace, and the groups there are not affected.
netdev_moved() {
	prepare
	hold
	ip -n n1 link set v1 netns n2
	wait_gone r1
	left n2
	ip -n n2 link set v1 netns n1
	ip -n n1 link set v1 up
	left n1
}

module_removed() {
	prepare
	hold
	rmmod ferroce
	left n1
	load_module
	add_links
	left n1
}

test_case "mckey" cm
test_case "mckey, 1000 messages of 1000 bytes on 4 queue pairs" cm -C 1000 -S 1000 -c 4
test_case "mckey on a VLAN" cm_vlan
test_case "net device down and up with members" down_and_up
test_case "link deleted with members" link_deleted
test_case "net device deleted with members" netdev_deleted
test_case "network namespace deleted with members" namespace_deleted
test_case "net device moved with members" netdev_moved
test_case "module removed with members" module_removed

run_cases "$@"
