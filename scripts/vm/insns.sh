# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For bench and profile: builds the plugins of the emulator that count instructions, and the program that marks an interval for them.

build_insns() {
	local cc=(scripts/lab/enter gcc -Wall -Werror -O2) plugin

	mkdir -p build/insns
	for plugin in locked profile; do
		"${cc[@]}" -shared -fPIC -o "$SRC/build/insns/$plugin.so" "$SRC/tools/testing/insns/$plugin.c"
	done
	"${cc[@]}" -o "$SRC/build/insns/mark" "$SRC/tools/testing/insns/mark.c"
}
