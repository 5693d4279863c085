"""How a value is made again: expressions.

Arguments of calls, values of effects and the result are expressions: nested tuples that say how to make the value
again from constants, sources and results of calls.

    ("constant", value)      ("value", number of the call)      ("part", expression, position)
    ("source", source)       ("make", how, parts)               ("method", expression, name)
    ("number", expression)   ("operator", function, operands)   numbers that vary, and what is computed of them

Where it matters that an object is made once for several places, ``make`` has a number as a fourth part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.ir.call_values import PLAIN, value_key

if TYPE_CHECKING:
    from tintype.compiler.sources import Source

Expression = tuple[Any, ...]
_COMPARED = PLAIN | {slice, torch.Size, range}


def expression_key(expression: Expression) -> tuple[Any, ...]:
    """What tells expressions apart."""
    match expression[0]:
        case "constant":
            value = expression[1]
            return ("constant", value_key(value) if type(value) in _COMPARED else id(value))
        case "source":
            return ("source", expression[1].path)
        case "part":
            return ("part", expression_key(expression[1]), expression[2])
        case "number":
            return ("number", expression_key(expression[1]))
        case "operator":
            return ("operator", id(expression[1]), tuple(map(expression_key, expression[2])))
        case "make":
            return ("make", _how_key(expression[1]), tuple(map(expression_key, expression[2])), *expression[3:])
        case "method":
            return ("method", expression_key(expression[1]), expression[2])
        case _:
            return expression


def _how_key(how: Any) -> Any:
    return id(how) if callable(how) else how


def sources_in(expression: Expression) -> list[Source]:
    """The sources that an expression reads."""
    match expression[0]:
        case "source":
            return [expression[1]]
        case "part" | "method" | "number":
            return sources_in(expression[1])
        case "make" | "operator":
            return [source for part in expression[2] for source in sources_in(part)]
    return []


def values_in(expression: Expression) -> list[int]:
    """The numbers of the calls whose results an expression uses."""
    match expression[0]:
        case "value":
            return [expression[1]]
        case "source":
            root = expression[1].root
            return [root.key] if root.kind == "value" else []
        case "part" | "method" | "number":
            return values_in(expression[1])
        case "make" | "operator":
            return [number for part in expression[2] for number in values_in(part)]
    return []


def evaluated(expression: Expression, args: Any, kwargs: Any, values: Any) -> Any:
    """What an expression of numbers is now."""
    match expression[0]:
        case "constant":
            return expression[1]
        case "source":
            return expression[1].fetch(args, kwargs, values)
        case "value":
            return values[expression[1]]
        case "number":
            return evaluated(expression[1], args, kwargs, values)
        case "part":
            return evaluated(expression[1], args, kwargs, values)[expression[2]]
    return expression[1](*(evaluated(operand, args, kwargs, values) for operand in expression[2]))
