"""What expressions of one environment are remembered by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .expression import Expr


class Table:
    """The intern table of one environment and the memo of each operator.

    It lives and dies with its environment, so expressions never outlive the
    capture that made them.
    """

    def __init__(self) -> None:
        self.interned: dict[Any, Expr] = {}
        self.sums: dict[Any, Any] = {}
        self.differences: dict[Any, Any] = {}
        self.products: dict[Any, Any] = {}
        # of contiguous tensors, by their sizes
        self.strides: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.quotients: dict[Any, Any] = {}
        self.remainders: dict[Any, Any] = {}
        self.relations: dict[Any, Any] = {}
        self.equalities: dict[Any, Any] = {}
        self.orders: dict[Any, Any] = {}
        self.strict_orders: dict[Any, Any] = {}
        # The bridge's nodes for constants, which C++ asks for again and again.
        self.constant_nodes: dict[Any, Any] = {}
        self.serial = 0
