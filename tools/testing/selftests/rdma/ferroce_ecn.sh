#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Explicit congestion notification: a network that marks packets instead of dropping them.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ib_write_bw ib_read_bw ping tc
# shellcheck disable=SC2034
after_each=clean

# netem marks a tenth of the packets that it may mark, and drops a tenth of the others.
prepare() {
	local i

	make_net
	add_links
	resolve_neighbours
	for i in 1 2; do in_ns "n$i" tc qdisc replace dev "v$i" root netem loss 10% ecn; done
}

# heard DEVICE PEER: checks that the device handled congestion notifications of its peer; some may have come too late.
heard() {
	[ "$(counter "$1" rp_cnp_handled)" -gt 0 ]
	[ "$(counter "$1" rp_cnp_handled)" -le "$(counter "$2" np_cnp_sent)" ]
	[ "$(counter "$2" np_cnp_sent)" -le "$(counter "$2" np_ecn_marked_roce_packets)" ]
}

both_ways() {
	ip=$1 both ibv_rc_pingpong -c -n 50 -s 65536 -m 4096
	heard r1 r2
	heard r2 r1
}

marked() {
	prepare
	both_ways "$1"
}

# The client writes: only the server sees marks on packets with payload.
writes() {
	prepare
	both ib_write_bw -F -n 200
	heard r2 r1
	equal 0 "$(counter r2 np_cnp_sent)"
}

# The client requests: it sees the marks on responses, and the server those on requests, which may be none.
reads() {
	prepare
	both ib_read_bw -F -n 200
	heard r1 r2
}

# A queue that marks ECN-capable packets drops all others while it is congested, here always. So the first packets to a peer, from
# which none has arrived yet, must be capable too. On a slow machine there may be timeouts all the same, because acknowledgments
# are late.
only_capable() {
	local i

	need "no nftables" nft list tables
	make_net
	add_links
	for i in 1 2; do
		in_ns "n$i" nft -f - <<-END
			table ip t {
				chain in {
					type filter hook input priority 0;
					udp dport 4791 ip ecn not-ect counter drop
				}
			}
		END
	done
	both ibv_rc_pingpong -c -n 50 -s 65536 -m 4096
	both ib_write_bw -F -n 200
	for i in 1 2; do in_ns "n$i" nft list table ip t | grep 'not-ect counter packets 0 '; done
}

without_parameter() {
	rmmod ferroce
	load_module ecn=0
	prepare
	both ibv_rc_pingpong -c -n 50 -s 65536 -m 4096
	equal 0 "$(counter r1 np_ecn_marked_roce_packets)"
	equal 0 "$(counter r2 np_ecn_marked_roce_packets)"
	[ $(($(counter r1 rcvd_seq_err) + $(counter r2 rcvd_seq_err) + $(counter r1 roce_adp_retrans))) -gt 0 ]
	clean
	rmmod ferroce
	load_module
}

test_case "marks notify both ends, IPv4" marked 4
test_case "marks notify both ends, IPv6" marked 6
slow || test_case "marks on WRITEs" writes
slow || test_case "marks on READ responses" reads
slow || test_case "network that drops what it may not mark" only_capable
test_case "parameter ecn=0" without_parameter

run_cases "$@"
