# SPDX-License-Identifier: GPL-2.0
#
# Takes one test program's TAP, ending with a line "exit: CODE", and prints its results at the top level under the program's
# name (-v name=), everything else as diagnostics. Results that the plan promises and that are missing are a failure.

function result(ok, text) {
	print (ok ? "ok" : "not ok") " - " text
	fflush()
}

/^exit: [0-9]+$/ {
	code = $2
	next
}

/^1\.\.[0-9]+/ {
	plan = substr($1, 4) + 0
	planned = 1
	if (plan == 0) skip = 1
}

/^(not )?ok( |$)/ {
	ok = ($1 == "ok")
	sub(/^(not )?ok *[0-9]* *-? */, "")
	result(ok, name ($0 ~ /^# SKIP/ ? " " : ": ") $0)
	seen++
	failed += !ok
	next
}

/^$/ {
	next
}

{
	if (!/^#/) $0 = "# " $0
	print
	fflush()
}

END {
	if (!seen && (code == 4 || (skip && code == 0))) {
		result(1, name " # SKIP")
	} else if (code == 124) {
		result(0, name ": timed out")
	} else if (code != 0 && !failed) {
		result(0, name ": exit code " code)
	} else if (planned && seen != plan) {
		result(0, name ": planned " plan " results, gave " seen + 0)
	} else if (!seen) {
		result(code == 0, name)
	}
}
