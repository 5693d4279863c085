"""Definitions of dimensions that keep what a program's guards say."""

from __future__ import annotations

from collections.abc import Mapping

from tintype.symbolic import Expr, Range, Symbol
from tintype.symbolic.ranges import INFINITY

from .dimensions import Dim
from .solution import Solution, centered, scaled_symbol

# Definitions by name: a Dim (its bounds changed, or another's formula) or the one value.
Fixes = dict[str, Dim | int]

# Lower bounds that a new root is printed without; see ``fix_lines``.
_SMALL_BOUND = 2


def suggest(solution: Solution, roots: Mapping[Symbol, Dim]) -> Fixes:
    """The definitions that have to change for the named sizes to be what the solution says.

    ``roots`` are the named dimensions by symbol, in the order of declaration. Later ones are expressed in
    terms of earlier ones, and where no name can be the common root, a new one is made.
    """
    fixes: Fixes = {}
    # For each parameter the dimension that is ``parameter + shift``.
    made: dict[Symbol, tuple[Dim, int]] = {}
    for symbol, dim in roots.items():
        value = solution.value(symbol)
        if not isinstance(value, Expr):
            fixes[dim.name] = int(value)
            continue
        parameter, scale, offset = _line(value)
        if parameter not in made:
            made[parameter] = _root(solution, parameter, roots, fixes)
        root, shift = made[parameter]
        if root.name != dim.name:
            fixes[dim.name] = root * scale + (offset - scale * shift)
    return fixes


def _line(value: Expr) -> tuple[Symbol, int, int]:
    found = scaled_symbol(value)
    assert found is not None and found[1] > 0, f"{value} is no dimension"
    return found


def _root(solution: Solution, parameter: Symbol, roots: Mapping[Symbol, Dim], fixes: Fixes) -> tuple[Dim, int]:
    """The dimension that the others of a parameter are derived from; noted in ``fixes`` if it is not as declared."""
    members = [symbol for symbol in roots if symbol in solution.members[parameter]]
    for symbol in members:
        _, scale, offset = _line(_expression(solution, symbol))
        if scale == 1:
            bounds = _shifted(parameter.declared, offset)
            dim = roots[symbol]
            if bounds != symbol.declared:
                dim = _bounded(dim.name, bounds)
                fixes[dim.name] = dim
            return dim, offset
    _, scale, offset = _line(_expression(solution, members[0]))
    shift = (offset - centered(offset, scale)) // scale
    taken = {dim.name for dim in roots.values()}
    name = f"_{roots[members[0]].name}"
    while name in taken:
        name = f"_{name}"
    dim = _bounded(name, _shifted(parameter.declared, shift))
    fixes[name] = dim
    return dim, shift


def _expression(solution: Solution, symbol: Symbol) -> Expr:
    value = solution.value(symbol)
    assert isinstance(value, Expr)
    return value


def _shifted(bounds: Range, offset: int) -> Range:
    return Range(bounds.lower + offset, bounds.upper + offset)


def _bounded(name: str, bounds: Range) -> Dim:
    lower, upper = bounds
    return Dim(name, min=int(lower) or None, max=None if upper == INFINITY else int(upper))


def fix_lines(fixes: Mapping[str, Dim | int], declared: set[str]) -> list[str]:
    """The fixes as Python, one line each.

    The small lower bound that a new root often has only because sizes are not negative is said in a comment.
    """
    lines = []
    for name, fix in fixes.items():
        if isinstance(fix, int) or fix.name != name:
            lines.append(f"  {name} = {fix if isinstance(fix, int) else fix.name}")
        elif name not in declared and 0 < fix.min <= _SMALL_BOUND:
            shorter = Dim(name, max=None if fix.max == INFINITY else int(fix.max))
            lines.append(f"  {name} = {shorter!r}  # min={fix.min}")
        else:
            lines.append(f"  {name} = {fix!r}")
    return lines
