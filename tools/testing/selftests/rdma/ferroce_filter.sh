#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The filter of Documentation/infiniband/ferroce/threat-model.rst: users of the peer's host cannot reach the UDP port of a device,
# and the RDMA device of that host can.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/selftests/rdma/lib.sh
. "$(dirname "$0")/lib.sh"
need_module
need_programs nft setpriv rping ibv_rc_pingpong ibv_ud_pingpong
nft list tables >/dev/null 2>&1 || skip_all "the kernel has no nftables"
# shellcheck disable=SC2034
after_each=clean

prepare() {
	make_net
	add_links
}

add_filter() {
	in_ns n2 nft -f - <<-END
		table inet roce {
			chain output {
				type filter hook output priority filter; policy accept;
				udp dport 4791 meta skuid != 0 drop
			}
		}
	END
}

# user_sends ADDRESS: sends from the peer's host as a user without privileges.
user_sends() {
	in_ns n2 setpriv --reuid 65534 --clear-groups bash -c "echo forged >/dev/udp/$1/4791"
}

# dropped: prints the number of malformed packets that r1 got.
dropped() {
	rdma -j statistic show link r1/1 | sed -n 's/.*"rx_malformed":\([0-9]*\).*/\1/p'
}

dropped_is() {
	[ "$(dropped)" = "$1" ]
}

without() {
	local before address

	prepare
	for address in 10.77.0.1 fd77::1; do
		before=$(dropped)
		user_sends "$address"
		wait_for dropped_is $((before + 1))
	done
}

with() {
	local before address ip

	prepare
	add_filter
	before=$(dropped)
	for address in 10.77.0.1 fd77::1; do
		refused "Operation not permitted" user_sends "$address"
	done
	for ip in 4 6; do
		both ibv_rc_pingpong -c -n 20
		both ibv_ud_pingpong -c -n 20
	done
	# The connection manager sends from the kernel, too.
	rpings 10.77.0.1 -V -C 3
	equal "$before" "$(dropped)"
}

test_case "without the filter a user's packets arrive" without
test_case "with the filter a user's packets do not leave, and those of the device do" with

run_cases "$@"
