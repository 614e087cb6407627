# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts that run in the virtual machine: . /src/scripts/vm/guest.sh
#
# Scripts wait for a condition, with a limit: under emulation, no fixed time is long enough.

# Loads the modules that ferroce.ko needs, and the network devices that the tests use. A kernel may have some of them built in.
load_dependencies() {
	modprobe -a ib_uverbs rdma_ucm ib_umad udp_tunnel ip6_udp_tunnel || return
	modprobe -qa veth dummy tun 8021q sch_netem || true
	wait_for test -e /dev/infiniband/rdma_cm
}

load_ferroce() {
	load_dependencies && insmod /out/ferroce.ko "$@"
}

# fewer_providers: removes the providers of rdma-core except those of software devices. A program that opens a device loads them
# all, which takes two thirds of its start.
fewer_providers() {
	local file

	for file in /etc/libibverbs.d/*; do
		[[ $file = */@(rxe|siw).driver ]] || rm "$file"
	done
}

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
			echo "# timed out after $limit s: $*"
			return 1
		fi
		moment
	done
}

# in_ns NETNS COMMAND...: runs a command in a network namespace; "" is the current one.
in_ns() {
	local ns=$1

	shift
	if [ -n "$ns" ]; then ip netns exec "$ns" "$@"; else "$@"; fi
}

# wait_port NETNS PORT: until a TCP socket listens there.
wait_port() {
	wait_for in_ns "$1" sh -c "ss -Hltn 'sport = :$2' | grep -q ."
}

# wait_state DEVICE ACTIVE|DOWN|INIT
wait_state() {
	wait_for grep -q ": $2\$" "/sys/class/infiniband/$1/ports/1/state"
}

# gid_of ADDRESS: prints the GID of an IPv4 or IPv6 address as sysfs does.
gid_of() {
	local a

	case $1 in
	*.*)
		IFS=. read -ra a <<<"$1"
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' "${a[@]}"
		;;
	*) python3 -c 'import ipaddress, sys; print(ipaddress.ip_address(sys.argv[1]).exploded)' "$1" ;;
	esac
}

# find_gid DEVICE GID: index of a RoCE v2 GID. There are hundreds of empty entries: it starts no process for each.
find_gid() {
	local dir=/sys/class/infiniband/$1/ports/1 file gid index type

	for file in "$dir"/gids/*; do
		read -r gid 2>/dev/null <"$file" || continue
		[ "$gid" = "$2" ] || continue
		index=${file##*/}
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

# make_net: namespaces n1 and n2 with a veth pair v1, v2 between them, MTU 4200 (room for a 4096-byte path MTU), and the
# addresses 10.77.0.1 and .2, fd77::1 and ::2.
make_net() {
	local i

	ip netns add n1
	ip netns add n2
	# siw listens by the index of the net device, in any namespace.
	ip link add v1 index 101 netns n1 mtu 4200 type veth peer name v2 index 102 netns n2 mtu 4200
	for i in 1 2; do
		ip -n "n$i" link set lo up
		# Duplicate address detection would keep the IPv6 GID away for seconds.
		ip netns exec "n$i" sysctl -qw "net.ipv6.conf.v$i.accept_dad=0"
		ip -n "n$i" addr add "10.77.0.$i/24" dev "v$i"
		ip -n "n$i" addr add "fd77::$i/64" dev "v$i" nodad
		ip -n "n$i" link set "v$i" up
	done
}

# add_links [TYPE]: device r1 on v1 and r2 on v2, with their GIDs in place.
add_links() {
	local i

	for i in 1 2; do
		ip netns exec "n$i" rdma link add "r$i" type "${1:-ferroce}" netdev "v$i" || return
		wait_state "r$i" ACTIVE && gid_index "r$i" "10.77.0.$i" && gid_index "r$i" "fd77::$i" || return
	done >/dev/null
}

delete_links() {
	rdma link delete r1 && rdma link delete r2
}

# serve_and_connect PORT 'SERVER COMMAND' 'CLIENT COMMAND': the server in n1, or in $server_ns, the client in n2, or in $client_ns,
# once the port listens. Fails if either fails.
serve_and_connect() {
	local port=$1 server rc=0 server_ns=${server_ns:-n1} client_ns=${client_ns:-n2}

	ip netns exec "$server_ns" sh -c "exec $2" >"/tmp/server.$port" 2>&1 &
	server=$!
	wait_port "$server_ns" "$port" && ip netns exec "$client_ns" sh -c "exec $3" || rc=$?
	if [ "$rc" != 0 ]; then
		kill "$server" 2>/dev/null
		sed 's/^/# server: /' "/tmp/server.$port"
	fi
	wait "$server" || rc=$?
	return "$rc"
}

# bandwidth_in SECONDS: from the result line of perftest, the last that begins with the size of the message: MiB/s by the number of
# messages. perftest prints a rate only if it could tell how fast the clock of the processor is, which fails beside other programs.
# Of more than four seconds (-D) it leaves out the first two and the last two.
bandwidth_in() {
	awk -v time="$(($1 > 4 ? $1 - 4 : $1))" \
		'/^ [0-9]/ {n = $1 * $2} END {if (n == "") exit 1; printf "%.6g\n", n / time / 2 ^ 20}'
}
