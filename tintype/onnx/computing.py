"""Dtypes that an ONNX operator does not take, or has no kernel for in ONNX Runtime, and what it is computed in then.

Truth values and small integers fit into wider ones, so nothing is lost on the way there and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tintype.onnx.libraries import ir

DataType = ir.DataType
_BOOL, _INT32, _INT64 = DataType.BOOL, DataType.INT32, DataType.INT64
_SMALL = (DataType.INT8, DataType.UINT8, DataType.INT16)


def _table() -> dict[str, dict[ir.DataType, ir.DataType]]:
    table: dict[str, dict[ir.DataType, ir.DataType]] = {}

    def compute(names: str, dtypes: tuple[ir.DataType, ...], instead: ir.DataType) -> None:
        for name in names.split():
            table.setdefault(name, {}).update(dict.fromkeys(dtypes, instead))

    truths = (
        "Abs Add ArgMax ArgMin Clip CumSum Div Einsum Greater GreaterOrEqual Less LessOrEqual MatMul Max Min Mod "
        "Mul Neg Pow Range ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum ReduceSumSquare Relu Sign Sub Sum TopK"
    )
    compute(truths, (_BOOL,), _INT32)
    compute("Where", (_BOOL,), DataType.UINT8)
    compute("Where", (DataType.INT8, DataType.INT16), _INT32)
    compute("Unique OneHot", (_BOOL, _INT32), _INT64)
    compute("Unique", _SMALL, _INT64)
    compute("CumSum Einsum MatMul Pow ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum Trilu", _SMALL, _INT32)
    compute("ArgMax ArgMin Clip Max Min Pad ReduceMax ReduceMin", (DataType.INT16,), _INT32)
    compute("Neg", (DataType.UINT8, DataType.UINT16), _INT32)
    compute("NonZero", (DataType.DOUBLE, DataType.INT8, DataType.INT16), _BOOL)
    compute("MaxPool", (_INT64, _INT32), DataType.DOUBLE)
    compute("IsInf", (DataType.FLOAT16, DataType.BFLOAT16), DataType.FLOAT)
    return table


_TABLE = _table()


def computed_in(operation: str, dtype: ir.DataType | None, attributes: Mapping[str, Any]) -> ir.DataType | None:
    """The dtype that an operator computes in where its operands have another; None where they can stay."""
    if operation in ("ScatterElements", "ScatterND") and dtype is DataType.FLOAT16 and "reduction" in attributes:
        return DataType.FLOAT
    instead = _TABLE.get(operation)
    return None if instead is None or dtype is None else instead.get(dtype)
