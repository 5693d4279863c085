"""Loads damaged files: ``make fuzz``, or ``python -m tests.reliability.fuzz --count 200000 --seed 0``.

Every file must load, or be refused with one of tintype's errors, within a time and without memory beyond a bound. The
work is done in child processes, so that one that crashes is noticed, with the number of the file that did it;
``--only NUMBER`` tries that one again.
"""

from __future__ import annotations

import argparse
import collections
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

CHUNK = 10_000
MOST_SECONDS = 5
MOST_MEMORY = 256 << 20  # bytes that a process may grow by while it loads files of about 20 kB


def try_numbers(numbers: list[int], seed: int, report: Path) -> None:
    """Load the files of these numbers; what happened is written to ``report``."""
    import torch

    import tintype
    from tests.reliability.mutations import archive, base_files, mutated

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    files = {name: (entries, archive(entries)) for name, entries in base_files().items()}
    for entries, whole in files.values():
        tintype.load(io.BytesIO(whole))
        assert entries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    slowest = 0.0

    def too_slow(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_slow)
    for number in numbers:
        chance = random.Random(f"{seed}/{number}")
        content = mutated(*files[chance.choice(list(files))], chance)
        report.write_text(json.dumps({"number": number}), encoding="utf-8")
        begin = time.perf_counter()
        signal.alarm(MOST_SECONDS)
        try:
            tintype.load(io.BytesIO(content), extra_files={})
            outcomes["loaded"] += 1
        except tintype.TintypeError as error:
            outcomes[error.id] += 1
        except BaseException as error:
            faults.append(f"file {number}: {type(error).__name__}: {error}"[:500])
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - begin)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    result = {"outcomes": outcomes, "faults": faults, "slowest": slowest, "grown": grown}
    report.write_text(json.dumps(result), encoding="utf-8")


def run_chunk(begin: int, end: int, seed: int) -> dict[str, Any]:
    """Try a range of files in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "tests.reliability.fuzz", "--child", str(report), "--seed", str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*command, "--range", str(begin), str(end)], env=environment, check=False)
        result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    if done.returncode != 0 or "faults" not in result:
        where = result.get("number", begin)
        return {"outcomes": {}, "faults": [f"file {where}: the process ended with {done.returncode}"], "slowest": 0,
                "grown": 0}  # fmt: skip
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="try one file, and show what happens")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--range", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        try_numbers(list(range(*options.range)), options.seed, options.child)
        return 0
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            try_numbers([options.only], options.seed, report)
            print(report.read_text(encoding="utf-8"))
        return 0
    begin = time.perf_counter()
    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    slowest, grown = 0.0, 0
    for first in range(0, options.count, CHUNK):
        result = run_chunk(first, min(first + CHUNK, options.count), options.seed)
        outcomes.update(result["outcomes"])
        faults += result["faults"]
        slowest, grown = max(slowest, result["slowest"]), max(grown, result["grown"])
        print(f"{min(first + CHUNK, options.count)} files, {len(faults)} faults", flush=True)
    if grown > MOST_MEMORY:
        faults.append(f"a process grew by {grown >> 20} MiB")
    listed = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    print(f"{options.count} files in {time.perf_counter() - begin:.0f} s: {listed}")
    print(
        f"slowest {slowest * 1e3:.0f} ms; memory of a process grew by at most {grown >> 20} MiB; {len(faults)} faults"
    )
    for fault in faults[:50]:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
