"""One program per operator that takes functions or operators: the rows of the table in docs/control_flow.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import nested_compile_region
from torch.nn.attention.flex_attention import create_block_mask

import tintype
from tintype import Dim
from tintype.ops import flex_attention as forward
from tintype.ops import out_dtype
from tintype.ops.flex_attention import flex_attention
from tintype.ops.flex_attention_backward import flex_attention_backward
from tintype.ops.strict_mode import strict_mode
from tintype.ops.subgraphs import captured

higher_order = torch.ops.higher_order


@dataclasses.dataclass(frozen=True)
class Row:
    """A program that uses an operator, the same in plain torch, and what both are called with.

    The first dimension of the first input is another in every example. ``gradients`` says whether they flow through
    the operator; ``dissolved`` that it is part of the training stage alone.
    """

    operator: Any
    program: Callable[..., Any]
    reference: Callable[..., Any]
    examples: tuple[tuple[torch.Tensor, ...], ...]
    gradients: bool = True
    dissolved: bool = False

    @property
    def dynamic_shapes(self) -> Any:
        """The first dimension of the first input varies."""
        return ({0: Dim("n", min=2)}, *(None for _ in self.examples[0][1:]))


def _rows() -> tuple[tuple[torch.Tensor, ...], ...]:
    weight = torch.linspace(0.5, 1.5, 4)
    signs = {3: 1, 5: -1, 2: 1}
    return tuple((torch.linspace(-1.0, 2.0, n * 4).reshape(n, 4) * sign, weight) for n, sign in signs.items())


def _attention_inputs() -> tuple[tuple[torch.Tensor, ...], ...]:
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(1, 2, 5, 4, generator=generator)
    bias = torch.randn(2, 5, 5, generator=generator)
    return tuple((torch.randn(n, 2, 5, 4, generator=generator), key, bias) for n in (3, 5, 2))


# --- cond, map, while_loop, scan, associative_scan -----------------------------------------------------------


def _cond(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return tintype.cond(x.sum() > 0, lambda x: x.sin() * w, lambda x: x.cos() + w, (x,)) * 2


def _cond_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.sin() * w if x.sum() > 0 else x.cos() + w) * 2


def _map(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return tintype.map(lambda row, w: row.sin() * w, x, w) + 1


def _map_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.sin() * w + 1


def _while_loop(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    step, result = tintype.while_loop(
        lambda step, x: step < 3, lambda step, x: (step + 1, x * w + step), (torch.tensor(0), x)
    )
    return result * step


def _while_loop_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (((x * w) * w + 1) * w + 2) * 3


def _scan(x: torch.Tensor, w: torch.Tensor) -> Any:
    return tintype.scan(lambda carry, row: (carry * w + row, (carry * row).sum()), torch.zeros(4), x)


def _scan_reference(x: torch.Tensor, w: torch.Tensor) -> Any:
    carry, totals = torch.zeros(4), []
    for row in x:
        totals.append((carry * row).sum())
        carry = carry * w + row
    return carry, torch.stack(totals)


def _associative_scan(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return tintype.associative_scan(torch.mul, x + w, 0)


def _associative_scan_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.cumprod(x + w, 0)


# --- flex_attention ----------------------------------------------------------------------------------------


def _bias(score: Any, b: Any, h: Any, m: Any, n: Any, bias: torch.Tensor) -> torch.Tensor:
    return score + bias[h, m, n]


def _block_mask() -> Any:
    return create_block_mask(lambda b, h, m, n: m >= n, None, None, 5, 5, device="cpu")


def _flex_attention(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    key = k.expand(q.shape[0], -1, -1, -1)
    return flex_attention(q, key, key, lambda *positions: _bias(*positions, bias), _block_mask(), scale=0.5)


def _flex_attention_reference(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    key = k.expand(q.shape[0], -1, -1, -1)
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    mask = bias.masked_fill(hidden, -float("inf"))
    return torch.nn.functional.scaled_dot_product_attention(q, key, key, attn_mask=mask, scale=0.5)


def _flex_attention_backward(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> Any:
    key = k.expand(q.shape[0], -1, -1, -1)
    functions = (_bias, None, _block_mask().as_tuple(), 0.5, {}, (bias,), ())
    out, sums, _ = captured(forward.capture, forward.run, q, key, key, _bias, *functions[2:])
    return flex_attention_backward(q, key, key, out, sums, out, None, *functions)[0]


def _flex_attention_backward_reference(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> Any:
    leaf = q.detach().requires_grad_()
    out = _flex_attention_reference(leaf, k, bias)
    return torch.autograd.grad(out, leaf, out)[0]


# --- the others --------------------------------------------------------------------------------------------


@nested_compile_region
def _layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.sin() * w + 1


def _invoke_subgraph(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return _layer(_layer(_layer(x * w, w), w), w)


def _invoke_subgraph_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x * w
    for _ in range(3):
        x = x.sin() * w + 1
    return x


def _strict_mode(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return strict_mode(lambda x: x.sin() * w + x.shape[0], (x,)) * 2


def _strict_mode_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.sin() * w + x.shape[0]) * 2


def _out_dtype(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return captured(out_dtype.capture, out_dtype.run, torch.ops.aten.mul.Tensor, torch.float64, x, w) * 2


def _out_dtype_reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.double() * w.double() * 2


@torch.library.custom_op("tests_matrix::scale", mutates_args={"x"})
def _scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    x.mul_(factor)
    return x.sum()


@_scale.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x.new_empty(())


def _auto_functionalized(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * w).detach()
    total = _scale(y, 3.0)
    return y, total


def _auto_functionalized_reference(x: torch.Tensor, w: torch.Tensor) -> Any:
    return x * w * 3, (x * w * 3).sum()


# --- regions -----------------------------------------------------------------------------------------------


def _without_gradients(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.no_grad():
        scale = (x * w).abs().max()
    return x * w / scale, scale


def _without_gradients_reference(x: torch.Tensor, w: torch.Tensor) -> Any:
    scale = (x * w).abs().max().detach()
    return x * w / scale, scale


def _autocast(x: torch.Tensor, w: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w.diag()
    return y.float() * w


def _autocast_reference(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x.bfloat16() @ w.diag().bfloat16()).float() * w


ROWS = {
    "cond": Row(higher_order.cond, _cond, _cond_reference, _rows()),
    "map": Row(higher_order.map_impl, _map, _map_reference, _rows()),
    "while_loop": Row(higher_order.while_loop, _while_loop, _while_loop_reference, _rows()),
    "scan": Row(higher_order.scan, _scan, _scan_reference, _rows()),
    "associative_scan": Row(higher_order.associative_scan, _associative_scan, _associative_scan_reference, _rows()),
    "flex_attention": Row(
        higher_order.flex_attention, _flex_attention, _flex_attention_reference, _attention_inputs()
    ),
    "flex_attention_backward": Row(
        higher_order.flex_attention_backward,
        _flex_attention_backward,
        _flex_attention_backward_reference,
        _attention_inputs(),
        gradients=False,
    ),
    "invoke_subgraph": Row(higher_order.invoke_subgraph, _invoke_subgraph, _invoke_subgraph_reference, _rows()),
    "strict_mode": Row(higher_order.strict_mode, _strict_mode, _strict_mode_reference, _rows()),
    "out_dtype": Row(higher_order.out_dtype, _out_dtype, _out_dtype_reference, _rows()),
    "auto_functionalized": Row(
        higher_order.auto_functionalized,
        _auto_functionalized,
        _auto_functionalized_reference,
        _rows(),
        gradients=False,
    ),
    "wrap_with_set_grad_enabled": Row(
        higher_order.wrap_with_set_grad_enabled,
        _without_gradients,
        _without_gradients_reference,
        _rows(),
        dissolved=True,
    ),
    "wrap_with_autocast": Row(
        higher_order.wrap_with_autocast, _autocast, _autocast_reference, _rows(), dissolved=True
    ),
}
