#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# UCX: ucx_perftest over its transports rc_verbs and ud_verbs, from single operations (UCT) to matched messages, streams, one
# sided operations and active messages (UCP). It does not look at the data; the other programs here do.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ucx_perftest ucx_info
set_up make_net
set_up add_links
export UCX_WARN_UNUSED_ENV_VARS=n UCX_LOG_LEVEL=warn

# batch 'TEST OPTIONS'...: as many tests, one after the other, in one process on each side. -P 0: without MPI.
batch() {
	local test count=0

	for test; do
		count=$((count + 1))
		echo "test$count -t $test"
	done >"$tmp/batch"
	run_both 13337 "$server_options -P 0 -w 10 -b $tmp/batch" "$client_options -P 0 -w 10 -b $tmp/batch 10.77.0.1"
	equal $# "$(grep -c Final "$tmp/client.log")" || { cat "$tmp/client.log"; return 1; }
	# ucx_perftest asks rc_verbs for a flush at the peer, which UCX does not have there, and goes on.
	grep -E 'ERROR|FATAL|Fatal' "$tmp/server.log" "$tmp/client.log" | fails grep -v flush
	wait_for no_objects r1
	wait_for no_objects r2
}

# ucp TRANSPORT TESTS: the transport is the only one that there is, so that no traffic uses another one. By its short name, rc_v,
# rc_verbs may make its connections through ud_verbs.
ucp() {
	local server_options="env UCX_NET_DEVICES=r1:1 UCX_TLS=${1/_verbs/_v} ucx_perftest"
	local client_options="env UCX_NET_DEVICES=r2:1 UCX_TLS=${1/_verbs/_v} ucx_perftest"

	shift
	batch "$@"
}

# uct TRANSPORT TESTS
uct() {
	local server_options="ucx_perftest -x $1 -d r1:1" client_options="ucx_perftest -x $1 -d r2:1"

	shift
	batch "$@"
}

# It finds the device, and both transports on it.
info() {
	local name

	UCX_NET_DEVICES=r1:1 ucx_info -d >"$tmp/info"
	for name in rc_verbs ud_verbs; do
		grep -A1 "Transport: $name" "$tmp/info" | grep 'Device: r1:1'
	done
}

messages=('tag_lat -s 8 -n 200' 'tag_lat -s 4000 -n 50' 'tag_bw -s 65536 -n 50' 'tag_bw -s 1048576 -n 5')
one_sided=('ucp_put_lat -s 8 -n 100' 'ucp_put_bw -s 65536 -n 50' 'ucp_get -s 65536 -n 50')
slow || messages+=('tag_sync_lat -s 8 -n 100' 'stream_bw -s 16384 -n 100' 'stream_lat -s 8 -n 100' 'ucp_am_bw -s 16384 -n 100')
slow || one_sided+=('ucp_fadd -s 8 -n 100' 'ucp_cswap -s 8 -n 100')

test_case "devices and transports" info
for transport in rc_verbs ud_verbs; do
	test_case "$transport: messages" ucp "$transport" "${messages[@]}"
	test_case "$transport: one sided" ucp "$transport" "${one_sided[@]}"
	test_case "$transport: single active messages" uct "$transport" 'am_lat -D short -s 8 -n 200' 'am_bw -D bcopy -s 1000 -n 200' \
		'am_bw -D zcopy -s 1000 -n 200'
done
test_case "rc_verbs: single WRITE, READ and atomics" uct rc_verbs 'put_lat -D short -s 8 -n 200' \
	'put_bw -D zcopy -s 4096 -n 100' 'get -D zcopy -s 4096 -n 100' 'fadd -s 8 -n 100' 'cswap -s 8 -n 100'

run_cases "$@"
