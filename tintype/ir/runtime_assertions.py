"""Assertions of a program that fail while it runs: what was asserted, of which size or number, and at which line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import Location, RuntimeAssertionError
from tintype.ir.graph import meta_of
from tintype.symbolic import Expr, named_text, python_source
from tintype.symbolic.bridge import from_torch

_assert_scalar = torch.ops.aten._assert_scalar.default._op
_constrain_range = torch.ops.aten.sym_constrain_range.default._op

# what the message of an assertion in a graph, which other runtimes show, says of the line that needs it
NEEDED_AT = ": this program was captured for sizes for which it holds, which it needs at {}"


class RuntimeAssertion:
    """What is called where the condition of an assertion is not plainly true."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    def check_range(self, value: Any, **limits: Any) -> None:
        """Raise unless a number is in a range."""
        try:
            _constrain_range(value, **limits)
        except RuntimeError as error:
            raise self._explained(str(error)) from error

    def __call__(self, value: Any, message: str) -> None:
        """Raise unless the condition holds after all (a number may stand for a truth value)."""
        try:
            _assert_scalar(value, message)
        except RuntimeError as error:
            raise self._explained(message) from error

    def _explained(self, message: str) -> RuntimeAssertionError:
        condition = self._condition()
        if condition is None:
            return RuntimeAssertionError(message, location=self._line(None))
        message = message.removesuffix(_place_text(self._line(condition)))
        lines = [message, *(f"  {line}" for line in _described(condition))]
        if condition.kind != "bool":
            remedy = (
                f"the program was captured for another range of {named_text(condition)}: look at the data, or at "
            )
            return RuntimeAssertionError(
                "\n".join(lines), location=self._line(None), remedy=f"{remedy}what that line checks of it"
            )
        if all(symbol.hint is not None for symbol in condition.symbols):
            remedy = (
                f"call the program with sizes for which {in_words(condition)}; contract() lists all that it asks "
                "for. Where the model itself takes these sizes, export it with an example of them"
            )
        else:
            remedy = (
                f"the program was captured for data for which {named_text(condition)} holds, by a check of the model "
                "(torch._check) or a need of its operators: look at the data, or at that line"
            )
        return RuntimeAssertionError("\n".join(lines), location=self._line(condition), remedy=remedy)

    def _condition(self) -> Expr | None:
        argument = self.node.args[0]
        value = argument.meta.get("val") if isinstance(argument, Node) else None
        if not isinstance(value, (torch.SymBool, torch.SymInt)):
            return None
        condition = from_torch(value)
        return condition if isinstance(condition, Expr) else None

    def _line(self, condition: Expr | None) -> Location | None:
        """Where the program says so; else where the number comes from."""
        if condition is not None:
            environment = condition.environment
            stated: list[Any] = [*environment.assertions, *environment.guards]
            for found in stated:
                if found.condition == condition and found.location is not None:
                    return found.location
            # what is asked modulo something may say in short what several guards on a size say
            for guard in reversed(environment.guards if _remainder(condition) is not None else ()):
                if guard.condition.operation == "eq" and guard.condition.symbols == condition.symbols:
                    return guard.location
        origin = meta_of(self.node).origin
        frame = origin.user_frame() if origin is not None else None
        return None if frame is None else Location(frame.filename, frame.line, frame.function, frame.source)


def _place_text(location: Location | None) -> str:
    """What the message in a graph says of the line, which the error tells apart."""
    return "" if location is None else NEEDED_AT.format(location)


def in_words(condition: Expr) -> str:
    """What is asked of sizes, each by the name that the user gave it, or by its place."""
    names = condition.environment.names
    called = {
        symbol: names.get(symbol.name) or (str(symbol.source) if symbol.source is not None else symbol.name)
        for symbol in condition.symbols
    }
    remainder = _remainder(condition)
    if remainder is not None:
        multiple, of = remainder.arguments
        return f"{python_source(multiple, called)} is a multiple of {python_source(of, called)}"
    return python_source(condition, called)


def _remainder(condition: Expr) -> Expr | None:
    """``Mod(a, b)`` of a condition that it is 0."""
    difference = condition.arguments[0] if condition.operation == "eq" else None
    return difference if isinstance(difference, Expr) and difference.operation == "mod" else None


def _described(condition: Expr) -> Iterator[str]:
    """What the symbols of a condition are."""
    for symbol in sorted(condition.symbols, key=lambda symbol: symbol.serial):
        name = condition.environment.names.get(symbol.name)
        known = [each for each in (name, symbol.source) if each is not None]
        if known:
            yield f"{symbol} is {', the size '.join(map(str, known))}"
        elif symbol.hint is None:
            yield f"{symbol} is a number that the data decide"
