# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Stages 1 to 3 of the set-up: the host's packages and the root file system.

# host_packages: installs the packages that make a root file system. All else runs inside it.
host_packages() {
	local need=()

	command -v mmdebstrap >/dev/null || need+=(mmdebstrap)
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need+=(debian-archive-keyring)
	[ "${#need[@]}" = 0 ] && return
	command -v apt-get >/dev/null || die "no apt-get here: the lab is made on Debian; with a 7.3 kernel of your own set KDIR="
	say "  installing ${need[*]} on this machine with apt-get"
	FAILED="apt-get cannot install ${need[*]}" run host-apt sh -c 'apt-get update; apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=600 "$@"' \
		sh "${need[@]}"
}

# mirror: prints the Debian mirror of this machine.
mirror() {
	local uri list

	if [ -n "${FERROCE_MIRROR-}" ]; then
		echo "$FERROCE_MIRROR"
		return
	fi
	# shellcheck disable=SC2016 # apt-get expands it.
	uri=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' 'Label: Debian' 2>/dev/null | head -n 1)
	case $uri in
	mirror+file:*)
		# A file with a list of mirrors, as in Debian's cloud images.
		list=${uri#mirror+file:}
		awk '/^[a-z]/ { print $1; exit }' "${list%/}"
		;;
	cdrom:*) ;;
	*) echo "$uri" ;;
	esac
}

base_root() {
	local from tmp=$LAB_DIR/root.tmp

	from=$(mirror)
	if [ -z "$from" ]; then
		FAILED="apt-get update failed" run host-apt-update apt-get update
		from=$(mirror)
	fi
	[ -n "$from" ] || die "this machine's apt knows no Debian mirror: set FERROCE_MIRROR= to one"

	rm -rf --one-file-system "$tmp"
	FAILED="mmdebstrap found no usable suite $SUITE or $SUITE-backports at $from: set FERROCE_SUITE= or FERROCE_MIRROR=" \
		run mmdebstrap mmdebstrap --variant=apt --mode=root --include=ca-certificates --skip=cleanup/apt/lists \
		"$SUITE" "$tmp" "deb $from $SUITE main" "deb $from $SUITE-backports main"

	# The apt inside uses the proxies and certificates of the one outside. No service starts in there.
	apt-config dump | grep -E '^Acquire::.*(Proxy|CAInfo)' >"$tmp/etc/apt/apt.conf.d/90host" || true
	printf '#!/bin/sh\nexit 101\n' >"$tmp/usr/sbin/policy-rc.d"
	chmod +x "$tmp/usr/sbin/policy-rc.d"
}

# lab_release: the newest release of the series whose headers the archive has, as in 7.3.1+deb13.
lab_release() {
	in_root apt-cache search --names-only "^linux-headers-${KERNEL_SERIES/./\\.}\\.[0-9]+[^-]*-amd64\$" |
		sed -E 's/^linux-headers-(.*)-amd64 .*/\1/' | sort -V | tail -n 1
}

lab_packages() {
	local list missing release tmp=$LAB_DIR/root.tmp

	export LAB_ROOT=$tmp LAB_ARCHIVES=$LAB_DIR/archives
	mkdir -p "$LAB_ARCHIVES/partial"
	release=$(lab_release)
	[ -n "$release" ] ||
		die "$SUITE-backports has no linux-headers-$KERNEL_SERIES.*-amd64: set FERROCE_SUITE=, or KDIR= to a $KERNEL_SERIES tree"

	mapfile -t list < <(sed -E "/^(#|$)/d; s/@kernel@/$release/" "$SRC/scripts/lab/packages")
	missing=$(comm -23 <(printf '%s\n' "${list[@]}" | sort) <(in_root apt-cache pkgnames | sort) | xargs)
	[ -z "$missing" ] || die "not in $SUITE nor $SUITE-backports: $missing: set FERROCE_SUITE= to a suite that has them"

	say "  kernel $release, ${#list[@]} packages and their dependencies"
	FAILED="apt-get could not install the packages" run packages "$SRC/scripts/lab/enter" \
		apt-get install -y --no-install-recommends -o DPkg::Options::=--force-unsafe-io -o APT::Keep-Downloaded-Packages=true \
		"${list[@]}"
	echo "$release-amd64" >"$tmp/etc/ferroce-kernel"
	unset LAB_ARCHIVES
	LAB_ROOT=$LAB_DIR/root

	rm -rf --one-file-system "$LAB_ROOT"
	mv "$tmp" "$LAB_ROOT"
	done_with root
	rm -rf "$LAB_DIR/archives"
}
