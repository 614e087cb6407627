# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions for waiting, and for two network namespaces with a device each: lib.sh and scripts/vm/guest.sh source this file.
#
# Scripts wait for a condition, with a limit: under emulation, no fixed time is long enough. To start a program takes a tenth of a
# second there, so conditions that are checked again and again are read by the shell itself.

# A pipe that never has data: waiting for it starts no program, unlike sleep.
exec {nothing}<> <(:)

moment() {
	read -rt 0.02 -u "$nothing" || true
}

# wait_for [-t SECONDS] COMMAND...: waits until the command succeeds; fails after 30 s, or SECONDS.
wait_for() {
	local limit=30 end

	[ "$1" != -t ] || { limit=$2; shift 2; }
	end=$((SECONDS + limit))
	until "$@" >/dev/null 2>&1; do
		if [ "$SECONDS" -ge "$end" ]; then
			echo "timed out after $limit s: $*"
			return 1
		fi
		moment
	done
}

# in_file TEXT FILE: the file has the text. Fails too when there is no such file.
in_file() {
	local lines

	{ mapfile -t lines <"$2"; } 2>/dev/null || return
	[[ "${lines[*]}" = *"$1"* ]]
}

# in_ns NETNS COMMAND...: runs a command in a network namespace; "" is the current one. It keeps its /sys, as RDMA devices are
# seen from everywhere, and a new mount of it for each command would be slow.
in_ns() {
	local ns=$1

	shift
	if [ -n "$ns" ]; then nsenter --net="/run/netns/$ns" "$@"; else "$@"; fi
}

# wait_state DEVICE ACTIVE|DOWN|INIT
wait_state() {
	wait_for in_file ": $2" "/sys/class/infiniband/$1/ports/1/state"
}

# gid_of ADDRESS: prints the GID of an IPv4 or IPv6 address as sysfs does.
gid_of() {
	local a head tail i gid=''

	case $1 in
	*.*)
		IFS=. read -ra a <<<"$1"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' "${a[@]}"
		;;
	*::*)
		IFS=: read -ra head <<<"${1%%::*}"
		IFS=: read -ra tail <<<"${1#*::}"
		a=("${head[@]}")
		for ((i = ${#head[@]} + ${#tail[@]}; i < 8; i++)); do a+=(0); done
		for i in "${a[@]}" "${tail[@]}"; do gid+=$(printf ':%04x' "0x$i"); done
		echo "${gid#:}"
		;;
	esac
}

# find_gid DEVICE GID: index of a RoCE v2 GID. The first entries are enough: the table has hundreds, nearly all empty.
find_gid() {
	local dir=/sys/class/infiniband/$1/ports/1 gid index type

	for ((index = 0; index < 32; index++)); do
		read -r gid 2>/dev/null <"$dir/gids/$index" || continue
		[ "$gid" = "$2" ] || continue
		read -r type 2>/dev/null <"$dir/gid_attrs/types/$index" || continue
		[ "$type" = "RoCE v2" ] || continue
		echo "$index"
		return
	done
	return 1
}

# gid_index DEVICE ADDRESS: the index of the address's RoCE v2 GID, as soon as there is one.
gid_index() {
	local gid

	gid=$(gid_of "$2")
	wait_for find_gid "$1" "$gid" && find_gid "$1" "$gid"
}

# make_ns NETNS...: without duplicate address detection. While the link-local address of an interface is tentative, for up to two
# seconds, the kernel sends no neighbour solicitation for the RDMA core, which gives up after one.
make_ns() {
	local ns

	for ns; do
		ip netns add "$ns" && ip -n "$ns" link set lo up || return
		in_ns "$ns" sh -c 'echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad' || return
	done
}

# make_net [MTU]: namespaces n1 and n2 with a veth pair v1, v2 between them, MTU 4200 (room for a 4096-byte path MTU), and
# the addresses 10.77.0.1 and .2, fd77::1 and ::2.
make_net() {
	local i

	make_ns n1 n2 || return
	# The indexes differ: if a device and its peer have the same one, linkwatch takes it for one without a peer, and delays
	# it for up to a second. Until then it drops all packets to send, replies to neighbour solicitations, too.
	ip link add v1 index 101 netns n1 mtu "${1:-4200}" type veth peer name v2 index 102 netns n2 mtu "${1:-4200}" || return
	for i in 1 2; do
		# Duplicate address detection would keep the IPv6 GID away for seconds.
		ip -n "n$i" -batch - <<-END || return
			addr add 10.77.0.$i/24 dev v$i
			addr add fd77::$i/64 dev v$i nodad
			link set v$i up
		END
	done
}

# add_links [TYPE]: device r1 on v1 and r2 on v2, with their GIDs in place.
add_links() {
	local i

	for i in 1 2; do
		in_ns "n$i" rdma link add "r$i" type "${1:-ferroce}" netdev "v$i" || return
		wait_state "r$i" ACTIVE && gid_index "r$i" "10.77.0.$i" && gid_index "r$i" "fd77::$i" || return
	done >/dev/null
}

delete_links() {
	rdma link delete r1 && rdma link delete r2
}
