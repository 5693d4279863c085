"""The machine against CPython: its own tests, each natively and interpreted.

    python -m tests.interpret.cpython                      # every Python that is found, all modules
    python -m tests.interpret.cpython --python 3.12 test_with test_generators

No test may pass natively and not interpreted, but for those that `cpython_expected.py` lists with reasons; one that
is listed and passes is told, too. Ends with 1 if there is one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.interpret.cpython_expected import EXPECTED, MODULES
from tintype.interpret.versions import VERSIONS

RUN = Path(__file__).with_name("cpython_run.py")
SECONDS = 900


class Outcome(NamedTuple):
    statuses: dict[str, str]
    details: dict[str, str]
    finished: bool
    codes: int  # code objects that were interpreted


def pythons() -> dict[str, str]:
    """ "3.12": the program, for every version with a table and with CPython's tests."""
    found: dict[str, str] = {}
    candidates = [sys.executable]
    candidates += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/*/bin/python"), reverse=True)]
    candidates += [path for version in VERSIONS if (path := shutil.which(f"python{version}"))]
    ask = "import sys, test.support; print('%d.%d' % sys.version_info[:2])"
    for program in candidates:
        done = subprocess.run([program, "-c", ask], capture_output=True, text=True)
        version = done.stdout.strip()
        if done.returncode == 0 and version in VERSIONS:
            found.setdefault(version, program)
    return dict(sorted(found.items()))


def run(program: str, module: str, mode: str) -> Outcome:
    """One module in one mode, in a process and a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": "", "PYTHONHASHSEED": "0"}
        command = [program, str(RUN), f"test.{module}", mode]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
            output, errors = done.stdout, done.stderr
        except subprocess.TimeoutExpired as expired:
            output = (expired.stdout or b"").decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
            errors = f"took more than {SECONDS} s"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    finished = bool(lines) and lines[-1]["status"] == "finished"
    codes = int(lines.pop()["detail"]) if finished else 0
    statuses = {line["test"]: line["status"] for line in lines}
    details = {line["test"]: line["detail"] for line in lines}
    if not finished:
        details[""] = errors[-3000:]
    return Outcome(statuses, details, finished, codes)


def expected(version: str, test: str) -> str | None:
    """The pattern that lists a test."""
    for pattern, (versions, _) in EXPECTED.items():
        if version in versions.split() and fnmatch.fnmatch(test, pattern):
            return pattern
    return None


def judge(version: str, program: str, module: str, verbose: bool) -> tuple[int, int, int, list[str], set[str]]:
    """How many tests pass natively, how many of those interpreted, how many are listed, and what is wrong."""
    natively = run(program, module, "native")
    if "No module named" in natively.details.get("", ""):
        return 0, 0, 0, [], set()  # this Python has no such tests
    interpreted = run(program, module, "interpreted")
    wrong: list[str] = []
    used: set[str] = set()
    if not natively.finished:
        wrong.append(f"{version} {module}: does not finish natively: {natively.details['']}")
    if natively.finished and not interpreted.finished:
        wrong.append(f"{version} {module}: does not finish interpreted: {interpreted.details['']}")
    if interpreted.finished and interpreted.codes < 10:
        wrong.append(f"{version} {module}: next to nothing was interpreted")
    good = [test for test, status in natively.statuses.items() if status == "passed"]
    passed = listed = 0
    for test in good:
        status = interpreted.statuses.get(test, "missing")
        pattern = expected(version, test)
        if status == "passed":
            passed += 1
            if pattern is not None and "*" not in pattern:
                wrong.append(f"{version} {test} passes, but is listed")
        elif pattern is not None:
            listed += 1
            used.add(pattern)
        else:
            detail = interpreted.details.get(test, "") if verbose else interpreted.details.get(test, "")[-400:]
            wrong.append(f"{version} {test}: {status}\n{detail}")
    return len(good), passed, listed, wrong, used


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--python", action="append", help="a version, such as 3.12; every one that is found")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    available = pythons()
    for version in VERSIONS:
        print(f"Python {version}: {available.get(version, 'not found, not run')}")
    chosen = options.python or list(available)
    modules = options.modules or list(MODULES)
    everything_wrong: list[str] = []
    with ThreadPoolExecutor(options.workers) as pool:
        for version in chosen:
            begun = time.perf_counter()
            program = available[version]
            results = list(
                pool.map(lambda module, v=version, p=program: judge(v, p, module, options.verbose), modules)
            )
            natively, passed, listed = (sum(result[index] for result in results) for index in range(3))
            took = time.perf_counter() - begun
            print(
                f"{version}: {len(modules)} modules, {natively} tests pass natively, {passed} of them interpreted, "
                f"{listed} listed ({took:.0f} s)",
                flush=True,
            )
            for result in results:
                everything_wrong += result[3]
    for line in everything_wrong:
        print(line)
    return 1 if everything_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
