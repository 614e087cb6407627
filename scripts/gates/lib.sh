# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions that the gates share. Sourced, never run: a gate runs from the top of the checkout and prints TAP lines.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# verdict NAME COMPLAINTS: one TAP line, after the complaints, if there are any.
verdict() {
	if [ -z "$2" ]; then
		echo "ok - $1"
	else
		head -n 60 <<<"$2" | sed 's/^/# /'
		echo "not ok - $1"
		failed=1
	fi
}

# failure COMMAND...: prints the output of a command that fails, or its exit code if there is no output.
failure() {
	local log rc

	log=$("$@" 2>&1) || { rc=$?; echo "${log:-$1 ended with $rc}"; }
}

# sources [EXTENSION...]: files of the project, tracked or not yet, but not ignored.
sources() {
	git -c safe.directory="$PWD" ls-files -co --exclude-standard -- "${@/#/*.}" | while read -r file; do
		[ ! -f "$file" ] || echo "$file"
	done
}

# objects: the crates in the stock build.
objects() {
	local driver=drivers/infiniband/sw/ferroce

	printf 'build/stock/%s\n' rust/roce/roce.o rust/rdma/rdma.o $driver/trace/ferroce_trace.o $driver/ferroce_main.o
}

# shellcheck disable=SC2034 # The trap below reads it.
failed=0
trap 'rc=$?; exit $((rc ? rc : failed))' EXIT
