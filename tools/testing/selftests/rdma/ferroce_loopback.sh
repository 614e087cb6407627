#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Processes of one host: their packets cross lo in trains.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong rping tc ip python3
here=$PWD
[ -x "$here/ferroce_xdp" ] || here=$(dirname "$0")
# shellcheck disable=SC2034
after_each=clean

prepare() {
	make_net
	add_links
}

# sends: SENDs of 64 KiB, whose data is checked, over IPv4 and IPv6.
sends() {
	local address command client_ns=n1

	for address in 10.77.0.1 fd77::1; do
		command="ibv_rc_pingpong -c -n 8 -s 65536 -m 4096 -d r1 -g $(gid_index r1 "$address")"
		run_both 18515 "$command" "$command 10.77.0.1"
	done
}

# reads_and_writes: READs and WRITEs of 65000 bytes, whose data is checked.
reads_and_writes() {
	local server

	start server n1 rping -s -a 10.77.0.1 -V -S 65000 -C 8
	server=$pid
	wait_for listening
	start client n1 rping -c -a 10.77.0.1 -V -S 65000 -C 8
	ends "$pid"
	ends "$server"
}

traffic() {
	sends
	reads_and_writes
}

all_arrived() {
	[ "$(counter r1 sent_pkts)" = "$(counter r1 rcvd_pkts)" ]
}

# intact: trains were sent, and every packet arrived as it had been.
intact() {
	[ "$(counter r1 tx_trains)" -gt 0 ]
	wait_for all_arrived
	equal 0 "$(counter r1 rx_bad_icrc)"
	equal 0 "$(counter r1 rx_malformed)"
}

all_whole() {
	[ "$(counter r1 tx_trains)" = "$(counter r1 rx_trains)" ]
}

whole() {
	prepare
	traffic
	intact
	wait_for all_whole
	equal 0 "$(counter r1 rx_trains_split)"
}

# A train that is longer than the MTU of lo is split in front of it.
short_mtu() {
	prepare
	ip -n n1 link set lo mtu 9000
	traffic
	intact
	# Short trains fit.
	[ "$(counter r1 rx_trains)" -lt "$(counter r1 tx_trains)" ]
}

# As README.md says to show each packet in a capture.
one_by_one() {
	prepare
	ip -n n1 link set lo gso_max_segs 1
	split
}

# A packet socket whose packets are not read shares their memory.
shared() {
	prepare
	start holder n1 python3 -c "
import socket, time
holder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(socket.ETH_P_ALL))
holder.bind(('lo', 0))
print('bound', flush=True)
time.sleep(1000000)
"
	wait_for in_file bound "$tmp/holder.log"
	traffic
	intact
	[ "$(counter r1 rx_trains_split)" -gt 0 ]
}

tracked() {
	need "no connection tracking" modprobe -qa nf_tables nft_ct
	prepare
	in_ns n1 nft -f - <<-END
		table inet roce {
			chain input { type filter hook input priority filter; ct state invalid drop; }
			chain output { type filter hook output priority filter; ct state invalid drop; }
		}
	END
	traffic
	intact
	wait_for all_whole
}

# The ICRC of packets that a queueing discipline of lo may have changed is checked.
corrupted() {
	need "no prio queues" modprobe -q sch_prio
	prepare
	# RoCE alone: TCP within a host has no checksum that finds what was corrupted.
	in_ns n1 tc -batch - <<-END
		qdisc add dev lo root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
		qdisc add dev lo parent 1:2 netem corrupt 2%
		filter add dev lo parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:2
		filter add dev lo parent 1: protocol ipv6 prio 2 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff flowid 1:2
	END
	for _ in 1 2 3 4 5; do
		sends
		[ "$(counter r1 rx_bad_icrc)" = 0 ] || break
	done
	[ "$(counter r1 tx_trains)" -gt 0 ]
	[ "$(counter r1 rx_bad_icrc)" -gt 0 ]
	equal 0 "$(counter r1 rx_trains)"
}

# split: packets cross lo one by one.
split() {
	traffic
	intact
	equal 0 "$(counter r1 rx_trains)"
}

xdp() {
	local xdp seen

	need "no BPF" [ -e /proc/sys/kernel/unprivileged_bpf_disabled ]
	prepare
	start xdp n1 "$here/ferroce_xdp" lo generic "$@"
	xdp=$pid
	wait_for in_file attached "$tmp/xdp.log"
	split
	kill -TERM "$xdp"
	ends "$xdp"
	seen=$(sed -n 's/ packets$//p' "$tmp/xdp.log")
	[ "$seen" -ge "$(counter r1 rcvd_pkts)" ]
}

# The default of the longest packet of police is far below that of a train.
policed() {
	need "no police" modprobe -q act_police
	prepare
	in_ns n1 tc -batch - <<-END
		qdisc add dev lo clsact
		filter add dev lo ingress matchall action police rate 100gbit burst 100m mtu 9000 conform-exceed drop
	END
	split
	in_ns n1 tc -s filter show dev lo ingress | grep -q 'dropped 0,'
}

test_case "trains are received whole" whole
test_case "trains longer than the MTU of lo" short_mtu
test_case "lo takes a packet at a time" one_by_one
test_case "packets shared with a packet socket" shared
test_case "connection tracking" tracked
test_case "corruption" corrupted
test_case "generic XDP" xdp
test_case "generic XDP with fragments" xdp frags
test_case "policing" policed

run_cases "$@"
