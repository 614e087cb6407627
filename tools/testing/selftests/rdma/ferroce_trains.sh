#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Packets that cross the network stack in trains: received whole, taken apart on the way, and lost.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/testing/selftests/rdma/disturb.sh
. "$(dirname "$0")/disturb.sh"
need_module
need_programs ibv_rc_pingpong rping ib_send_bw tc ip ping python3 taskset
xdp_pid=()
worker_cpus=/sys/devices/virtual/workqueue/cpumask
all_cpus=$(<"$worker_cpus")
# shellcheck disable=SC2034
after_each=tidy

tidy() {
	local rc=0

	clean || rc=$?
	echo "$all_cpus" >"$worker_cpus"
	return "$rc"
}

prepare() {
	# One processor sends and receives all packets: while it does not run, no timer of a queue pair expires either.
	taskset -cp 0 "$BASHPID" >/dev/null
	echo 1 >"$worker_cpus"
	make_net
	rps 1
	add_links
}

# xdp NUMBER WORDS...: attaches an XDP program to the net device with this number: ferroce_xdp.
xdp() {
	attach_xdp "n$1" "v$1" "${@:2}"
	xdp_pid[$1]=$pid
}

# xdp_off NUMBER: detaches it; sets $seen to the number of packets that it has seen.
xdp_off() {
	detach_xdp "${xdp_pid[$1]}" "v$1"
}

# feature NUMBER FEATURE on|off
feature() {
	in_ns "n$1" "$programs/ferroce_feature" "v$1" "$2" "$3"
}

# show_counters: prints the counters of both devices that are not 0.
show_counters() {
	grep -v '^0$' /sys/class/infiniband/r[12]/ports/1/hw_counters/* || true
}

# traffic: SENDs, READs and WRITEs of 64 KiB, whose data is checked, over IPv4 and IPv6.
traffic() {
	local ip rounds=8

	! slow || rounds=5
	for ip in 4 6; do
		both ibv_rc_pingpong -c -n "$rounds" -s 65536 -m 4096
	done
	rpings 10.77.0.1 -V -S 65000 -C "$rounds"
}

# all_sent DEVICE...: each has sent trains.
all_sent() {
	local dev

	for dev; do [ "$(counter "$dev" tx_trains)" -gt 0 ]; done
}

# The last acknowledgments may be on their way.
all_whole() {
	[ "$(counter r1 tx_trains)" = "$(counter r2 rx_trains)" ] && [ "$(counter r2 tx_trains)" = "$(counter r1 rx_trains)" ]
}

whole() {
	prepare
	traffic
	all_sent r1 r2
	wait_for all_whole
	! on_time r1 || equal 0 "$(counter r1 tx_trains_off)"
}

# on_time DEVICE: no response was so late that it seemed to be lost.
on_time() {
	[ "$(counter "$1" ack_timeout)$(counter "$1" roce_adp_retrans)" = 00 ]
}

# Every packet that was sent has been received.
all_arrived() {
	[ "$(counter r1 sent_pkts)" = "$(counter r2 rcvd_pkts)" ] && [ "$(counter r2 sent_pkts)" = "$(counter r1 rcvd_pkts)" ]
}

# intact: every packet arrived unchanged, and in order if there is RPS. On a slow machine there may be retries all the same,
# because acknowledgments are late.
intact() {
	local dev reason reasons=(rx_bad_icrc rx_malformed)

	wait_for all_arrived || { show_counters; return 1; }
	! has_rps || reasons+=(out_of_seq_request rcvd_seq_err implied_nak_seq_err)
	for dev in r1 r2; do
		for reason in "${reasons[@]}"; do equal "$reason 0" "$reason $(counter "$dev" "$reason")"; done
	done
}

# unchanged: trains were sent, and every packet arrived unchanged.
unchanged() {
	all_sent r1 r2
	intact
}

# Trains are taken apart in front of a device that takes a packet at a time, as most do.
taken_apart() {
	local i

	prepare
	for i in 1 2; do ip -n "n$i" link set "v$i" gso_max_segs 1; done
	traffic
	unchanged
	equal 0 "$(counter r1 rx_trains)"
	equal 0 "$(counter r2 rx_trains)"
}

# A device without one of the features that a train needs, in front of which it is taken apart.
without() {
	local i

	prepare
	for i in 1 2; do feature "$i" "$1" off; done
	traffic
	unchanged
	equal 0 "$(counter r1 rx_trains)"
	equal 0 "$(counter r2 rx_trains)"
}

# A generic XDP program gets a train copied into one packet. It can be taken apart only if its packets are of equal length, as
# those of a SEND are. Other trains are lost, and turned off.
xdp_generic() {
	local i seen=0

	need_xdp
	prepare
	for i in 1 2; do xdp "$i" generic "$@"; done
	both ibv_rc_pingpong -c -n 20 -s 65536 -m 4096
	unchanged
	traffic
	for i in 1 2; do
		[ "$(counter "r$i" tx_trains_off)" -gt 0 ]
		equal 0 "$(counter "r$i" rx_trains)"
		xdp_off "$i"
		[ "$seen" -gt 0 ]
		[ "$seen" -lt "$(counter "r$i" rcvd_pkts)" ]
	done
}

# The other end of the pair takes trains apart in front of a net device with a native XDP program.
xdp_native() {
	local i seen=0

	need_xdp
	prepare
	for i in 1 2; do xdp "$i" native frags; done
	traffic
	unchanged
	for i in 1 2; do
		equal 0 "$(counter "r$i" rx_trains)"
		xdp_off "$i"
		[ "$seen" -ge "$(counter "r$i" rcvd_pkts)" ]
	done
}

# stream ADDRESS: READs and WRITEs of 65000 bytes, whose data is checked, until the case ends; $stream are the processes.
stream() {
	start server n1 rping -s -a "$1" -V -S 65000
	stream=("$pid")
	wait_for listening
	start client n2 rping -c -a "$1" -V -S 65000
	stream+=("$pid")
}

# counted DEVICE NAME NUMBER
counted() {
	[ "$(counter "$1" "$2")" -ge "$3" ]
}

# flows: the stream goes on.
flows() {
	local pid

	wait_for counted r1 rcvd_pkts $(($(counter r1 rcvd_pkts) + 500)) || { show_counters; return 1; }
	for pid in "${stream[@]}"; do fails gone "$pid"; done
}

# flows_whole: the same with trains that arrive whole.
flows_whole() {
	wait_for counted r1 rx_trains $(($(counter r1 rx_trains) + 1))
	wait_for counted r2 rx_trains $(($(counter r2 rx_trains) + 1))
	flows
}

# The features of the net devices change under traffic.
xdp_under_traffic() {
	local mode i stream seen

	need_xdp
	prepare
	stream fd77::1
	for mode in native generic; do
		flows_whole
		for i in 1 2; do xdp "$i" "$mode" frags; done
		flows
		for i in 1 2; do xdp_off "$i"; done
	done
	flows_whole
}

features_under_traffic() {
	local feature i stream

	prepare
	stream 10.77.0.1
	for feature in tx-gso-list tx-udp_tnl-segmentation tx-scatter-gather-fraglist; do
		flows_whole
		for i in 1 2; do feature "$i" "$feature" off; done
		flows
		for i in 1 2; do feature "$i" "$feature" on; done
	done
	flows_whole
}

# fragments: prints the number of fragments that n1 and n2 have sent.
fragments() {
	local i

	for i in 1 2; do in_ns "n$i" cat /proc/net/snmp /proc/net/snmp6; done |
		awk '/^Ip: [0-9]/ { n += $20 } /^Ip6FragCreates/ { n += $2 } END { print n }'
}

# more_fragments NUMBER: more than this.
more_fragments() {
	[ "$(fragments)" -gt "$1" ]
}

# set_mtu MTU NUMBER...
set_mtu() {
	local i

	for i in "${@:2}"; do ip -n "n$i" link set "v$i" mtu "$1"; done
}

# The path MTU of a connection stays. Packets that do not fit are sent in fragments until the MTU is large enough again. While only
# one device has the small MTU, it drops longer packets that the peer sends, so nothing slow is done then: the connection ends after
# some seconds, when its retries have run out.
mtu_under_traffic() {
	local stream sent i

	prepare
	stream "$1"
	for i in 1 2 "1 2"; do
		flows_whole
		sent=$(fragments)
		# shellcheck disable=SC2086 # Numbers.
		{
			set_mtu 1500 $i
			wait_for more_fragments "$sent"
			[ "$i" != "1 2" ] || flows
			set_mtu 4200 $i
		}
	done
	flows_whole
	for i in 1 2; do
		equal 4096 "$(active_mtu "r$i")"
		equal 0 "$(counter "r$i" rx_bad_icrc)"
		equal 0 "$(counter "r$i" rx_malformed)"
		equal 0 "$(counter "r$i" tx_rejected)"
		equal 0 "$(counter "r$i" retry_exceeded_err)"
	done
}

# icmp_too_long ADDRESS: sends an ICMP message from n2 to that address. It quotes a UDP packet to 10.77.0.2 that was too long for a
# path of 600 bytes.
icmp_too_long() {
	in_ns n2 python3 - "$1" <<-'END'
		import socket, struct, sys

		def sum16(data):
		    n = sum(struct.unpack("!%dH" % (len(data) // 2), data))
		    n = (n & 0xffff) + (n >> 16)
		    return ~(n + (n >> 16)) & 0xffff

		ip = struct.pack("!BBHHHBBH", 0x45, 0, 4000, 1, 0x4000, 64, 17, 0)
		ip += socket.inet_aton(sys.argv[1]) + socket.inet_aton("10.77.0.2")
		quoted = ip + struct.pack("!HHHH", 1, 1, 3980, 0)
		message = struct.pack("!BBHHH", 3, 4, sum16(struct.pack("!BBHHH", 3, 4, 0, 0, 600) + quoted), 0, 600)
		socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).sendto(message + quoted, (sys.argv[1], 0))
	END
}

# The kernel believes an ICMP message that says that packets are too long, whoever sends it. It must not end a connection.
forged_icmp() {
	local stream sent

	prepare
	stream 10.77.0.1
	flows_whole
	sent=$(fragments)
	icmp_too_long 10.77.0.1
	ip -n n1 route get 10.77.0.2 | grep 'mtu 600'
	wait_for more_fragments "$sent"
	flows
	flows
	equal 0 "$(counter r1 tx_rejected)"
	equal 0 "$(counter r2 rx_bad_icrc)"
}

# The identification of IPv4 packets, which the ICRC covers, wraps in the middle of a train.
identification_wraps() {
	prepare
	ip -n n1 link set v1 gso_max_segs 1
	ip -n n2 link set v2 gso_max_segs 1
	both ib_send_bw -F -s 65536 -n 4200
	[ "$(counter r2 sent_pkts)" -gt 65536 ]
	intact
}

# longer FILE BYTES
longer() {
	[ "$(stat -c %s "$1")" -gt "$2" ]
}

# A packet socket may share the train when it is received. A capture without packets has a header of 24 bytes.
captured() {
	local i

	prepare
	for i in 1 2; do
		start "tcpdump$i" "n$i" tcpdump -i "v$i" -s 64 -w "$tmp/capture$i" udp port 4791
		wait_for in_file listening "$tmp/tcpdump$i.log"
	done
	traffic
	unchanged
	for i in 1 2; do wait_for longer "$tmp/capture$i" 24; done
}

# A packet socket whose packets are not read shares their memory.
shared() {
	prepare
	hold_packets n2 v2
	traffic
	[ "$(counter r2 rx_trains_split)" -gt 0 ]
	unchanged
}

tracked() {
	local i

	need "no connection tracking" modprobe -qa nf_tables nft_ct
	prepare
	for i in 1 2; do track "n$i"; done
	traffic
	all_sent r1 r2
	wait_for all_whole
}

# esp_packets: the packets that n1 sends to n2 with its IPsec association.
esp_packets() {
	in_ns n1 ip -s xfrm state list spi 0x1001 | sed -nE 's/.* ([0-9]+)\(packets\).*/\1/p'
}

# Only RoCE is encrypted, by its port. The stack adds headers to each packet of a train.
encrypted() {
	local i

	need "no IPsec" modprobe -qa esp4 xfrm_user
	[ $# = 0 ] || need "no ESP offload" modprobe -q "$1"
	prepare
	for i in 1 2; do
		in_ns "n$i" ip -batch - <<-END
			xfrm state add src 10.77.0.1 dst 10.77.0.2 proto esp spi 0x1001 reqid 1 mode transport aead rfc4106(gcm(aes)) 0x0123456789abcdef0123456789abcdef01234567 128
			xfrm state add src 10.77.0.2 dst 10.77.0.1 proto esp spi 0x1002 reqid 1 mode transport aead rfc4106(gcm(aes)) 0x0123456789abcdef0123456789abcdef01234567 128
			xfrm policy add dir out src 10.77.0.$i dst 10.77.0.$((3 - i)) proto udp dport 4791 tmpl src 10.77.0.$i dst 10.77.0.$((3 - i)) proto esp reqid 1 mode transport
			xfrm policy add dir in src 10.77.0.$((3 - i)) dst 10.77.0.$i proto udp dport 4791 tmpl src 10.77.0.$((3 - i)) dst 10.77.0.$i proto esp reqid 1 mode transport
		END
	done
	both ibv_rc_pingpong -c -n 8 -s 65536 -m 2048
	all_sent r1 r2
	[ "$(esp_packets)" -ge 256 ]
	equal 0 "$(counter r1 rx_trains)"
	intact
}

# make_bridge: a device in n1 and one in n2, with a bridge in n3 between them.
make_bridge() {
	local i

	need "no bridges" modprobe -q bridge
	make_ns n1 n2 n3
	ip -n n3 link add br0 mtu 4200 type bridge
	ip -n n3 link set br0 up
	for i in 1 2; do
		ip link add "v$i" netns "n$i" mtu 4200 type veth peer name "p$i" netns n3 mtu 4200
		ip -n n3 link set "p$i" master br0 up
		ip -n "n$i" addr add "10.77.0.$i/24" dev "v$i"
		ip -n "n$i" addr add "fd77::$i/64" dev "v$i" nodad
		ip -n "n$i" link set "v$i" up
	done
	add_links
}

bridged() {
	make_bridge
	traffic
	all_sent r1 r2
	wait_for all_whole
}

# A tunnel in the bridge makes veth reserve more space for headers than packets have. They still count as queued, so that a queue
# of 200 packets, more than the sender may have in flight, does not overflow.
much_headroom() {
	local options='-F -c UC -m 1024 -s 65536 -n 40' queue

	need "no tunnels" modprobe -q ip_gre
	need "no tbf" modprobe -q sch_tbf
	make_bridge
	ip -n n3 link add g0 type gretap external
	ip -n n3 link set g0 master br0 up
	in_ns n1 tc qdisc add dev v1 root tbf rate 8mbit burst 5k limit 220k
	server_ns=n2 client_ns=n1 run_both 18515 "ib_write_bw -d r2 -x $(gid_index r2 10.77.0.2) $options" \
		"ib_write_bw -d r1 -x $(gid_index r1 10.77.0.1) $options 10.77.0.2"
	queue=$(in_ns n1 tc -s qdisc show dev v1)
	echo "$queue"
	[[ $queue = *dropped\ 0,\ overlimits\ [1-9]* ]]
}

# A VLAN device on top, with other features.
tagged() {
	prepare
	make_vlans 7 10.78.0 4180
	run_both 18515 "ibv_rc_pingpong -c -n 20 -s 65536 -d r1 -g $(gid_index r1 10.78.0.1)" \
		"ibv_rc_pingpong -c -n 20 -s 65536 -d r2 -g $(gid_index r2 10.78.0.2) 10.78.0.1"
	all_sent r1 r2
}

# disturbed CONDITION NETEM...
disturbed() {
	local i lossy=1 seen=$1

	shift
	prepare
	resolve_neighbours
	for i in 1 2; do in_ns "n$i" tc qdisc add dev "v$i" root netem "$@"; done
	traffic_until "$seen"
	all_sent r1 r2
}

# traffic_until CONDITION: netem decides for a train as a whole, and few are sent.
traffic_until() {
	local i

	for i in 1 2 3 4 5; do
		traffic
		! "$1" || return 0
	done
	echo "not seen: $1"
	return 1
}

netem_dropped() {
	{ in_ns n1 tc -s qdisc show dev v1; in_ns n2 tc -s qdisc show dev v2; } | grep -q 'dropped [1-9]'
}

duplicates_and_gaps_arrived() {
	[ $(($(counter r1 duplicate_request) + $(counter r2 duplicate_request))) -gt 0 ] &&
		[ $(($(counter r1 out_of_order_request) + $(counter r2 out_of_order_request))) -gt 0 ]
}

icrc_was_bad() {
	[ $(($(counter r1 rx_bad_icrc) + $(counter r2 rx_bad_icrc))) -gt 0 ]
}

corrupted() {
	local i lossy=1

	need "no prio queues" modprobe -q sch_prio
	prepare
	for i in 1 2; do corrupt "n$i" "v$i"; done
	traffic_until icrc_was_bad
	all_sent r1 r2
}

# A network that has no room for a train but for each of its packets: trains are turned off.
too_long() {
	local i

	need "no nftables" nft list tables
	prepare
	for i in 1 2; do
		in_ns "n$i" nft -f - <<-END
			table inet roce {
				chain prerouting { type filter hook prerouting priority filter; udp dport 4791 meta length > 5000 drop; }
			}
		END
	done
	traffic
	[ "$(counter r1 tx_trains_off)" -gt 0 ]
	[ "$(counter r2 tx_trains_off)" -gt 0 ]
	equal 0 "$(counter r1 rx_trains)"
}

# corrupt_trains: changes a byte of the payload of SENDs that cross n1 in trains.
corrupt_trains() {
	in_ns n1 nft -f - <<-END
		table inet roce {
			chain output {
				type filter hook output priority filter;
				udp dport 4791 meta length > 5000 @th,160,8 set 0xa5
			}
		}
	END
}

# The ICRC of a train that arrives whole is not checked.
unchecked() {
	need "no nftables" nft list tables
	prepare
	corrupt_trains
	both ibv_rc_pingpong -n 20 -s 65536 -m 4096
	all_sent r1 r2
	wait_for all_whole
	equal 0 "$(counter r2 rx_bad_icrc)"
}

# It is checked if the parameter says so.
checked() {
	need "no nftables" nft list tables
	rmmod ferroce
	load_module check_local_icrc=1
	prepare
	traffic
	all_sent r1 r2
	wait_for all_whole
	equal 0 "$(counter r1 rx_bad_icrc)"
	corrupt_trains
	both ibv_rc_pingpong -n 20 -s 65536 -m 4096
	[ "$(counter r2 rx_bad_icrc)" -gt 0 ]
	clean
	rmmod ferroce
	load_module
}

test_case "trains are received whole" whole
test_case "device without GSO" taken_apart
slow || test_case "IPv4 identification wraps" identification_wraps
test_case "device without GSO of fragment lists" without tx-gso-list
test_case "device without GSO of UDP" without tx-udp-segmentation
test_case "device without fragment lists" without tx-scatter-gather-fraglist
test_case "captured on both ends" captured
test_case "packets shared with a packet socket" shared
test_case "network that drops trains" too_long
test_case "connection tracking" tracked
test_case "bridge" bridged
test_case "bridge with a tunnel" much_headroom
test_case "IPsec" encrypted
test_case "IPsec with ESP offload" encrypted esp4_offload
test_case "VLAN" tagged
test_case "generic XDP" xdp_generic
test_case "generic XDP with fragments" xdp_generic frags
test_case "native XDP" xdp_native
test_case "XDP under traffic" xdp_under_traffic
test_case "changing features under traffic" features_under_traffic
test_case "changing MTU under traffic, IPv4" mtu_under_traffic 10.77.0.1
test_case "changing MTU under traffic, IPv6" mtu_under_traffic fd77::1
test_case "forged ICMP message: packet too long" forged_icmp
test_case "loss" disturbed netem_dropped loss 3%
test_case "corruption" corrupted
test_case "duplicates and reordering" disturbed duplicates_and_gaps_arrived delay 1ms duplicate 3% reorder 5%
test_case "ICRC of whole trains not checked" unchecked
test_case "ICRC of whole trains checked on demand" checked

run_cases "$@"
