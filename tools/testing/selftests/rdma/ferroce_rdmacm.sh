#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RDMA connection manager: its messages go through the management queue pair.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs rping ucmatose udaddy cmtime rstream riostream
set_up make_net
set_up add_links

# connect ADDRESS [OPTIONS]: rping verifies the data that it gets back (-V).
connect() {
	rpings "$@" -V
	wait_for no_objects r1
	wait_for no_objects r2
}

# Without a listener, the connection is rejected, not ignored.
rejected() {
	fails connect_only
	grep -i reject "$tmp/client.log"
	wait_for no_objects r2
}

connect_only() {
	start client n2 rping -c -a 10.77.0.1 -C 1
	ends "$pid"
}

# programs ADDRESS PROGRAM [OPTIONS]: the program on both sides, with the same options. Those of rsockets, cmtime and the
# others end with an error when something is missing; rstream and riostream verify the data with "-T v". They are not run
# with "-T a": the side that polls last takes the other side's end for an error.
programs() {
	local address=$1 program=$2 server rc=0

	shift 2
	start server n1 "$program" -b "$address" "$@"
	server=$pid
	wait_for -t 100 listening
	start client n2 "$program" -s "$address" "$@"
	ends "$pid" || rc=$?
	# A server without a client waits forever.
	[ "$rc" = 0 ] || kill "$server" 2>/dev/null || true
	ends "$server" || rc=$?
	cat "$tmp/server.log" "$tmp/client.log"
	[ "$rc" = 0 ] || return "$rc"
	wait_for no_objects r1
	wait_for no_objects r2
	wait_for fails listening
}

# says TEXT: both sides of the last programs have printed it.
says() {
	grep -q "$1" "$tmp/server.log" && grep -q "$1" "$tmp/client.log"
}

transfers() {
	programs "$@"
	says 'data transfers complete'
	says 'return status 0'
}

streams() {
	programs "$@" -T v
	says 'Gb/sec'
	says '^custom'
}

# The next cases: the net device that has the address is not the one that receives the packets. The connection manager expects
# the VLAN of the address.
on_vlan() {
	vlan 5
	connect 10.79.5.1 -C 3
}

# vlan ID: with the addresses 10.79.ID.1 and .2.
vlan() {
	make_vlans "$1" "10.79.$1"
	gid_index r1 "10.79.$1.1"
	gid_index r2 "10.79.$1.2"
}

# Packets are received on lo.
own_vlan() {
	vlan 6
	client_ns=n1 connect 10.79.6.1 -C 3
}

bridge_on_vlan() {
	need "no bridges" modprobe -q bridge
	vlan 7
	ip -n n1 -batch - <<-END
		addr del 10.79.7.1/24 dev v1.7
		link add br0 mtu 4200 type bridge
		link set v1.7 master br0
		addr add 10.79.7.1/24 dev br0
		link set br0 up
	END
	gid_index r1 10.79.7.1
	connect 10.79.7.1 -C 3
}

vlan_in_vrf() {
	need "no VRF" modprobe -q vrf
	vlan 8
	in_ns n1 sh -c 'echo 1 >/proc/sys/net/ipv4/udp_l3mdev_accept'
	ip -n n1 -batch - <<-END
		link add vrf0 type vrf table 10
		link set vrf0 up
		link set v1.8 master vrf0
	END
	connect 10.79.8.1 -C 3
}

# Two links with the same link-local address: the one that receives a packet decides.
same_address() {
	local i link server

	ip link add w1 netns n1 mtu 4200 type veth peer name w2 netns n2 mtu 4200
	ip -n n1 link set w1 up
	ip -n n2 link set w2 up
	for i in 1 2; do
		add_link "s$i" "n$i" "w$i"
		wait_state "s$i" ACTIVE
		for link in v w; do ip -n "n$i" addr add "fe80::$i/64" dev "$link$i" nodad; done
		gid_index "r$i" "fe80::$i"
		gid_index "s$i" "fe80::$i"
	done
	for link in v w v; do
		start server n1 rping -s -V -C 3 -a "fe80::1%${link}1"
		server=$pid
		wait_for -t 100 listening
		start client n2 rping -c -V -C 3 -a "fe80::1%${link}2"
		ends "$pid"
		ends "$server"
	done
	for i in 1 2; do
		wait_for no_objects "s$i"
		rdma link delete "s$i"
	done
}

test_case "rping IPv4" connect 10.77.0.1 -C 10
test_case "rping IPv6" connect fd77::1 -C 10
test_case "rping size 4000" connect 10.77.0.1 -C 5 -S 4000
test_case "rping without a listener" rejected
test_case "rping on a VLAN" on_vlan
test_case "rping to an own address of a VLAN" own_vlan
test_case "rping to a bridge over a VLAN" bridge_on_vlan
test_case "rping to a VLAN in a VRF" vlan_in_vrf
test_case "rping over two links with the same link-local addresses" same_address
test_case "ucmatose" transfers 10.77.0.1 ucmatose
test_case "ucmatose, 8 connections, 100 messages of 3000 bytes, IPv6" \
	transfers fd77::1 ucmatose -f ipv6 -c 8 -C 100 -S 3000
test_case "ucmatose, event channels change" transfers 10.77.0.1 ucmatose -c 4 -m
test_case "udaddy" transfers 10.77.0.1 udaddy
test_case "udaddy, 8 paths, 100 messages of 1000 bytes, IPv6" transfers fd77::1 udaddy -c 8 -C 100 -S 1000
test_case "cmtime, 20 connections" programs 10.77.0.1 cmtime -c 20
test_case "cmtime, 100 connections, 4 threads" programs 10.77.0.1 cmtime -c 100 -n 4
test_case "rstream" streams 10.77.0.1 rstream -S 1000 -C 100 -I 5
test_case "rstream, IPv6" streams fd77::1 rstream -f ipv6 -S 1000 -C 100 -I 5
test_case "rstream, 60000 bytes, nonblocking" streams 10.77.0.1 rstream -S 60000 -C 20 -I 3 -T n
test_case "riostream" streams 10.77.0.1 riostream -S 1000 -C 10 -I 20

run_cases "$@"
