"""Results of operators that are no tensors: numbers, texts, lists among other results.

A number that torch's own operators return follows from sizes and dtypes. What anybody else's operator returns when it
runs is not known: the program goes on with the number that its fake kernel said, and asserts that the operator
returns that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.fx import Node

from tintype.errors import UnsupportedOperatorError
from tintype.ir.graph import append_item, set_meta
from tintype.ir.node_info import NodeMeta, Origin
from tintype.ir.operator_facts import facts_of
from tintype.symbolic import eq
from tintype.symbolic.bridge import to_torch
from tintype.symbolic.expression import Expr, Symbol
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder


def plain_result(recorder: Recorder, func: Any, node: Node | None, value: Any, origin: Origin | None) -> Any:
    """The only result of an operator, which is no tensor."""
    if facts_of(func).only_computes and not isinstance(value, Expr):
        if node is not None:
            recorder.graph.erase_node(node)
        return value
    if node is not None:
        set_meta(node, NodeMeta({"val": None}, origin))
        node.meta["val"] = _told(recorder, func, node, value)
    return to_torch(value) if isinstance(value, Expr) else value


def plain_item(
    recorder: Recorder, func: Any, node: Node | None, index: int, value: Any, origin: Origin | None
) -> Any:
    """One of several results of an operator, which is no tensor."""
    is_new = isinstance(value, Symbol)
    if node is not None and value is not None and (is_new or not facts_of(func).only_computes):
        item = append_item(recorder.graph, node, index, NodeMeta({"val": None}, origin))
        item.meta["val"] = _told(recorder, func, item, value)
    return to_torch(value) if isinstance(value, Expr) else value


def _told(recorder: Recorder, func: Any, node: Node, value: Any) -> Any:
    """Let a number be what an operator returns; the value of the node."""
    if isinstance(value, Symbol):
        recorder.numbers.define(value, node)
        return to_torch(value)
    if type(value) is not int and not (isinstance(value, Expr) and value.kind == "int"):
        kind = value.kind if isinstance(value, Expr) else type(value).__name__
        raise UnsupportedOperatorError(
            f"{func} returns a {kind}, which is only known when it runs",
            location=user_location(),
            remedy="let the operator return a tensor with one element, and use that or its item()",
        )
    environment = recorder.context.environment
    symbol = environment.unbacked_int()
    recorder.numbers.define(symbol, node)
    environment.expect(eq(symbol, value), f"{func} returned another number than its fake kernel said: {value}")
    return to_torch(symbol)
