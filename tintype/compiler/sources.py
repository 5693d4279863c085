"""Where values come from, and what is checked of them before a recorded program is used again.

A source is a path: an argument, a constant object (the globals of a function, a class), the result of a call, or an
attribute, an item or the content of a cell of another source. A guard is a question about a source, with the
answer that the recorded program rests on.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch

from tintype.compiler.expressions import evaluated, expression_key
from tintype.ir.call_values import PLAIN, same_value, value_key

# What a fetch raises where a path leads nowhere.
LOOKUP_ERRORS = (LookupError, AttributeError, TypeError, ValueError)


class Path:
    """What identifies a source: sources of one path have one object for it, which is cheap to look for in tables."""

    __slots__ = ("__weakref__", "_longer", "_most", "parent", "step")

    def __init__(self, parent: Path | None, step: tuple[Any, ...]) -> None:
        self.parent = parent
        self.step = step
        # those that go one step further, as long as somebody has them; how many entries there may be before those
        # are dropped that nobody has any more
        self._longer: dict[tuple[Any, ...], weakref.ref[Path]] | None = None
        self._most = 64

    def longer(self, step: tuple[Any, ...]) -> Path:
        """The path that goes one step further."""
        longer = self._longer
        known = None if longer is None else longer.get(step)
        found = None if known is None else known()
        return self._made(step) if found is None else found

    def _made(self, step: tuple[Any, ...]) -> Path:
        with _MAKING_PATHS:  # two threads would make two
            longer = self._longer
            if longer is None:
                longer = self._longer = {}
            known = longer.get(step)
            found = None if known is None else known()
            if found is None:
                if len(longer) >= self._most:
                    longer = self._longer = {key: path for key, path in longer.items() if path() is not None}
                    self._most = max(64, 2 * len(longer))
                found = Path(None if self is NOWHERE else self, step)
                longer[step] = weakref.ref(found)
        return found

    def parts(self) -> Iterator[Path]:
        """The path, and those that lead to it."""
        path: Path | None = self
        while path is not None:
            yield path
            path = path.parent

    def steps(self) -> Iterator[tuple[Any, ...]]:
        """Its steps, the last one first."""
        return (path.step for path in self.parts())


NOWHERE = Path(None, ())  # where all paths begin, and which is part of none
_MAKING_PATHS = threading.Lock()


class Source:
    """One step of a path; ``path`` identifies it among the sources of a compiled function."""

    __slots__ = ("_table", "is_now", "key", "kind", "parent", "path", "root")

    def __init__(self, kind: str, key: Any = None, parent: Source | None = None) -> None:
        self.kind = kind
        self.key = key
        self.parent = parent
        own: tuple[Any, ...]
        if (type(key) is str or type(key) is int) and kind != "constant":
            own = (kind, (type(key), key))
        elif kind == "constant":
            own = (kind, id(key))
        elif kind == "called":
            own = (kind, tuple(map(_argument_key, key)))
        else:
            own = (kind, value_key(key))
        self._table: Source | None = None
        # is_now: whether it is what is there by now, after writes of the program
        if parent is None:
            self.path = NOWHERE.longer(own)
            self.root: Source = self
            self.is_now: bool = kind == "now"
        else:
            self.path = parent.path.longer(own)
            self.root = parent.root
            self.is_now = kind == "now" or parent.is_now

    @property
    def table(self) -> Source:
        """The dictionary of an object's attributes."""
        if self._table is None:
            self._table = Source("attribute", "__dict__", self)
        return self._table

    def __repr__(self) -> str:
        return said(self)

    @property
    def is_shape(self) -> bool:
        """Whether it is the shape of something."""
        return self.kind == "attribute" and self.key == "shape"

    def code(self, parent: str, bind: Callable[[Any], str]) -> str:
        """The expression that fetches it, given that of its parent."""
        match self.kind:
            case "argument":
                return f"args[{self.key}]"
            case "keyword":
                return f"kwargs[{self.key!r}]"
            case "constant":
                return bind(self.key)
            case "value":
                return f"v{self.key}"
            case "attribute":
                return f"{parent}.{self.key}" if self.key.isidentifier() else f"getattr({parent}, {self.key!r})"
            case "item":
                return f"{parent}[{literal(self.key, bind)}]"
            case "now" | "again":
                return parent
            case "dict_item":
                return f"{bind(dict.__getitem__)}({parent}, {literal(self.key, bind)})"
            case "called":
                return f"{parent}({', '.join(literal(argument, bind) for argument in self.key)})"
            case _:
                return f"{parent}.cell_contents"

    def fetch(self, args: Any, kwargs: Any, values: Any) -> Any:
        """What it is now; raises one of ``LOOKUP_ERRORS`` where there is nothing."""
        match self.kind:
            case "argument":
                return args[self.key]
            case "keyword":
                return kwargs[self.key]
            case "constant":
                return self.key
            case "value":
                return values[self.key]
        assert self.parent is not None
        parent = self.parent.fetch(args, kwargs, values)
        match self.kind:
            case "attribute":
                return getattr(parent, self.key)
            case "item":
                return parent[self.key]
            case "now" | "again":
                return parent
            case "dict_item":
                return dict.__getitem__(parent, self.key)
            case "called":
                return parent(*self.key)
            case _:
                return parent.cell_contents


def item_of(container: Any, key: Any, source: Source) -> Source:
    """An item of a container, past a method of its class that would give or put there something else."""
    kind = type(container)
    is_own = issubclass(kind, dict) and kind.__getitem__ is not dict.__getitem__
    return Source("dict_item" if is_own or hasattr(kind, "__missing__") else "item", key, source)


def said(source: Source) -> str:
    """A source as a user would write it."""
    match source.kind:
        case "argument":
            return f"argument {source.key}"
        case "keyword":
            return f"argument {source.key!r}"
        case "value":
            return f"result {source.key}"
        case "constant":
            name = getattr(source.key, "__qualname__", None) or getattr(source.key, "__name__", None)
            if name is None and isinstance(source.key, dict):
                return f"globals of {source.key.get('__name__', '?')}"
            return str(name or type(source.key).__name__)
    assert source.parent is not None
    parent = source.parent
    if source.kind in ("item", "dict_item"):
        if parent.kind == "attribute" and parent.key == "__dict__" and parent.parent is not None:
            return f"{said(parent.parent)}.{source.key}"
        if parent.kind == "item" and parent.key in ("_modules", "_parameters", "_buffers"):
            owner = parent.parent.parent if parent.parent is not None else None
            if owner is not None:
                return f"{said(owner)}.{source.key}"
        if parent.kind == "constant" and isinstance(parent.key, dict):
            return str(source.key)
        return f"{said(parent)}[{source.key!r}]"
    return f"{said(parent)}.{source.key}" if source.kind == "attribute" else said(parent)


def _argument_key(value: Any) -> Any:
    return value_key(value) if type(value) in PLAIN else id(value)


def literal(value: Any, bind: Callable[[Any], str]) -> str:
    """A plain value in code."""
    if value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 200):
        return repr(value)
    return bind(value)


class Guard:
    """A question about a source. ``subject`` tells which question it is, ``key`` also which answer is expected."""

    __slots__ = ("_test", "expected", "inline", "key", "kind", "source", "subject")

    def __init__(self, kind: str, source: Source, expected: Any, inline: bool = False) -> None:
        self.kind = kind
        self.source = source
        self.expected = expected
        self.inline = inline
        self._test: Any = None
        self.subject: tuple[Any, ...] = ("guard", kind, source.path)
        if kind == "answer":
            self.subject = (*self.subject, expected[0], value_key(expected[1]))
        elif kind == "assumed":
            self.subject = (*self.subject, expected[0], value_key(expected[1]), expected[3])
        elif kind == "same":
            self.subject = (*self.subject, expected.path)
        elif kind == "apart":
            self.subject = (*self.subject, tuple(other.path for other in expected))
        elif kind == "absent":
            self.subject = (*self.subject, expected)
        elif kind == "relation":
            self.subject = (*self.subject, id(expected[0]), tuple(map(expression_key, expected[1])))
        self.key = (*self.subject, self._expected_key())

    def __repr__(self) -> str:
        shown = self.expected[0].co_qualname if self.kind == "code" else self.expected  # and not all globals
        return f"{said(self.source)}: {self.kind} {shown}"

    def _expected_key(self) -> Any:
        match self.kind:
            case "value":
                kind = type(self.expected)
                if kind is tuple:
                    return tuple(map(value_key, self.expected))
                return value_key(self.expected) if kind in PLAIN else self.expected
            case "answer" | "relation" | "assumed":
                return value_key(self.expected[2])
            case "type" | "is":
                return id(self.expected)
            case "printed":
                return (id(self.expected[0]), self.expected[1])
            case "code":
                keywords = self.expected[2] and tuple(
                    (name, _argument_key(value)) for name, value in self.expected[2]
                )
                return (*map(id, self.expected[:2]), keywords, id(self.expected[3]))
            case "same" | "absent" | "apart":
                return None
            case _:
                return self.expected

    @property
    def test(self) -> Any:
        """The function that asks the question, where that is no operator."""
        if self._test is None:
            self._test = _TESTS[self.kind](self.expected)
        return self._test

    @property
    def sources(self) -> tuple[Source, ...]:
        if self.kind == "apart":
            return (self.source, *self.expected)
        return (self.source, self.expected) if self.kind == "same" else (self.source,)

    def condition(self, names: list[str], bind: Callable[[Any], str]) -> str:
        """The expression that is true where the answer is the expected one; ``names`` hold what the sources are."""
        name, expected = names[0], self.expected
        match self.kind:
            case "type":
                return f"type({name}) is {bind(expected)}"
            case "is":
                return f"{name} is {bind(expected)}"
            case "value":
                return _value_condition(self, name, bind)
            case "length":
                return f"len({name}) == {expected}"
            case "keys":
                return f"tuple({name}) == {bind(expected)}"
            case "code":
                return _code_condition(self, name, bind)
            case "absent":
                return f"{literal(expected, bind)} not in {name}"
            case "members":  # what is new is the last one
                return f"len({name}) == {expected[0]} and next(reversed({name})) == {expected[1]!r}"
            case "same":
                return f"{name} is {names[1]}"
            case "apart":
                return " and ".join(f"{name} is not {other}" for other in names[1:])
            case "arguments":
                count, names = expected
                return f"len(args) == {count} and " + (f"tuple(kwargs) == {bind(names)}" if names else "not kwargs")
            case "answer":
                read, arguments, answer = expected
                call = _read_code(name, read, arguments, bind)
                if type(answer) in (bool, type(None), torch.dtype, torch.layout):
                    return f"{call} is {literal(answer, bind)}"
                return f"{call} == {tuple(answer) if type(answer) is torch.Size else literal(answer, bind)}"
            case "printed":
                return f"{bind(self.test)}({name})"
            case "tensor":
                return _tensor_condition(name, expected, bind)
            case "state":
                return f"{bind(self.test)}()"
            case "assumed":  # it follows from what was asked before
                return "True"
            case "returned":
                return f"type({name}) is not _Raised"
            case "hooks":
                return _WITHOUT_HOOKS.format(name)
        raise AssertionError(self.kind)

    def holds(self, args: Any, kwargs: Any, values: Any) -> bool:
        """Whether the answer is the expected one now."""
        if self.kind == "relation":
            return self._holds_now(args, kwargs, values)
        namespace: dict[str, Any] = {}

        def bind(value: Any) -> str:
            name = f"k{len(namespace)}"
            namespace[name] = value
            return name

        try:
            found = [source.fetch(args, kwargs, values) for source in self.sources]
            names = [f"a{position}" for position in range(len(found))]
            condition = self.condition(names, bind)
            namespace |= {**dict(zip(names, found)), "args": args, "kwargs": kwargs, "_Raised": Raised}
            return bool(eval(condition, namespace))  # noqa: S307  (written by us)
        except LOOKUP_ERRORS:
            return False

    def _holds_now(self, args: Any, kwargs: Any, values: Any) -> bool:
        function, operands, answer = self.expected
        try:
            found = [self.evaluate(operand, args, kwargs, values) for operand in operands]
        except (*LOOKUP_ERRORS, ArithmeticError):
            return False
        return bool(function(*found) == answer)

    @staticmethod
    def evaluate(expression: Any, args: Any, kwargs: Any, values: Any) -> Any:
        """What an expression of numbers is now."""

        return evaluated(expression, args, kwargs, values)

    def failure(self, args: Any, kwargs: Any, values: Any) -> str:
        """What is different, in words."""
        try:
            found = self.source.fetch(args, kwargs, values)
        except LOOKUP_ERRORS:
            return f"{said(self.source)} is gone"
        try:
            return self._difference(found)
        except LOOKUP_ERRORS:  # a list was expected, and it is none
            return f"{said(self.source)} is another"

    def _difference(self, found: Any) -> str:
        name = said(self.source)
        match self.kind:
            case "type":
                return f"{name} is a {type(found).__name__}, not a {self.expected.__name__}"
            case "value":
                return f"{name} is {found!r}, not {self.expected!r}"
            case "length":
                return f"{name} has {len(found)} items, not {self.expected}"
            case "same":
                return f"{name} is not {said(self.expected)}"
            case "apart":
                return f"{name} is the same object as {' or '.join(map(said, self.expected))}"
            case "answer":
                return f"{name}.{self.expected[0]} is not {self.expected[2]}"
            case "printed":
                return f"{name} is {found!r}, not {self.expected[1]}"
            case "tensor":
                return f"{name}: {differences(self.expected, found)}"
            case "relation":
                return f"{name}: another answer than before to a comparison"
            case "members":
                return f"{name.removesuffix('.__dict__')} has got or lost attributes"
            case "arguments":
                return "the number or the names of the arguments"
            case "state":
                return "gradient mode, autocast, default dtype or another mode of the thread"
            case _:
                return f"{name} is another"


# of the dictionary of a module
_WITHOUT_HOOKS = (
    "not ({0}['_forward_hooks'] or {0}['_forward_pre_hooks'] or {0}['_backward_hooks'] or {0}['_backward_pre_hooks'] "
    "or 'forward' in {0} or ('_compiled_call_impl' in {0} and {0}['_compiled_call_impl'] is not None))"
)


def _tensor_condition(name: str, expected: tuple[Any, ...], bind: Callable[[Any], str]) -> str:
    """That a tensor has a description; written out, since this is most of what guards of a model's graphs ask."""
    kind, dtype, shape, strides, requires_grad, device, layout, is_flipped = expected
    conditions = [
        f"type({name}) is {bind(kind)}",
        f"{name}.layout is {bind(layout)}",
        f"{name}.dtype is {bind(dtype)}",
        _shape_condition(name, shape),
        f"{name}.requires_grad is {requires_grad}",
        f"{name}.is_cpu" if device.type == "cpu" else f"{name}.device == {bind(device)}",
    ]
    if strides is None:  # sizes vary
        conditions.append(f"{name}.is_contiguous()")
    elif layout is torch.strided:
        # where all sizes are more than one, there is one way to lie in memory without gaps and in order
        is_told = all(size > 1 for size in shape) and strides == contiguous_strides(shape)
        conditions.append(f"{name}.is_contiguous()" if is_told else f"{name}.stride() == {strides}")
    flipped = f"{name}.is_neg()" if not dtype.is_complex else f"({name}.is_conj() or {name}.is_neg())"
    conditions.append(flipped if is_flipped else f"not {flipped}")
    return " and ".join(conditions)


def _shape_condition(name: str, shape: Sequence[int | None]) -> str:
    if None not in shape:
        return f"{name}.shape == {tuple(shape)}"
    fixed = [f"{name}.shape[{dim}] == {size}" for dim, size in enumerate(shape) if size is not None]
    return " and ".join([f"{name}.ndim == {len(shape)}", *fixed])


def with_free_sizes(described: tuple[Any, ...], free: Collection[int]) -> tuple[Any, ...]:
    """The description of a contiguous tensor of which some sizes don't matter: those are None, and so are strides."""
    shape = tuple(None if dim in free else size for dim, size in enumerate(described[2]))
    return (*described[:2], shape, None, *described[4:])


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor that lies in memory without gaps and in order."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _value_condition(guard: Guard, name: str, bind: Callable[[Any], str]) -> str:
    expected = guard.expected
    kind = type(expected)
    if expected is None or kind is bool:
        return f"{name} is {expected!r}"
    if kind is int or kind is str:
        return f"(type({name}) is {kind.__name__} and {name} == {literal(expected, bind)})"
    if kind is float and expected == expected and expected != 0.0:
        return f"(type({name}) is float and {name} == {bind(expected)})"
    if kind in (torch.dtype, torch.layout, torch.memory_format):
        return f"{name} is {bind(expected)}"
    if kind is tuple:  # most often the very same one
        return f"({name} is {bind(expected)} or {bind(guard.test)}({name}))"
    return f"{bind(guard.test)}({name})"


def _code_condition(guard: Guard, name: str, bind: Callable[[Any], str]) -> str:
    code, defaults, keyword_defaults, namespace = guard.expected
    if keyword_defaults is not None:  # which may have changed
        return f"{bind(guard.test)}({name})"
    most_often = [
        f"type({name}) is {bind(FunctionType)}",
        f"{name}.__code__ is {bind(code)}",
        f"{name}.__globals__ is {bind(namespace)}",
        f"{name}.__defaults__ is {literal(defaults, bind)}",
        f"{name}.__kwdefaults__ is None",
    ]
    return f"({' and '.join(most_often)} or {bind(guard.test)}({name}))"


def _read_code(name: str, read: str, arguments: tuple[Any, ...], bind: Callable[[Any], str]) -> str:
    if read.startswith("."):
        return name + read
    return f"{name}.{read}({', '.join(literal(argument, bind) for argument in arguments)})"


class Raised:
    """The result of a call that raised an exception."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error.with_traceback(None)


# --- what guards ask -----------------------------------------------------------------------------------------


def parts_of(function: FunctionType) -> tuple[Any, ...]:
    """What a function does rests on, and others may replace: its code, its defaults and its globals."""
    keywords: Any = function.__kwdefaults__  # a dictionary that may be written to
    if keywords is not None:
        keywords = tuple(keywords.items())
    return function.__code__, function.__defaults__, keywords, function.__globals__


def is_function(expected: tuple[Any, ...], found: Any) -> bool:
    """Whether it is a function of the same code, with the same defaults and globals."""
    code, defaults, keyword_defaults, namespace = expected
    return (
        type(found) is FunctionType
        and found.__code__ is code
        and found.__globals__ is namespace
        and (found.__defaults__ is defaults or same_value(found.__defaults__, defaults))
        and _are_keywords(keyword_defaults, found.__kwdefaults__)
    )


def _are_keywords(expected: tuple[tuple[str, Any], ...] | None, found: dict[str, Any] | None) -> bool:
    if expected is None or found is None:
        return expected is None and found is None
    return len(expected) == len(found) and all(
        name in found and (found[name] is value or same_value(found[name], value)) for name, value in expected
    )


def printed(value: Any) -> str:
    """A value that can't change as text, whatever a class of the user's writes for it."""
    base = next((kind for kind in (str, bytes, int, float, complex) if isinstance(value, kind)), None)
    return repr(value) if base is None else base.__repr__(value)


def is_printed_as(expected: tuple[type, str], found: Any) -> bool:
    return type(found) is expected[0] and printed(found) == expected[1]


def description(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All that graphs of other backends may rest on. That a tensor has no history matters to nothing but writes,
    which autograd has a part in (see :mod:`tintype.compiler.fast_runs`)."""
    return (
        type(tensor),
        tensor.dtype,
        tensor.shape,
        tensor.stride() if tensor.layout is torch.strided else (),
        tensor.requires_grad,
        tensor.device,
        tensor.layout,
        tensor.is_conj() or tensor.is_neg(),
    )


_PARTS = ("type", "dtype", "shape", "strides", "requires_grad", "device", "layout", "conjugation")


def differences(expected: tuple[Any, ...], found: Any) -> str:
    """In words, what of a tensor is not as it was."""
    if not isinstance(found, torch.Tensor):
        return f"is a {type(found).__name__}"
    described = description(found)
    if expected[3] is None and len(expected[2]) == found.dim() and found.is_contiguous():
        described = with_free_sizes(described, [dim for dim, size in enumerate(expected[2]) if size is None])
    pairs = zip(_PARTS, expected, described, strict=True)
    return ", ".join(f"{part} is {now}, not {was}" for part, was, now in pairs if was != now)


def same_state(function: Any, arguments: tuple[Any, ...], answer: Any) -> bool:
    return bool(function(*arguments) == answer)


_TESTS: dict[str, Callable[[Any], Any]] = {
    "value": lambda expected: functools.partial(same_value, expected),
    "code": lambda expected: functools.partial(is_function, expected),
    "printed": lambda expected: functools.partial(is_printed_as, expected),
    "state": lambda expected: functools.partial(same_state, *expected),
}
