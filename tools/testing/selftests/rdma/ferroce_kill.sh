#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# In the middle of traffic, processes are killed, links and net devices deleted, and the module is removed. Afterwards none of
# their objects are left, and new traffic works.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ib_write_bw ping
# shellcheck disable=SC2034
after_each=restore

# The second processor.
cpu=/sys/devices/system/cpu/cpu1/online

restore() {
	[ ! -e "$tmp/offline" ] || { echo 1 >"$cpu"; rm "$tmp/offline"; }
	clean
}

# packets: prints the number of packets that r1 has sent and received.
packets() {
	echo $(($(counter r1 sent_pkts) + $(counter r1 rcvd_pkts)))
}

more_packets() {
	[ "$(packets)" -gt "$1" ]
}

# flow PROGRAM [OPTIONS]: starts traffic that does not end by itself; returns when it flows. $server and $client are its
# processes.
flow() {
	local option=-g

	[[ $1 = ibv_* ]] || option=-x
	start server n1 "$@" -d r1 "$option" "$gid1"
	server=$pid
	wait_for -t 100 listens "$server" 18515
	start client n2 "$@" -d r2 "$option" "$gid2" 10.77.0.1
	client=$pid
	wait_for -t 100 more_packets $(($(packets) + 200)) || no_flow
}

# no_flow: shows the state of traffic that does not flow, and fails.
no_flow() {
	local dev

	cat "$tmp/server.log" "$tmp/client.log"
	for dev in r1 r2; do rdma statistic show link "$dev/1"; done
	rdma resource show qp -dd
	ip -n n2 neigh
	return 1
}

network() {
	make_net
	add_links
	gid1=$(gid_index r1 10.77.0.1)
	gid2=$(gid_index r2 10.77.0.2)
}

# end PID: kills the process and waits for its end. A program may have ended when the other one did.
end() {
	kill -KILL "$1" || true
	wait_for -t 100 gone "$1"
}

# dies client|server PROGRAM [OPTIONS]: kills that one first, then the other. No objects of theirs are left.
dies() {
	local who=$1

	shift
	network
	flow "$@"
	cat "$tmp/server.log" "$tmp/client.log"
	[ "$(objects r1)" -gt 0 ]
	[ "$(objects r2)" -gt 0 ]
	# Neither has ended early.
	fails gone "$client"
	fails gone "$server"
	if [ "$who" = client ]; then
		end "$client"
		wait_for no_objects r2
		end "$server"
	else
		end "$server"
		wait_for no_objects r1
		end "$client"
	fi
	wait_for no_objects r1
	wait_for no_objects r2
	equal 2 "$(rdma resource show qp | grep -c 'type GSI')"
	both ibv_rc_pingpong -c -n 10
}

link_deleted() {
	network
	flow "$@"
	rdma link delete r1
	fails device r1
	end "$client"
	end "$server"
	wait_for no_objects r2
	add_link r1 n1 v1
	wait_state r1 ACTIVE
	both ibv_rc_pingpong -c -n 10
}

netdev_deleted() {
	network
	flow "$@"
	ip -n n1 link delete v1
	wait_gone r1 r2
	end "$client"
	end "$server"
	clean
	network
	both ibv_rc_pingpong -c -n 10
}

netns_deleted() {
	network
	flow "$@"
	# The namespace lives as long as a process is in it.
	ip netns delete n2
	end "$client"
	wait_gone r2
	end "$server"
	wait_gone r1
}

# free_namespaces: dismantles two more namespaces, one after the other. The kernel frees the memory of a namespace when it
# dismantles the next one, and has done so when the devices of the one after that are gone.
free_namespaces() {
	local i

	for i in 1 2; do
		make_ns n3
		ip -n n1 link add w1 type veth peer name w3 netns n3
		ip netns delete n3
		wait_for fails ip -n n1 link show dev w1
	done
}

# stopped PID...: checks that the processes are stopped, and that r1 sends and receives no more packets.
stopped() {
	local before i pid

	for pid; do state "$pid" && equal T "$state" || return; done
	before=$(packets)
	for ((i = 0; i < 25; i++)); do moment; done
	equal "$before" "$(packets)"
}

# The server uses an address in a third namespace, which is deleted while the traffic stands still. If a queue pair kept a route of
# the namespace, KASAN would report a use after free when the queue pair is destroyed.
address_gone() {
	network
	make_ns n3
	ip -n n1 link add m1 link v1 netns n3 type macvlan mode bridge
	ip -n n3 addr add fd77::3/64 dev m1 nodad
	ip -n n3 link set m1 up
	gid1=$(gid_index r1 fd77::3)
	gid2=$(gid_index r2 fd77::2)
	# The core gives neighbour discovery one second when a program creates an address handle, which is not always enough here.
	wait_for ip netns exec n3 ping -q -c 1 fd77::2
	flow "$@"
	kill -STOP "$server" "$client"
	wait_for stopped "$server" "$client"
	ip netns delete n3
	wait_for fails has_gid r1 fd77::3
	free_namespaces
	end "$server"
	end "$client"
	wait_for no_objects r1
	wait_for no_objects r2
	both ibv_rc_pingpong -c -n 10
}

# Traffic holds no reference to the module.
module_removed() {
	network
	flow "$@"
	rmmod ferroce
	fails loaded ferroce
	fails device r1
	end "$client"
	end "$server"
	load_module
	add_links
	both ibv_rc_pingpong -c -n 10
}

# The second processor goes offline and comes back under traffic, several times. No counter of packets may decrease.
cpu_offline() {
	local before i

	need "no processor can go offline" grep -q 1 "$cpu"
	network
	flow "$@"
	touch "$tmp/offline"
	for i in 1 2 3 4 5; do
		before=$(packets)
		echo 0 >"$cpu"
		[ "$(packets)" -ge "$before" ]
		wait_for -t 100 more_packets $(($(packets) + 200)) || no_flow
		echo 1 >"$cpu"
		wait_for -t 100 more_packets $(($(packets) + 200)) || no_flow
	done
	# Without traffic no new packets hide the loss of those that the processor counted.
	kill -STOP "$server" "$client"
	wait_for stopped "$server" "$client"
	before=$(packets)
	echo 0 >"$cpu"
	equal "$before" "$(packets)"
	end "$client"
	end "$server"
	wait_for no_objects r1
	wait_for no_objects r2
}

test_case "client of ib_write_bw killed" dies client ib_write_bw -F -D 1000
slow || test_case "client of ib_read_bw killed" dies client ib_read_bw -F -D 1000 -q 4
slow || test_case "client of ibv_ud_pingpong killed" dies client ibv_ud_pingpong -n 10000000
test_case "client of ibv_rc_pingpong -e killed" dies client ibv_rc_pingpong -e -n 10000000
slow || test_case "server of ib_send_bw killed" dies server ib_send_bw -F -D 1000 -b
slow || test_case "server of ib_write_bw killed" dies server ib_write_bw -F -D 1000
test_case "server of ibv_uc_pingpong killed" dies server ibv_uc_pingpong -n 10000000
slow || test_case "link deleted under ib_write_bw" link_deleted ib_write_bw -F -D 1000
slow || test_case "link deleted under ibv_ud_pingpong" link_deleted ibv_ud_pingpong -n 10000000
test_case "net device deleted under ib_write_bw" netdev_deleted ib_write_bw -F -D 1000 -b
slow || test_case "network namespace deleted under ib_send_bw" netns_deleted ib_send_bw -F -D 1000
if slow; then
	# Only KASAN sees the use after free.
	test_case "namespace of an address deleted, then ibv_rc_pingpong killed" address_gone ibv_rc_pingpong -n 10000000
	test_case "namespace of an address deleted, then ibv_ud_pingpong killed" address_gone ibv_ud_pingpong -n 10000000
fi
test_case "processor offline under ib_write_bw" cpu_offline ib_write_bw -F -D 1000
test_case "module removed under ib_read_bw" module_removed ib_read_bw -F -D 1000
slow || test_case "module removed under ibv_uc_pingpong" module_removed ibv_uc_pingpong -n 10000000

run_cases "$@"
