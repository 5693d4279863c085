"""Random Python functions whose control flow the data decide, held against eager mode.

``python -m tests.flow.random_programs 5000`` (``make fuzz-flow``) counts those that are right,
refused, wrong and crashing; a program is known by its number. One that takes too long to capture is refused.
"""

from __future__ import annotations

import collections
import random
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype


def helper(x, y):
    if x.sum() > y.sum():
        return x - y
    return x + 1


class Holder:
    pass


class Writer:
    """Writes one function."""

    further = ""  # what it returns besides

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0
        self.in_rows = 0  # loops over rows around

    def source(self) -> str:
        self.lines = [
            "def function(a, b, m):",
            "    n = 1",
            "    items = [a, b]",
            "    held = Holder()",
            "    held.t = b",
        ]
        self.block(1, 3, in_loop=False)
        self.lines.append("    return a, b, n, items[0], items[1], held.t")
        return "\n".join(self.lines) + "\n"

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def tensor(self) -> str:
        pick = self.random.choice
        rows = ["row", "row"] if self.in_rows else []
        one = pick(["a", "b", "items[0]", "items[1]", "held.t", "a", "b", *rows])
        other = pick(["a", "b", "1.5", "n", "0.5"])
        return pick([f"{one} + {other}", f"{one} * 0.5", f"torch.sin({one})", f"{one} - {other}", f"helper({one}, b)",
                     f"({one} if b.sum() > 0 else {one} + 1)", f"torch.maximum({one}, b)"])  # fmt: skip

    def condition(self) -> str:
        pick = self.random.choice
        simple = [f"a.sum() > {pick([-2, 0, 1, 3])}", f"b.max() < {pick([0, 1, 2])}", "n > 2",
                  f"a.mean() > {self.name()}.mean()",
                  "not b.sum() > 1", f"0 < a.sum() < {pick([2, 5])}"]  # fmt: skip
        one = pick(simple)
        return f"{one} {pick(['and', 'or'])} {pick(simple)}" if self.random.random() < 0.2 else one

    def name(self) -> str:
        return self.random.choice(["a", "b"])

    def block(self, depth: int, count: int, *, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, count)):
            self.statement(depth, in_loop)

    def statement(self, depth: int, in_loop: bool) -> None:
        kind = self.random.random()
        if kind < 0.35 or depth > 4:
            self.simple(depth)
        elif kind < 0.65:
            self.emit(depth, f"if {self.condition()}:")
            self.block(depth + 1, 2, in_loop=in_loop)
            if self.random.random() < 0.6:
                self.emit(depth, "else:")
                self.block(depth + 1, 2, in_loop=in_loop)
        elif kind < 0.75:
            self.loop(depth)
        elif kind < 0.79 and not self.in_rows:
            self.rows(depth)
        elif kind < 0.84:
            self.emit(depth, f"for i in range({self.random.randint(1, 3)}):")
            self.block(depth + 1, 2, in_loop=True)
        elif kind < 0.9 and in_loop:
            self.emit(depth, f"if {self.condition()}:")
            self.emit(depth + 1, self.random.choice(["break", "continue", "break"]))
        elif kind < 0.95:
            self.emit(depth, f"if {self.condition()}:")
            self.emit(depth + 1, f"return {self.tensor()}, b, n, a, b, {self.tensor()}{self.further}")
        else:
            self.simple(depth)

    def loop(self, depth: int) -> None:
        self.loops += 1
        step = f"step{self.loops}"
        self.emit(depth, f"{step} = 0")
        self.emit(depth, f"while {step} < {self.random.randint(1, 3)} and ({self.condition()}):")
        self.emit(depth + 1, f"{step} += 1")
        self.block(depth + 1, 2, in_loop=True)

    def rows(self, depth: int) -> None:
        """A loop whose number of steps varies."""
        pick = self.random.choice
        self.loops += 1
        found = f"found{self.loops}"
        collects = self.random.random() < 0.3
        if collects:
            self.emit(depth, f"{found} = []")
        self.emit(depth, pick([
            "for row in m:", "for row in m:", "for k, row in enumerate(m):", "for row, other in zip(m, m * 2):",
            "for row in reversed(m):", "for row in m[m.sum(1) > 0]:", "for k in range(m.shape[0]):",
            "for k in range(len(m) - 1, -1, -1):", "for k in range(1, m.shape[0]):",
        ]))  # fmt: skip
        if self.lines[-1].lstrip().startswith("for k in"):
            self.emit(depth + 1, pick(["row = m[k]", "row = m[k] * k"]))
        self.in_rows += 1
        self.block(depth + 1, 2, in_loop=not collects)
        self.in_rows -= 1
        if collects:
            self.emit(depth + 1, f"{found}.append({self.tensor()})")
            self.emit(depth, f"{self.name()} = torch.stack([a, *[b]]).sum(0)")
            self.emit(depth, f"if len({found}) > 0: {self.name()} = torch.stack({found}).sum(0)")
        elif self.random.random() < 0.2:
            self.emit(depth, "else:")
            self.simple(depth + 1)

    def simple(self, depth: int) -> None:
        pick = self.random.choice
        self.emit(depth, pick([
            f"{self.name()} = {self.tensor()}", f"{self.name()} = {self.tensor()}", f"n = n + {pick([1, 2])}",
            "n += 1",
            f"items[{pick([0, 1])}] = {self.tensor()}", f"held.t = {self.tensor()}", "a, b = b, a",
            f"held.t = {self.name()}",
            f"{self.name()} = {self.tensor()}",
        ]))  # fmt: skip


def made(seed: int) -> tuple[Any, str]:
    source = Writer(seed).source()
    names: dict[str, Any] = {"torch": torch, "helper": helper, "Holder": Holder}
    exec(compile(source, f"<random program {seed}>", "exec"), names)
    return names["function"], source


def inputs_of(seed: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(3, generator=generator) * scale,
            torch.randn(3, generator=generator) * scale,
            torch.randn(rows, 3, generator=generator) * scale,
        )
        for scale, rows in ((1, 3), (1, 6), (2, 2), (0.3, 5), (4, 4))
    ]


# seconds that a capture may take
LIMIT = 60
ROWS = {"a": None, "b": None, "m": {0: tintype.Dim("rows", min=2)}}


class TooLongError(BaseException):
    """A capture has taken longer than it may."""


def _stop(number: int, frame: Any) -> None:
    raise TooLongError


def judged(seed: int, make: Callable[[int], tuple[Any, str]] = made) -> tuple[str, str]:
    """("right" | "refused" | "wrong" | "crash", why)"""
    function, source = make(seed)
    inputs = inputs_of(seed)
    try:
        signal.signal(signal.SIGALRM, _stop)
        signal.alarm(LIMIT)
        module = tintype.export(function, inputs[0], dynamic_shapes=ROWS).module()
    except TooLongError:
        return "refused", f"it takes longer than {LIMIT} seconds"
    except tintype.VerificationError:  # a graph that we made ourselves
        return "crash", f"{source}\n{traceback.format_exc(limit=-8)}"
    except tintype.TintypeError as error:
        return "refused", "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    except BaseException:
        return "crash", f"{source}\n{traceback.format_exc(limit=-8)}"
    finally:
        signal.alarm(0)
    for given in inputs:
        expected = pytree.tree_leaves(function(*(value.clone() for value in given)))
        try:
            found = pytree.tree_leaves(module(*(value.clone() for value in given)))
        except Exception as error:
            return "wrong", f"{source}\n{given}\n{error}"
        for one, other in zip(expected, found, strict=True):
            same = (
                torch.equal(one, other)
                if isinstance(one, torch.Tensor)
                else type(one) is type(other) and one == other
            )
            if not same:
                return "wrong", f"{source}\n{given}\n{expected}\n{found}"
    return "right", ""


def _reason(why: str) -> str:
    """Why a program was refused: a size that was to vary is fixed where a loop could not be recorded."""
    return why.rpartition("could not be recorded: ")[2].splitlines()[0][:110]


def main(count: int, first: int = 0, judge: Callable[[int], tuple[str, str]] = judged) -> int:
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + count):
        verdict, why = judge(seed)
        counts[verdict] += 1
        if seed % 100 == 99:
            print(f"{seed + 1}: {dict(counts)}", flush=True)
        if verdict == "refused":
            reasons[_reason(why)] += 1
        elif verdict != "right":
            print(f"--- {seed}: {verdict}\n{why}")
    print(dict(counts))
    for reason, times in reasons.most_common(12):
        print(f"{times:5} {reason}")
    return 1 if counts["wrong"] or counts["crash"] or counts["refused"] > 0.05 * count else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
