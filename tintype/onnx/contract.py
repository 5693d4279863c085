"""What an ONNX program checks its inputs by, in the metadata of its model.

A model on file is all that is left of a program. So that a loaded one refuses what the exported one does, its
metadata have the program too, as :func:`tintype.save` writes it, without weights and the lines that it comes from.
"""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

import torch

from tintype.export.checks import InputChecks
from tintype.export.program import ExportedProgram, copy_program
from tintype.onnx.errors import OnnxRequestError
from tintype.serde.files import load, save

METADATA_KEY = "tintype.program"


def input_checks(program: ExportedProgram) -> InputChecks:
    """The checks of the inputs of an ONNX program."""
    checks = program.input_checks()
    # a model on ONNX Runtime has no gradients and no modes: what is around the caller is none of its business
    checks.observations = [seen for seen in checks.observations if seen.subject is not None]
    return checks


def to_text(program: ExportedProgram) -> str:
    """A program without its weights, as text."""
    bare = copy_program(
        program,
        program.graph_module,
        state_dict={name: _without_data(value) for name, value in program.state_dict.items()},
        constants={name: _without_data(value) for name, value in program.constants.items()},
        example_inputs=None,
    )
    file = io.BytesIO()
    save(bare, file, metadata=False)
    return base64.b64encode(file.getvalue()).decode()


def from_text(text: str) -> ExportedProgram:
    """The program of a model's metadata."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise OnnxRequestError(f"the metadata of this model can't be read: {error}") from error
    program = load(io.BytesIO(content))
    if not isinstance(program, ExportedProgram):
        raise OnnxRequestError("the metadata of this model hold several programs")
    return program


def _without_data(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        empty = value.detach().to("meta")
    return torch.nn.Parameter(empty, value.requires_grad) if isinstance(value, torch.nn.Parameter) else empty
