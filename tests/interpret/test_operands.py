"""A policy is told of values that operations look into."""

from __future__ import annotations

from typing import Any

import pytest

from tintype.interpret import Frame, Machine, Policy


class Told(Policy):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.missing: list[Any] = []

    def on_operands(self, frame: Frame, operation: str, values: list[Any]) -> None:
        self.told.append(operation)
        if operation == "binary_operator" and values[-1] == 41:
            frame.stack[-1] = 42

    def on_read_item(self, frame: Frame, owner: Any, key: Any, value: Any) -> Any:
        if repr(value).startswith("<object"):
            self.missing.append(key)
        return value


def test_operands_are_told_and_can_be_replaced() -> None:
    def look(values: list[int], n: int) -> str:
        first, *_ = values
        if first in values and not n:
            return "none"
        return f"{first + n}"

    policy = Told()
    assert Machine(policy).call(look, [0, 1], 41) == "42"
    assert {"unpack_with_star", "contains", "binary_operator"} <= set(policy.told)


def test_items_that_are_not_there_are_told() -> None:
    def look(table: dict[str, int]) -> int:
        return table["a"] + table["b"]

    policy = Told()
    with pytest.raises(KeyError):
        Machine(policy).call(look, {"a": 1})
    assert policy.missing == ["b"]
