"""An ONNX program beside the program it comes from: values, dtypes, shapes and structure, on two sets of sizes.

Where they differ, the values of all nodes are compared in order: the first that differs names the operator
and the line.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.errors import TintypeError
from tintype.export.program import ExportedProgram
from tintype.ir.graph import location_of, subgraphs
from tintype.ir.running import run_graph
from tintype.ir.signature import InputKind
from tintype.onnx.errors import OnnxExportError, OnnxVerificationError
from tintype.onnx.libraries import ir, onnx
from tintype.onnx.other_sizes import other_inputs
from tintype.onnx.report import Comparison
from tintype.onnx.runtime import Session

if TYPE_CHECKING:
    from tintype.onnx.program import ONNXProgram
    from tintype.onnx.translation import GraphTranslator

# How far results may be apart, as a part of each number, and a tenth of that of the largest one among them: kernels
# add in another order.
_TOLERANCES = {
    torch.float64: 1e-6,
    torch.float32: 1e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 8e-2,
    torch.complex64: 1e-3,
    torch.complex128: 1e-6,
}
_ABSOLUTE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def check_model(model: ir.Model) -> None:
    """onnx's own checker, with strict shape inference."""
    proto = ir.to_proto(model)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise OnnxVerificationError(f"onnx's checker refuses the model: {error}") from error


class Verification:
    """One export, compared with its program."""

    def __init__(
        self,
        program: ExportedProgram,
        prepared: ExportedProgram,
        made: ONNXProgram,
        translator: GraphTranslator,
        plain: Callable[[], tuple[ir.Model, Any, GraphTranslator]] | None = None,
    ) -> None:
        self.program = program
        self.prepared = prepared
        self.made = made
        self.translator = translator
        self.plain = plain  # makes the same model without functions, whose nodes can be looked at

    def run(self) -> None:
        """Compare, and note what was compared in the report; raises where they differ."""
        report = self.made.report
        example = self.program.example_leaves
        if example is None:
            report.notes.append("not verified: the program has no example inputs")
            return
        self._compare(example, "the example")
        checks = self.program.input_checks()
        for leaves in other_inputs(checks, example, self.made._state_of):
            try:
                compared = self._compare(leaves, None)
            except OnnxExportError:
                raise
            except TintypeError:
                continue  # the program asserts more than what its contract says
            except (RuntimeError, IndexError, ValueError, AssertionError):
                continue  # operators of the program itself refuse these sizes
            if compared:
                return

    def _compare(self, leaves: Sequence[Any], name: str | None) -> bool:
        args, kwargs = tree.unflatten(_copies(leaves), self.program.call_spec.in_spec)
        module = self.program.module()
        expected = module(*args, **kwargs)  # in the caller's modes, which the program may have asked for
        written = [*tree.flatten((args, kwargs))[0], *module.state().values()]
        given = _copies(leaves)
        args, kwargs = tree.unflatten(given, self.program.call_spec.in_spec)
        self.made.reset()
        got = self.made(*args, **kwargs)
        state = self.made.state()
        self.made.reset()
        names = [tree.path_text(path) or "the result" for path, _ in tree.flatten_with_paths(expected)[0]]
        wanted_leaves, wanted_structure = tree.flatten(expected)
        got_leaves, structure = tree.flatten(got)
        if structure != wanted_structure:
            raise OnnxVerificationError(f"the results have the structure {structure}, not {wanted_structure}")
        by_name = {name: state[name] for name in state}
        pairs = list(zip(names, wanted_leaves, got_leaves))
        pairs += [
            (f"argument {position}", wanted, value)
            for position, (wanted, value) in enumerate(zip(written, [*tree.flatten((args, kwargs))[0]]))
        ]
        pairs += [
            (f"state {name}", wanted, by_name[name]) for name, wanted in module.state().items() if name in by_name
        ]
        largest, where = 0.0, ""
        random = draws_random_numbers(self.prepared)
        for place, wanted, value in pairs:
            problem, difference = compare_values(wanted, value, only_kind=random)
            if problem is not None:
                raise self._difference(leaves, place, problem)
            if difference > largest:
                largest, where = difference, place
        sizes = name or "other sizes"
        shapes = ", ".join(str(list(leaf.shape)) for leaf in leaves if isinstance(leaf, torch.Tensor))
        self.made.report.comparisons.append(Comparison(f"{sizes} ({shapes})", largest, where))
        if random and name is not None:
            self.made.report.notes.append("random numbers are drawn: only dtypes and shapes were compared")
        return True

    def _difference(self, leaves: Sequence[Any], place: str, problem: str) -> OnnxVerificationError:
        """The error for a result that differs, with the first node that does."""
        model, translator = self.made.model, self.translator
        if self.plain is not None:
            model, _, translator = self.plain()
        found = first_difference(self.prepared, model, translator, leaves)
        text = f"the ONNX program differs from the program in {place}: {problem}"
        if found is None:
            return OnnxVerificationError(text, remedy="report this: no single node differs")
        node, detail = found
        if node.target is operator.getitem:  # one of several results
            node = node.args[0]  # type: ignore[assignment]
        return OnnxVerificationError(
            f"{text}\n  first in {node.name} = {node.target}: {detail}",
            location=location_of(node),
            remedy="translations={...} can replace the operator's translation; verify=False passes over it",
        )


def _copies(leaves: Sequence[Any]) -> list[Any]:
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def draws_random_numbers(program: ExportedProgram) -> bool:
    """Whether a program gives other results each time; numbers that nobody looks at make no difference."""
    return any(
        isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and node.users
        and not _is_idle(node)
        for module in subgraphs(program.graph_module)
        for node in module.graph.nodes
    )


def _is_idle(node: Node) -> bool:
    """Whether a dropout drops nothing."""
    name = node.target._schema.name  # type: ignore[union-attr]
    if name == "aten::scaled_dot_product_attention":
        dropped = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return isinstance(dropped, (int, float)) and dropped == 0
    if name in ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"):
        return True
    if name == "aten::rrelu":
        return not (len(node.args) > 3 and node.args[3])
    return name in ("aten::dropout", "aten::native_dropout") and node.args[2] is False


def compare_values(wanted: Any, got: Any, *, only_kind: bool = False) -> tuple[str | None, float]:
    """What is wrong with a value, if anything, and how far it is from the one that is wanted."""
    if not isinstance(wanted, torch.Tensor):
        if type(wanted) is not type(got):
            return f"{got!r} instead of {wanted!r}", math.inf
        same = only_kind or wanted == got
        if isinstance(wanted, float):
            same = same or math.isclose(wanted, got, rel_tol=1e-4) or math.isnan(wanted)
        return (None if same or only_kind else f"{got!r} instead of {wanted!r}"), 0.0
    if not isinstance(got, torch.Tensor):
        return f"{got!r} instead of a tensor", math.inf
    if wanted.dtype is not got.dtype:
        return f"{got.dtype} instead of {wanted.dtype}", math.inf
    if wanted.shape != got.shape and not only_kind:
        return f"sizes {list(got.shape)} instead of {list(wanted.shape)}", math.inf
    if only_kind or wanted.numel() == 0:
        return None, 0.0
    wanted, got = wanted.detach().cpu(), got.detach().cpu()
    if not (wanted.dtype.is_floating_point or wanted.dtype.is_complex):
        count = int((wanted != got).sum())
        return (f"{count} of {wanted.numel()} elements are others" if count else None), 0.0
    return _compare_floats(wanted, got)


def _compare_floats(wanted: torch.Tensor, got: torch.Tensor) -> tuple[str | None, float]:
    dtype = wanted.dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    left, right = wanted.to(wide), got.to(wide)
    if dtype.is_complex:
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    odd = ~torch.isfinite(left)
    same = (left == right) | (left.isnan() & right.isnan())
    if bool((odd & ~same).any()) or bool((~torch.isfinite(right) & ~odd).any()):
        return "infinities or nan are elsewhere", math.inf
    distance = torch.where(odd, 0.0, (left - right).abs())
    largest = float(distance.max())
    scale = float(torch.where(odd, 0.0, left.abs()).max())
    relative = _TOLERANCES.get(dtype, 1e-1)
    allowed = relative * torch.where(odd, 0.0, left.abs()) + 0.1 * relative * scale + _ABSOLUTE.get(dtype, 1e-5)
    differs = bool((distance > allowed).any())
    return (f"by {largest:.3g}, where the largest number is {scale:.3g}" if differs else None), largest


def first_difference(
    prepared: ExportedProgram, model: ir.Model, translator: GraphTranslator, leaves: Sequence[Any]
) -> tuple[Node, str] | None:
    """The first node of a program whose value the ONNX model computes otherwise, and how."""
    values = _interpreted(prepared, leaves)
    watched: dict[Node, ir.Value] = {}
    for node, value in translator.values.items():
        if (
            isinstance(value, ir.Value)
            and value.producer() is not None
            and isinstance(values.get(node), torch.Tensor)
        ):
            if value.graph is model.graph:
                watched[node] = value
    graph = model.graph
    known = list(graph.outputs)
    extra = [value for value in dict.fromkeys(watched.values()) if not any(value is other for other in known)]
    graph.outputs.extend(extra)
    try:
        session = Session(model, None)
        users = [spec for spec in prepared.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        feeds = {
            spec.arg.name: leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
            for spec, leaf in zip(users, _copies(leaves))
            if spec.arg.name in session.input_dtypes
        }
        outputs = session.run(feeds)
    except OnnxExportError:
        return None
    finally:
        for _ in extra:
            graph.outputs.pop()
    for node in prepared.graph.nodes:
        if node in watched:
            wanted, got = values[node], outputs[watched[node].name or ""]
            if wanted.dtype.is_complex:
                got = torch.view_as_complex(got)
            problem, _ = compare_values(wanted, got)
            if problem is not None:
                return node, problem
    return None


def _interpreted(program: ExportedProgram, leaves: Sequence[Any]) -> dict[Node, Any]:
    """The values of all nodes of a program's graph."""
    held = {**program.state_dict, **program.constants}
    given = iter(_copies(leaves))
    inputs: list[Any] = []
    for spec in program.graph_signature.input_specs:
        state = next(given) if spec.kind is InputKind.USER_INPUT else held[str(spec.target)]
        is_own = spec.kind is not InputKind.USER_INPUT and isinstance(state, torch.Tensor)
        inputs.append(state.detach().clone() if is_own else state)
    values: dict[Node, Any] = {}
    with torch.no_grad():
        run_graph(program.graph, inputs, values=values)
    return values
