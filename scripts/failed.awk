#!/usr/bin/awk -f
# SPDX-License-Identifier: GPL-2.0
#
# failed.awk FILE: prints the failed results of a TAP file, each with the last lines of diagnostics before it.

BEGIN {
	most = 25
}

/^not ok/ {
	print
	for (i = (seen > most ? seen - most : 0); i < seen; i++) print "  " lines[i % most]
}

/^(not )?ok/ {
	seen = 0
	next
}

{
	lines[seen++ % most] = $0
}
