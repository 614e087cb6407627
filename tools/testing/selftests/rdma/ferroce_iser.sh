#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# iSER, the kernel's initiator and target, both on one device, and the initiator's daemon.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs iscsid iscsiadm
# shellcheck source=tools/testing/selftests/rdma/block.sh
. "$(dirname "$0")/block.sh"
modprobe -qa target_core_iblock iscsi_target_mod ib_isert ib_iser sd_mod || skip_all "no iSER"
need_backing
fails pgrep -x iscsid || skip_all "iscsid is running, stop it first"

name=iqn.2026-01.ferroce:target
iscsi=$config/target/iscsi
group=$iscsi/$name/tpgt_1
portal=10.77.0.1:3260

make_target() {
	mkdir -p "$iscsi" && mkdir -p "$group" && mkdir "$group/np/$portal" "$group/lun/lun_0" &&
		echo 1 >"$group/np/$portal/iser" && ln -s "$storage" "$group/lun/lun_0/disk" &&
		echo 0 >"$group/attrib/authentication" && echo 1 >"$group/attrib/generate_node_acls" &&
		echo 0 >"$group/attrib/demo_mode_write_protect" && echo 1 >"$group/enable"
}

# node OPTIONS: runs iscsiadm on the initiator's record of the target.
node() {
	iscsiadm -m node -T "$name" -p "$portal" "$@"
}

# The initiator keeps commands for replacement_timeout seconds until the connection is back. iscsiadm creates its directory of
# locks, but not the parent.
start_daemon() {
	echo "InitiatorName=iqn.2026-01.ferroce:initiator" >"$tmp/initiator" || return
	mkdir -p /run/lock && iscsid -i "$tmp/initiator" && wait_for iscsiadm -m node -o new -T "$name" -p "$portal" -I iser &&
		node -o update -n node.session.timeo.replacement_timeout -v 5
}

clean() {
	tidy
	node -o delete
	pkill -x iscsid
	wait_for fails pgrep -x iscsid
	rm -f "$group/lun/lun_0/disk"
	rmdir "$group/lun/lun_0" "$group/np/$portal" "$group" "$iscsi/$name"
	rmdir "$iscsi"
	modprobe -r ib_iser ib_isert iscsi_target_mod
	clean_block
}

sessions() {
	iscsiadm -m session | grep "$name"
}

connect() {
	node --login
	wait_for -t 60 disk_there
}

disconnect() {
	if sessions; then node --logout; fi
	wait_for -t 60 fails sessions
}

# The device is removed: neither side blocks that, and the initiator gives up its commands.
test_device_gone() {
	connect
	start_writing
	rdma link delete r1
	fails device r1
	ends "$pid"
	disconnect
}

# shellcheck disable=SC2034
after_each=tidy
set_up make_device
set_up make_pattern
set_up make_storage
set_up make_target
set_up start_daemon
test_case "blocks of 4 KB to 1 MB" test_copy 4096 131072 1048576
test_case "six programs at once" test_many
test_case "a file system" test_file_system
test_case "disconnected while writing" test_disconnect
test_case "device removed while writing" test_device_gone

run_cases "$@"
