"""From a module and example inputs to a recorded graph: the training stage of a program."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import (
    CaptureReport,
    DataDependentError,
    StateChangedError,
    TintypeError,
    UnsupportedInputError,
    raise_all,
)
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor, describe
from tintype.ir.graph import add_placeholder, eliminate_dead_code, meta_of, output_node, set_meta
from tintype.ir.names import free_name, identifier
from tintype.ir.node_info import NodeMeta
from tintype.ir.process_switches import collector_paused
from tintype.ir.room import with_room
from tintype.ir.signature import (
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    StateWrite,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from tintype.ir.sources import place_in_call
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.catching import begins_program
from tintype.symbolic.expression import Expr, Size
from tintype.symbolic.interruptions import Word
from tintype.symbolic.location import user_location
from tintype.trace import collectives as _collectives  # noqa: F401  (registers itself)
from tintype.trace import data_dependent as _data_dependent  # noqa: F401  (registers itself)
from tintype.trace import metadata_writes as _metadata_writes  # noqa: F401  (registers itself)
from tintype.trace import packed_sequences as _packed_sequences  # noqa: F401  (registers itself)
from tintype.trace import values as _values  # noqa: F401  (registers itself)
from tintype.trace.argument_names import argument_names, is_captured_program
from tintype.trace.buffer_assignments import NamesThatStay, assign_buffers
from tintype.trace.capture_failures import explained, name_sizes, not_a_result, not_an_input, note_place, presumed
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.changed_state import ChangedState, is_made_anew
from tintype.trace.given_containers import GivenContainers
from tintype.trace.given_tensors import plain_tensor, symbolic_strides
from tintype.trace.inner import refuse_escaped_tensors
from tintype.trace.iterators import refuse_advanced
from tintype.trace.object_questions import comparisons_in, hear_attributes, questions_heard, truths_compared
from tintype.trace.origin import OriginTracker
from tintype.trace.plain_flags import look_for_flags
from tintype.trace.recorder import Recorder
from tintype.trace.recording import Recording, one_at_a_time
from tintype.trace.snapshot import (
    Change,
    Snapshot,
    contained,
    holds_fake,
    is_code,
    is_of_data,
    is_of_memory,
    is_plain,
    with_plain_sizes,
)
from tintype.trace.state import ModelState, identity, named_modules
from tintype.trace.subclasses import refuse_whole
from tintype.trace.surroundings import refuse_changed_gradient_mode
from tintype.trace.swallowed import nothing_swallowed
from tintype.trace.tensor_questions import HEARD, asked_of_any_tensor
from tintype.trace.tensor_rows import without_rows
from tintype.trace.users_code import MISSING, UsersCode, caches_set_aside, functions_of_torch, users_code
from tintype.trace.wrapped_changes import changes_of_parts

if TYPE_CHECKING:
    from tintype.trace.effects import Effects

CONSTANT_TYPES = (int, float, bool, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format)


# (position among the leaves of the arguments, tensor) -> its sizes, symbolic where they may vary
SizesOf = Callable[[int, torch.Tensor], tuple[Size, ...]]
# (position among the leaves of the arguments, number) -> the number, symbolic if it may vary
NumberOf = Callable[[int, int | float], Any]


class CaptureInterrupted(Word):
    """The program raised after a question about its data had been answered with a guess."""


class Capture:
    """One capture: makes the graph's inputs, runs the program on fakes, collects its outputs."""

    recorder_class: type[Recorder] = Recorder
    # whether the capture is a call too, and what it does besides computing stays done: gradients that it leaves
    # switched on or off, iterators that it advances
    runs_in_eager_modes_place = False
    flat: tuple[list[tuple[tree.KeyPath, Any]], tree.TreeSpec] | None = None  # the arguments, where they are known

    def __init__(
        self,
        root: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: FakeContext | None = None,
        sizes_of: SizesOf | None = None,
        number_of: NumberOf | None = None,
        *,
        is_for_training: bool = False,
        program: Callable[..., Any] | None = None,
        watches_functions: bool = False,
    ) -> None:
        self.root = root
        # what runs the program: the model itself, or somebody who does what it would do
        self.program = root if program is None else program
        self.args, self.kwargs = args, kwargs
        self.context = context if context is not None else FakeContext()
        self.sizes_of = sizes_of
        self.number_of = number_of
        self.graph = Graph()
        self.modules = named_modules(root)
        self.state = ModelState(root, self.modules)
        self.origins = OriginTracker(self.modules)
        self.recorder = self.recorder_class(
            self.context,
            self.graph,
            self.origins,
            lift_constant=self.lift_constant,
            is_taken=self._is_taken,
            is_for_training=is_for_training,
        )
        self.context.sparse_tensors.update(self.state.sparse)
        self.recording = Recording(self.recorder, watches_functions=watches_functions)
        self.state_specs: list[InputSpec] = []
        self.input_specs: list[InputSpec] = []
        self.constants: dict[str, Any] = {}
        self._last_state: Node | None = None
        self.plain_changes: list[Change] = []
        self.kept: list[tuple[Change, StateChangedError]] = []
        self.outside_changes: list[Change] = []
        self.effects: Effects | None = None  # what the program does besides computing, where somebody looks
        self.judge_change: Callable[[Change], TintypeError | None] | None = None  # gives errors for more changes
        self._lifted_count = 0
        self._objects: dict[int, Node] = {}  # the inputs that stand for custom objects
        self._code = self._users_code()
        self.changed = ChangedState(self._code, self.modules)
        # where the program may compare inputs with "is": then one tensor that is given twice is one to the program
        self._comparisons = comparisons_in(self._code)
        self.recorder.will_compare(self._comparisons)

    def _users_code(self) -> UsersCode:
        """The user's functions that the program may call."""
        return users_code(module for _, module in self.modules)

    def _is_taken(self, name: str) -> bool:
        """Whether something else of the program has a name that a graph inside of it is to have.

        What the model has as an attribute may become a constant of that name later."""
        return not self._is_graph_again(name) and (name in self.constants or hasattr(self.root, name))

    def _is_graph_again(self, name: str) -> bool:
        """Whether a child of a program that is captured again is a graph inside of its graph."""
        return isinstance(self.root._modules.get(name), GraphModule) and is_captured_program(self.root)

    # --- inputs --------------------------------------------------------------------------------------------

    def make_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Placeholders for state and user inputs, and the fakes to call the program with."""
        leaves, self.in_spec = self.flat or tree.flatten_with_paths((self.args, self.kwargs))
        self.argument_names = argument_names(self.root, self.args, self.kwargs)
        names = [self._reserve(name) for name in self._leaf_names(leaves)]  # before those of state, which makes way
        problems: list[TintypeError] = []
        for entry in self.state.entries:
            try:
                self._add_state(entry.kind, entry.target, entry.value, entry.persistent)
            except TintypeError as error:
                error.fact = f"{entry.kind.name.lower()} {entry.target!r}: {error.fact}"
                problems.append(error)
        values = []
        for position, (name, (path, leaf)) in enumerate(zip(names, leaves, strict=True)):
            node = add_placeholder(self.graph, name)
            try:
                values.append(self._input(node, leaf, position))
            except TintypeError as error:
                error.fact = f"input {place_in_call(path)}: {error.fact}"
                problems.append(error)
        raise_all(problems)
        with tree.containers_of_users():
            args, kwargs = tree.unflatten(values, self.in_spec)
            tree.check_round_trip((args, kwargs), values, self.in_spec)
            labels = tree.call_labels(self.args, self.kwargs)
            if labels is not None:
                args, kwargs = tree.unflatten_call(values, self.in_spec, labels)
            self._given = GivenContainers(args, kwargs, self.in_spec, (self.args, self.kwargs))
        return args, kwargs

    def _leaf_names(self, leaves: Sequence[tuple[tree.KeyPath, Any]]) -> list[str]:
        names = []
        for path, _ in leaves:
            in_kwargs, position = path[0].idx, path[1]
            root = str(position.key) if in_kwargs else self.argument_names[position.idx]
            rest = tree.path_name(path[2:])
            names.append(identifier(f"{root}_{rest}" if rest else root))
        return names

    def _reserve(self, candidate: str) -> str:
        used = self.graph._graph_namespace._used_names
        # fx would also rename what is called like any builtin (``input``), which is only confusing
        name = free_name(candidate, used)
        used.add(name)
        return name

    def _input(self, node: Node, leaf: Any, position: int) -> Any:
        argument: ArgumentSpec
        value: Any
        if isinstance(leaf, torch.Tensor):
            value = self._tensor_input(node, plain_tensor(leaf), position)
            self.recorder.observer.add_input(node, position, value, leaf)
            hear_attributes(leaf)
            argument = TensorArgument(node.name)
        elif type(leaf) in (int, float) and isinstance(number := self._number_input(node, leaf, position), Expr):
            value = to_torch(number)
            argument = _NUMBER_ARGUMENTS[number.kind](node.name)
        elif leaf is None or isinstance(leaf, (*CONSTANT_TYPES, FunctionType, enum.Enum)):
            value = leaf
            argument = ConstantArgument(node.name, leaf)
        elif isinstance(leaf, torch.ScriptObject):
            value = leaf
            argument = CustomObjArgument(node.name, leaf._type().qualified_name())
            self._objects[identity(leaf)] = node
        else:
            raise not_an_input(leaf)
        set_meta(node, NodeMeta({"val": value}))
        self.input_specs.append(InputSpec(InputKind.USER_INPUT, argument))
        return value

    def _tensor_input(self, node: Node, tensor: torch.Tensor, position: int) -> FakeTensor:
        sizes = self.sizes_of(position, tensor) if self.sizes_of is not None else None
        if sizes is None or sizes == tuple(tensor.shape):
            known = None if self._comparisons.of_variables is None else self.recorder.observer.input_of(tensor)
            return self.context.fake_of(tensor, node) if known is None else known
        info = describe(tensor)  # first: a tensor that can't be described has no storage to ask for either
        info.storage = self.context.storage_of(tensor)
        info.strides = symbolic_strides(info.sizes, info.strides, sizes)
        info.sizes = sizes
        self.recorder.numbers.define_sizes(node, sizes)
        return self.context.fake_from(info, node)

    def _number_input(self, node: Node, value: int | float, position: int) -> Any:
        number = self.number_of(position, value) if self.number_of is not None else value
        if isinstance(number, Expr):
            self.recorder.numbers.define_value(node, number)
        return number

    def _add_state(self, kind: InputKind, target: str, value: Any, persistent: bool | None = None) -> Any:
        node = self._state_placeholder(self._reserve(identifier(_PREFIXES[kind] + target.replace(".", "_"))))
        argument: ArgumentSpec
        if isinstance(value, torch.Tensor):
            fake = self.context.fake_of(plain_tensor(value), node)
            self.recorder.bind(value, fake)
            self.recorder.observer.add_state(node, target, value)
            argument = TensorArgument(node.name)
        else:
            fake = value
            argument = CustomObjArgument(node.name, value._type().qualified_name())
        set_meta(node, NodeMeta({"val": fake}))
        self.state_specs.append(InputSpec(kind, argument, target, persistent))
        return fake if isinstance(value, torch.Tensor) else node

    def _state_placeholder(self, name: str) -> Node:
        """A placeholder in its place: after the state that is there already, before the user's inputs."""
        node = add_placeholder(self.graph, name, after=self._last_state or self.graph._root)
        self._last_state = node
        return node

    def lift_constant(self, value: Any) -> Any:
        """A tensor or object that is no registered state becomes a constant of the program."""
        if not isinstance(value, torch.Tensor) and identity(value) in self._objects:
            return self._objects[identity(value)]
        names = [name for name in self.state.attribute_names(value) if name not in self.state.names]
        names = names or [self._new_constant_name()]
        kind = InputKind.CONSTANT_TENSOR if isinstance(value, torch.Tensor) else InputKind.CUSTOM_OBJ
        self.constants.update(dict.fromkeys(names, value))
        try:
            lifted = self._add_state(kind, names[0], value)
        except UnsupportedInputError as error:
            error.location = error.location or user_location()
            raise
        if isinstance(value, torch.Tensor):
            self.recorder.constant_inputs[lifted.node] = value
            meta_of(lifted.node).source = self._code.source_of(value)
        else:
            self._objects[identity(value)] = lifted
        return lifted

    def _new_constant_name(self) -> str:
        while True:
            name = f"lifted_tensor_{self._lifted_count}"
            self._lifted_count += 1
            if name not in self.constants and not hasattr(self.root, name):
                return name

    # --- the run -------------------------------------------------------------------------------------------

    def run(self, after_inputs: Callable[[], None] | None = None) -> CapturedGraph:
        """Record the program. ``after_inputs`` is called when the inputs are there, before the program runs."""
        with one_at_a_time, collector_paused(), self.recording.answering():
            return with_room(self._run, after_inputs)

    def _run(self, after_inputs: Callable[[], None] | None) -> CapturedGraph:
        snapshot = Snapshot(self.root, self._code.places, others_tell=self.effects is not None)
        has_run = False
        try:
            args, kwargs = self.make_inputs()
            if after_inputs is not None:
                after_inputs()
            output_specs, out_spec = self._run_program(args, kwargs, snapshot)
            has_run = True
        except CaptureInterrupted as interrupted:
            raise_all(self.recorder.problems)
            raise AssertionError from interrupted
        finally:
            self.origins.leave()
            stays = self._stays if has_run else None
            if self.effects is not None:
                self._look_at_effects(self.effects, snapshot, stays)
            changes = snapshot.restore(stays)
            self.outside_changes = snapshot.outside_changes
            self.recorder.problems += map(self.changed.refusal, snapshot.outside_tensors)
            self.recorder.problems += map(self.changed.undecided_number, snapshot.outside_numbers)
            self.recorder.problems += snapshot.judged(changes, self.judge_change)
            if not self.runs_in_eager_modes_place:
                snapshot.put_back_iterators()
            lost, clearing = self.recorder.modes.lost_gradients, self._code.named(("zero_grad", "grad"))
            assigned, flagged = self.state.put_back_gradients(lost.switched, may_clear=bool(clearing))
            self.recorder.problems += self.changed.gradient_refusals(assigned)
            lost.add_flags(flagged)
            for hook in () if self.runs_in_eager_modes_place else self.state.take_back_hooks():
                lost.add_hook("a hook on the gradient of a parameter or buffer", hook)
        self._note_changes(changes, output_specs)
        if self.recorder.problems or self.runs_in_eager_modes_place:
            self.recorder.problems += [error for _, error in self.kept]
        raise_all(self.recorder.problems or self.context.environment.refused)
        self.context.environment.settle_failures()
        self._warn_of_lost_gradients()
        self.recorder.numbers.mark_asserted([fact.condition for fact in self.context.environment.assertions])
        has_inner_graphs = bool(self.graph.find_nodes(op="get_attr"))  # also of operators that nobody needs
        eliminate_dead_code(self.graph)
        if has_inner_graphs:
            refuse_escaped_tensors(self.graph)
        return self._finish(output_specs, out_spec)

    def _look_at_effects(self, effects: Effects, snapshot: Snapshot, stays: Callable[[Change], bool] | None) -> None:
        """Let writes to what is outside of the model be treated as those that are found by names."""
        has_run = stays is not None
        effects.find_changes(lambda owner: snapshot.holds(owner) or self._given.holds(owner), has_run=has_run)
        for change in effects.changes:
            snapshot.note_outside(change, stays)

    def _run_program(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], snapshot: Snapshot
    ) -> tuple[list[OutputSpec], tree.TreeSpec]:
        """Run the program with the recorder on, and take its outputs."""
        self.recorder.observer.will_hear(self._comparisons, catches_errors=self._code.catches_errors)
        asked = self._code.named(HEARD)
        with (
            caches_set_aside(self._code.caches),
            truths_compared(self._code),
            questions_heard(self._code, functions_of_torch(self.modules)),
            self.recording,
            asked_of_any_tensor(asked),
        ):
            self.origins.enter()
            outputs = without_rows(self.recorder, self._call_root(args, kwargs))
            if self.effects is not None:
                self.changed.seen = self.effects.lines()
            changed = self._given.check(outputs, self.changed.line_of, self.recorder.problems)
            self.context.arrays.refuse_written()
            if not self.runs_in_eager_modes_place:
                refuse_changed_gradient_mode(self.recorder)
                refuse_advanced(snapshot.iterators)
        self.recorder.modes.label(self.graph)
        compared = self._comparisons.of_variables is not None
        same_objects = self._given.observation(changed, compared=compared)
        self.of_containers = [] if same_objects is None else [same_objects]
        if self._code.named(("vars", "__dict__")):
            self.of_containers += self._given.attribute_orders()
        with tree.containers_of_users():
            self.returned = self._given.paths_among(outputs)
            return self._make_outputs(outputs)

    def _warn_of_lost_gradients(self) -> None:
        if self.recorder.below_autograd and self.recorder.modes.grad:
            lost = self.recorder.modes.lost_gradients
            lost.add_module_hooks(self.modules, self.origins.paths)
            lost.warn(self.state.wrapped)

    @begins_program
    def _call_root(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with nothing_swallowed():
                return self.program(*args, **kwargs)
        except Exception as error:
            if self.recorder.problems and not isinstance(error, TintypeError):
                # the program went on with an answer that may be wrong: what it ran into then is no news
                raise CaptureInterrupted from error
            known = [*self.recorder.problems]
            if known and isinstance(error, DataDependentError) and not isinstance(error, CaptureReport):
                self.recorder.problems += [] if error in known else [error]
                raise CaptureInterrupted from error
            name_sizes(error, self.context.environment.names)
            look_for_flags(error)
            of_capture = explained(error) or presumed(error, self.context.environment)
            if of_capture is not None:
                raise of_capture from error
            note_place(error)
            raise

    def _make_outputs(self, outputs: Any) -> tuple[list[OutputSpec], tree.TreeSpec]:
        leaves, out_spec = tree.flatten(outputs)
        tree.check_round_trip(tree.unflatten(leaves, out_spec), leaves, out_spec)
        nodes: list[Any] = []
        specs = []
        for leaf in leaves:
            node, argument = self._output(leaf)
            nodes.append(node)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument))
        self.graph.output(tuple(nodes)).meta = NodeMeta()
        return specs, out_spec

    def _output(self, leaf: Any) -> tuple[Any, ArgumentSpec]:
        if isinstance(leaf, torch.Tensor):
            refuse_whole(leaf)
            fake = self.recorder.as_fake(leaf)
            return fake.node, TensorArgument(fake.node.name)
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            number = from_torch(leaf)
            if isinstance(number, Expr):
                node = self.recorder.number_node(number)
                return node, _NUMBER_ARGUMENTS[number.kind](node.name)
            leaf = number
        if leaf is None or isinstance(leaf, (*CONSTANT_TYPES, enum.Enum)):
            return leaf, ConstantArgument("", leaf)
        raise not_a_result(leaf)

    def _stays(self, change: Change) -> bool:
        """Whether a change that the program made stays; after an export the model is as it was."""
        return False

    def _note_changes(self, changes: list[Change], output_specs: list[OutputSpec]) -> None:
        """A buffer that was assigned another tensor is a mutation; other assigned tensors are not kept."""
        changes = changes_of_parts(changes, self.state)
        assigned: list[tuple[str, FakeTensor, FakeTensor]] = []
        names = NamesThatStay(changes, self.modules, self.state)
        for change in changes:
            before, after = change.before, change.after
            if is_of_memory(change):
                self.plain_changes.append(change)
                continue
            if is_plain((plain := with_plain_sizes(change)).after) or is_code(after) or is_code(before):
                self.plain_changes.append(plain)
            if not isinstance(after, torch.Tensor) and not holds_fake(after):
                if self.judge_change is None and any(map(is_of_data, contained(after))):
                    self.kept.append((change, self.changed.undecided_number(change)))
                continue
            known = before is not MISSING and isinstance(before, torch.Tensor)
            if known and id(before) in self.state.by_id and self.state.by_id[id(before)].kind is InputKind.BUFFER:
                value = self.recorder.as_fake(after)
                if self._can_assign(before, value) and self._is_only_name(change, names):
                    assigned.append((self.state.by_id[id(before)].target, self.recorder.fake_of(before), value))
                continue
            if not holds_fake(after) or is_made_anew(change):
                continue
            self.kept.append((change, self.changed.refusal(change)))
        if assigned:
            if not self.runs_in_eager_modes_place:
                self._refuse_shared_memory(assigned)
            for change in changes:
                if isinstance(change.before, torch.Tensor):
                    self.recorder.state_writes[change.before] = StateWrite.REPLACED
            assign_buffers(self.graph, self.context, assigned)
            results: Any = output_node(self.graph).args[0]
            for spec, result in zip(output_specs, results, strict=True):
                if isinstance(spec.arg, TensorArgument):
                    spec.arg = TensorArgument(result.name)

    def _refuse_shared_memory(self, assigned: list[tuple[str, FakeTensor, FakeTensor]]) -> None:
        """In the next call a write to one buffer must not be one to another too: a program's have memory of their
        own."""
        replaced = {before.info.storage for _, before, _ in assigned}
        held: dict[Storage, tuple[str, Storage]] = {}
        for entry in self.state.entries:
            storage = self.recorder.fake_of(entry.value).info.storage
            if storage not in replaced:
                held[storage] = (entry.target, storage)
        for name, before, value in assigned:
            own = before.info.storage
            for storage in (value.info.storage, *value.info.storage.sources):
                other, of_other = held.setdefault(storage, (name, own))
                if other != name and (own.written or of_other.written):
                    self.recorder.problems.append(
                        StateChangedError(
                            f"the program assigned memory of {other!r} to the buffer {name!r}, and writes to one of "
                            "them: in the next call that is a write to both",
                            remedy="assign a copy: clone()",
                        )
                    )

    def _can_assign(self, buffer: torch.Tensor, value: FakeTensor) -> bool:
        old = self.recorder.fake_of(buffer)
        if old.info.sizes == value.info.sizes and old.info.dtype is value.info.dtype:
            return True
        name = self.state.by_id[id(buffer)].target
        self.recorder.problems.append(self.changed.other_size(name, old, value))
        return False

    def _is_only_name(self, change: Change, names: NamesThatStay) -> bool:
        """Whether nothing else of the model has the tensor of a buffer that is assigned another one: there the old
        one would stay. A call in eager mode's place assigns for real; programs that are captured again were asked
        when they were captured first."""
        name = self.state.by_id[id(change.before)].target
        kept = [] if self.runs_in_eager_modes_place else names.of(change)
        programs = [path for path, module in self.modules if is_captured_program(module)] if kept else []
        if kept and not any(name.startswith(f"{path}." if path else "") for path in programs):
            self.recorder.problems.append(self.changed.left_behind(change, name, kept[0]))
            return False
        return True

    def _state_writes(self) -> dict[str, StateWrite]:
        names = {spec.target: spec.arg.name for spec in self.state_specs}
        return {
            names[entry.target]: write
            for tensor, write in self.recorder.state_writes.items()
            if (entry := self.state.by_id.get(id(tensor))) is not None
        }

    def _finish(self, output_specs: list[OutputSpec], out_spec: tree.TreeSpec) -> CapturedGraph:
        for node in self.graph.find_nodes(op="placeholder"):
            consumer = next(iter(node.users), None)
            if consumer is not None:
                node.meta.consumer = consumer.meta.origin
        state_dict = {}
        for name, (_, tensor, persistent) in self.state.names.items():
            if persistent is not False:
                state_dict[name] = tensor
            else:
                self.constants[name] = tensor
        return CapturedGraph(
            self.graph,
            self.context,
            [*self.state_specs, *self.input_specs],
            output_specs,
            self.in_spec,
            out_spec,
            self.argument_names,
            state_dict,
            self.constants,
            {path: self.origins.paths[id(module)] for path, module in self.modules},
            frozenset(name for name in self.root._modules if not self._is_graph_again(name)),
            self._state_writes(),
            self.recorder.conversions,
            self.recorder.observer.found,
            self.plain_changes,
            self.kept,
            self.outside_changes,
            self.changed.description,
            self.returned,
            self.of_containers,
            None if self.effects is None else self.effects.findings(self.plain_changes),
        )


_PREFIXES = {
    InputKind.PARAMETER: "p_",
    InputKind.BUFFER: "b_",
    InputKind.CONSTANT_TENSOR: "c_",
    InputKind.CUSTOM_OBJ: "obj_",
}
_NUMBER_ARGUMENTS: dict[str, Callable[[str], ArgumentSpec]] = {
    "int": SymIntArgument,
    "float": SymFloatArgument,
    "bool": SymBoolArgument,
}
