#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Tests run.py on modules of tests that pass, are skipped, fail, die and hang. Prints TAP."""

import contextlib
import io
import sys
import tempfile

import run

ARGS_PARSER = """
import sys
class Parser:
    def parse_args(self):
        assert sys.argv[1:] == ["--dev", "d0"], sys.argv
parser = Parser()
"""

MODULES = {
    "plain": """
import unittest
class T(unittest.TestCase):
    def test_1_ok(self): pass
    def test_2_skip(self): self.skipTest("no  such thing")
    def test_3_fail(self): self.assertEqual(1, 2)
    def test_4_error(self): raise OSError(5, "broken")
    def test_5_subtest(self):
        with self.subTest(i=1): self.fail("inner")
        with self.subTest(i=2): self.skipTest("late")
    def test_6_required_skip(self): self.skipTest("not here")
    def test_7_cleanup(self): self.addCleanup(self.fail, "cleanup")
    def test_8_new(self): pass
    def test_8_unsupported(self):
        error = OSError("no verb")
        error.error_code = 95
        raise error
""",
    "dies": """
import os, signal, unittest
class T(unittest.TestCase):
    def test_1_ok(self): pass
    def test_2_segv(self): os.kill(os.getpid(), signal.SIGSEGV)
    def test_3_ok(self): pass
    def test_4_exit(self): os._exit(3)
    def test_5_skip(self): self.skipTest("x")
""",
    # What the process does after its last test is no test; a process that it leaves behind holds nothing up.
    "dies_late": """
import atexit, os, signal, time, unittest
class T(unittest.TestCase):
    def test_1_skip(self):
        if os.fork() == 0: time.sleep(1000)
        atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
        self.skipTest("x")
""",
    "hangs": """
import time, unittest
class T(unittest.TestCase):
    def test_1_ok(self): pass
    def test_2_hang(self): time.sleep(1000)
    def test_3_ok(self): pass
    def test_4_hang(self): time.sleep(1000)
    def test_5_ok(self): pass
""",
    "class_fails": """
import unittest
class T(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError(5, "broken")
    def test_1_ok(self): pass
""",
    "broken": "import nothing_of_this_name",
}

MUST_RUN = """
# What passes, what does not, what there is not, and what this run leaves out.
test_plain.T.test_1_ok  # a comment
test_plain.T.test_3_fail
test_plain.T.test_6_required_skip
test_plain.T.test_9_gone
test_dies.T.test_1_ok
test_dies.T.test_3_ok
test_hangs.T.test_1_ok
test_hangs.T.test_3_ok
test_hangs.T.test_5_ok
test_other.T.test_1
"""

# In the order of the modules above.
WANTED = """
ok - pyverbs test_plain.T.test_1_ok
ok - pyverbs test_plain.T.test_2_skip # SKIP no such thing
not ok - pyverbs test_plain.T.test_3_fail
not ok - pyverbs test_plain.T.test_4_error
not ok - pyverbs test_plain.T.test_5_subtest
not ok - pyverbs test_plain.T.test_6_required_skip
not ok - pyverbs test_plain.T.test_7_cleanup
not ok - pyverbs test_plain.T.test_8_new
ok - pyverbs test_plain.T.test_8_unsupported # SKIP no verb
not ok - pyverbs test_plain.T.test_9_gone
ok - pyverbs test_dies.T.test_1_ok
not ok - pyverbs test_dies.T.test_2_segv
ok - pyverbs test_dies.T.test_3_ok
not ok - pyverbs test_dies.T.test_4_exit
ok - pyverbs test_dies.T.test_5_skip # SKIP x
ok - pyverbs test_dies_late.T.test_1_skip # SKIP x
ok - pyverbs test_hangs.T.test_1_ok
not ok - pyverbs test_hangs.T.test_2_hang
ok - pyverbs test_hangs.T.test_3_ok
not ok - pyverbs test_hangs.T.test_4_hang
not ok - pyverbs test_hangs.T.test_5_ok
not ok - pyverbs test_class_fails.T.test_1_ok
not ok - pyverbs unittest.loader._FailedTest.test_broken
pyverbs: 5 ok, 4 skipped, 14 failed
""".strip().splitlines()

REASONS = [
    "AssertionError: 1 != 2",
    "OSError: [Errno 5] broken",
    "must run, and was skipped: not here",
    "must run, and did not",
    "runs, and is not listed: add this line to tools/testing/pyverbs/must-run.d (1)\n    test_plain.T.test_8_new\n",
    "died: SIGSEGV",
    "ended: exit code 3",
    "hung: not done after 0.5 s",
    "did not run: the module hung before",
    "setUpClass",
    "nothing_of_this_name",
]


class Process(run.Process):
    """However slow the machine is, only the tests that hang run out of time."""

    def patience(self):
        return 0.5 if self.current and "_hang" in self.current else 600


def main():
    with tempfile.TemporaryDirectory() as tmp:
        files = {f"test_{name}.py": text for name, text in MODULES.items()}
        shared = {"base.py": "", "utils.py": "", "base_rdmacm.py": "", "args_parser.py": ARGS_PARSER}
        for name, text in {**files, **shared, "must-run.d": MUST_RUN}.items():
            with open(f"{tmp}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        run.Process = Process
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = run.main(["--tests", tmp, "--must-run", f"{tmp}/must-run.d", "--device", "d0", *MODULES])
    printed = out.getvalue()

    got = [line for line in printed.splitlines() if line.startswith(("ok", "not ok", "pyverbs:"))]
    wrong = [f"want: {want}\n# got:  {have}" for want, have in zip(WANTED, got + [""] * len(WANTED)) if want != have]
    wrong += [f"more: {line}" for line in got[len(WANTED):]]
    wrong += [f"reason missing: {why}" for why in REASONS if why not in printed]
    if not code:
        wrong.append("the exit code says that all is well")
    print("".join(f"# {line}\n" for line in wrong), end="")
    print(f"{'not ok' if wrong else 'ok'} - pyverbs runner: tells passed, skipped, failed, dead and hung tests apart")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
