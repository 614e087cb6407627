# SPDX-License-Identifier: GPL-2.0
#
# frames.pl LIMIT: reads a disassembly of GNU objdump and prints functions whose frame is larger than LIMIT bytes.

use strict;
use warnings;

my ($limit, $name) = (shift, '');
while (<>) {
	$name = $1 if /^[0-9a-f]+ <(.*)>:/;
	print "$name ", hex($1), "\n" if /\bsub +\$0x([0-9a-f]+),%rsp/ && hex($1) > $limit;
}
