#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The RDMA connection manager: its messages go through the management queue pair.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs rping
set_up make_net
set_up add_links

# listening: somebody listens in the connection manager, in whatever namespace.
listening() {
	rdma resource show cm_id | grep -q 'state LISTEN'
}

# connect ADDRESS [OPTIONS]: rping verifies the data that it gets back (-V).
connect() {
	local address=$1 server client

	shift
	start server n1 rping -s -a "$address" -V "$@"
	server=$pid
	wait_for -t 100 listening
	start client n2 rping -c -a "$address" -V "$@"
	client=$pid
	ends "$client" || { cat "$tmp/server.log" "$tmp/client.log"; return 1; }
	ends "$server" || { cat "$tmp/server.log" "$tmp/client.log"; return 1; }
	wait_for no_objects r1
	wait_for no_objects r2
}

# Nobody listens: refused, not silence.
rejected() {
	fails connect_only
	grep -i reject "$tmp/client.log"
	wait_for no_objects r2
}

connect_only() {
	start client n2 rping -c -a 10.77.0.1 -C 1
	ends "$pid"
}

test_case "rping IPv4" connect 10.77.0.1 -C 10
test_case "rping IPv6" connect fd77::1 -C 10
test_case "rping size 4000" connect 10.77.0.1 -C 5 -S 4000
test_case "rping where nobody listens" rejected

run_cases "$@"
