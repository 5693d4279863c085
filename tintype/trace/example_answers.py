"""Answers to questions about data from the example that a program is captured with.

A capture has no data; what a program asks of them it refuses. A draft (:mod:`tintype.export.draft`) asks the example
instead: the graph that is there so far is run for real, on copies of the inputs and of the model's state. The program
asserts every such answer, and the draft's report names it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import Location, UnsupportedOperatorError
from tintype.fake.info import TensorInfo
from tintype.fake.tensor import FakeTensor, describe
from tintype.ir.graph import append_call, meta_of, subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.ir.running import call_node
from tintype.symbolic import Expr
from tintype.symbolic.evaluation import evaluate
from tintype.symbolic.location import user_location
from tintype.trace.findings import Finding

if TYPE_CHECKING:
    from tintype.trace.calls import Call
    from tintype.trace.capture import Capture

aten = torch.ops.aten


class Decision(Finding):
    """Something that was decided by the example: what it is about, the line, and what to do in order to decide it."""


class ExampleAnswers:
    """The data of the example, as far as the program has come; ``decisions`` gets what was asked."""

    def __init__(self, capture: Capture, decisions: list[Decision]) -> None:
        self._capture = capture
        self._graph = capture.graph
        self._values: dict[Node, Any] = {}
        self._leaves: dict[str, Any] | None = None
        self.decisions = decisions
        # operators that were run for their results, by name
        self.profiled: set[Any] = set()

    # --- questions -----------------------------------------------------------------------------------------

    def number(self, expression: Any, location: Location | None) -> Any:
        """What an expression over numbers from data is for the example; the program will assert it."""
        recorder = self._capture.recorder
        values = {
            symbol: self._value(recorder.number_node(symbol)) if symbol.hint is None else symbol.hint
            for symbol in expression.symbols
        }
        answer = evaluate(expression, values)
        shown = recorder.context.environment.simplify(expression)
        holds = (
            f"{shown} is {answer}" if expression.kind != "bool" else f"{shown} {'holds' if answer else 'does not'}"
        )
        self._decide(
            "data-dependent",
            f"the data decide: {holds} for the example, which the program asserts",
            location,
            "promise it with torch._check, or compute both ways and choose with torch.where or tintype.cond",
        )
        return answer

    def truth(self, question: str, condition: FakeTensor) -> bool:
        """Whether a condition in a tensor holds for the example; the program asserts that."""
        answer = bool(self._value(condition.node))
        self._decide(
            "data-dependent",
            f"{question}: the example says {answer}, which the program asserts",
            user_location(),
            "choose between values with torch.where, or tintype.cond",
        )
        message = f"a draft rests on the example, for which this was {answer}: {question}"
        self._assert(condition, answer, message)
        return answer

    def data(self, fake: FakeTensor, purpose: str) -> torch.Tensor:
        """The data of a tensor; the program asserts that they are the example's."""
        value = self._value(fake.node)
        self._decide(
            "data-dependent",
            f"the program asks for the data of a tensor ({purpose}): the example's, as the program asserts",
            user_location(),
            "compute with torch operators, or wrap the code into a custom operator",
        )
        recorder = self._capture.recorder
        same = recorder.inside(lambda: torch.all(torch.eq(fake, recorder.constant(value))))
        self._assert(same, True, f"a draft rests on the data of the example ({purpose})")
        return value

    def results(self, call: Call, reason: str) -> Any:
        """What an operator without a fake kernel returns for the example; the program asserts sizes and dtypes."""
        given = torch.fx.node.map_arg((tuple(call.nodes), call.kwarg_nodes), self._value)
        with self._capture.recording.suspended(), torch.no_grad():
            results = call.operator(*given[0], **given[1])
        _refuse_nested(call.operator, results)
        self.profiled.add(call.operator)
        self._decide(
            "missing-fake-kernel",
            f"{call.operator} has no fake kernel ({reason}): its results are like those that it has for the example, "
            "which the program asserts",
            user_location(),
            f"register one: torch.library.register_fake({call.operator.name()!r}, ...)",
        )
        return tree.map_leaves(lambda value: describe(value) if isinstance(value, torch.Tensor) else value, results)

    def _decide(self, kind: str, text: str, location: Location | None, remedy: str) -> None:
        decision = Decision(kind, text, location, remedy)
        if decision not in self.decisions:
            self.decisions.append(decision)

    def _assert(self, condition: FakeTensor, answer: bool, message: str) -> None:
        recorder = self._capture.recorder
        held = condition if answer else recorder.record(aten.logical_not.default, condition)
        recorder.record(aten._assert_async.msg, held, message)

    # --- the run -------------------------------------------------------------------------------------------

    def _value(self, wanted: Any) -> Any:
        """The value of a node: the graph is run as far as it is there."""
        if not isinstance(wanted, Node) or wanted in self._values:
            return self._values.get(wanted, wanted) if isinstance(wanted, Node) else wanted
        with self._capture.recording.suspended(), torch.no_grad():
            for node in self._graph.nodes:
                if node in self._values:
                    continue
                if node.op == "placeholder":
                    self._values[node] = self._given(node)
                elif node.op == "get_attr":
                    self._values[node] = subgraph_at(node)
                else:
                    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
                    self._values[node] = call_node(node, args, kwargs)
        return self._values[wanted]

    def _given(self, node: Node) -> Any:
        """A copy of what the example, or the model, has for an input."""
        if self._leaves is None:
            capture = self._capture
            names = [spec.arg.name for spec in capture.input_specs]
            self._leaves = dict(zip(names, tree.leaves((capture.args, capture.kwargs)), strict=True))
        if node.name in self._leaves:
            value = self._leaves[node.name]
        else:
            value = self._capture.recorder.source_of(node.meta["val"])
        return value.detach().clone() if isinstance(value, torch.Tensor) else value


def assert_profiles(graph: Graph, profiled: set[Any]) -> None:
    """Let a program check what operators return whose results were taken from the example."""
    for node in list(graph.nodes):
        if node.target in profiled:
            items = [user for user in node.users if user.target is operator.getitem]
            for result in (node, *items):
                value = result.meta.get("val")
                if type(value) is FakeTensor:
                    _assert_metadata(graph, result, value.info, meta_of(node))


def _assert_metadata(graph: Graph, result: Node, info: TensorInfo, reason: NodeMeta) -> None:
    if any(isinstance(number, Expr) for number in (*info.sizes, *info.strides)):
        return  # sizes of a result that was profiled are plain
    arguments = (result, list(info.sizes), list(info.strides), info.dtype)
    with graph.inserting_after(result):
        call = append_call(graph, aten._assert_tensor_metadata.default, arguments, {}, "_assert_tensor_metadata")
    call.meta = NodeMeta({"val": None}, reason.origin)


__all__ = ["Decision", "ExampleAnswers", "assert_profiles"]


def _refuse_nested(called: Any, results: Any) -> None:
    """Refuse nested tensors of the strided layout, which have no sizes that anybody could describe."""
    if any(isinstance(value, torch.Tensor) and value.is_nested for value in tree.leaves(results)):
        raise UnsupportedOperatorError(
            f"{called} makes a nested tensor of the strided layout, which a program can't hold",
            location=user_location(),
            remedy="make a jagged one: layout=torch.jagged",
        )
