// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A plugin of QEMU that counts the instructions of an interval by address.
 *
 * The guest marks the interval with two no-ops (mark.h). At its end, the file that the argument
 * "out" names gets a line for each block of instructions that was executed: its address, and the
 * number of instructions, all executions together. A block that a fault ended early counts whole.
 */

#include <stdlib.h>

#include "plugin.h"

/* A translated block of instructions. QEMU may translate the same instructions more than once. */
struct block {
	unsigned long long vaddr;
	unsigned long long insns;
	unsigned long long executed;
	struct block *next;
};

/* With -icount one thread executes all processors. */
static struct block *blocks;
static int counting;
static const char *out;

static void on_block(unsigned int vcpu, void *data)
{
	struct block *block = data;

	block->executed += counting;
}

static void on_start(unsigned int vcpu, void *data)
{
	struct block *block;

	for (block = blocks; block; block = block->next)
		block->executed = 0;
	counting = 1;
}

static void on_stop(unsigned int vcpu, void *data)
{
	struct block *block;
	FILE *file = fopen(out, "w");

	counting = 0;
	if (!file) {
		perror(out);
		return;
	}
	for (block = blocks; block; block = block->next)
		if (block->executed)
			fprintf(file, "%llx %llu\n", block->vaddr, block->executed * block->insns);
	fclose(file);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *block = calloc(1, sizeof(*block));
	size_t i, len;

	if (!block)
		abort();
	block->vaddr = qemu_plugin_tb_vaddr(tb);
	block->insns = qemu_plugin_tb_n_insns(tb);
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_NO_REGS, block);
	for (i = 0; i < block->insns; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		insn_cb *cb;
		uint8_t code[LONGEST];

		len = qemu_plugin_insn_data(insn, code, sizeof(code));
		cb = mark_callback(code, len);
		if (cb)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, QEMU_PLUGIN_CB_NO_REGS,
							       NULL);
	}
}

QEMU_PLUGIN_EXPORT
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	const char *name = out_argument(argc, argv);

	out = name ? strdup(name) : NULL;
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
