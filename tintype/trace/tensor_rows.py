"""``list(tensor)`` where the number of rows varies: a list that nobody has looked into yet.

A list has a plain number of elements, so ``list(images)`` would fix how many there are. Where its rows are only put
together again, ``torch.cat(list(images))``, nothing depends on that number. While a program is captured, such a list
knows the tensor that it was made of; ``torch.cat`` and ``torch.stack`` take that. Whoever looks at it in any other
way gets the rows of the example, which fixes the number after all.
"""

from __future__ import annotations

import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tintype import tree
from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.ir.operators import declaration_of
from tintype.symbolic.expression import Expr
from tintype.symbolic.location import user_location
from tintype.symbolic.relations import ge
from tintype.symbolic.sizes import require


class RowsStandIn(torch.Tensor):
    """What lies in such a list until somebody looks: torch takes it for a tensor, and then asks about it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _together(func, args, kwargs or {})
        if result is NotImplemented:
            if _look_at_all((args, kwargs)):
                raise _not_captured()
            result = func(*args, **(kwargs or {}))
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise _not_captured()


def _not_captured() -> CaptureError:
    return CaptureError(
        "the program hands rows of a tensor, whose number varies, to what can't be captured with them",
        location=user_location(),
        remedy="hand on the tensor itself, or fix the number of its rows",
    )


class TensorRows(list[Any]):
    """The rows of a tensor, the last one first where they are ``backwards``."""

    def __init__(self, tensor: FakeTensor, *, backwards: bool = False) -> None:
        stand_in = torch.Tensor._make_wrapper_subclass(RowsStandIn, (0,))
        super().__init__([stand_in])
        self.tensor: FakeTensor | None = tensor  # None once somebody has looked
        self.is_backwards = backwards
        self.gradients = torch.is_grad_enabled()  # rows are made where the list is
        session = tensor.context.session
        if session is not None:
            session.rows.append(weakref.ref(self))

    def look(self) -> None:
        """Have the rows of the example from now on."""
        if self.tensor is not None:
            with torch.set_grad_enabled(self.gradients):
                rows, self.tensor = self.tensor.unbind(0), None
            list.__init__(self, reversed(rows) if self.is_backwards else rows)

    def in_order(self) -> torch.Tensor:
        """A tensor of the rows in the order that the list has, to be read."""
        assert self.tensor is not None
        with torch.set_grad_enabled(self.gradients):
            return self.tensor.flip(0) if self.is_backwards else self.tensor

    def part(self, places: slice) -> TensorRows | None:
        """A slice of the list, if that is the rows of a tensor, too."""
        assert self.tensor is not None
        if places == slice(None, None, -1):
            return TensorRows(self.tensor, backwards=not self.is_backwards)
        numbers = (places.start, places.stop, places.step)
        if self.is_backwards or any(number is not None and type(number) is not int for number in numbers):
            return None
        if places.step is not None and places.step < 1:
            return None
        with torch.set_grad_enabled(self.gradients):
            return TensorRows(self.tensor[places])


def _looking(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def look(self: TensorRows, *args: Any, **kwargs: Any) -> Any:
        self.look()
        for other in args:
            if type(other) is TensorRows:
                other.look()
        return method(self, *args, **kwargs)

    look.__name__ = name
    return look


_HARMLESS = {"__init__", "__new__", "__getattribute__", "__class_getitem__", "__hash__", "__doc__"}
for _name, _value in vars(list).items():
    if callable(_value) and _name not in _HARMLESS:
        setattr(TensorRows, _name, _looking(_name))


def _row(self: TensorRows, index: Any) -> Any:
    """One of them, by a plain number: there is no need to know how many there are."""
    part = self.part(index) if self.tensor is not None and type(index) is slice else None
    if part is not None:
        return part
    if self.tensor is None or type(index) is not int:
        self.look()
        return list.__getitem__(self, index)
    needed = ge(self.tensor.info.sizes[0], index + 1 if index >= 0 else -index)
    if not self.tensor.context.environment.expect(needed, "list index out of range"):
        raise IndexError("list index out of range")
    with torch.set_grad_enabled(self.gradients):
        return self.tensor[-1 - index if self.is_backwards else index]


TensorRows.__getitem__ = _row  # type: ignore[method-assign,assignment]


def _reflected(self: TensorRows, other: Any) -> Any:
    self.look()
    return other + list(self)


TensorRows.__radd__ = _reflected  # type: ignore[attr-defined]


def rows_of(tensor: FakeTensor) -> Any:
    """``list(tensor)``."""
    session = tensor.context.session
    if session is None or not tensor.info.sizes or not isinstance(tensor.info.sizes[0], Expr):
        return list(tensor)
    return TensorRows(tensor)


def _together(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a function that puts rows together, whatever their number; NotImplemented for any other call."""
    together = _TOGETHER.get(func)
    rows = args[0] if args else None
    simple = len(args) in (1, 2) and len(args) + len(kwargs) <= 2 and kwargs.keys() <= {"dim"}
    if together is not None and simple and type(rows) is TensorRows and rows.tensor is not None:
        dim = args[1] if len(args) == 2 else kwargs.get("dim", 0)
        rank = rows.tensor.dim() - (together is _joined)
        if type(dim) is int and -rank <= dim < rank:
            size = rows.tensor.info.sizes[0]
            require(ge(size, 1), "torch expects a non-empty list of tensors")
            with torch.set_grad_enabled(rows.gradients):
                view = together(rows.in_order(), dim % rank)
            copied: Any = view.clone(memory_format=torch.contiguous_format)
            session = rows.tensor.context.session
            if view is rows.tensor and session is not None and rows.gradients == torch.is_grad_enabled():
                session.rows.append(weakref.ref(copied))
            return copied
    return NotImplemented


def _joined(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return _stacked(tensor, dim).flatten(dim, dim + 1)


def _stacked(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return tensor.movedim(0, dim) if dim else tensor


_TOGETHER: dict[Any, Callable[[torch.Tensor, int], torch.Tensor]] = {
    torch.cat: _joined,
    torch.concat: _joined,
    torch.concatenate: _joined,
    torch.stack: _stacked,
}


def without_rows(recorder: Any, outputs: Any, *, only_outputs: bool = False) -> Any:
    """What a program returns, with plain lists; whoever still has rows then has those of the example."""
    if recorder.rows:
        outputs = _with_plain_lists(recorder, outputs, only_outputs)
        for copied in _alive(recorder, FakeTensor):
            _take_for_its_source(copied)
    return outputs


def _take_for_its_source(copied: FakeTensor) -> None:
    """Let the stacked rows be the result of the loop that made them, where nobody uses that for anything else: a loop
    in plain Python is then what it is when written as ``map`` or ``scan``."""
    node = copied.node
    if node is None or copied.info.storage.written or node.op != "call_function" or not node.args:
        return
    source: Any = node.args[0]
    made_by = source.args[0] if source.target is operator.getitem else None
    declaration = None if made_by is None else declaration_of(made_by)
    is_own = declaration is not None and declaration.copies and not source.meta["val"].info.storage.frozen
    if is_own and len(source.users) == 1:
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)
        source.meta["val"], copied.node = copied, source


def _with_plain_lists(recorder: Any, outputs: Any, only_outputs: bool) -> Any:
    for leaf in tree.leaves(outputs):
        if type(leaf) is TensorRows:
            leaf.look()
    # what a function inside of the program leaves elsewhere can't be used outside of it anyway
    if not only_outputs and any(rows.tensor is not None for rows in _alive(recorder, TensorRows)):
        recorder.origins.forget_ended_calls()
        gc.collect()  # what nobody but itself holds must not fix a size
        for rows in _alive(recorder, TensorRows):
            rows.look()
    return _plain(outputs)


def _plain(value: Any) -> Any:
    """A value with plain lists; containers without rows are the objects that they are, which the caller may know."""
    if type(value) is TensorRows:
        return list(value)
    parts, structure = tree_flatten(value, is_leaf=lambda part: part is not value)
    if structure.is_leaf():
        return value
    plain = list(map(_plain, parts))
    return value if all(map(operator.is_, plain, parts)) else tree_unflatten(plain, structure)


def _alive(recorder: Any, kind: type) -> list[Any]:
    """What a recorder knows of, and somebody still has."""
    return [value for reference in recorder.rows if type(value := reference()) is kind]


def _look_at_all(value: Any) -> bool:
    """Whether one is left that is in no such list: somebody took it out of its list."""
    if type(value) is TensorRows:
        value.look()
    elif isinstance(value, (list, tuple)):
        left = [_look_at_all(item) for item in value]  # at all of them
        return any(left)
    elif isinstance(value, dict):
        return _look_at_all(list(value.values()))
    return type(value) is RowsStandIn
