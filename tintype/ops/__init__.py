"""Operators that take programs or operators as arguments: one file each, with all their rules."""

from tintype.ops import (
    associative_scan,
    auto_functionalized,
    call_torchbind,
    cond,
    flex_attention,
    flex_attention_backward,
    invoke_subgraph,
    map,
    out_dtype,
    refused,
    scan,
    strict_mode,
    while_loop,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)

__all__ = [
    "associative_scan",
    "auto_functionalized",
    "call_torchbind",
    "cond",
    "flex_attention",
    "flex_attention_backward",
    "invoke_subgraph",
    "map",
    "out_dtype",
    "refused",
    "scan",
    "strict_mode",
    "while_loop",
    "wrap_with_autocast",
    "wrap_with_set_grad_enabled",
]
