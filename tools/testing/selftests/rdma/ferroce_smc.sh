#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# SMC-R: sockets whose data the kernel sends by RDMA.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs python3
modprobe -q smc || skip_all "no SMC"
smc=$(dirname "$0")/smc.py
port=7777

add_eid() {
	python3 "$smc" add-eid
}

serve() {
	start echo n1 python3 "$smc" echo "$port"
	wait_for in_file listening "$tmp/echo.log" || { cat "$tmp/echo.log"; return 1; }
}

# SMC keeps its queue pairs for ten minutes after the last connection.
clean() {
	modprobe -r smc
	delete_links
	ip netns delete n1
	ip netns delete n2
}

check() {
	in_ns n2 python3 "$smc" check 10.77.0.1 "$port" "$1"
}

sent_bytes() {
	counter r2 sent_bytes
}

# over_rdma BYTES: there and back. Fails if SMC uses TCP.
over_rdma() {
	local before

	before=$(sent_bytes)
	check "$1" && [ $(($(sent_bytes) - before)) -ge "$1" ]
}

# SMC uses TCP if the handshake takes more than two seconds.
there_and_back() {
	local tries=5

	serve
	until over_rdma "$1"; do tries=$((tries - 1)) && [ "$tries" != 0 ]; done
}

# The buffers of the server are longer than the region that a device advertises: 4 MiB.
large_buffer() {
	local file=/proc/sys/net/smc/rmem before

	before=$(in_ns n1 cat "$file")
	in_ns n1 sh -c "echo 4194304 >$file"
	there_and_back 1000000
	in_ns n1 sh -c "echo $before >$file"
	# Without contiguous memory, SMC would have taken a smaller buffer.
	rdma resource show mr | grep -w 'mrlen 4194304'
}

many() {
	local i before pids=()

	serve
	before=$(sent_bytes)
	for i in 1 2 3 4 5 6 7 8; do
		start "check$i" n2 python3 "$smc" check 10.77.0.1 "$port" 300000
		pids+=("$pid")
	done
	for i in "${!pids[@]}"; do ends "${pids[i]}" || { cat "$tmp/check$((i + 1)).log"; return 1; }; done
	[ $(($(sent_bytes) - before)) -ge $((8 * 300000)) ]
}

set_up make_net
set_up add_links
set_up add_eid
test_case "a few bytes" there_and_back 100
test_case "a megabyte" there_and_back 1000000
test_case "a large buffer" large_buffer
test_case "eight connections at once" many

run_cases "$@"
