#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Runs one module of rdma-core's tests in a process of its own, and reports each step as a line of JSON.

one_module.py TESTS_DIR MODULE DEVICE EVENTS_FD [NAME...]

NAMEs are tests to leave out: those that an earlier process of the same module has settled. What the tests print themselves
goes to the standard output and error. The events, in order:

    {"plan": [NAME, ...]}
    {"start": NAME}, {"end": NAME, "verdict": "ok" | "skipped" | "failed", "why": TEXT}    for each test
    {"outside": TEXT}                                                                      a failure that no test has
    {"done": true}
"""

import faulthandler
import gc
import json
import os
import sys
import types
import unittest


class Reporter(unittest.TestResult):
    """Tells the events apart by test; the worst outcome of a test, its subtests and its clean-up counts."""

    def __init__(self, send):
        super().__init__()
        self.send = send
        self.current = None
        self.outcome = None

    def startTest(self, test):
        super().startTest(test)
        self.current = test.id()
        self.outcome = ("ok", "")
        print(f"=== {self.current}", file=sys.stderr, flush=True)
        self.send({"start": self.current})

    def stopTest(self, test):
        super().stopTest(test)
        verdict, why = self.outcome
        self.send({"end": self.current, "verdict": verdict, "why": why})
        self.current = None

    def failed(self, test, err):
        text = self._exc_info_to_string(err, test)
        print(text, file=sys.stderr, flush=True)
        # The last line of a traceback names the error.
        why = text.strip().splitlines()[-1]
        if self.current is None:
            self.send({"outside": f"{test}: {why}"})
        elif self.outcome[0] != "failed":
            self.outcome = ("failed", why)

    def addError(self, test, err):
        super().addError(test, err)
        self.failed(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if self.current is None:
            self.send({"outside": f"{test}: skipped: {reason}"})
        elif self.outcome[0] == "ok":
            self.outcome = ("skipped", " ".join(reason.split()))

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = ("failed", "unexpected success")


def flatten(suite):
    """The tests of a suite, however deep they lie."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def main():
    tests_dir, module, device, events = sys.argv[1:5]
    settled = set(sys.argv[5:])
    out = os.fdopen(int(events), "w", buffering=1)
    os.set_inheritable(out.fileno(), False)
    # A process that a test leaves behind must not keep the pipe open.
    os.register_at_fork(after_in_child=lambda: os.close(int(events)))

    def send(event):
        out.write(json.dumps(event) + "\n")
        out.flush()

    # A crash in a library leaves its Python stack in the log.
    faulthandler.enable()

    # What a test leaves behind when it is skipped or fails half-way hangs in cycles. Collecting them closes a context before
    # its objects, and the library dies of it, in the middle of a later test.
    gc.disable()

    # The package's own __init__ imports the tests of all devices there are.
    package = types.ModuleType("tests")
    package.__path__ = [tests_dir]
    sys.modules["tests"] = package
    sys.path.insert(0, tests_dir)
    from args_parser import parser  # pylint: disable=import-error,import-outside-toplevel

    sys.argv[1:] = ["--dev", device]
    parser.parse_args()

    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}")))
    send({"plan": [test.id() for test in tests]})
    unittest.TestSuite(test for test in tests if test.id() not in settled).run(Reporter(send))
    send({"done": True})


if __name__ == "__main__":
    main()
