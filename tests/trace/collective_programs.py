"""Programs with collectives, and the process that compares them with eager mode as one of a group.

``python -m tests.trace.collective_programs RANK SIZE FILE`` is one process; they find each other through the file.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import get_world_size
from torch.utils._pytree import tree_map

import tintype
from tintype.fake.rules import RULES

Program = Callable[[torch.Tensor], Any]


def all_reduce(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y)
    return y, x


def all_reduce_maximum(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return y


def all_reduce_of_a_view(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y[1])
    return y


def all_reduce_that_nobody_reads(x: torch.Tensor) -> Any:
    y = x * 2
    dist.all_reduce(y)
    return x + 1


def all_reduce_later(x: torch.Tensor) -> Any:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    assert work is not None
    work.wait()
    return y + z


def broadcast(x: torch.Tensor) -> Any:
    y = x * 2
    dist.broadcast(y, dist.get_world_size() - 1)
    return y


def all_gather(x: torch.Tensor) -> Any:
    parts = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return parts


def all_gather_of_numbers(x: torch.Tensor) -> Any:
    parts = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.sum())
    return parts


def all_gather_into_tensor(x: torch.Tensor) -> Any:
    joined = torch.zeros(dist.get_world_size() * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(joined, x)
    return joined


def reduce_scatter_tensor(x: torch.Tensor) -> Any:
    part = torch.zeros(x.shape[0] // dist.get_world_size(), x.shape[1])
    dist.reduce_scatter_tensor(part, x)
    return part


def reduce_scatter(x: torch.Tensor) -> Any:
    parts = [part.contiguous() for part in x.chunk(dist.get_world_size())]
    part = torch.zeros_like(parts[0])
    dist.reduce_scatter(part, parts)
    return part


def all_to_all_single(x: torch.Tensor) -> Any:
    received = torch.zeros_like(x)
    dist.all_to_all_single(received, x)
    return received


def all_to_all_single_in_parts(x: torch.Tensor) -> Any:
    size = dist.get_world_size()
    sent = [1] * (size - 1) + [x.shape[0] - size + 1]  # the last process gets the rest of every process
    received = [sent[dist.get_rank()]] * size
    y = torch.zeros(sum(received), x.shape[1])
    dist.all_to_all_single(y, x, received, sent)
    return y


def all_to_all(x: torch.Tensor) -> Any:
    parts = [part.contiguous() for part in x.chunk(dist.get_world_size())]
    received = [torch.zeros_like(part) for part in parts]
    dist.all_to_all(received, parts)
    return received


def barrier(x: torch.Tensor) -> Any:
    dist.barrier()
    return x + 1


def functional(x: torch.Tensor) -> Any:
    import torch.distributed._functional_collectives as collectives

    group = dist.group.WORLD
    assert group is not None
    reduced = collectives.all_reduce(x * 2, "sum", group) + 1
    gathered = collectives.all_gather_tensor(x, 1, group) + 1
    part = collectives.reduce_scatter_tensor(x, "sum", 0, group) + 1
    return reduced, gathered, part, collectives.broadcast(x, 0, group) + 1


def functional_in_place(x: torch.Tensor) -> Any:
    y = x * 2
    torch.ops._c10d_functional.all_reduce_(y, "sum", "0")
    return torch.ops._c10d_functional.wait_tensor(y) + y


def in_a_branch(x: torch.Tensor) -> Any:
    def reduced(value: torch.Tensor) -> torch.Tensor:
        y = value * 2
        dist.all_reduce(y)
        return y

    return tintype.cond(x.numel() > torch.tensor(0), reduced, lambda value: value * 1, (x,))


class Statistics(torch.nn.Module):
    """A buffer that all processes keep together."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.add_(x.mean(0))
        dist.all_reduce(self.mean)
        return x - self.mean


class Reduced(torch.autograd.Function):
    """A sum over all processes, which is its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


PROGRAMS: list[Program] = [
    all_reduce, all_reduce_maximum, all_reduce_of_a_view, all_reduce_that_nobody_reads, all_reduce_later, broadcast,
    all_gather, all_gather_of_numbers, all_gather_into_tensor, reduce_scatter_tensor, reduce_scatter,
    all_to_all_single, all_to_all_single_in_parts, all_to_all, barrier, functional, functional_in_place, in_a_branch,
]  # fmt: skip


def gather(x: torch.Tensor) -> None:
    dist.gather(x, None if dist.get_rank() else [x] * dist.get_world_size())


def scatter(x: torch.Tensor) -> None:
    dist.scatter(x, None if dist.get_rank() else [x] * dist.get_world_size())


REFUSED: dict[str, Program] = {
    "torch.distributed.reduce ": lambda x: dist.reduce(x, 0),
    "torch.distributed.gather ": gather,
    "torch.distributed.scatter ": scatter,
}


def example(offset: float = 0.0) -> torch.Tensor:
    return torch.arange(8.0).reshape(4, 2) + 10 * dist.get_rank() + offset


def plain(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf, value)


def modules_of(program: Program) -> dict[str, Callable[..., Any]]:
    """The ways to run a program."""
    exported = tintype.export(program, (example(),))
    exported.validate()
    file = io.BytesIO()
    tintype.save(exported, file)
    return {
        "exported": exported.module(),
        "training": tintype.export_for_training(program, (example(),)).module(),
        "decomposed": exported.run_decompositions().module(),
        "decomposed by nothing": exported.run_decompositions({}).module(),
        "saved": tintype.load(file).module(),
        "retraced": tintype.export(exported.module(), (example(),)).module(),
        "unflattened": tintype.unflatten(exported),
        "torch's": tintype.interop.to_torch(exported).module(),
        "compiled": tintype.aot.function(program),
    }


def compare_all() -> None:
    """All programs in all ways, and those that are refused."""
    met: set[Any] = set()
    for program in PROGRAMS:
        met.update(node.target for node in tintype.export(program, (example(),)).graph.nodes)
        wanted = plain(program(example(1)))
        for way, module in modules_of(program).items():
            got = plain(module(example(1)))
            assert got == wanted, f"{program.__name__}, {way}: {got}, not {wanted}"
    rules = {operator for operator in RULES if operator.namespace == "_c10d_functional"}
    assert rules and rules <= met, f"no program drives the rules of {[str(rule) for rule in rules - met]}"
    refused = dict(REFUSED)
    if dist.get_world_size() > 1:
        refused["torch.distributed.send "] = lambda x: dist.send(x, 1 - dist.get_rank())
        refused["torch.distributed.recv "] = lambda x: dist.recv(x, 1 - dist.get_rank())
    for text, program in refused.items():
        try:
            tintype.export(program, (example(),))
        except tintype.errors.UnsupportedOperatorError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{text} was captured")


def compare_state() -> None:
    """A buffer that is written to."""
    module, eager = tintype.export(Statistics(), (example(),)).module(), Statistics()
    for offset in (1.0, 2.0):
        assert plain(module(example(offset))) == plain(eager(example(offset)))
    assert plain(dict(module.named_buffers())) == plain(dict(eager.named_buffers()))


def compare_other_sizes() -> None:
    """Sizes other than the example's."""
    sizes = ({0: 2 * tintype.Dim("half", min=1)},)
    for program in (all_reduce, all_gather, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single):
        module = tintype.export(program, (example(),), dynamic_shapes=sizes).module()
        for size in (2, 4, 10):
            x = torch.arange(2.0 * size).reshape(size, 2) * (1 + dist.get_rank())
            got, wanted = plain(module(x)), plain(program(x))
            assert got == wanted, f"{program.__name__} of {size}: {got}, not {wanted}"


def compare_gradients() -> None:
    """A collective that has a gradient."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (Reduced.apply(x * 2) * x).sum()

    def gradient(function: Callable[..., Any]) -> Any:
        x = example().requires_grad_()
        function(x).backward()
        return plain((x.grad,))

    wanted = gradient(loss)
    for partitioner in ("default", "min_cut"):
        assert gradient(tintype.aot.function(loss, partitioner=partitioner)) == wanted


def compare_questions() -> None:
    """Which process it is, asked of a function that the program holds itself: part of the contract."""
    held = dist.get_rank

    def asked(x: torch.Tensor) -> torch.Tensor:
        return x + held() * get_world_size()

    program = tintype.export(asked, (torch.ones(2),))
    torch.testing.assert_close(program.module()(torch.zeros(2)), asked(torch.zeros(2)))
    contract = str(program.contract())
    assert f"number of this process in the group '0' = {dist.get_rank()}" in contract, contract
    assert f"number of processes of the group '0' = {dist.get_world_size()}" in contract, contract


def main(rank: int, size: int, path: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    compare_all()
    compare_state()
    compare_other_sizes()
    compare_gradients()
    compare_questions()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
