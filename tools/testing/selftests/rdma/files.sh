# SPDX-License-Identifier: GPL-2.0
#
# For tests of a file server and its client in the kernel. The test defines mount_it.

# shellcheck shell=bash
need_programs dd cmp mountpoint
# The directory of the server, and that of the client.
there=$tmp/export here=$tmp/mount
mib=8
slow && mib=2

make_files() {
	mkdir -p "$there" "$here" && head -c "${mib}M" /dev/urandom >"$tmp/pattern"
}

unmount() {
	if mountpoint -q "$here"; then umount "$here"; fi
}

# write BLOCK [FLAG]: the client writes, the server has it.
write() {
	rm -f "$there/file"
	dd if="$tmp/pattern" of="$here/file" bs="$1" conv=fsync ${2:+oflag=$2} status=none
	cmp "$tmp/pattern" "$there/file"
}

# read_back BLOCK [FLAG]: the server has a file, the client, which has nothing of it in its memory, reads it.
read_back() {
	cp "$tmp/pattern" "$there/file"
	echo 3 >/proc/sys/vm/drop_caches
	dd if="$here/file" of="$tmp/back" bs="$1" ${2:+iflag=$2} status=none
	cmp "$tmp/pattern" "$tmp/back"
}

test_copy() {
	mount_it
	write 1M
	unmount
	mount_it
	read_back 1M
	unmount
}

# From one page, which goes inside the message, to the largest read and write.
test_sizes() {
	local size

	mount_it
	for size; do
		write "$size" direct
		read_back "$size" direct
	done
	unmount
}

# Directories and small files: many short messages.
test_tree() {
	local i

	mount_it
	for ((i = 0; i < 30; i++)); do
		mkdir -p "$here/tree/$((i % 5))/$i"
		head -c $((i * 700)) "$tmp/pattern" >"$here/tree/$((i % 5))/$i/file"
	done
	for ((i = 0; i < 30; i++)); do
		head -c $((i * 700)) "$tmp/pattern" | cmp - "$there/tree/$((i % 5))/$i/file"
	done
	equal 30 "$(find "$here/tree" -type f | wc -l)"
	rm -r "$here/tree"
	fails test -e "$there/tree"
	unmount
}

test_many() {
	local i pids=() rounds=3

	! slow || rounds=1
	mount_it
	for i in 1 2 3 4; do
		# shellcheck disable=SC2016 # The inner shell expands it.
		start "io$i" "" bash -c '
			set -e
			for ((round = 0; round < $4; round++)); do
				dd if="$1" of="$2" bs=64k oflag=direct status=none
				dd if="$2" of="$3" bs=64k iflag=direct status=none
				cmp "$1" "$3"
			done' - "$tmp/pattern" "$here/file$i" "$tmp/back$i" "$rounds"
		pids+=("$pid")
	done
	for i in "${!pids[@]}"; do ends "${pids[i]}" || { cat "$tmp/io$((i + 1)).log"; return 1; }; done
	unmount
}
