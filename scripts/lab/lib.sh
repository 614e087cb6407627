# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Messages, stages and locks of the lab's set-up. Sourced after config.sh.

die() {
	printf 'lab: error: %s\n' "$*" >&2
	exit 1
}

# stage NUMBER TITLE: starts a numbered stage; say and run print under its number.
stage() {
	STAGE="$LAB_NAME $1/$LAB_STAGES"
	say "$2"
}

say() {
	printf '[%s] %s (%d s)\n' "$STAGE" "$*" "$SECONDS"
}

# run LOG COMMAND...: runs a command with its output in a log, and shows the last line of that every 20 s.
run() {
	local log=$LAB_DIR/log/$1 pid
	shift
	mkdir -p "${log%/*}"
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	# A job in the background does not see Ctrl-C.
	trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
	while ! timeout 20 tail --pid="$pid" -f /dev/null; do
		say "  $(wc -l <"$log") lines: $(tail -n 1 "$log" | tr -d '\r' | cut -c 1-90)"
	done
	trap - INT TERM
	wait "$pid" && return
	tail -n 15 "$log" >&2
	die "${FAILED:-$1 failed}; the whole log is $log"
}

# lock FILE: waits for the lock on FILE. The lock is released with the last process that inherited it, so a compiler that
# outlives a killed set-up still keeps the next one away.
lock() {
	mkdir -p "${1%/*}" 2>/dev/null || die "cannot write to ${1%/*}: set FERROCE_LAB= to a directory with 12 GB of space"
	exec 9>"$1"
	flock --nonblock 9 && return
	echo "lab: waiting for another set-up that holds $1"
	flock 9
}

# done_with NAME / is_done NAME: a stage leaves its stamp only when all of it is in place.
done_with() {
	touch "$LAB_DIR/.$1.done"
}

is_done() {
	[ -e "$LAB_DIR/.$1.done" ]
}

# in_root COMMAND...: runs a command inside the root file system.
in_root() {
	"$SRC/scripts/lab/enter" "$@"
}
