"""The modules that an unflattened program consists of: each runs a graph of its own and calls the modules below it.

A module of the original model that is called is a :class:`CallableModule`; one that only holds others stays a plain
``nn.Module``. What a graph names is looked up when it runs, so a submodule can be replaced at any time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, _symbolic_trace
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from tintype import tree
from tintype.errors import InputStructureError
from tintype.export.checks import InputChecks, flatten_call
from tintype.export.codegen import (
    Writer,
    build_container,
    callable_for,
    compile_graph,
    last_uses,
    spell_arguments,
    write_call,
)
from tintype.export.entry import callers_containers, write_arguments, write_parts
from tintype.export.flat_args import FlatArgsAdapter, adapted
from tintype.export.fx_tracing import traced_by_fx, tracer_of
from tintype.export.module import put_back
from tintype.export.own_attributes import (
    CHANGING,
    Own,
    OwnAttributes,
    UnlessModels,
    attribute_of,
    submodule_at,
    table_of_constant,
    tables_of,
)
from tintype.export.owned_state import InitialValue, as_replacement
from tintype.export.traced import TracedWriter
from tintype.ir.graph import output_node, placeholders, subgraph_at
from tintype.ir.names import names_in_code
from tintype.ir.operators import OPERATORS, callable_of
from tintype.ir.writing import spell, variable
from tintype.trace.recorder import active_recorder

# Under this name a module holds the root of its tree, where its graph names something that does not lie below it.
# It is a plain attribute: neither a submodule nor state. Where the model itself has this name, another one is taken.
ROOT = "_tree_root"


class CallableModule(OwnAttributes):
    """One module of an unflattened program.

    It has a ``graph``, which ``torch.fx.Interpreter`` runs as well; call :meth:`recompile` after editing it. Its
    arguments are the tensors that its graph takes, by position, unless its signature was preserved.
    """

    graph = Own()
    _entry = Own()
    _root_name = Own()
    _class_name = Own()

    def __init__(self, root_name: str = ROOT) -> None:
        super().__init__()
        self._class_name = None
        self._entry = None
        self._root_name = root_name

    def type_name(self) -> str | None:
        """The class of the module in the model, where the program knows it.

        >>> import torch, tintype
        >>> model = torch.nn.Sequential(torch.nn.ReLU())
        >>> tintype.unflatten(tintype.export(model, (torch.ones(2),))).get_submodule("0").type_name()
        'torch.nn.modules.activation.ReLU'
        """
        return self._class_name

    def recompile(self) -> None:
        """Take an edit of the graph into account."""
        self._entry = None

    @property
    def code(self) -> str:
        """The graph as Python code."""
        text: str = self.graph.python_code(root_module="self").src
        return text

    def print_readable(self, print_output: bool = True) -> str:
        """The graph as Python code, with that of the modules below it."""
        blocks = [
            f"# {name or type(self).__name__}\n{module.code.strip()}\n"
            for name, module in self.named_modules()
            if isinstance(module, CallableModule)
        ]
        text = "\n".join(blocks)
        if print_output:
            print(text)  # noqa: T201  (what the method is for)
        return text

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        if _symbolic_trace._is_fx_tracing_flag and (tracer := tracer_of(tree.leaves((args, kwargs)))) is not None:
            return self._traced_by_fx(tracer, args, kwargs)
        entry = self.__dict__["tintype._entry"]
        if entry is None:
            entry = self._entry = _compile(self, Writer())
        return entry(self, *args, **kwargs)

    def _traced_by_fx(self, tracer: Any, args: Any, kwargs: Any) -> Any:
        """The result for values of fx's symbolic tracer."""
        return traced_by_fx(self, self.graph, tracer, args)

    @property
    def _initialize_hook(self) -> None:
        """What torch.compile asks a module for before it looks at its code: so the entries are there by then, with
        some that it can follow. Only lazy modules have such a hook."""
        self._write_traced_entries()
        raise AttributeError("_initialize_hook")

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let torch compile what calls of this module do."""
        self._write_traced_entries()
        super().compile(*args, **kwargs)

    def _write_traced_entries(self) -> None:
        for module in self.modules():
            if isinstance(module, CallableModule):
                entry: Any = module._entry
                if entry is None or not hasattr(entry, "_torchdynamo_inline"):
                    entry = module._entry = _compile(module, Writer())
                    entry._torchdynamo_inline = _compile(module, TracedWriter())

    def _write_inputs(self, writer: Writer, inputs: list[Node]) -> str:
        """Generate what takes the arguments apart; returns the header of the function."""
        return "".join(f", {variable(node)}" for node in inputs)

    def _result(self, writer: Writer, result: Any) -> str:
        return spell(writer, result)


class StructuredModule(CallableModule):
    """A module that is called as in the original model: positional and keyword arguments, containers."""

    _in_spec = Own()
    _out_spec = Own()
    argument_names = Own()
    _checks = Own()
    _returned = Own()

    def __init__(
        self,
        in_spec: tree.TreeSpec,
        out_spec: tree.TreeSpec,
        argument_names: Sequence[str],
        root_name: str = ROOT,
        returned: Sequence[tuple[tree.Path, tree.Path]] = (),
    ) -> None:
        super().__init__(root_name)
        self._checks = None
        self._returned = tuple(returned)
        self._in_spec = in_spec
        self._out_spec = out_spec
        self.argument_names = list(argument_names)

    def adopt(self, graph: Graph) -> None:
        """Take a graph over leaves of the arguments and results."""
        names = names_in_code(self.argument_names)
        graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, self._in_spec, self._out_spec)))
        self.graph = graph

    def _traced_by_fx(self, tracer: Any, args: Any, kwargs: Any) -> Any:
        leaves = flatten_call(args, kwargs, self._in_spec, self.argument_names)
        return build_tree(traced_by_fx(self, self.graph, tracer, leaves), self._out_spec)

    def _write_inputs(self, writer: Writer, inputs: list[Node]) -> str:
        taken = f"{writer.bind(flatten_call)}(_args, _kwargs, {writer.bind(self._in_spec)}, "
        taken += f"{writer.bind(self.argument_names)})"
        targets = "".join(f"{variable(node)}, " for node in inputs) or "_nothing"
        writer.line(f"{targets} = {taken}")
        self._write_containers(writer)
        return ", *_args, **_kwargs"

    def _write_containers(self, writer: Writer) -> None:
        callers = callers_containers(self)
        if callers.is_needed:
            writer.line(f"_given = {writer.bind(callers.of_call)}(_args, _kwargs)")

    def _result(self, writer: Writer, result: Any) -> str:
        leaves = iter([spell(writer, leaf) for leaf in result])
        return build_container(writer, self._out_spec, leaves, callers_containers(self).places)


class UnflattenedModule(StructuredModule):
    """The root of an unflattened program: takes the program's inputs, checks them, and holds the modules below it."""

    # who captures such a module again takes its arguments' names from it
    is_captured_program = True
    _constants = Own()
    _initial = Own()
    _replaced = Own()
    _adapter = Own()

    def __init__(
        self,
        in_spec: tree.TreeSpec,
        out_spec: tree.TreeSpec,
        argument_names: Sequence[str],
        checks: InputChecks,
        constants: Sequence[str],
        root_name: str = ROOT,
        returned: Sequence[tuple[tree.Path, tree.Path]] = (),
    ) -> None:
        super().__init__(in_spec, out_spec, argument_names, root_name, returned)
        self._checks = checks
        self._constants = list(constants)
        self._initial = {}
        self._replaced = frozenset()
        self._adapter = None

    def set_adapter(self, adapter: FlatArgsAdapter | None) -> None:
        """Ask somebody what to do with arguments of another structure than the program's."""
        self._adapter = adapter
        self._entry = None

    def keep_initial(self, values: Mapping[str, torch.Tensor], replaced: Collection[str]) -> None:
        """Note state that calls change, as it is now; some is replaced by them, the rest written to."""
        self._initial = {name: InitialValue(value) for name, value in values.items()}
        self._replaced = frozenset(replaced)
        for name in values:
            owner, _, attribute = name.rpartition(".")
            vars(submodule_at(self, owner)).setdefault(CHANGING, set()).add(attribute)

    @UnlessModels
    def state(self) -> dict[str, torch.Tensor]:
        """The buffers, parameters and constants that calls change, by name, as they are now.

        As for the module of a program; what lay in submodules that were replaced is not part of it any more.

        >>> import torch, tintype
        >>> class Counter(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("count", torch.zeros(()))
        ...
        ...     def forward(self, x):
        ...         self.count.add_(1)
        ...         return x + self.count
        >>> module = tintype.unflatten(tintype.export(Counter(), (torch.zeros(1),)))
        >>> module(torch.zeros(1)), module.state()
        (tensor([1.]), {'count': tensor(1.)})
        >>> module.reset()
        >>> module.state()
        {'count': tensor(0.)}
        """
        return {name: attribute_of(self, name) for name in self._initial if self._is_there(name)}

    @UnlessModels
    def reset(self) -> None:
        """Put everything that calls change back to what it was when the module was made."""
        there = {name: value for name, value in self._initial.items() if self._is_there(name)}
        put_back(self, there, self._replaced)

    def _is_there(self, name: str) -> bool:
        """Whether state still lies where the model had it, and not in a module that somebody put there since."""
        path, _, attribute = name.rpartition(".")
        owner = find_module(self, path)
        return owner is not None and attribute in vars(owner).get(CHANGING, ())

    def _write_inputs(self, writer: Writer, inputs: list[Node]) -> str:
        write_parts(writer, self._in_spec)
        if self._adapter is not None:
            writer.line(
                f"_args, _kwargs = {writer.bind(adapted)}({writer.bind(self._adapter)}, _self, _args, _kwargs)"
            )
        write_arguments(writer, self, inputs, "_self._state_of")
        if self._checks.looks_further and not writer.is_traced:
            leaves = "".join(f"{variable(node)}, " for node in inputs)
            writer.line(f"if {writer.bind(active_recorder)}() is not None:")  # then its questions are asked again
            writer.line(f"    {writer.bind(self._checks.check)}([{leaves}], _self._state_of)")
        self._write_containers(writer)
        return ", *_args, **_kwargs"

    def _state_of(self, name: str) -> torch.Tensor:
        path, _, attribute = name.rpartition(".")
        return state_of(find_module(self, path) or self, attribute)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        # constants move with the modules, though they are not part of their state
        for name in self._constants:
            owner_path, _, attribute = name.rpartition(".")
            owner = find_module(self, owner_path)
            table = {} if owner is None else table_of_constant(owner, attribute)
            if isinstance(table.get(attribute), torch.Tensor):
                table[attribute] = fn(table[attribute])
        self._entry = None  # it may know where state lies in memory
        return super()._apply(fn, recurse)


# --- what graphs call ------------------------------------------------------------------------------------


def replace_buffer(root: torch.nn.Module, path: str, value: torch.Tensor) -> None:
    """``root.<path> = value`` for a buffer."""
    owner_path, _, name = path.rpartition(".")
    owner = find_module(root, owner_path)
    if owner is None or name not in owner._buffers:
        warnings.warn(f"the new value of {path} is lost: the module that had this buffer was replaced", stacklevel=2)
        return
    old = owner._buffers[name]
    assert old is not None
    owner._buffers[name] = as_replacement(old, value)


def build_tree(leaves: Sequence[Any], spec: tree.TreeSpec) -> Any:
    """Leaves in a container. In the arguments of a node it would become one of fx's own, immutable ones."""
    return tree.unflatten(list(leaves), spec)


def leaves_of(value: Any, spec: tree.TreeSpec) -> list[Any]:
    """The leaves of what a module returned, which must be of the structure that the original module returned."""
    leaves, given = tree.flatten(value)
    if tree.same_structure(given, spec):
        return leaves
    try:
        return spec.flatten_up_to(value)  # dictionaries may have their keys in another order
    except ValueError as error:
        raise InputStructureError(
            f"a submodule returned a value of the structure\n{given}\nwhere the original module returned\n{spec}",
            remedy="let the module that replaces another return what that one did",
        ) from error


def function_of(graph: Any) -> Any:
    """What runs a graph that an operator takes. The code that fx writes calls torch's own operators for the graphs
    inside of it, and torch runs these a second time for gradients."""
    if not isinstance(graph, GraphModule) or active_recorder() is not None:
        return graph
    if "_code" not in vars(graph):  # fx writes it when it is first asked for, by a call or an edit
        graph.recompile()
    code = graph.code  # another text after an edit
    known = graph.__dict__.get("tintype.function")
    if known is None or known[0] is not code:
        known = graph.__dict__["tintype.function"] = (code, compile_graph(graph))
    return known[1]


def run_or_captured(target: Any) -> Callable[..., Any]:
    """What calls an operator that takes functions: as part of the program that is captured, if there is one."""
    run, operator = callable_for(target), callable_of(target)

    def call(*args: Any, **kwargs: Any) -> Any:
        return (run if active_recorder() is None else operator)(*args, **kwargs)

    return call


# --- finding things --------------------------------------------------------------------------------------


def find_module(root: torch.nn.Module, path: str) -> torch.nn.Module | None:
    """The module at a dotted path, if there is one."""
    module: torch.nn.Module | None = root
    for part in path.split(".") if path else ():
        module = module._modules.get(part) if module is not None else None
    return module


def state_of(module: torch.nn.Module, name: str) -> Any:
    """A parameter, buffer or constant of a module."""
    for table in tables_of(module):
        if name in table:
            return table[name]
    return getattr(module, name)


# --- the generated function ------------------------------------------------------------------------------


def _compile(module: CallableModule, writer: Writer) -> Callable[..., Any]:
    """The function that runs a module's graph. It refers to no module: copies of a module share it."""
    nodes = list(module.graph.nodes)
    header = module._write_inputs(writer, placeholders(module.graph))
    released = last_uses(nodes)
    for node in nodes:
        if node.op == "call_function" and node.target in OPERATORS and not writer.is_traced:
            operator = writer.bind(run_or_captured(node.target))
            writer.line(f"{variable(node)} = {operator}({spell_arguments(writer, node.args, node.kwargs)})")
        elif node.op == "call_function":
            write_call(writer, node)
        elif node.op == "call_module":
            called = _module_text(str(node.target), module._root_name)
            writer.line(f"{variable(node)} = {called}({spell_arguments(writer, node.args, node.kwargs)})")
        elif node.op == "get_attr":
            text = _attribute_text(writer, str(node.target), module._root_name)
            graph = subgraph_at(node)
            if graph is not None:
                text = writer.bind_graph(graph, node) if writer.is_traced else f"{writer.bind(function_of)}({text})"
            writer.line(f"{variable(node)} = {text}")
        elif node.op == "call_method":
            rest = spell_arguments(writer, node.args[1:], node.kwargs)
            writer.line(f"{variable(node)} = {spell(writer, node.args[0])}.{node.target}({rest})")
        if node in released:
            writer.line(" = ".join(variable(argument) for argument in released[node]) + " = None")
    writer.line(f"return {module._result(writer, output_node(module.graph).args[0])}")
    return writer.build("_run", f"(_self, /{header})")


def _module_text(path: str, root: str) -> str:
    parts = path.split(".") if path else []
    text = "_self"
    if parts and parts[0] == root:
        text = f"_self.{root}"
        parts = parts[1:]
    return text + "".join(f"._modules[{part!r}]" for part in parts)


def _attribute_text(writer: Writer, path: str, root: str) -> str:
    if path == root:
        return f"_self.{root}"
    owner, _, name = path.rpartition(".")
    return f"{writer.bind(state_of)}({_module_text(owner, root)}, {name!r})"
