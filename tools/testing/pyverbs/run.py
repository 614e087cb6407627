#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs rdma-core's own tests (pyverbs) on a device and judges each one.

Each module of tests has a process of its own. A process that dies or hangs fails the test that it was in, and the rest of its
tests run in a new one. A crash of a process after its last test does not matter: that of parent_domain would crash, on C
rdma_rxe too.

Prints a TAP line for each test and at the end a table, whose last line is "pyverbs: N ok, N skipped, N failed".

The list of tests that must run is exact: a test that is in it and does not pass is a failure, and so is one that passes and is
not in it.
"""

import argparse
import collections
import json
import os
import select
import signal
import time

import one_module

MODULES = """addr atomic cq cq_events cqex device fork mr odp parent_domain pd qp qpex rdmacm relaxed_ordering rss_traffic
    shared_pd srq tag_matching""".split()

# A module in which this many tests hang is given up.
MAX_HANGS = 2

Outcome = collections.namedtuple("Outcome", "verdict why")


def short(name):
    """A test's name as it is printed: without the package."""
    return name.removeprefix("tests.")


def read_list(path):
    """The tests that must run: a name a line, # begins a comment."""
    with open(path, encoding="utf-8") as file:
        lines = (line.split("#")[0].strip() for line in file)
        return {f"tests.{line}" for line in lines if line}


class Process:
    """One process of one module, and its events so far."""

    def __init__(self, args, module, settled, log):
        self.planned = []
        self.outcomes = {}
        self.outside = []
        self.current = None
        self.done = False
        self.hung = False
        self.limit = args.limit
        self.events, writer = os.pipe()
        self.pid = one_module.start(f"test_{module}", settled, writer, log)
        os.close(writer)

    def patience(self):
        """Seconds that the process may be silent now."""
        return self.limit

    def lines(self):
        """Yields the lines that the process prints, until it ends or is silent for too long."""
        rest = b""
        while select.select([self.events], [], [], self.patience())[0]:
            data = os.read(self.events, 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
        self.hung = True

    def run(self, on_outcome):
        """Follows the process to its end; returns the reason if it ended before its last test, or None."""
        for line in self.lines():
            self.take(json.loads(line), on_outcome)
            if self.done:
                break
        os.close(self.events)
        if not self.hung:
            self.ended()
        self.kill()
        code = self.reap()
        if self.done:
            return None
        if self.hung:
            return f"hung: not done after {self.patience():g} s"
        if code is None:
            return "cannot be killed"
        return f"died: {signal.Signals(-code).name}" if code < 0 else f"ended: exit code {code}"

    def take(self, event, on_outcome):
        if "plan" in event:
            self.planned = event["plan"]
        elif "start" in event:
            self.current = event["start"]
        elif "end" in event:
            self.current = None
            self.outcomes[event["end"]] = Outcome(event["verdict"], event["why"])
            on_outcome(event["end"], self.outcomes[event["end"]])
        elif "outside" in event:
            self.outside.append(event["outside"])
        self.done = "done" in event

    def kill(self):
        """Ends the process and those that its tests started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def ended(self):
        """Waits for the process to end, but not forever."""
        pidfd = os.pidfd_open(self.pid)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = poll.poll(30 * 1000)
        os.close(pidfd)
        return bool(ended)

    def reap(self):
        """The exit code; None for a process that does not end, because the kernel holds it."""
        if not self.ended():
            return None
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Run:
    """All modules, and their results."""

    def __init__(self, args):
        self.args = args
        self.required = {name for name in read_list(args.must_run)
                         if name.split(".")[1].removeprefix("test_") in args.modules}
        self.list_name = "tools/testing/pyverbs/" + os.path.basename(args.must_run)
        self.outcomes = {}
        self.seconds = {}

    def module(self, module, log):
        """Runs the tests of one module, in as many processes as it takes."""
        start = time.monotonic()
        settled = {}
        hangs = 0

        def settle(name, outcome):
            settled[name] = self.judge(name, outcome)

        while True:
            process = Process(self.args, module, list(settled), log)
            end = process.run(settle)
            left = [name for name in process.planned if name not in settled]
            if end is None:
                # A failure outside a test, as in the preparation of a class, keeps tests from running.
                for name in left:
                    settle(name, Outcome("failed", "; ".join(process.outside) or "did not run"))
                break
            print(f"# pyverbs: module {module} {end}", flush=True)
            if not process.planned:
                settle(f"tests.test_{module}", Outcome("failed", f"{end}, before the first test"))
                break
            if process.current:
                settle(process.current, Outcome("failed", end))
            elif left:
                settle(left[0], Outcome("failed", f"{end}, between the test before and this one"))
            else:
                settle(f"tests.test_{module}", Outcome("failed", f"{end}, after the last test"))
                break
            hangs += end.startswith(("hung", "cannot"))
            if hangs == MAX_HANGS:
                for name in left:
                    if name not in settled:
                        settle(name, Outcome("failed", "did not run: the module hung before"))
                break
            if len(settled) >= len(process.planned):
                break
        for name in sorted(self.required):
            if name.startswith(f"tests.test_{module}.") and name not in settled:
                settle(name, Outcome("failed", "must run, and did not"))
        self.seconds[module] = time.monotonic() - start
        self.outcomes[module] = settled

    def judge(self, name, outcome):
        """Prints the TAP line of a test, and returns the outcome that counts."""
        if outcome.verdict == "skipped" and name in self.required:
            outcome = Outcome("failed", f"must run, and was skipped: {outcome.why}")
        elif outcome.verdict == "ok" and name not in self.required:
            outcome = Outcome("failed", f"runs, and is not listed: add this line to {self.list_name}")
        if outcome.verdict == "failed":
            print(f"not ok - pyverbs {short(name)}\n#   {outcome.why}", flush=True)
        else:
            skip = f" # SKIP {outcome.why}" if outcome.verdict == "skipped" else ""
            print(f"ok - pyverbs {short(name)}{skip}", flush=True)
        return outcome

    def count(self, verdict, module=None):
        """The number of tests with this verdict, in a module or in all."""
        modules = [module] if module else self.outcomes
        return sum(o.verdict == verdict for m in modules for o in self.outcomes[m].values())

    def by_reason(self, verdict):
        """Names by reason, in the order of the tests."""
        reasons = {}
        for outcomes in self.outcomes.values():
            for name, outcome in outcomes.items():
                if outcome.verdict == verdict:
                    reasons.setdefault(outcome.why, []).append(short(name))
        return reasons

    def table(self):
        """The table; no line of it looks like TAP."""
        yield f"| {'module':<18} | {'ok':>7} | {'skipped':>7} | {'failed':>7} | {'seconds':>7} |"
        yield "|-" + "-" * 18 + "-|" + ("-" * 9 + "|") * 4
        for module in self.outcomes:
            counts = "".join(f" {self.count(verdict, module):>7} |" for verdict in ("ok", "skipped", "failed"))
            yield f"| {module:<18} |{counts} {self.seconds[module]:>7.1f} |"
        for verdict in ("skipped", "failed"):
            for why, names in self.by_reason(verdict).items():
                yield f"{verdict}: {why} ({len(names)})"
                yield from (f"    {name}" for name in names)
        yield "pyverbs: " + ", ".join(f"{self.count(verdict)} {verdict}" for verdict in ("ok", "skipped", "failed"))

    def write_results(self, path):
        """Writes all tests, one a line, for a baseline."""
        with open(path, "w", encoding="utf-8") as file:
            for outcomes in self.outcomes.values():
                for name, outcome in sorted(outcomes.items()):
                    why = f" {outcome.why!r}" if outcome.why else ""
                    file.write(f"{short(name)}\t{outcome.verdict}{why}\n")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", required=True, help="directory with rdma-core's tests, unpacked")
    parser.add_argument("--must-run", required=True, help="file that names the tests that must run")
    parser.add_argument("--device", required=True, help="RDMA device")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a test hangs")
    parser.add_argument("--log", default="/dev/null", help="file for the output of the tests")
    parser.add_argument("--results", help="file for a line for each test")
    parser.add_argument("modules", nargs="*", default=MODULES, help="modules, without test_ (default: all)")
    args = parser.parse_args(argv)

    one_module.prepare(args.tests, args.device)
    run = Run(args)
    with open(args.log, "w", encoding="utf-8") as log:
        for module in args.modules:
            run.module(module, log)
    if args.results:
        run.write_results(args.results)
    print("\n".join(run.table()), flush=True)


if __name__ == "__main__":
    main()
