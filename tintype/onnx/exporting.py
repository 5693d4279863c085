"""``tintype.onnx.export`` and ``tintype.onnx.load``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tintype.export.exporting import export as capture
from tintype.export.program import ExportedProgram
from tintype.export.wrong_requests import wrong_args
from tintype.ir.process_switches import collector_paused
from tintype.onnx import contract
from tintype.onnx.assembly import assemble
from tintype.onnx.decomposition import with_lowerings
from tintype.onnx.errors import OnnxRequestError
from tintype.onnx.interface import METADATA_KEY, Interface
from tintype.onnx.libraries import ir
from tintype.onnx.optimization import optimize_fully
from tintype.onnx.program import ONNXProgram
from tintype.onnx.report import Report
from tintype.onnx.runtime import LARGEST_MESSAGE, weight_bytes
from tintype.onnx.translation import GraphTranslator
from tintype.onnx.verification import Verification, check_model
from tintype.onnx.weights import without_data

OPSETS = range(18, 25)
DEFAULT_OPSET = 20
_LARGEST_VERIFIED = 500_000_000


def export(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    opset: int = DEFAULT_OPSET,
    translations: Mapping[Any, Callable[..., Any]] | None = None,
    verify: bool | None = None,
    optimize: bool | str = True,
    functions: bool = False,
    progress: Callable[[str], Any] | None = None,
) -> ONNXProgram:
    """A model, a program or a file with a program as an ONNX program.

    A model is exported with ``args``, ``kwargs`` and ``dynamic_shapes`` as by :func:`tintype.export`. Operators
    without a form in ONNX are all named in one error; ``translations`` gives them one: a function of the operator's
    arguments for each overload, whose first parameter ``op`` makes nodes (``op.Mul(x, 2)``).

    ``verify`` runs the result on ONNX Runtime beside the program, on the example and on other sizes within what it
    promises to take; without a word it is done for models of less than 500 MB. ``report`` says what was compared.

    ``functions`` makes an ONNX function of each distinct body of the model's modules: layers that do the same share
    one, and are calls of it under their own names.

    ``progress`` is called with what is being done.

    What can be known while the model is built (constants, fixed shapes, the same call twice) makes no nodes;
    ``optimize="full"`` runs onnxscript's optimizer as well, which takes longer.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch")
    >>> program = tintype.onnx.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    >>> program(torch.ones(7, 3)).shape
    torch.Size([7, 2])
    """
    is_program = isinstance(model, (str, os.PathLike, ExportedProgram)) or _is_torchs_program(model)
    _check_request(opset, translations, progress, is_program and dynamic_shapes is not None)
    if opset not in OPSETS:
        raise OnnxRequestError(
            f"opset {opset} is none of those that can be exported to: {OPSETS[0]} to {OPSETS[-1]}",
            remedy=f"leave it out for {DEFAULT_OPSET}",
        )
    if isinstance(args, (str, os.PathLike, torch.Tensor)) or not isinstance(args, Sequence):
        raise wrong_args(args)
    program = _program(model, args, kwargs, dynamic_shapes)
    table = dict(translations or {})
    tell = progress if progress is not None else str
    tell("translating to ONNX")
    with collector_paused():
        prepared = with_lowerings(program, opset, table)
        built, interface, translator = assemble(prepared, opset, table, functions=functions)
    if optimize == "full":
        tell("optimizing")
        optimize_fully(built, inline=not functions)
    elif not isinstance(optimize, bool):
        raise OnnxRequestError(f"optimize={optimize!r} is none of True and 'full'")
    made = _runnable(program, built, interface, translator)
    if is_program and (args or kwargs):  # which it has to take, and needs for nothing else
        made.checked(tuple(args), kwargs or {})
    report = made.report
    if without_data(built) and not verify:
        report.notes.append("not verified: weights are on the meta device")
    elif verify or (verify is None and weight_bytes(built) < _LARGEST_VERIFIED):
        tell("verifying on ONNX Runtime")
        if weight_bytes(built) < LARGEST_MESSAGE:
            check_model(built)
            report.checked = True
        plain = (lambda: assemble(prepared, opset, table)) if functions else None
        Verification(program, prepared, made, translator, plain).run()
    return made


def _check_request(opset: Any, translations: Any, progress: Any, sizes_of_program: bool) -> None:
    if sizes_of_program:
        raise OnnxRequestError(
            "a program has its sizes already: dynamic_shapes are for models",
            remedy="leave them out, or export the model with them",
        )
    if type(opset) is not int:
        raise OnnxRequestError(f"opset={opset!r} is no whole number")
    if progress is not None and not callable(progress):
        raise OnnxRequestError("progress is called with a text", remedy="give a function, such as print")
    if translations is not None and not isinstance(translations, Mapping):
        raise OnnxRequestError("translations is a mapping of operators to functions")
    for operator, function in (translations or {}).items():
        if not isinstance(operator, torch._ops.OpOverload) or not callable(function):
            raise OnnxRequestError(
                f"translations has {operator!r}: {function!r}, which is no operator overload with a function",
                remedy="name an overload, such as torch.ops.aten.linear.default",
            )


def _runnable(
    program: ExportedProgram, built: ir.Model, interface: Interface, translator: GraphTranslator
) -> ONNXProgram:
    """The model as something that can be called, with what there is to tell of it so far."""
    report = Report(built.opset_imports.get("", 0), len(built.graph), len(built.graph.initializers))
    report.notes += translator.shared.notes
    if _computes_in_half_precision(built):
        report.notes.append(
            "computes in float16: on the processor ONNX Runtime keeps float32 between operators, "
            "so that what is larger than 65504 there does not become infinite, as it does in torch"
        )
    return ONNXProgram(built, interface, program=program, report=report)


def _computes_in_half_precision(model: ir.Model) -> bool:
    """Whether an operator that is no conversion gives such numbers."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return any(
        node.op_type not in ("Cast", "CastLike") and value.dtype is ir.DataType.FLOAT16
        for node in nodes
        for value in node.outputs
    )


def _program(model: Any, args: Sequence[Any], kwargs: dict[str, Any] | None, dynamic_shapes: Any) -> ExportedProgram:
    if isinstance(model, (str, os.PathLike)):
        from tintype.serde.files import load as load_program

        loaded = load_program(model)
        if isinstance(loaded, dict):
            raise OnnxRequestError(
                f"{Path(model).name} holds the programs {', '.join(loaded)}", remedy="load the one that is meant"
            )
        return loaded
    if isinstance(model, ExportedProgram):
        return model
    if _is_torchs_program(model):
        from tintype.interop.out_of_torch import from_torch

        return from_torch(model)
    if not callable(model):
        raise OnnxRequestError(
            f"a {type(model).__name__} can't be exported", remedy="give a module, a function, a program or a path"
        )
    if isinstance(args, list):
        args = tuple(args)
    return capture(model, args, kwargs, dynamic_shapes=dynamic_shapes)  # type: ignore[arg-type]


def _is_torchs_program(model: Any) -> bool:
    kind = type(model)
    return kind.__name__ == "ExportedProgram" and kind.__module__.startswith("torch.")


def load(path: str | os.PathLike[str]) -> ONNXProgram:
    """An ONNX program from a file that :meth:`ONNXProgram.save` wrote, with the arguments and results of its model.

    >>> import tempfile, pathlib, torch, tintype
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.onnx"
    >>> tintype.onnx.export(lambda x: {"double": x * 2}, (torch.ones(2),)).save(path)
    >>> tintype.onnx.load(path)(torch.ones(2))
    {'double': tensor([2., 2.])}
    """
    path = os.path.abspath(os.fspath(path))
    try:
        model = ir.load(path)
    except OSError:
        raise
    except Exception as error:  # of a damaged file onnx-ir raises whatever its parts do
        raise OnnxRequestError(f"{Path(path).name} is no ONNX model: {error}") from error
    text = model.metadata_props.get(METADATA_KEY)
    if text is None:
        raise OnnxRequestError(
            f"{Path(path).name} does not say what its arguments are: tintype did not write it",
            remedy="run it with onnxruntime",
        )
    report = Report(model.opset_imports.get("", 0), len(model.graph), len(model.graph.initializers))
    interface = Interface.from_text(text)
    _check_names(interface, model.graph)
    described = model.metadata_props.get(contract.METADATA_KEY)
    program = None if described is None else contract.from_text(described)
    return ONNXProgram(model, interface, program=program, path=path, report=report)


def _check_names(interface: Interface, graph: ir.Graph) -> None:
    """Whether a model has the inputs and outputs that its metadata speak of."""
    inputs = {leaf.name for leaf in interface.inputs} | {new.state for new in interface.new_values}
    outputs = {leaf.name for leaf in interface.outputs} | {new.output for new in interface.new_values}
    outputs |= {check.output for check in interface.checks}
    missing = {*inputs} - {value.name for value in graph.inputs} - {None}
    missing |= {*outputs} - {value.name for value in graph.outputs} - {None}
    if missing:
        raise OnnxRequestError(
            f"the metadata of this model speak of {', '.join(map(str, missing))}, which it has not"
        )
