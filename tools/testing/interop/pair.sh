#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# pair.sh DIR NEAR FAR: what two machines show and two namespaces do not: real net devices, and multicast from one kernel to
# another.

# shellcheck disable=SC2317 # The cases are called by name.
# shellcheck source=tools/testing/interop/lib.sh
. "$(dirname "$0")/lib.sh"
shift 3

set_up pair_start
set_up route
for side in 1 2; do
	test_case "RC, every operation and length, server on side $side" peers "$side" 4 4096 rc
	test_case "multicast, IPv4, to side $side" peers "$side" 4 1024 mcast
	test_case "multicast, IPv6, to side $side" peers "$side" 6 4096 mcast
	test_case "multicast, mckey, to side $side" mckeys "$side"
done
test_case "the modules unload" pair_end

run_cases "$@"
