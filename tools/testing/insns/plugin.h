/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The common part of the plugins: the interval that the guest marks, and the argument.
 */

#include <stdio.h>
#include <string.h>

#include "mark.h"
#include "qemu-plugin.h"

/* The longest instruction, in bytes. */
#define LONGEST 15

typedef void insn_cb(unsigned int vcpu, void *data);

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

/* Called at the begin and at the end of the interval. */
static insn_cb on_start, on_stop;

static int is_mark(const uint8_t *code, size_t len, uint32_t address)
{
	static const uint8_t nopl[] = { 0x0f, 0x1f, 0x84, 0x00 };

	return len == sizeof(nopl) + sizeof(address) && !memcmp(code, nopl, sizeof(nopl)) &&
	       !memcmp(code + sizeof(nopl), &address, sizeof(address));
}

/* Returns the callback of an instruction that is a mark, or NULL. */
static insn_cb *mark_callback(const uint8_t *code, size_t len)
{
	if (is_mark(code, len, MARK_START))
		return on_start;
	return is_mark(code, len, MARK_STOP) ? on_stop : NULL;
}

/* Returns the file that the argument "out" names, or NULL. */
static const char *out_argument(int argc, char **argv)
{
	if (argc == 1 && !strncmp(argv[0], "out=", 4))
		return argv[0] + 4;
	fprintf(stderr, "insns: error: name a file for the counts: out=FILE\n");
	return NULL;
}
