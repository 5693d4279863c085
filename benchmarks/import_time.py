"""What `import tintype` costs on top of `import torch`.

    python -m benchmarks.import_time [--rounds 7] [--write]

Each round is a fresh process that imports torch, then times the import of tintype, then the first use of
`tintype.export`, which loads the rooms behind it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from benchmarks.report import REPOSITORY, add_write_argument, markdown_table, publish

PROGRAM = """
import json, time
import torch
start = time.perf_counter()
import tintype
imported = time.perf_counter()
tintype.export
print(json.dumps([imported - start, time.perf_counter() - imported]))
"""


def one_round() -> tuple[float, float]:
    """Seconds of the import and of the first look at `tintype.export`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    imported, first_use = json.loads(done.stdout.splitlines()[-1])
    return imported, first_use


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--rounds", type=int, default=7, help="processes; the fastest counts")
    options = parser.parse_args(arguments)
    one_round()  # compiles the .pyc files
    rounds = [one_round() for _ in range(options.rounds)]
    imported, first_use = (min(times) * 1e3 for times in zip(*rounds))
    rows = [
        ["import tintype", f"{imported:.1f}"],
        ["first use of tintype.export", f"{first_use:.1f}"],
        ["both", f"{imported + first_use:.1f}"],
    ]
    publish("import time", markdown_table(("step, after import torch", "ms"), rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
