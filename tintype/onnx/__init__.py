"""ONNX: programs as models that run on ONNX Runtime.

>>> import torch, tintype
>>> program = tintype.onnx.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
>>> program(torch.ones(4, 3)).shape
torch.Size([4, 2])
"""

from __future__ import annotations

from tintype.onnx.errors import OnnxExportError, OnnxRequestError, OnnxVerificationError
from tintype.onnx.exporting import export, load
from tintype.onnx.program import ONNXProgram
from tintype.onnx.report import Report

__all__ = ["ONNXProgram", "OnnxExportError", "OnnxRequestError", "OnnxVerificationError", "Report", "export", "load"]
