#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Processes of one host: their packets cross lo in trains.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/testing/selftests/rdma/disturb.sh
. "$(dirname "$0")/disturb.sh"
need_module
need_programs ibv_rc_pingpong rping tc ip python3
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
	local client_ns=n1

	rpings 10.77.0.1 -V -S 65000 -C 8
}

traffic() {
	sends
	reads_and_writes
}

all_arrived() {
	[ "$(counter r1 sent_pkts)" = "$(counter r1 rcvd_pkts)" ]
}

# intact: checks that trains were sent, and that every packet arrived unchanged.
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

# The setting that README.md gives to show each packet in a capture.
one_by_one() {
	prepare
	ip -n n1 link set lo gso_max_segs 1
	split
}

# A packet socket that does not read its packets shares their memory.
shared() {
	prepare
	hold_packets n1 lo
	traffic
	intact
	[ "$(counter r1 rx_trains_split)" -gt 0 ]
}

tracked() {
	need "no connection tracking" modprobe -qa nf_tables nft_ct
	prepare
	track n1
	traffic
	intact
	wait_for all_whole
}

# The ICRC of packets that a queueing discipline of lo may have changed is checked.
corrupted() {
	need "no prio queues" modprobe -q sch_prio
	prepare
	corrupt n1 lo
	for _ in {1..20}; do
		sends
		[ "$(counter r1 rx_bad_icrc)" = 0 ] || break
	done
	[ "$(counter r1 tx_trains)" -gt 0 ]
	[ "$(counter r1 rx_bad_icrc)" -gt 0 ]
	equal 0 "$(counter r1 rx_trains)"
}

# split: checks that packets cross lo one by one.
split() {
	traffic
	intact
	equal 0 "$(counter r1 rx_trains)"
}

xdp() {
	local xdp seen

	need_xdp
	prepare
	attach_xdp n1 lo generic "$@"
	xdp=$pid
	split
	detach_xdp "$xdp" lo
	[ "$seen" -ge "$(counter r1 rcvd_pkts)" ]
}

# The default packet size limit of police is far below the length of a train.
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
