#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# SMB Direct, the kernel's server (ksmbd) and client (cifs) on the device r1: written data arrives, and existing files can be
# read.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tools/testing/selftests/rdma/files.sh
. "$(dirname "$0")/files.sh"
! slow || mib=1
need_module
need_programs ksmbd.mountd ksmbd.adduser ksmbd.control
{ modprobe -q smbdirect && modprobe -q ksmbd && modprobe -q cifs; } || skip_all "no SMB Direct"

# start_server: starts the daemon that answers the kernel's queries about users and shares.
start_server() {
	make_files || return
	cat >"$tmp/ksmbd.conf" <<-END
		[share]
			path = $there
			read only = no
			force user = root
	END
	ksmbd.adduser -C "$tmp/ksmbd.conf" -P "$tmp/users" -a -p secret tester || return
	ksmbd.mountd -C "$tmp/ksmbd.conf" -P "$tmp/users" && wait_for listening
}

clean() {
	unmount
	ksmbd.control -s
	modprobe -r cifs
	modprobe -r ksmbd
	modprobe -r smbdirect
	rdma link delete r1
	ip link delete v1
}

# Port 445 is that of RoCE; without it, the client tries that of iWARP first.
mount_it() {
	mount -i -t cifs //10.77.0.1/share "$here" \
		-o ip=10.77.0.1,port=445,rdma,vers=3.1.1,cache=none,username=tester,password=secret
	grep " $here cifs .*,cache=none,.*,rdma," /proc/mounts
}

# shellcheck disable=SC2034
after_each=unmount
set_up make_device
set_up start_server
test_case "copied there and back" test_copy
test_case "direct, blocks of 4 KB to 1 MB" test_sizes 4k 128k 1M
test_case "directories and small files" test_tree
test_case "four programs at once" test_many

run_cases "$@"
