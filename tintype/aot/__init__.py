"""Programs with gradients that run as compiled graphs: forward and backward, behaving as eager mode does.

>>> import torch, tintype
>>> square = tintype.aot.function(lambda x: x * x)
>>> x = torch.tensor([3.0], requires_grad=True)
>>> square(x).backward()
>>> x.grad
tensor([6.])
"""

from __future__ import annotations

from tintype.aot.exporting import export_joint_simple, export_module
from tintype.aot.function import CompiledFunction, CompiledModule, function, module, module_for

__all__ = [
    "CompiledFunction",
    "CompiledModule",
    "export_joint_simple",
    "export_module",
    "function",
    "module",
    "module_for",
]
