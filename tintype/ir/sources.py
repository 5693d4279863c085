"""Where a value comes from, as an object: an argument, a global variable, a variable of an enclosing function, or an
attribute or item of one of them.

A source prints itself as the expression that a user would write, generates code that reads it, and can be compared
and hashed. Inputs, sizes that vary and lifted constants have one; errors and contracts print it, and whoever runs a
program again under conditions (``compile``) reads it.

>>> source = size_of(Item(Argument("inputs"), "a"), 0)
>>> print(source)
inputs['a'].shape[0]
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

import torch.utils._pytree as pytree

from tintype import tree
from tintype.ir.call_values import TheObject
from tintype.ir.writing import Writer, spell


class Source:
    """Where a value comes from. Made of one that is known without another (a root), attributes and items."""

    __slots__ = ()

    def read(self, arguments: Mapping[str, Any]) -> Any:
        """The value that is there now, given the arguments of a call by name; raises what Python raises.

        >>> Attribute(Item(Argument("x"), 0), "real").read({"x": [3]})
        3
        """
        raise NotImplementedError

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        """The expression that reads it in code that is being written; ``arguments`` has those of arguments.

        >>> writer = Writer()
        >>> writer.line(f"return {Item(Argument('x'), 'a').code(writer, {'x': '_given'})}")
        >>> writer.build("read", "(_given)")({"a": 5})
        5
        """
        raise NotImplementedError

    @property
    def root(self) -> Source:
        """What it is an attribute or item of, in the end."""
        return self

    def parts(self) -> Iterator[Source]:
        """All that is read on the way to it, the root first, itself last.

        >>> print(*Attribute(Item(Argument("x"), 0), "T").parts())
        x x[0] x[0].T
        """
        yield self


@dataclass(frozen=True, slots=True)
class Argument(Source):
    """An argument of the program, by its name. The model itself is the argument ``self``."""

    name: str

    def __str__(self) -> str:
        return self.name

    def read(self, arguments: Mapping[str, Any]) -> Any:
        return arguments[self.name]

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        return arguments[self.name]


class _Table:
    """What :class:`Global` and :class:`Cell` share: a name, in something that is one and the same."""

    __slots__ = ("holder", "name")

    def __init__(self, name: str, holder: Any) -> None:
        self.name = name
        self.holder = TheObject(holder)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.name, self.holder) == (other.name, other.holder)

    def __hash__(self) -> int:
        return hash((self.name, self.holder))


class Global(_Table, Source):
    """A global variable of a module, or a builtin function: a name in a table.

    >>> Global("__name__", globals()).read({}) == __name__
    True
    """

    __slots__ = ()

    def read(self, arguments: Mapping[str, Any]) -> Any:
        return self.holder.value[self.name]

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        return f"{writer.bind(self.holder.value)}[{self.name!r}]"


class Cell(_Table, Source):
    """A variable of an enclosing function: the cell that holds it, and its name."""

    __slots__ = ()

    def read(self, arguments: Mapping[str, Any]) -> Any:
        return self.holder.value.cell_contents

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        return f"{writer.bind(self.holder.value)}.cell_contents"


class _Part(Source):
    """What :class:`Attribute` and :class:`Item` share: they are part of something."""

    __slots__ = ()
    base: Source

    @property
    def root(self) -> Source:
        return self.base.root

    def parts(self) -> Iterator[Source]:
        yield from self.base.parts()
        yield self


@dataclass(frozen=True, slots=True)
class Attribute(_Part):
    """An attribute of what is at another source. The modules of a list are its attributes "0", "1", ... and items.

    >>> print(Attribute(Attribute(Argument("self"), "layers"), "0"), Attribute(Argument("x"), "a b"))
    self.layers[0] getattr(x, 'a b')
    """

    base: Source
    name: str

    def __str__(self) -> str:
        if self.name.isdecimal():
            return f"{self.base}[{self.name}]"
        return f"{self.base}.{self.name}" if _is_name(self.name) else f"getattr({self.base}, {self.name!r})"

    def read(self, arguments: Mapping[str, Any]) -> Any:
        return getattr(self.base.read(arguments), self.name)

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        base = self.base.code(writer, arguments)
        return f"{base}.{self.name}" if _is_name(self.name) else f"getattr({base}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class Item(_Part):
    """An item of a container at another source, by position or key.

    >>> print(Item(Argument("x"), -1), Item(Argument("x"), "a"))
    x[-1] x['a']
    """

    base: Source
    key: Any

    def __str__(self) -> str:
        return f"{self.base}[{self.key!r}]"

    def read(self, arguments: Mapping[str, Any]) -> Any:
        return self.base.read(arguments)[self.key]

    def code(self, writer: Writer, arguments: Mapping[str, str]) -> str:
        return f"{self.base.code(writer, arguments)}[{spell(writer, self.key)}]"


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


# --- sources of what we know -----------------------------------------------------------------------------


def size_of(tensor: Source, dimension: int) -> Source:
    """One size of a tensor."""
    return Item(Attribute(tensor, "shape"), dimension)


def state_source(name: str) -> Source:
    """A parameter, buffer or attribute of the model, by its name.

    >>> print(state_source("layers.0.weight"))
    self.layers[0].weight
    """
    source: Source = Argument("self")
    for part in name.split("."):
        source = Attribute(source, part)
    return source


def part_at(source: Source, path: tree.KeyPath) -> Source:
    """A part of containers, by its path.

    >>> (path, _), = tree.flatten_with_paths({"a": [1]})[0]
    >>> print(part_at(Argument("x"), path))
    x['a'][0]
    """
    for key in path:
        if isinstance(key, pytree.SequenceKey):
            source = Item(source, key.idx)
        elif isinstance(key, pytree.MappingKey):
            source = Item(source, key.key)
        elif isinstance(key, pytree.GetAttrKey):
            source = Attribute(source, key.name)
        else:
            source = Item(source, key)
    return source


def place_in_call(path: tree.KeyPath) -> Source:
    """Where an input is in ``(args, kwargs)``, by its path there: ``*args[0]['a']`` or ``**kwargs['x']``."""
    return part_at(Argument("*args" if path[0].idx == 0 else "**kwargs"), path[1:])


def named_input(path: tree.KeyPath, names: list[str]) -> Source:
    """Where an input is, as the user calls it: ``x`` or ``inputs['a'][0]``; ``names`` are those of arguments."""
    in_kwargs, position = path[0].idx, path[1]
    return part_at(Argument(str(position.key) if in_kwargs else names[position.idx]), path[2:])


def variables_of(function: FunctionType) -> Iterator[Source]:
    """The variables from around it that a function names: of enclosing functions that have a value, and global ones.

    >>> offset = 1
    >>> def outer(scale):
    ...     return lambda x: x * scale + offset
    >>> [str(source) for source in variables_of(outer(2))]
    ['scale', 'offset']
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if _is_filled(cell):
            yield Cell(name, cell)
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield Global(name, function.__globals__)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (empty ones raise)
    except ValueError:
        return False
    return True
