# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions that the programs here share, in addition to those of the selftests' lib.sh. The programs run in the near machine of
# scripts/vm/pair, and are called with the drivers of both sides: PROGRAM DIR NEAR FAR, where DIR has the built selftests.

# shellcheck source=scripts/vm/pair.sh
. /src/scripts/vm/pair.sh
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. /src/tools/testing/selftests/rdma/lib.sh

peer=$1/ferroce_peer
drivers=("" "$2" "$3")
# Seconds for one program.
limit=120

# begin NAME SIDE COMMAND...: start(), on either side.
begin() {
	local name=$1 side=$2

	shift 2
	if [ "$side" = 1 ]; then
		start "$name" "" timeout "$limit" "$@"
	else
		start "$name" "" on "$side" timeout "$limit" "$@"
	fi
}

# together READY SERVER-SIDE 'SERVER' 'CLIENT': the server on a side, the client on the other one when the command READY
# has succeeded. Fails with whichever fails, or reports wrong data.
together() {
	local ready=$1 side=$2 client server rc=0

	# shellcheck disable=SC2086 # Words of a command.
	begin server "$side" $3
	server=$pid
	# shellcheck disable=SC2086
	$ready || rc=$?
	if [ "$rc" = 0 ]; then
		# shellcheck disable=SC2086
		begin client $((3 - side)) $4
		client=$pid
		ends "$client" || rc=$?
	fi
	# A server that was never spoken to waits for ever.
	[ "$rc" = 0 ] || kill -KILL "$server" 2>/dev/null || true
	ends "$server" || rc=$?
	# The pingpongs report wrong data and exit with 0.
	! grep -qi 'invalid data' "$tmp/server.log" "$tmp/client.log" || rc=1
	if [ "$rc" != 0 ]; then
		echo "$3: $rc"
		sed 's/^/server: /' "$tmp/server.log"
		sed 's/^/client: /' "$tmp/client.log"
	fi
	return "$rc"
}

# peers SERVER-SIDE IP-VERSION MTU TEST: ferroce_peer on both sides.
peers() {
	local side=$1 port=$((20000 + RANDOM % 10000)) words

	shift
	words="$* $port"
	together "on $side port_listens $port" "$side" "$peer $side $words" "$peer $((3 - side)) $words $(pair_address control "$side")"
}

# route: the connection manager asks the routing table for the way to a group.
route() {
	ip route replace 239.0.0.0/8 dev v1 && on 2 ip route replace 239.0.0.0/8 dev v2
}

# mckeys RECEIVING-SIDE: groups of the connection manager. The receiver ends when it has got everything.
#
# The sender ends as soon as it has posted ten datagrams, and C rxe drops what it has not sent when a queue pair is destroyed:
# from none to all of them leave. So it sends more often.
mckeys() {
	# The first datagrams may come before the net device has the address in its filter.
	local side=$1 times=10

	[ "${drivers[3 - side]}" != rxe ] || times=30
	together "wait_for -t 100 grep -q receiving $tmp/server.log" "$side" \
		"stdbuf -oL mckey -m 239.9.9.$side -b $(pair_address 4 "$side")" \
		"/src/tools/testing/interop/mckey-times $times -m 239.9.9.$side -b $(pair_address 4 $((3 - side))) -s"
	grep 'data transfers complete' "$tmp/server.log"
	grep 'test complete' "$tmp/client.log"
	cat "$tmp/client.log" "$tmp/server.log" | grep 'return status 0'
}

pair_start() {
	pair_up && pair_load 1 "${drivers[1]}" && on 2 pair_load 2 "${drivers[2]}"
}

# pair_end: as a last case: both modules unload.
pair_end() {
	on 2 pair_unload 2 "${drivers[2]}"
	pair_unload 1 "${drivers[1]}"
}
