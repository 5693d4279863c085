"""What goes into a submodule and comes out of it, for the submodules whose signature is to be preserved.

While a model is captured, two marks in the graph stand for each call of such a module: one holds the leaves of its
arguments, one those of its result. Passes treat a mark like any node that reads values, so the marks know under which
names these values are at last; then they are taken out, and what they held becomes the module's signature.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import InvalidRequestError, UnsupportedInputError
from tintype.export.call_spec import CallSpec, ModuleCallEntry, ModuleCallSignature
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import append_call, meta_of, output_node
from tintype.ir.node_info import NodeMeta, module_names
from tintype.ir.signature import (
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.trace.capture import CONSTANT_TYPES
from tintype.trace.given_containers import GivenContainers
from tintype.trace.recorder import Recorder, active_recorder


def module_arguments(call: str, leaves: Sequence[Any], spec: tree.TreeSpec) -> None:
    """The mark of what goes into a call of a module; in a program that is captured again, it is put there again."""
    recorder = active_recorder()
    if recorder is not None:
        _mark(recorder, module_arguments, call, leaves, spec, f"an argument of {call}")


def module_results(call: str, leaves: Sequence[Any], spec: tree.TreeSpec, returned: Returned = ()) -> None:
    """The mark of what comes out of a call of a module, and where containers that it was given are in that."""
    recorder = active_recorder()
    if recorder is not None:
        _mark(recorder, module_results, call, leaves, spec, f"the result of {call}", returned)


_MARKS = (module_arguments, module_results)
Returned = Sequence[tuple[tree.Path, tree.Path]]


# --- while a model is captured ---------------------------------------------------------------------------


@contextlib.contextmanager
def signatures_preserved(
    modules: Sequence[tuple[str, torch.nn.Module]], paths: Sequence[str], recorder: Recorder
) -> Iterator[None]:
    """Mark the calls of some modules in the graph; the modules are as they were afterwards."""
    chosen = _chosen_modules(modules, paths)
    hooks: list[Any] = []
    try:
        for module in chosen:
            # outside of the user's own hooks: the first before the call, the last after it
            before, after = _hooks(recorder)
            hooks.append(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
            hooks.append(module.register_forward_hook(after))
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _chosen_modules(modules: Sequence[tuple[str, torch.nn.Module]], paths: Sequence[str]) -> list[torch.nn.Module]:
    if isinstance(paths, str):
        raise InvalidRequestError(
            f"preserve_module_call_signature is a sequence of paths of modules, but got the string {paths!r}",
            remedy=f"write ({paths!r},)",
        )
    if not paths:
        return []
    known: dict[str, list[torch.nn.Module]] = {}  # several: one for each way of calling it
    for path, module in modules:
        known.setdefault(path, []).append(module)
    unknown = [path for path in paths if path not in known]
    if unknown:
        raise InvalidRequestError(
            f"preserve_module_call_signature names {', '.join(map(repr, unknown))}, but the model has no such module",
            remedy="name modules as named_modules() does, such as 'encoder.layers.0'",
        )
    return list({id(module): module for path in paths if path for module in known[path]}.values())


def _hooks(recorder: Recorder) -> tuple[Any, Any]:
    running: list[GivenContainers] = []  # a module may call itself

    def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        _mark_call(recorder, module_arguments, (args, kwargs), f"an argument of {type(module).__name__}")
        running.append(GivenContainers(args, kwargs, tree.flatten((args, kwargs))[1]))

    def after(module: torch.nn.Module, args: Any, result: Any) -> None:
        returned = running.pop().paths_among(result)
        _mark_call(recorder, module_results, result, f"the result of {type(module).__name__}", returned)

    return before, after


def _mark_call(recorder: Recorder, mark: Any, value: Any, what: str, returned: Returned = ()) -> None:
    if active_recorder() is recorder and recorder.is_recording:
        leaves, spec = tree.flatten(value)
        call = recorder.origin_of(mark.__name__).call
        assert call is not None
        _mark(recorder, mark, call.name, leaves, spec, what, returned)


def _mark(
    recorder: Recorder,
    mark: Any,
    call: str,
    leaves: Sequence[Any],
    spec: tree.TreeSpec,
    what: str,
    returned: Returned = (),
) -> None:
    nodes = [_leaf(recorder, leaf, what) for leaf in leaves]
    meta = NodeMeta({"val": None}, recorder.origin_of(mark.__name__))
    append_call(recorder.graph, mark, (call, nodes, spec, *([tuple(returned)] if returned else ())), {}, "mark", meta)


def _leaf(recorder: Recorder, leaf: Any, what: str) -> Any:
    if type(leaf) is FakeTensor:
        return leaf.node
    if isinstance(leaf, torch.Tensor):
        return recorder.fake_of(leaf).node
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        number = from_torch(leaf)
        return recorder.number_node(number) if isinstance(number, Expr) else number
    if leaf is None or isinstance(leaf, CONSTANT_TYPES):
        return leaf
    raise UnsupportedInputError(
        f"the signature of a module can't be preserved: {what} is a {type(leaf).__name__}",
        remedy="register its type with tintype.register_container or tintype.register_dataclass, or "
        "leave the module out of preserve_module_call_signature",
    )


# --- afterwards ------------------------------------------------------------------------------------------


def take_signatures(graph: Graph) -> dict[str, ModuleCallSignature]:
    """Take the marks out of a graph; returns the signatures by call: ``block``, ``block@1`` for its second one."""
    sides: dict[Any, dict[str, tuple[list[ArgumentSpec], tree.TreeSpec]]] = {mark: {} for mark in _MARKS}
    returned: dict[str, Any] = {}
    for mark in _MARKS:
        for node in list(graph.find_nodes(op="call_function", target=mark)):
            call, leaves, spec, *more = node.args
            returned[call] = _as_tuples(more[0]) if more else ()
            sides[mark][call] = ([_argument(leaf) for leaf in leaves], spec)
            graph.erase_node(node)
    arguments, results = sides[module_arguments], sides[module_results]
    return {
        call: ModuleCallSignature(
            arguments[call][0], results[call][0], arguments[call][1], results[call][1], returned[call]
        )
        for call in arguments
        if call in results
    }


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


def _argument(leaf: Any) -> ArgumentSpec:
    if not isinstance(leaf, Node):
        return ConstantArgument("", leaf)
    value = leaf.meta.get("val")
    if isinstance(value, torch.Tensor):
        return TensorArgument(leaf.name)
    for kind, argument in _NUMBERS:
        if isinstance(value, kind):
            return argument(leaf.name)
    if isinstance(value, torch.ScriptObject):
        return CustomObjArgument(leaf.name, value._type().qualified_name())
    return ConstantArgument(leaf.name, value)


_NUMBERS: tuple[tuple[type, Any], ...] = (
    (torch.SymInt, SymIntArgument),
    (torch.SymFloat, SymFloatArgument),
    (torch.SymBool, SymBoolArgument),
)


def put_signatures(graph: Graph, entries: Sequence[ModuleCallEntry], names: Mapping[str, Node] | None = None) -> None:
    """Put the marks back into a graph that is about to be transformed, each where its call begins or ends.

    ``names`` has the values that signatures speak of, where their nodes are called otherwise.
    """
    wanted = {entry.fqn: entry.signature for entry in entries if entry.fqn and entry.signature is not None}
    if not wanted:
        return
    by_name: dict[str, Node] = {}
    first: dict[str, Node] = {}
    last: dict[str, Node] = {}
    order: dict[Node, int] = {}
    for position, node in enumerate(graph.nodes):
        by_name[node.name] = node
        order[node] = position
        if node.op == "call_function":
            for call in module_names(meta_of(node)):
                first.setdefault(call, node)
                last[call] = node
    by_name.update(names or {})
    for call, signature in wanted.items():
        arguments = [_value(argument, by_name) for argument in signature.inputs]
        results = [_value(argument, by_name) for argument in signature.outputs]
        begin, end = first.get(call), last.get(call)
        if begin is None or end is None:  # a call that computes nothing: after everything that it returns
            given = [leaf for leaf in (*arguments, *results) if isinstance(leaf, Node)]
            end = max(given, key=order.__getitem__) if given else output_node(graph).prev
            begin = _after_inputs(end).next
        # numbers among the arguments are computed when the call begins
        late = [leaf for leaf in arguments if isinstance(leaf, Node) and order[leaf] >= order[begin]]
        if late:
            begin = max(late, key=order.__getitem__).next
        with graph.inserting_before(begin):
            _put(graph, module_arguments, call, arguments, signature.in_spec)
        with graph.inserting_before(_after_inputs(end).next):
            _put(graph, module_results, call, results, signature.out_spec, signature.returned)


def _after_inputs(node: Node) -> Node:
    while node.op == "placeholder" and node.next.op == "placeholder":
        node = node.next
    return node


def _value(argument: ArgumentSpec, by_name: dict[str, Node]) -> Any:
    return argument.value if isinstance(argument, ConstantArgument) else by_name[argument.name]


def _put(graph: Graph, mark: Any, call: str, leaves: list[Any], spec: tree.TreeSpec, returned: Returned = ()) -> None:
    more = (returned,) if returned else ()
    append_call(graph, mark, (call, leaves, spec, *more), {}, "mark", NodeMeta({"val": None}))


def root_signature(call_spec: CallSpec, signature: ExportGraphSignature) -> ModuleCallSignature:
    """What goes into a program as a whole and comes out of it."""
    return ModuleCallSignature(
        [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT],
        [spec.arg for spec in signature.output_specs if spec.kind is OutputKind.USER_OUTPUT],
        call_spec.in_spec,
        call_spec.out_spec,
        call_spec.returned,
    )


def with_signatures(
    entries: Sequence[ModuleCallEntry], signatures: dict[str, ModuleCallSignature]
) -> list[ModuleCallEntry]:
    """The entries of a program's modules with these signatures; a module's further calls follow it."""
    calls: dict[str, list[str]] = {}
    for call in signatures:
        calls.setdefault(call.partition("@")[0], []).append(call)
    result: list[ModuleCallEntry] = []
    for entry in entries:
        path = entry.fqn
        if path not in calls and entry.signature is None and "@" not in path:
            result.append(entry)  # as nearly all
            continue
        if "@" in path:
            continue
        signature = signatures.get(entry.fqn)
        is_same = signature is entry.signature  # there is one for few
        result.append(entry if is_same else ModuleCallEntry(entry.fqn, signature, entry.same_as))
        if entry.fqn in calls:
            result += [ModuleCallEntry(call, signatures[call]) for call in calls[entry.fqn] if "@" in call]
    return result
