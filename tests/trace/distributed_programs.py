"""Programs on tensors of several processes, and the process that compares them with eager mode as one of a group.

``python -m tests.trace.distributed_programs RANK SIZE FILE`` is one process; they find each other through the file.
"""

from __future__ import annotations

import copy
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import tintype


def assert_same(got: Any, wanted: Any, where: str) -> None:
    """Results of a program and of eager mode, with how they are divided."""
    for one, other in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        if isinstance(other, DTensor):
            assert type(one) is DTensor, f"{where}: {type(one)}"
            of_one, of_other = (
                (value.placements, value.shape, value.stride(), value.device_mesh) for value in (one, other)
            )
            assert of_one == of_other, f"{where}: {of_one}, not {of_other}"
            one, other = one.to_local(), other.to_local()
        torch.testing.assert_close(one, other, msg=lambda text: f"{where}: {text}")


def forms_of(program: tintype.ExportedProgram, args: tuple[Any, ...]) -> dict[str, Callable[..., Any]]:
    """The ways to run a program."""
    program.validate()
    file = io.BytesIO()
    tintype.save(program, file)
    return {
        "exported": program.module(),
        "saved": tintype.load(file).module(),
        "decomposed": program.run_decompositions().module(),
        "unflattened": tintype.unflatten(program),
        "captured again": tintype.export(program.module(), args).module(),
    }


def compare_operators(mesh: DeviceMesh) -> None:
    """Tensors of several processes as arguments, results and in between."""
    size = mesh.size()

    def tensor(*sizes: int, placement: Any = None) -> DTensor:
        return distribute_tensor(torch.randn(*sizes), mesh, [placement or Shard(0)])

    x, whole = tensor(2 * size, 6), tensor(2 * size, 6, placement=Replicate())
    indices = distribute_tensor(torch.randint(0, 10, (3,)), mesh, [Replicate()])
    programs: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "arithmetic": (lambda a, b: a @ (a + b).t(), (x, whole)),
        "sums": (lambda a: (a.sum(0), torch.softmax(a, 0)), (x,)),
        "divided otherwise": (lambda a: (a.redistribute(mesh, [Shard(1)]) * 2, a.full_tensor() + 1), (x,)),
        "parts": (lambda a: (a.to_local() + 1, a), (x,)),
        "made": (lambda a: DTensor.from_local(a, mesh, [Shard(0)]) * 2, (torch.randn(2, 3),)),
        "uneven": (lambda a: a * 2 + a.sum(), (tensor(5, 6),)),
        "written": (lambda a: a.add_(1), (x.clone(),)),
        "handlers": (lambda a: (a.argmax(), functional.conv1d(a[None], a[None])), (whole,)),
        "embedding": (lambda i, w: functional.embedding(i, w).full_tensor(), (indices, tensor(10, 4))),
    }
    for name, (function, args) in programs.items():
        program = tintype.export(function, args)
        for form, module in forms_of(program, args).items():
            assert_same(module(*copy.deepcopy(args)), function(*copy.deepcopy(args)), f"{name}, {form}")
    mean = tintype.export(lambda a: a - a.mean(0), (x,), dynamic_shapes=({0: tintype.Dim("n")},))
    other = tensor(5 * size, 6)
    assert_same(mean.module()(other), other - other.mean(0), "other sizes")
    for bad, text in ((torch.ones(2, 6), "must be a tensor of the class torch"), (whole, "with other settings")):
        try:
            mean.module()(bad)
        except tintype.InputStructureError as error:
            assert text in str(error), error
        else:
            raise AssertionError("an input that is divided otherwise was taken")


def compare_llama(mesh: DeviceMesh) -> None:
    """A small Llama whose layers are divided over the processes by torch's own plans."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    tokens, others = torch.randint(0, 50, (2, 6)), torch.randint(0, 50, (3, 9))
    expected = model(others, use_cache=False).logits
    layer = "model.layers.*"
    columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    parallelize_module(
        model,
        mesh,
        {f"{layer}.{name}": ColwiseParallel() for name in columns}
        | {f"{layer}.{name}": RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")},
    )

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> Any:
            return self.model(tokens, use_cache=False).logits

    class Loss(Logits):
        def forward(self, tokens: torch.Tensor) -> Any:
            return self.model(tokens, labels=tokens, use_cache=False).loss

    shapes = {"tokens": {0: tintype.Dim("batch"), 1: tintype.Dim("length")}}
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        program = tintype.export(Logits(), (tokens,), dynamic_shapes=shapes)
    assert any("7 parameters that consist of others (DTensor)" in str(note.message) for note in noted), noted
    assert "model.model.layers.0.mlp.up_proj.weight._local_tensor" in program.state_dict
    with torch.no_grad():
        for form, module in forms_of(program, (tokens,)).items():
            if form != "captured again":
                torch.testing.assert_close(module(others), expected, msg=lambda text: f"{form}: {text}")  # noqa: B023
        torch.testing.assert_close(tintype.interop.to_torch(program).module()(others), expected)
        again = program.with_state({**Logits().state_dict()})
        torch.testing.assert_close(again.module()(others), expected)
    compare_gradients(Loss(), tokens)


def compare_gradients(model: Any, tokens: torch.Tensor) -> None:
    """Gradients of a model with such weights: each process computes those of its parts."""
    joint = tintype.export_joint(model, (tokens,))
    loss, gradients, _ = joint.module()(tokens)
    wanted = model(tokens)
    wanted.backward()
    torch.testing.assert_close(loss, wanted)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            assert_same(gradients[f"{name}._local_tensor"], parameter.grad._local_tensor, name)  # type: ignore[union-attr]
        else:
            torch.testing.assert_close(gradients[name], parameter.grad, msg=lambda text: f"{name}: {text}")  # noqa: B023


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.linear(x)) + start)


class Blocks(torch.nn.Module):
    """Every block needs what the first one was given."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.out = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for block in self.blocks:
            y = block(y, x)
        return self.out(y)


def compare_pipelines() -> None:
    """Stages of a program, run by torch's own schedules, against the whole model: results and training."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model, x, target = Blocks(), torch.randn(8, 8), torch.randn(8, 3)
    loss_of = torch.nn.functional.mse_loss
    program = tintype.export(model, (x,), dynamic_shapes={"x": {0: tintype.Dim("batch")}})
    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        whole = copy.deepcopy(model)
        mine = tintype.split(copy.deepcopy(program), at=["blocks.2"])[rank]
        optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (whole, mine)]
        stage = PipelineStage(mine, rank, size, torch.device("cpu"))
        schedule = schedule_class(stage, n_microbatches=4, loss_fn=loss_of)
        for _ in range(2):
            expected = whole(x)
            loss = loss_of(expected, target)
            loss.backward()
            losses: list[torch.Tensor] = []
            got = schedule.step(x) if rank == 0 else schedule.step(target=target, losses=losses)
            if rank:
                torch.testing.assert_close(got, expected)
                torch.testing.assert_close(sum(losses) / 4, loss)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            parameters = dict(whole.named_parameters())
            for name, parameter in mine.named_parameters():
                torch.testing.assert_close(parameter, parameters[name])


def compare_groups() -> None:
    """A program runs where its groups are as they were when it was captured."""
    rank = dist.get_rank()

    def parted(x: torch.Tensor) -> torch.Tensor:
        y = x[dist.get_rank()] * 1
        dist.all_reduce(y)
        return y

    x = torch.arange(float(2 * dist.get_world_size())).reshape(-1, 2)
    program = tintype.export(parted, (x,))
    torch.testing.assert_close(program.module()(x), parted(x))
    facts = {(seen.fact, seen.arguments): seen.answer for seen in program.observations}
    assert facts["distributed.group_rank", ("0",)] == rank, facts
    assert facts["distributed.group_size", ("0",)] == dist.get_world_size(), facts
    file = io.BytesIO()
    tintype.save(program, file)
    dist.barrier()
    dist.destroy_process_group()
    for module in (program.module(), tintype.load(file).module()):
        try:
            module(x)
        except tintype.InputMismatchError as error:
            assert "the group '0'" in str(error), error
        else:
            raise AssertionError("a program ran without its processes")


def main(rank: int, size: int, path: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("parts",))
    compare_operators(mesh)
    compare_llama(mesh)
    if size == 2:
        compare_pipelines()
    compare_groups()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
