# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions that the shell programs here share. A program sources this file, queues its cases with test_case and ends with
# run_cases.

# shellcheck source=tools/testing/selftests/rdma/net.sh
. "$(dirname "${BASH_SOURCE[0]}")/net.sh"

# The module is FERROCE_KO, or the one that modprobe finds.
: "${FERROCE_KO=/out/ferroce.ko}"

# The directory of the C programs: the current one, or that of the script.
programs=$PWD
[ -x "$programs/ferroce_peer" ] || programs=$(dirname "$0")

names=() cases=()
tmp=$(mktemp -d "${TMPDIR:-/tmp}/ferroce.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# ---- The program and its cases

# skip_all REASON
skip_all() {
	echo "TAP version 13"
	echo "1..0 # SKIP $*"
	exit 4
}

# test_case DESCRIPTION COMMAND...: queues a case. The command runs in a subshell under "set -e": the first command in it
# that fails makes the case fail. For a command that must fail there is "fails".
test_case() {
	names+=("$1")
	shift
	cases+=("$(printf '%q ' "$@")")
}

# need REASON COMMAND...: skips the case if the command fails.
need() {
	local reason=$1

	shift
	if "$@" >/dev/null 2>&1; then return; fi
	echo "$reason" >"$tmp/skip"
	exit
}

# run_cases [REGEX]: runs the queued cases, or those whose description matches; after each one the function $after_each.
run_cases() {
	local chosen=() i number=0 rc failed=0

	trap finish EXIT
	for i in "${!cases[@]}"; do
		[[ ${names[i]} =~ ${1-} ]] && chosen+=("$i")
	done
	echo "TAP version 13"
	[ "${#chosen[@]}" != 0 ] || { echo "Bail out! no case matches '${1-}'"; exit 1; }
	echo "1..${#chosen[@]}"
	for i in "${chosen[@]}"; do
		number=$((number + 1))
		rm -f "$tmp/skip"
		(
			set -eE
			trap 'echo "${BASH_SOURCE[0]##*/}:$LINENO: exit code $?: $BASH_COMMAND"' ERR
			eval "${cases[i]}"
		) >"$tmp/case.log" 2>&1 </dev/null
		rc=$?
		stop_all >>"$tmp/case.log" || rc=1
		if [ -n "${after_each-}" ]; then "$after_each" >>"$tmp/case.log" 2>&1 || rc=$?; fi
		if [ "$rc" = 0 ] && [ -e "$tmp/skip" ]; then
			echo "ok $number ${names[i]} # SKIP $(<"$tmp/skip")"
		elif [ "$rc" = 0 ]; then
			echo "ok $number ${names[i]}"
		else
			sed 's/^/# /' "$tmp/case.log"
			echo "not ok $number ${names[i]}"
			failed=1
		fi
	done
	exit "$failed"
}

# Cleans up at every exit, also at that of a program that is ended in the middle of a case.
finish() {
	{ stop_all 10; "${after_each-:}"; clean; } >/dev/null 2>&1
	rm -rf "$tmp"
}

# fails COMMAND...: the command must fail. (Under "set -e" a plain "! command" never ends a case.)
fails() {
	! "$@"
}

# refused ERROR COMMAND...: the command must fail, and say so.
refused() {
	local error=$1 text

	shift
	if text=$("$@" 2>&1); then
		echo "not refused: $*"
		return 1
	fi
	grep -qF "$error" <<<"$text" || { echo "$*: '$text' and not '$error'"; return 1; }
}

# equal WANTED GOT
equal() {
	[ "$1" = "$2" ] || { echo "wanted '$1', got '$2'"; return 1; }
}

# slow: succeeds on a debug kernel, which takes ten times as long; a selection of the cases has to be enough there.
slow() {
	[[ $(uname -r) = *debug* ]]
}

# ---- Processes

# start NAME NETNS COMMAND...: runs it in the background, output in $tmp/NAME.log; $pid is its process. It ends with the case.
start() {
	local name=$1 ns=$2

	shift 2
	if [ -n "$ns" ]; then set -- nsenter --net="/run/netns/$ns" "$@"; fi
	# The process empties the log only once it runs: until then, an earlier program's lines would pass for its own.
	: >"$tmp/$name.log"
	"$@" >"$tmp/$name.log" 2>&1 </dev/null &
	pid=$!
	echo "$pid" >>"$tmp/pids"
}

# stop_all [SECONDS]: kills the processes that start() started and waits for their end. Fails if one hangs in the kernel and does not
# end within 100 s, or SECONDS.
stop_all() {
	local pid rc=0

	[ -e "$tmp/pids" ] || return 0
	while read -r pid; do
		kill -KILL "$pid" 2>/dev/null || continue
		wait_for -t "${1-100}" gone "$pid" || { rc=1; cat "/proc/$pid/stack"; }
	done <"$tmp/pids"
	rm "$tmp/pids"
	return "$rc"
}

# state PID: sets $state to the state of a process, one letter; none once the process is gone.
state() {
	state=''
	{ read -rd '' state <"/proc/$1/stat"; } 2>/dev/null || true
	# "PID (NAME) STATE ...", and a name may have spaces.
	state=${state##*) }
	state=${state:0:1}
}

# gone PID: the process has ended, even if its parent has not waited for it.
gone() {
	local state

	state "$1"
	[[ $state = [ZX] || -z $state ]]
}

# ends PID: waits for a process of this shell; its exit code. Only one that hangs reaches the limit.
ends() {
	wait_for -t 600 gone "$1" && wait "$1"
}

# ---- The module

load_module() {
	if [ -e "$FERROCE_KO" ]; then insmod "$FERROCE_KO" "$@"; else modprobe ferroce "$@"; fi
}

# loaded MODULE
loaded() {
	local name

	while read -r name _; do [ "$name" != "$1" ] || return 0; done </proc/modules
	return 1
}

# need_programs PROGRAM...
need_programs() {
	local name

	for name; do
		command -v "$name" >/dev/null || skip_all "there is no program $name"
	done
}

# set_up COMMAND...: a step before the first case. If it fails, the program ends.
set_up() {
	trap finish EXIT
	"$@" >"$tmp/set_up.log" 2>&1 && return
	sed 's/^/# /' "$tmp/set_up.log"
	echo "Bail out! $*"
	exit 1
}

# need_module: loads the module, its dependencies and the drivers of net devices for the tests. Some may be built in.
need_module() {
	[ "$(id -u)" = 0 ] || skip_all "must be root"
	need_programs rdma ibv_devinfo ip ss nsenter
	modprobe -qa ib_uverbs ib_umad rdma_ucm veth dummy tun 8021q macvlan sch_netem udp_tunnel ip6_udp_tunnel
	if ! loaded ferroce; then
		[ -e "$FERROCE_KO" ] || modinfo ferroce >/dev/null 2>&1 || skip_all "no module ferroce"
		set_up load_module
	fi
}

# ---- Devices

# device DEVICE: it exists.
device() {
	[ -e "/sys/class/infiniband/$1" ]
}

# wait_gone DEVICE...
wait_gone() {
	local dev

	for dev; do wait_for fails device "$dev" || return; done
}

# active_mtu DEVICE: prints the active MTU, as the verbs report it.
active_mtu() {
	ibv_devinfo -d "$1" | sed -n 's/.*active_mtu:[[:space:]]*\([0-9]*\).*/\1/p'
}

# socket NETNS [-4|-6]: there is a socket at UDP port 4791.
socket() {
	in_ns "$1" ss -Huln ${2:+"$2"} 'sport = :4791' | grep -q .
}

# objects DEVICE: the number of its objects in user programs. The core has one protection domain, completion queue and queue pair.
objects() {
	local count=-3 line

	line=$(rdma resource show "$1") || return
	# "0: r1: pd 1 cq 1 qp 1 cm_id 0 ..."
	# shellcheck disable=SC2086 # Words.
	set -- ${line#*: *: }
	while [ $# -ge 2 ]; do
		count=$((count + $2))
		shift 2
	done
	echo "$count"
}

# no_objects DEVICE
no_objects() {
	[ "$(objects "$1")" = 0 ]
}

# counter DEVICE NAME: its value.
counter() {
	echo "$(<"/sys/class/infiniband/$1/ports/1/hw_counters/$2")"
}

# has_gid DEVICE ADDRESS: the device has the GID now.
has_gid() {
	find_gid "$1" "$(gid_of "$2")" >/dev/null
}

# ---- The network

# make_vlans ID PREFIX [MTU]: VLAN devices on v1 and v2, with the addresses PREFIX.1 and .2.
make_vlans() {
	local i

	for i in 1 2; do
		ip -n "n$i" -batch - <<-END || return
			link add link v$i name v$i.$1 ${3:+mtu $3} type vlan id $1
			addr add $2.$i/24 dev v$i.$1
			link set v$i.$1 up
		END
	done
}

# add_link DEVICE NETNS NETDEV
add_link() {
	in_ns "$2" rdma link add "$1" type ferroce netdev "$3"
}

# resolve_neighbours: before the network begins to lose packets, since the RDMA core waits one second for that.
resolve_neighbours() {
	local address

	for address in 10.77.0.1 fd77::1; do in_ns n2 ping -q -c 1 "$address" || return; done
}

# rps CPUS: a mask of the processors that receive packets; with 0, each receives the packets that it has sent. With 1, all packets of
# a net device go through one backlog. Those of different processors may overtake each other, which costs retries, or messages
# without a connection that retries.
rps() {
	local i

	has_rps || return 0
	for i in 1 2; do ip netns exec "n$i" sh -c "echo $1 >/sys/class/net/v$i/queues/rx-0/rps_cpus"; done
}

has_rps() {
	[ -e /sys/class/net/lo/queues/rx-0/rps_cpus ]
}

# make_device: the device r1 for both ends of kernel consumers, which talk over lo.
make_device() {
	ip link add v1 mtu 4200 type veth peer name v2 mtu 4200 && ip addr add 10.77.0.1/24 dev v1 && ip link set v2 up &&
		ip link set v1 up && rdma link add r1 type ferroce netdev v1 && wait_state r1 ACTIVE && gid_index r1 10.77.0.1
}

# clean: removes the devices and namespaces of the tests. Net devices are made in namespaces, and are removed with them.
clean() {
	local dev ns

	for dev in r1 r2 r3; do
		device "$dev" && rdma link delete "$dev"
	done
	for ns in n1 n2 n3; do
		[ -e "/run/netns/$ns" ] && ip netns delete "$ns"
	done
	wait_gone r1 r2 r3
}

# ---- Traffic

# listens PID PORT: a TCP socket listens in the network namespace of a process. Fails too when there is no such process.
listens() {
	local family port sockets

	printf -v port '%04X' "$2"
	for family in tcp tcp6; do
		{ mapfile -t sockets <"/proc/$1/net/$family"; } 2>/dev/null || return
		! [[ "${sockets[*]}" =~ :$port\ [0-9A-F:]+\ 0A ]] || return 0
	done
	return 1
}

listens_or_gone() {
	listens "$@" || gone "$1"
}

# listening: a server listens at the connection manager, in any namespace.
listening() {
	rdma resource show cm_id | grep -q 'state LISTEN'
}

# run_both PORT 'SERVER' 'CLIENT': the server in n1 (or $server_ns), the client in n2 (or $client_ns) once the port listens.
# Fails if either fails, or reports wrong data.
run_both() {
	local port=$1 client server rc=0

	# shellcheck disable=SC2086 # Words of a command.
	start server "${server_ns-n1}" $2
	server=$pid
	wait_for -t 100 listens_or_gone "$server" "$port" && listens "$server" "$port" || rc=$?
	if [ "$rc" = 0 ]; then
		# shellcheck disable=SC2086
		start client "${client_ns-n2}" $3
		client=$pid
		ends "$client" || rc=$?
	fi
	# A server without a client waits forever.
	[ "$rc" = 0 ] || kill "$server" 2>/dev/null || true
	ends "$server" || rc=$?
	# The pingpongs report wrong data and exit with 0.
	! in_file 'nvalid data' "$tmp/server.log" && ! in_file 'nvalid data' "$tmp/client.log" || rc=1
	if [ "$rc" != 0 ]; then
		echo "$2: $rc"
		sed 's/^/server: /' "$tmp/server.log"
		sed 's/^/client: /' "$tmp/client.log"
	fi
	return "$rc"
}

# exchange PROGRAM [OPTIONS]: the same, with the packets of UC and UD in order. RC needs no order. If one processor received all
# packets, and did not run for half a second, the retries would run out.
exchange() {
	case "$*" in
	*_u[cd]_* | *"-c U"*) rps 1 ;;
	*) rps 0 ;;
	esac
	both "$@"
}

# rpings ADDRESS [OPTIONS]: rping, with its server in n1 (or $server_ns) and its client in n2 (or $client_ns). With $lossy a packet of
# the connection manager may be lost, too: it does not repeat the disconnect request of a program that has exited, and the server
# waits for that one.
rpings() {
	local address=$1 server

	shift
	start server "${server_ns-n1}" rping -s -a "$address" "$@"
	server=$pid
	# The server listens at the connection manager, not at TCP.
	wait_for -t 100 listening || return
	start client "${client_ns-n2}" rping -c -a "$address" "$@"
	if ! { ends "$pid" && { [ -n "${lossy-}" ] || ends "$server"; }; }; then
		cat "$tmp/server.log" "$tmp/client.log"
		return 1
	fi
}

# both PROGRAM [OPTIONS]: the server on r1 in n1, the client on r2 in n2, by their GIDs of IP version $ip (4).
both() {
	local option=-g a1=10.77.0.1 a2=10.77.0.2

	[ "${ip-4}" = 4 ] || a1=fd77::1 a2=fd77::2
	[[ $1 = ibv_* ]] || option=-x
	run_both 18515 "$* -d r1 $option $(gid_index r1 $a1)" "$* -d r2 $option $(gid_index r2 $a2) 10.77.0.1"
}
