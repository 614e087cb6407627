#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NVMe over RDMA, the kernel's host and target, both on one device: a consumer that registers its memory by requests (REG_MR)
# and has the keys invalidated by the peer (SEND with invalidate) or by itself (LOCAL_INV).

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
# shellcheck source=tools/testing/selftests/rdma/block.sh
. "$(dirname "$0")/block.sh"
{ modprobe -q nvmet-rdma && modprobe -q nvme-rdma; } || skip_all "no NVMe over RDMA"
need_backing

nvmet=$config/nvmet

make_target() {
	local subsystem=$nvmet/subsystems/ferroce port=$nvmet/ports/1

	mount_configfs nvmet && mkdir "$subsystem" "$subsystem/namespaces/1" "$port" &&
		echo 1 >"$subsystem/attr_allow_any_host" &&
		echo "$backing" >"$subsystem/namespaces/1/device_path" && echo 1 >"$subsystem/namespaces/1/enable" &&
		echo rdma >"$port/addr_trtype" && echo ipv4 >"$port/addr_adrfam" &&
		echo 10.77.0.1 >"$port/addr_traddr" && echo 4420 >"$port/addr_trsvcid" &&
		ln -s "$subsystem" "$port/subsystems/ferroce"
}

clean() {
	tidy
	rm -f "$nvmet/ports/1/subsystems/ferroce"
	rmdir "$nvmet/ports/1" "$nvmet/subsystems/ferroce/namespaces/1" "$nvmet/subsystems/ferroce"
	modprobe -r nvme-rdma nvmet-rdma
	clean_block
}

# controllers: prints the controllers of the host that use RDMA.
controllers() {
	local dir

	for dir in /sys/class/nvme/nvme*; do
		[ "$(cat "$dir/transport" 2>/dev/null)" = rdma ] && echo "$dir"
	done
	return 0
}

# disks: prints the host's disk of the target.
disks() {
	local dir

	for dir in /sys/class/nvme-subsystem/*/nvme*n*; do
		[ -e "$dir" ] && echo "/dev/${dir##*/}" && return
	done
	for dir in /sys/block/nvme*n*; do
		[ -e "$dir" ] && echo "/dev/${dir##*/}" && return
	done
	return 1
}

none_there() {
	[ -z "$(controllers)" ]
}

# connect [OPTIONS]
connect() {
	echo "transport=rdma,traddr=10.77.0.1,trsvcid=4420,nqn=ferroce,nr_io_queues=2,queue_size=32${1:+,$1}" \
		>/dev/nvme-fabrics
	wait_for -t 60 disk_there
}

disconnect() {
	local dir

	for dir in $(controllers); do echo 1 >"$dir/delete_controller"; done
	wait_for -t 60 none_there
}

has_srq() {
	rdma resource show srq | grep nvmet_rdma
}

# The target uses a shared receive queue, until the end of the program.
test_shared_queue() {
	rm "$nvmet/ports/1/subsystems/ferroce"
	wait_for modprobe -r nvmet-rdma
	modprobe nvmet-rdma use_srq=1
	ln -s "$nvmet/subsystems/ferroce" "$nvmet/ports/1/subsystems/ferroce"
	connect
	has_srq
	copy 65536
	start_writing
	disconnect
	ends "$pid"
	connect
	copy 4096
	disconnect
}

# The device is removed: neither side blocks that. If the target learns of it first, the host tries to reconnect for a while.
test_device_gone() {
	connect reconnect_delay=1,ctrl_loss_tmo=5
	start_writing
	rdma link delete r1
	fails device r1
	ends "$pid"
	wait_for -t 60 none_there
}

# shellcheck disable=SC2034
after_each=tidy
set_up make_device
set_up make_pattern
set_up make_target
test_case "blocks of 4 KB to 1 MB" test_copy 4096 131072 1048576
test_case "six programs at once" test_many
test_case "a file system" test_file_system
test_case "disconnected while writing" test_disconnect
test_case "a shared receive queue" test_shared_queue
test_case "device removed while writing" test_device_gone

run_cases "$@"
