"""``aot.function`` and ``aot.module``: callables whose forward and backward are compiled graphs."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.nn.modules.module import _has_any_global_hook

from tintype import ops as _ops  # noqa: F401  (operators register their rules)
from tintype import tree
from tintype.aot.arguments import Arguments, SharedMemoryError
from tintype.aot.containers import are_changed
from tintype.aot.reads import Reads
from tintype.aot.recorded_function import RecordedFunction
from tintype.aot.recording import record, refuse_shared_memory
from tintype.aot.runtime import CompiledGraphs, Epilogue, StateAccess, compile_module, set_outputs
from tintype.errors import CaptureError, InvalidRequestError, MutationError, StateChangedError, UnsupportedInputError
from tintype.export.codegen import compile_graph
from tintype.export.exporting import EntryPoint
from tintype.export.wrong_requests import check_function, check_module
from tintype.fake.tensor import FakeTensor
from tintype.ir.call_description import (
    TOLD_BY_KEYS,
    Offsets,
    attached_to,
    key_of,
    modes,
    offsets_of,
    state_key,
)
from tintype.ir.call_values import value_key
from tintype.ir.graph import append_call, eliminate_dead_code, meta_of, output_node, placeholders
from tintype.ir.observations import SURROUNDINGS, answer_of, same_answer
from tintype.ir.operators import declaration_of
from tintype.ir.process_switches import collector_paused
from tintype.trace.given_containers import GivenContainers
from tintype.trace.given_tensors import plain_tensor
from tintype.trace.snapshot import holds_value_of_capture
from tintype.transforms import rewrites as _rewrites  # noqa: F401
from tintype.transforms.absent_tangents import erase_tangent
from tintype.transforms.decompose import decompose_graph
from tintype.transforms.joint import JointGraph
from tintype.transforms.partition import Partition, Partitioner, partition_by_default, partition_by_min_cut

aten = torch.ops.aten

# how many kinds of calls a function keeps graphs for
CACHE_SIZE = 64
# a few changes are what is made when it is first needed
_CHANGES_UNTIL_WARNING = 4

# for each container in a call the number of the first that is the same object; None where each is one of its own
Labels = tuple[int, ...] | None
# (graph, fakes in place of its inputs) -> what is called in its place
Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]


def as_it_is(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A compiler that compiles nothing: the graph's operators are called one after the other.

    Not by the code that fx generates: some operators that take graphs or operators mean more here than in torch."""
    return compile_graph(graph_module)


class CachedGraphs:
    """Graphs, and what must still be as it was for them to be used again."""

    __slots__ = ("compiled", "key", "merged", "questions", "reads", "state")

    def __init__(
        self,
        key: Any,
        compiled: CompiledGraphs,
        merged: list[list[int]],
        reads: Reads,
        state: list[Any],
    ) -> None:
        self.key = key
        self.compiled = compiled
        self.merged = merged
        self.reads = reads
        self.state = state
        # what the function looked at that keys don't tell
        self.questions = [
            observation
            for observation in compiled.recording.captured.observations
            if observation.fact not in TOLD_BY_KEYS
        ]

    def has_same_answers(self, leaves: list[Any], state: list[torch.Tensor]) -> bool:
        """Whether what the function looked at would look the same."""
        for tensor, gradient in self.compiled.recording.gradients_read:
            if tensor.grad is not gradient:
                return False
        if not self.questions:
            return True
        inputs = Arguments(leaves, self.merged).inputs
        names = [spec.target for spec in self.compiled.recording.captured.input_specs]
        for asked in self.questions:
            if asked.subject is None:
                answer = SURROUNDINGS[asked.fact](*asked.arguments)
            else:
                subject = asked.subject
                tensor = inputs[subject] if isinstance(subject, int) else state[names.index(subject)]
                answer = answer_of(tensor, asked.fact, asked.arguments)
            if not same_answer(answer, asked.answer):
                return False
        return True


class CompiledFunction:
    """A function that runs as compiled graphs. They are made when it is called, once for each kind of arguments.

    ``partitions`` holds what was saved and recomputed, for each pair of graphs that is kept.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        root: torch.nn.Module | None,
        fw_compiler: Compiler,
        bw_compiler: Compiler,
        partitioner: Partitioner,
        decompositions: Mapping[Any, Callable[..., Any]] | None,
        cache_size: int = CACHE_SIZE,
    ) -> None:
        self._function = function
        self._root = root
        self._state = StateAccess(root)
        self._fw_compiler = fw_compiler
        self._bw_compiler = bw_compiler
        self._partitioner = partitioner
        self._decompositions = decompositions
        self._cache_size = cache_size
        self._compiled: dict[Any, list[CachedGraphs]] = {}
        # the same, those first that were not used for longest
        self._order: OrderedDict[CachedGraphs, None] = OrderedDict()
        # how often graphs could not be kept
        self._changes = 0
        # keys of calls for which it matters where in their memory tensors begin
        self._with_offsets: set[Any] = set()

    @property
    def partitions(self) -> list[Partition]:
        """What was saved and recomputed, for each pair of graphs that is kept."""
        return [entry.compiled.partition for entry in self._order if entry.compiled.partition is not None]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.ready(args, kwargs)()

    def ready(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        """What does a call, once it is known that it can be done: nothing has happened to its arguments yet."""
        leaves, spec = tree.flatten((args, kwargs))
        entry, state = self._find(leaves, spec, tree.call_labels(args, kwargs))
        compiled = entry.compiled
        if entry.reads.compares_objects:
            _refuse_state_among(leaves, state)
        arguments = Arguments(leaves, entry.merged)
        if compiled.recording.writes:
            refuse_shared_memory(compiled.recording, state, arguments.inputs)

        def run() -> Any:
            result = compiled.run([*state, *arguments.inputs], leaves, self._state, arguments.unaware)
            if compiled.returned:
                containers = tree.Containers(spec, of_call=True).of((args, kwargs))
                result = tree.put_into(compiled.returned, containers, result)
            return result[0] if compiled.changes_arguments else result

        return run

    def prepare(self, /, *args: Any, **kwargs: Any) -> CompiledGraphs:
        """Make the graphs for a call, or find them."""
        return self._find(*tree.flatten((args, kwargs)), tree.call_labels(args, kwargs))[0].compiled

    # --- which graphs --------------------------------------------------------------------------------------

    def _find(
        self, leaves: list[Any], spec: tree.TreeSpec, labels: Labels
    ) -> tuple[CachedGraphs, list[torch.Tensor]]:
        """The graphs for a call, and the state that they take; ``labels`` tell which containers are one object."""
        key: Any = (tree.structure_key(spec), labels, key_of(leaves), modes())
        try:
            if key in self._with_offsets:
                key = (key, offsets_of(leaves))
            entries = self._compiled.get(key, ())
        except TypeError:
            for leaf in leaves:
                _check_leaf(leaf)
            raise
        for entry in entries:
            if entry.reads.unchanged():
                state = self._state_of(entry.compiled.recording)
                if state_key(state) == entry.state and entry.has_same_answers(leaves, state):
                    self._order.move_to_end(entry)
                    return entry, state
        return self._add(key, leaves, spec, labels)

    def _state_of(self, recording: RecordedFunction) -> list[Any]:
        return [self._state.get(source) if isinstance(source, str) else source for source in recording.state]

    def _add(
        self, key: Any, leaves: list[Any], spec: tree.TreeSpec, labels: Labels
    ) -> tuple[CachedGraphs, list[torch.Tensor]]:
        """Make the graphs for a call; those that were not used for longest make way for them."""
        objects = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
        objects += [attached_to(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and attached_to(leaf)]
        reads = Reads(self._function, self._root, objects)
        compiled, merged = self._compile(leaves, spec, labels, reads)
        if key not in self._with_offsets and not isinstance(key[-1], Offsets) and depends_on_offsets(compiled, reads):
            if len(self._with_offsets) >= self._cache_size:
                self._with_offsets.clear()  # then it turns out again for each of them
            self._with_offsets.add(key)
            key = (key, offsets_of(leaves))
        try:
            state = self._state_of(compiled.recording)
        except (AttributeError, KeyError) as error:
            raise StateChangedError(
                f"the function takes away parameters or buffers of its module while it runs ({error})",
                remedy="take them away before, or keep them and leave them out of the computation",
            ) from error
        entry = CachedGraphs(key, compiled, merged, reads, state_key(state))
        if (
            not reads.unchanged()
        ):  # the function changes what it reads, and would not if these graphs ran in its place
            _refuse_kept_tensors(reads)
            self._warn_of_changes()
            return entry, state
        self._compiled.setdefault(key, []).append(entry)
        self._order[entry] = None
        while len(self._order) > self._cache_size:
            oldest, _ = self._order.popitem(last=False)
            self._compiled[oldest.key].remove(oldest)
            if not self._compiled[oldest.key]:
                del self._compiled[oldest.key]
        return entry, state

    def _warn_of_changes(self) -> None:
        self._changes += 1
        if self._changes == _CHANGES_UNTIL_WARNING:
            warnings.warn(
                "a compiled function changes something that it reads (a global, an attribute, a container), so it is "
                "captured anew each time it is called",
                stacklevel=5,
            )

    # --- making them ---------------------------------------------------------------------------------------

    def _compile(
        self, leaves: list[Any], spec: tree.TreeSpec, labels: Labels, reads: Reads, sizes: Any = None
    ) -> tuple[CompiledGraphs, list[list[int]]]:
        for leaf in leaves:
            _check_leaf(leaf)
        merged: list[list[int]] = []
        with collector_paused():
            while True:
                arguments = Arguments(leaves, merged)
                root = EntryPoint(self._entry(arguments, spec, labels), self._root)
                try:
                    with reads.caches_kept_clean(holds_value_of_capture):
                        gradients = torch.is_grad_enabled()
                        recording = record(
                            root, arguments, with_gradients=gradients, functions=reads.functions, sizes=sizes
                        )
                    break
                except SharedMemoryError as error:
                    if sizes is not None:  # they are sizes of these inputs, not of one that holds them all
                        raise
                    if merged:
                        raise AssertionError("views of one tensor share memory with another input") from error
                    if not reads.unchanged():
                        raise CaptureError(
                            "the function writes to inputs that share memory, for which it has to be run twice, and "
                            "changes something around it (a global, an attribute)",
                            remedy="pass copies (clone()), or change that outside of the function",
                        ) from error
                    merged = [
                        [p for p, source in enumerate(arguments.sources) if source in set(group)]
                        for group in error.groups
                    ]
            compiled = self._build(recording)
            compiled.changes_arguments = arguments.are_changed
            compiled.returned = arguments.returned
            arguments.let_go()
        recording.captured.context.release_memory()
        _forget_nodes(recording.captured.graph)
        recording.captured.state_dict.clear()
        return compiled, merged

    def _entry(self, arguments: Arguments, spec: tree.TreeSpec, labels: Labels) -> Callable[..., Any]:
        def call(*inputs: torch.Tensor) -> Any:
            given = arguments.rebuild(inputs)
            args, kwargs = tree.unflatten(given, spec) if labels is None else tree.unflatten_call(given, spec, labels)
            containers = GivenContainers(args, kwargs, spec)
            attached = [attached_to(leaf).copy() for leaf in given]
            result = self._function(*args, **kwargs)
            _refuse_attached(given, attached)
            arguments.are_changed = are_changed(containers)
            outputs = (result, (args, kwargs)) if arguments.are_changed else result
            arguments.returned = {place: number for number, place in containers.among(outputs)}
            return outputs

        return call

    def _build(self, recording: RecordedFunction) -> CompiledGraphs:
        epilogue = Epilogue(recording)
        value_count = set_outputs(recording, epilogue.numbers)
        graph = recording.captured.graph
        eliminate_dead_code(graph)
        if not recording.gradient_inputs:
            for tangent in placeholders(graph)[recording.input_count :]:
                erase_tangent(graph, tangent)
            if self._decompositions is not None:
                graph = self._decomposed(recording, graph)
            return CompiledGraphs(recording, None, self._compile_forward(graph), self._compile_backward, epilogue)
        joint = JointGraph(graph, recording.input_count, value_count, recording.tangents, recording.gradient_inputs)
        if self._decompositions is not None:
            joint.graph = self._decomposed(recording, graph)
        partition = self._partitioner(joint)
        _copy_saved_inputs(partition, {write.position for write in recording.writes})
        forward = self._compile_forward(partition.forward)
        return CompiledGraphs(recording, partition, forward, self._compile_backward, epilogue)

    def _compile_forward(self, graph: Graph) -> Callable[..., Any]:
        return compile_module(graph, self._fw_compiler)

    def _compile_backward(self, graph: Graph) -> Callable[..., Any]:
        return compile_module(graph, self._bw_compiler)

    def _decomposed(self, recording: RecordedFunction, graph: Graph) -> Graph:
        names = [node.name for node in placeholders(graph)]
        decomposed, lifted = decompose_graph(
            graph, recording.captured.context, self._decompositions, frozenset(), names
        )
        if lifted:
            raise InvalidRequestError(
                "a decomposition makes tensors from Python numbers, which can't be part of a compiled function",
                remedy="use operators such as torch.full in it",
            )
        return decomposed


_OFFSETS = frozenset({"storage_offset", "sym_storage_offset", "as_strided", "as_strided_", "untyped_storage"})


def depends_on_offsets(compiled: CompiledGraphs, reads: Reads) -> bool:
    """Whether it matters where in its memory an input begins: somebody may have asked, or as_strided counts from the
    start of the memory."""
    if not _OFFSETS.isdisjoint(reads.names):
        return True
    graphs = (compiled.recording.captured.graph, compiled.epilogue.graph)
    return any(list(graph.find_nodes(op="call_function", target=aten.as_strided.default)) for graph in graphs)


def _refuse_kept_tensors(reads: Reads) -> None:
    """Refuse a function that stored a tensor or a number which it computed: those of a capture have no data."""
    names = reads.take_out(holds_value_of_capture)
    if names:
        raise StateChangedError(
            f"the function keeps a tensor that it computed ({', '.join(dict.fromkeys(names))}), or a number from "
            "one, beyond the call, which a compiled function can't",
            remedy="return it, write to one that is there already, or register a buffer of a model",
        )


def _refuse_state_among(leaves: list[Any], state: list[torch.Tensor]) -> None:
    """Refuse arguments that the function finds elsewhere, too, if it may look whether that is one object: while it is
    captured, an argument is another."""
    held = {*map(id, state)}
    if any(id(leaf) in held for leaf in leaves):
        raise UnsupportedInputError(
            "an argument is a tensor of the model, or one that the function finds elsewhere, and it compares "
            "objects (is, id())",
            remedy="pass a view of it (x.view_as(x)), or compare something else",
        )


def _refuse_attached(given: list[Any], attached: list[dict[str, Any]]) -> None:
    """Refuse a function that attaches something to tensors which it was given: the graphs would not."""
    for leaf, before in zip(given, attached, strict=True):
        after = attached_to(leaf)
        if after.keys() != before.keys() or not all(map(operator.is_, after.values(), before.values())):
            raise MutationError(
                "the function sets an attribute of a tensor that it was given, which a compiled function can't do",
                remedy="return the value instead",
            )


def _check_leaf(leaf: Any) -> None:
    if isinstance(leaf, torch.Tensor):
        plain_tensor(leaf)
        return
    try:
        hash(value_key(leaf))
    except TypeError as error:
        raise UnsupportedInputError(
            f"a {type(leaf).__name__} is not something a compiled function can take",
            remedy="pass tensors, numbers, strings, None, or containers of them",
        ) from error


def _copy_saved_inputs(partition: Partition, written: set[int]) -> None:
    """Save copies of inputs that are written to when the forward graph has run."""
    graph = partition.forward
    inputs = placeholders(graph)
    targets = {inputs[position] for position in written}
    output = output_node(graph)
    results: Any = list(output.args[0])  # type: ignore[arg-type]
    for position in range(partition.output_count, len(results)):
        node = results[position]
        if node in targets or not targets.isdisjoint(_may_be(node)):
            with graph.inserting_before(output):
                results[position] = append_call(graph, aten.clone.default, (node,), {}, "clone", meta_of(node).copy())
    output.args = (tuple(results),)


def _may_be(node: Node) -> list[Node]:
    """The tensors that a value may be: a branch or a loop may return what it was given."""
    call: Any = node.args[0] if node.target is operator.getitem else node
    return call.all_input_nodes if declaration_of(call) is not None else []


# of another graph than any that is recorded: a value that somebody keeps is noticed by that
_FORGOTTEN = Graph().placeholder("forgotten")


def _forget_nodes(graph: Graph) -> None:
    """Let values of a graph no longer know their nodes: autograd's history of a value keeps other values, where no
    collector sees it, and these would keep the graph."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            value.node = _FORGOTTEN


# --- what users call -----------------------------------------------------------------------------------------


def function(
    function: Callable[..., Any],
    *,
    fw_compiler: Compiler = as_it_is,
    bw_compiler: Compiler | None = None,
    partitioner: str | Partitioner = "default",
    memory_budget: float | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    cache_size: int = CACHE_SIZE,
) -> CompiledFunction:
    """A function whose forward and backward run as compiled graphs, and which else behaves as the function itself.

    Graphs are recorded when it is called, once for each kind of arguments (sizes, dtypes, what requires gradients,
    what shares memory, values of what is no tensor), and again where what the function's code reads of globals,
    closures and attributes has changed. Graphs for ``cache_size`` kinds of calls are kept, those that were used last.
    ``fw_compiler`` and ``bw_compiler`` take a graph module and
    example inputs and return what is to be called; by default graphs run as they are. ``partitioner`` decides what
    is saved for the backward graph: ``"default"`` as much as autograd would, ``"min_cut"`` as little as possible,
    within a ``memory_budget`` from 0 to 1. ``decompositions`` are applied to the joint graph first.

    >>> import torch, tintype
    >>> def f(x, y):
    ...     x.mul_(2)
    ...     return x.sin() * y
    >>> compiled = tintype.aot.function(f, partitioner="min_cut")
    >>> x, y = torch.ones(3), torch.ones(3, requires_grad=True)
    >>> compiled(x, y).sum().backward()
    >>> x, y.grad
    (tensor([2., 2., 2.]), tensor([0.9093, 0.9093, 0.9093]))
    """
    check_function(function)
    owner = getattr(function, "__self__", None)
    root = (
        function if isinstance(function, torch.nn.Module) else owner if isinstance(owner, torch.nn.Module) else None
    )
    return CompiledFunction(
        function,
        root,
        fw_compiler,
        bw_compiler or fw_compiler,
        chosen_partitioner(partitioner, memory_budget),
        decompositions,
        cache_size,
    )


def chosen_partitioner(partitioner: str | Partitioner, memory_budget: float | None) -> Partitioner:
    """The partitioner for a name or a function."""
    if memory_budget is not None and partitioner != "min_cut":
        raise InvalidRequestError("memory_budget belongs to partitioner='min_cut'")
    if callable(partitioner):
        return partitioner
    if partitioner == "default":
        return partition_by_default
    if partitioner == "min_cut":
        budget = 1.0 if memory_budget is None else memory_budget
        return lambda joint: partition_by_min_cut(joint, budget)
    raise InvalidRequestError(f"partitioner is 'default', 'min_cut' or a function, but got {partitioner!r}")


class CompiledModule(torch.nn.Module):
    """A module that has the state of another one and runs its forward and backward as compiled graphs."""

    _original: torch.nn.Module
    _compiled: CompiledFunction

    def __init__(self, original: torch.nn.Module, compiled: CompiledFunction) -> None:
        super().__init__()
        self.__dict__["_original"] = original
        self.__dict__["_compiled"] = compiled
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[name] = original.__dict__[name]
        self.training = original.training

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call it as a module is called, but for hooks on all modules: those of the original run in its place."""
        if not _has_any_global_hook():
            return super().__call__(*args, **kwargs)
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            raise InvalidRequestError(
                "a compiled module has hooks while there are hooks on all modules, too",
                remedy="register the hooks of the compiled module on the model that it was made from",
            )
        return self.forward(*args, **kwargs)

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled graphs."""
        return self._compiled(*args, **kwargs)

    def train(self, mode: bool = True) -> CompiledModule:
        """Set the mode of the original module, too."""
        self._original.train(mode)
        self.training = mode
        return self

    @property
    def partitions(self) -> list[Partition]:
        """What was saved and recomputed, for each pair of graphs that was made."""
        return self._compiled.partitions


def module(
    model: torch.nn.Module,
    *,
    fw_compiler: Compiler = as_it_is,
    bw_compiler: Compiler | None = None,
    partitioner: str | Partitioner = "default",
    memory_budget: float | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    cache_size: int = CACHE_SIZE,
) -> CompiledModule:
    """A module with the parameters and buffers of a model whose forward and backward run as compiled graphs.

    Takes the options of :func:`function`. The state is the model's own, under the same names: an optimizer of either
    trains both.

    >>> import torch, tintype
    >>> model = torch.nn.Linear(3, 1)
    >>> compiled = tintype.aot.module(model)
    >>> compiled(torch.ones(2, 3)).sum().backward()
    >>> model.weight.grad
    tensor([[2., 2., 2.]])
    """
    check_module(model)
    return CompiledModule(
        model,
        function(
            model,
            fw_compiler=fw_compiler,
            bw_compiler=bw_compiler,
            partitioner=partitioner,
            memory_budget=memory_budget,
            decompositions=decompositions,
            cache_size=cache_size,
        ),
    )


def module_for(
    model: torch.nn.Module, args: Sequence[Any], fw_compiler: Compiler = as_it_is, **options: Any
) -> CompiledModule:
    """As :func:`module`, with the graphs for the given example inputs made at once.

    >>> import torch, tintype
    >>> compiled = tintype.aot.module_for(torch.nn.ReLU(), (torch.ones(2),))
    >>> compiled(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    compiled = module(model, fw_compiler=fw_compiler, **options)
    compiled._compiled.prepare(*args)
    return compiled
