/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included before memcpy_64.S of the kernel of make bench-native. ARCH=um does
 * not patch alternatives, so its memcpy() would be the loop for processors
 * without fast short string instructions. This assembles the alternative.
 */
#include <asm/alternative.h>

.purgem ALTERNATIVE
.macro ALTERNATIVE old, new, feature
	\new
.endm
