"""Operators that refuse some inputs, or treat some in a way of their own, which their usual decompositions don't.

A padding that is wider than the image, a probability above 1, an index below 0: eager mode raises, and what torch
decomposes the operator into answers. Resizing to the size that an image has already is a copy, unless it is
decomposed. Such an operator stays whole, unless sizes are fixed and show that it makes no difference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tintype.fake.rules.resizing import scaled
from tintype.ir.process_switches import onednn_off
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.trace.differentiated import loss_of_images
from tintype.transforms.attention import attention
from tintype.transforms.differentiable_decompositions import DIFFERENTIABLE, DIFFERENTIABLE_COMPOSITES

aten = torch.ops.aten

Table = Mapping[Any, Callable[..., Any]]

# Only data tell whether eager mode would raise; or gradients through the decomposition are others: that of ``xlogy``
# is 0 where nothing comes back, whatever the logarithm.
_WHOLE = frozenset(
    {
        aten.bernoulli.default,
        aten.binary_cross_entropy.default,
        aten.index_add.default,
        aten.index_add_.default,
        aten.index_copy.default,
        aten.index_copy_.default,
        aten.max_unpool2d.default,
        aten.max_unpool3d.default,
        aten.special_entr.default,
        aten.special_log_ndtr.default,
        *(getattr(packet, name) for packet in (aten.xlogy, aten.special_xlog1py) for name in packet.overloads()),
    }
)


def with_checks(table: Table) -> Table:
    """A table of decompositions in which torch's own ones that lose checks are left out, or made to decline, and
    those that lose gradients are replaced."""
    changed = [
        operator for operator in (*_WHOLE, *_CONDITIONS, *_OWN) if operator in table and is_torchs(table[operator])
    ]
    if not changed:
        return table
    result = dict(table)
    for operator in changed:
        known = result.pop(operator)
        if operator in _OWN:
            result[operator] = _OWN[operator]
        elif operator in _CONDITIONS:
            result[operator] = _declining(known, _CONDITIONS[operator])
    return result


def _declining(decomposition: Callable[..., Any], holds: Callable[..., bool]) -> Callable[..., Any]:
    """A decomposition that is used under a condition; else the operator stays whole."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        return decomposition(*args, **kwargs) if holds(*args, **kwargs) else NotImplemented

    return decompose


def is_torchs(function: Any) -> bool:
    """Whether a decomposition comes with torch."""
    if isinstance(function, (functools.partial, torch._ops.OpOverload)):
        return isinstance(function, torch._ops.OpOverload) or is_torchs(function.func)
    return str(getattr(function, "__module__", "")).partition(".")[0] == "torch"


def _are_fixed(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int for size in sizes)


# --- padding ---------------------------------------------------------------------------------------------


def _fits(image: torch.Tensor, padding: Sequence[Any]) -> bool:
    """Whether a padding is known to be narrower than the image: eager mode refuses any other to reflect."""
    sizes = [size for size in reversed(image.shape[-len(padding) // 2 :]) for _ in range(2)]
    return _are_fixed([*sizes, *padding]) and all(p < size for p, size in zip(padding, sizes, strict=True))


# --- resizing --------------------------------------------------------------------------------------------


def _is_computed(image: torch.Tensor, output_size: Sequence[Any], *options: Any, **named: Any) -> bool:
    """Whether a resized image is known to be what the decomposition computes: no size stays what it is while there is
    a factor, and none is 0."""
    factors = [option for option in (*options, *named.values()) if option is not None and type(option) is not bool]
    if not factors:
        return True
    before = list(image.shape[2:])
    return _are_fixed([*before, *output_size]) and all(
        a != b and b > 0 for a, b in zip(before, output_size, strict=True)
    )


_RESIZING = (
    aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa,
)


# --- losses ----------------------------------------------------------------------------------------------


def _are_of_one_kind(self: torch.Tensor, target: torch.Tensor, *options: Any, **named: Any) -> bool:
    """Whether all tensors have one dtype: else the decomposition's result has another than the operator's."""
    tensors = [target, *(value for value in (*options, *named.values()) if isinstance(value, torch.Tensor))]
    return all(tensor.dtype is self.dtype for tensor in tensors)


# --- functions -------------------------------------------------------------------------------------------


def _is_clamped(self: torch.Tensor, eps: float | None = None) -> bool:
    """Whether a logit is that of a number inside of 0 and 1: at the borders the decomposition's gradient is nan, and
    outside of them it is none of the operator's."""
    return eps is not None


# When a decomposition is right.
_CONDITIONS: dict[Any, Callable[..., bool]] = {
    aten.reflection_pad1d.default: _fits,
    aten.reflection_pad2d.default: _fits,
    aten.reflection_pad3d.default: _fits,
    **{packet.default: _is_computed for packet in _RESIZING},
    aten.logit.default: _is_clamped,
    aten.binary_cross_entropy_with_logits.default: _are_of_one_kind,
    aten.huber_loss.default: _are_of_one_kind,
    aten.soft_margin_loss.default: _are_of_one_kind,
}


# --- composite operators ---------------------------------------------------------------------------------


def _upsample(operator: Any) -> Callable[..., Any]:
    """Resizing by a factor: the operator that takes the resulting size and the factor, as in eager mode."""

    def resize(image: Any, output_size: Any, *options: Any) -> Any:
        scales = options[-1]
        if scales is None:
            return operator.decompose(image, output_size, *options)
        sizes = [_scaled(size, scale) for size, scale in zip(image.shape[2:], scales, strict=True)]
        if _is_computed(image, sizes, *scales):
            return operator.decompose(image, output_size, *options)
        return operator.overloadpacket.default(image, sizes, *options[:-1], *scales)

    return resize


def _scaled(size: Any, scale: float) -> Any:
    """A size times a factor, rounded down, as shape rules have it."""
    try:
        return to_torch(scaled(from_torch(size), scale))
    except NotImplementedError:
        return torch.sym_int(size * scale)


def _instance_norm(image: torch.Tensor, *options: Any) -> Any:
    """The batch norm that it is made of takes no image without elements."""
    if _are_fixed(image.shape) and 0 not in image.shape:
        return aten.instance_norm.default.decompose(image, *options)
    return NotImplemented


def _cov(
    tensor: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """torch's own asks the data whether weights are such as it takes, and whether they add up to too little."""
    weights = [weight for weight in (fweights, aweights) if weight is not None]
    if not weights:
        return aten.cov.default.decompose(tensor, correction=correction)
    for each in weights:
        aten._assert_async.msg(each.min() >= 0, "cov(): weights cannot be negative")
    rows = tensor if tensor.dim() == 2 else tensor.reshape(1, -1)
    weight = weights[0] if len(weights) == 1 else weights[0] * weights[1]
    total = weight.sum()
    aten._assert_async.msg(total != 0, "cov(): weights sum to zero, can't be normalized")
    centered = rows - ((rows * weight).sum(1) / total).unsqueeze(1)
    less = correction if aweights is None else correction * (weight * aweights).sum() / total
    divisor = total - less
    divisor = torch.where(divisor <= 0, torch.zeros_like(divisor), divisor)
    return (centered.mm((centered * weight).t().conj()) / divisor).squeeze()


def _cross_entropy(scores: torch.Tensor, target: torch.Tensor, *options: Any) -> Any:
    """Of no classes it is no number in eager mode, for probabilities, which torch asks for no size that varies."""
    if target.is_floating_point() and isinstance(scores.size(1 if scores.dim() > 1 else 0), torch.SymInt):
        return NotImplemented
    return aten.cross_entropy_loss.default.decompose(scores, target, *options)


def _nll_loss(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Any:
    found = loss_of_images(aten.nll_loss_nd.default, scores, target, weight, reduction, ignore_index)
    if found is not NotImplemented:
        return found
    return aten.nll_loss_nd.default.decompose(scores, target, weight, reduction, ignore_index)


def _recurrent(operator: Any) -> Callable[..., Any]:
    """Recurrent layers: decomposed, dropout between layers would draw its numbers for elements in another order."""
    names = [argument.name for argument in operator._schema.arguments]
    dropout, train = names.index("dropout"), names.index("train")

    def layers(*arguments: Any) -> Any:
        if arguments[train] and arguments[dropout] > 0:
            return NotImplemented
        if any(isinstance(size, torch.SymInt) for size in arguments[0].shape):
            with onednn_off():  # whose layers take no empty batches
                return operator.decompose(*arguments)
        return operator.decompose(*arguments)

    return layers


def _dropout(tensor: torch.Tensor, p: float, train: bool) -> Any:
    """Dropout of everything draws no random numbers, as in eager mode."""
    if train and p == 1:
        return tensor * torch.zeros((), dtype=tensor.dtype, device=tensor.device)
    return aten.dropout.default.decompose(tensor, p, train)


# What composite operators consist of, in place of what torch says.
COMPOSITES: dict[Any, Callable[..., Any]] = {
    **DIFFERENTIABLE_COMPOSITES,
    aten.dropout.default: _dropout,
    aten.scaled_dot_product_attention.default: attention,
    aten.instance_norm.default: _instance_norm,
    aten.cov.default: _cov,
    aten.cross_entropy_loss.default: _cross_entropy,
    aten.nll_loss_nd.default: _nll_loss,
    **{packet.vec: _upsample(packet.vec) for packet in _RESIZING},
    **{
        overload: _recurrent(overload)
        for packet in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
        for overload in (packet.input, packet.data)
    },
}

# In place of torch's own decompositions.
_OWN = {**COMPOSITES, **DIFFERENTIABLE}
