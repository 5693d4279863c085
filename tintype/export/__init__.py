"""From models to programs. Also callable: ``tintype.export(model, args)``."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from tintype.export.exporting import export, export_for_training, suggest_dynamic_shapes
from tintype.export.joint import export_joint
from tintype.export.program import ExportedProgram
from tintype.export.stage import Stage

__all__ = ["ExportedProgram", "Stage", "export", "export_for_training", "export_joint", "suggest_dynamic_shapes"]


class _CallableModule(types.ModuleType):
    """This package under the name of its main function: importing it must not hide ``tintype.export(...)``."""

    def __call__(self, *args: Any, **kwargs: Any) -> ExportedProgram:
        return export(*args, **kwargs)


_this = sys.modules[__name__]
_this.__class__ = _CallableModule
_this.__signature__ = inspect.signature(export)  # type: ignore[attr-defined]
# help() shows no signature of what it takes for a module
_summary, _, _rest = (export.__doc__ or "").partition("\n\n")
_plain = [
    parameter.replace(annotation=parameter.empty) for parameter in inspect.signature(export).parameters.values()
]
_this.__doc__ = f"{_summary}\n\n    ``tintype.export{inspect.Signature(_plain)}``\n\n{_rest}"
