# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # The names below are for the scripts that source this file.
#
# The paths of the lab and the versions of its parts. Sourced, never run.

SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)

# The series that the Rust abstractions of this driver are written for.
KERNEL_SERIES=7.3

SUITE=${FERROCE_SUITE:-trixie}

LAB=$(realpath -m "${FERROCE_LAB:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ferroce}")

# make, Kbuild, mounts and QEMU each treat some of these as separators.
case $SRC$LAB in
*[[:space:],:%\'\"]*)
	echo "error: a space, comma, colon, percent sign or quote in '$SRC' or '$LAB': move it, or set FERROCE_LAB=" >&2
	exit 1
	;;
esac

# A changed package list makes a new root file system beside the old one, so that a checkout of an older commit still
# finds its own.
LAB_KEY=$SUITE-$(cat "$SRC/scripts/lab/packages" <(echo "$SUITE $KERNEL_SERIES") | sha256sum | cut -c1-12)
LAB_DIR=$LAB/$LAB_KEY

# LAB_ROOT may be preset: the set-up enters the root while it still has its temporary name.
: "${LAB_ROOT:=$LAB_DIR/root}"
LAB_LINUX=$LAB_DIR/linux
LAB_STOCK=$LAB_DIR/stock

# A changed fragment makes a new kernel, whose modules live beside those of the old one in the root file system.
DEBUG_CONFIG=$SRC/scripts/lab/debug.config
DEBUG_KEY=$(sha256sum <"$DEBUG_CONFIG" | cut -c1-8)
LAB_DEBUG=$LAB_DIR/debug-$DEBUG_KEY

# ARCH=um: the options that differ.
UM_CONFIG=$SRC/scripts/lab/um.config
UM_KEY=$(cat "$DEBUG_CONFIG" "$UM_CONFIG" | sha256sum | cut -c1-8)
LAB_UM=$LAB_DIR/um-$UM_KEY

# ARCH=um without the sanitizers and checks.
NATIVE_CONFIG=$SRC/scripts/lab/native.config
UM_MEMCPY=$SRC/scripts/lab/um-memcpy.h
NATIVE_KEY=$(cat "$DEBUG_CONFIG" "$UM_CONFIG" "$NATIVE_CONFIG" "$UM_MEMCPY" | sha256sum | cut -c1-8)
LAB_NATIVE=$LAB_DIR/native-$NATIVE_KEY

# A tree that modules are compiled against, of a kernel that is never built: ARCH=um with only the options that ferroce needs.
MINIMAL_CONFIG=$SRC/scripts/lab/minimal.config
MINIMAL_KEY=$(sha256sum <"$MINIMAL_CONFIG" | cut -c1-8)
LAB_MINIMAL=$LAB_DIR/minimal-$MINIMAL_KEY

JOBS=$(nproc)
