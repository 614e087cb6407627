# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For scripts in the two machines of scripts/vm/pair. Side 1 is the near one, which runs the script, side 2 the far one.
# Side N has net device vN with 10.77.0.N and fd77::N, and on it the RDMA device rN; commands have a network of their own,
# which no test disturbs.

# shellcheck source=scripts/vm/guest.sh
. /src/scripts/vm/guest.sh

PAIR_PORT=4700

# pair_address 4|6|control SIDE
pair_address() {
	case $1 in
	4) echo "10.77.0.$2" ;;
	6) echo "fd77::$2" ;;
	control) echo "10.78.0.$2" ;;
	esac
}

# pair_net SIDE: names the net devices by their MAC addresses, and sets them up. The MTU has room for a path MTU of 4096.
pair_net() {
	local net file name

	load_dependencies && modprobe virtio_net || return
	for net in 1 2; do
		wait_for grep -l "^52:54:00:77:0$net:" /sys/class/net/*/address || return
		file=$(grep -l "^52:54:00:77:0$net:" /sys/class/net/*/address)
		name=${file#/sys/class/net/}
		ip link set "${name%/address}" name "$([ "$net" = 1 ] && echo v || echo c)$1" || return
	done
	# Duplicate address detection would keep the IPv6 GID away for seconds.
	sysctl -qw "net.ipv6.conf.v$1.accept_dad=0"
	ip -batch - <<-END
		addr add $(pair_address control "$1")/24 dev c$1
		link set c$1 up
		addr add $(pair_address 4 "$1")/24 dev v$1
		addr add $(pair_address 6 "$1")/64 dev v$1 nodad
		link set v$1 mtu 4200 up
	END
}

# pair_load SIDE DRIVER: the driver, ferroce or rxe, and the device.
pair_load() {
	if [ "$2" = ferroce ]; then load_ferroce; else modprobe "rdma_$2"; fi || return
	rdma link add "r$1" type "$2" netdev "v$1" && wait_state "r$1" ACTIVE &&
		gid_index "r$1" "$(pair_address 4 "$1")" && gid_index "r$1" "$(pair_address 6 "$1")"
}

# pair_unload SIDE DRIVER
pair_unload() {
	rdma link delete "r$1" && wait_for rmmod "$([ "$2" = ferroce ] && echo ferroce || echo "rdma_$2")"
}

# pair_conditions SIDE PATH-MTU NETEM: NETEM are words for tc, or none.
pair_conditions() {
	# IPv6 requires 1280.
	ip link set "v$1" mtu $(($2 < 1500 ? 1500 : $2 + 104)) && wait_for pair_mtu "r$1" "$2" || return
	# shellcheck disable=SC2086 # Words.
	if [ -n "$3" ]; then
		tc qdisc replace dev "v$1" root netem limit 10000 $3
	else
		tc qdisc delete dev "v$1" root 2>/dev/null || true
	fi
}

pair_mtu() {
	ibv_devinfo -d "$1" | grep -q "active_mtu:[[:space:]]*$2 "
}

# port_listens PORT
port_listens() {
	wait_port "" "$1"
}

# cm_listens: waits until a listener exists in the connection manager.
cm_listens() {
	wait_for eval "rdma resource show cm_id | grep -q 'state LISTEN'"
}

# on SIDE COMMAND...: runs a command, or a function of this file, on either side; returns its exit code. When this process is
# killed, so is the far command.
on() {
	local side=$1 fd line

	shift
	if [ "$side" = 1 ]; then
		"$@"
		return
	fi
	exec {fd}<>"/dev/tcp/$(pair_address control 2)/$PAIR_PORT" || return
	printf '%q ' "$@" >&"$fd"
	echo >&"$fd"
	while IFS= read -r line <&"$fd"; do
		if [[ $line = *"pair-exit: "* ]]; then
			printf %s "${line%pair-exit: *}"
			exec {fd}>&-
			return "${line##*: }"
		fi
		printf '%s\n' "$line"
	done
	echo "the far machine did not answer"
	return 255
}

# pair_up: waits until both machines run, and the near one can send commands to the far one.
pair_up() {
	pair_net 1 && wait_for -t 300 on 2 true
}
