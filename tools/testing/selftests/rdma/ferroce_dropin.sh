#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ferroce in place of C rxe: the kernel's own scripts for rdma_rxe, unmodified, with the module installed and the modprobe.d
# files that come with ferroce. KERNEL_SELFTESTS is the kernel's directory of selftests (rdma and kselftest in it), MODPROBE_D
# that of the modprobe.d files.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs modprobe modinfo depmod rping ping
: "${KERNEL_SELFTESTS=$(dirname "$0")/kernel}" "${MODPROBE_D=$(dirname "$0")/modprobe.d}"
[ -e "$KERNEL_SELFTESTS/rdma/rxe_ipv6.sh" ] || skip_all "no selftests of the kernel in $KERNEL_SELFTESTS"

modules=/lib/modules/$(uname -r)
# modprobe reads this directory as well as /etc/modprobe.d, and its files do not survive a reboot.
config=/run/modprobe.d
# Namespaces that are not of the tests.
others=$(ls /run/netns 2>/dev/null)

# install_module: installs ferroce as "make modules_install" does, in a directory with only the modules that ferroce, rdma_rxe
# and the scripts need, so that depmod does not read thousands. A module that is installed already is used where it is.
install_module() {
	local base=$tmp/base

	# The scripts change network namespaces all the time, and each change waits for readers to end.
	echo 1 >/sys/kernel/rcu_expedited
	rmmod ferroce && mkdir -p "$config" || return
	[ -e "$FERROCE_KO" ] || return 0
	mkdir -p "$base$modules/updates" &&
		strip --strip-debug -o "$base$modules/updates/ferroce.ko" "$FERROCE_KO" &&
		cp "$modules"/modules.{order,builtin,builtin.modinfo} "$base$modules" &&
		modprobe --all --show-depends rdma_rxe rdma_ucm ib_umad tun veth dummy |
		sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | xargs cp --parents -t "$base" &&
		depmod --basedir "$base" "$(uname -r)" &&
		mount --bind "$base$modules" "$modules"
}

# use FILE: installs one of the modprobe.d files that come with ferroce.
use() {
	cp "$MODPROBE_D/$1" "$config"
}

tidy() {
	local name

	for name in r1 rxe0 rxe1 rxe6; do
		if device "$name"; then rdma link delete "$name"; fi
	done
	for name in /run/netns/*; do
		[ ! -e "$name" ] || grep -qxF "${name##*/}" <<<"$others" || ip netns delete "${name##*/}"
	done
	for name in v1 veth0 veth-b tun0 tun1; do
		if [ -e "/sys/class/net/$name" ]; then ip link delete "$name"; fi
	done
	rm -f "$config"/ferroce-*.conf
	for name in ferroce rdma_rxe; do
		if loaded "$name"; then rmmod "$name" || return; fi
	done
}

clean() {
	tidy
	if mountpoint -q "$modules"; then umount "$modules"; fi
	echo 0 >/sys/kernel/rcu_expedited
	load_module
}

# takes_its_place: the name and the link type of rdma_rxe load ferroce, although rdma_rxe is installed.
takes_its_place() {
	use ferroce-as-rxe.conf
	[ -n "$(find "$modules" -name 'rdma_rxe.ko*')" ]
	modprobe rdma_rxe
	loaded ferroce
	fails loaded rdma_rxe
	modprobe -r rdma_rxe
	fails loaded ferroce
	# The kernel asks for the link type's module.
	ip link add v1 type veth peer name v2
	rdma link add r1 type rxe netdev v1
	loaded ferroce
	fails loaded rdma_rxe
	ibv_devinfo -d r1
	# The link type of ferroce still works.
	rdma link delete r1
	rdma link add r1 type ferroce netdev v1
}

# without_it: without the module parameter there is no link type rxe.
without_it() {
	modprobe ferroce
	ip link add v1 type veth peer name v2
	refused "" rdma link add r1 type rxe netdev v1
	fails device r1
}

# kept_away: with the other file, rdma_rxe is not loaded under any name, before ferroce or after it.
kept_away() {
	use ferroce-no-rxe.conf
	ip link add v1 type veth peer name v2
	fails modprobe rdma_rxe
	modprobe rdma-link-rxe || true
	fails loaded rdma_rxe
	refused "" rdma link add r1 type rxe netdev v1
	fails loaded rdma_rxe
	rdma link add r1 type ferroce netdev v1
	loaded ferroce
}

# kernel_script SCRIPT: the script passes with ferroce and leaves nothing behind. A skip is a failure, as all that it needs is
# there. Some scripts give a server one second to start, which may be too short: they are repeated if the client is rejected
# because there is no listener.
kernel_script() {
	local before tries=3

	use ferroce-as-rxe.conf
	# Refused while namespaces of the case before are still being removed, for which a script would be skipped.
	wait_for rdma system set netns exclusive
	rdma system set netns shared
	before=$(rxe_loads)
	# With udev, the device node of tun stays when the module is removed.
	modprobe tun
	until script "$1"; do
		tries=$((tries - 1))
		[ "$tries" != 0 ]
		grep -q 'REJECTED, error 8' "$tmp/script.log"
	done
	equal "$before" "$(rxe_loads)"
	fails loaded ferroce
	fails device rxe0
	fails device rxe1
	fails device rxe6
}

script() {
	local rc=0

	# shellcheck disable=SC2016 # The inner shell expands it.
	bash -c 'cd "${1%/*}" && exec "./${1##*/}"' - "$1" >"$tmp/script.log" 2>&1 || rc=$?
	cat "$tmp/script.log"
	return "$rc"
}

# rxe_loads: prints the number of times that rdma_rxe has reported that it is loaded.
rxe_loads() {
	dmesg | grep -c 'rdma_rxe: loaded' || true
}

# shellcheck disable=SC2034
after_each=tidy
set_up install_module
test_case "the name and the link type of rdma_rxe give ferroce" takes_its_place
test_case "no link type rxe without the parameter" without_it
test_case "rdma_rxe kept away" kept_away
for script in "$KERNEL_SELFTESTS"/rdma/rxe_*.sh; do
	test_case "the kernel's ${script##*/}" kernel_script "$script"
done

run_cases "$@"
