"""Python's own sequences over sizes that vary: ``list(range(length))``, its slices, elements and ``len``.

``range`` wants a plain integer, and ``len`` returns one, so a size that goes through them would be fixed to the
example's. Where a function of the program asks that of a size, the capture starts again with the function rewritten:
its calls of ``range``, ``list`` and ``len`` go to the functions here, which do the same for plain numbers, and for a
symbolic size make a sequence that knows its length only as an expression. What such a sequence can't do it does as
the plain list that it is for the example, which fixes the size after all. The function gets its own code back when
the capture is over; its lines stay what they are.
"""

from __future__ import annotations

import ast
import linecache
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.symbolic import Expr, ge
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.interruptions import Interruption
from tintype.symbolic.location import caller_of, is_internal, program_caller
from tintype.trace.tensor_rows import TensorRows, rows_of

_INDEX = torch.SymInt.__index__.__code__
_ITERATE = torch.Tensor.__iter__.__code__


class NeedsRewriting(Interruption):
    """A function makes a sequence of a length that varies: capture again, with the function rewritten."""

    def __init__(self, function: FunctionType) -> None:
        super().__init__(function.__qualname__)
        self.function = function


class SymbolicSequence:
    """``start + step*i`` for i from 0 up to a symbolic count, as a range or as a list; a negative count means none.

    Taken for what it is by ``isinstance``; C code that wants a real list refuses it.
    """

    __slots__ = ("_count", "_kind", "_plain", "start", "step")

    def __init__(self, kind: type, start: Any, step: Any, count: Any) -> None:
        self._kind = kind
        self.start = start
        self.step = step
        self._count = count
        self._plain: Any = None

    @property  # type: ignore[misc]  # what isinstance() asks where the type says no
    def __class__(self) -> Any:
        return self._kind

    @property
    def is_plain(self) -> bool:
        """Whether somebody has looked at it as the example's."""
        return self._plain is not None

    def length(self) -> Any:
        """How many elements there are."""
        if self._plain is not None:
            return len(self._plain)
        return self._count if _never_negative(self._count) else torch.sym_max(self._count, 0)

    def plain(self) -> Any:
        """The list or range of the example, which the sequence is from now on."""
        if self._plain is None:
            count = max(int(self._count), 0)
            elements = [self.start + self.step * i for i in range(count)]
            whole = self._kind is list or not all(type(element) is int for element in elements)
            self._plain = elements if whole else range(self.start, self.start + self.step * count, self.step)
        return self._plain

    def as_list(self) -> Any:
        """``list(self)``."""
        if self._plain is not None:
            return list(self._plain)
        return SymbolicSequence(list, self.start, self.step, self._count)

    def __getitem__(self, index: Any) -> Any:
        if self._plain is None and type(index) is slice:
            part = self._slice(index.start or 0, index.stop, 1 if index.step is None else index.step)
            if part is not None:
                return part
        if self._plain is None and type(index) is int:
            if not self.length() >= (index + 1 if index >= 0 else -index):
                raise IndexError(f"{self._kind.__name__} index out of range")
            return self.start + self.step * (index if index >= 0 else self._count + index)
        return self.plain()[index]

    def _slice(self, first: Any, last: Any, step: Any) -> SymbolicSequence | None:
        """A slice that leaves out some elements at both ends; None for any other."""
        if type(first) is not int or first < 0 or type(step) is not int or step < 1:
            return None
        if last is not None and (type(last) is not int or last >= 0):
            return None
        remaining = self._count - first + (last or 0)
        count = remaining if step == 1 else (remaining + step - 1) // step
        return SymbolicSequence(self._kind, self.start + first * self.step, self.step * step, count)

    def __radd__(self, other: Any) -> Any:
        if self._plain is None and type(other) is list and len(other) == 1 and other[0] is not None:
            before = self.start - self.step
            if type(before) is int and type(other[0]) is int and other[0] == before:  # it goes on where they begin
                return SymbolicSequence(list, before, self.step, self.length() + 1)
        return other + self.plain()

    def __len__(self) -> int:
        if self._plain is None:
            frame = program_caller(1)
            assert frame is not None
            look_for_rewriting(frame, "len")
        return len(self.plain())

    def __bool__(self) -> bool:
        return bool(self.length() > 0)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.plain())

    def __eq__(self, other: object) -> bool:
        return bool(self.plain() == (other.plain() if type(other) is SymbolicSequence else other))

    def __hash__(self) -> int:
        return hash(self.plain())

    def __add__(self, other: Any) -> Any:
        return self.plain() + other

    def __mul__(self, other: Any) -> Any:
        return self.plain() * other

    __rmul__ = __mul__

    def __contains__(self, value: object) -> bool:
        return value in self.plain()

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self.plain())

    def __setitem__(self, index: Any, value: Any) -> None:
        self.plain()[index] = value

    def __delitem__(self, index: Any) -> None:
        del self.plain()[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain(), name)

    def __repr__(self) -> str:
        return repr(self.plain())


def _never_negative(count: Any) -> bool:
    condition = ge(from_torch(count), 0)
    return condition.environment.known(condition) is True if isinstance(condition, Expr) else condition


# --- what calls of builtins become -----------------------------------------------------------------------------


def symbolic_range(*arguments: Any) -> Any:
    """``range``."""
    if not any(type(argument) is torch.SymInt for argument in arguments):
        return range(*arguments)
    start, stop, step = {1: (0, *arguments, 1), 2: (*arguments, 1), 3: arguments}[len(arguments)]
    if type(step) is not int or step == 0:
        return range(*arguments)
    count = (stop - start + step - 1) // step if step > 0 else (start - stop - step - 1) // -step
    return SymbolicSequence(range, start, step, count)


def symbolic_list(*arguments: Any) -> Any:
    """``list``."""
    kind = type(arguments[0]) if arguments else None
    if kind is FakeTensor:
        return rows_of(*arguments)
    return arguments[0].as_list() if kind is SymbolicSequence else list(*arguments)


def length_of(value: Any) -> Any:
    """``len``: Python's own gives a plain number, which would fix the size of a tensor."""
    if type(value) is FakeTensor and value.info.sizes:
        return value.shape[0]
    if type(value) is TensorRows and value.tensor is not None:
        return value.tensor.shape[0]
    return value.length() if type(value) is SymbolicSequence else len(value)


_REPLACEMENTS: dict[str, Any] = {"range": symbolic_range, "list": symbolic_list, "len": length_of}
# A call of a string can't be meant: such a constant stands for a function until the code is made.
_MARKS = {f"<tintype {name}>": function for name, function in _REPLACEMENTS.items()}


# --- rewriting -------------------------------------------------------------------------------------------------


def watch_plain_numbers(frame: FrameType) -> None:
    """Called where a symbolic number is asked for as a plain one: by ``range``, or by ``list`` of a tensor, it may be
    in vain."""
    caller = caller_of(frame)
    if frame.f_code is _INDEX:
        if caller is not None:
            look_for_rewriting(caller, "range")
        return
    while caller is not None and caller.f_code is not _ITERATE and is_internal(caller.f_code.co_filename):
        caller = caller_of(caller)
    user = caller_of(caller) if caller is not None and caller.f_code is _ITERATE else None
    if user is not None:
        look_for_rewriting(user, "list")


def look_for_rewriting(frame: FrameType, builtin: str) -> None:
    """Ask for another capture, if the frame's function calls the builtin and can be rewritten."""
    code = frame.f_code
    if builtin not in code.co_names or builtin in frame.f_globals or is_internal(code.co_filename):
        return
    function = _function_of(frame)
    if function is not None and rewritten_code(function) is not None:
        raise NeedsRewriting(function)


def _function_of(frame: FrameType) -> FunctionType | None:
    """The function that a frame runs, found by its name; None for one that has no name of its own."""
    found: Any = sys.modules.get(frame.f_globals.get("__name__", ""))
    for part in frame.f_code.co_qualname.split("."):
        found = getattr(found, part, None)
    while found is not None and getattr(found, "__code__", None) is not frame.f_code:
        found = getattr(found, "__func__", None) or getattr(found, "__wrapped__", None)
    return found if type(found) is FunctionType else None


class _Calls(ast.NodeTransformer):
    """Marks the calls of builtins that are to be replaced, in the functions that begin at a line."""

    def __init__(self, line: int, shadowed: frozenset[str]) -> None:
        self.line = line
        self.shadowed = shadowed
        self.inside = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before, first = self.inside, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        self.inside = before or first == self.line
        self.generic_visit(node)
        self.inside = before
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if self.inside and name in _REPLACEMENTS and name not in self.shadowed:
            node.func = ast.copy_location(ast.Constant(f"<tintype {name}>"), node.func)
        return node


def rewritten_code(function: FunctionType) -> CodeType | None:
    """A function's code with the calls of builtins replaced; None where its source is not what runs."""
    code = ORIGINALS.get(function.__code__, function.__code__)
    if code not in _rewritten:
        _rewritten[code] = None
        changed = _rewrite(code, function.__globals__)
        if changed is not None:
            _rewritten[code], _rewritten[changed] = changed, None  # what is rewritten is not rewritten again
    return _rewritten[code]


_rewritten: dict[CodeType, CodeType | None] = {}
# what functions ran before a capture gave them other code for another reason (tintype.trace.object_questions)
ORIGINALS: dict[CodeType, CodeType] = {}


def _rewrite(code: CodeType, names: dict[str, Any]) -> CodeType | None:
    try:
        # the whole file: what code Python makes of a function depends on what is around it
        tree = ast.parse("".join(linecache.getlines(code.co_filename, names)))
    except SyntaxError:
        return None
    as_it_is = _compiled(tree, code)
    if as_it_is is None or as_it_is.co_code != code.co_code or as_it_is.co_consts != code.co_consts:
        return None
    shadowed = frozenset(names) | frozenset(code.co_varnames) | frozenset(code.co_cellvars)
    changed = _compiled(_Calls(code.co_firstlineno, shadowed).visit(tree), code)
    return None if changed is None else _with_functions(changed)


def _compiled(tree: ast.Module, wanted: CodeType) -> CodeType | None:
    """The code of one function of a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a string is called
        pending: list[CodeType] = [compile(tree, wanted.co_filename, "exec", dont_inherit=True)]
    while pending:
        code = pending.pop()
        if (code.co_qualname, code.co_firstlineno) == (wanted.co_qualname, wanted.co_firstlineno):
            return code if code.co_freevars == wanted.co_freevars else None
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return None


def _with_functions(code: CodeType) -> CodeType:
    constants = [_with_functions(value) if isinstance(value, CodeType) else value for value in code.co_consts]
    return code.replace(
        co_consts=tuple(_MARKS.get(value, value) if type(value) is str else value for value in constants)
    )


@contextmanager
def rewritten(functions: Iterable[FunctionType]) -> Iterator[None]:
    """Within it, the functions run their rewritten code."""
    before = [(function, function.__code__) for function in functions]
    try:
        for function, _ in before:
            code = rewritten_code(function)
            if code is not None:  # None in a capture inside of another one, which rewrote it
                function.__code__ = code
        yield
    finally:
        for function, code in before:
            function.__code__ = code
