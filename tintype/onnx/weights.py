"""Parameters, buffers and constants as initializers: the tensors themselves, read when a model is written."""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx import dtypes
from tintype.onnx.errors import OnnxExportError
from tintype.onnx.libraries import ir


class Weight(ir.tensor_adapters.TorchTensor):
    """A tensor of the program as ONNX has it; nothing is copied before it is written."""

    def __init__(self, tensor: torch.Tensor, name: str | None) -> None:
        super().__init__(tensor, name=name)

    def _get_cbytes(self) -> Any:
        if self.raw.is_meta:
            raise OnnxExportError(
                f"{self.name} has no data: it is on the meta device",
                remedy="attach the weights first: tintype.attach_weights(program, ...)",
            )
        return super()._get_cbytes()


def weight(value: Any, tensor: torch.Tensor) -> None:
    """Give a value the elements of a tensor."""
    plain = tensor.detach()
    if plain.dtype.is_complex:
        plain = torch.view_as_real(plain.resolve_conj())
    if plain.layout is not torch.strided:
        raise OnnxExportError(f"{value.name} is a tensor of layout {tensor.layout}: ONNX has dense tensors only")
    dtype = dtypes.to_onnx(plain.dtype)
    if dtype is None:
        raise OnnxExportError(f"{value.name} has the dtype {plain.dtype}, which ONNX has not")
    value.dtype = dtype
    value.shape = ir.Shape(plain.shape)
    value.const_value = Weight(plain, value.name)
