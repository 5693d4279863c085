"""Python values of a program - arguments, constants, structure contexts - to and from the schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.fx.immutable_collections import immutable_dict, immutable_list

from tintype.errors import FileFormatError, UnsavableError
from tintype.export.checks import SavedFunction, name_of_function
from tintype.serde import schema
from tintype.tree.subclasses import ClassName

DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_MEMORY_FORMATS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.memory_format)}

# the dotted name of a parameter, buffer or subgraph; code that is generated from a graph may put it between quotes
_PATH = re.compile(r"[^\"'\\.\x00-\x1f\x7f]+(\.[^\"'\\.\x00-\x1f\x7f]+)*")

_PLAIN = frozenset({int, str, bool, type(None)})
_DEEPEST = 100  # containers in containers
_SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class ValueEncoder:
    """Values to the schema. Who encodes graphs adds nodes, tensors and operators to ``handlers``."""

    def __init__(self) -> None:
        self.handlers: dict[type, Callable[[Any], Any]] = {
            float: _encode_float,
            complex: lambda value: schema.ComplexValue(repr(value.real), repr(value.imag)),
            list: self._encode_list,
            immutable_list: self._encode_list,
            tuple: self._encode_tuple,
            dict: self._encode_dict,
            immutable_dict: self._encode_dict,
            torch.Size: lambda value: schema.SizeValue([self.encode(item) for item in value]),
            torch.dtype: lambda value: schema.DtypeValue(str(value).removeprefix("torch.")),
            torch.device: lambda value: schema.DeviceValue(str(value)),
            torch.layout: lambda value: schema.LayoutValue(str(value)),
            torch.memory_format: lambda value: schema.MemoryFormatValue(str(value)),
            slice: lambda value: schema.SliceValue(*map(self.encode, (value.start, value.stop, value.step))),
            type(...): lambda value: schema.EllipsisValue(),
            bytes: schema.BytesValue,
            FunctionType: _encode_function,
            SavedFunction: lambda value: schema.FunctionValue(value.name),
            ClassName: str,
        }

    def encode(self, value: Any) -> Any:
        """One value, whatever is inside it too."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        handler = self.handlers.get(kind)
        if handler is None:
            return self.encode_other(value)
        return handler(value)

    def encode_other(self, value: Any) -> Any:
        """A value of a type that is not in the table."""
        raise UnsavableError(
            f"the program has a {type(value).__qualname__} in it ({value!r:.80}), which a file can't hold",
            remedy="use numbers, strings, tensors, dtypes, devices and containers of them",
        )

    def _encode_list(self, value: Any) -> Any:
        return schema.ListValue([self.encode(item) for item in value])

    def _encode_tuple(self, value: Any) -> Any:
        return schema.TupleValue([self.encode(item) for item in value])

    def _encode_dict(self, value: Any) -> Any:
        return schema.DictValue([self.encode(key) for key in value], [self.encode(item) for item in value.values()])


def _encode_function(function: FunctionType) -> Any:
    name = name_of_function(function)
    assert name is not None
    return schema.FunctionValue(name)


def _encode_float(value: float) -> Any:
    return value if math.isfinite(value) else schema.FloatValue(repr(value))


class ValueDecoder:
    """Values from the schema. Who decodes graphs adds nodes, tensors and operators to ``handlers``."""

    # whether objects of classes that are not here may be plain ones
    plain_containers = False

    def __init__(self) -> None:
        self._depth = 0
        self.handlers: dict[type, Callable[[Any], Any]] = {
            float: lambda value: value,
            schema.FloatValue: lambda value: looked_up(_SPECIAL_FLOATS, value.text, "number"),
            schema.ComplexValue: lambda value: complex(float(value.real), float(value.imaginary)),
            schema.ListValue: lambda value: self._items(value.items),
            schema.TupleValue: lambda value: tuple(self._items(value.items)),
            schema.DictValue: self._decode_dict,
            schema.SizeValue: lambda value: torch.Size(self._items(value.items)),
            schema.DtypeValue: lambda value: dtype_named(value.name),
            schema.DeviceValue: lambda value: device_named(value.name),
            schema.LayoutValue: lambda value: looked_up(_LAYOUTS, value.name, "layout"),
            schema.MemoryFormatValue: lambda value: looked_up(_MEMORY_FORMATS, value.name, "memory format"),
            schema.SliceValue: lambda value: slice(*self._items([value.start, value.stop, value.step])),
            schema.EllipsisValue: lambda value: ...,
            schema.BytesValue: lambda value: value.content,
            schema.FunctionValue: lambda value: SavedFunction(value.name),
        }

    def decode(self, value: Any) -> Any:
        """One value, whatever is inside it too."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        handler = self.handlers.get(kind)
        if handler is None:
            raise FileFormatError(f"a {kind.__name__} stands where the file can't have one")
        return handler(value)

    def _items(self, items: list[Any]) -> list[Any]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise FileFormatError("values are nested too deeply")
        decoded = [self.decode(item) for item in items]
        self._depth -= 1
        return decoded

    def _decode_dict(self, value: schema.DictValue) -> Any:
        if len(value.keys) != len(value.values):
            raise FileFormatError("a dictionary has more keys than values, or fewer")
        keys = self._items(value.keys)
        if not all(type(key) in _PLAIN or type(key) is float for key in keys):
            raise FileFormatError("the keys of a dictionary are neither numbers nor strings")
        return dict(zip(keys, self._items(value.values), strict=True))


def looked_up(table: dict[str, Any], name: str, what: str) -> Any:
    """An entry of a table; an error that says what was looked for."""
    if name not in table:
        raise FileFormatError(f"there is no {what} {name!r} here", remedy="the file may come from a newer torch")
    return table[name]


def dtype_named(name: str) -> torch.dtype:
    """A dtype by its name without ``torch.``"""
    found: torch.dtype = looked_up(DTYPES, name, "dtype")
    return found


def device_named(name: str) -> torch.device:
    """A device by its name."""
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise FileFormatError(f"there is no device {name!r}") from error


def is_path(text: str) -> bool:
    """Whether a text can be the dotted name of a parameter, buffer, constant or subgraph."""
    return _PATH.fullmatch(text) is not None
