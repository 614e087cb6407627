#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Ports follow their net devices, and programs get one event for each change.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ibv_asyncwatch python3
# shellcheck disable=SC2034
after_each=clean

# port_events: prints the events of the port that the watcher of r1 has seen so far.
port_events() {
	sed -n 's/.*IBV_EVENT_\(PORT_[A-Z]*\).*/\1/p' "$tmp/watch.log" | paste -sd ' '
}

# saw EVENTS
saw() {
	[ "$(port_events)" = "$1" ]
}

watch() {
	start watch "" ibv_asyncwatch -d r1
	wait_for in_file FD "$tmp/watch.log"
}

# carrier_told NETNS NETDEV: waits until the kernel has reported the carrier, which may take a second. The core raises an event
# for that even if the device was added later.
carrier_told() {
	wait_for is_up "$1" "$2"
}

is_up() {
	[[ $(ip -n "$1" link show dev "$2") = *' state UP '* ]]
}

# settle ADDRESS: waits for the event of a new address, and so for all events before it.
settle() {
	local count

	count=$(grep -c GID_CHANGE "$tmp/watch.log") || true
	ip -n n1 addr add "$1/24" dev "${2-v1}"
	gid_index r1 "$1"
	wait_for more_gid_changes "$count"
}

more_gid_changes() {
	[ "$(grep -c GID_CHANGE "$tmp/watch.log")" -gt "$1" ]
}

up_and_down() {
	local events='' i

	make_net
	add_links
	carrier_told n1 v1
	watch
	for i in 1 2; do
		ip -n n1 link set v1 down
		wait_state r1 DOWN
		events+="${events:+ }PORT_ERR"
		wait_for saw "$events"
		ip -n n1 link set v1 up
		wait_state r1 ACTIVE
		events+=" PORT_ACTIVE"
		wait_for saw "$events"
	done
	# The core is notified of this, and the port does not change.
	ip -n n1 link set v1 arp off
	ip -n n1 link set v1 arp on
	settle 10.77.0.9
	equal "$events" "$(port_events)"
	# IPv4 addresses stay when a device goes down.
	has_gid r1 10.77.0.1
}

# The peer goes down: no carrier.
carrier() {
	make_net
	add_links
	carrier_told n1 v1
	watch
	ip -n n2 link set v2 down
	wait_state r1 DOWN
	wait_for saw "PORT_ERR"
	ip -n n2 link set v2 up
	wait_state r1 ACTIVE
	wait_for saw "PORT_ERR PORT_ACTIVE"
	settle 10.77.0.9
	equal "PORT_ERR PORT_ACTIVE" "$(port_events)"
}

born_down() {
	make_net
	ip -n n1 link set v1 down
	add_link r1 n1 v1
	wait_state r1 DOWN
	ibv_devinfo -d r1 | grep 'state:.*PORT_DOWN (1)'
	watch
	ip -n n1 link set v1 up
	wait_state r1 ACTIVE
	wait_for saw PORT_ACTIVE
	settle 10.77.0.9
	equal PORT_ACTIVE "$(port_events)"
}

mtu() {
	local mtu wanted

	make_net
	add_links
	carrier_told n1 v1
	watch
	while read -r mtu wanted; do
		ip -n n1 link set v1 mtu "$mtu"
		equal "$mtu: $wanted" "$mtu: $(active_mtu r1)"
	done <<-END
		9000 4096
		4200 4096
		4180 4096
		4179 2048
		4000 2048
		2200 2048
		2000 1024
		1500 1024
		1100 512
		600 512
		500 256
		4200 4096
	END
	settle 10.77.0.9
	equal "" "$(port_events)"
	has_gid r1 10.77.0.1
}

# A renamed net device has the same RDMA device, which still works.
rename() {
	make_net
	add_links
	carrier_told n1 v1
	watch
	# A net device that is up cannot always be renamed.
	ip -n n1 link set v1 down
	wait_for saw "PORT_ERR"
	ip -n n1 link set v1 name w1
	ip -n n1 link set w1 up
	wait_for saw "PORT_ERR PORT_ACTIVE"
	wait_state r1 ACTIVE
	in_ns n1 rdma link show r1/1 | grep 'netdev w1 '
	equal w1 "$(in_ns n1 cat "/sys/class/infiniband/r1/ports/1/gid_attrs/ndevs/$(gid_index r1 10.77.0.1)")"
	both ibv_rc_pingpong -c -n 20
	settle 10.77.0.9 w1
	equal "PORT_ERR PORT_ACTIVE" "$(port_events)"
	ip -n n1 link delete w1
	wait_gone r1 r2
}

# Addresses that are added and removed while the device exists carry traffic, and are GIDs only as long as they exist. Programs
# get an event each time.
addresses() {
	local count

	make_net
	add_links
	carrier_told n1 v1
	watch
	settle 10.80.0.1
	ip -n n2 addr add 10.80.0.2/24 dev v2
	run_both 18515 "ibv_rc_pingpong -c -n 20 -d r1 -g $(gid_index r1 10.80.0.1)" \
		"ibv_rc_pingpong -c -n 20 -d r2 -g $(gid_index r2 10.80.0.2) 10.80.0.1"
	count=$(grep -c GID_CHANGE "$tmp/watch.log")
	ip -n n1 addr delete 10.80.0.1/24 dev v1
	wait_for fails has_gid r1 10.80.0.1
	wait_for more_gid_changes "$count"
	both ibv_rc_pingpong -c -n 20
}

# tun_open: a program opens the tun device t1, so that it has a carrier.
tun_open() {
	start opener n1 python3 -c "
import fcntl, struct, time
f = open('/dev/net/tun', 'r+b', buffering=0)
fcntl.ioctl(f, 0x400454ca, struct.pack('16sH22x', b't1', 0x0001))
time.sleep(1000)"
	wait_state r1 ACTIVE
}

tun_close() {
	kill -KILL "$pid"
	wait_state r1 DOWN
}

tun_opened() {
	local events='' i

	make_ns n1
	ip -n n1 tuntap add mode tun t1
	ip -n n1 addr add 10.78.0.1/24 dev t1
	ip -n n1 link set t1 up
	add_link r1 n1 t1
	wait_state r1 DOWN
	# The core does not know the state that a port has before its first change, and may report it first, or, as each
	# event is a work item of its own, after it. So the watcher starts after the first round.
	tun_open
	tun_close
	watch
	for i in 1 2; do
		tun_open
		wait_for saw "${events}PORT_ACTIVE"
		tun_close
		wait_for saw "${events}PORT_ACTIVE PORT_ERR"
		events+="PORT_ACTIVE PORT_ERR "
	done
}

# A program that has a device open gets an event when the device is removed, and can end.
removed_while_open() {
	make_net
	add_links
	carrier_told n1 v1
	watch
	ip -n n1 link delete v1
	wait_gone r1
	wait_for in_file DEVICE_FATAL "$tmp/watch.log"
	kill "$pid"
	wait_for gone "$pid"
}

# A bond removes its addresses and adds them again when it changes its active link. Connections over it go on.
bonded() {
	local i index

	need "no bonding" modprobe -q bonding max_bonds=0
	need "no bridges" modprobe -q bridge
	make_ns n1 n2
	ip -n n1 link add bond0 index 100 mtu 4200 type bond mode active-backup miimon 50
	ip -n n2 link add br0 index 100 mtu 4200 type bridge
	for i in 1 2; do
		ip link add "v$i" netns n1 mtu 4200 type veth peer name "p$i" netns n2 mtu 4200
		ip -n n1 link set "v$i" master bond0
		ip -n n2 link set "p$i" master br0 up
	done
	ip -n n1 addr add 10.77.0.1/24 dev bond0
	ip -n n2 addr add 10.77.0.2/24 dev br0
	ip -n n1 link set bond0 up
	ip -n n2 link set br0 up
	add_link r1 n1 bond0
	add_link r2 n2 br0
	for i in 1 2; do
		wait_state "r$i" ACTIVE
		gid_index "r$i" "10.77.0.$i"
	done
	wait_for active_link v1
	wait_for in_ns n2 ping -q -c 1 -W 1 10.77.0.1
	start server n1 rping -s -a 10.77.0.1 -C 1000000
	wait_for listening
	start client n2 rping -c -a 10.77.0.1 -C 1000000
	wait_for received_more 100
	index=$(gid_index r1 10.77.0.1)
	ip -n n1 link set v1 down
	wait_for active_link v2
	wait_for gid_moved "$index"
	wait_for received_more "$(($(counter r1 rcvd_pkts) + 1000))"
}

# lag TYPE DEVICE: the port is on a bond or team, or on the net device below it. The core leaves the events of both to drivers.
lag() {
	local type=$1 dev=$2 events='' i

	need "no $type" modprobe -q "rtnl-link-$type"
	make_lag "$type"
	add_link r1 n1 "$dev"
	wait_state r1 ACTIVE
	watch
	for i in 1 2; do
		ip -n n1 link set "$dev" down
		wait_state r1 DOWN
		events+="${events:+ }PORT_ERR"
		wait_for saw "$events"
		ip -n n1 link set "$dev" up
		wait_state r1 ACTIVE
		events+=" PORT_ACTIVE"
		wait_for saw "$events"
	done
	ip -n n1 link set "$dev" arp off
	ip -n n1 link set "$dev" arp on
	settle 10.77.0.9 lag0
	equal "$events" "$(port_events)"
}

# make_lag TYPE: creates lag0 in n1, above v1.
make_lag() {
	make_net
	ip -n n1 link set v1 down
	ip -n n1 link add lag0 mtu 4200 type "$1"
	ip -n n1 link set v1 master lag0
	ip -n n1 link set v1 up
	ip -n n1 link set lag0 up
	wait_for is_up n1 lag0
}

active_link() {
	ip -n n1 -d link show bond0 | grep -q "active_slave $1 "
}

received_more() {
	[ "$(counter r1 rcvd_pkts)" -gt "$1" ]
}

gid_moved() {
	[ "$(gid_index r1 10.77.0.1)" != "$1" ]
}

test_case "link up and down: one event each" up_and_down
test_case "carrier lost and found: one event each" carrier
test_case "device made on a net device that is down" born_down
test_case "active MTU follows the net device's; no port event" mtu
test_case "net device renamed" rename
test_case "addresses come and go" addresses
test_case "bond changes its active link" bonded
test_case "bond up and down: one event each" lag bond lag0
test_case "net device of a bond up and down: one event each" lag bond v1
test_case "team up and down: one event each" lag team lag0
test_case "net device of a team up and down: one event each" lag team v1
test_case "tun device opened and closed: one event each" tun_opened
test_case "net device removed while a program has the device open" removed_while_open

run_cases "$@"
