"""ONNX Runtime: sessions, and tensors on their way in and out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tintype.errors import InvalidRequestError
from tintype.onnx import dtypes
from tintype.onnx.errors import OnnxExportError, OnnxRequestError
from tintype.onnx.libraries import ir
from tintype.onnx.weights import check_data
from tintype.onnx.widening import with_wide_operators

# A protobuf message has less than 2 GB; models with more in them go through a file.
LARGEST_MESSAGE = 1_500_000_000


def runtime() -> Any:
    """The module of ONNX Runtime."""
    try:
        import onnxruntime
    except ImportError as error:  # pragma: no cover - the extra is installed where tests run
        raise InvalidRequestError(
            f"running an ONNX program needs onnxruntime ({error})", remedy="pip install 'tintype[onnx]'"
        ) from error
    return onnxruntime


class Session:
    """A model that ONNX Runtime has loaded."""

    def __init__(self, source: ir.Model | str, providers: Sequence[Any] | None, options: Any = None) -> None:
        library = runtime()
        if options is None:
            options = library.SessionOptions()
            options.log_severity_level = 3
            options.intra_op_num_threads = torch.get_num_threads()
            # products with dequantized weights in float32, and not of activations that are rounded to bytes
            options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
        if not isinstance(source, str):
            check_data(source)
        if isinstance(providers, str):
            providers = [providers]
        providers = list(providers) if providers is not None else ["CPUExecutionProvider"]
        unknown = [
            each for each in (each if isinstance(each, str) else each[0] for each in providers)
            if each not in library.get_all_providers()
        ]  # fmt: skip
        if unknown:  # which it would pass over, and run on the processor
            raise OnnxRequestError(
                f"ONNX Runtime has no provider {', '.join(unknown)}",
                remedy=f"available here: {', '.join(library.get_available_providers())}",
            )
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if providers == ["CPUExecutionProvider"] and not isinstance(source, str):
            source = with_wide_operators(source)
        try:
            self.session = library.InferenceSession(
                self._content(source), options, providers=providers, enable_fallback=0,
                disabled_optimizers=["MatMulScaleFusion"] if _multiplies_doubles(source) else None,
            )  # fmt: skip
        except Exception as error:  # its errors have no common class of their own
            remedy = None
            if "NOT_IMPLEMENTED" in str(error):
                remedy = (
                    "it has no kernel for this dtype on this device: export the model in float32 or float16, or with "
                    "verify=False for providers that have one"
                )
            raise OnnxExportError(f"ONNX Runtime does not take the model: {error}", remedy=remedy) from error
        self.input_dtypes = {
            each.name: each.type
            for each in (*self.session.get_inputs(), *self.session.get_overridable_initializers())
        }
        self.output_names = [each.name for each in self.session.get_outputs()]
        self.output_types = {each.name: each.type for each in self.session.get_outputs()}

    def _content(self, source: ir.Model | str) -> Any:
        if isinstance(source, str):
            return source
        if weight_bytes(source) < LARGEST_MESSAGE:
            return ir.to_proto(source).SerializeToString()
        self._folder = tempfile.TemporaryDirectory(prefix="tintype-onnx-")
        path = os.path.join(self._folder.name, "model.onnx")
        ir.save(source, path, external_data="model.onnx.data")
        return path

    def run(
        self, feeds: Mapping[str, torch.Tensor], into: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """Run the model on tensors by name; all outputs by name, those of ``into`` in memory of the caller's."""
        library = runtime()
        given = {name: _to_runtime(library, tensor) for name, tensor in feeds.items()}
        try:
            if into:
                results = self._bound(library, given, into)
            else:
                results = self.session.run_with_ort_values(self.output_names, given)
        except Exception as error:
            raise OnnxExportError(f"ONNX Runtime failed: {error}") from error
        made = {
            name: _from_runtime(value, self.output_types[name])
            for name, value in zip(self.output_names, results)
            if not into or name not in into
        }
        return {**made, **into} if into else made

    def _bound(self, library: Any, given: Mapping[str, Any], into: Mapping[str, torch.Tensor]) -> Any:
        """The outputs of a run that writes some of them to where it is told."""
        binding = self.session.io_binding()
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.output_names:
            if name in into:
                binding.bind_ortvalue_output(name, _to_runtime(library, into[name]))
            else:
                binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        return binding.get_outputs()


def _multiplies_doubles(source: ir.Model | str) -> bool:
    """Whether there is a product in double precision, of which ONNX Runtime would scale a factor in float32."""
    if isinstance(source, str):
        return False
    products = (node for node in ir.traversal.RecursiveGraphIterator(source.graph) if node.op_type == "MatMul")
    return any(value.dtype is ir.DataType.DOUBLE for node in products for value in node.outputs)


def weight_bytes(model: ir.Model) -> int:
    """How large the weights of a model are."""
    return sum(
        value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None
    )


_WITHOUT_NUMPY = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
}


def _to_runtime(library: Any, tensor: torch.Tensor) -> Any:
    """A tensor as the runtime takes it: its own memory where that is contiguous and on this device."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if plain.dtype.is_complex:
        plain = torch.view_as_real(plain)
    carrier = _WITHOUT_NUMPY.get(plain.dtype)
    if carrier is None:
        return library.OrtValue.ortvalue_from_numpy(plain.numpy())
    onnx_dtype = dtypes.to_onnx(plain.dtype)
    assert onnx_dtype is not None
    return library.OrtValue.ortvalue_from_numpy_with_onnx_type(plain.view(carrier).numpy(), int(onnx_dtype))


_CARRIED = {
    "tensor(bfloat16)": torch.bfloat16,
    "tensor(float8e4m3fn)": torch.float8_e4m3fn,
    "tensor(float8e5m2)": torch.float8_e5m2,
}


def _from_runtime(value: Any, kind: str) -> torch.Tensor:
    dtype = _CARRIED.get(kind)
    if dtype is None:
        array = value.numpy()
        if array.dtype == np.uint64:  # of C's other name for it, which torch does not know
            array = array.view(np.uint64)
        return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    shape = value.shape()
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    import ctypes

    content = ctypes.string_at(value.data_ptr(), count * dtype.itemsize)
    return torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
