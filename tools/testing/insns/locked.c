// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin of QEMU that counts the locked instructions of all processors: those with a LOCK prefix,
 * and XCHG with memory.
 *
 * The guest marks an interval with two no-ops (mark.h). At the end of each one, the count is
 * appended to the file that the argument "out" names.
 */

#include "plugin.h"

/* With -icount one thread executes all processors. */
static unsigned long long locked;
static FILE *out;

static void on_locked(unsigned int vcpu, void *data)
{
	locked++;
}

static void on_start(unsigned int vcpu, void *data)
{
	locked = 0;
}

static void on_stop(unsigned int vcpu, void *data)
{
	fprintf(out, "%llu\n", locked);
	fflush(out);
}

/* Returns the length of the prefixes; *lock is set if LOCK is one of them. */
static size_t prefixes(const uint8_t *code, size_t len, int *lock)
{
	static const uint8_t legacy[] = {
		0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3
	};
	size_t at = 0;

	while (at < len && memchr(legacy, code[at], sizeof(legacy)))
		*lock |= code[at++] == 0xf0;
	/* REX */
	if (at < len && (code[at] & 0xf0) == 0x40)
		at++;
	return at;
}

static int is_locked(const uint8_t *code, size_t len)
{
	int lock = 0;
	size_t at = prefixes(code, len, &lock);

	/* XCHG locks without the prefix, unless it exchanges two registers. */
	return lock || (at + 1 < len && (code[at] & 0xfe) == 0x86 && code[at + 1] < 0xc0);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, len;

	for (i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		insn_cb *cb;
		uint8_t code[LONGEST];

		len = qemu_plugin_insn_data(insn, code, sizeof(code));
		cb = is_locked(code, len) ? on_locked : mark_callback(code, len);
		if (cb)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, QEMU_PLUGIN_CB_NO_REGS,
							       NULL);
	}
}

QEMU_PLUGIN_EXPORT
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	const char *name = out_argument(argc, argv);

	if (!name)
		return -1;
	out = fopen(name, "w");
	if (!out) {
		perror(name);
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
