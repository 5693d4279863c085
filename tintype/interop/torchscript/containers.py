"""Statements on lists, dictionaries and tuples. Lists and dictionaries are shared, as in TorchScript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import CaptureError
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.interop.torchscript.control_flow import ScriptRaisedError
from tintype.interop.torchscript.heap import APPENDING, RowsOfTensor, ScriptList
from tintype.interop.torchscript.operators import call_operator
from tintype.interop.torchscript.tables import computes, handles
from tintype.interop.torchscript.values import is_symbolic, named_tuple_class
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement

# --- tuples ----------------------------------------------------------------------------------------------


@handles("prim::TupleConstruct")
def _tuple(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    made = named_tuple_class(statement.type)
    return tuple(args) if made is None else made(*args)


@handles("prim::TupleUnpack", "prim::ListUnpack")
def _unpack(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items = args[0].known() if isinstance(args[0], ScriptList) else args[0]
    if len(items) != len(statement.outputs):
        raise ScriptRaisedError(f"Expected {len(statement.outputs)} elements in a list but found {len(items)}")
    # what is unpacked into nothing or one variable is bound as that variable
    return items[0] if len(statement.outputs) == 1 else tuple(items)


@computes("prim::TupleIndex", "aten::__getitem__.Tuple")
def _tuple_item(items: Any, index: Any) -> Any:
    return items[_position(index, len(items))]


@handles("prim::TupleSlice")
def _tuple_slice(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return tuple(args[0][statement.node.i("beg") : statement.node.i("end")])


# --- lists -----------------------------------------------------------------------------------------------


@handles("prim::ListConstruct")
def _list(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.list(args)


def _position(index: Any, length: int) -> int:
    """An index, which counts from the end where it is negative."""
    if is_symbolic(index):
        raise CaptureError(
            "an item of a list is chosen by a number that is only known when the program runs",
            location=user_location(),
            remedy="use a tensor in place of the list: torch.stack(items)[i]",
        )
    if not -length <= index < length:
        raise ScriptRaisedError("list index out of range")
    return int(index) % length


def changing(interpreter: Interpreter, items: ScriptList) -> list[Any]:
    """The items of a list that is about to be changed."""
    interpreter.heap.changes(items)
    if isinstance(items.rows, RowsOfTensor):
        items.content, items.rows = items.known(), ()
    return items.known()


@handles("aten::append", "aten::append.t")
def _append(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, item = args
    if items.rows is APPENDING:
        items.content.append(item)
    else:
        changing(interpreter, items).append(item)
    return items


@handles("aten::extend.t")
def _extend(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items, added = args[0], list(args[1].known())
    if items.rows is APPENDING:
        items.content.extend(added)
    else:
        changing(interpreter, items).extend(added)


@handles("aten::add_.t")
def _add_in_place(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    _extend(interpreter, statement, args)
    return args[0]


@handles("aten::insert.t")
def _insert(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items = changing(interpreter, args[0])
    index = args[1]
    if is_symbolic(index):
        _position(index, len(items))
    items.insert(index, args[2])


@handles("aten::pop.t")
def _pop(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items = changing(interpreter, args[0])
    if not items:
        raise ScriptRaisedError("pop from empty list")
    return items.pop(_position(args[1], len(items)))


@handles("aten::Delete.t")
def _delete(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items = changing(interpreter, args[0])
    del items[_position(args[1], len(items))]


@handles("aten::clear.t")
def _clear(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    changing(interpreter, args[0]).clear()


@handles("aten::reverse.t")
def _reverse(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items = args[0]
    if not has_rows(items):
        changing(interpreter, items).reverse()
        return
    interpreter.heap.changes(items)
    rows = as_rows(interpreter, statement, items)
    items.content, items.rows, items.taken = [], (rows.flip(0),), False


@handles("aten::_set_item.t")
def _set_item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items = changing(interpreter, args[0])
    items[_position(args[1], len(items))] = args[2]
    return args[0]


@handles("aten::remove.int", "aten::remove.float", "aten::remove.bool", "aten::remove.str")
def _remove(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items = changing(interpreter, args[0])
    _require_known(args)
    if args[1] not in items:
        raise ScriptRaisedError("list.remove(x): x not in list")
    items.remove(args[1])


@handles("aten::sort.int", "aten::sort.float", "aten::sort.bool", "aten::sort.str")
def _sort(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    items = changing(interpreter, args[0])
    _require_known(args)
    items.sort(reverse=args[1])


@handles("aten::sorted.int", "aten::sorted.float", "aten::sorted.bool", "aten::sorted.str")
def _sorted(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    _require_known(args)
    return interpreter.heap.list(sorted(args[0].known()))


def _require_known(args: list[Any]) -> None:
    if any(is_symbolic(value) for value in args):
        raise CaptureError(
            "items of a list are compared that are only known when the program runs", location=user_location()
        )


@handles("aten::copy.t", "aten::list.t")
def _copy(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items = args[0]
    if not has_rows(items):
        return interpreter.heap.list(items.known())
    copied = interpreter.heap.list(items.content)
    copied.rows, items.taken, copied.taken = items.rows, True, True
    return copied


@handles("aten::add.t")
def _concatenate(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.list([*args[0].known(), *args[1].known()])


@handles("aten::mul.left_t", "aten::mul.right_")
def _repeat(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, times = args if isinstance(args[0], ScriptList) else reversed(args)
    if is_symbolic(times):
        raise CaptureError("a list is repeated a number of times that varies", location=user_location())
    return interpreter.heap.list(items.known() * times)


@handles("aten::mul_.t")
def _repeat_in_place(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if is_symbolic(args[1]):
        raise CaptureError("a list is repeated a number of times that varies", location=user_location())
    items = changing(interpreter, args[0])
    items[:] = items * args[1]
    return args[0]


@handles("aten::slice.t")
def _slice(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, start, stop, step = args
    if any(is_symbolic(value) for value in (start, stop, step)):
        raise CaptureError("a list is cut at a number that varies", location=user_location())
    return interpreter.heap.list(items.known()[start:stop:step])


@handles("aten::__getitem__.t", "aten::select.t")
def _item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, index = args
    if has_rows(items):
        return _item_of_rows(interpreter, statement, items, index)
    known = items.known()
    if is_symbolic(index) and _are_alike(known):
        return _chosen(interpreter, statement, items, index)
    return known[_position(index, len(known))]


def _are_alike(items: list[Any]) -> bool:
    """Whether items can be those of one tensor."""
    if not items:
        return False
    if isinstance(items[0], torch.Tensor):
        return all(isinstance(item, torch.Tensor) and _looks(item) == _looks(items[0]) for item in items)
    return type(items[0]) in (int, float) and all(type(item) is type(items[0]) for item in items)


def _looks(tensor: torch.Tensor) -> Any:
    # sizes that vary are the same or not, nothing is to be decided about them
    sizes = tensor.info.sizes if type(tensor) is FakeTensor else tuple(tensor.shape)
    return sizes, tensor.dtype, tensor.device


def _chosen(interpreter: Interpreter, statement: Statement, items: ScriptList, index: Any) -> Any:
    """An item that is chosen when the program runs."""
    if isinstance(items.content[0], torch.Tensor):
        return _item_of_rows(interpreter, statement, items, index)
    _check_index(index, len(items.content))
    interpreter.note_origin(statement, "select")
    dtype = torch.int64 if type(items.content[0]) is int else torch.float64
    return torch.tensor(items.content, dtype=dtype, device="cpu")[index].item()


@handles("aten::len.t")
def _length(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items = args[0]
    if has_rows(items):
        return len(items.content) + len(items.rows) * items.rows[0].size(0)
    return len(items.known())


@handles("aten::eq.Tensor_list", "aten::ne.Tensor_list", "aten::lt.Tensor_list")
def _compare_tensors(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    raise CaptureError("lists of tensors are compared by their values", location=user_location())


@handles("aten::index.list_Tensor", "aten::count.Tensor", "aten::remove.Tensor")
def _search_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    raise CaptureError("a tensor is looked for in a list by its values", location=user_location())


# --- lists that a recorded loop has appended to -------------------------------------------------------------


def has_rows(items: ScriptList) -> bool:
    return bool(items.rows) and items.rows is not APPENDING


def as_rows(interpreter: Interpreter, statement: Statement, items: ScriptList) -> torch.Tensor:
    """The items of a list as the rows of one tensor, which nobody may write to."""
    interpreter.note_origin(statement, "stack")
    if not items.rows:
        return torch.stack(items.content)
    rows: torch.Tensor = items.rows[0] if len(items.rows) == 1 else torch.stack(items.rows, 1).flatten(0, 1)
    if items.content:
        rows = torch.cat([torch.stack(items.content), rows])
    if items.taken and type(rows) is FakeTensor and rows.info.storage.written:
        raise CaptureError(
            "a list that a recorded loop has appended to is read after what torch.stack made of it was written to",
            location=user_location(),
            remedy="write to a copy: torch.stack(items).clone()",
        )
    return rows


def _rows_of_its_own(interpreter: Interpreter, statement: Statement, items: ScriptList) -> torch.Tensor:
    """The same as memory of the script's, which it may write to. The first that asks gets the rows themselves."""
    rows = as_rows(interpreter, statement, items)
    if len(items.rows) > 1 or items.content:
        return rows  # made just now
    if items.taken or isinstance(items.rows, RowsOfTensor):
        return rows.clone(memory_format=torch.contiguous_format)
    items.taken = True
    return rows


def _check_index(index: Any, count: Any) -> None:
    torch._check(index < count, lambda: "list index out of range")
    torch._check(index >= -count, lambda: "list index out of range")


def _item_of_rows(interpreter: Interpreter, statement: Statement, items: ScriptList, index: Any) -> Any:
    if type(index) is int and 0 <= index < len(items.content):
        return items.content[index]
    rows = as_rows(interpreter, statement, items)
    _check_index(index, rows.size(0))
    item: Any = rows[index]
    # a copy, where the script has the item itself: nobody may write to it
    if type(item) is FakeTensor and not isinstance(items.rows, RowsOfTensor):
        item.info.storage = Storage(frozen=True)
    return item


@handles("aten::unbind.int")
def _unbind(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    """Of a size that varies: a list of as many views, which a loop may go through."""
    tensor, dim = args
    if not tensor.dim() or not isinstance(tensor.size(dim), torch.SymInt):
        return call_operator(interpreter, statement, args)
    interpreter.note_origin(statement, "unbind")
    items = interpreter.heap.list([])
    items.rows = RowsOfTensor((tensor if dim == 0 else tensor.movedim(dim, 0),))
    return items


@handles("aten::stack")
def _stack(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, dim = args
    if not has_rows(items):
        return call_operator(interpreter, statement, args)
    if dim == 0:
        return _rows_of_its_own(interpreter, statement, items)
    return _moved(as_rows(interpreter, statement, items), dim)


def _moved(rows: torch.Tensor, dim: int) -> torch.Tensor:
    """The rows along another dimension, laid out in memory as ``stack`` does it."""
    return rows.movedim(0, dim).clone(memory_format=torch.contiguous_format)


@handles("aten::cat")
def _cat(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, dim = args
    if not has_rows(items):
        return call_operator(interpreter, statement, args)
    rows = as_rows(interpreter, statement, items)
    if rows.dim() == 1:
        raise ScriptRaisedError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = dim + rows.dim() - 1 if dim < 0 else dim
    if dim == 0:
        return _rows_of_its_own(interpreter, statement, items).flatten(0, 1)
    return _moved(rows, dim).flatten(dim, dim + 1)


# --- dictionaries ----------------------------------------------------------------------------------------


@handles("prim::DictConstruct")
def _dict(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.dictionary(zip(map(_key, args[::2]), args[1::2], strict=True))


def _key(key: Any) -> Any:
    if is_symbolic(key) or isinstance(key, torch.Tensor):
        raise CaptureError("a key of a dictionary is only known when the program runs", location=user_location())
    if not isinstance(key, (str, int, float, bool, complex)):
        raise CaptureError(f"a {type(key).__name__} is a key of a dictionary", location=user_location())
    return key


_KEYS = ("str", "int", "bool", "float", "complex", "Tensor")


def _for_keys(*names: str) -> Any:
    """The overloads of operators on dictionaries, one per type of keys."""
    kinds = []
    for name in names:
        base, _, overload = name.partition(".")
        kinds += [f"{base}.{overload.replace('KEY', key)}" for key in _KEYS]
    return handles(*kinds)


def _missing(key: Any) -> ScriptRaisedError:
    return ScriptRaisedError(f"KeyError: {key}")


@_for_keys("aten::__getitem__.Dict_KEY")
def _dict_item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    items, key = args[0].content, _key(args[1])
    if key not in items:
        raise _missing(key)
    return items[key]


@_for_keys("aten::_set_item.KEY")
def _set_dict_item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    interpreter.heap.changes(args[0])
    args[0].content[_key(args[1])] = args[2]


@_for_keys("aten::Delete.Dict_KEY")
def _delete_dict_item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    interpreter.heap.changes(args[0])
    if _key(args[1]) not in args[0].content:
        raise _missing(args[1])
    del args[0].content[args[1]]


@_for_keys("aten::__contains__.KEY")
def _contains(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return _key(args[1]) in args[0].content


@_for_keys("aten::get.KEY", "aten::get.default_KEY")
def _get(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return args[0].content.get(_key(args[1]), args[2] if len(args) == 3 else None)


@_for_keys("aten::setdefault.KEY")
def _set_default(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.heap.changes(args[0])
    return args[0].content.setdefault(_key(args[1]), args[2])


@_for_keys("aten::pop.Dict_KEY", "aten::pop.Dict_default_KEY")
def _pop_dict_item(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.heap.changes(args[0])
    key = _key(args[1])
    if key not in args[0].content and len(args) == 2:
        raise _missing(key)
    return args[0].content.pop(key, *args[2:])


@_for_keys("aten::popitem.KEY")
def _pop_any(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.heap.changes(args[0])
    if not args[0].content:
        raise ScriptRaisedError("popitem(): dictionary is empty")
    return args[0].content.popitem()


@_for_keys("aten::keys.KEY")
def _keys(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.list(args[0].content)


@_for_keys("aten::values.KEY")
def _values(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.list(args[0].content.values())


@_for_keys("aten::items.KEY")
def _items(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.list(args[0].content.items())


@_for_keys("aten::len.Dict_KEY")
def _dict_length(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return len(args[0].content)


@_for_keys("aten::clear.KEY")
def _clear_dict(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    interpreter.heap.changes(args[0])
    args[0].content.clear()


@_for_keys("aten::update.KEY")
def _update(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    interpreter.heap.changes(args[0])
    args[0].content.update(args[1].content)


@_for_keys("aten::copy.Dict_KEY", "aten::dict.Dict_KEY")
def _copy_dict(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.dictionary(args[0].content)


@_for_keys("aten::dict.KEY")
def _dict_of_items(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.dictionary((_key(key), value) for key, value in args[0].known())


@handles("aten::dict")
def _new_dict(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.heap.dictionary({})


# --- identity --------------------------------------------------------------------------------------------


@computes("aten::__is__")
def _is(one: Any, other: Any) -> Any:
    return one is other


@computes("aten::__isnot__")
def _is_not(one: Any, other: Any) -> Any:
    return one is not other
