"""One call of a module while a program is divided into such calls: see :mod:`tintype.export.unflatten`."""

from __future__ import annotations

from torch.fx import Graph, Node

from tintype.export.call_spec import ModuleCallSignature
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import add_placeholder, set_meta
from tintype.ir.names import free_name, identifier
from tintype.ir.node_info import NodeMeta
from tintype.symbolic.expression import Expr


class Scope:
    """One call of a module: its graph, and where the program's values are in it."""

    __slots__ = (
        "call", "class_name", "closed", "depth", "graph", "inputs", "last", "last_input", "last_state", "name",
        "outputs", "parent", "path", "signature", "sizes", "target", "values",
    )  # fmt: skip

    def __init__(self, parent: Scope | None, path: str, name: str) -> None:
        self.parent = parent
        self.path = path
        self.name = name
        # the class of the module in the model, where the program knows it
        self.class_name: str | None = None
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.graph = Graph()
        self.signature: ModuleCallSignature | None = None
        # values of the flat graph that come from outside, in the order of the module's arguments
        self.inputs: dict[Node, None] = {}
        # values that go outside, with the node in the parent's graph that stands for each
        self.outputs: dict[Node, Node] = {}
        self.values: dict[Node, Node] = {}
        # which dimension of which of this graph's nodes has a symbolic size
        self.sizes: dict[Expr, tuple[Node, int]] = {}
        # the node in the parent's graph that calls this module, and the module's path in the tree
        self.call: Node | None = None
        self.target = ""
        self.last = -1
        self.last_input: Node | None = None
        self.last_state: Node | None = None
        self.closed = False

    def outermost_first(self) -> list[Scope]:
        """This call and those around it."""
        chain = [self]
        while chain[-1].parent is not None:
            chain.append(chain[-1].parent)
        chain.reverse()
        return chain

    def contains(self, other: Scope) -> bool:
        """Whether another call is this one or lies inside of it."""
        while other.depth > self.depth:
            assert other.parent is not None
            other = other.parent
        return other is self

    def add(self, value: Node, node: Node) -> None:
        """Let a node of this graph stand for a value of the flat graph."""
        self.values[value] = node
        fake = node.meta.get("val")
        if type(fake) is FakeTensor:
            for dimension, size in enumerate(fake.info.sizes):
                if isinstance(size, Expr):
                    self.sizes.setdefault(size, (node, dimension))

    def add_input(self, value: Node) -> Node:
        """Take a value from outside as a further argument."""
        used = self.graph._graph_namespace._used_names
        name = value.name if value.name not in used else free_name(f"{value.name}_in", used)
        node = add_placeholder(self.graph, name, value_meta(value), after=self.last_input or self.graph._root)
        self.last_input = node
        self.inputs[value] = None
        self.add(value, node)
        return node

    def add_state(self, value: Node) -> Node:
        """Fetch state, right after the arguments."""
        path = str(value.target)
        name = free_name(identifier(path.rpartition(".")[2]), self.graph._graph_namespace._used_names)
        with self.graph.inserting_after(self.last_state or self.last_input or self.graph._root):
            node = self.graph.create_node("get_attr", path, name=name)
        set_meta(node, value_meta(value))
        self.last_state = node
        self.add(value, node)
        return node


def value_meta(node: Node) -> NodeMeta:
    """The meta of a node that stands for another one's value elsewhere."""
    return NodeMeta({"val": node.meta.get("val")})
