#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""The imports of the crates: the uses between modules, and violations of guidelines.rst.

layers.py             prints each import that breaks a rule
layers.py --dot CRATE prints the graph of a crate's modules, for graphviz

The rules: a crate names only the crates below it; and modules may use each other in a cycle only
within one directory. A module may use the definitions of its ancestors; a name that they only
re-export counts as an import from the module that defines it.
"""

import re
import sys
from pathlib import Path

# Crate: the root file, and the crates that it may name.
CRATES = {
    "roce": ("rust/roce/roce.rs", {"zerocopy"}),
    "rdma": ("rust/rdma/rdma.rs", {"kernel", "pin_init", "bindings"}),
    "ferroce": (
        "drivers/infiniband/sw/ferroce/ferroce_main.rs",
        {"ferroce_trace", "kernel", "pin_init", "rdma", "roce", "zerocopy"},
    ),
    "ferroce_trace": (
        "drivers/infiniband/sw/ferroce/trace/ferroce_trace.rs",
        {"kernel", "rdma"},
    ),
    "rust_ib_minimal": ("samples/rust/rust_ib_minimal.rs", {"kernel", "pin_init", "rdma"}),
}
USE = re.compile(r"^ *(pub(?:\([^)]*\))? +)?use +([^;]+);", re.M)
TESTS = re.compile(r"^#\[cfg\((?:any\()?test.*?^mod \w+ \{.*?^\}", re.M | re.S)
PATH = re.compile(r"(?<![\w:])((?:crate|self|super)(?:::\w+)+|(?:ferroce_trace|roce|rdma)(?=::))")


def leaves(tree):
    """The paths of a use tree, each a list of names."""
    found = []

    def walk(at, prefix):
        name = ""
        while at < len(tree):
            char = tree[at]
            at += 1
            if char == "{":
                at = walk(at, prefix + [part.strip() for part in name.split("::") if part.strip()])
                name = ""
            elif char in ",}":
                if name.strip():
                    found.append(prefix + [part.strip() for part in name.split("::")])
                name = ""
                if char == "}":
                    return at
            else:
                name += char
        if name.strip():
            found.append(prefix + [part.strip() for part in name.split("::")])
        return at

    walk(0, [])
    return [[re.sub(r" +as .*", "", part) for part in path] for path in found]


class Crate:
    """The modules of a crate by path (a tuple of names), and the imports of each one."""

    def __init__(self, name):
        root, self.allowed = CRATES[name]
        self.root = Path(root)
        self.files = {(): self.root}
        others = [Path(other).parent for other, _ in CRATES.values()]
        if name != "rust_ib_minimal":
            for file in sorted(self.root.parent.rglob("*.rs")):
                if any(other in file.parents and self.root.parent in other.parents for other in others):
                    continue
                module = file.relative_to(self.root.parent).with_suffix("").parts
                if file != self.root and not re.search("tests|testutil|kunit", module[-1]):
                    self.files[module] = file
        self.parents = {module[:-1] for module in self.files if module}
        self.texts = {
            module: TESTS.sub("", re.sub(r'//[^\n]*|"[^"\n]*"', "", file.read_text()))
            for module, file in self.files.items()
        }
        self.exports = {}
        for module, text in self.texts.items():
            for public, tree in USE.findall(text):
                if public:
                    for path in leaves(tree):
                        origin = self.absolute(module, path)
                        if origin is not None:
                            self.exports[module + (path[-1],)] = origin
        self.foreign, self.edges = [], {module: {} for module in self.files}
        self.ancestors = {module: set() for module in self.files}
        for module in self.files:
            for path in self.paths(module):
                self.note(module, path)
        self.add_ancestors()

    def paths(self, module):
        text = self.texts[module]
        for _, tree in USE.findall(text):
            yield from leaves(tree)
        for path in PATH.findall(USE.sub("", text)):
            yield path.split("::")

    def absolute(self, module, path):
        """A path from the root of the crate; None if it leads to another crate."""
        path = list(path)
        if path[0] == "crate":
            return tuple(path[1:])
        if path[0] in ("self", "super"):
            while path and path[0] in ("self", "super"):
                module = module[:-1] if path.pop(0) == "super" else module
            return module + tuple(path)
        return module + tuple(path) if module + (path[0],) in self.files else None

    def note(self, module, path):
        target = self.absolute(module, path)
        if target is None:
            if path[0] in CRATES and path[0] not in self.allowed:
                self.foreign.append((module, path[0]))
            return
        for _ in range(8):
            for end in range(len(target), 0, -1):
                if target[:end] in self.exports:
                    target = self.exports[target[:end]] + target[end:]
                    break
            else:
                break
        while target not in self.files:
            target = target[:-1]
        if target == module[: len(target)]:
            self.ancestors[module].add(target)
        else:
            self.edges[module].setdefault(target, "::".join(path))

    def add_ancestors(self):
        """Adds the ancestors of the modules that a module uses.

        A module may use its ancestors, which hold the types that it implements. A module elsewhere
        that uses it depends on the ancestors, too."""
        for module, edges in self.edges.items():
            for target, path in list(edges.items()):
                for ancestor in self.ancestors[target]:
                    if ancestor != module[: len(ancestor)]:
                        edges.setdefault(ancestor, path)

    def directory(self, module):
        return module if module in self.parents else module[:-1]

    def cycles(self):
        """Sets of modules in several directories that can all be reached from one another."""
        order, low, stack, found = {}, {}, [], []

        def visit(module):
            order[module] = low[module] = len(order)
            stack.append(module)
            for other in self.edges[module]:
                if other not in order:
                    visit(other)
                    low[module] = min(low[module], low[other])
                elif other in stack:
                    low[module] = min(low[module], order[other])
            if low[module] == order[module]:
                cycle = set(stack[stack.index(module) :])
                del stack[stack.index(module) :]
                if len({self.directory(member) for member in cycle}) > 1:
                    found.append(cycle)

        for module in self.files:
            if module not in order:
                visit(module)
        return found


def label(module):
    return "::".join(module) or "(root)"


def main():
    if sys.argv[1:2] == ["--dot"]:
        crate = Crate(sys.argv[2])
        print("digraph {")
        for module, edges in crate.edges.items():
            for other in edges:
                print(f'\t"{label(module)}" -> "{label(other)}"')
        print("}")
        return
    for name in CRATES:
        crate = Crate(name)
        for module, other in crate.foreign:
            print(f"{crate.files[module]}: crate {name} must not know {other}")
        for cycle in crate.cycles():
            for module in sorted(cycle):
                for other, path in crate.edges[module].items():
                    if other in cycle:
                        print(f"{crate.files[module]}: {path}: part of a cycle of directories")


if __name__ == "__main__":
    main()
