"""Dtypes: torch's, and ONNX's."""

from __future__ import annotations

import torch

from tintype.onnx.libraries import ir

DataType = ir.DataType

_TO_ONNX: dict[torch.dtype, ir.DataType] = {
    torch.bfloat16: DataType.BFLOAT16,
    torch.bool: DataType.BOOL,
    torch.complex128: DataType.COMPLEX128,
    torch.complex64: DataType.COMPLEX64,
    torch.float16: DataType.FLOAT16,
    torch.float32: DataType.FLOAT,
    torch.float64: DataType.DOUBLE,
    torch.float8_e4m3fn: DataType.FLOAT8E4M3FN,
    torch.float8_e4m3fnuz: DataType.FLOAT8E4M3FNUZ,
    torch.float8_e5m2: DataType.FLOAT8E5M2,
    torch.float8_e5m2fnuz: DataType.FLOAT8E5M2FNUZ,
    torch.int16: DataType.INT16,
    torch.int32: DataType.INT32,
    torch.int64: DataType.INT64,
    torch.int8: DataType.INT8,
    torch.uint8: DataType.UINT8,
    torch.uint16: DataType.UINT16,
    torch.uint32: DataType.UINT32,
    torch.uint64: DataType.UINT64,
}
_TO_TORCH = {onnx_dtype: dtype for dtype, onnx_dtype in _TO_ONNX.items()}
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def to_onnx(dtype: torch.dtype) -> ir.DataType | None:
    """ONNX's name of a dtype; None for one that it has not."""
    return _TO_ONNX.get(dtype)


def stored_as(dtype: torch.dtype) -> ir.DataType | None:
    """The dtype of the ONNX value that holds a tensor: complex numbers are pairs of real ones."""
    return _TO_ONNX.get(_REAL.get(dtype, dtype))


def to_torch(dtype: ir.DataType) -> torch.dtype | None:
    """torch's name of a dtype; None for one that it has not."""
    return _TO_TORCH.get(dtype)
