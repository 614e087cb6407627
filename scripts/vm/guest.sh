# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts that run in the virtual machine: . /src/scripts/vm/guest.sh

# shellcheck source=tools/testing/selftests/rdma/net.sh
. /src/tools/testing/selftests/rdma/net.sh

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

# wait_port NETNS PORT: until a TCP socket listens there.
wait_port() {
	wait_for in_ns "$1" sh -c "ss -Hltn 'sport = :$2' | grep -q ."
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
