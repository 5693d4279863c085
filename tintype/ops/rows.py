"""What operators that go through the rows of tensors (map, scan) have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from tintype.errors import InvalidRequestError
from tintype.fake.info import TensorInfo, fresh
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node, placeholders
from tintype.ir.running import call_node
from tintype.ir.runtime_assertions import RuntimeAssertion
from tintype.ops.subgraphs import Body, keeping_history
from tintype.symbolic import eq
from tintype.symbolic.location import user_location
from tintype.trace.recorder import Recorder


def check_rows(operator: str, leaves: Sequence[Any]) -> None:
    """Refuse to go through the rows of anything but tensors with the same number of rows."""
    shapes = [leaf.shape if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    if not leaves or None in shapes:
        kinds = ", ".join(type(leaf).__name__ for leaf in leaves) or "nothing"
        raise InvalidRequestError(
            f"{operator} goes through the rows of tensors, but got {kinds}. Mapped xs can only consist of tensors.",
            location=user_location(),
        )
    if any(not shape for shape in shapes):
        raise InvalidRequestError(
            f"{operator} goes through the rows of tensors, but got one without dimensions. Got shapes {shapes}.",
            location=user_location(),
        )
    lengths = [shape[0] for shape in shapes]  # type: ignore[index]
    if all(type(length) is int for length in lengths) and len(set(lengths)) > 1:
        sizes = [list(shape or ()) for shape in shapes]
        raise InvalidRequestError(
            f"Leading dimensions of mapped xs must be consistent. Got shapes {sizes}.",
            location=user_location(),
        )


def as_fakes(recorder: Recorder, leaves: Sequence[Any]) -> list[FakeTensor]:
    """The tensors to go through; they have equally many rows."""
    fakes = [recorder.as_fake(leaf) for leaf in leaves]
    for fake in fakes[1:]:
        condition = eq(fakes[0].info.sizes[0], fake.info.sizes[0])
        recorder.context.environment.require(condition, "the tensors have different numbers of rows")
    return fakes


def row_of(fake: FakeTensor) -> TensorInfo:
    """One row of a tensor, as memory of its own."""
    info = fake.info
    row = TensorInfo(info.sizes[1:], info.strides[1:], info.dtype, info.device)
    row.requires_grad, row.conjugate, row.negative = info.requires_grad, info.conjugate, info.negative
    return row


def name_of(fake: FakeTensor) -> str:
    """What the input for a row of a tensor is called."""
    return "row" if fake.node is None else fake.node.name


def stacked(body: Body, index: int, length: Any) -> TensorInfo:
    """What a result of every row gives when stacked."""
    info = body.leaves[index].info
    if any(size in body.private for size in info.sizes):
        raise InvalidRequestError(
            f"{body.title} returns a tensor of size {list(info.sizes)}, which the data decide, so that rows may "
            "differ in size",
            location=user_location(),
            remedy="return tensors of one size, padded where needed",
        )
    result = fresh((length, *info.sizes), info.dtype, info.device)
    result.requires_grad = info.requires_grad
    return result


def stack(rows: list[torch.Tensor]) -> torch.Tensor:
    """Rows as one tensor, contiguous in memory whatever they are."""
    return torch.stack(rows).contiguous()


def empty_results(
    function: Any, first: int, inputs: Sequence[Any], xs: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """What the results of a function from some position on give when those of no call are stacked: known of captured
    functions, whose checks of data would not hold for rows that nobody has. None where sizes vary.

    ``inputs`` are what a call would get, with rows of zeros: sizes that the function asks for must be theirs."""
    module = function if isinstance(function, GraphModule) else getattr(function, "graph_module", None)
    if module is None:
        return None
    results: Any = output_node(module.graph).args[0]
    values: list[Any] = [node.meta.get("val") if isinstance(node, Node) else None for node in results[first:]]
    if any(type(value) is not FakeTensor or not all(type(s) is int for s in value.info.sizes) for value in values):
        return None
    _check_sizes(module, inputs)
    return [torch.empty((0, *value.info.sizes), dtype=value.info.dtype, device=xs[0].device) for value in values]


def _check_sizes(module: GraphModule, inputs: Sequence[Any]) -> None:
    """Run the assertions of a graph that are about sizes of its inputs alone, on which those of its results rest."""
    values: dict[Node, Any] = dict(zip(placeholders(module.graph), inputs, strict=True))
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_scalar.default):
        condition, message = node.args
        if _is_of_sizes(condition):
            RuntimeAssertion(node)(_value_of(condition, values), str(message))


def _is_of_sizes(argument: Any) -> bool:
    """Whether a number follows from the sizes of a graph's inputs."""
    if not isinstance(argument, Node):
        return True
    if argument.target is torch.ops.aten.sym_size.int:
        return argument.args[0].op == "placeholder"  # type: ignore[union-attr]
    if not isinstance(argument.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return False
    return argument.op == "placeholder" or all(_is_of_sizes(source) for source in argument.all_input_nodes)


def _value_of(argument: Any, values: dict[Node, Any]) -> Any:
    """What a number is, computed with all that it follows from."""
    if not isinstance(argument, Node):
        return argument
    if argument not in values:
        args, kwargs = map_arg((argument.args, argument.kwargs), lambda source: _value_of(source, values))
        values[argument] = call_node(argument, args, kwargs)
    return values[argument]


def laid_out(carried: Sequence[Any]) -> tuple[Any, ...]:
    """Carried values as every step of a captured loop takes them: contiguous, whatever a step made of them. So random
    numbers that are drawn in the order of elements in memory are the same ones in eager mode."""
    with keeping_history():
        return tuple(
            value.resolve_conj().resolve_neg().contiguous() if isinstance(value, torch.Tensor) else value
            for value in carried
        )


def own(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Results with memory of their own: those that lie in the memory of an input are copied. One that no step has
    changed has the history that it had, below ``no_grad``, too."""
    taken = {_memory(value) for value in inputs if isinstance(value, torch.Tensor)}
    with keeping_history():
        return [
            value.clone(memory_format=torch.contiguous_format)
            if isinstance(value, torch.Tensor) and _memory(value) in taken
            else value
            for value in results
        ]


def _memory(value: torch.Tensor) -> int:
    """The memory that a tensor lies in: inside of ``torch.vmap`` that of the whole batch."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(value):
        value = functorch.get_unwrapped(value)
    return value.untyped_storage()._cdata
