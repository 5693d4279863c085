"""Normalizations below forward gradients (``torch.func.jvp``, ``jacfwd``, dual numbers), where sizes vary.

torch's formulas for their tangents take sizes for plain numbers. Here they are written in operators whose formulas
don't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

aten = torch.ops.aten


def _has_tangents(tensor: Any) -> bool:
    """Whether a tensor of sizes that vary may have a tangent."""
    return (
        forward_ad._current_level >= 0
        and isinstance(tensor, torch.Tensor)
        and tensor.is_floating_point()
        and any(isinstance(size, torch.SymInt) for size in tensor.shape)
    )


def _normalized(tensor: torch.Tensor, dims: list[int], eps: float) -> torch.Tensor:
    """Less its mean, divided by its deviation; in float32 where it has fewer digits."""
    wide = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    centered = wide - wide.mean(dims, keepdim=True)
    return centered * (centered.square().mean(dims, keepdim=True) + eps).rsqrt()


def _scaled(result: torch.Tensor, weight: Any, bias: Any, like: torch.Tensor, sizes: Sequence[Any] | None) -> Any:
    for factor, combine in ((weight, torch.mul), (bias, torch.add)):
        if factor is not None:
            result = combine(result, factor if sizes is None else factor.reshape(sizes))
    return result.to(like.dtype)


def _layer_norm(
    input: torch.Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Any:
    if not _has_tangents(input):
        return NotImplemented
    count = len(normalized_shape)
    sizes: Any = input.shape
    if not count or count > input.dim() or any(one != other for one, other in zip(normalized_shape, sizes[-count:])):
        return NotImplemented
    dims = list(range(input.dim() - count, input.dim()))
    return _scaled(_normalized(input, dims, eps), weight, bias, input, None)


def _group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Any:
    sizes: Any = input.shape
    if not _has_tangents(input) or input.dim() < 2 or num_groups <= 0 or sizes[1] % num_groups != 0:
        return NotImplemented
    groups = input.unflatten(1, (num_groups, sizes[1] // num_groups))
    result = _normalized(groups, list(range(2, groups.dim())), eps).flatten(1, 2)
    return _scaled(result, weight, bias, input, _along_channels(input))


def _batch_norm(
    input: torch.Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    # running statistics that are written to are the operator's affair
    if not _has_tangents(input) or input.dim() < 2 or (training and running_mean is not None):
        return NotImplemented
    along = _along_channels(input)
    if training:
        result = _normalized(input, [dim for dim in range(input.dim()) if dim != 1], eps)
    else:
        result = (input - running_mean.reshape(along)) * (running_var.reshape(along) + eps).rsqrt()
    return _scaled(result, weight, bias, input, along)


def _instance_norm(
    input: torch.Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not _has_tangents(input) or input.dim() < 3 or not use_input_stats or running_mean is not None:
        return NotImplemented
    return _scaled(_normalized(input, list(range(2, input.dim())), eps), weight, bias, input, _along_channels(input))


def _along_channels(input: torch.Tensor) -> list[int]:
    return [1, -1, *[1] * (input.dim() - 2)]


# By the functions of torch that a program calls, and by the operators of one that is captured again.
WITH_TANGENTS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    aten.layer_norm.default: _layer_norm,
    torch.nn.functional.group_norm: _group_norm,
    aten.group_norm.default: _group_norm,
    torch.nn.functional.batch_norm: _batch_norm,
    torch.nn.functional.instance_norm: _instance_norm,
}
