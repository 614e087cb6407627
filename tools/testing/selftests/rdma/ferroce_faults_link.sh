#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Fault injection in the link commands: "rdma link add" alone has more than a thousand allocations, each of which fails once.

# shellcheck disable=SC2034 # ferroce_faults.sh has the cases.
parts=(link:)
# shellcheck source=tools/testing/selftests/rdma/ferroce_faults.sh
. "$(dirname "$0")/ferroce_faults.sh"
