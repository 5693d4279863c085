"""tintype captures PyTorch programs as checked, portable graphs.

>>> import torch, tintype
>>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
>>> ep.module()(torch.ones(4, 3)).shape
torch.Size([4, 2])
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

__version__ = "0.1.0"

# Where each public name lives. Everything is loaded when it is first used. __init__.pyi says the same to editors and
# type checkers.
_HOMES = {
    "aot": "tintype.aot",
    "AdditionalInputs": "tintype.export.shape_spec",
    "associative_scan": "tintype.ops.associative_scan",
    "compare": "tintype.comparison.comparing",
    "compile": "tintype.compiler.api",
    "list_backends": "tintype.compiler.backends",
    "set_stance": "tintype.compiler.stances",
    "RecompileError": "tintype.errors",
    "StaleRunsWarning": "tintype.errors",
    "RecompileWarning": "tintype.errors",
    "cond": "tintype.ops.cond",
    "default_decompositions": "tintype.transforms.core_decompositions",
    "map": "tintype.ops.map",
    "onnx": "tintype.onnx",
    "modules": "tintype.export.modules",
    "scan": "tintype.ops.scan",
    "while_loop": "tintype.ops.while_loop",
    "Dim": "tintype.export.dimensions",
    "ExportedProgram": "tintype.export",
    "FlatArgsAdapter": "tintype.export.flat_args",
    "ShapesCollection": "tintype.export.shape_spec",
    "dims": "tintype.export.dimensions",
    "Stage": "tintype.export",
    "draft_export": "tintype.export.draft",
    "export": "tintype.export",
    "export_for_training": "tintype.export",
    "export_joint": "tintype.export",
    "interop": "tintype.interop",
    "register_block_mask": "tintype.ops.block_masks",
    "register_container": "tintype.tree",
    "register_dataclass": "tintype.tree",
    "split": "tintype.export.split",
    "unflatten": "tintype.export.unflatten",
    "view": "tintype.view",
    "register_namedtuple": "tintype.tree",
    "suggest_dynamic_shapes": "tintype.export",
    "attach_weights": "tintype.serde.attach",
    "load": "tintype.serde.files",
    "register_object": "tintype.serde.objects",
    "save": "tintype.serde.files",
    "ExportGraphSignature": "tintype.ir.signature",
    "InputKind": "tintype.ir.signature",
    "InputSpec": "tintype.ir.signature",
    "OutputKind": "tintype.ir.signature",
    "OutputSpec": "tintype.ir.signature",
    "RuntimeAssertionError": "tintype.errors",
    "TintypeError": "tintype.errors",
    "CaptureError": "tintype.errors",
    "ConstraintViolationError": "tintype.errors",
    "FileFormatError": "tintype.errors",
    "InputMismatchError": "tintype.errors",
    "InputStructureError": "tintype.errors",
    "LostEffectWarning": "tintype.errors",
    "LostGradientWarning": "tintype.errors",
    "LostStateWarning": "tintype.errors",
    "RefusedSizesWarning": "tintype.errors",
    "TrainingModeWarning": "tintype.errors",
    "UnsavableError": "tintype.errors",
    "BackendError": "tintype.errors",
    "InvalidRequestError": "tintype.errors",
    "UnsupportedOperatorError": "tintype.errors",
    "UnsupportedInputError": "tintype.errors",
    "TensorWithoutDataError": "tintype.errors",
    "DataDependentError": "tintype.errors",
    "MutationError": "tintype.errors",
    "BranchMismatchError": "tintype.errors",
    "StateChangedError": "tintype.errors",
    "VerificationError": "tintype.errors",
    "WrongFakeWarning": "tintype.errors",
    "FileVersionError": "tintype.errors",
    "CaptureReport": "tintype.errors",
    "NoDerivativeError": "tintype.transforms.joint",
    "FinishedProgramError": "tintype.symbolic.failures",
    "UnhashableSizeError": "tintype.symbolic.bridge",
    "FixedModeError": "tintype.export.module",
    "InvalidPreservationError": "tintype.export.decompose",
    "BackwardRefusedError": "tintype.errors",
    "NotInterpretedError": "tintype.interpret.errors",
}

# ``from tintype import *`` leaves Python's own names as they are: tintype.compile and tintype.map are written out
_BUILT_IN = frozenset({"compile", "map"})
__all__ = sorted(_HOMES.keys() - _BUILT_IN)  # noqa: PLE0605  (the names are in the table above)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tintype' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    module = _loaded(home)
    return module if home == f"tintype.{name}" else getattr(module, name)


def _loaded(home: str) -> Any:
    """The module of that name. Python would look through all objects of torch's for garbage while modules are loaded,
    which takes as long as loading them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(home)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(_HOMES)
