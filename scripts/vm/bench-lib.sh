# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For the scripts bench-*rounds: loads one driver at a time, and runs the programs that measure. The scripts define rows, figure
# and record, and may define begin and end.

PORT=18515 NETPERF_PORT=12865
# The devices of the two ends, and the address of the server; bench-loss-rounds has other ends, too.
server_dev=r1 client_dev=r2 address=10.77.0.1
# A measurement takes some seconds on a quiet machine.
LIMIT=90
netserver='' finished=0 total=0 began=$SECONDS

# progress TEXT: prints the text, and an estimate of the remaining time.
progress() {
	local left='' passed=$((SECONDS - began))

	[ "$finished" = 0 ] || left=", $((passed * (total - finished) / finished / 60 + 1)) min left"
	echo "# $((finished + 1))/$total, $1$left"
}

note_failure() {
	echo "# FAILED: $1"
	{ echo "=== $1"; cat; } >>/out/failures.log
}

# begin NET DRIVER, and end: before and after the measurements of a driver, while it is loaded.
begin() {
	:
}

end() {
	:
}

# measure_driver DRIVER ROUND [NET]: the figures in rows. The last fields of a row are test, size and queue pairs.
# shellcheck disable=SC2154 # rows and rounds are the caller's.
measure_driver() {
	local driver=$1 row loaded=1 value test size qps

	if ! { load "$driver" && begin "${3-}" "$driver"; } >/tmp/load 2>&1; then
		loaded=''
		note_failure "$driver does not load" </tmp/load
	fi
	for row in "${rows[@]}"; do
		progress "round $2 of $rounds: $driver: $row"
		IFS=, read -r test size qps <<<"${row#"${row%,*,*,*}",}"
		if [ -z "$loaded" ] || ! value=$(measure "$driver" "$test" "$size" "$qps"); then
			[ -z "$loaded" ] || note_failure "$driver $row" </tmp/said
			value=failed
		fi
		record "$row" "$driver" "$value" "$test"
		finished=$((finished + 1))
	done
	end
	# Two drivers cannot be loaded side by side, so the benchmark ends.
	unload "$driver" >/tmp/load 2>&1 || { note_failure "$driver does not unload: end" </tmp/load; return 1; }
}

# measure DRIVER TEST SIZE QPS: prints the value. perftest compares two clocks of the processor before it begins, and if they
# disagree on a busy host, all its figures are 0: then it is run again.
measure() {
	local value

	for _ in {1..10}; do
		value=$(figure "$@" 2>/tmp/said) || return
		[[ $value =~ ^0(\ |$) ]] || { echo "$value"; return; }
		echo "# perftest could not tell how fast the clock is: once more" >&2
	done
	return 1
}

load() {
	case $1 in
	tcp) start_netserver; return ;;
	ferroce) load_ferroce || return ;;
	siw) insmod /src/build/siw/siw.ko || return ;;
	*) modprobe "rdma_$1" || return ;;
	esac
	if [ "$1" = siw ]; then add_siw_links; return; fi
	add_links "$1" && gid1=$(gid_index r1 10.77.0.1) && gid2=$(gid_index r2 10.77.0.2)
}

# iWARP has no GIDs of addresses.
add_siw_links() {
	local i

	for i in 1 2; do
		ip netns exec "n$i" rdma link add "r$i" type siw netdev "v$i" && wait_state "r$i" ACTIVE || return
	done
}

start_netserver() {
	[ -n "$netserver" ] || ip netns exec n1 netserver -p "$NETPERF_PORT" && wait_port n1 "$NETPERF_PORT" && netserver=1
}

# Unloads the driver. A module that is already gone is no error.
unload() {
	case $1 in
	tcp) return ;;
	rxe) set -- rdma_rxe ;;
	esac
	delete_links
	[ ! -e "/sys/module/$1" ] || wait_for rmmod "$1"
}

# nominal_frequency: perftest requires the frequency of the processor in /proc/cpuinfo, which User Mode Linux does not have there.
# If it differs much from the one that perftest measures, perftest uses the latter.
nominal_frequency() {
	! grep -q '^cpu MHz' /proc/cpuinfo || return 0
	{ cat /proc/cpuinfo; echo 'cpu MHz : 1'; } >/tmp/cpuinfo
	mount --bind /tmp/cpuinfo /proc/cpuinfo
}

# perftest DRIVER COMMAND PREFIX: the result line, which is the last that begins with the size of the message. The prefix is
# for the client only.
perftest() {
	local client server

	if [ "$1" = siw ]; then
		server="$2 -p $PORT -R" client="$3 $2 -p $PORT -R $address"
	else
		server="$2 -p $PORT -d $server_dev -x $gid1" client="$3 $2 -p $PORT -d $client_dev -x $gid2 $address"
	fi
	pair "$server" "$client" | awk '/^ [0-9]/ {l = $0} !/^ [0-9]/ {print >"/dev/stderr"} END {if (l == "") exit 1; print l}'
}

# pair 'SERVER COMMAND' 'CLIENT COMMAND': a program that hangs ends after a while.
pair() {
	local limit="timeout -k 5 $LIMIT"

	serve_and_connect "$PORT" "$limit $1" "$limit $2 2>&1"
}

# connected N: the clients have connected N queue pairs.
connected() {
	[ "$(rdma resource show qp | grep -c '^link r2/1 .* type RC state RTS ')" = "$1" ]
}

# iperf3_bw SIZE STREAMS: over all streams, as the receiver saw it. iperf3 notices the end of a number of bytes (-n) only once a
# second, and counts that second.
iperf3_bw() {
	iperf3_pair "-l $1 -P $2 -t 2"
}

# iperf3_pair OPTIONS: the rate in MiB/s that the receiver saw.
iperf3_pair() {
	pair "iperf3 -s -1 -p $PORT" "iperf3 -c $address -p $PORT $1 -f M" | tee /dev/stderr |
		awk '/receiver$/ {for (i = 2; i <= NF; i++) if ($i == "MBytes/sec") v = $(i - 1)} END {if (v == "") exit 1; print v}'
}

# netperf_lat SIZE: half of the time of a transaction.
netperf_lat() {
	ip netns exec n2 timeout -k 5 "$LIMIT" netperf -H 10.77.0.1 -p "$NETPERF_PORT" -t TCP_RR -l -3000 -P 0 -- -r "$1,$1" |
		tee /dev/stderr |
		awk 'NF == 6 {v = 500000 / $6} END {if (v == "") exit 1; printf "%.6g\n", v}'
}
