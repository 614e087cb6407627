#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RDMA connection manager: its messages go through the management queue pair.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs rping ucmatose udaddy cmtime rstream riostream
set_up make_net
set_up add_links

# connect ADDRESS [OPTIONS]: rping verifies the data that it gets back (-V).
connect() {
	rpings "$@" -V
	wait_for no_objects r1
	wait_for no_objects r2
}

# Without a listener, the connection is rejected, not ignored.
rejected() {
	fails connect_only
	grep -i reject "$tmp/client.log"
	wait_for no_objects r2
}

connect_only() {
	start client n2 rping -c -a 10.77.0.1 -C 1
	ends "$pid"
}

# programs ADDRESS PROGRAM [OPTIONS]: the program on both sides, with the same options. Those of rsockets, cmtime and the
# others end with an error when something is missing; rstream and riostream verify the data with "-T v". They are not run
# with "-T a": the side that polls last takes the other side's end for an error.
programs() {
	local address=$1 program=$2 server rc=0

	shift 2
	start server n1 "$program" -b "$address" "$@"
	server=$pid
	wait_for -t 100 listening
	start client n2 "$program" -s "$address" "$@"
	ends "$pid" || rc=$?
	# A server without a client waits forever.
	[ "$rc" = 0 ] || kill "$server" 2>/dev/null || true
	ends "$server" || rc=$?
	cat "$tmp/server.log" "$tmp/client.log"
	[ "$rc" = 0 ] || return "$rc"
	wait_for no_objects r1
	wait_for no_objects r2
	wait_for fails listening
}

# says TEXT: both sides of the last programs have printed it.
says() {
	grep -q "$1" "$tmp/server.log" && grep -q "$1" "$tmp/client.log"
}

transfers() {
	programs "$@"
	says 'data transfers complete'
	says 'return status 0'
}

streams() {
	programs "$@" -T v
	says 'Gb/sec'
	says '^custom'
}

test_case "rping IPv4" connect 10.77.0.1 -C 10
test_case "rping IPv6" connect fd77::1 -C 10
test_case "rping size 4000" connect 10.77.0.1 -C 5 -S 4000
test_case "rping without a listener" rejected
test_case "ucmatose" transfers 10.77.0.1 ucmatose
test_case "ucmatose, 8 connections, 100 messages of 3000 bytes, IPv6" \
	transfers fd77::1 ucmatose -f ipv6 -c 8 -C 100 -S 3000
test_case "ucmatose, event channels change" transfers 10.77.0.1 ucmatose -c 4 -m
test_case "udaddy" transfers 10.77.0.1 udaddy
test_case "udaddy, 8 paths, 100 messages of 1000 bytes, IPv6" transfers fd77::1 udaddy -c 8 -C 100 -S 1000
test_case "cmtime, 20 connections" programs 10.77.0.1 cmtime -c 20
test_case "cmtime, 100 connections, 4 threads" programs 10.77.0.1 cmtime -c 100 -n 4
test_case "rstream" streams 10.77.0.1 rstream -S 1000 -C 100 -I 5
test_case "rstream, IPv6" streams fd77::1 rstream -f ipv6 -S 1000 -C 100 -I 5
test_case "rstream, 60000 bytes, nonblocking" streams 10.77.0.1 rstream -S 60000 -C 20 -I 3 -T n
test_case "riostream" streams 10.77.0.1 riostream -S 1000 -C 10 -I 20

run_cases "$@"
