#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RDS over RDMA: sockets whose messages the kernel sends over RC, between two addresses of one device, as RDS knows the first
# network namespace only.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs python3
modprobe -q rds_rdma || skip_all "no RDS"

make_link() {
	ip link add v1 mtu 4200 type veth peer name v2 mtu 4200 && ip addr add 10.77.0.1/24 dev v1 &&
		ip addr add 10.77.0.2/24 dev v1 && ip link set v2 up && ip link set v1 up && make_device
}

make_device() {
	rdma link add r1 type ferroce netdev v1 && wait_state r1 ACTIVE && gid_index r1 10.77.0.2
}

clean() {
	device r1 && rdma link delete r1
	ip link delete v1
	modprobe -r rds_rdma
}

# exchange SIZE...: messages there and back, over a connection of RC queue pairs.
exchange() {
	python3 - "$@" <<-'PYTHON'
		import os
		import socket
		import sys

		AF_RDS = 21


		def bound(address):
		    result = socket.socket(AF_RDS, socket.SOCK_SEQPACKET)
		    result.bind((address, 4000))
		    result.settimeout(60)
		    return result


		near, far = bound("10.77.0.1"), bound("10.77.0.2")
		for size in map(int, sys.argv[1:]):
		    for sender, receiver in ((near, far), (far, near)):
		        message = os.urandom(size)
		        sender.sendto(message, receiver.getsockname())
		        if receiver.recvfrom(size + 1) != (message, sender.getsockname()):
		            sys.exit(f"{size} bytes: another message arrived")
	PYTHON
	rdma resource show qp link r1 | grep 'type RC state RTS'
}

# The connection ends with the device, and the same addresses connect over the next one.
test_device_again() {
	exchange 4096
	rdma link delete r1
	fails device r1
	make_device
	exchange 4096
}

set_up make_link
test_case "messages of 1 byte to 64 KB" exchange 1 100 4096 8192 65536
test_case "device removed and added again" test_device_again

run_cases "$@"
