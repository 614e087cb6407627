#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# interop.sh DIR NEAR FAR [REGEX]: two drivers over the wire, each as client and as server: every operation, at two MTUs, with
# IPv4 and IPv6 GIDs, and what goes over RC under loss. It ends with a matrix: how many of these conditions passed, for each test.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/interop/lib.sh
. "$(dirname "$0")/lib.sh"
shift 3

# conditions MTU NETEM: of the net devices, on both sides; nothing is done when they are so already.
conditions() {
	local side

	[ "$(cat "$tmp/conditions" 2>/dev/null)" != "$*" ] || return 0
	for side in 1 2; do
		on "$side" pair_conditions "$side" "$@"
	done
	echo "$*" >"$tmp/conditions"
}

# between MTU NETEM IP-VERSION SERVER-SIDE PROGRAM [OPTIONS]: under these conditions. MTU is that of the path; in the options
# it is @.
between() {
	local mtu=$1 netem=$2 ip=$3 side=$4 program=$5 options client=$((3 - $4)) port=$((20000 + RANDOM % 10000)) by=-x address

	shift 5
	options=${*//@/$mtu}
	conditions "$mtu" "$netem"
	case $program in
	peer) peers "$side" "$ip" "$mtu" "$options" ;;
	mckey) mckeys "$side" ;;
	rping)
		address=$(pair_address "$ip" "$side")
		together "on $side cm_listens" "$side" "rping -s -a $address -V $options" "rping -c -a $address -V $options"
		;;
	*)
		# A longer timeout, because the host may be busy: 0.27 s for each try.
		if [[ $program = ibv_* ]]; then by=-g; else options+=" -u 16"; fi
		options="$program $options -p $port $by"
		together "on $side port_listens $port" "$side" "$options ${gids[$ip$side]} -d r$side" \
			"$options ${gids[$ip$client]} -d r$client $(pair_address control "$side")"
		;;
	esac
}

# Each side's index of its GIDs.
find_gids() {
	local side ip

	declare -gA gids
	for side in 1 2; do
		for ip in 4 6; do
			gids[$ip$side]=$(on "$side" gid_index "r$side" "$(pair_address "$ip" "$side")") || return
		done
	done
}

# test_both NAME COMMAND...: with either as the server. NAME is a row of the matrix, "how" the condition.
test_both() {
	local name=$1 side

	shift
	for side in 1 2; do
		test_case "$name [$how]: ${drivers[3 - side]} -> ${drivers[side]}" \
			between "$mtu" "$netem" "$ip" "$side" "$@"
	done
}

reliable() {
	local mark=$1 test

	test_both "ibv_rc_pingpong$mark" ibv_rc_pingpong -c -n 50 -s 20000
	for test in send write; do
		test_both "ib_${test}_bw$mark" "ib_${test}_bw" -F -n 20
		test_both "ib_${test}_lat$mark" "ib_${test}_lat" -F -n 50
	done
	# perftest takes the other side's limit of READs for its own: 128 for C rxe, 16 for ferroce.
	test_both "ib_read_bw$mark" ib_read_bw -F -n 20 -o 16
	test_both "ib_read_lat$mark" ib_read_lat -F -n 50 -o 16
	for test in CMP_AND_SWAP FETCH_AND_ADD; do
		test_both "ib_atomic_bw $test$mark" ib_atomic_bw -F -n 50 -o 16 -A "$test"
		test_both "ib_atomic_lat $test$mark" ib_atomic_lat -F -n 50 -o 16 -A "$test"
	done
	test_both "rping$mark" rping -C 10 -S 4000
	for test in rc stream atomic; do test_both "data: $test$mark" peer "$test"; done
	atomic_write "$mark"
	if [ "${drivers[1]}" = "${drivers[2]}" ]; then
		test_both "data: flush$mark" peer flush
	elif [ -z "$mark" ]; then
		spoiled_flush
	fi
}

# When C rxe sends an ATOMIC WRITE again, it is one to address 0, because req_retry() in rxe_req.c takes it for neither an atomic
# nor a WRITE: as a client it fails, whoever the server is, if the right packet is lost. So it is not asked to.
atomic_write() {
	local mark=$1 side client

	for side in 1 2; do
		client=${drivers[3 - side]}
		[ -z "$mark" ] || [ "$client" != rxe ] || continue
		test_case "data: atomic_write$mark [$how]: $client -> ${drivers[side]}" \
			between "$mtu" "$netem" "$ip" "$side" peer atomic_write
	done
}

unreliable() {
	local test

	test_both "ibv_uc_pingpong" ibv_uc_pingpong -c -n 50 -s 20000
	test_both "ibv_ud_pingpong" ibv_ud_pingpong -c -n 50 -s @
	for test in send write; do
		test_both "ib_${test}_bw UC" "ib_${test}_bw" -F -n 20 -c UC
		test_both "ib_${test}_lat UC" "ib_${test}_lat" -F -n 50 -c UC
	done
	test_both "ib_send_bw UD" ib_send_bw -F -n 20 -c UD -s @
	test_both "ib_send_lat UD" ib_send_lat -F -n 50 -c UD -s @
	for test in uc ud; do test_both "data: $test" peer "$test"; done
}

# In the ICRC of a FLUSH, C rxe counts the headers twice, because its table of opcodes does not say where the payload of this one
# begins (rxe_opcode.c). It accepts only its own FLUSHes, and no other device accepts those. A case checks this: it fails when
# that changes.
spoiled_flush() {
	local side

	for side in 1 2; do
		test_case "FLUSH that rxe spoils [$how]: ${drivers[3 - side]} -> ${drivers[side]}" \
			spoiled "$side" between "$mtu" "$netem" "$ip" "$side" peer flush
	done
}

# spoiled SERVER-SIDE COMMAND...: the client gives up, and ferroce, where it is the server, has seen wrong checksums.
spoiled() {
	local side=$1 before

	shift
	before=$(bad_icrcs "$side")
	fails "$@"
	grep 'transport retry counter exceeded' "$tmp/client.log"
	[ "${drivers[side]}" = rxe ] || [ "$(bad_icrcs "$side")" -gt "$before" ]
}

bad_icrcs() {
	on "$1" sh -c "cat /sys/class/infiniband/r$1/ports/1/hw_counters/rx_bad_icrc || echo 0" 2>/dev/null
}

# Packets to a group reach ferroce. They do not reach C rxe, and a case checks this: it fails when that changes.
multicast() {
	local side to

	for side in 1 2; do
		to=": ${drivers[3 - side]} -> ${drivers[side]}"
		if [ "${drivers[side]}" = rxe ]; then
			test_case "multicast that rxe does not hear [$how]$to" deaf between "$mtu" "" "$ip" "$side" peer mcast
		else
			test_case "multicast [$how]$to" between "$mtu" "" "$ip" "$side" peer mcast
		fi
		[ "$ip" = 6 ] || test_case "mckey [$how]$to" between "$mtu" "" "$ip" "$side" mckey
	done
}

# deaf COMMAND...: ferroce_peer says that nothing arrived.
deaf() {
	fails "$@"
	grep 'nothing that was sent to the group arrived' "$tmp/server.log"
}

# Without losses the cases before would have shown nothing.
losses() {
	local side

	for side in 1 2; do
		on "$side" sh -c "tc -s qdisc show dev v$side | grep 'dropped [1-9]'"
	done
}

# matrix: from the TAP lines of the cases with a direction.
matrix() {
	awk '
	match($0, /^(not )?ok [0-9]+ /) && / -> / {
		ok = $1 == "ok"
		line = substr($0, RLENGTH + 1)
		direction = line
		sub(/.*: /, "", direction)
		name = line
		sub(/ \[.*/, "", name)
		if (!(name in seen)) { seen[name]; names[++n] = name }
		if (!(direction in known)) { known[direction]; directions[++d] = direction }
		all[name, direction]++
		passed[name, direction] += ok
	}
	END {
		printf "# %-40s", "passed of all; client -> server"
		for (i = 1; i <= d; i++) printf "  %-16s", directions[i]
		print ""
		for (i = 1; i <= n; i++) {
			printf "# %-40s", names[i]
			for (j = 1; j <= d; j++) {
				a = all[names[i], directions[j]]
				printf "  %-16s", a ? (passed[names[i], directions[j]] + 0) " of " a : "-"
			}
			print ""
		}
	}'
}

set_up pair_start
set_up route
set_up find_gids
# Each MTU with one IP version while nothing is lost, and with the other while something is.
for condition in "1024 4 clean" "4096 6 clean" "1024 6 lossy" "4096 4 lossy"; do
	read -r mtu ip netem <<<"$condition"
	how="IPv$ip, MTU $mtu, $netem"
	if [ "$netem" = clean ]; then
		netem=
		reliable ""
		unreliable
		multicast
	else
		netem="delay 1ms loss 1%"
		reliable ", loss"
		test_case "packets were lost [$how]" losses
	fi
done
test_case "the modules unload" pair_end

(run_cases "$@") | tee /tmp/interop.tap
rc=${PIPESTATUS[0]}
matrix </tmp/interop.tap
exit "$rc"
