#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A device moves to another namespace of RDMA devices, and its net device changes while the core has the device disabled: no event
# of the net device finds the device then. modules/ferroce_hold.c makes that moment last.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
client=$(dirname "$0")/ferroce_hold.ko
need_module
need_programs ibv_ud_pingpong
[ -e "$client" ] || skip_all "no $client"

tidy() {
	if loaded ferroce_hold; then
		hold add N
		hold remove N
		wait_for rmmod ferroce_hold
	fi
	clean
	wait_for rdma system set netns shared
}
# shellcheck disable=SC2034
after_each=tidy

# hold add|remove Y|N
hold() {
	echo "$2" >"/sys/module/ferroce_hold/parameters/hold_$1"
}

# held add|remove
held() {
	in_file Y "/sys/module/ferroce_hold/parameters/in_$1"
}

# disabled PID: checks that the process moves a device, has disabled it, and waits for devices_rwsem. The file omits functions of
# locks.
disabled() {
	[[ $(<"/proc/$1/stack") = '[<0>] rdma_dev_change_netns+'* ]]
}

# move COMMAND...: moves r1 from n1 to n3, and runs the command while it is disabled.
move() {
	local mover adder

	hold remove Y
	start mover n1 rdma dev set r1 netns n3
	mover=$pid
	wait_for held remove
	# While the core adds this device, it does not enable the other one.
	hold add Y
	start adder n3 rdma link add r3 type ferroce netdev v3
	adder=$pid
	wait_for held add
	hold remove N
	wait_for disabled "$mover"
	"$@"
	disabled "$mover"
	hold add N
	ends "$mover"
	ends "$adder"
}

# prepare: r1 in n1 and r2 in n2, each seen only there; MTU 1500.
prepare() {
	# Refused while there are other namespaces; those of the case before are still being removed.
	wait_for rdma system set netns exclusive
	insmod "$client"
	make_net 1500
	make_ns n3
	ip -n n3 link add v3 type dummy
	add_link r1 n1 v1
	add_link r2 n2 v2
}

# index NETNS DEVICE ADDRESS: prints the index of the GID, from the /sys of the namespace.
index() {
	ip netns exec "$1" bash -c ". ${BASH_SOURCE[0]%/*}/lib.sh; gid_index $2 $3; rm -r \$tmp"
}

# downed NETNS DEVICE: prints the number of times that the link went down.
downed() {
	in_ns "$1" rdma statistic show link "$2/1" | sed -n 's/.*link_downed \([0-9]*\).*/\1/p'
}

goes_down() {
	prepare
	move ip -n n1 link set v1 down
	equal 1 "$(downed n3 r1)"
}

# Datagrams afterwards are longer than the port allowed before.
changes_mtu() {
	prepare
	move ip -n n1 link set v1 mtu 4200
	ip -n n2 link set v2 mtu 4200
	in_ns n3 rdma dev set r1 netns n1
	run_both 18515 "ip netns exec n1 timeout 60 ibv_ud_pingpong -c -n 20 -s 2048 -d r1 -g $(index n1 r1 10.77.0.1)" \
		"ip netns exec n2 timeout 60 ibv_ud_pingpong -c -n 20 -s 2048 -d r2 -g $(index n2 r2 10.77.0.2) 10.77.0.1"
}

# The RDMA device does not move with its net device. Once it is gone, another one can be created.
netdev_moves() {
	prepare
	move ip -n n1 link set v1 netns n3
	wait_for add_link r1 n3 v1
}

test_case "net device goes down meanwhile" goes_down
test_case "its MTU changes meanwhile" changes_mtu
test_case "it moves to another namespace meanwhile" netdev_moves

run_cases "$@"
