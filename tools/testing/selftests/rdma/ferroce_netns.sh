#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Addresses of a device in another network namespace than its own: those of net devices above its net device.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong rping python3 unshare
# shellcheck disable=SC2034
after_each=tidy

# prepare: r1 in n1, r2 in n2, and an empty n3.
prepare() {
	make_net
	add_links
	make_ns n3
	fails socket n3
}

# upper NETDEV ADDRESS TYPE...: creates a net device of that type in n3, above v1 in n1.
upper() {
	local dev=$1 address=$2

	shift 2
	ip -n n1 link add "$dev" link v1 netns n3 type "$@"
	ip -n n3 addr add "$address/24" dev "$dev"
	ip -n n3 link set "$dev" up
	gid_index r1 "$address"
}

both_sockets() {
	wait_for socket "$1" -4
	wait_for socket "$1" -6
}

# traffic ADDRESS CLIENT_ADDRESS: connections, datagrams, and the connection manager, with servers in n3.
traffic() {
	local server_ns=n3 a1 a2

	a1="-d r1 -g $(gid_index r1 "$1")"
	a2="-d r2 -g $(gid_index r2 "$2")"
	run_both 18515 "ibv_rc_pingpong -c -n 20 $a1" "ibv_rc_pingpong -c -n 20 $a2 $1"
	run_both 18515 "ibv_ud_pingpong -c -n 20 $a1" "ibv_ud_pingpong -c -n 20 $a2 $1"
	rpings "$1" -V -C 3
}

macvlan() {
	prepare
	upper m1 10.77.0.3 macvlan mode bridge
	both_sockets n3
	traffic 10.77.0.3 10.77.0.2
	# The device's own address works as before.
	both ibv_rc_pingpong -c -n 20
}

vlan() {
	prepare
	ip -n n2 link add v2.5 link v2 type vlan id 5
	ip -n n2 addr add 10.81.0.2/24 dev v2.5
	ip -n n2 link set v2.5 up
	upper v1.5 10.81.0.1 vlan id 5
	both_sockets n3
	traffic 10.81.0.1 10.81.0.2
}

# The sockets are open as long as there is an address.
counted() {
	prepare
	upper m1 10.77.0.3 macvlan mode bridge
	upper m2 10.77.0.4 macvlan mode bridge
	both_sockets n3
	ip -n n3 link delete m1
	wait_for fails has_gid r1 10.77.0.3
	socket n3
	ip -n n3 link delete m2
	wait_for fails socket n3
	socket n1
	# They open again.
	upper m1 10.77.0.3 macvlan mode bridge
	both_sockets n3
	traffic 10.77.0.3 10.77.0.2
	rdma link delete r1
	fails socket n3
	fails socket n1
	socket n2
}

# The RDMA device is created last.
device_later() {
	make_net
	make_ns n3
	ip -n n1 link add m1 link v1 netns n3 type macvlan mode bridge
	ip -n n3 addr add 10.77.0.3/24 dev m1
	ip -n n3 link set m1 up
	add_links
	both_sockets n3
	traffic 10.77.0.3 10.77.0.2
}

# The net device moves, and its addresses with it.
moved() {
	prepare
	upper m1 10.77.0.3 macvlan mode bridge
	both_sockets n3
	ip -n n3 link set m1 netns n2
	wait_for fails socket n3
	wait_for fails has_gid r1 10.77.0.3
	both ibv_rc_pingpong -c -n 20
}

namespace_ends() {
	local i

	prepare
	for i in 1 2 3; do
		upper m1 10.77.0.3 macvlan mode bridge
		both_sockets n3
		ip netns delete n3
		wait_for fails has_gid r1 10.77.0.3
		make_ns n3
	done
	both ibv_rc_pingpong -c -n 20
}

# The UDP port is in use in n3: the device is not affected, and works there later.
port_busy() {
	local holder

	prepare
	start holder n3 python3 -c "
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 4791))
print('bound', flush=True)
time.sleep(1000)"
	holder=$pid
	wait_for in_file bound "$tmp/holder.log"
	upper m1 10.77.0.3 macvlan mode bridge
	both ibv_rc_pingpong -c -n 20
	fails socket n3 -6
	kill -KILL "$holder"
	wait_for gone "$holder"
	fails socket n3
	upper m2 10.77.0.4 macvlan mode bridge
	both_sockets n3
	traffic 10.77.0.3 10.77.0.2
}

# raw_qp COMMAND...: the command runs a program that creates a queue pair for raw packets.
raw_qp() {
	"$@" python3 - <<-END
		from pyverbs.cq import CQ
		from pyverbs.device import Context
		from pyverbs.libibverbs_enums import ibv_qp_type
		from pyverbs.pd import PD
		from pyverbs.qp import QP, QPCap, QPInitAttr

		ctx = Context(name='r1')
		cq = CQ(ctx, 1)
		QP(PD(ctx), QPInitAttr(ibv_qp_type.IBV_QPT_RAW_PACKET, qp_context=None, cap=QPCap(), scq=cq, rcq=cq))
	END
}

# of_user PID: the process is in a user namespace of its own.
of_user() {
	[ "$(readlink "/proc/$1/ns/user")" != "$(readlink /proc/self/ns/user)" ]
}

# An RDMA device moves to a namespace of another user, and its net device stays. The user must not send raw packets there.
other_user() {
	local owner

	wait_for rdma system set netns exclusive
	make_net
	add_link r1 n1 v1
	start owner '' unshare --user --map-root-user --net --mount bash -c 'mount -t sysfs none /sys && sleep 1000'
	owner=$pid
	wait_for of_user "$owner"
	raw_qp in_ns n1
	ip netns attach n3 "$owner"
	in_ns n1 rdma dev set r1 netns n3
	raw_qp in_ns n3
	refused 'Failed to create QP. Errno: 1' raw_qp nsenter --target "$owner" --user --net --mount
}

tidy() {
	local rc=0

	clean || rc=$?
	wait_for rdma system set netns shared || rc=$?
	return "$rc"
}

test_case "macvlan in another namespace" macvlan
slow || test_case "VLAN in another namespace" vlan
test_case "sockets go with the last address" counted
slow || test_case "device added after the addresses" device_later
slow || test_case "net device with an address moved to another namespace" moved
test_case "namespace with an address deleted" namespace_ends
test_case "port of another namespace busy" port_busy
test_case "raw packets of another user" other_user

run_cases "$@"
