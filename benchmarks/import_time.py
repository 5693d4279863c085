"""What `import tintype` costs on top of `import torch`.

    python -m benchmarks.import_time [--rounds 7] [--write]

Each round is a fresh process that imports torch, then times the import of tintype, the first use of
`tintype.export`, which loads the rooms behind it, and the first export of a small model. Python's compiled files are
there, as they are from the second process on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

from benchmarks.report import REPOSITORY, add_write_argument, markdown_table, publish

PROGRAM = """
import json, time
import torch
model, example = torch.nn.Linear(3, 2), torch.ones(4, 3)
times = [time.perf_counter()]
import tintype
times.append(time.perf_counter())
tintype.export
times.append(time.perf_counter())
tintype.export(model, (example,))
times.append(time.perf_counter())
print(json.dumps([after - before for before, after in zip(times, times[1:])]))
"""


def one_round(compiled_files: str) -> list[float]:
    """Seconds of the import, of the first look at `tintype.export` and of the first call."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled_files}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=REPOSITORY,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    times: list[float] = json.loads(done.stdout.splitlines()[-1])
    return times


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--rounds", type=int, default=7, help="processes; the fastest counts")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as compiled_files:
        one_round(compiled_files)  # makes them
        rounds = [one_round(compiled_files) for _ in range(options.rounds)]
    fastest = [min(times) * 1e3 for times in zip(*rounds)]
    steps = ("import tintype", "first use of tintype.export", "first export, of a small model", "all")
    rows = [[step, f"{time:.1f}"] for step, time in zip(steps, (*fastest, sum(fastest)))]
    publish("import time", markdown_table(("step, after import torch", "ms"), rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
