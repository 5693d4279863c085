"""What can't be called so in a program of torch's is refused by name; what it was made for is checked bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tintype
from tintype.errors import InvalidRequestError


def model_with(*, buffer: str = "", child: str = "") -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if buffer:
                self.register_buffer(buffer, torch.ones(2))
            if child:
                self.add_module(child, nn.Linear(2, 2))

        def forward(self, x):
            for value in self._buffers.values():
                x = x + value
            for module in self._modules.values():
                x = module(x)
            return x

    return Model()


@pytest.mark.parametrize("name", ["graph", "code", "meta", "class", "self", "_guards_fn", "validate_inputs", "ﬁ"])
def test_state_that_torchs_module_can_not_hold(name):
    program = tintype.export(model_with(buffer=name), (torch.ones(2),))
    torch.testing.assert_close(program.module()(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(InvalidRequestError, match=f"can't have state called '{name}'"):
        tintype.interop.to_torch(program)


@pytest.mark.parametrize("name", ["graph", "def", 'a"b'])
def test_modules_that_torchs_module_can_not_hold(name):
    program = tintype.export(model_with(child=name), (torch.ones(2),))
    with pytest.raises(InvalidRequestError, match=f"can't have state called '{name}.weight'"):
        tintype.interop.to_torch(program)


@pytest.mark.parametrize("name", ["torch", "class", "pytree", "a-b", "a'b"])
def test_keywords_that_torchs_code_can_not_have(name):
    program = tintype.export(lambda **values: sum(values.values()), (), {name: torch.ones(2)})
    with pytest.raises(InvalidRequestError, match=r"can't have (a keyword argument called|the input)"):
        tintype.interop.to_torch(program)


def test_keys_that_torchs_code_can_not_have():
    program = tintype.export(lambda values: values["a'b"] + 1, ({"a'b": torch.ones(2)},))
    with pytest.raises(InvalidRequestError, match="torch writes keys into code"):
        tintype.interop.to_torch(program)


@pytest.mark.parametrize(
    ("example", "others"),
    [
        (1, [True, 1.0, 2, -1]),
        (True, [1, False]),
        (2.0, [2, 2.5]),
        (0.0, [-0.0, 0, False]),
        (-0.0, [0.0, 0]),
        (2j, [1j, 2, -2j]),
        ("relu", ["sigmoid", 1]),
        (None, [1, "None"]),
        (torch.float64, [torch.float32]),
    ],
    ids=str,
)
def test_values_that_a_program_was_made_for(example, others):
    def model(x, value):
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            return x * value
        return x + 1

    x = torch.arange(3)
    theirs = tintype.interop.to_torch(tintype.export(model, (x, example)))
    module = theirs.module()
    torch.testing.assert_close(module(x, example), model(x, example))
    for other in others:
        with pytest.raises((AssertionError, RuntimeError)):
            module(x, other)
    again = tintype.interop.from_torch(theirs).module()
    torch.testing.assert_close(again(x, example), model(x, example))


def test_text_that_torch_can_not_write():
    program = tintype.export(lambda x, text: x + 1, (torch.ones(2), "it's"))
    with pytest.raises(InvalidRequestError, match="can't have been specialised on the text"):
        tintype.interop.to_torch(program)


WRITES = {
    "normal_": lambda x: torch.empty_like(x).normal_(),
    "normal_ of an input": lambda x: x.normal_(1, 2) + 1,
    "normal_ of a transposed tensor": lambda x: x.t().normal_() * 2,
    "orthogonal_": lambda x: nn.init.orthogonal_(torch.empty(3, 3)) + x,
    "rrelu": lambda x: nn.functional.rrelu(x, training=True),
    "rrelu_": lambda x: nn.functional.rrelu_(x * 1, training=True) * 2,
    "polygamma_": lambda x: x.abs().polygamma_(1),
    "fill_diagonal_": lambda x: x.fill_diagonal_(2.0) + 1,
    "alpha_dropout": lambda x: nn.functional.alpha_dropout(x, training=True, inplace=True) + 1,
    "__iand__": lambda x: x.mul(4).long().__iand__(3).__ior__(8).__ixor__(2).__ilshift__(1),
}


@pytest.mark.parametrize("name", WRITES)
def test_operators_that_write_and_draw(name):
    function = WRITES[name]
    program = tintype.export(function, (torch.ones(3, 3),))
    ways = {
        "module": program.module,
        "decomposed": lambda: program.run_decompositions().module(),
        "aot": lambda: tintype.aot.function(function),
        "torch": lambda: tintype.interop.to_torch(program).module(),
    }
    for way, make in ways.items():
        given = torch.randn(3, 3)
        wanted = given.clone()
        torch.manual_seed(3)
        expected = function(wanted)
        try:
            made = make()
        except InvalidRequestError as error:
            assert way == "torch" and "no functional form" in str(error) and name in ("rrelu_", "polygamma_")
            continue
        torch.manual_seed(3)
        torch.testing.assert_close(made(given), expected)
        torch.testing.assert_close(given, wanted)


def test_sizes_below_two_are_refused_where_the_program_refuses_them():
    def model(x):
        return x * 2 if all(size > 1 for size in x.shape) else x * 3

    program = tintype.export(model, (torch.ones(3, 4),), dynamic_shapes="auto")
    module = tintype.interop.to_torch(program).module()
    torch.testing.assert_close(module(torch.ones(5, 2)), torch.full((5, 2), 2.0))
    for sizes in ((1, 3), (3, 1)):
        with pytest.raises(tintype.TintypeError):
            program.module()(torch.ones(sizes))
        with pytest.raises(AssertionError, match="Guard failed"):
            module(torch.ones(sizes))
