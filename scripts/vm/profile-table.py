#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""profile-table.py DIR LINES: prints the instructions for a message of the functions that execute most.

DIR has profile (address and instructions), messages (their number) and kallsyms. The addresses of programs have no names."""

import bisect
import collections
import pathlib
import re
import subprocess
import sys

# The first address of the kernel.
KERNEL = 1 << 63


def read_symbols(path):
    """Sorted addresses, and the name and the module of the function at each."""
    symbols = {}
    for line in path.read_text(encoding="ascii").splitlines():
        address, kind, name, *module = line.split()
        if kind in "tTwW":
            symbols[int(address, 16)] = (name, module[0].strip("[]") if module else "kernel")
    return sorted(symbols), symbols


def demangle(names):
    """The names of Rust as in the source, without the hashes of the crates."""
    result = subprocess.run(["c++filt", "-s", "rust"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [re.sub(r"\[[0-9a-f]{16}\]", "", name) for name in result.stdout.splitlines()]


def main():
    directory, lines = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    messages = int((directory / "messages").read_text(encoding="ascii"))
    addresses, symbols = read_symbols(directory / "kallsyms")
    functions = collections.Counter()
    for line in (directory / "profile").read_text(encoding="ascii").splitlines():
        address, insns = int(line.split()[0], 16), int(line.split()[1])
        at = bisect.bisect_right(addresses, address) - 1
        known = address >= KERNEL and at >= 0
        functions[symbols[addresses[at]] if known else ("(all)", "programs")] += insns
    modules = collections.Counter()
    for (_, module), insns in functions.items():
        modules[module] += insns

    print(f"{functions.total() / messages:10.1f}  instructions for a message, of {messages} messages\n")
    for module, insns in modules.most_common():
        print(f"{insns / messages:10.1f}  {module}")
    print()
    top = functions.most_common(lines)
    names = demangle([name for (name, _), _ in top])
    for name, ((_, module), insns) in zip(names, top):
        print(f"{insns / messages:10.1f}  {module:12}  {name}")


main()
