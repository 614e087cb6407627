#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# perftest: bandwidth and latency programs of every operation. They only have to succeed, at any speed.

# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs ib_write_bw
set_up make_net
set_up add_links

for operation in send write read; do
	test_case "ib_${operation}_bw RC" exchange "ib_${operation}_bw" -F -n 50
	test_case "ib_${operation}_lat RC" exchange "ib_${operation}_lat" -F -n 50 -s 64
done
for operation in send write; do
	test_case "ib_${operation}_bw UC" exchange "ib_${operation}_bw" -F -n 20 -c UC
	test_case "ib_${operation}_lat UC" exchange "ib_${operation}_lat" -F -n 20 -c UC
	test_case "ib_${operation}_lat RC inline" exchange "ib_${operation}_lat" -F -n 50 -I 64 -s 64
done
test_case "ib_send_bw UD" exchange ib_send_bw -F -n 20 -c UD -s 1024
test_case "ib_send_lat UD" exchange ib_send_lat -F -n 20 -c UD -s 1024
slow || test_case "ib_send_bw RC with events" exchange ib_send_bw -F -n 50 -e
slow || test_case "ib_write_bw 4 queue pairs" exchange ib_write_bw -F -n 20 -q 4
slow || test_case "ib_read_bw 4 queue pairs" exchange ib_read_bw -F -n 20 -q 4
test_case "ib_send_bw 4 queue pairs both ways" exchange ib_send_bw -F -n 20 -q 4 -b
slow || test_case "ib_write_bw both ways" exchange ib_write_bw -F -n 20 -b
slow || test_case "ib_read_bw both ways" exchange ib_read_bw -F -n 20 -b
slow || test_case "ib_write_bw all sizes" exchange ib_write_bw -F -n 5 -a
test_case "ib_read_bw MTU 256" exchange ib_read_bw -F -n 20 -m 256
test_case "ib_send_bw 17 MiB" exchange ib_send_bw -F -n 5 -s 17825792

run_cases "$@"
