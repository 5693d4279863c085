"""Exchange with torch's own capture stack: programs both ways, tensors of its fake mode, functions marked for it; and
programs of TorchScript's.

This is the only room that may use torch.export and its neighbours, and it is loaded when it is first used.

>>> import torch, tintype
>>> program = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
>>> theirs = tintype.interop.to_torch(program)
>>> type(theirs) is torch.export.ExportedProgram
True
>>> tintype.interop.from_torch(theirs).graph_signature.parameters
('weight', 'bias')
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "from_torch": "tintype.interop.out_of_torch",
    "from_torchscript": "tintype.interop.torchscript.conversion",
    "in_place_of_torch": "tintype.interop.in_torchs_place",
    "to_torch": "tintype.interop.into_torch",
    "torch_export": "tintype.interop.in_torchs_place",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (the names are in the table above)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tintype.interop' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return list(__all__)
