"""The reports of docs/dynamic_shapes.md: ``python -m tests.export.documented_reports`` rewrites them.

Each one is what some request prints; test_documented_reports.py checks that the page has it so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tintype
from tintype import Dim

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dynamic_shapes.md"


def limited(x):
    if x.shape[0] <= 6:
        return x + 1
    return x - 1


def related(x, y):
    return x + y[1:]


def even(x):
    return x.reshape(2, -1)


def fixed(x):
    return x + torch.ones(4)


def flattened(x, y):
    return x.flatten() + y


def several(x, y):
    return limited(x), even(y)


def added(x, y):
    return x + y


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def count(x):
    positive = x[x > 0]
    if positive.shape[0] >= 3:
        return positive
    return x


def repeated(x, n):
    for _ in range(n):
        x = x + 1
    return x


def ranged(x, n):
    number = n.item()
    torch._check(number >= 4)
    torch._check(number <= 7)
    return x.new_zeros(number)


X = torch.ones(4)
ONE = {"x": {0: Dim("d")}}


def exported(function: Any, args: Any, shapes: Any = None) -> tintype.ExportedProgram:
    return tintype.export(function, args, dynamic_shapes=shapes, control_flow="refuse")


def called(function: Any, example: Any, shapes: Any, *args: Any) -> None:
    exported(function, example, shapes).module()(*args)


_TWO = {"x": {0: Dim("d", min=3)}, "y": {0: 2 * Dim("e")}}
REPORTS: dict[str, Callable[[], Any]] = {
    "range": lambda: exported(limited, (X,), {"x": {0: Dim("dim", min=3)}}),
    "related": lambda: exported(related, (X, torch.ones(5)), {"x": {0: Dim("dx")}, "y": {0: Dim("dy")}}),
    "multiple": lambda: exported(even, (X,), {"x": {0: Dim("d", max=64)}}),
    "fixed": lambda: exported(fixed, (X,), ONE),
    "complex": lambda: exported(
        flattened, (torch.ones(2, 3), torch.ones(6)), {"x": {0: Dim("a"), 1: Dim("b")}, "y": {0: Dim("c")}}
    ),
    "several": lambda: exported(several, (X, X), {"x": {0: Dim("a")}, "y": {0: Dim("b")}}),
    "integer": lambda: exported(repeated, (X, 3), {"n": Dim.DYNAMIC}),
    "example": lambda: exported(even, (torch.ones(2),), {"x": {0: Dim("d", min=4)}}),
    "example form": lambda: exported(even, (torch.ones(5),), {"x": {0: 2 * Dim("d")}}),
    "example relation": lambda: exported(added, (X, torch.ones(5)), {"x": {0: Dim("d")}, "y": {0: Dim("d")}}),
    "names": lambda: exported(added, (X, X), {"x": {0: Dim("d", max=8)}, "y": {0: Dim("d", max=9)}}),
    "argument": lambda: exported(added, (X, X), {"z": {0: Dim("d")}}),
    "positions": lambda: exported(added, (X, X), ({0: Dim("d")},)),
    "path": lambda: exported(lambda x: x[0]["a"], ([{"a": X}],), {"x": [{"b": {0: Dim("d")}}]}),
    "dimension": lambda: exported(even, (X,), {"x": {1: Dim("d")}}),
    "entry": lambda: exported(even, (X,), {"x": {0: "batch"}}),
    "static": lambda: exported(even, (X,), {"x": {0: 6}}),
    "too small": lambda: called(added, (X, X), {n: {0: Dim("d", min=3)} for n in "xy"}, torch.ones(2), torch.ones(2)),
    "form": lambda: called(even, (X,), {"x": {0: 2 * Dim("d")}}, torch.ones(5)),
    "relation": lambda: called(related, (X, torch.ones(5)), {"x": {0: Dim("d")}, "y": {0: Dim("d") + 1}}, X, X),
    "not dynamic": lambda: called(even, (X,), None, torch.ones(6)),
    "assertion": lambda: called(
        flattened, (torch.ones(2, 3), torch.ones(6)), "auto", torch.ones(2, 3), torch.ones(5)
    ),
    "value range": lambda: called(ranged, (X, torch.tensor(5)), None, X, torch.tensor(30)),
    "branch on a tensor": lambda: exported(branch, (X,)),
    "branch on a number": lambda: exported(count, (X,)),
}


def report(name: str) -> str:
    """What a request prints, with this file called ``model.py``."""
    try:
        REPORTS[name]()
    except Exception as error:
        return re.sub(r"[^\s(]*documented_reports\.py", "model.py", str(error))
    raise AssertionError(f"{name}: no error")


def block(name: str) -> str:
    return f"```text\n{report(name)}\n```"


def main() -> int:
    from benchmarks.report import replace_section

    for name in REPORTS:
        replace_section(PAGE, name, block(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
