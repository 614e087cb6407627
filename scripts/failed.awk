#!/usr/bin/awk -f
# SPDX-License-Identifier: GPL-2.0
#
# failed.awk FILE: prints the results in a TAP file that failed, each with the last diagnostics before it.

BEGIN {
	most = 25
}

/^#/ {
	lines[seen++ % most] = $0
	next
}

/^not ok/ {
	print
	for (i = (seen > most ? seen - most : 0); i < seen; i++) print "  " lines[i % most]
}

/^(not )?ok/ {
	seen = 0
}
