"""Tensors and objects that a graph fetches from its module become inputs of the graph.

``tintype.export`` makes programs whose graphs fetch nothing but other graphs; this is for graphs that were edited.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from tintype.fake.context import FakeContext
from tintype.ir.graph import add_placeholder, meta_of, placeholders, subgraph_at
from tintype.ir.signature import (
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)


def lift_constants(module: GraphModule, signature: ExportGraphSignature, context: FakeContext) -> dict[str, Any]:
    """Make inputs of what a program's graph fetches from its module, and return it by name.

    The new inputs stand before the user's, and the signature names them; the caller adds what is returned to the
    program's constants.
    """
    fetched: dict[str, list[Node]] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        if subgraph_at(node) is None:
            fetched.setdefault(str(node.target), []).append(node)
    constants = {}
    for name, nodes in fetched.items():
        constants[name] = value = _taken(module, name)
        node, spec = _new_input(module, name, value, context)
        position = _first_user_input(signature)
        inputs = placeholders(module.graph)
        if position < len(inputs) - 1:
            inputs[position].prepend(node)
        signature.input_specs.insert(position, spec)
        for old in nodes:
            old.replace_all_uses_with(node)
            module.graph.erase_node(old)
    return constants


def _first_user_input(signature: ExportGraphSignature) -> int:
    kinds = [spec.kind for spec in signature.input_specs]
    return kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(kinds)


def _taken(module: GraphModule, path: str) -> Any:
    """The attribute at a dotted path, which is taken from its module."""
    owner_path, _, name = path.rpartition(".")
    owner = module.get_submodule(owner_path)
    value = getattr(owner, name)
    delattr(owner, name)
    return value


def _new_input(module: GraphModule, path: str, value: Any, context: FakeContext) -> tuple[Node, InputSpec]:
    stem = path.replace(".", "_")
    is_tensor = isinstance(value, torch.Tensor)
    name = module.graph._graph_namespace.create_name(f"{'c' if is_tensor else 'obj'}_{stem}", None)
    inputs = placeholders(module.graph)
    node = add_placeholder(module.graph, name, after=inputs[-1] if inputs else None)
    if is_tensor:
        meta_of(node)["val"] = context.fake_of(value, node)
        return node, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), path)
    kind = value._type().qualified_name() if isinstance(value, torch.ScriptObject) else type(value).__qualname__
    return node, InputSpec(InputKind.CUSTOM_OBJ, CustomObjArgument(name, kind), path)
