"""The errors of this room."""

from __future__ import annotations

from tintype.errors import InvalidRequestError, TintypeError


class OnnxExportError(TintypeError, RuntimeError):
    """A program that can't be said in ONNX; lists everything that is in the way."""

    id = "onnx-export"


class OnnxVerificationError(OnnxExportError):
    """An ONNX program that does not compute what its program computes."""

    id = "onnx-verification"


class OnnxRequestError(InvalidRequestError):
    """A request for an ONNX program that can't be carried out."""

    id = "onnx-request"


class LoweringError(Exception):
    """Why one call of an operator has no form in ONNX; collected, and told with all others."""
