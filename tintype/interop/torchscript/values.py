"""Values: how Python's arguments become a script's values, and its results Python's.

Tensors and numbers are Python's own (fakes and symbolic numbers while a program is captured), dtypes, layouts and
memory formats are integers, as in TorchScript. Lists, dictionaries and objects are those of :mod:`.heap`.
"""

from __future__ import annotations

import builtins
import collections
import sys
from typing import Any

import torch

from tintype.errors import CaptureError, InvalidRequestError
from tintype.interop.torchscript.heap import Heap, ScriptDict, ScriptInstance, ScriptList

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Uninitialized:
    """What a variable has where no statement gave it a value."""

    def __repr__(self) -> str:
        return "<no value>"


UNINITIALIZED = Uninitialized()


class UnknownText:
    """A text with a number in it that is only known when the program runs; good for messages only."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Future:
    """A future: what it computes is computed where it is made."""

    def __init__(self, value: Any) -> None:
        self.value = value


# --- numbers that stand for dtypes and the like --------------------------------------------------------------

_DTYPE_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 "
    "bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz "
    "float8_e4m3fnuz uint16 uint32 uint64"
)
DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in _DTYPE_NAMES.split())
DTYPE_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES)}
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch._mkldnn)  # type: ignore[attr-defined]
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


def dtype_of(number: Any) -> Any:
    """The dtype that a script's integer stands for."""
    return DTYPES[number] if type(number) is int else number


def layout_of(number: Any) -> Any:
    return LAYOUTS[number] if type(number) is int else number


def memory_format_of(number: Any) -> Any:
    return MEMORY_FORMATS[number] if type(number) is int else number


# --- types -----------------------------------------------------------------------------------------------


_named_tuples: dict[tuple[str, tuple[str, ...]], Any] = {}


def named_tuple_class(type: Any) -> Any:
    """The class of a named tuple's type; None for a plain tuple's. Two types of one name and fields are one class, so
    that structures of several calls are alike."""
    text = type.str()
    if not text.startswith("NamedTuple("):
        return None
    depth, fields, word = 0, [], ""
    for character in text[len("NamedTuple(") : -1]:  # names stand before " : ", on the outermost level
        depth += character in "([<"
        depth -= character in ")]>"
        if depth == 0 and character == ",":
            word = ""
        elif depth == 0 and word.endswith(" :"):
            fields.append(word[:-2].strip())
            word = "\0"
        elif not word.startswith("\0"):
            word += character
    qualified = str(type).removeprefix("__torch__.")
    module, _, name = qualified.rpartition(".")
    users = getattr(sys.modules.get(module or "__main__"), name, None)
    if isinstance(users, builtins.type) and getattr(users, "_fields", None) == tuple(fields):
        return users  # the script was made from it in this process, or elsewhere from the same module
    key = (name, tuple(fields))
    if key not in _named_tuples:
        _named_tuples[key] = collections.namedtuple(key[0], key[1])
    return _named_tuples[key]


def kind_of(type: Any) -> str:
    kind: str = type.kind()
    return kind


# --- arguments -------------------------------------------------------------------------------------------


def argument(value: Any, type: Any, heap: Heap, name: str) -> Any:
    """An argument as its type takes it, as TorchScript converts what Python calls it with."""
    kind = kind_of(type)
    if kind == "OptionalType":
        return None if value is None else argument(value, type.getElementType(), heap, name)
    if kind in ("UnionType", "AnyType"):
        return heap.adopt(value)
    convert = _ARGUMENTS.get(kind)
    if convert is not None:
        return convert(value, name, type)
    if kind == "ListType" and isinstance(value, (list, tuple, torch._C.ScriptList)):
        of = type.getElementType()
        return heap.list([argument(item, of, heap, f"{name}[{i}]") for i, item in enumerate(value)])
    if kind == "DictType" and isinstance(value, dict):
        of, key_type = type.getValueType(), type.getKeyType()
        return heap.dictionary(
            {argument(k, key_type, heap, name): argument(v, of, heap, f"{name}[{k!r}]") for k, v in value.items()}
        )
    if kind == "TupleType" and isinstance(value, (tuple, list)):
        return _tuple(value, type, heap, name)
    if kind in ("EnumType", "NoneType") or (kind == "ClassType" and isinstance(value, torch.ScriptObject)):
        return value
    raise _wrong(value, name, type)


def _tuple(value: Any, type: Any, heap: Heap, name: str) -> Any:
    types = type.elements()
    if len(types) != len(value):
        raise _wrong(value, name, type)
    items = [argument(item, of, heap, f"{name}[{i}]") for i, (item, of) in enumerate(zip(value, types, strict=True))]
    made = named_tuple_class(type)
    return tuple(items) if made is None else made(*items)


def _wrong(value: Any, name: str, type: Any) -> InvalidRequestError:
    return InvalidRequestError(
        f"the script takes a {type} as {name!r}, but got a {_class_name(value)}",
        remedy="call it with what its signature says: print(scripted.forward.schema)",
    )


def _class_name(value: Any) -> str:
    return type(value).__name__


def _tensor(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        raise _wrong(value, name, type)
    return value


def _int(value: Any, name: str, type: Any) -> Any:
    if isinstance(value, torch.dtype):
        return DTYPE_NUMBERS[value]
    if isinstance(value, torch.layout):
        return LAYOUTS.index(value)
    if isinstance(value, torch.memory_format):
        return MEMORY_FORMATS.index(value)
    if not isinstance(value, (int, torch.SymInt)):
        raise _wrong(value, name, type)
    return int(value) if isinstance(value, bool) else value


def _float(value: Any, name: str, type: Any) -> Any:
    if isinstance(value, (bool, int)):
        return float(value)
    if isinstance(value, torch.SymInt):
        return torch.sym_float(value)
    if not isinstance(value, (float, torch.SymFloat)):
        raise _wrong(value, name, type)
    return value


def _bool(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, (bool, torch.SymBool)):
        raise _wrong(value, name, type)
    return value


def _number(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, (bool, int, float, complex, *SYMBOLIC)):
        raise _wrong(value, name, type)
    return value


def _complex(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, (bool, int, float, complex)):
        raise _wrong(value, name, type)
    return complex(value)


def _string(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, str):
        raise _wrong(value, name, type)
    return value


def _device(value: Any, name: str, type: Any) -> Any:
    if not isinstance(value, (str, torch.device)):
        raise _wrong(value, name, type)
    return torch.device(value)


_ARGUMENTS: dict[str, Any] = {
    "TensorType": _tensor,
    "IntType": _int,
    "FloatType": _float,
    "BoolType": _bool,
    "NumberType": _number,
    "ComplexType": _complex,
    "StringType": _string,
    "DeviceObjType": _device,
}


# --- results ---------------------------------------------------------------------------------------------


def result(value: Any) -> Any:
    """A result as the caller of the script gets it."""
    if isinstance(value, ScriptList):
        return [result(item) for item in value.known()]
    if isinstance(value, ScriptDict):
        return {key: result(item) for key, item in value.content.items()}
    if isinstance(value, tuple):
        items = [result(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, (ScriptInstance, Future, UnknownText, Uninitialized)):
        what = {
            ScriptInstance: "an object of a TorchScript class",
            Future: "a future",
            UnknownText: "a text with a float in it, or with a number that is only known when the program runs",
            Uninitialized: "a variable without a value",
        }[type(value)]
        raise CaptureError(
            f"the script returns {what}, which a captured program can't return",
            remedy="return tensors, numbers, strings, None, or tuples, lists and dictionaries of them",
        )
    return value


def is_symbolic(value: Any) -> bool:
    """Whether a number is only known when the program runs, or a list or tuple has one in it."""
    if isinstance(value, SYMBOLIC):
        return True
    if isinstance(value, ScriptList):
        return bool(value.rows) or any(is_symbolic(item) for item in value.content)
    if isinstance(value, tuple):
        return any(is_symbolic(item) for item in value)
    return False
