"""Operators on tensors that consist of others: their class says what happens, in terms of the parts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import UnsupportedInputError, UnsupportedOperatorError
from tintype.fake.tensor import FakeTensor
from tintype.ir.operator_facts import facts_of
from tintype.symbolic.interruptions import Interruption
from tintype.symbolic.location import user_location
from tintype.trace.distributed_tensors import call_distributed, redistributed_like
from tintype.trace.sparse.tensor import SparseTensor, call_sparse
from tintype.trace.wrapped_parts import given_parts, refuse_other_parts
from tintype.tree.distributed_tensors import is_distributed
from tintype.tree.flattening import leaves
from tintype.tree.subclasses import consists_of_others, is_wrapper, plain_parts

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder


aten = torch.ops.aten


class ReturnsSubclass(Interruption):
    """The program returns a tensor that consists of others: capture again, with it taken apart."""


def refuse_whole(tensor: torch.Tensor) -> None:
    """Raise for a tensor that consists of others."""
    if consists_of_others(tensor):
        raise ReturnsSubclass


def call_by_subclass(recorder: Recorder, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operator returns where an argument is of such a class. Composite operators are taken apart before, as
    in eager mode, where autograd does so."""
    if SparseTensor in types:
        return call_sparse(recorder, func, args, kwargs)
    # nested tensors have kernels of their own for some composite operators, and take the others apart themselves
    nested = any(kind.__module__.startswith("torch.nested") for kind in types)
    composite = isinstance(func, torch._ops.OpOverload) and recorder.below_autograd and facts_of(func).composite
    if composite and not nested:
        result = recorder.inside(lambda: func.decompose(*args, **kwargs))
        if result is not NotImplemented:
            return result
    for kind in _derived_first(types):
        if is_distributed(kind):
            return call_distributed(recorder, func, args, kwargs)
        if recorder.below_autograd and recorder.modes.gradients and _require_gradients((args, kwargs)):
            recorder.modes.lost_gradients.add_class(kind)
        ask = functools.partial(kind.__torch_dispatch__, func, types, args, kwargs)
        before = given_parts((args, kwargs)) if recorder.is_inside else []
        try:
            with (
                nullcontext() if func is aten.detach.default else _as_kernels_detach(recorder),
                _as_same_tensors(recorder) if nested else nullcontext(),
            ):
                result = recorder.inside(ask)
        except NotImplementedError:
            if not nested:
                raise
            break
        if result is not NotImplemented:
            refuse_other_parts([entry for entry in before if not _is_made_in(recorder, entry[1])], _ELSEWHERE)
            return result
    names = ", ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in types if kind is not FakeTensor)
    raise UnsupportedOperatorError(
        f"{func} is not defined for tensors of {names}",
        location=user_location(),
        remedy="define it in __torch_dispatch__ of the class",
    )


def _require_gradients(values: Any) -> bool:
    """Whether a plain tensor among the arguments of an operator requires a gradient."""
    return any(type(value) is FakeTensor and value.info.requires_grad for value in leaves(values))


_ELSEWHERE = "a tensor from outside of a branch or a loop whose class is {}, which is there whether it runs or not"


def _is_made_in(recorder: Recorder, parts: dict[str, Any]) -> bool:
    """Whether a tensor was made where it is recorded."""
    fakes = [part for part in parts.values() if type(part) is FakeTensor]
    return len(fakes) == len(parts) and all(fake.node is None or fake.node.graph is recorder.graph for fake in fakes)


@contextmanager
def _as_kernels_detach(recorder: Recorder) -> Iterator[None]:
    """What a class does, it does below autograd: a tensor that it detaches keeps its gradient."""
    before, recorder.is_in_kernel = recorder.is_in_kernel, True
    try:
        yield
    finally:
        recorder.is_in_kernel = before


@contextmanager
def _as_same_tensors(recorder: Recorder) -> Iterator[None]:
    """Nested tensors go together if their offsets are one object, also where they were converted to what they are
    already on the way."""
    before, recorder.keeps_conversions = recorder.keeps_conversions, False
    try:
        yield
    finally:
        recorder.keeps_conversions = before


def gradient_parts(recorder: Recorder, name: str, tensor: torch.Tensor, gradient: Any) -> Iterator[tuple[str, Any]]:
    """The gradient of a parameter, by the names of what the parameter consists of where it consists of others."""
    if not is_wrapper(type(tensor)):
        yield name, gradient
        return
    if gradient is not None and is_distributed(type(tensor)) and is_distributed(type(gradient)):
        gradient = recorder.inside(lambda: redistributed_like(gradient, tensor))
    if gradient is not None and type(gradient) is not type(tensor):
        kind = type(tensor)
        raise UnsupportedInputError(
            f"the gradient of {name!r} is a {type(gradient).__name__}, but the parameter a {kind.__module__}."
            f"{kind.__qualname__}: a joint graph has no place for it",
            remedy="freeze it (requires_grad_(False)), or let its module make it from plain parameters "
            "(torch.nn.utils.parametrize)",
        )
    of_gradient = {} if gradient is None else dict(plain_parts(gradient))
    for place, part in plain_parts(tensor):
        if part.is_floating_point() or part.is_complex():
            found = of_gradient.get(place)
            yield f"{name}.{place}", None if found is None else recorder.as_fake(found)


def _derived_first(types: Any) -> list[Any]:
    """The classes in the order in which torch asks them."""
    ordered: list[Any] = []
    for kind in types:
        if kind is not FakeTensor:
            before = [n for n, other in enumerate(ordered) if issubclass(kind, other)]
            ordered.insert(before[0] if before else len(ordered), kind)
    return ordered
