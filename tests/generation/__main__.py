"""``python -m tests.generation [name ...]``: a table of architectures, and what their programs do at other sizes."""

from __future__ import annotations

import sys
import time
import traceback
import warnings

import tintype
from tests.generation.architectures import ARCHITECTURES
from tests.generation.judging import STAGES, differences, export

# batches and lengths of prompts; windows are 16 wide
SIZES = [(1, 3), (2, 6), (3, 4), (1, 9), (4, 5), (2, 11), (5, 2), (1, 1), (3, 17), (2, 33)]
STEPS = ("prefill", "decode")


def main(names: list[str]) -> int:
    """Print what is found; the exit status says whether everything is right or refused."""
    warnings.simplefilter("ignore")
    bad = 0
    for name in names or ARCHITECTURES:
        architecture = ARCHITECTURES[name]()
        for step in STEPS:
            start = time.perf_counter()
            try:
                program = export(architecture, step)
            except Exception as error:
                bad += not isinstance(error, tintype.TintypeError)
                print(f"{architecture.name} {step}: {type(error).__name__}: {str(error)[:600]}")
                if not isinstance(error, tintype.TintypeError):
                    traceback.print_exc()
                continue
            seconds = time.perf_counter() - start
            for stage, change in STAGES.items():
                try:
                    found = differences(change(program), architecture, step, SIZES)
                except Exception as error:
                    found = [f"{type(error).__name__}: {str(error)[:600]}"]
                    if not isinstance(error, tintype.TintypeError):
                        traceback.print_exc()
                bad += any("refused" not in line for line in found)
                right = f"right at {len(SIZES) - len(found)} of {len(SIZES)} sizes"
                print(f"{architecture.name} {step} {stage} ({seconds:.2f} s): {right}", flush=True)
                for line in found:
                    print(f"    {line}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
