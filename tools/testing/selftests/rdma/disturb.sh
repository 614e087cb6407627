# SPDX-License-Identifier: GPL-2.0
#
# Functions that make the kernel inspect, change or drop the packets of a net device.

# shellcheck shell=bash

# hold_packets NETNS DEVICE: opens a packet socket that never reads its packets and so shares their memory.
hold_packets() {
	start holder "$1" python3 -c "
import socket, time
holder = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(socket.ETH_P_ALL))
holder.bind(('$2', 0))
print('bound', flush=True)
time.sleep(1000000)
"
	wait_for in_file bound "$tmp/holder.log"
}

# track NETNS: turns on connection tracking; packets that it finds invalid are dropped.
track() {
	in_ns "$1" nft -f - <<-END
		table inet roce {
			chain input { type filter hook input priority filter; ct state invalid drop; }
			chain output { type filter hook output priority filter; ct state invalid drop; }
		}
	END
}

# corrupt NETNS DEVICE: corrupts RoCE packets only, as TCP within a host has no checksum that would detect it.
corrupt() {
	in_ns "$1" tc -batch - <<-END
		qdisc add dev $2 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
		qdisc add dev $2 parent 1:2 netem corrupt 2%
		filter add dev $2 parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff flowid 1:2
		filter add dev $2 parent 1: protocol ipv6 prio 2 u32 match ip6 protocol 17 0xff match ip6 dport 4791 0xffff flowid 1:2
	END
}

need_xdp() {
	need "no BPF" [ -e /proc/sys/kernel/unprivileged_bpf_disabled ]
}

# attach_xdp NETNS DEVICE WORDS...: attaches an XDP program with ferroce_xdp. $pid is the process that holds it.
attach_xdp() {
	start "xdp-$2" "$1" "$programs/ferroce_xdp" "${@:2}"
	wait_for in_file attached "$tmp/xdp-$2.log"
}

# detach_xdp PID DEVICE: detaches the program; $seen is the number of packets that it has seen.
detach_xdp() {
	kill -TERM "$1"
	ends "$1"
	seen=$(sed -n 's/ packets$//p' "$tmp/xdp-$2.log")
}
