#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Random verbs of several threads (ferroce_random) while the network changes. The program ends by itself, is killed, or loses its
# device. Afterwards no objects are left, and new traffic works. The seed of a failed case is in its output.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ibv_rc_pingpong tc
# shellcheck disable=SC2034
after_each=clean

changes=8 steps=15000
! slow || changes=5 steps=2500

# The exit status of ferroce_random if a device was removed.
removed=3

# qdisc NUMBER WORDS...: sets the queueing discipline of v1 or v2.
qdisc() {
	in_ns "n$1" tc qdisc replace dev "v$1" root "${@:2}"
}

# bind_counters DEVICE: binds new queue pairs to counters for a moment. The core refuses while others are bound from the last time.
bind_counters() {
	if rdma statistic qp set link "$1/1" auto type on; then
		moment
		rdma statistic qp set link "$1/1" auto off
	fi
}

# change: changes something that the traffic depends on, or lists objects.
change() {
	local i=$((1 + RANDOM % 2)) object

	case $((RANDOM % 10)) in
	0) ip -n "n$i" link set "v$i" down && moment && ip -n "n$i" link set "v$i" up ;;
	1) ip -n "n$i" addr del "10.77.0.$i/24" dev "v$i" && moment && ip -n "n$i" addr add "10.77.0.$i/24" dev "v$i" ;;
	2) ip -n "n$i" link set "v$i" mtu $((1000 + RANDOM % 4000)) ;;
	3) qdisc "$i" pfifo limit $((1 + RANDOM % 20)) ;;
	4) qdisc "$i" netem rate 20mbit limit 30 ;;
	5) qdisc "$i" netem delay 2ms loss 2% limit 100 ;;
	6) qdisc "$i" noqueue ;;
	7) bind_counters "r$i" ;;
	8) rdma dev set "r$i" name r3 && rdma dev set r3 name "r$i" ;;
	9) for object in qp cq mr srq; do rdma resource show "$object" -dd || return; done >/dev/null ;;
	esac
}

# run STEPS: starts the program; $pid is its process.
run() {
	local seed=$SRANDOM

	echo "seed $seed"
	RANDOM=$seed
	make_net
	add_links
	start random "" "$programs/ferroce_random" "$seed" "$1"
	wait_for -t 100 in_file running "$tmp/random.log"
}

# ended STATUS: waits for the program, which must end with this status.
ended() {
	local status=0

	ends "$pid" || status=$?
	cat "$tmp/random.log"
	equal "$1" "$status"
}

# A new network, because the program and the changes have left the old one in any state.
works() {
	clean
	make_net
	add_links
	both ibv_rc_pingpong -c -n 10
}

by_itself() {
	run "$steps"
	until gone "$pid"; do change; done
	ended 0
	no_objects r1
	no_objects r2
	works
}

# ended_by STATUS COMMAND...: the command ends the program, which would run on and on.
ended_by() {
	local i

	run 1000000000
	for ((i = 0; i < changes; i++)); do change; done
	fails gone "$pid"
	"${@:2}"
	ended "$1"
}

kill_it() {
	kill -KILL "$pid"
}

killed() {
	ended_by 137 kill_it
	wait_for no_objects r1
	wait_for no_objects r2
	works
}

link_deleted() {
	ended_by "$removed" rdma link delete r1
	wait_for no_objects r2
	works
}

module_removed() {
	ended_by "$removed" rmmod ferroce
	fails loaded ferroce
	load_module
	works
}

test_case "random verbs" by_itself
test_case "random verbs, killed" killed
test_case "random verbs, link deleted" link_deleted
test_case "random verbs, module removed" module_removed

run_cases "$@"
