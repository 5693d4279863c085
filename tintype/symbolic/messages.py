"""Whether a text that a program makes is for people: then it may say anything; else the program may look at it.

``f"{x.shape[0]}"`` is a text that depends on a size. A program that prints or logs it, raises an error with it, or
gives it to a check as what to say does the same for every size. What any other code does with a text can't be seen,
so the size has to be fixed there.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from types import CodeType, FrameType
from typing import Any

_SHOWN_BY = frozenset({"print", "pprint"})
_LOGGED_BY = frozenset(
    {"critical", "debug", "error", "exception", "info", "log", "warn", "warn_once", "warning", "warning_once"}
)


def is_for_people(frame: FrameType) -> bool:
    """Whether the expression that a frame is evaluating is (part of) what is printed, logged, raised, or the message
    of a check."""
    return _is_shown(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=1024)
def _is_shown(code: CodeType, instruction: int) -> bool:
    line, end_line, column, end_column = list(code.co_positions())[instruction // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return False
    tree = _parsed(code.co_filename)
    return tree is not None and _shows(tree, (line, column), (end_line, end_column))


@functools.lru_cache(maxsize=64)
def _parsed(filename: str) -> ast.Module | None:
    source = "".join(linecache.getlines(filename))
    try:
        return ast.parse(source) if source else None
    except SyntaxError:
        return None


Place = tuple[int, int]  # line, column


def _shows(tree: ast.AST, start: Place, end: Place) -> bool:
    """Whether an expression, given where it stands, is or is part of what shows a text to people."""
    node: ast.AST | None = tree
    inside_function = False
    while node is not None:
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and not inside_function and _is_output(node.func):
            return True
        child = next((child for child in ast.iter_child_nodes(node) if _contains(child, start, end)), None)
        if isinstance(node, ast.Assert) and child is not None and child is node.msg:
            return True
        if isinstance(node, ast.Call) and _is_message_of_check(node, child):
            return True
        inside_function = isinstance(node, ast.Call) and child is node.func
        node = child
    return False


@functools.lru_cache(maxsize=1024)
def raising_text(filename: str, number: int) -> str:
    """A line that asks whether something is to be raised, with what is raised, which may stand on other lines."""
    line = linecache.getline(filename, number).strip()
    node: ast.AST | None = _parsed(filename)
    statement: ast.AST | None = None
    while node is not None:
        if isinstance(node, (ast.Assert, ast.If)):
            statement = node
        parts = ast.iter_child_nodes(node)
        node = next((part for part in parts if _contains(part, (number + 1, -1), (number, 0))), None)
    if isinstance(statement, ast.Assert):
        return line if statement.lineno == statement.end_lineno else ast.unparse(statement)
    if not isinstance(statement, ast.If) or number > (statement.test.end_lineno or 0):
        return line
    ends = [arm[-1] for arm in (statement.body, statement.orelse) if arm]
    raised = [end for end in ends if isinstance(end, ast.Raise) and end.lineno > number]
    return f"{line} {ast.unparse(raised[0])}" if len(raised) == 1 else line


def _contains(node: ast.AST, start: Place, end: Place) -> bool:
    line = getattr(node, "lineno", None)
    if line is None:  # the arguments of a function and the like: what they consist of knows its place
        return any(_contains(child, start, end) for child in ast.iter_child_nodes(node))
    place: Any = node
    return (line, place.col_offset) <= start and end <= (place.end_lineno, place.end_col_offset)


def _is_message_of_check(call: ast.Call, argument: ast.AST | None) -> bool:
    """Whether a text is what a function called a check or an assertion says; what it checks comes first."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return isinstance(argument, ast.JoinedStr) and argument in call.args[1:] and _CHECKED_BY.search(name) is not None


_CHECKED_BY = re.compile(r"(^|_)(assert|check)(_|$)|^assert[A-Z]")


def _is_output(function: ast.expr) -> bool:
    """``print``, ``warnings.warn``, and the methods of what is called a log or a logger."""
    if isinstance(function, ast.Name):
        return function.id in _SHOWN_BY
    if not isinstance(function, ast.Attribute) or function.attr not in _LOGGED_BY:
        return False
    owner = ast.unparse(function.value).lower()
    return "log" in owner or owner == "warnings"
