"""Tensors that come from outside of a program: which it can take, and how they lie in memory where sizes vary."""

from __future__ import annotations

from typing import Any

import torch

from tintype.errors import UnsupportedInputError
from tintype.fake.tensor import FakeTensor
from tintype.symbolic.expression import Size
from tintype.symbolic.sizes import contiguous_strides
from tintype.tree.subclasses import is_wrapper


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as something that can be described; refuses subclasses that carry meaning of their own."""
    kind = type(tensor)
    if tensor.is_nested:
        raise UnsupportedInputError(
            "a nested tensor that is not jagged can't be captured, and a jagged one only by tintype.export",
            remedy="make it with layout=torch.jagged, or pass a padded tensor (to_padded_tensor) and the lengths",
        )
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor
    if kind.__module__ == "torch._subclasses.fake_tensor":  # by name: the class is not ours to import
        from tintype.interop.fake_tensors import plain

        return plain(tensor)
    if kind is FakeTensor or not changes_operators(kind):
        return tensor
    if is_wrapper(kind):
        raise UnsupportedInputError(
            f"the tensor subclass {kind.__module__}.{kind.__qualname__} can't be captured here: only tintype.export "
            "takes tensors that consist of others",
            remedy="pass the plain tensors it consists of",
        )
    raise UnsupportedInputError(
        f"the tensor subclass {kind.__module__}.{kind.__qualname__} can't be captured: it does not say of which "
        "tensors it consists (__tensor_flatten__, __tensor_unflatten__) and what operators do with them "
        "(__torch_dispatch__)",
        remedy="pass the plain tensors it consists of, or convert it with as_subclass(torch.Tensor)",
    )


def changes_operators(kind: Any) -> bool:
    """Whether a class of tensors changes what operators mean."""
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return True
    function = getattr(kind.__torch_function__, "__func__", None)
    return function is not None and function is not torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def symbolic_strides(
    sizes: tuple[Size, ...], strides: tuple[Size, ...], new_sizes: tuple[Size, ...]
) -> tuple[Size, ...]:
    """The strides of a tensor whose sizes vary: those of dimensions that lie without a gap outside of others follow
    their sizes, all others stay what they are. Those of an example without elements mean nothing."""
    if 0 in sizes:
        return contiguous_strides(new_sizes)
    order = sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d], -d))  # innermost first
    result: list[Size] = list(strides)
    expected: Size = 1
    symbolic: Size = 1
    outermost = order[-1] if order else None
    for dimension in order:
        if strides[dimension] == expected:
            result[dimension] = symbolic
            if dimension != outermost:  # the product of all sizes is no stride
                expected = expected * sizes[dimension]
                symbolic = symbolic * new_sizes[dimension]
        elif dimension != outermost:
            expected = strides[dimension] * sizes[dimension]
            symbolic = strides[dimension] * new_sizes[dimension]
    return tuple(result)
