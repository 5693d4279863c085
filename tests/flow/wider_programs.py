"""Random functions with what else users write: objects and lists under two names, helpers that return None, `match`,
comprehensions with conditions, ``try``, closures that count, modes.

``python -m tests.flow.wider_programs 500 SEED`` judges them as :mod:`tests.flow.random_programs` does its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import torch

from tests.flow import random_programs
from tests.flow.random_programs import Holder, Writer, helper


@dataclass
class State:
    h: torch.Tensor
    n: int = 0


def maybe(x):
    if x.sum() > 0:
        return x * 2
    return None


def kind_of(x):
    return "up" if x.sum() > 0 else "down"


def state_of(x):
    if x.sum() > 1:
        return State(x, 1)
    return State(-x, 2)


NAMES = {
    "torch": torch, "helper": helper, "Holder": Holder, "State": State, "replace": replace, "maybe": maybe,
    "kind_of": kind_of, "state_of": state_of,
}  # fmt: skip


class WiderWriter(Writer):
    further = ", state.h, n, ticks, items is other"

    def source(self) -> str:
        self.lines = [
            "def function(a, b, m):",
            "    n = 1",
            "    items = [a, b]",
            "    other = items",
            "    held = Holder()",
            "    held.t = b",
            "    state = State(a)",
            "    same = state",
            "    ticks = 0",
            "    def tick(x):",
            "        nonlocal ticks",
            "        ticks += 1",
            "        return x if x.sum() > 0 else x + ticks",
        ]
        self.block(1, 4, in_loop=False)
        self.lines.append(
            "    return a, b, n, items[0], other[1], held.t + same.h, state.h, state.n, ticks, items is other"
        )
        return "\n".join(self.lines) + "\n"

    def statement(self, depth: int, in_loop: bool) -> None:
        if self.random.random() < 0.4 and depth <= 4:
            self.other(depth, in_loop)
        else:
            super().statement(depth, in_loop)

    def other(self, depth: int, in_loop: bool) -> None:
        pick = self.random.choice
        kind = self.random.randint(0, 13)
        name = self.name()
        if kind < 5:
            self.emit(depth, pick([
                f"items = [{self.tensor()}, b]", f"other[{pick([0, 1])}] = {self.tensor()}", "other = items",
                f"state = State({self.tensor()}, n)", f"state.h = {self.tensor()}", f"same.h = {self.tensor()}",
                f"state = replace(state, h={self.tensor()})", "same = state", "state.n += 1",
                f"state = state_of({name})", f"{name} = state.h * state.n", f"{name} = tick({name})",
                f"{name} = torch.where({name} > 0, {self.tensor()}, {name})",
                f"{name} = sum((v for v in (a, b, items[0]) if v.sum() > 0), {name})",
                f"{name} = sum([v for v in (a, b) if v.max() > 1]) + {name}",
                f"{name} = {name} * max(0, min(1, a.sum().item()))",
                f"{name} = max(a.sum(), b.sum()) + {name}",
                f'{name} = {{"up": torch.sin, "down": torch.cos}}[kind_of({name})](b)',
            ]))  # fmt: skip
        elif kind == 5:
            self.emit(depth, f"found = maybe({name})")
            self.emit(depth, f"{name} = {self.name()} if found is None else found")
        elif kind == 6:
            self.emit(depth, f"if (found := maybe({self.tensor()})) is not None:")
            self.emit(depth + 1, f"{name} = found - 1")
        elif kind == 7:
            self.emit(depth, f"match kind_of({name}):")
            self.emit(depth + 1, 'case "up":')
            self.block(depth + 2, 2, in_loop=in_loop)
            self.emit(depth + 1, "case _:")
            self.block(depth + 2, 1, in_loop=in_loop)
        elif kind == 8:
            self.emit(depth, "try:")
            self.block(depth + 1, 2, in_loop=in_loop)
            self.emit(depth, "finally:")
            self.emit(depth + 1, "n += 1")
        elif kind == 9:
            self.emit(depth, "try:")
            self.emit(depth + 1, f"if {self.condition()}: raise ValueError")
            self.block(depth + 1, 1, in_loop=in_loop)
            self.emit(depth, "except ValueError:")
            self.simple(depth + 1)
        elif kind == 10:
            self.emit(depth, "with torch.no_grad():")
            self.block(depth + 1, 2, in_loop=in_loop)
        elif kind == 11:
            self.emit(depth, f"for state in [state, State({name})]:" if pick([0, 1]) else "for held.t in (a, b):")
            self.block(depth + 1, 1, in_loop=True)
        else:
            self.emit(depth, f"{name} = {name} + 1 if {self.condition()} else {self.tensor()}")


def made(seed: int) -> tuple[Any, str]:
    source = WiderWriter(seed).source()
    names: dict[str, Any] = dict(NAMES)
    exec(compile(source, f"<random program {seed}>", "exec"), names)
    return names["function"], source


def judged(seed: int) -> tuple[str, str]:
    return random_programs.judged(seed, made)


if __name__ == "__main__":
    sys.exit(random_programs.main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, judged))
