/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An interval begins and ends with "nopl ADDRESS(%rax,%rax,1)", with addresses that no compiler
 * emits.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MARK_START 0x6b72616d
#define MARK_STOP 0x706f7473

static inline int is_mark(const uint8_t *code, size_t len, uint32_t address)
{
	static const uint8_t nopl[] = { 0x0f, 0x1f, 0x84, 0x00 };

	return len == sizeof(nopl) + sizeof(address) && !memcmp(code, nopl, sizeof(nopl)) &&
	       !memcmp(code + sizeof(nopl), &address, sizeof(address));
}
