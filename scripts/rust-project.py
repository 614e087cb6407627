#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""rust-project.py FILE ROOT OBJTREE: completes the rust-project.json that the kernel's generator writes for a module.

It knows the crates of the kernel, not that ours depend on each other, nor where our generated bindings are; and the standard
library's source has the path that it has inside the lab.
"""

import json
import sys

DEPENDS = {"ferroce_trace": ["rdma"], "ferroce_main": ["roce", "rdma", "ferroce_trace"]}


def main():
    path, root, objtree = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        project = json.load(file)

    for key in ("sysroot", "sysroot_src"):
        if project.get(key, "").startswith("/usr"):
            project[key] = root + project[key]
    index = {crate["display_name"]: n for n, crate in enumerate(project["crates"])}
    for crate in project["crates"]:
        if crate["root_module"].startswith("/usr/"):
            crate["root_module"] = root + crate["root_module"]
        for name in DEPENDS.get(crate["display_name"], []):
            crate["deps"].append({"crate": index[name], "name": name})
        if crate["display_name"] in ("roce", "rdma", "ferroce_trace", "ferroce_main"):
            crate["env"]["MODULE_OBJTREE"] = objtree
    if "rdma" in index:
        project["crates"][index["rdma"]]["source"] = {
            "include_dirs": ["rust/rdma", objtree],
            "exclude_dirs": [],
        }

    json.dump(project, sys.stdout, indent=4)


if __name__ == "__main__":
    main()
