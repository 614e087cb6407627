# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Stages 4 and 5 of the set-up: the kernel source, and an output directory that Rust modules for the stock Debian kernel can
# be built against.

kernel_source() {
	local tmp=$LAB_DIR/linux.tmp

	rm -rf "$tmp" "$LAB_LINUX"
	mkdir "$tmp"
	FAILED="the kernel source does not unpack" \
		run source in_root tar -xJf "/usr/src/linux-source-$KERNEL_SERIES.tar.xz" -C "$tmp" --strip-components=1
	mv "$tmp" "$LAB_LINUX"
	done_with source
}

# Debian's kernels have Rust, but their headers package leaves out the metadata that a Rust module is compiled against. The
# same source, configuration and compilers make it again. Symbols get the same names as in the kernel image, because the names
# depend only on these three.
prepare_stock() {
	local headers have image release tmp=$LAB_DIR/stock.tmp want

	release=$(<"$LAB_ROOT/etc/ferroce-kernel")
	headers=$LAB_ROOT/usr/src/linux-headers-$release

	want=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"/\1/p' "$headers/.config")
	have=$(in_root rustc --version)
	[ "$want" = "$have" ] ||
		die "Debian built $release with '$want', $SUITE has '$have': set FERROCE_SUITE= to the suite it was built for, or KDIR="

	# make continues where it was killed, so only the copies need care.
	if [ ! -d "$LAB_STOCK" ]; then
		rm -rf "$tmp"
		mkdir "$tmp"
		cp "$headers/.config" "$headers/Module.symvers" "$tmp"
		mv "$tmp" "$LAB_STOCK"
	fi
	FAILED="the stock kernel's tree could not be prepared" run stock in_root make -C "$LAB_LINUX" O="$LAB_STOCK" -j"$JOBS" \
		CC=x86_64-linux-gnu-gcc-14 KERNELRELEASE="$release" olddefconfig prepare modules_prepare
	grep -q '^CONFIG_RUST=y' "$LAB_STOCK/.config" ||
		die "the kernel's configuration lost CONFIG_RUST: see 'make -C $LAB_LINUX rustavailable' in scripts/lab/enter"
	[ -e "$LAB_STOCK/rust/libkernel.rmeta" ] || die "no Rust metadata came out of the kernel build: see $LAB_DIR/log/stock"

	image=$(find "$LAB_ROOT/boot/vmlinuz-$release" "$LAB_ROOT/usr/lib/modules/$release" -maxdepth 1 -name 'vmlinuz*' -print -quit \
		2>/dev/null) || true
	[ -n "$image" ] || die "no kernel image for $release in $LAB_ROOT"
	cp "$image" "$LAB_STOCK/vmlinuz"
	done_with stock
}
