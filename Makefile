# SPDX-License-Identifier: GPL-2.0
#
# The targets for users. Each target calls a script, which documents it. Kbuild, not this file, describes the module to the
# kernel's build.
#
# With KDIR=<prepared kernel tree>, this machine's compilers build for that kernel. Without it, the lab's stock Debian kernel
# is used, and the lab is set up first if necessary.

KERNEL ?= stock

.DEFAULT_GOAL := module
.NOTPARALLEL:

##@ Module

module: ## build ferroce.ko (build/stock/ferroce.ko, or build/kdir/ferroce.ko with KDIR=)
	@scripts/build --kernel $(KERNEL)

samples: ## build the sample, the smallest RDMA device (build/stock-samples/rust_ib_minimal.ko)
	@scripts/build --kernel $(KERNEL) --into $(KERNEL)-samples FERROCE_SAMPLES=y modules

modules_install: ## install the module for the kernel of KDIR, or for the running kernel if that is Debian's
	@scripts/install

##@ Use it in a virtual machine

demo: module ## pingpongs and perftest between two namespaces of a virtual machine
	@scripts/vm/run --kernel $(KERNEL) --timeout 900 scripts/vm/demo

shell: module ## a shell in a virtual machine with two namespaces, each with a device
	@scripts/vm/run --kernel $(KERNEL) --interactive scripts/vm/shell

bench: module ## compare with C rdma_rxe, siw and TCP in one boot (build/bench.csv, .svg; ROUNDS=, DRIVERS=, TESTS=)
	@scripts/vm/bench

bench-icount: module ## the same by instruction counts: slower, but repeatable (build/bench-icount.csv, .svg)
	@scripts/vm/bench --icount

bench-nic: module ## the same over devices that cannot segment, as a real NIC (build/bench-nic.csv, .svg)
	@scripts/vm/bench --nic

bench-native: KERNEL = native
bench-native: module ## the same on User Mode Linux, at the speed of this machine (build/bench-native.csv, .svg)
	@scripts/vm/bench --native

bench-pairs: module ## instructions, and locked ones, of 1, 2 and 4 pairs of processes on four processors (build/bench-pairs.csv, .svg)
	@scripts/vm/bench --pairs

bench-loss: module ## C rdma_rxe, ferroce and TCP over a network that loses packets (build/bench-loss.csv, .svg)
	@scripts/vm/bench --loss

bench-peer: module ## C rdma_rxe and ferroce as each other's peers, in two virtual machines (build/bench-peer.csv)
	@scripts/vm/bench --peer

profile: module ## the instructions of a message by function (TEST=send_bw SIZE=64 QPS=1 DRIVER=ferroce LINES=40)
	@scripts/vm/profile

bench-publish: ## copy the results of the last benchmarks to Documentation
	@scripts/vm/bench-publish

##@ Tests

check: ## the gates, host tests, sample, selftests of the stock kernel, two machines, pyverbs
	@scripts/check

check-pyverbs: module ## rdma-core's own tests, one by one (DRIVER=rxe: on C rdma_rxe; MODULES="mr odp": some only)
	@scripts/check --kernel $(KERNEL) pyverbs

check-interop: module ## C rdma_rxe and ferroce over the wire, in two virtual machines (CASES=REGEX: some only)
	@scripts/check --kernel $(KERNEL) interop

check-debug: ## KUnit, the selftests and rdma-core's tests on the debug kernel (KASAN, lockdep, ...)
	@scripts/check --kernel debug

mutants: ## mutation-test crate roce (FIRST=3 STEP=8: a sample)
	@scripts/mutants $(or $(FIRST),0) $(or $(STEP),1)

##@ Lab

lab: ## set up the build environment and the stock kernel (under ten minutes, once)
	@scripts/lab/setup

lab-debug: ## build the emulated debug kernel (about twenty minutes, once)
	@scripts/lab/setup-kernel debug

lab-um: ## build the User Mode Linux debug kernel (about ten minutes, once)
	@scripts/lab/setup-kernel um

lab-native: ## build the User Mode Linux kernel of bench-native (about ten minutes, once)
	@scripts/lab/setup-kernel native

##@ Source

fmt: ## format the Rust files
	@scripts/rustfmt

fmt-check: ## say which Rust files are not formatted
	@scripts/gates/fmt

clippy: ## run clippy with the kernel's lints, and the core crate's own
	@scripts/gates/clippy

doc: module ## rustdoc of the crates (build/doc), and compile the examples of rdma
	@scripts/rustdoc

rust-analyzer: module ## write rust-project.json for editors
	@scripts/rust-analyzer

##@ Others

clean: ## remove what was built here (the lab stays)
	@rm -rf build rust-project.json

help: ## show this
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z_-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' Makefile

.PHONY: module samples modules_install demo shell bench bench-icount bench-nic bench-native bench-pairs bench-loss bench-peer profile bench-publish check check-pyverbs check-interop check-debug mutants lab lab-debug lab-um lab-native fmt fmt-check clippy doc rust-analyzer clean help
