"""Runs one module of CPython's own tests, natively or interpreted, and says how each test ended.

    python tests/interpret/cpython_run.py test.test_generators interpreted

One line of JSON a test on standard output, as it ends, so that a crash loses nothing. Needs neither torch nor this
package's other tests: it runs under every Python that the machine knows.
"""

from __future__ import annotations

import builtins
import faulthandler
import importlib.util
import json
import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tintype.interpret import Machine, Policy  # noqa: E402

ROOM = str(Path(__file__).resolve().parents[2] / "tintype" / "interpret")

# How results are collected is no part of the test: this code runs natively in both modes.
COLLECTING = ("unittest/result.py", "unittest/suite.py", "unittest/runner.py", os.path.basename(__file__))


class Everything(Policy):
    """All that can be interpreted, the standard library and unittest included."""

    def interprets(self, function: types.FunctionType) -> bool:
        filename = function.__code__.co_filename
        if filename.startswith(ROOM) or filename.endswith(COLLECTING):
            return False
        return super().interprets(function)


class Lines(unittest.TestResult):
    """Writes a line for every test, and remembers the worst that its subtests did."""

    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out
        self.status, self.detail = "passed", ""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.status, self.detail = "passed", ""

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.write(test.id())

    def write(self, name: str) -> None:
        line = {"test": name, "status": self.status, "detail": self.detail[-3000:]}
        print(json.dumps(line), file=self.out, flush=True)

    def ended(self, status: str, error: Any) -> None:
        if self.status in ("passed", "skipped"):
            self.status, self.detail = status, self._exc_info_to_string(error, self) if error else ""

    def addError(self, test: Any, err: Any) -> None:
        self.ended("error", err)
        if not isinstance(test, unittest.TestCase):  # setUpClass and its kin
            self.write(str(test))
            self.status = "passed"

    def addFailure(self, test: Any, err: Any) -> None:
        self.ended("failed", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.ended("skipped", None)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.ended("failed", err)

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.ended("unexpected success", None)

    def _exc_info_to_string(self, err: Any, test: Any) -> str:
        import traceback

        return "".join(traceback.format_exception(*err))


def interpreted_module(machine: Machine, name: str) -> types.ModuleType:
    """A module whose body was interpreted."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)
    code = found.loader.get_code(name)  # type: ignore[attr-defined]
    module.__dict__["__builtins__"] = builtins.__dict__
    machine.call(exec, code, module.__dict__)
    return module


def main() -> None:
    name, mode, *only = sys.argv[1:]
    faulthandler.enable()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print goes elsewhere
    sys.argv[1:] = []
    import test.support

    test.support.use_resources = []
    machine = None
    if mode == "interpreted":
        machine = Machine(Everything())
        for method in ("_callSetUp", "_callTestMethod", "_callTearDown"):
            through_machine(machine, method)
        module = interpreted_module(machine, name)
    else:
        module = importlib.import_module(name)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = Lines(out)
    if only:
        suite = unittest.TestSuite(case for case in cases_of(suite) if any(part in case.id() for part in only))
    suite.run(result)
    codes = 0 if machine is None else sum(plan is not None for _, plan in machine.plans.values())
    print(json.dumps({"test": "", "status": "finished", "detail": str(codes)}), file=out, flush=True)


def through_machine(machine: Machine, method: str) -> None:
    natively = getattr(unittest.TestCase, method)

    def interpreted(self: unittest.TestCase, *arguments: Any) -> Any:
        return machine.call(natively, self, *arguments)

    setattr(unittest.TestCase, method, interpreted)


def cases_of(suite: Any) -> list[Any]:
    if not isinstance(suite, unittest.TestSuite):
        return [suite]
    return [case for entry in suite for case in cases_of(entry)]


if __name__ == "__main__":
    main()
