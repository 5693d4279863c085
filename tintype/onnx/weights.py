"""Parameters, buffers and constants as initializers: the tensors themselves, read when a model is written."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tintype.onnx import dtypes
from tintype.onnx.errors import OnnxExportError, OnnxRequestError
from tintype.onnx.libraries import ir

_MOST_NAMES = 5
# A file's pages that were read once are in memory until somebody else wants it; of large weights they are given back.
_LARGE = 16 * 1024 * 1024
_PAGE = 4096
_MADV_PAGEOUT = 21


class Weight(ir.tensor_adapters.TorchTensor):
    """A tensor of the program as ONNX has it; nothing is copied before it is written."""

    def tofile(self, file: Any) -> None:
        """Write the elements; pages of a file that they are mapped from are given back."""
        super().tofile(file)
        if self.nbytes >= _LARGE and self.raw.device.type == "cpu" and self.raw.is_contiguous():
            _give_back(self.raw.data_ptr(), self.nbytes)


def _give_back(address: int, size: int) -> None:
    """Let the system drop pages that are mapped from a file. What is only in memory stays there."""
    if not sys.platform.startswith("linux") or not _is_mapped(address):
        return
    begin = -(-address // _PAGE) * _PAGE
    length = (address + size - begin) // _PAGE * _PAGE
    if length > 0:  # advice: where it can't be followed nothing happens
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), _MADV_PAGEOUT)


def _is_mapped(address: int) -> bool:
    """Whether an address lies in a file that is mapped into memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, _, _, _, inode, *_ = line.split(maxsplit=5)
        begin, _, end = bounds.partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return inode != "0"
    return False


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


def without_data(model: ir.Model) -> list[str]:
    """The weights that are on the meta device."""
    return [
        name for name, value in model.graph.initializers.items()
        if isinstance(value.const_value, Weight) and value.const_value.raw.is_meta
    ]  # fmt: skip


def check_data(model: ir.Model) -> None:
    """Raise where weights have no data to be written or run with."""
    missing = without_data(model)
    if missing:
        more = f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else ""
        raise OnnxExportError(
            f"weights are on the meta device and have no data: {', '.join(missing[:_MOST_NAMES])}{more}",
            remedy="give them with apply_weights({name: tensor}), or to the program before it is exported to ONNX: "
            "tintype.attach_weights(program, ...)",
        )


def replace_weights(model: ir.Model, weights: Mapping[str, torch.Tensor]) -> None:
    """Give initializers other tensors by name, of the same dtypes and sizes: all of them or none."""
    if not isinstance(weights, Mapping):
        raise OnnxRequestError(f"weights are given as a mapping of names to tensors, not as {type(weights).__name__}")
    initializers = model.graph.initializers
    replaced: list[tuple[Any, Weight]] = []
    for name, tensor in weights.items():
        value = initializers.get(name)
        if value is None or value.const_value is None:
            raise OnnxRequestError(f"the model has no weight {name}", remedy="names are those of the program's state")
        old = value.const_value
        if not isinstance(tensor, torch.Tensor):
            raise OnnxRequestError(f"{name} is given a {type(tensor).__name__}", remedy="give a tensor")
        plain = tensor.detach()
        plain = torch.view_as_real(plain.resolve_conj()) if plain.dtype.is_complex else plain
        if dtypes.to_onnx(plain.dtype) is not old.dtype or list(plain.shape) != list(old.shape):
            raise OnnxRequestError(
                f"{name} is {plain.dtype} of the sizes {list(plain.shape)}, where the model has {old.dtype} of "
                f"{list(old.shape)}"
            )
        replaced.append((value, Weight(plain, name)))
    for value, new in replaced:
        value.const_value = new
