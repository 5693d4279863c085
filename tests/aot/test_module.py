"""Compiled modules: the model's own state, its modes, and training that equals eager mode's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.errors import InvalidRequestError, StateChangedError


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(tokens)))


class Counting(nn.Module):
    """Writes to one buffer and assigns another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        y = self.linear(x)
        self.mean = 0.5 * self.mean + 0.5 * y.detach().mean(0)
        return y - self.mean


class Branching(nn.Module):
    """A branch on the value of a tensor, as an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: self.linear(x) * 2, (x,))


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten())


VECTORS = [torch.linspace(-1, 2, 12).reshape(3, 4), torch.linspace(2, -4, 12).reshape(3, 4)]
MODELS: dict[str, tuple[Callable[[], nn.Module], list[torch.Tensor]]] = {
    "convolution": (convolutional, [torch.linspace(-1, 1, 72).reshape(2, 1, 6, 6)] * 2),
    "tied": (Tied, [torch.tensor([[1, 2, 3]]), torch.tensor([[4, 0, 6]])]),
    "buffers": (Counting, VECTORS),
    "branch": (Branching, VECTORS),
    "recurrent": (lambda: nn.LSTM(4, 3), VECTORS),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), [v[None] for v in VECTORS]),
}


def train(model: Callable[..., Any], parameters: Any, data: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.5)
    torch.manual_seed(3)
    losses = []
    for x in data * 2:
        optimizer.zero_grad()
        loss = sum(out.square().mean() for out in torch.utils._pytree.tree_leaves(model(x)))
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.parametrize(
    "options", [{}, {"partitioner": "min_cut"}, {"partitioner": "min_cut", "memory_budget": 0.0}]
)
@pytest.mark.parametrize("name", MODELS)
def test_training_equals_eager_mode(name: str, options: dict[str, Any]) -> None:
    build, data = MODELS[name]
    torch.manual_seed(0)
    model = build()
    reference = copy.deepcopy(model)
    compiled = tintype.aot.module(model, **options)
    torch.testing.assert_close(
        train(compiled, compiled.parameters(), data), train(reference, reference.parameters(), data)
    )
    torch.testing.assert_close(dict(model.named_parameters()), dict(reference.named_parameters()))
    torch.testing.assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
    # evaluation is another program, without gradients and in another mode
    compiled.eval()
    assert not model.training
    reference.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(data[0]), reference(data[0]))


def test_state_has_the_names_of_the_model() -> None:
    model = Tied()
    compiled = tintype.aot.module(model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == [name for name, _ in model.named_parameters()]
    compiled.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    assert not compiled(torch.tensor([1])).any()


def test_a_parameter_that_stops_requiring_gradients() -> None:
    model = nn.Linear(4, 2)
    compiled = tintype.aot.module(model)
    compiled(VECTORS[0]).sum().backward()
    model.weight.requires_grad_(False)
    model.zero_grad()
    compiled(VECTORS[0]).sum().backward()
    assert model.weight.grad is None and model.bias.grad is not None


def test_graphs_can_be_made_at_once() -> None:
    graphs: list[Any] = []

    def compiler(graph_module: Any, examples: list[Any]) -> Any:
        graphs.append(graph_module)
        return graph_module

    compiled = tintype.aot.module_for(nn.Linear(4, 2), (VECTORS[0],), compiler)
    assert len(graphs) == 2
    compiled(VECTORS[0])
    assert len(graphs) == 2 and len(compiled.partitions) == 1


def test_decompositions_are_applied_first() -> None:
    targets: set[str] = set()

    def compiler(graph_module: Any, examples: list[Any]) -> Any:
        targets.update(str(node.target) for node in graph_module.graph.nodes if node.op == "call_function")
        return graph_module

    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    table = dict(torch._decomp.core_aten_decompositions())
    compiled = tintype.aot.module(model, fw_compiler=compiler, decompositions=table)
    x = torch.randn(1, 3, 4)
    found = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    assert "aten.native_layer_norm_backward.default" not in targets and "aten.t.default" not in targets
    torch.testing.assert_close(found, torch.autograd.grad(model(x).square().sum(), list(model.parameters())))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_decompositions_are_applied_whatever_requires_gradients(requires_grad: bool) -> None:
    table = {torch.ops.aten.sin.default: lambda x: x * 10}
    compiled = tintype.aot.function(lambda x: torch.sin(x), decompositions=table)
    assert compiled(torch.ones(1, requires_grad=requires_grad)).item() == 10


def test_exports_for_compilers() -> None:
    model = Tied()
    graph_module, signature = tintype.aot.export_module(model, (torch.tensor([1]),))
    assert signature.backward_signature is None
    assert len(graph_module(*model.parameters(), torch.tensor([1]))) == 1
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    joint = tintype.aot.export_joint_simple(lambda x, y: (x * y, y + 1), (x, y))
    product, total, gradient = joint(x, y, torch.ones(3))
    torch.testing.assert_close((product, total, gradient), (x * y, y + 1, y))
    assert len(tintype.aot.export_joint_simple(lambda x: (x.sin(),), (x,), trace_joint=False)(x)) == 1
    with pytest.raises(InvalidRequestError, match="writes to its inputs"):
        tintype.aot.export_joint_simple(lambda x: (x.add_(1),), (y,))
    with pytest.raises(InvalidRequestError, match="not among its arguments"):
        tintype.aot.export_joint_simple(lambda x: (x + y,), (x,))


class WrittenThenAssigned(torch.nn.Module):
    """Its buffer is written to, and is another tensor from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = self.state
        old.zero_()
        self.state = old + x
        return old


def test_a_buffer_that_is_written_to_and_then_assigned_is_refused() -> None:
    with pytest.raises(StateChangedError, match="writes to the buffer 'state' and then assigns") as caught:
        tintype.aot.module(WrittenThenAssigned())(torch.ones(2))
    assert caught.value.location is not None
