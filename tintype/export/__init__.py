"""From models to programs. Also callable: ``tintype.export(model, args)``."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from tintype.export.exporting import export as export
from tintype.export.exporting import export_for_training as export_for_training
from tintype.export.exporting import suggest_dynamic_shapes as suggest_dynamic_shapes
from tintype.export.joint import export_joint as export_joint
from tintype.export.program import ExportedProgram as ExportedProgram
from tintype.export.stage import Stage as Stage

# help(tintype.export) describes the function, not everything else that is here; tintype.__all__ has the public names
__all__: list[str] = []


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
