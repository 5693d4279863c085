"""What functionalization says where a write can't be captured."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from tintype.errors import MutationError
from tintype.ir.graph import meta_of
from tintype.ir.signature import InputKind, InputSpec
from tintype.transforms.emit import location_of


def stale_copy(node: Node) -> MutationError:
    """A tensor that was written to is read through what may be it or a copy of it."""
    return MutationError(
        f"{node.name!r} is the result of a conversion (to(), float(), ...) that changed nothing, of a branch that "
        "returned its operand, or of unsafe_split or unsafe_chunk; the program writes to its source afterwards, "
        "which eager mode would show in it",
        location=location_of(node),
        remedy="take it after the write, or make a copy: clone()",
    )


def frozen(node: Node | None) -> MutationError:
    """A write to what may be an input or a copy of it."""
    return MutationError(
        "cannot mutate tensors with frozen storage: the program writes to an input through a conversion (to(), "
        "float(), ...) that changed nothing, to the result of a branch that returned its operand, or to a part that "
        "unsafe_split or unsafe_chunk made, so eager mode would write to the source too",
        location=None if node is None else location_of(node),
        remedy="write to the input itself, or to a copy: x.to(..., copy=True) or x.clone()",
    )


def hidden_by_loop(node: Node) -> MutationError:
    """A write to the result of a loop or to its initial value, which is the same memory where there is no step."""
    return MutationError(
        f"{node.target} writes to the result of a loop or to a value that the loop begins with; in eager mode they "
        "are one tensor where the loop makes no step, and the other one is read afterwards",
        location=location_of(node),
        remedy="write to a copy: clone()",
    )


def beyond_base(node: Node) -> MutationError:
    """Memory outside of a tensor's elements is read."""
    return MutationError(
        "the program reads memory through as_strided() that lies between or beyond the elements of a tensor it "
        "writes to, which can't be captured",
        location=location_of(node),
        remedy="use as_strided() on a contiguous tensor, and only inside of it",
    )


def two_histories(node: Node) -> MutationError:
    """Tensors that share memory leave the program with gradients of their own."""
    return MutationError(
        f"{node.target} writes a value that has a gradient to a tensor without the gradients of the memory behind it "
        "(detach(), data, a view of bits), and both leave the program: they share memory, and each has a gradient of "
        "its own, which a functional program can't express",
        location=location_of(node),
        remedy="write to a copy (detach().clone()), or return one of the two",
    )


def several_writes(node: Node) -> MutationError:
    """One operator writes twice to one memory."""
    return MutationError(
        f"{node.target} writes to several tensors that share memory, which can't be captured",
        location=location_of(node),
        remedy="write to them one after the other",
    )


def written_constant(constant: Node, spec: InputSpec, write: Node) -> MutationError:
    """A constant of the program is written to."""
    return MutationError(
        f"the program writes to the constant {meta_of(constant).source or repr(spec.target)}",
        location=location_of(write),
        remedy="register it as a buffer: self.register_buffer(name, tensor)",
    )


def written_overlap(node: Node | None) -> MutationError:
    """A write to elements that share memory with each other."""
    assert node is not None
    return MutationError(
        f"{node.target} writes to a tensor whose elements share memory with each other (expand(), unfold()), which "
        "can't be captured",
        location=location_of(node),
        remedy="write to a copy: clone()",
    )


def read_while_written(node: Node) -> MutationError:
    """What an operator reads and what it writes to overlap."""
    return MutationError(
        f"{node.target} writes to elements that it reads through another view, so that what is left depends on the "
        "order in which it goes through them",
        location=location_of(node),
        remedy="read from a copy: clone()",
    )


def shared_inputs(first: Node, second: Node, write: Node, specs: Sequence[InputSpec] | None) -> MutationError:
    """Two inputs, or parameters and buffers of the model, are one memory, which is written to; None for the specs of
    an arm, a step or another function that an operator is given, whose inputs have no names of the user's."""
    if specs is None:
        return MutationError(
            "an arm of a branch, a step of a loop or a function that an operator takes uses two tensors from around "
            "it that share memory, and writes to it",
            location=location_of(write),
            remedy="let one of them be a copy (clone()), or compute the new values and write them after the branch "
            "or the loop",
        )
    state = {spec.arg.name: spec.target for spec in specs if spec.kind is not InputKind.USER_INPUT}
    names = [
        f"{state[node.name]!r} of the model" if node.name in state else f"the input {node.name!r}"
        for node in (first, second)
    ]
    of_model = first.name in state and second.name in state
    return MutationError(
        f"{' and '.join(names)} share memory and the program writes to it",
        location=location_of(write),
        remedy="register one of them and take the other as a view of it in forward, or register a copy (clone())"
        if of_model
        else "pass a copy of one of them (clone()), or write to neither",
    )


def written_overlapping_input(node: Node, write: Node) -> MutationError:
    """An input is written to whose elements share memory."""
    return MutationError(
        f"the program writes to the input {node.name!r}, whose elements share memory with each other (expand())",
        location=location_of(write),
        remedy="pass a copy of it: clone()",
    )
