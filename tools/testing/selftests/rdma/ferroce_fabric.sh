#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# libfabric: fi_pingpong with the provider verbs, over connected and datagram endpoints, with its check of the data.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs fi_pingpong fi_info
fi_info -l 2>/dev/null | grep -q '^verbs' || skip_all "libfabric has no provider verbs"
set_up make_net
set_up add_links

# fabric ENDPOINT OPTIONS
fabric() {
	local endpoint=$1 suffix=''

	shift
	[ "$endpoint" = msg ] || suffix=-dgram
	run_both 47592 "fi_pingpong -p verbs -e $endpoint -c -d r1$suffix $*" \
		"fi_pingpong -p verbs -e $endpoint -c -d r2$suffix $* 10.77.0.1"
	# There is a line of results for each size.
	grep -E '^[0-9].* [0-9.]+ +[0-9.]+' "$tmp/client.log" || { cat "$tmp/client.log"; return 1; }
	wait_for no_objects r1
	wait_for no_objects r2
}

sizes='-S all'
slow && sizes='-S 4096'
test_case "connected endpoints" fabric msg -I 10 "$sizes"
test_case "connected endpoints, 1 MB" fabric msg -I 5 -S 1048576
test_case "datagrams" fabric dgram -I 10 -S 1024
test_case "datagrams, 64 bytes" fabric dgram -I 100 -S 64

run_cases "$@"
