"""The function that runs a program's graph on the user's arguments, written for each program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype import tree
from tintype.export.checks import call_in_parts, flatten_call
from tintype.export.codegen import Writer, build_container, last_uses, spell_arguments, write_call
from tintype.export.given import CallersContainers
from tintype.export.own_attributes import computed, is_computed, missing_state, submodule_at, tables_of
from tintype.export.owned_state import as_replacement, replace_state
from tintype.export.refused_calls import AS_THE_EXAMPLE
from tintype.export.traced import TracedWriter
from tintype.export.unneeded import is_conversion, unneeded_calls
from tintype.ir.graph import placeholders, subgraph_at
from tintype.ir.names import is_name
from tintype.ir.writing import spell, variable
from tintype.trace.recorder import active_recorder
from tintype.tree.subclasses import has_parts

_modes_active = torch._C._len_torch_dispatch_stack


def compile_entry(module: Any, is_traced: bool = False) -> Callable[..., Any]:
    """The function that runs the graph of a ``ProgramModule``.

    With ``is_traced`` it is one for ``torch.compile`` to look into, which follows Python and calls of operators, but
    not the quicker ways to call them; and where that works, no capture of ours looks on.
    """
    writer = TracedWriter() if is_traced else Writer()
    nodes = list(module.graph.nodes)
    inputs = placeholders(module.graph)
    write_parts(writer, module._in_spec)
    if not is_traced:
        writer.line(f"if {writer.bind(_modes_active)}():")
        writer.line(f"    _recorder = {writer.bind(active_recorder)}()")
        writer.line("    if _recorder is not None:")
        writer.line(f"        return {writer.bind(module.interpret)}(_recorder, _args, _kwargs)")
    write_arguments(writer, module, inputs, writer.bind(module._state_of))
    callers = callers_containers(module)
    if callers.is_needed:
        writer.line(f"_given = {writer.bind(callers.of_call)}(_args, _kwargs)")
    unneeded = unneeded_calls(nodes)
    released = last_uses(nodes, unneeded)
    fetching = [node for node in nodes if node.op == "get_attr"]
    if fetching:
        # state may have moved since, when a tool computes it from other state: then the code is written again
        writer.line("try:")
        for node in fetching:
            writer.line(f"    {variable(node)} = {_fetched(writer, module, node)}")
        writer.line("except KeyError:")
        writer.line(f"    return {writer.bind(module._run_again)}(_args, _kwargs)")
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node in unneeded:
            _write_unneeded(writer, node, unneeded[node])
        elif node.op == "output":
            leaves = iter([spell(writer, result) for result in node.args[0]])
            writer.line(f"return {build_container(writer, module._out_spec, leaves, callers.places)}")
        elif node.target is replace_state:
            path, value = node.args
            place = _attribute(writer, module, path)
            writer.line(f"{place} = {writer.bind(as_replacement)}({place}, {spell(writer, value)})")
        elif node.op == "call_function":
            write_call(writer, node)
        else:
            _write_dynamic(writer, module, node)
        if node in released:
            dead = [variable(argument) for argument in released[node]]
            writer.line(" = ".join(dead) + " = None")
    if not is_traced:
        writer.lines = ["try:", *(f"    {line}" for line in writer.lines)]
        writer.line(f"except {writer.bind((RuntimeError, NotImplementedError))} as _error:")
        writer.line(f"    {writer.bind(module._explain)}(_error, _args, _kwargs)")
        writer.line("    raise")
    return writer.build("_run", "(*_args, **_kwargs)")


def callers_containers(module: Any) -> CallersContainers:
    """What finds the caller's containers in the calls of a program."""
    return CallersContainers(
        module._in_spec,
        module.argument_names,
        module._returned,
        module._checks.of_containers if module._checks else (),
        module._checks.calling if module._checks else AS_THE_EXAMPLE,
    )


def _write_unneeded(writer: Writer, node: Node, same: Node) -> None:
    """A call that returns what is there; a module may have been converted since, and then conversions are needed."""
    value = variable(same)
    if not is_conversion(node):
        writer.line(f"{variable(node)} = {value}")
        return
    conditions = [
        f"{value}.{name} == {writer.bind(wanted)}" for name, wanted in node.kwargs.items() if wanted is not None
    ]
    writer.line(f"if {' and '.join(conditions) or 'True'}: {variable(node)} = {value}")
    write_call(writer, node, "else: ")


def _fetched(writer: Writer, module: Any, node: Node) -> str:
    if subgraph_at(node) is not None:
        held = module._modules.get(str(node.target))  # which may have been replaced
        return writer.bind_graph(held if isinstance(held, GraphModule) else subgraph_at(node), node)
    owner_path, _, name = str(node.target).rpartition(".")
    owner = submodule_at(module, owner_path)
    if is_computed(owner, name):
        return f"{writer.bind(computed)}({writer.bind(owner)}, {name!r})"
    return _attribute(writer, module, node.target)


def _attribute(writer: Writer, module: Any, path: Any) -> str:
    owner_path, _, name = str(path).rpartition(".")
    owner = submodule_at(module, owner_path)
    for table in tables_of(owner):
        if name in table:
            return f"{writer.bind(table)}[{name!r}]"
    raise missing_state(path)


def _write_dynamic(writer: Writer, module: Any, node: Node) -> None:
    """Calls that only an edited graph has."""
    if node.op == "call_module":
        function = writer.bind(module.get_submodule(str(node.target)))
        writer.line(f"{variable(node)} = {function}({spell_arguments(writer, node.args, node.kwargs)})")
    else:
        arguments = spell_arguments(writer, node.args[1:], node.kwargs)
        writer.line(f"{variable(node)} = {spell(writer, node.args[0])}.{node.target}({arguments})")


def write_parts(writer: Writer, in_spec: tree.TreeSpec) -> None:
    """Take tensors among the arguments apart that consist of others, where the program takes some."""
    if has_parts(in_spec):
        writer.line(f"_args, _kwargs = {writer.bind(call_in_parts)}((_args, _kwargs))")


def write_arguments(writer: Writer, module: Any, inputs: list[Node], state_of: str) -> None:
    """Take the arguments apart and check them; ``state_of`` is the expression of what finds state by its name."""
    args_spec, kwargs_spec = module._in_spec.children()
    ordered = module._checks.ordered
    simple = all(child.is_leaf() for child in (*args_spec.children(), *kwargs_spec.children())) and not ordered
    variables = [variable(node) for node in inputs]
    quick = tree.TakingApart(module._in_spec)
    slow = f"{writer.bind(flatten_call)}(_args, _kwargs, {writer.bind(module._in_spec)}, "
    slow += f"{writer.bind(module.argument_names)}, {writer.bind(ordered)}, {writer.bind(quick)}, "
    slow += f"{writer.bind(module._checks.calling)})"
    target = ", ".join(variables) + "," if variables else "_nothing"
    count = args_spec.num_children
    names = list(kwargs_spec.context)
    if simple and all(is_name(str(name)) for name in names):
        writer.line(f"if len(_args) == {count} and len(_kwargs) == {len(names)}:")
        if count:
            writer.line(f"    {''.join(f'{v}, ' for v in variables[:count])} = _args")
        if names:
            writer.line("    try:")
            for name, value in zip(names, variables[count:], strict=True):
                writer.line(f"        {value} = _kwargs[{name!r}]")
            writer.line("    except KeyError:")
            writer.line(f"        {target} = {slow}")
        if not count and not names:
            writer.line("    pass")
        writer.line("else:")
        writer.line(f"    {target} = {slow}")
    else:
        writer.line(f"{target} = {slow}")
    module._checks.write(writer, variables, state_of)
