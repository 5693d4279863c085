"""Jagged nested tensors as inputs, results, state and in between, in every form of a program, against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

import tintype


def jagged(*lengths: int, width: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randn(length, width, generator=generator) for length in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def pair(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two with the same offsets."""
    first = jagged(*lengths)
    return first, torch.nested.nested_tensor_from_jagged(first.values() * 3, first.offsets())


def numbers(*lengths: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(length) % 10 for length in lengths], layout=torch.jagged)


class Attention(nn.Module):
    """A block of a transformer, without padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.out, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norm(x)
        heads = [part(normal).unflatten(-1, [2, 2]).transpose(1, 2) for part in self.parts]
        return x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2))


class Keeping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("rows", jagged(1, 2))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.rows).sum(1) + x


def seeded(module: Any) -> Any:
    torch.manual_seed(0)
    return module()


PROGRAMS: dict[str, tuple[Any, list[Any]]] = {
    "elementwise": (lambda t: t.sin() * 2 + t, [(jagged(2, 3, 1),), (jagged(1, 5, 0),)]),
    "values": (lambda t: (t.values() + 1, t.offsets().diff()), [(jagged(2, 3, 1),), (jagged(4, 4, 4),)]),
    "linear": (seeded(lambda: nn.Linear(4, 3)), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "layer_norm": (nn.LayerNorm(4), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "embedding": (seeded(lambda: nn.Embedding(10, 3)), [(numbers(2, 3),), (numbers(4, 1),)]),
    "matmul": (lambda t, w: t @ w, [(jagged(2, 3), torch.ones(4, 2)), (jagged(4, 0), torch.eye(4)[:, :2])]),
    "sums of rows": (lambda t: (t.sum(1), t.mean(1), t.sum(-1)), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "softmax": (lambda t: F.softmax(t, -1), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "softmax of rows": (lambda t: F.softmax(t, 1), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "padded": (lambda t: t.to_padded_tensor(0.0), [(jagged(2, 3, 1),), (jagged(1, 5, 2),), (jagged(1, 1, 1),)]),
    "made": (
        lambda v, o: torch.nested.nested_tensor_from_jagged(v, o).sin(),
        [(torch.ones(6, 3), torch.tensor([0, 2, 6])), (torch.eye(6)[:, :3], torch.tensor([0, 0, 6]))],
    ),
    "made of lengths": (
        lambda v, n: torch.nested.nested_tensor_from_jagged(v, lengths=n).sum(1),
        [(torch.ones(6, 3), torch.tensor([1, 2, 3])), (torch.eye(6)[:, :3], torch.tensor([4, 0, 2]))],
    ),
    "made of a list": (
        lambda x, y: torch.nested.nested_tensor([x, y], layout=torch.jagged).sin(),
        [(torch.ones(2, 3), torch.zeros(4, 3))],
    ),
    "two with the same offsets": (lambda t, u: (t + u, t * 2), [pair(2, 3, 1), pair(4, 0, 1)]),
    "together with zeros like it": (
        lambda t: (torch.where(t > 0, t, torch.zeros_like(t)), t + torch.ones_like(t)),
        [(jagged(2, 3, 1),), (jagged(1, 5, 2),)],
    ),
    "transposed": (lambda t: t.transpose(1, 2), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "cat and chunk": (lambda t: (torch.cat([t, t], -1), t.chunk(2, -1)), [(jagged(2, 3),), (jagged(1, 5),)]),
    "rows": (lambda t: [row.sum() for row in t.unbind()], [(jagged(2, 3, 1),)]),
    "sizes": (lambda t: (t.size(0), t.size(2), t.dim(), t.is_nested), [(jagged(2, 3, 1),), (jagged(1, 5, 2),)]),
    "attention": (Attention(), [(jagged(2, 3, 1),), (jagged(4, 1, 1),), (jagged(1, 1, 1),)]),
    "state": (Keeping(), [(torch.ones(2, 4),), (torch.zeros(2, 4),)]),
    "in containers": (lambda d: {"a": d["t"][0] * 2, "b": 3}, [({"t": [jagged(2, 3)]},), ({"t": [jagged(0, 6)]},)]),
}


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_nested:
        return {"jagged": (value.values(), value.offsets(), value._ragged_idx, value.to_padded_tensor(0.0).shape)}
    return value


def assert_same(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(tree_map(plain, got), tree_map(plain, wanted))


def saved(program: tintype.ExportedProgram, folder: Any) -> Any:
    tintype.save(program, folder / "program.tt")
    return tintype.load(folder / "program.tt").module()


FORMS: dict[str, Any] = {
    "exported": lambda program, folder: program.module(),
    "saved": saved,
    "decomposed": lambda program, folder: program.run_decompositions().module(),
    "unflattened": lambda program, folder: tintype.unflatten(program),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_nested_tensors(name: str, tmp_path: Any) -> None:
    model, calls = PROGRAMS[name]
    program = tintype.export(model, calls[0])
    program.validate()
    for form, make in FORMS.items():
        run = make(program, tmp_path)
        for number, args in enumerate(calls):
            try:
                assert_same(run(*args), model(*args))
            except AssertionError as error:
                raise AssertionError(f"{form}, call {number}") from error


@pytest.mark.parametrize("shapes", ["auto", ({0: tintype.Dim("rows")},)], ids=["auto", "rows"])
def test_numbers_of_rows_that_vary(shapes: Any) -> None:
    def function(tensor: torch.Tensor) -> Any:
        return tensor * 2, tensor.sum(1)

    program = tintype.export(function, (jagged(2, 3, 1),), dynamic_shapes=shapes)
    for lengths in ((4, 1), (3,), (4, 1, 2, 3, 0)):
        assert_same(program.module()(jagged(*lengths)), function(jagged(*lengths)))
    with pytest.raises(tintype.InputMismatchError):
        tintype.export(function, (jagged(2, 3, 1),)).module()(jagged(2, 3))
    with pytest.raises(tintype.InvalidRequestError, match="only the number of its rows may vary"):
        tintype.export(function, (jagged(2, 3, 1),), dynamic_shapes=({2: tintype.Dim("width")},))


def test_results_go_together_with_the_caller_s_tensors() -> None:
    tensor = jagged(2, 3, 1)
    result = tintype.export(lambda t: t.sin(), (jagged(1, 1, 1),)).module()(tensor)
    assert_same(result + tensor, tensor.sin() + tensor)


def test_gradients() -> None:
    model = Attention()
    module = tintype.export_for_training(model, (jagged(2, 3, 1),)).module()
    values, offsets = jagged(4, 1, 1).values(), jagged(4, 1, 1).offsets()
    found = []
    for run in (module, model):
        model.zero_grad()
        module.zero_grad()
        leaf = values.clone().requires_grad_()
        tensor = torch.nested.nested_tensor_from_jagged(leaf, offsets, min_seqlen=1, max_seqlen=4)
        run(tensor).values().sin().sum().backward()
        found.append((leaf.grad, [parameter.grad.clone() for parameter in run.parameters()]))
    torch.testing.assert_close(found[0], found[1])


def test_calls_that_are_refused() -> None:
    module = tintype.export(lambda t: t * 2, (jagged(2, 3, 1),)).module()
    with pytest.raises(tintype.InputStructureError, match=r"a nested tensor, jagged in dimension 1.*but got"):
        module(torch.ones(3, 3, 4))
    other = torch.nested.nested_tensor_from_jagged(torch.ones(6, 4), torch.tensor([0, 2, 3, 6]))
    with pytest.raises(tintype.InputStructureError, match="which knows its min_seqlen and max_seqlen, but got"):
        module(other)
    module = tintype.export(lambda t, u: t + u, pair(2, 3)).module()
    with pytest.raises(tintype.InputStructureError, match=r"offsets number 0 of the call, but got .* number 1"):
        module(jagged(2, 3), pair(2, 3)[1])


def test_what_is_detached_has_no_gradient() -> None:
    def function(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() * tensor

    module = tintype.export(function, (jagged(2, 3, 1),)).module()
    found = []
    for run in (module, function):
        leaf = jagged(4, 1, 1).values().clone().requires_grad_()
        tensor = torch.nested.nested_tensor_from_jagged(leaf, jagged(4, 1, 1).offsets(), min_seqlen=1, max_seqlen=4)
        run(tensor).values().sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("export", [tintype.export, tintype.draft_export])
def test_the_strided_layout_is_refused(export: Any) -> None:
    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)

    with pytest.raises(tintype.TintypeError) as caught:
        export(padded, (torch.randn(3, 2),))
    assert caught.value.location is not None and caught.value.remedy
