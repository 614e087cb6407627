#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Reliable connections over a network that delays, drops, duplicates and reorders.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong ib_write_bw ib_send_lat tc
set_up make_net
set_up add_links
for i in 1 2; do
	set_up in_ns "n$i" tc qdisc replace dev "v$i" root netem delay 1ms loss 2% duplicate 1% reorder 5%
done

# Without losses the cases before would have shown nothing.
losses() {
	local i

	for i in 1 2; do
		in_ns "n$i" tc -s qdisc show dev "v$i"
		in_ns "n$i" tc -s qdisc show dev "v$i" | grep 'dropped [1-9][0-9]'
		# Packets that arrive before a lost one are kept.
		[ "$(counter "r$i" out_of_order_request)" -gt 0 ]
	done
	[ "$(counter r2 out_of_order_response)" -gt 0 ]
}

# Only a probe or a timeout detects the loss of a message that the requester waits for. A probe comes first, unless the
# round trip takes as long as the timeout.
probes() {
	local i before=()

	for i in 1 2; do
		in_ns "n$i" tc qdisc change dev "v$i" root netem delay 1ms loss 10%
		before[i]=$(more_probes "r$i")
	done
	both ib_send_lat -F -n 200 -s 4 -u 18
	for i in 1 2; do [ "$(more_probes "r$i")" -gt "${before[i]}" ]; done
}

# more_probes DEVICE: by how much its probes outnumber its timeouts.
more_probes() {
	echo $(($(counter "$1" roce_adp_retrans) - $(counter "$1" ack_timeout)))
}

many=2000
! slow || many=500

for size in 1 4096 65536; do
	test_case "ibv_rc_pingpong size $size under loss" both ibv_rc_pingpong -c -n 100 -s "$size"
done
test_case "ibv_rc_pingpong size 20000 MTU 256 under loss" both ibv_rc_pingpong -c -n 30 -m 256 -s 20000
test_case "ibv_rc_pingpong with events under loss" both ibv_rc_pingpong -c -n 50 -e
test_case "ib_write_bw under loss" both ib_write_bw -F -n 30
test_case "ib_read_bw under loss" both ib_read_bw -F -n 100
test_case "ib_send_bw under loss" both ib_send_bw -F -n 30
test_case "ib_write_bw 4 queue pairs both ways under loss" both ib_write_bw -F -n 10 -s 8192 -q 4 -b
test_case "ib_send_lat under loss" both ib_send_lat -F -n 50
# Many messages, so that losses hit them in as many ways as possible.
test_case "ibv_rc_pingpong many times under loss" both ibv_rc_pingpong -c -n "$many"
test_case "packets were lost" losses
test_case "probes come before timeouts" probes

run_cases "$@"
