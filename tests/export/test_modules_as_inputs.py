"""Modules among the arguments: the program takes their parameters and buffers, and holds a call to what they are."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Applying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 3)

    def forward(self, body: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.head(body(x)) * 2


def body(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, **options), nn.ReLU())


def saved(program: tintype.ExportedProgram) -> Any:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file).module()


FORMS: dict[str, Any] = {
    "exported": lambda program: program.module(),
    "saved": saved,
    "decomposed": lambda program: program.run_decompositions().module(),
    "unflattened": tintype.unflatten,
}


@pytest.mark.filterwarnings("ignore::tintype.TrainingModeWarning")
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("form", FORMS)
def test_other_modules_of_the_same_kind(form: str, export: Any) -> None:
    """Results, gradients of their parameters, and what is written to their buffers."""
    model, rows = Applying(), tintype.Dim("rows", min=2)
    example = (body(), torch.randn(2, 4))
    program = export(model, example, dynamic_shapes={"body": None, "x": {0: rows}})
    assert program.graph_signature.user_inputs[:2] == ("body_0_weight", "body_0_bias")
    call = FORMS[form](program)
    for size in (2, 5):
        ours, x = body(), torch.randn(size, 4)
        theirs = copy.deepcopy(ours)
        result, wanted = call(ours, x), model(theirs, x)
        torch.testing.assert_close(result, wanted)
        if form != "decomposed":  # batch norm of training has none there
            result.sum().backward()
            wanted.sum().backward()
            torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_torch_names_them_alike() -> None:
    example = (body().eval(), torch.randn(2, 4))
    theirs = torch.export.export(Applying(), example)
    ours = tintype.export(Applying(), example)
    assert set(ours.graph_signature.user_inputs) == set(theirs.graph_signature.user_inputs)


def test_the_module_that_is_given_stays_as_it_is() -> None:
    given = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    before = {name: id(value) for name, value in given.named_parameters()}
    program = tintype.export(lambda layer, x: layer(x), (given, torch.randn(2, 5, 8)))
    assert {name: id(value) for name, value in given.named_parameters()} == before
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(program.module()(given, x), given(x))
    assert program.example_inputs[0][0].linear1.weight is given.linear1.weight


def test_recurrent_modules() -> None:
    def applied(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return layer(x)[0]

    module = tintype.export(applied, (nn.LSTM(3, 2), torch.randn(4, 2, 3))).module()
    for _ in range(2):
        other, x = nn.LSTM(3, 2), torch.randn(4, 2, 3)
        torch.testing.assert_close(module(other, x), applied(other, x))


OTHERS = {
    r"body is .*Sequential with other settings.*: in it \{'training': True\}": lambda: body().eval(),
    r"in 1 \{'eps': 1e-05\}, but got \{'eps': 0.5\}": lambda: body(eps=0.5),
    r"2 is a torch.*ReLU, but got a torch.*Tanh": lambda: nn.Sequential(*list(body())[:2], nn.Tanh()),
    r"body must be a module of the class torch.*Sequential, but got .*Linear": lambda: nn.Linear(4, 3),
    r"body must be a module .*, but got a tensor": lambda: torch.ones(3),
}


@pytest.mark.filterwarnings("ignore::tintype.TrainingModeWarning")
@pytest.mark.parametrize("message", OTHERS)
def test_other_kinds_of_modules_are_refused(message: str) -> None:
    program = tintype.export(Applying(), (body(), torch.randn(2, 4)))
    with pytest.raises(tintype.InputStructureError, match=message):
        program.module()(OTHERS[message](), torch.randn(2, 4))


def test_what_can_not_be_compared_is_refused() -> None:
    hooked = nn.Linear(4, 3)
    hooked.register_forward_hook(lambda module, args, result: result * 2)
    with pytest.raises(tintype.TintypeError, match="a Linear among the arguments has hooks"):
        tintype.export(Applying(), (hooked, torch.randn(2, 4)))
    odd = nn.Linear(4, 3)
    odd.table = {"a": object()}
    with pytest.raises(tintype.TintypeError, match="has 'table', a dict, which can't be compared"):
        tintype.export(Applying(), (odd, torch.randn(2, 4)))
