#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NVMe over RDMA, the kernel's host and target, both on one device: a consumer that registers its memory by requests (REG_MR)
# and has the keys invalidated by the peer (SEND with invalidate) or by itself (LOCAL_INV).

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs dd cmp mkfs.ext4 e2fsck debugfs
{ modprobe -q nvmet-rdma && modprobe -q nvme-rdma; } || skip_all "no NVMe over RDMA"
modprobe -q null_blk nr_devices=1 gb=1 memory_backed=1 || skip_all "no module null_blk"

config=/sys/kernel/config
nvmet=$config/nvmet
backing=/dev/nullb0

make_device() {
	ip link add v1 mtu 4200 type veth peer name v2 mtu 4200 && ip addr add 10.77.0.1/24 dev v1 && ip link set v2 up &&
		ip link set v1 up && rdma link add r1 type ferroce netdev v1 && wait_state r1 ACTIVE && gid_index r1 10.77.0.1
}

make_target() {
	(
		set -e
		[ -d "$nvmet" ] || mount -t configfs none "$config"
		fill_in_target
	)
}

fill_in_target() {
	mkdir "$nvmet/subsystems/ferroce" "$nvmet/subsystems/ferroce/namespaces/1" "$nvmet/ports/1"
	echo 1 >"$nvmet/subsystems/ferroce/attr_allow_any_host"
	echo "$backing" >"$nvmet/subsystems/ferroce/namespaces/1/device_path"
	echo 1 >"$nvmet/subsystems/ferroce/namespaces/1/enable"
	echo rdma >"$nvmet/ports/1/addr_trtype"
	echo ipv4 >"$nvmet/ports/1/addr_adrfam"
	echo 10.77.0.1 >"$nvmet/ports/1/addr_traddr"
	echo 4420 >"$nvmet/ports/1/addr_trsvcid"
	ln -s "$nvmet/subsystems/ferroce" "$nvmet/ports/1/subsystems/ferroce"
	dd if=/dev/urandom of="$tmp/pattern" bs=1M count=4
}

clean() {
	tidy
	rm -f "$nvmet/ports/1/subsystems/ferroce"
	rmdir "$nvmet/ports/1" "$nvmet/subsystems/ferroce/namespaces/1" "$nvmet/subsystems/ferroce"
	device r1 && rdma link delete r1
	ip link delete v1
	modprobe -r nvme-rdma nvmet-rdma null_blk
}

# controllers: those of the host that go through RDMA.
controllers() {
	local dir

	for dir in /sys/class/nvme/nvme*; do
		[ "$(cat "$dir/transport" 2>/dev/null)" = rdma ] && echo "$dir"
	done
	return 0
}

# disks: what the host has of the target.
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

disk_there() {
	[ -b "$(disks)" ]
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

# copy BLOCK_SIZE: writes the pattern, and reads it both through the host and below the target.
copy() {
	local disk

	disk=$(disks)
	dd if=/dev/zero of="$backing" bs=1M count=4 oflag=direct status=none
	dd if="$tmp/pattern" of="$disk" bs="$1" oflag=direct status=none
	dd if="$backing" of="$tmp/below" bs=1M count=4 iflag=direct status=none
	cmp "$tmp/pattern" "$tmp/below"
	dd if="$disk" of="$tmp/back" bs="$1" count=$((4194304 / $1)) iflag=direct status=none
	cmp "$tmp/pattern" "$tmp/back"
}

test_copy() {
	local size

	connect
	for size; do copy "$size"; done
	disconnect
}

# Both queues busy, each reader and writer on a part of its own.
test_many() {
	local disk i pids=()

	connect
	disk=$(disks)
	for i in 1 2 3 4 5 6; do
		# shellcheck disable=SC2016 # The inner shell expands it.
		start "io$i" "" bash -c '
			set -e
			for round in 1 2 3; do
				dd if="$1" of="$2" bs=64k seek=$(($3 * 64)) oflag=direct status=none
				dd if="$2" of="$4" bs=64k skip=$(($3 * 64)) count=64 iflag=direct status=none
				cmp "$1" "$4"
			done' - "$tmp/pattern" "$disk" "$i" "$tmp/back$i"
		pids+=("$pid")
	done
	for i in "${!pids[@]}"; do ends "${pids[i]}" || { cat "$tmp/io$((i + 1)).log"; return 1; }; done
	disconnect
}

# A file system: read through the host after it was mounted anew, so that nothing comes from memory, and below the target.
test_file_system() {
	local disk i

	mkdir -p "$tmp/mount"
	connect
	disk=$(disks)
	mkfs.ext4 -q "$disk" 128M
	mount -t ext4 "$disk" "$tmp/mount"
	for i in 1 2 3 4; do
		mkdir "$tmp/mount/$i"
		cp "$tmp/pattern" "$tmp/mount/$i/file"
	done
	umount "$tmp/mount"
	mount -t ext4 "$disk" "$tmp/mount"
	for i in 1 2 3 4; do cmp "$tmp/pattern" "$tmp/mount/$i/file"; done
	rm -r "$tmp/mount/4"
	umount "$tmp/mount"
	disconnect
	e2fsck -fn "$backing"
	# Not mounted: the target has it open.
	for i in 1 2 3; do debugfs -R "cat /$i/file" "$backing" | cmp "$tmp/pattern"; done
	debugfs -R "stat /4" "$backing" 2>&1 | grep 'not found'
}

written() {
	[ "$(stat -c %s "$tmp/rounds")" -ge "$1" ]
}

# start_writing: goes on until it fails, for which the disk must not become a file.
start_writing() {
	: >"$tmp/rounds"
	# shellcheck disable=SC2016 # The inner shell expands it.
	start writer "" bash -c 'while dd if="$1" of="$2" bs=128k oflag=direct conv=nocreat status=none; do printf . >>"$3"; done' - \
		"$tmp/pattern" "$(disks)" "$tmp/rounds"
	wait_for -t 60 written 3
}

# The controller goes in the middle of traffic, and a new one works.
test_disconnect() {
	connect
	start_writing
	disconnect
	ends "$pid"
	connect
	copy 65536
	disconnect
}

has_srq() {
	rdma resource show srq | grep nvmet_rdma
}

# The target takes what it receives from a shared queue, until the end of the program.
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

# The device goes: neither side holds it up. If the target hears of it first, the host tries for a while to connect again.
test_device_gone() {
	connect reconnect_delay=1,ctrl_loss_tmo=5
	start_writing
	rdma link delete r1
	fails device r1
	ends "$pid"
	wait_for -t 60 none_there
}

tidy() {
	if mountpoint -q "$tmp/mount"; then umount "$tmp/mount"; fi
	disconnect
}

# shellcheck disable=SC2034
after_each=tidy
set_up make_device
set_up make_target
test_case "blocks of 4 KB to 1 MB" test_copy 4096 131072 1048576
test_case "six programs at once" test_many
test_case "a file system" test_file_system
test_case "disconnected while writing" test_disconnect
test_case "a shared receive queue" test_shared_queue
test_case "device removed while writing" test_device_gone

run_cases "$@"
