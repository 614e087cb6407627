#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Links: net devices that can have one, refused requests, addresses, and removal.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ibv_asyncwatch python3 rdma-ndd rping
# shellcheck disable=SC2034
after_each=clean

# ---- Kinds of net devices

# kind NETDEV ADDRESS STATE: creates a device on it, deletes it again, and checks that nothing is left.
kind() {
	ip -n n1 link set "$1" up
	ip -n n1 addr show dev "$1" | grep -qF "$2/" || ip -n n1 addr add "$2/24" dev "$1"
	add_link r1 n1 "$1"
	gid_index r1 "$2"
	wait_state r1 "$3"
	in_ns n1 rdma link show r1/1 | grep "state $3 .*netdev $1 "
	ibv_devinfo -d r1 | grep "link_layer:.*Ethernet"
	socket n1 -4
	socket n1 -6
	rdma link delete r1
	fails device r1
	fails socket n1
	ip -n n1 link show dev "$1"
}

on_veth() {
	make_net
	kind v1 10.77.0.1 ACTIVE
}

on_dummy() {
	make_ns n1
	ip -n n1 link add d1 type dummy
	kind d1 10.78.0.1 ACTIVE
}

on_lo() {
	make_ns n1
	kind lo 127.0.0.1 ACTIVE
}

unknown_speeds() {
	dmesg | grep -ac "speed is unknown" || true
}

# Any user may query the speed repeatedly, so the kernel must not log each query.
speed_unknown() {
	local before i

	make_ns n1
	ip -n n1 link add d1 type dummy
	add_link r1 n1 d1
	before=$(unknown_speeds)
	for i in 1 2 3; do
		[ "$(cat /sys/class/infiniband/r1/ports/1/rate)" = "2.5 Gb/sec (1X SDR)" ]
	done
	[ "$(unknown_speeds)" = "$before" ]
}

on_tun() {
	make_ns n1
	ip -n n1 tuntap add mode tun t1
	# No process has it open: no carrier.
	kind t1 10.78.0.1 DOWN
}

# The addresses of a VLAN device are GIDs of the device below, so a device on the VLAN device itself would be useless.
on_vlan() {
	make_net
	add_links
	make_vlans 5 10.79.0
	refused "not permitted" add_link r3 n1 v1.5
	fails device r3
	run_both 18515 "ibv_rc_pingpong -c -n 20 -d r1 -g $(gid_index r1 10.79.0.1)" \
		"ibv_rc_pingpong -c -n 20 -d r2 -g $(gid_index r2 10.79.0.2) 10.79.0.1"
	ip -n n1 link delete v1.5
	wait_for fails has_gid r1 10.79.0.1
	has_gid r1 10.77.0.1
}

test_case "device on veth" on_veth
slow || test_case "device on dummy" on_dummy
test_case "device on lo" on_lo
test_case "device on tun" on_tun
slow || test_case "unknown speed is not logged" speed_unknown
test_case "device below a VLAN has its address; none on the VLAN device" on_vlan

# ---- Names and refusals

twice() {
	make_net
	add_link r1 n1 v1
	refused "File exists" add_link r3 n1 v1
	fails device r3
	# The core's error for a name that is in use.
	refused "Too many open files" add_link r1 n2 v2
	fails socket n2
	rdma link delete r1
	add_link r3 n1 v1
}

names() {
	local long

	make_net
	refused "" add_link "" n1 v1
	refused "" add_link r1 n1 nothing
	equal "" "$(rdma dev)"
	fails socket n1
	long=$(printf '%063d' 0)
	add_link "$long" n1 v1
	device "$long"
	rdma dev set "$long" name r1
	device r1
	rdma link delete r1
}

# The UDP port is in use: no device is created, and the other family's socket is not left open either.
port_taken() {
	local family=$1 other=$2

	make_net
	start taker n1 python3 -c "
import socket, time
s = socket.socket(socket.AF_INET$family, socket.SOCK_DGRAM)
if '$family': s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
s.bind(('', 4791))
time.sleep(1000)"
	wait_for socket n1
	refused "in use" add_link r1 n1 v1
	fails device r1
	fails socket n1 "$other"
	# Other namespaces are not affected.
	add_link r2 n2 v2
	kill -KILL "$pid"
	wait_for fails socket n1
	add_link r1 n1 v1
}

test_case "one device for a net device, one net device for a name" twice
test_case "names" names
test_case "IPv4 port 4791 taken: refused, nothing left" port_taken "" -6
test_case "IPv6 port 4791 taken: refused, nothing left" port_taken 6 -4

# ---- Addresses

only_v4() {
	make_ns n1
	in_ns n1 sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
	ip -n n1 link add d1 type dummy
	ip -n n1 link set d1 up
	ip -n n1 addr add 10.78.0.1/24 dev d1
	add_link r1 n1 d1
	gid_index r1 10.78.0.1
	ip -n n1 addr add 10.78.0.2/24 dev d1
	gid_index r1 10.78.0.2
	ip -n n1 addr delete 10.78.0.1/24 dev d1
	wait_for fails has_gid r1 10.78.0.1
}

only_v6() {
	make_ns n1
	ip -n n1 link add d1 type dummy
	ip -n n1 link set d1 up
	ip -n n1 addr add fd78::1/64 dev d1 nodad
	add_link r1 n1 d1
	gid_index r1 fd78::1
	fails grep -il '0000:0000:0000:0000:0000:ffff' /sys/class/infiniband/r1/ports/1/gids/*
	ip -n n1 addr add fd78::2/64 dev d1 nodad
	gid_index r1 fd78::2
	ip -n n1 addr delete fd78::1/64 dev d1
	wait_for fails has_gid r1 fd78::1
	has_gid r1 fd78::2
}

# same_index INDEX: removes the address and adds it again. Succeeds if it has the index again.
same_index() {
	ip -n n1 addr delete 10.77.0.1/24 dev v1
	wait_for fails has_gid r1 10.77.0.1
	ip -n n1 addr add 10.77.0.1/24 dev v1
	equal "$1" "$(gid_index r1 10.77.0.1)"
}

# The queue pair of the connection manager sends from the address, and does not keep its index afterwards. The connection manager
# itself keeps it until it has destroyed its connection.
added_again() {
	local index

	make_net
	add_links
	index=$(gid_index r1 10.77.0.1)
	rpings 10.77.0.1 -C 1
	wait_for same_index "$index"
}

test_case "only IPv4 addresses" only_v4
test_case "only IPv6 addresses" only_v6
test_case "address that a connection was set up from, removed and added again" added_again

# ---- Output of the tools

values() {
	make_net
	add_links
	ibv_devinfo -v -d r1 >"$tmp/info"
	cat "$tmp/info"
	grep 'state:.*PORT_ACTIVE (4)' "$tmp/info"
	grep 'max_mtu:.*4096 (5)' "$tmp/info"
	grep 'active_mtu:.*4096 (5)' "$tmp/info"
	grep 'link_layer:.*Ethernet' "$tmp/info"
	grep 'max_msg_sz:.*0x80000000' "$tmp/info"
	grep 'phys_state:.*LINK_UP (5)' "$tmp/info"
	grep 'GID\[.*::ffff:10.77.0.1, RoCE v2' "$tmp/info"
	grep 'GID\[.*fd77::1, RoCE v2' "$tmp/info"
	fails grep 'node_guid:.*0000:0000:0000:0000' "$tmp/info"
	fails grep -i 'GID\[.*\(IB\|RoCE\)/\?.*v1' "$tmp/info"
	rdma dev show r1 | grep 'r1: node_type ca protocol roce node_guid'
	rdma resource show r1 | grep 'pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0'
	rdma resource show qp link r1 | grep 'lqpn 1 type GSI state RTS'
	[ -e /dev/infiniband/uverbs0 ]
	# The number of contexts follows each open and close.
	start watch "" ibv_asyncwatch -d r1
	wait_for in_file FD "$tmp/watch.log"
	rdma resource show r1 | grep 'ctx 1'
	kill "$pid"
	wait_for no_objects r1
}

slow || test_case "ibv_devinfo, rdma dev and rdma resource" values

# The node description, as set by the administrator or by rdma-core's daemon, rdma-ndd.
description() {
	local sys=/sys/class/infiniband long

	make_net
	add_links
	equal ferroce "$(cat "$sys/r1/node_desc")"
	printf '%s' 'storage 7' >"$sys/r1/node_desc"
	equal "storage 7" "$(cat "$sys/r1/node_desc")"
	equal ferroce "$(cat "$sys/r2/node_desc")"
	# The maximum length, which has no terminator; a longer text is cut off.
	long=$(printf '%064d' 7)
	printf '%s' "${long}89" >"$sys/r1/node_desc"
	equal "$long" "$(cat "$sys/r1/node_desc")"
	printf '%s' short >"$sys/r1/node_desc"
	equal short "$(cat "$sys/r1/node_desc")"
	start ndd "" rdma-ndd --foreground
	wait_for in_file "$(hostname) r1" "$sys/r1/node_desc"
	wait_for in_file "$(hostname) r2" "$sys/r2/node_desc"
	kill "$pid"
}

test_case "description" description

# The name of the net device, which scripts and the udev rules of rdma-core read.
parent() {
	local file=/sys/class/infiniband/r1/parent name=v1_longest_name

	make_net
	add_link r1 n1 v1
	equal v1 "$(cat "$file")"
	ip -n n1 link set v1 down
	ip -n n1 link set v1 name "$name"
	equal "$name" "$(cat "$file")"
}

test_case "name of the net device" parent

# ---- Removal

netdev_deleted() {
	make_net
	add_links
	ip -n n1 link delete v1
	wait_gone r1 r2
	wait_for fails socket n1
	ip link add d1 netns n1 type dummy
	# The name is free a moment after the socket is closed.
	wait_for add_link r1 n1 d1
}

netns_deleted() {
	make_net
	add_links
	ip netns delete n1
	wait_gone r1 r2
	wait_for fails socket n2
}

# If one of two devices in a namespace is deleted, the other one keeps its socket.
shared_socket() {
	make_net
	ip -n n1 link add d1 type dummy
	add_link r1 n1 v1
	add_link r3 n1 d1
	rdma link delete r3
	socket n1
	rdma link delete r1
	fails socket n1
}

test_case "net device deleted" netdev_deleted
test_case "network namespace deleted" netns_deleted
test_case "devices of a namespace share the socket" shared_socket

run_cases "$@"
