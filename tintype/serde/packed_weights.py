"""The packed weights of torch's quantized layers in files: what was packed, which is packed again when it is loaded.

How weights are packed is up to the machine. A file holds the weight, the bias and the numbers of the layer: a line of
JSON, then the bytes of the tensors one after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import FileFormatError, UnsavableError
from tintype.serde.objects import register_object

_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.float64, torch.int8, torch.uint8, torch.int64)}
_QUANTIZED = {"qint8": torch.qint8, "quint8": torch.quint8}


# what reading a damaged description, or packing what does not fit together, raises
_DAMAGE = (KeyError, ValueError, TypeError, AttributeError, AssertionError, RuntimeError)


class _Writer:
    """Tensors one after the other, and what is to be known of each."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def add(self, tensor: torch.Tensor | None) -> Any:
        if tensor is None:
            return None
        if not tensor.is_quantized:
            self.parts.append(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            return {"dtype": str(tensor.dtype), "sizes": list(tensor.shape)}
        kind = str(tensor.dtype).removeprefix("torch.")
        if kind not in _QUANTIZED:
            raise UnsavableError(f"a packed weight of {kind} can't be written to a file", remedy="use 8 bits")
        described = {"kind": kind, "values": self.add(tensor.int_repr())}
        if tensor.qscheme() is torch.per_tensor_affine:
            return {**described, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        return {
            **described,
            "axis": tensor.q_per_channel_axis(),
            "scales": self.add(tensor.q_per_channel_scales()),
            "zero_points": self.add(tensor.q_per_channel_zero_points()),
        }


class _Reader:
    def __init__(self, content: bytes) -> None:
        head, _, self.rest = content.partition(b"\n")
        self.described = json.loads(head)

    def tensor(self, described: Any) -> torch.Tensor | None:
        if described is None:
            return None
        if "kind" not in described:
            return self._plain(_DTYPES[described["dtype"]], described["sizes"])
        values, kind = self.tensor(described["values"]), _QUANTIZED[described["kind"]]
        assert values is not None
        if "scale" in described:
            made = torch._make_per_tensor_quantized_tensor(values, described["scale"], described["zero_point"])
        else:
            scales, zeros = self.tensor(described["scales"]), self.tensor(described["zero_points"])
            assert scales is not None and zeros is not None
            made = torch._make_per_channel_quantized_tensor(values, scales, zeros, described["axis"])
        if made.dtype is not kind:
            raise ValueError(f"values of {values.dtype} are not those of {kind}")
        return made

    def _plain(self, dtype: torch.dtype, sizes: Any) -> torch.Tensor:
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ValueError(f"sizes {sizes!r:.100}")
        count = math.prod(sizes) * dtype.itemsize
        if count > len(self.rest):
            raise ValueError("it is cut off")
        found, self.rest = self.rest[:count], self.rest[count:]
        if not found:
            return torch.empty(sizes, dtype=dtype)
        return torch.frombuffer(bytearray(found), dtype=dtype).reshape(sizes)


def _save(numbers: Callable[[Any], dict[str, Any]], parts: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    def save(packed: Any) -> bytes:
        weight, bias = parts(packed)
        writer = _Writer()
        described = {"weight": writer.add(weight), "bias": writer.add(bias), **numbers(packed)}
        return b"".join([json.dumps(described).encode(), b"\n", *writer.parts])

    return save


def _load(pack: Callable[[torch.Tensor, torch.Tensor | None, dict[str, Any]], Any]) -> Callable[[bytes], Any]:
    def load(content: bytes) -> Any:
        try:
            reader = _Reader(content)
            weight, bias = reader.tensor(reader.described["weight"]), reader.tensor(reader.described["bias"])
            if weight is None or reader.rest:
                raise ValueError("more or less than a weight and a bias")
            return pack(weight, bias, reader.described)
        except _DAMAGE as error:
            raise FileFormatError(f"a packed weight of the file can't be read: {error!s:.200}") from error

    return load


def _packed_linear(weight: torch.Tensor, bias: Any, numbers: dict[str, Any]) -> Any:
    pack = torch.ops.quantized.linear_prepack if weight.is_quantized else torch.ops.quantized.linear_prepack_fp16
    return pack(weight, bias)


_OF_CONVOLUTION = ("stride", "padding", "dilation", "output_padding")


def _numbers_of_convolution(packed: Any) -> dict[str, Any]:
    numbers = {name: list(getattr(packed, name)()) for name in _OF_CONVOLUTION}
    return {**numbers, "groups": packed.groups(), "transpose": bool(packed.transpose())}


def _packed_convolution(dimensions: int) -> Callable[..., Any]:
    def pack(weight: torch.Tensor, bias: Any, numbers: dict[str, Any]) -> Any:
        stride, padding, dilation, output_padding = (numbers[name] for name in _OF_CONVOLUTION)
        operators = torch.ops.quantized
        if numbers["transpose"]:
            pack = getattr(operators, f"conv_transpose{dimensions}d_prepack")
            return pack(weight, bias, stride, padding, output_padding, dilation, numbers["groups"])
        pack = getattr(operators, f"conv{dimensions}d_prepack")
        return pack(weight, bias, stride, padding, dilation, numbers["groups"])

    return pack


def _register(name: str, save: Any, load: Any) -> None:
    register_object(f"__torch__.torch.classes.quantized.{name}", name=f"torch.quantized.{name}", save=save, load=load)


def _nothing(packed: Any) -> dict[str, Any]:
    return {}


_register("LinearPackedParamsBase", _save(_nothing, lambda packed: packed.unpack()), _load(_packed_linear))
for _count in (2, 3):
    _register(
        f"Conv{_count}dPackedParamsBase",
        _save(_numbers_of_convolution, lambda packed: packed.unpack()),
        _load(_packed_convolution(_count)),
    )
_register(
    "EmbeddingPackedParamsBase",
    _save(_nothing, lambda packed: (torch.ops.quantized.embedding_bag_unpack(packed), None)),
    _load(lambda weight, bias, numbers: torch.ops.quantized.embedding_bag_prepack(weight)),
)
