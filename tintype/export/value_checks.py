"""Whether the values that a graph says its nodes have are those that its operators give: ``program.validate()``.

Passes infer every value, so programs that they make need no such check; an edit by hand may change an operator or an
argument and leave what was known of the result as it was. Each call is run once more on tensors without data, on a
copy of what is known of sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.errors import TintypeError, VerificationError
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import placeholders, subgraph_at
from tintype.ir.printing import describe_value
from tintype.ir.signature import STATE_KINDS
from tintype.ir.verifier import fault
from tintype.symbolic import Expr
from tintype.trace.origin import OriginTracker
from tintype.trace.recorder import Recorder
from tintype.trace.varying_arguments import called
from tintype.transforms.working_copy import WorkingCopy, translated

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram


def check_values(program: ExportedProgram) -> None:
    """Raise a VerificationError where a value, a weight or a constant is not what the graph says."""
    _check_state(program)
    checker = _Checker(program)
    session, checker.context.session = checker.context.session, checker.recorder
    try:
        for node in program.graph.nodes:
            checker.check(node)
    finally:
        checker.recorder.stop_watching()
        checker.context.session = session


def _check_state(program: ExportedProgram) -> None:
    held = {**program.state_dict, **program.constants}
    for node, spec in zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True):
        value, tensor = node.meta.get("val"), held.get(str(spec.target))
        if spec.kind not in STATE_KINDS or type(value) is not FakeTensor or not isinstance(tensor, torch.Tensor):
            continue
        if (tuple(value.shape), value.dtype) != (tuple(tensor.shape), tensor.dtype):
            raise VerificationError(
                f"the graph takes {spec.target} as {describe_value(value)}, but the program has "
                f"{describe_value(tensor)} under that name",
                remedy="program.with_state() checks what it is given",
            )


class _Checker:
    """Runs the calls of a graph on tensors without data, one by one."""

    def __init__(self, program: ExportedProgram) -> None:
        self.working_copy = WorkingCopy(program.context)
        self.context = self.working_copy.context
        self.recorder = Recorder(self.context, Graph(), OriginTracker([]))

    def check(self, node: Node) -> None:
        """Raise a fault where a node's value is not what its operator gives."""
        if node.op == "get_attr" and subgraph_at(node) is None:
            raise fault(node, f"{node.target} is no weight of the program, whose state are its inputs")
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return
        inputs = {argument: argument.meta.get("val") for argument in node.all_input_nodes}
        if not any(isinstance(value, torch.Tensor) for value in inputs.values()):
            return  # what is made of nothing hangs on what was the default then
        wanted = node.meta.get("val")
        if not all(type(value) is FakeTensor for value in _tensors((wanted, *inputs.values()))):
            return
        given = self._given(node, inputs)
        if given is not None and not self._alike(wanted, given):
            raise fault(
                node,
                f"{node.name!r} says that it is {describe_value(wanted)}, but {node.target} gives "
                f"{describe_value(given)}",
            )

    def _given(self, node: Node, inputs: dict[Node, Any]) -> Any:
        """What an operator gives; None where only a capture could tell."""
        target: Any = node.target
        own = {argument: self._own(argument, value) for argument, value in inputs.items()}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), own.__getitem__)
        try:
            return self.recorder.unrecorded(lambda: called(self.recorder, target, args, kwargs))[0]
        except TintypeError:
            return None
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise fault(node, f"{target} can't be called so: {str(error).partition(chr(10))[0]}") from error

    def _own(self, node: Node, value: Any) -> Any:
        """A node's value for a call. A tensor stands for that node, from which known data are worked out: the one it
        was recorded as may be gone."""
        translation = self.working_copy.translation
        if translation is not None:
            value = translated(value, self.context, translation)
        return make_fake(value.info, self.context, node) if type(value) is FakeTensor else value

    def _alike(self, wanted: Any, given: Any) -> bool:
        if isinstance(wanted, torch.Tensor) != isinstance(given, torch.Tensor):
            return False
        if isinstance(wanted, (tuple, list)) and isinstance(given, (tuple, list)):
            return len(wanted) == len(given) and all(map(self._alike, wanted, given))
        if type(wanted) is not FakeTensor or type(given) is not FakeTensor:
            return True
        one, other = wanted.info, given.info
        return (
            one.dtype is other.dtype
            and len(one.sizes) == len(other.sizes)
            and all(map(self._same_in_the_example, one.sizes, other.sizes))
        )

    def _same_in_the_example(self, one: Any, other: Any) -> bool:
        """Sizes are the same if they are so in the example; those that the data decide may be anything."""
        values = [self.context.environment.hint(size) if isinstance(size, Expr) else size for size in (one, other)]
        return None in values or values[0] == values[1]


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _tensors(value) if isinstance(value, (tuple, list)) else [value] * isinstance(value, torch.Tensor)
    return found
