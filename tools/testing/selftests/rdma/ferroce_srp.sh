#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# SRP, the kernel's initiator and target, both on one device: a consumer that registers its memory by requests (REG_MR), and
# whose target READs and WRITEs it by the keys of the initiator.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
# shellcheck source=tools/testing/selftests/rdma/block.sh
. "$(dirname "$0")/block.sh"
modprobe -qa target_core_iblock ib_srpt ib_srp sd_mod || skip_all "no SRP"
need_backing

srpt=$config/target/srpt
port=5555

# The target is named after the port, and its only initiator after the address.
make_target() {
	local group acl

	mkdir -p "$srpt" && echo "$port" >"$srpt/discovery_auth/rdma_cm_port" || return
	group=$(target_group)
	acl=$group/acls/10.77.0.1
	mkdir -p "$group" && mkdir "$group/lun/lun_0" && ln -s "$storage" "$group/lun/lun_0/disk" &&
		mkdir "$acl" "$acl/lun_0" && ln -s "$group/lun/lun_0" "$acl/lun_0/disk" && echo 1 >"$group/enable"
}

# target_group: the name of a port is the interface ID of its first GID.
target_group() {
	local gid

	gid=$(</sys/class/infiniband/r1/ports/1/gids/0)
	echo "$srpt/${gid:20}/${gid:20}"
}

clean() {
	local group

	tidy
	for group in "$srpt"/*:*/*:*; do
		rm -f "$group"/acls/*/lun_0/disk "$group/lun/lun_0/disk"
		rmdir "$group"/acls/10.77.0.1/{lun_0,} "$group/lun/lun_0" "$group" "${group%/*}"
	done
	# It holds ib_srpt, which has objects on every device.
	rmdir "$srpt"
	modprobe -r ib_srp ib_srpt
	clean_block
}

# hosts: the SCSI hosts of the initiator. They outlive the ports of the targets for a moment.
hosts() {
	grep -xls ib_srp /sys/class/scsi_host/host*/proc_name
}

connect() {
	local guid

	guid=$(</sys/module/ib_srpt/parameters/srpt_service_guid)
	echo "id_ext=${guid#0x},ioc_guid=${guid#0x},dest=10.77.0.1:$port,queue_size=32" \
		>/sys/class/infiniband_srp/srp-r1-1/add_target
	wait_for -t 60 disk_there
}

disconnect() {
	local dir

	for dir in /sys/class/srp_remote_ports/port-*; do
		[ ! -e "$dir" ] || echo 1 >"$dir/delete"
	done
	wait_for -t 60 fails hosts
}

# The device is removed: neither side blocks that.
test_device_gone() {
	connect
	start_writing
	rdma link delete r1
	fails device r1
	ends "$pid"
	wait_for -t 60 fails hosts
}

# shellcheck disable=SC2034
after_each=tidy
set_up make_device
set_up make_pattern
set_up make_storage
set_up make_target
test_case "blocks of 4 KB to 1 MB" test_copy 4096 131072 1048576
test_case "six programs at once" test_many
test_case "a file system" test_file_system
test_case "disconnected while writing" test_disconnect
test_case "device removed while writing" test_device_gone

run_cases "$@"
