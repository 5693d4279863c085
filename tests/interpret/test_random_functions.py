"""Random small functions, natively and interpreted."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tintype.interpret import Machine

NAMES = ("a", "b", "c", "d")


class Writer:
    """Writes a function of random statements: what it computes doesn't matter, only that it is the same both ways."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def function(self) -> str:
        self.lines = ["def function(a, b, *rest, c=3, **named):", "    events = []", "    d = [a, b]"]
        self.block(1, depth=3, in_loop=False)
        self.lines.append("    return events, a, b, c, d")
        return "\n".join(self.lines)

    def add(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def name(self) -> str:
        return self.random.choice(NAMES[:3])

    def expression(self, depth: int = 2) -> str:
        pick = self.random.randrange(14 if depth else 3)
        inner = lambda: self.expression(depth - 1)  # noqa: E731
        return [
            lambda: str(self.random.randint(-3, 5)),
            self.name,
            lambda: self.name(),
            lambda: f"({inner()} {self.random.choice(['+', '-', '*', '//', '%', '&', '|', '^'])} {inner()})",
            lambda: f"({inner()} {self.random.choice(['<', '<=', '==', '!=', '>', 'in'])} {inner()})",
            lambda: f"({inner()} {self.random.choice(['and', 'or'])} {inner()})",
            lambda: f"(not {inner()})",
            lambda: f"({inner()} if {inner()} else {inner()})",
            lambda: f"[x + {inner()} for x in range({self.random.randint(0, 4)}) if x != {inner()}]",
            lambda: f"sum(x * 2 for x in (1, {inner()}, 2))",
            lambda: f"(lambda x, y=2: x if {inner()} else y)({inner()})",
            lambda: f"f'{{{self.name()}!r:>4}}-{{{self.name()}}}'",
            lambda: f"{{'k': {inner()}, **named}}['k']",
            lambda: f"max({inner()}, *rest, {inner()}, key=lambda x: repr(x))",
        ][pick]()

    def block(self, indent: int, depth: int, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent, depth, in_loop)

    def statement(self, indent: int, depth: int, in_loop: bool) -> None:
        pick = self.random.randrange(14 if depth else 5)
        below = lambda loop=in_loop: self.block(indent + 1, depth - 1, loop)  # noqa: E731
        if pick in (0, 1):
            self.add(indent, f"{self.name()} = {self.expression()}")
        elif pick == 2:
            self.add(indent, f"events.append({self.expression()})")
        elif pick == 3:
            self.add(indent, f"{self.name()} += {self.expression()}")
        elif pick == 4:
            self.add(indent, self.random.choice(["break", "continue"]) if in_loop else f"d[{self.expression()}] = 7")
        elif pick in (5, 6):
            self.add(indent, f"if {self.expression()}:")
            below()
            self.add(indent, "else:")
            below()
        elif pick == 7:
            self.add(indent, f"for {self.name()} in range({self.random.randint(0, 3)}):")
            below(True)
            self.add(indent, "else:")
            below()
        elif pick == 8:
            self.loops += 1
            counter = f"n{self.loops}"
            self.add(indent, f"{counter} = 0")
            self.add(indent, f"while {counter} < 3:")
            self.add(indent + 1, f"{counter} += 1")
            below(True)
        elif pick in (9, 10):
            self.add(indent, "try:")
            below()
            self.add(
                indent, self.random.choice(["except (TypeError, ZeroDivisionError) as error:", "except ValueError:"])
            )
            self.add(indent + 1, "events.append('caught')")
            below()
            if self.random.random() < 0.5:
                self.add(indent, "finally:")
                self.block(indent + 1, depth - 1, False)
        elif pick == 11:
            self.add(indent, f"def inner(x={self.expression()}):")
            if self.random.random() < 0.5:
                self.add(indent + 1, f"nonlocal {self.name()}")
                self.add(indent + 1, f"{self.name()} = 5")
            self.add(indent + 1, f"yield {self.expression()}")
            self.add(indent + 1, f"yield from [x, {self.expression()}]")
            self.add(indent, "events.extend(inner())")
        elif pick == 12:
            self.add(indent, f"match {self.expression()}:")
            self.add(indent + 1, "case [x, *_] | {'k': x}:")
            self.add(indent + 2, "events.append(('sequence', x))")
            self.add(indent + 1, "case int() | bool() as x if x > 1:")
            self.block(indent + 2, depth - 1, in_loop)
            self.add(indent + 1, "case _:")
            self.block(indent + 2, depth - 1, in_loop)
        else:
            self.add(indent, f"return {self.expression()}, events")


def outcome(call):
    try:
        return "returned", repr(call())
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return type(error), str(error), type(error.__context__), trace.tb_lineno


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_random_functions_do_the_same(seed):
    source = Writer(seed).function()
    namespace: dict = {}
    exec(compile(source, "<random>", "exec"), namespace)
    function = namespace["function"]
    for arguments in ((1, 2), (0, -1, 5), ("text", 3)):
        natively = outcome(lambda a=arguments: function(*a, k=4))
        interpreted = outcome(lambda a=arguments: Machine().call(function, *a, k=4))
        assert interpreted == natively, source
