#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The module: loaded, removed with devices and open contexts, never beside C rxe; and exclusive RDMA network namespaces.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ibv_asyncwatch

# Each case leaves this state, also when it fails: the module loaded, C rxe not, no devices, one RDMA namespace.
tidy() {
	clean
	if loaded rdma_rxe; then rmmod rdma_rxe || return; fi
	wait_for rdma system set netns shared
	loaded ferroce || load_module
}
# shellcheck disable=SC2034
after_each=tidy

removed_with_devices() {
	make_net
	add_links
	rmmod ferroce
	fails loaded ferroce
	fails device r1
	fails device r2
	fails socket n1
	fails socket n2
	load_module
	add_links
	both ibv_rc_pingpong -c -n 10
}

removed_while_open() {
	make_net
	add_links
	start watch "" ibv_asyncwatch -d r1
	wait_for in_file FD "$tmp/watch.log"
	rmmod ferroce
	wait_for in_file DEVICE_FATAL "$tmp/watch.log"
	load_module
	add_links
	both ibv_rc_pingpong -c -n 10
	# The old context is closed after its module was removed.
	kill "$pid" || true
	wait_for gone "$pid"
}

# Early demux finds the socket of ferroce for a datagram to a multicast group, and NFQUEUE takes a reference to it. The VXLAN
# tunnel keeps the tunnels of UDP enabled.
removed_before_verdict() {
	need "no nft_queue" modprobe -q nft_queue
	need "no VXLAN" modprobe -q vxlan
	make_net
	add_links
	in_ns n1 ip link add vx1 type vxlan id 1 dev v1 dstport 4789
	in_ns n1 ip link set vx1 up
	in_ns n1 nft -f - <<-END
		table inet roce {
			chain input { type filter hook input priority filter; udp dport 4791 queue num 0; }
		}
	END
	start queue n1 "${BASH_SOURCE[0]%/*}/nfqueue.py" 239.1.2.3 v1
	wait_for in_file bound "$tmp/queue.log"
	in_ns n2 python3 -c "
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.77.0.2'))
sender.sendto(bytes(64), ('239.1.2.3', 4791))
"
	wait_for in_file held "$tmp/queue.log"
	rmmod ferroce
	kill -TERM "$pid"
	ends "$pid"
	in_file accepted "$tmp/queue.log"
}

needs_nothing_else() {
	rmmod ferroce
	refused "" rdma link add r1 type ferroce netdev lo
	load_module
	rdma link add r1 type ferroce netdev lo
	rdma link delete r1
}

gid_table() {
	local gids

	rmmod ferroce
	load_module gid_table=3
	make_net
	add_links
	gids=(/sys/class/infiniband/r1/ports/1/gids/*)
	equal 3 "${#gids[@]}"
	# Link-local, IPv4, IPv6: the table is full, and the device still works.
	in_ns n1 ip addr add 10.78.0.3/24 dev v1
	both ibv_rc_pingpong -c -n 10
	# The core handles one change after the other.
	ip -n n1 addr del 10.77.0.1/24 dev v1
	wait_for fails has_gid r1 10.77.0.1
	fails has_gid r1 10.78.0.3
	delete_links
	rmmod ferroce
	refused 'Invalid' load_module gid_table=0
	refused 'Invalid' load_module gid_table=4097
	fails loaded ferroce
}

rxe_refused() {
	modinfo rdma_rxe
	fails modprobe rdma_rxe
	fails loaded rdma_rxe
	make_net
	add_links
	fails modprobe rdma_rxe
	fails loaded rdma_rxe
	both ibv_rc_pingpong -c -n 10
}

refused_beside_rxe() {
	rmmod ferroce
	modprobe rdma_rxe
	fails load_module
	fails loaded ferroce
	make_net
	add_links rxe
	delete_links
	rmmod rdma_rxe
	load_module
	add_links
}

# In exclusive mode a device is seen in the namespace of its net device and nowhere else.
exclusive() {
	local i

	# Refused while there are other namespaces; those of the case before are still being removed.
	wait_for rdma system set netns exclusive
	rdma system show | grep 'netns exclusive'
	make_net
	for i in 1 2; do
		ip netns exec "n$i" rdma link add "r$i" type ferroce netdev "v$i"
		equal "r$i" "$(ip netns exec "n$i" ls /sys/class/infiniband)"
		ip netns exec "n$i" rdma dev | grep "r$i:"
	done
	equal "" "$(rdma dev)"
	fails device r1
	fails ibv_devinfo -d r1
	fails ip netns exec n2 ibv_devinfo -d r1
	for i in 1 2; do
		ip netns exec "n$i" bash -c ". ${BASH_SOURCE[0]%/*}/lib.sh
			wait_state r$i ACTIVE; gid_index r$i 10.77.0.$i; rm -r \$tmp" >"$tmp/index$i"
	done
	run_both 18515 "ip netns exec n1 ibv_rc_pingpong -c -n 10 -d r1 -g $(<"$tmp/index1")" \
		"ip netns exec n2 ibv_rc_pingpong -c -n 10 -d r2 -g $(<"$tmp/index2") 10.77.0.1"
	ip netns exec n1 rdma link delete r1
	equal "" "$(ip netns exec n1 rdma dev)"
	# The other device is removed with its namespace.
	ip netns delete n2
	ip netns delete n1
	wait_gone r2
}

test_case "removed with devices, and loaded again" removed_with_devices
test_case "removed while a program has a device open" removed_while_open
test_case "removed before the verdict on a datagram" removed_before_verdict
test_case "links can be created only while it is loaded" needs_nothing_else
test_case "the size of the GID table" gid_table
test_case "rdma_rxe does not load beside it" rxe_refused
test_case "does not load beside rdma_rxe" refused_beside_rxe
test_case "exclusive RDMA namespaces" exclusive

run_cases "$@"
