"""The libraries that this room stands on, imported in one place: they are an extra of the package."""

from __future__ import annotations

from tintype.errors import InvalidRequestError

try:
    import onnx
    import onnx_ir as ir
except ImportError as error:  # pragma: no cover - the extra is installed where tests run
    raise InvalidRequestError(
        f"exporting to ONNX needs packages that are not installed ({error})", remedy="pip install 'tintype[onnx]'"
    ) from error

__all__ = ["ir", "onnx"]
