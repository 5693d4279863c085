"""The recorder: every operator that a program calls comes here, is worked out on fakes and becomes a node.

Programs run below autograd, so composite operators (linear, layer_norm, ...) arrive whole. What happens to an
operator follows from its :class:`~tintype.trace.plan.Plan`:

* it has a shape rule: the rule gives its results, the call becomes one node;
* it is composite and only computes: its kernel is run on fakes, unrecorded, for the shapes of its results,
  and the call becomes one node;
* it is composite and aliases or writes to its arguments (``reshape``, ``chunk``): its kernel runs recorded,
  so the graph holds the simple views and copies it consists of;
* otherwise torch's meta kernel gives its results.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode

from tintype.errors import TintypeError, UnsupportedInputError, UnsupportedOperatorError
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, append_item, calls_of, meta_of, set_meta
from tintype.ir.node_info import NodeMeta, Origin
from tintype.ir.operator_facts import starts_anew
from tintype.ir.signature import StateWrite
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.location import user_location
from tintype.trace.answers import Answers
from tintype.trace.calls import NOT_HANDLED, Call, NeedsRecordingError
from tintype.trace.expected_failures import may_be_stretched, note_failure
from tintype.trace.function_mode import SymbolicFunctionMode
from tintype.trace.kernels import infer, take_any_layout, worked_out
from tintype.trace.modes import Modes
from tintype.trace.number_methods import number_methods
from tintype.trace.numbers import Numbers
from tintype.trace.observing import Observer
from tintype.trace.odd_results import plain_item, plain_result
from tintype.trace.origin import OriginTracker, program_steps
from tintype.trace.plan import PLANS, Plan, plan_for
from tintype.trace.sparse.tensor import MeetsSparse, call_sparse
from tintype.trace.subclasses import call_by_subclass
from tintype.trace.views_or_copies import MadeContiguous, NotedCalls
from tintype.trace.written_sizes import as_sequence, flat_infos, must_grow
from tintype.tree.sparse import is_sparse
from tintype.tree.subclasses import is_wrapper

if TYPE_CHECKING:
    from tintype.trace.example_answers import ExampleAnswers
    from tintype.trace.recording import Recording

aten = torch.ops.aten
_detach = aten.detach.default  # where histories end

_PLAIN = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_push = torch._C._push_on_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack
_below_autograd = torch._C._AutoDispatchBelowADInplaceOrView
_is_grad_enabled = torch.is_grad_enabled


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A recorded conversion that changed nothing: its result, its argument, its node, and the memory of both."""

    result: FakeTensor
    source: FakeTensor
    node: Node
    storage: Storage


class Recorder(Answers, TorchDispatchMode):
    """Records one program into one graph."""

    supports_higher_order_operators = True
    takes_no_rules = True  # of torch's, for modes of a class: see tintype.ir.process_switches
    # programs run below autograd; where they don't (joint graphs), gradients are autograd's business alone
    below_autograd = True
    # whether a conversion that changes nothing is recorded, so that the program can be moved to another device
    keeps_conversions = True
    # calls that are a view or a copy, where autograd takes them apart and somebody wants to know
    noted_calls: NotedCalls | None = None
    # answers from the example, where the capture is a draft
    example: ExampleAnswers | None = None
    is_inside = False  # of the graph of another recorder
    is_in_kernel = False  # whether a class of tensors is at work below autograd
    # whether results are described by as few symbols as there need to be
    uses_equalities = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch would wrap every operator call to keep dynamo out of it; nothing here uses dynamo
        return False

    def __init__(
        self,
        context: FakeContext,
        graph: Graph,
        origins: OriginTracker,
        *,
        lift_constant: Callable[[Any], Any] | None = None,
        is_taken: Callable[[str], bool] | None = None,
        is_for_training: bool = False,
    ) -> None:
        super().__init__()
        self.context = context
        self.graph = graph
        self.numbers = Numbers(graph)
        self._calls_of: dict[int, dict[Node, None]] = {}  # by the ids of operators, which live for good
        self.origins = origins
        self.problems: list[TintypeError] = []
        # while a retraced program runs, its nodes' origins stand in for the call stack
        self.replayed: NodeMeta | None = None
        # then dropout that drops nothing is recorded, and state is written to as autograd sees it
        self.is_for_training = is_for_training
        # whether a branch on data ends the capture at once; else it goes on, to find other problems
        self.stops_at_branches = False
        self._recording, self._met_by_autocast = True, False
        self._written: list[Storage] | None = None
        self._lifted: dict[int, tuple[Any, FakeTensor]] = {}
        self._reals: dict[int, torch.Tensor] = {}  # the same the other way round, made when it is asked for
        self.lift_constant = lift_constant or _refuse_constant
        self.constant_inputs: dict[Node, torch.Tensor] = {}
        self.modes = Modes(torch.is_grad_enabled())
        # state that gets its new value in another way than by a write that autograd sees
        self.state_writes: dict[torch.Tensor, StateWrite] = {}
        self.function_mode: SymbolicFunctionMode | None = None
        self._helped = ExitStack()
        # whether something else of the program has a name that a graph inside of it is to have
        self.is_taken = is_taken or (lambda name: False)
        # inputs whose geometry was changed, where that is possible: tensor, operator, arguments
        self.geometry_changes: list[tuple[FakeTensor, Any, tuple[Any, ...]]] = []
        self._graph_counts: dict[str, int] = {}
        # functions that were recorded into graphs inside of this one, by what their calls have in common
        self.regions: dict[Any, Any] = {}
        # lists of rows whose number varies, and such rows as one tensor again; see tintype.trace.tensor_rows
        self.rows: list[weakref.ref[Any]] = []
        self.kept: list[Any] = []  # what must live as long as the recorder does
        self.conversions: list[Conversion] = []  # those that changed nothing; see tintype.trace.conversions
        self.made_contiguous: list[MadeContiguous] = []
        self.same_if_empty: list[tuple[FakeTensor, FakeTensor]] = []  # arguments that eager mode returns then
        self.observer = Observer()
        # what this is part of, for who wants to suspend it
        self.recording: Recording | None = None

    # --- entry ---------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            if kind is not FakeTensor and is_wrapper(kind):
                return call_by_subclass(self, func, types, args, kwargs)
        modes, entered = self.modes, self.modes.around or self.modes.entered
        if modes.region or entered or entered.gradients != modes.seen or _is_grad_enabled() is not modes.gradients:
            self.follow_modes()
            if not self._recording and modes.casts(func):
                self._met_by_autocast = True
        plan = PLANS.get(id(func)) or plan_for(func)
        try:
            if plan.is_plain and not (modes.entered and plan.composite):
                return self.call(func, plan, args, kwargs)
            return self._handle(func, plan, args, kwargs)
        except MeetsSparse:
            return call_sparse(self, func, args, kwargs)
        except Exception as error:
            if not plan.writes and may_be_stretched(self, error, args):
                with self.context.environment.following_hints():
                    return self._handle(func, plan, args, kwargs)
            note_failure(self, error, args, kwargs)
            raise

    def _handle(self, func: Any, plan: Plan, args: Any, kwargs: dict[str, Any]) -> Any:
        intercept = plan.intercept
        if intercept is not None:
            result = intercept(self, func, args, kwargs)
            if result is not NOT_HANDLED:
                return result
        if plan.rule is None and plan.composite and (plan.writes or plan.aliases):
            return self.expand(func, args, kwargs)
        if self.modes.entered and plan.composite and self._casts_inside(func, plan, args, kwargs):
            return self.expand(func, args, kwargs)
        return self.call(func, plan, args, kwargs)

    def call(self, func: Any, plan: Plan, args: Any, kwargs: dict[str, Any]) -> Any:
        """Work an operator out and record it as one node."""
        infos, nodes = self.convert(args)
        kwarg_infos: dict[str, Any] = {}
        kwarg_nodes: dict[str, Any] = {}
        if kwargs:
            values, value_nodes = self.convert(kwargs.values())
            kwarg_infos = dict(zip(kwargs, values, strict=True))
            kwarg_nodes = dict(zip(kwargs, value_nodes, strict=True))
        if plan.writes:
            return self._write(Call(func, plan, args, kwargs, infos, nodes, kwarg_infos, kwarg_nodes))
        results = None
        if plan.rule is not None:
            try:
                results = plan.rule(*infos, **kwarg_infos)
            except NotImplementedError:
                results = infer(self, Call(func, plan, args, kwargs, infos, nodes, kwarg_infos, kwarg_nodes))
        elif not plan.returns_nothing:
            results = infer(self, Call(func, plan, args, kwargs, infos, nodes, kwarg_infos, kwarg_nodes))
        if results is NOT_HANDLED:
            return self.expand(func, args, kwargs)
        if plan.hidden_writes:
            self.mark_written([info.storage for info in plan.hidden_writes_of(infos)])
        grad = self.modes.gradients and func is not _detach and _any_requires_grad(infos)
        if type(results) is TensorInfo:
            if results.storage is not None:
                for info, given in zip(infos, args, strict=True):
                    if info is results:  # the operator returned its argument
                        return given
            if grad:
                results.requires_grad = results.dtype.is_floating_point or results.dtype.is_complex
            environment = self.context.environment
            # in a branch that the example does not take, a result would be described by what that branch alone knows
            if environment.facts.replacements and self.uses_equalities and environment.hints_hold:
                results.use_equalities(environment.facts)
            fake = make_fake(results, self.context)
            if self._recording:
                name = plan.name
                meta = NodeMeta(None, self._origin(name))
                meta["val"] = fake
                alike = self._calls_of.get(id(func))
                if alike is None:
                    alike = self._calls_of[id(func)] = calls_of(self.graph, func)
                fake.node = append_call(self.graph, func, tuple(nodes), kwarg_nodes, name, meta, alike)
                if plan.rule is None:
                    self.numbers.define_sizes(fake.node, results.sizes)
            return fake
        return self._record_several(
            Call(func, plan, args, kwargs, infos, nodes, kwarg_infos, kwarg_nodes), results, grad
        )

    @property
    def is_recording(self) -> bool:
        """Whether operators become nodes; else they are run for their results alone."""
        return self._recording

    def follow_modes(self) -> None:
        """Take notice of the modes (gradients, autocast) that the next node is recorded in."""
        if not self.below_autograd:
            self.modes.gradients = _is_grad_enabled()
        elif self._recording:
            self.modes.follow(self.graph)

    def watch_functions(self) -> None:
        """Symbols turned up: from here on, functions that don't take them need help."""
        if self._recording and self.function_mode is None:
            self.function_mode = SymbolicFunctionMode(self)
            torch._C._push_on_torch_function_stack(self.function_mode)
            self._helped.enter_context(number_methods())

    def stop_watching(self) -> None:
        """Undo :meth:`watch_functions`."""
        if self.function_mode is not None:
            self._helped.close()
            torch._C._pop_torch_function_stack()
            self.function_mode = None

    def graph_name(self, stem: str, separator: str = "_") -> str:
        """A name for a graph inside of this one: ``true_graph_0``, ``true_graph_1``, ..."""
        while True:
            count = self._graph_counts.get(stem, 0)
            self._graph_counts[stem] = count + 1
            name = f"{stem}{separator}{count}"
            if not self.is_taken(name):
                return name

    # --- arguments -----------------------------------------------------------------------------------------

    def convert(self, values: Any) -> tuple[list[Any], list[Any]]:
        """Arguments twice: as shape rules take them, and as graph nodes take them."""
        infos: list[Any] = []
        nodes: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                infos.append(value.info)
                nodes.append(value.node)
            elif kind in _PLAIN:
                infos.append(value)
                nodes.append(value)
            elif kind in _SYMBOLIC:  # before all that it is not, which it is slow to tell
                number = from_torch(value)
                infos.append(number)
                nodes.append(self.number_node(number) if isinstance(number, Expr) else number)
            elif isinstance(value, (list, tuple)):
                inner_infos, inner_nodes = self.convert(value)
                infos.append(inner_infos)
                nodes.append(inner_nodes)
            elif isinstance(value, torch.Tensor):
                fake = self.fake_of(value)
                infos.append(fake.info)
                nodes.append(fake.node)
            elif isinstance(value, torch.Generator):
                raise UnsupportedInputError(
                    "a torch.Generator was passed to an operator; a captured program can't hold one",
                    location=user_location(),
                    remedy="draw from the global generator (torch.manual_seed) inside of the program",
                )
            elif isinstance(value, torch.ScriptObject):
                infos.append(value)
                nodes.append(self.lift_constant(value))
            else:
                infos.append(value)
                nodes.append(value)
        return infos, nodes

    def fake_of(self, real: torch.Tensor) -> FakeTensor:
        """The fake that stands for a tensor of the model, or for a constant that turned up."""
        if not isinstance(real, torch.Tensor):  # operators take numbers in place of tensors
            return self.record(aten.scalar_tensor.default, real, dtype=torch.result_type(real, real))
        known = self._lifted.get(id(real))
        if known is None:
            if is_sparse(real):
                raise MeetsSparse
            fake = self.lift_constant(real)
            self._lifted[id(real)] = known = (real, fake)
        return known[1]

    def as_fake(self, tensor: Any) -> FakeTensor:
        """A tensor, or what an operator takes for one, as a fake."""
        return tensor if type(tensor) is FakeTensor else self.fake_of(tensor)

    def is_lifted(self, real: torch.Tensor) -> bool:
        """Whether there is a fake that stands for a real tensor."""
        return id(real) in self._lifted

    def constant(self, tensor: torch.Tensor) -> FakeTensor:
        """The fake that stands for a tensor that the program made from Python numbers."""
        return self.fake_of(tensor)

    def bind(self, real: torch.Tensor, fake: FakeTensor) -> None:
        """Let a fake stand for a real tensor."""
        self._lifted[id(real)] = (real, fake)

    def source_of(self, fake: FakeTensor) -> torch.Tensor:
        """The tensor of the model that a fake stands for; the fake itself if it stands for none."""
        if len(self._reals) != len(self._lifted):
            self._reals = {id(known): real for real, known in self._lifted.values()}
        return self._reals.get(id(fake), fake)

    def number_node(self, number: Expr) -> Node:
        """The node that computes a symbolic number."""
        if not self._recording:
            return None  # type: ignore[return-value]
        known = self.numbers.known_node(number)
        return known if known is not None else self.numbers.node(number, self._origin("number"))

    # --- results -------------------------------------------------------------------------------------------

    def _record_one(self, call: Call, info: TensorInfo) -> FakeTensor:
        """Record an operator with one new tensor as its result."""
        fake = make_fake(info, self.context)
        if self._recording:
            fake.node = self._append(call, NodeMeta({"val": fake}, self._origin(call.plan.name)))
        return fake

    def _append(self, call: Call, meta: NodeMeta | None = None) -> Node:
        return append_call(self.graph, call.operator, tuple(call.nodes), call.kwarg_nodes, call.plan.name, meta)

    def _record_several(self, call: Call, results: Any, grad: bool) -> Any:
        """Record an operator with several results, some of which may be its arguments."""
        func, node, origin = call.operator, None, None
        if self._recording:
            node = self._append(call)
            origin = self._origin(call.plan.name)
        if results is None:
            if node is not None:
                set_meta(node, NodeMeta({"val": None}, origin))
            return None
        if not isinstance(results, (list, tuple)):
            return plain_result(self, func, node, results, origin)
        fakes = self._record_items(func, node, results, grad, call.given(), origin)
        return fakes if call.plan.returns_list else tuple(fakes)

    def _record_items(
        self, func: Any, node: Node | None, results: Any, grad: bool, arguments: dict[int, Any], origin: Any
    ) -> list[Any]:
        """The results of an operator one by one, as the value of its node."""
        fakes: list[Any] = []
        for index, info in enumerate(results):
            if isinstance(info, list):
                item = None if node is None else append_item(self.graph, node, index, NodeMeta({}, origin))
                fakes.append(self._record_items(func, item, info, grad, arguments, origin))
                continue
            if type(info) is not TensorInfo:
                fakes.append(plain_item(self, func, node, index, info, origin))
                continue
            if id(info) in arguments:
                fakes.append(arguments[id(info)])
                continue
            if grad:  # else a view has the flag of what it is a view of
                info.requires_grad = info.dtype.is_floating_point or info.dtype.is_complex
            fake = make_fake(info, self.context)
            if node is not None:
                fake.node = append_item(self.graph, node, index, NodeMeta({"val": fake}, origin))
                self.numbers.define_sizes(fake.node, info.sizes)
            fakes.append(fake)
        if node is not None:
            set_meta(node, NodeMeta({"val": tuple(fakes)}, origin))
        return fakes

    # --- mutation ------------------------------------------------------------------------------------------

    def _write(self, call: Call) -> Any:
        """An operator that writes to arguments, as its schema says."""
        func, plan = call.operator, call.plan
        written = call.written()
        if must_grow(func, plan, call.infos, call.kwarg_infos, written, self.context.inferred):
            from tintype.trace.metadata_writes import write_resized

            return write_resized(self, func, call.args, call.kwargs, [value for value, _ in written])
        self.mark_written([info.storage for info in flat_infos([info for _, info in written])])
        if len(func._schema.returns) == len(written) and plan.aliases:
            return self._record_write(call, [value for value, _ in written])
        # returns something else besides (or instead of) what it writes to
        results = None if plan.returns_nothing else worked_out(self, call)
        if type(results) is TensorInfo and results not in call.infos:
            return self._record_one(call, results)
        outcome = self._record_several(call, None if results is None else as_sequence(results), False)
        return outcome[0] if type(results) is TensorInfo else outcome

    def _record_write(self, call: Call, written: list[Any]) -> Any:
        if self._recording:
            node = self._append(call)
            origin = self._origin(call.plan.name)
            fakes = [self.as_fake(value) for value in written]
            set_meta(node, NodeMeta({"val": fakes[0] if len(fakes) == 1 else tuple(fakes)}, origin))
            for index, fake in enumerate(fakes):
                fake.node = node if len(fakes) == 1 else append_item(self.graph, node, index)
                if fake.node is not node:
                    set_meta(fake.node, NodeMeta({"val": fake}, origin))
        return written[0] if len(written) == 1 else tuple(written)

    def mark_written(self, storages: list[Storage]) -> None:
        """Note that the program writes to memory."""
        for storage in storages:
            storage.written = True
        if self._written is not None:
            self._written += storages

    # --- autocast ------------------------------------------------------------------------------------------

    def _casts_inside(self, func: Any, plan: Plan, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether autocast does not know a composite operator but some that it consists of: those have to be recorded
        with their casts."""
        if not self._recording or plan.writes or self.modes.casts(func):
            return False
        self._met_by_autocast = False
        try:
            with self.modes.autocast_on():
                self.unrecorded(lambda: func.decompose(*args, **kwargs))
        except NeedsRecordingError:
            return True
        return self._met_by_autocast

    # --- running kernels -----------------------------------------------------------------------------------

    def expand(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a composite operator's kernel and record the operators it calls."""
        last = self.graph._root._prev
        if self.modes.entered and not self.modes.casts(func):
            with self.modes.autocast_on():
                result = self.inside(lambda: func.decompose(*args, **kwargs))
        else:
            result = self.inside(lambda: func.decompose(*args, **kwargs))
        if result is NotImplemented:
            raise UnsupportedOperatorError(f"{func} has no kernel that can be captured", location=user_location())
        if plan_for(func).hidden_writes:
            take_any_layout(last)
        return result

    def inside(self, function: Callable[[], Any]) -> Any:
        """Run a function with this recorder on, below autograd, as the program itself runs."""
        _push(self)
        try:
            with _below_autograd():
                return function()
        finally:
            _pop(None)

    def resumed(self, function: Callable[[], Any]) -> Any:
        """Run a function as the program itself runs: with this recorder on, and with autograd if it has that."""
        if self.below_autograd:
            return self.inside(function)
        _push(self)
        try:
            return function()
        finally:
            _pop(None)

    def unrecorded(self, function: Callable[[], Any]) -> tuple[Any, list[Storage]]:
        """Run a function on fakes without recording; returns its result and the storages it wrote to."""
        recording, written = self._recording, self._written
        self._recording, self._written = False, []
        try:
            result = self.inside(function)
            return result, self._written
        finally:
            self._recording, self._written = recording, written

    def _origin(self, function: str) -> Origin:
        """Where in the user's program the operator that is being recorded was called."""
        if self.replayed is not None and (origin := self.replayed.annotated_origin()) is not None:
            return origin
        return self.origins.origin(2, function)

    def origin_of(self, function: str) -> Origin:
        """The same for an operator that is recorded from outside."""
        return self._origin(function)

    def is_unseen(self, fake: FakeTensor) -> bool:
        """Whether a tensor was made out of nothing by the last operator, in a call that is still running: then
        nobody but that call has seen it."""
        node = fake.node
        if not self._recording or node is None or node is not self.graph._root._prev:
            return False
        takes_tensors = any(type(used.meta.get("val")) is FakeTensor for used in node.all_input_nodes)
        return (starts_anew(node.target) or not takes_tensors) and self._is_still_called(node)

    def _is_still_called(self, node: Node) -> bool:
        """Whether the program is still where it was when it called the last operator. Operators of a program that
        is captured again are calls of their own."""
        if self.replayed is not None:
            return False
        here, there = self._origin("detach"), meta_of(node).origin
        return there is not None and here.call is there.call and program_steps(here) == program_steps(there)

    # --- values --------------------------------------------------------------------------------------------

    def record(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call an operator from inside of the recorder, as if the program had called it."""
        return self.call(func, plan_for(func), args, kwargs)

    def record_as(self, func: Any, args: Any, kwargs: dict[str, Any], results: Any) -> Any:
        """Record an operator whose results are known already; their sizes define new symbols."""
        _, nodes = self.convert(args)
        values, value_nodes = self.convert(kwargs.values())
        kwarg_nodes = dict(zip(kwargs, value_nodes, strict=True))
        # what is known is new, and none of the arguments
        call = Call(func, plan_for(func), (), kwargs, [], nodes, dict(zip(kwargs, values, strict=True)), kwarg_nodes)
        single = type(results) is TensorInfo
        fakes = self._record_one(call, results) if single else self._record_several(call, results, False)
        if self._recording and results is not None:
            self.watch_functions()
            for fake in [fakes] if single else fakes:
                self.numbers.define_sizes(fake.node, fake.info.sizes)
        return fakes

    def class_of(self, fake: FakeTensor) -> Any:
        """The class that a tensor has for the program, which asked for it."""
        return self.observer.class_of(self, fake) if self._recording else torch.Tensor

    def asked(self, fake: FakeTensor, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        """The program asked a tensor for what may be different when it runs."""
        return self.observer.asked(self, fake, fact, arguments, answer) if self._recording else answer

    def note_geometry_change(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether a tensor that the program was given may get another size or other strides (``x.t_()``)."""
        return False

    def note_became_view(self, tensor: FakeTensor, view: FakeTensor) -> None:
        """A tensor of the program has become a view of what it was, by such an operator."""


def active_recorder() -> Recorder | None:
    """The recorder of the capture that is going on in this thread, if one is."""
    for position in reversed(range(torch._C._len_torch_dispatch_stack())):
        mode = torch._C._get_dispatch_stack_at(position)
        if isinstance(mode, Recorder):
            return mode
    return None


def _refuse_constant(value: Any) -> Any:
    raise UnsupportedInputError(f"a {type(value).__name__} from outside of the program can't be captured here")


def _any_requires_grad(infos: list[Any]) -> bool:
    for info in infos:
        kind = type(info)
        if kind is TensorInfo:
            if info.requires_grad:
                return True
        elif kind is list and _any_requires_grad(info):
            return True
    return False
