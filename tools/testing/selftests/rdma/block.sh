# SPDX-License-Identifier: GPL-2.0
#
# For tests of a disk that a target of the kernel exports and a host of the kernel attaches, both on the device r1. The test
# defines connect and disconnect, which attach the disk and remove it.

# shellcheck shell=bash
need_programs dd cmp mkfs.ext4 e2fsck debugfs mountpoint
# The target exports this disk.
backing=/dev/nullb0
config=/sys/kernel/config
# Its directory in configfs, for all targets but NVMe's.
storage=$config/target/core/iblock_0/ferroce

need_backing() {
	modprobe -q null_blk nr_devices=1 gb=1 memory_backed=1 || skip_all "no module null_blk"
}

mount_configfs() {
	[ -d "$config/$1" ] || mount -t configfs none "$config"
}

make_storage() {
	mount_configfs target && mkdir -p "$storage" && echo "udev_path=$backing" >"$storage/control" && echo 1 >"$storage/enable"
}

make_pattern() {
	dd if=/dev/urandom of="$tmp/pattern" bs=1M count=4
}

clean_block() {
	if [ -d "$storage" ]; then rmdir "$storage" "${storage%/*}" && modprobe -r target_core_iblock; fi
	device r1 && rdma link delete r1
	ip link delete v1
	modprobe -r null_blk
}

# disks: prints the device of the initiator's disk. A test of NVMe has its own.
disks() {
	local dir

	for dir in /sys/block/sd*; do
		grep -qs IBLOCK "$dir/device/model" && echo "/dev/${dir##*/}" && return
	done
	return 1
}

disk_there() {
	[ -b "$(disks)" ]
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

# The host disconnects in the middle of traffic, and connects again.
test_disconnect() {
	connect
	start_writing
	disconnect
	ends "$pid"
	connect
	copy 65536
	disconnect
}

tidy() {
	if mountpoint -q "$tmp/mount"; then umount "$tmp/mount"; fi
	disconnect
}
