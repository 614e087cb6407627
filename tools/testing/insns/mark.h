/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An interval begins and ends with "nopl ADDRESS(%rax,%rax,1)", with addresses that no compiler
 * emits.
 */

#define MARK_START 0x6b72616d
#define MARK_STOP 0x706f7473
