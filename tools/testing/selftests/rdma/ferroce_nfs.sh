#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NFS over RDMA, the kernel's server in one namespace and its client in another: what is written arrives, what is there can
# be read, and a mount outlives its device.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs rpc.nfsd rpc.mountd nfsdcld exportfs mount.nfs4 mountpoint dd cmp
{ modprobe -q rpcrdma && modprobe -q nfsd && modprobe -q nfsv4; } || skip_all "no NFS over RDMA"

there=$tmp/export here=$tmp/mount pipes=$tmp/pipes
mib=8
slow && mib=2

# start_server: in n1; rpc.nfsd wants TCP beside RDMA. The daemons answer the kernel's questions: who may mount what, and which
# clients there were before (there were none, so nobody waits for them).
start_server() {
	mkdir -p "$there" "$here" "$pipes" "$tmp/clients" &&
		in_ns n1 mount -t rpc_pipefs pipes "$pipes" && in_ns n1 mount -t nfsd nfsd /proc/fs/nfsd &&
		in_ns n1 nfsdcld -p "$pipes" -s "$tmp/clients" &&
		in_ns n1 exportfs -o rw,fsid=0,no_root_squash,insecure,no_subtree_check "*:$there" &&
		in_ns n1 rpc.mountd -N 3 -u &&
		in_ns n1 rpc.nfsd -N 3 --rdma=20049 4 &&
		head -c "${mib}M" /dev/urandom >"$tmp/pattern"
}

# daemons: what was started above.
daemons() {
	pgrep -x 'rpc\.mountd|nfsdcld'
}

clean() {
	unmount
	in_ns n1 rpc.nfsd 0
	in_ns n1 exportfs -ua
	daemons | xargs -r kill
	wait_for fails daemons
	umount "$pipes"
	in_ns n1 umount /proc/fs/nfsd
	delete_links
	ip netns delete n1
	ip netns delete n2
}

mount_it() {
	in_ns n2 mount.nfs4 10.77.0.1:/ "$here" -o proto=rdma,port=20049,vers=4.2,timeo=50,retry=0,fatal_neterrors=none
	grep " $here .*proto=rdma" /proc/mounts
}

unmount() {
	if mountpoint -q "$here"; then umount "$here"; fi
}

# no_queue_pairs DEVICE: but the core's own. Completion queues stay: the core keeps them for the next consumer.
no_queue_pairs() {
	rdma resource show "$1" | grep -q ' qp 1 '
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
	wait_for no_queue_pairs r2
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
	local i pids=()

	mount_it
	for i in 1 2 3 4; do
		# shellcheck disable=SC2016 # The inner shell expands it.
		start "io$i" "" bash -c '
			set -e
			for round in 1 2 3; do
				dd if="$1" of="$2" bs=64k oflag=direct status=none
				dd if="$2" of="$3" bs=64k iflag=direct status=none
				cmp "$1" "$3"
			done' - "$tmp/pattern" "$here/file$i" "$tmp/back$i"
		pids+=("$pid")
	done
	for i in "${!pids[@]}"; do ends "${pids[i]}" || { cat "$tmp/io$((i + 1)).log"; return 1; }; done
	unmount
}

written() {
	[ "$(stat -c %s "$there/file")" -gt 0 ]
}

# no_new_connections: the connection manager finds no way to the server. Packets of a connection that there is go by UDP, and
# are not meant.
no_new_connections() {
	ip -n n2 rule add pref 1 ipproto udp lookup main && ip -n n2 rule add pref 2 to 10.77.0.1 unreachable
}

new_connections() {
	ip -n n2 rule del pref 2 && ip -n n2 rule del pref 1
}

# The client's device goes while it writes, and comes again: the client connects anew, and all of it arrives.
#
# Not before it has gone: xprtrdma hears of it first, and if it then finds the device at once, whose connections rdma_cm is just
# about to end, rdma_resolve_route() returns EINVAL, which the RPC client takes for final and hands to the writer.
test_device_gone() {
	mount_it
	no_new_connections
	rm -f "$there/file"
	start writer "" dd if="$tmp/pattern" of="$here/file" bs=4k oflag=direct
	wait_for written
	rdma link delete r2
	fails device r2
	fails cmp "$tmp/pattern" "$there/file"
	new_connections
	add_link r2 n2 v2
	ends "$pid" || { cat "$tmp/writer.log"; return 1; }
	cmp "$tmp/pattern" "$there/file"
	unmount
}

# shellcheck disable=SC2034
after_each=unmount
set_up make_net
set_up add_links
set_up start_server
test_case "copied there and back" test_copy
test_case "direct, blocks of 4 KB to 1 MB" test_sizes 4k 128k 1M
test_case "directories and small files" test_tree
test_case "four programs at once" test_many
test_case "client's device removed and re-added while writing" test_device_gone

run_cases "$@"
