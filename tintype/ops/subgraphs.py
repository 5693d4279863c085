"""What the operators that take functions have in common: recording those functions, and the call itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype import tree
from tintype.errors import CaptureError, TintypeError, UnsupportedOperatorError
from tintype.fake.info import Storage, TensorInfo, fresh
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import (
    append_call,
    append_graph,
    append_item,
    base_name,
    eliminate_dead_code,
    graph_module,
    meta_of,
    set_meta,
)
from tintype.ir.node_info import NodeMeta
from tintype.ir.printing import describe_value
from tintype.ir.regions import GRAD_MODES
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.environment import Assertion, Environment, Guard
from tintype.symbolic.expression import Expr, Symbol
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import user_location
from tintype.symbolic.ranges import Range
from tintype.trace.conversions import settle_conversions
from tintype.trace.inner import InnerRecorder, refuse_escaped_tensors
from tintype.trace.plan import OPERATOR_OF
from tintype.trace.recorder import Recorder, active_recorder
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.joint_layouts import settle_transformed
from tintype.transforms.regions import dissolve_regions_inside

aten = torch.ops.aten

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class FailingFunctionError(CaptureError):
    """A function that an operator takes raises for the example's sizes; in eager mode it may never be called."""


class Body:
    """A function being recorded: its inputs first, then the call, then the finished graph."""

    def __init__(self, recorder: Recorder, title: str) -> None:
        self.recorder = recorder
        self.title = title
        self.inner = InnerRecorder(recorder)
        self.environment: Environment = recorder.context.environment
        self.leaves: list[Any] = []
        self.spec: tree.TreeSpec
        # what it rests on
        self.conditions: list[Expr] = []
        # of sizes that have symbols which only this function knows: their ranges
        self.private: dict[Expr, Range] = {}
        # the positions of results that were laid out anew
        self.copied: set[int] = set()

    def operand(self, value: Any) -> Any:
        """An input for a value of the program around; numbers and other constants are no inputs."""
        is_value = isinstance(value, torch.Tensor) or (
            isinstance(value, SYMBOLIC) and isinstance(from_torch(value), Expr)
        )
        return self.inner.add_operand(value) if is_value else value

    def run(
        self, function: Callable[..., Any], args: Sequence[Any], *, always: bool = False, by_sizes: bool = False
    ) -> None:
        """Call the function. What it decides about sizes is asserted in its own graph and forgotten outside.

        Where the program ``always`` calls the function, what it decides about sizes of the program is decided for the
        program. Where it is called ``by_sizes``, those that the function is for are nobody's promise.
        """
        before, fixed_before = len(self.environment.symbols), len(self.environment.fixed_inside)
        kept: list[Guard | Assertion] = []
        with self.environment.branch():
            try:
                self.leaves, self.spec = self.inner.call_function(function, args)
            except Exception as error:
                del self.environment.fixed_inside[fixed_before:]
                if always or isinstance(error, (TintypeError, Word)):
                    raise
                # in eager mode it may never have been called
                raise FailingFunctionError(
                    f"{self.title} fails: {type(error).__name__}: {error}",
                    location=user_location(),
                    remedy="let it work for the sizes and layouts of the example: all functions are captured, those "
                    "of branches that are not taken and of loops without a step, too",
                ) from error
            for leaf in self.leaves:
                _check_leaf(leaf, self.title)
                if isinstance(leaf, SYMBOLIC):
                    # here, where all functions of the operator still come to have the same inputs: a number from
                    # around that is only returned is one of them too
                    self.inner.result_node(leaf)
            self.environment.settle_failures()
            self.conditions = [condition for condition, _ in self.environment.conditions_of_branch()]
            if self.environment.symbols:
                new = set(list(self.environment.symbols.values())[before:])
                if always:
                    kept = [*self.environment.guards, *self.environment.assertions]
                    kept = [fact for fact in kept if new.isdisjoint(fact.condition.symbols)]
                known = {fact.condition for fact in kept}
                conditions = [entry for entry in self.environment.conditions_of_branch() if entry[0] not in known]
                self._assert(conditions, new)
                self._note_private(new)
        if always or by_sizes:
            del self.environment.fixed_inside[fixed_before:]
        for fact in kept:
            self.environment.expect(fact.condition, fact.message, location=fact.location)

    def _assert(self, conditions: Sequence[tuple[Expr, str]], new: set[Symbol]) -> None:
        """Assert what the function rests on; sizes from around that no input tells become inputs for that."""
        writer = AssertionWriter(self.inner.graph, self.environment)
        symbols = {symbol: None for condition, _ in conditions for symbol in condition.symbols}
        missing = [symbol for symbol in symbols if symbol not in new and not writer.numbers.is_computable(symbol)]
        for symbol in missing:
            self.inner.add_operand(to_torch(symbol))
        if missing:
            writer = AssertionWriter(self.inner.graph, self.environment)
        writer.write(conditions)

    def _note_private(self, new: set[Symbol]) -> None:
        for leaf in self.leaves:
            numbers = [] if leaf is None else leaf.info.sizes if type(leaf) is FakeTensor else [from_torch(leaf)]
            for number in numbers:
                if isinstance(number, Expr) and not new.isdisjoint(number.symbols):
                    self.private[number] = self.environment.range(number)

    def returned(self, value: Any) -> Any:
        """A value as a result of the function, after it has run; a function makes it now."""
        if callable(value) and not isinstance(value, torch.Tensor):
            return self.inner.inside(value)
        if isinstance(value, torch.Tensor):
            return self.inner.own(value)
        if isinstance(value, SYMBOLIC):
            self.inner.result_node(value)
        return value

    def lay_out(self, index: int) -> None:
        """Make a result contiguous in memory, with all values as they are stored."""
        leaf = self.leaves[index]
        if leaf.info.conjugate or leaf.info.negative:
            self.copied.add(index)
            leaf = self.leaves[index] = self._copied(lambda: leaf.resolve_conj().resolve_neg())
        if not leaf.info.is_contiguous():
            self.copy(index)

    def lay_out_all(self) -> None:
        """Make all results contiguous."""
        for index, leaf in enumerate(self.leaves):
            if type(leaf) is FakeTensor:
                self.lay_out(index)

    def copy(self, index: int) -> None:
        """Let a result be a contiguous copy of what the function returned."""
        leaf = self.leaves[index]
        self.copied.add(index)
        self.leaves[index] = self._copied(lambda: aten.clone.default(leaf, memory_format=torch.contiguous_format))

    def _copied(self, copy: Callable[[], FakeTensor]) -> FakeTensor:
        """A copy of a result, with its history where the function as a whole runs below ``no_grad``, too."""
        last = self.inner.graph._root._prev
        with keeping_history(self.recorder):
            result = self.inner.inside(copy)
        if not self.inner.modes.grad and self.recorder.below_autograd:
            while (last := last._next) is not self.inner.graph._root:
                meta_of(last).region = (GRAD_MODES[True],)
        return result

    def take(self, operands: Sequence[Any]) -> None:
        """Have inputs for further values of the program around, though nothing uses them."""
        for value in operands:
            self.inner.add_operand(value)

    def finish(self) -> GraphModule:
        """The graph, with its outputs."""
        graph = self.inner.graph
        graph.output(tuple(self.inner.result_node(leaf) for leaf in self.leaves)).meta = NodeMeta()
        settle_conversions(self.inner.conversions)
        settle_transformed(graph)
        if not self.inner.outermost.below_autograd:  # whose gradients are recorded, from this graph too
            dissolve_regions_inside(graph, self.inner.context)
        eliminate_dead_code(graph)
        refuse_escaped_tensors(graph)
        return graph_module(graph, "Subgraph")


def _check_leaf(leaf: Any, title: str) -> None:
    if leaf is None or isinstance(leaf, (FakeTensor, *SYMBOLIC, int, float, bool)):
        return
    raise CaptureError(
        f"{title} returns a {type(leaf).__name__}, but only tensors, numbers and None can be returned there",
        location=user_location(),
    )


@contextlib.contextmanager
def keeping_history(recorder: Recorder | None = None) -> Iterator[None]:
    """For copies that an operator makes of values that are what they were in eager mode: below ``no_grad`` they keep
    the history that they have. Where autograd itself records, nothing has one there."""
    if torch.is_grad_enabled() or not (recorder is None or recorder.below_autograd):
        yield
        return
    with torch.enable_grad():
        yield


@contextlib.contextmanager
def set_aside(recorder: Recorder) -> Iterator[None]:
    """Run with a recorder taken off the stack that it is on top of, as while it handles an operator."""
    torch._C._pop_torch_dispatch_stack(None)
    try:
        yield
    finally:
        torch._C._push_on_torch_dispatch_stack(recorder)


def captured(capture: Callable[..., Any], run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an operator: captured where a program is being captured, else run."""
    recorder = active_recorder()
    if recorder is None:
        return run(*args, **kwargs)
    transform = torch._C._functorch.peek_interpreter_stack()
    if transform is not None:
        if transform.key() != torch._C._functorch.TransformType.Vmap:
            raise UnsupportedOperatorError(
                f"{OPERATOR_OF[capture].name()} can't be captured inside of torch.func's grad, vjp or jvp",
                location=user_location(),
                remedy="choose with torch.where there, or use tintype.export_joint for gradients",
            )
        return OPERATOR_OF[capture](*args, **kwargs)  # torch.vmap's rule for the operator, or ours
    recorder.follow_modes()
    if isinstance(recorder, InnerRecorder):
        args = recorder.localize(args)  # inside of a function it may be called with what is around that
    with set_aside(recorder):
        return capture(recorder, *args, **kwargs)


def is_decided_against(recorder: Recorder, pred: Any, answer: bool) -> bool:
    """Whether the sizes of the example decide against the answer for which a function is called that can't be
    captured for them. As for an ``if``, the program is then for such sizes alone."""
    if isinstance(pred, torch.Tensor):
        return False
    environment = recorder.context.environment
    condition = from_torch(pred) if isinstance(pred, torch.SymBool) else pred
    hint = environment.hint(condition)
    if hint is None or bool(hint) is answer:
        return False
    environment.guard(condition)
    return True


def operand_nodes(recorder: Recorder, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Values of a recorder's graph as arguments of a node."""
    return tuple(_operand_node(recorder, value) for value in operands)


def _operand_node(recorder: Recorder, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (recorder.as_fake(value)).node
    if isinstance(value, SYMBOLIC):
        number = from_torch(value)
        return recorder.number_node(number) if isinstance(number, Expr) else number
    return value


def graph_node(recorder: Recorder, stem: str, subgraph: GraphModule, separator: str = "_") -> Node:
    """The reference to a graph, under the next free name of its kind."""
    return append_graph(recorder.graph, recorder.graph_name(stem, separator), subgraph)


def record_call(recorder: Recorder, target: Any, args: tuple[Any, ...], results: Sequence[Any]) -> list[Any]:
    """Record a call; ``results`` describes them: infos of tensors, numbers, or values known already."""
    name = base_name(target)
    origin = recorder.origin_of(name)
    node = append_call(recorder.graph, target, args, {}, name)
    values: list[Any] = []
    for index, result in enumerate(results):
        if type(result) is TensorInfo:
            fake = make_fake(result, recorder.context)
            fake.node = append_item(recorder.graph, node, index, NodeMeta({"val": fake}, origin))
            recorder.numbers.define_sizes(fake.node, result.sizes)
            values.append(fake)
        elif isinstance(result, Symbol) and result.hint is None:
            item = append_item(recorder.graph, node, index, NodeMeta({"val": to_torch(result)}, origin))
            recorder.numbers.define(result, item)
            values.append(to_torch(result))
        else:
            values.append(to_torch(result) if isinstance(result, Expr) else result)
    set_meta(node, NodeMeta({"val": tuple(values)}, origin))
    if recorder.context.environment.symbols:
        recorder.watch_functions()
    return values


def alias_storage(body: Body, leaf: FakeTensor) -> Storage | None:
    """The memory of a result that lies in an operand's: nobody may write to it, since eager mode would write to the
    operand too. None for a result with memory of its own."""
    sources = body.inner.shared_with(leaf)
    return Storage(frozen=True, source=sources[0], others=sources[1:]) if sources else None


def results_of(body: Body) -> list[Any]:
    """The results of an operator that calls one function once, as :func:`record_call` takes them. Numbers that only
    the function knows are numbers of the program around that are known when it runs."""
    known: dict[Expr, Symbol] = {}

    def outside(number: Any) -> Any:
        if number not in body.private:
            return number
        if number not in known:
            bounds = body.private[number] if number.kind == "int" else None
            known[number] = next_number(body.environment, number.kind, bounds)
        return known[number]

    storages = [leaf.info.storage for leaf in body.leaves if type(leaf) is FakeTensor]
    results: list[Any] = []
    for index, leaf in enumerate(body.leaves):
        if type(leaf) is FakeTensor:
            together = storages.count(leaf.info.storage) > 1
            results.append(_result_tensor(body, index, outside, together=together))
        else:
            results.append(outside(from_torch(leaf)) if isinstance(leaf, SYMBOLIC) else leaf)
    return results


def _result_tensor(body: Body, index: int, outside: Callable[[Any], Any], *, together: bool) -> TensorInfo:
    """The description of a result; one that shares memory with another result may not be written to."""
    leaf = body.leaves[index]
    sizes = tuple(outside(size) for size in leaf.info.sizes)
    storage = alias_storage(body, leaf) or (Storage(frozen=True) if together else None)
    if sizes != leaf.info.sizes or leaf.info.conjugate or leaf.info.negative:
        body.lay_out(index)
        info = fresh(sizes, leaf.info.dtype, leaf.info.device)
    else:
        info = leaf.info.with_storage(None)
        info.offset = 0
    info.storage = storage  # type: ignore[assignment]
    info.requires_grad = leaf.info.requires_grad
    return info


def mark_writes(recorder: Recorder, bodies: Sequence[Body]) -> None:
    """Note which values of the program around the recorded functions write to."""
    for body in bodies:
        for outer, inner in body.inner.storages.items():
            if inner.written:
                recorder.mark_written([outer])


def next_number(environment: Environment, kind: str, bounds: Range | None = None) -> Symbol:
    """A number that is only known when the program runs."""
    if kind == "bool":
        return environment.unbacked_bool()
    if kind == "float":
        return environment.unbacked_float()
    if bounds is None or not bounds.is_bounded:
        lower = None if bounds is None or bounds.lower == -float("inf") else int(bounds.lower)
        return environment.unbacked_int(lower=lower)
    return environment.unbacked_int(lower=int(bounds.lower), upper=int(bounds.upper))


def described(leaf: Any) -> str:
    """A value that a function takes or returns, in words."""
    if type(leaf) is FakeTensor:
        return f"{describe_value(leaf)} on {leaf.info.device}"
    return f"{type(leaf).__name__} {leaf}"


def kind_of(value: Any) -> str:
    """What sort of number a value is."""
    if isinstance(value, Expr):
        return value.kind
    return "bool" if isinstance(value, bool) else "float" if isinstance(value, float) else "int"
