# SPDX-License-Identifier: GPL-2.0
"""Runs one module of rdma-core's tests in a process of its own, and reports each step as a line of JSON.

The output of the tests themselves goes to the standard output and error. The events, in order:

    {"plan": [NAME, ...]}
    {"start": NAME}, {"end": NAME, "verdict": "ok" | "skipped" | "failed", "why": TEXT}    for each test
    {"outside": TEXT}                                                                      a failure that no test has
    {"done": true}
"""

import errno
import faulthandler
import gc
import importlib
import json
import os
import sys
import traceback
import types
import unittest


class Reporter(unittest.TestResult):
    """Reports the outcome of each test: the worst one of the test, its subtests and its clean-up counts."""

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
        # Tests are to be skipped if a verb is not supported; some raise its error instead.
        if self.current and getattr(err[1], "error_code", None) == errno.EOPNOTSUPP:
            self.addSkip(test, str(err[1]))
        else:
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
    """The tests of a suite, at any depth."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def prepare(tests_dir, device):
    """Imports the modules that all tests share, once, because this takes seconds."""
    # The package's own __init__ imports the tests of all devices there are.
    package = types.ModuleType("tests")
    package.__path__ = [tests_dir]
    sys.modules["tests"] = package
    sys.path.insert(0, tests_dir)
    for name in ("tests.base", "tests.utils", "tests.base_rdmacm"):
        importlib.import_module(name)

    # rdma-core's own options.
    argv = sys.argv
    sys.argv = [argv[0], "--dev", device]
    importlib.import_module("args_parser").parser.parse_args()
    sys.argv = argv


def run(module, settled, events):
    """Runs a module's tests, but for those that an earlier process has settled."""
    out = os.fdopen(events, "w", buffering=1)
    # A process that a test leaves behind must not keep the pipe open.
    os.register_at_fork(after_in_child=lambda: os.close(events))

    def send(event):
        out.write(json.dumps(event) + "\n")
        out.flush()

    # A crash in a library leaves its Python stack in the log.
    faulthandler.enable()

    # A test that is skipped or fails half-way leaves objects in reference cycles. Collecting them closes a context before its
    # objects, and the library crashes, in the middle of a later test.
    gc.disable()

    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromName(f"tests.{module}")))
    send({"plan": [test.id() for test in tests]})
    unittest.TestSuite(test for test in tests if test.id() not in settled).run(Reporter(send))
    send({"done": True})


def start(module, settled, events, log):
    """Forks a process, in a group of its own, that runs a module's tests and ends; returns its PID."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = os.fdopen(1, "w", buffering=1)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        run(module, settled, events)
        code = 0
    except BaseException:  # pylint: disable=broad-exception-caught
        traceback.print_exc()
    finally:
        # Skips the interpreter's shutdown: that is no test, and frees the remaining objects of the tests in any order.
        os._exit(code)
