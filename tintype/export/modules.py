"""Modules of several programs of one model: what one of them writes to its state, the others see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from tintype.errors import InvalidRequestError
from tintype.export.module import ProgramModule
from tintype.export.owned_state import OwnedState
from tintype.export.program import ExportedProgram
from tintype.ir.signature import StateWrite
from tintype.trace.buffer_assignments import REPLACES


def modules(programs: Mapping[str, ExportedProgram]) -> dict[str, ProgramModule]:
    """Modules that run programs of one model and share the state that they change, as methods of the model do.

    Which state that is, memory decides: programs that were exported from one model, or loaded from one file, hold the
    same tensors. ``reset()`` of one module puts back what any of them changes.

    >>> import torch, tintype
    >>> class Memory(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("last", torch.zeros(2))
    ...
    ...     def forward(self, x, store: bool):
    ...         if store:
    ...             self.last.copy_(x)
    ...         return self.last + 0
    >>> model = Memory()
    >>> store, recall = (tintype.export(model, (torch.ones(2), flag)) for flag in (True, False))
    >>> together = tintype.modules({"store": store, "recall": recall})
    >>> together["store"](torch.ones(2), True), together["recall"](torch.zeros(2), False)
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    if not isinstance(programs, Mapping):
        raise InvalidRequestError(
            f"expected programs by name, but got {type(programs).__name__}",
            remedy="write tintype.modules({'prefill': one, 'decode': another}); program.module() runs one alone",
        )
    for name, program in programs.items():
        if not isinstance(program, ExportedProgram):
            raise InvalidRequestError(
                f"what is called {name!r} must be an ExportedProgram, but got {type(program).__qualname__}"
            )
    _refuse_replaced(programs)
    owned = OwnedState([tensor for program in programs.values() for tensor in program.written_tensors()])
    return {name: program._module(owned) for name, program in programs.items()}


def _refuse_replaced(programs: Mapping[str, ExportedProgram]) -> None:
    """Where a program puts another tensor in the place of a buffer, the others would keep the old one."""
    for name, program in programs.items():
        for target in _replaced(program):
            memory = _values(program)[target].untyped_storage()._cdata
            for other_name, other in programs.items():
                held = [value for value in _values(other).values() if isinstance(value, torch.Tensor)]
                if other is not program and any(value.untyped_storage()._cdata == memory for value in held):
                    raise InvalidRequestError(
                        f"{name!r} puts another tensor in the place of {target}, which {other_name!r} would not see",
                        remedy=f"write to it in the model: self.{target}.copy_(...)",
                    )


def _replaced(program: ExportedProgram) -> Iterator[str]:
    for spec in program.graph_signature.output_specs:
        if spec.write is StateWrite.REPLACED and spec.target is not None:
            yield spec.target
    for node in program.graph.nodes:
        target = node.meta.get(REPLACES)
        if target is not None:
            yield target


def _values(program: ExportedProgram) -> dict[str, torch.Tensor]:
    return {**program.state_dict, **program.constants}
