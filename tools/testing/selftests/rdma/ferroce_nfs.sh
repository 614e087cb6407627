#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NFS over RDMA, the kernel's server in one namespace and its client in another: written data arrives, existing data can be
# read, and a mount outlives its device.
#
# In Linux 7.3, NFS over RDMA keeps the network namespaces, with C rxe too. A test that switches to the exclusive mode of RDMA
# namespaces fails after this one.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/testing/selftests/rdma/files.sh
. "$(dirname "$0")/files.sh"
need_module
need_programs tc rpc.nfsd rpc.mountd nfsdcld exportfs mount.nfs4
{ modprobe -q rpcrdma && modprobe -q nfsd && modprobe -q nfsv4; } || skip_all "no NFS over RDMA"

# daemons: prints the PIDs of the daemons of the server.
daemons() {
	pgrep -x 'rpc\.mountd|nfsdcld'
}

! daemons >/dev/null || skip_all "this host is an NFS server"
pipes=$tmp/pipes

# start_server: starts the server in n1; rpc.nfsd requires TCP beside RDMA. The daemons answer the kernel's requests for the
# permissions of clients, and for the list of earlier clients (there were none, so the server does not wait for them).
start_server() {
	make_files && mkdir -p "$pipes" "$tmp/clients" &&
		in_ns n1 mount -t rpc_pipefs pipes "$pipes" && in_ns n1 mount -t nfsd nfsd /proc/fs/nfsd &&
		in_ns n1 nfsdcld -p "$pipes" -s "$tmp/clients" &&
		in_ns n1 exportfs -o rw,fsid=0,no_root_squash,insecure,no_subtree_check "*:$there" &&
		in_ns n1 rpc.mountd -N 3 -u &&
		in_ns n1 rpc.nfsd -N 3 --rdma=20049 4
}

clean() {
	unmount
	in_ns n1 rpc.nfsd 0
	in_ns n1 exportfs -u "*:$there"
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

# no_queue_pairs DEVICE: checks that only the core's own is left. Completion queues stay: the core keeps them for the next
# consumer.
no_queue_pairs() {
	rdma resource show "$1" | grep -q ' qp 1 '
}

test_mount_again() {
	test_copy
	wait_for no_queue_pairs r2
}

written() {
	[ "$(stat -c %s "$there/file")" -gt 0 ]
}

# no_new_connections: makes the connection manager find no route to the server. Packets of existing connections are UDP, and
# are not affected.
no_new_connections() {
	ip -n n2 rule add pref 1 ipproto udp lookup main && ip -n n2 rule add pref 2 to 10.77.0.1 unreachable
}

new_connections() {
	ip -n n2 rule del pref 2 && ip -n n2 rule del pref 1
}

# The client's device is removed while the client writes, and added again: the client reconnects, and all data arrives.
#
# It must not reconnect before the device is gone: xprtrdma learns of the removal first, and if it then still finds the device,
# whose connections rdma_cm is about to end, rdma_resolve_route() returns EINVAL, which the RPC client treats as final and returns
# to the writer.
test_device_gone() {
	mount_it
	no_new_connections
	rm -f "$there/file"
	# Otherwise the writer could end before the device is removed.
	tc -n n2 qdisc add dev v2 root netem delay 20ms
	start writer "" dd if="$tmp/pattern" of="$here/file" bs=4k oflag=direct
	wait_for written
	rdma link delete r2
	fails device r2
	fails cmp "$tmp/pattern" "$there/file"
	tc -n n2 qdisc del dev v2 root
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
test_case "copied there and back" test_mount_again
test_case "direct, blocks of 4 KB to 1 MB" test_sizes 4k 128k 1M
test_case "directories and small files" test_tree
test_case "four programs at once" test_many
test_case "client's device removed and re-added while writing" test_device_gone

run_cases "$@"
