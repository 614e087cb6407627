#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# fio's rdma engine: each of its verbs, with the data verified. A stream of SENDs carries fio's own checksums. With WRITE and
# READ the passive side sees no request, so the memory of both sides is a file, and the blocks in them are compared.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs fio split md5sum comm
fio --enghelp=rdma 2>/dev/null | grep -q verb || skip_all "fio has no rdma engine"
set_up make_net
set_up add_links

listening_or_gone() {
	listening || gone "$1"
}

# jobs SERVER_OPTIONS -- CLIENT_OPTIONS: runs a server and a client, whose job is a write for fio with any verb.
jobs() {
	local options=() rc=0 server

	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	start server n1 fio --thread --name=server --ioengine=rdma --port=18600 --rw=read "${options[@]}"
	server=$pid
	wait_for -t 100 listening_or_gone "$server" && listening || rc=$?
	if [ "$rc" = 0 ]; then
		start client n2 fio --thread --name=client --ioengine=rdma --hostname=10.77.0.1 --port=18600 --rw=write "$@"
		ends "$pid" || rc=$?
	fi
	# A server without a client waits forever, and only SIGKILL ends it.
	[ "$rc" = 0 ] || kill -KILL "$server" 2>/dev/null || true
	ends "$server" || rc=$?
	touch "$tmp/client.log"
	if [ "$rc" != 0 ] || grep -i 'verify:\|error' "$tmp/server.log" "$tmp/client.log"; then
		sed 's/^/server: /' "$tmp/server.log"
		sed 's/^/client: /' "$tmp/client.log"
		return 1
	fi
	wait_for no_objects r1 && wait_for no_objects r2
}

# moved LOG MIB: checks that fio has counted that many.
moved() {
	grep -qE "io=($(($2 * 1024))KiB|$2\.0MiB)" "$tmp/$1.log" || { cat "$tmp/$1.log"; return 1; }
}

# send_jobs: jobs of SENDs. fio asks for no RNR retries, and its server has half a second to post the receives, which may be too
# short: then the jobs are repeated.
send_jobs() {
	until jobs "$@" --verb=send; do
		grep -q 'RNR retry counter exceeded' "$tmp/client.log" || return
	done
}

# sends BLOCK MESSAGES MIB: there is a receive for every message from the start.
sends() {
	local options=(--bs="$1" --size="$3M" --verify=crc32c --do_verify=0)

	send_jobs "${options[@]}" --iodepth="$2" -- "${options[@]}" --iodepth=8
	moved server "$3"
	moved client "$3"
}

# Wrong data is detected: the server expects another pattern than the client sends.
finds_wrong_data() {
	local options=(--bs=4k --iodepth=16 --size=64k --verify=pattern --do_verify=0)

	fails send_jobs "${options[@]}" --verify_pattern=0x5a -- "${options[@]}" --verify_pattern=0x5b
	grep -q 'verify' "$tmp/server.log"
}

# sums FILE BLOCK: prints the checksums of the blocks, each once.
sums() {
	split -b "$2" --filter='md5sum' "$1" | sort -u
}

# memory VERB BLOCK DEPTH MIB: checks that every block of the destination is equal to one of the other side, and none to one
# from before. fio picks one of its peer's blocks at random each time, so there are many more operations than blocks. It removes
# the files at its end: the data stays under a second name.
memory() {
	local verb=$1 block=$2 depth=$3 side from=client to=server
	local options=(--bs="$2" --iodepth="$3" --size="$4M" --scramble_buffers=0)

	[ "$verb" = write ] || from=server to=client
	for side in server client; do
		head -c $((block * depth)) /dev/urandom >"$tmp/$side"
		ln -f "$tmp/$side" "$tmp/$side.mem"
	done
	sums "$tmp/$to" "$block" >"$tmp/before"
	jobs "${options[@]}" --iomem="mmapshared:$tmp/server.mem" -- \
		"${options[@]}" --iomem="mmapshared:$tmp/client.mem" --verb="$verb"
	moved client "$4"
	sums "$tmp/$from" "$block" >"$tmp/from"
	sums "$tmp/$to" "$block" >"$tmp/to"
	equal "$depth" "$(wc -l <"$tmp/from")"
	equal '' "$(comm -13 "$tmp/from" "$tmp/to")"
	equal '' "$(comm -12 "$tmp/before" "$tmp/to")"
}

test_case "SEND, blocks of 4 KB" sends 4k 512 2
test_case "SEND, blocks of 256 KB" sends 256k 32 8
test_case "corrupted data is detected" finds_wrong_data
test_case "RDMA WRITE, blocks of 4 KB" memory write 4096 8 2
test_case "RDMA WRITE, blocks of 1 MB" memory write 1048576 4 64
test_case "RDMA READ, blocks of 4 KB" memory read 4096 8 2
test_case "RDMA READ, blocks of 1 MB" memory read 1048576 4 64

run_cases "$@"
