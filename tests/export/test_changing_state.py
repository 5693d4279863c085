"""State that lives between the calls of a program's module: what changes, and how it is put back."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.errors import InvalidRequestError

EXPORTS = {"functional": tintype.export, "training": tintype.export_for_training}
MODULES = {"flat": lambda program: program.module(), "unflattened": tintype.unflatten}


class Cache(nn.Module):
    """Rows that calls fill one after the other, and weights that nobody writes to."""

    def __init__(self, rows: int = 6, width: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.register_buffer("rows", torch.zeros(rows, width), persistent=False)
        self.register_buffer("length", torch.tensor(1))
        self.register_buffer("unused", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = self.length + torch.arange(x.shape[0])
        self.rows.index_copy_(0, positions, self.layer(x))
        self.length.add_(x.shape[0])
        return self.rows.sum(0)


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
def test_state_is_what_calls_change_and_reset_puts_it_back(export: Any, module_of: Any) -> None:
    torch.manual_seed(0)
    model, x = Cache(), torch.randn(1, 3)
    module = module_of(export(model, (x,)))
    with torch.no_grad():
        before = copy.deepcopy(model.state_dict())
        expected = [model(x), model(x)]
        model.load_state_dict(before)
        model.rows.zero_()
        for _ in range(2):
            assert set(module.state()) == {"rows", "length"}
            assert module.state()["length"] == 1 and not module.state()["rows"].any()
            assert torch.equal(module(x), expected[0])
            assert module.state()["length"] == 2 and module.state()["rows"] is module.get_buffer("rows")
            assert torch.equal(module(x), expected[1])
            module.reset()


def test_the_model_and_other_modules_are_not_touched() -> None:
    model, x = Cache(), torch.randn(1, 3)
    program = tintype.export(model, (x,))
    one, other = program.module(), program.module()
    with torch.no_grad():
        one(x)
        one.reset()
        other(x)
        one.reset()
    assert model.length == 1 and other.state()["length"] == 2


@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
def test_what_the_module_was_made_with_comes_back_and_not_what_the_model_has_now(module_of: Any) -> None:
    model, x = Cache(), torch.randn(1, 3)
    program = tintype.export(model, (x,))
    model.length.fill_(3)
    module = module_of(program)
    model.length.fill_(4)
    module(x)
    module.reset()
    assert module.state()["length"] == 3


@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
@torch.no_grad()
def test_copies_and_conversions_are_reset_too(module_of: Any) -> None:
    module = module_of(tintype.export(Cache(), (torch.ones(1, 3),)))
    module(torch.ones(1, 3))
    copied = copy.deepcopy(module)
    copied.reset()
    assert copied.state()["length"] == 1 and module.state()["length"] == 2
    shallow = copy.copy(module)
    shallow.reset()
    assert module.state()["length"] == 1
    module(torch.ones(1, 3))
    module.to(torch.float64)
    module.reset()
    assert module.state()["rows"].dtype is torch.float64 and not module.state()["rows"].any()


@torch.no_grad()
def test_state_of_submodules_that_were_replaced_is_their_own() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Cache(), Cache()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) + self.two(x)

    module = tintype.unflatten(tintype.export(Both(), (torch.ones(1, 3),)))
    module(torch.ones(1, 3))
    assert set(module.state()) == {"one.rows", "one.length", "two.rows", "two.length"}
    other = Cache()
    other.length.fill_(5)
    module.set_submodule("two", other)
    module.reset()
    assert set(module.state()) == {"one.rows", "one.length"} and module.state()["one.length"] == 1
    assert other.length == 5


class Replaces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.tensor([1.0, -0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x
        return self.seen


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
def test_a_buffer_that_is_replaced(export: Any, module_of: Any) -> None:
    module = module_of(export(Replaces(), (torch.ones(2),)))
    result = module(torch.ones(2))
    module.reset()
    assert result.tolist() == [2, 1]  # which was the module's own
    assert str(module.state()) == "{'seen': tensor([1., -0.])}"
    assert module(torch.ones(2)).tolist() == [2, 1]


@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
def test_histories_end_at_a_reset(module_of: Any) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    x = torch.ones(2, requires_grad=True)
    module = module_of(tintype.export(Sum(), (x,)))
    for _ in range(2):
        module(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2, 2]
        x.grad = None
        module.reset()


@pytest.mark.parametrize("module_of", MODULES.values(), ids=MODULES)
def test_a_program_that_changes_nothing(module_of: Any) -> None:
    module = module_of(tintype.export(nn.Linear(2, 2), (torch.ones(1, 2),)))
    assert module.state() == {}
    module.reset()


@pytest.mark.parametrize("kind", ["buffer", "parameter", "constant", "module"])
def test_names_that_the_model_has_stay_the_models(kind: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))
            for name in ("state", "reset"):
                value: Any = nn.Linear(2, 2) if kind == "module" else torch.full((2,), 5.0)
                if kind == "buffer":
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, nn.Parameter(value) if kind == "parameter" else value)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            if kind == "module":
                return self.state(self.reset(x)) + self.count
            return x + self.state + self.reset + self.count

    model, x = Model(), torch.ones(2)
    module = tintype.export(model, (x,)).module()
    for _ in range(2):
        model.count.zero_()
        torch.testing.assert_close(module(x), model(x))
        assert type(module).state(module)["count"] == 1
        type(module).reset(module)
    if kind != "module":
        assert torch.equal(module.state, model.state) and torch.equal(module.reset, model.reset)
    else:
        assert isinstance(module.state, nn.Module) and torch.equal(module.state.weight, model.state.weight)


# --- modules that share what they change --------------------------------------------------------------------------


class TwoSteps(Cache):
    def forward(self, x: torch.Tensor, store: bool) -> torch.Tensor:
        return super().forward(x) if store else self.rows.sum(0) + self.length


def both() -> dict[str, tintype.ExportedProgram]:
    torch.manual_seed(0)
    model = TwoSteps()
    return {name: tintype.export(model, (torch.ones(2, 3), name == "store")) for name in ("store", "recall")}


def loaded(programs: dict[str, tintype.ExportedProgram]) -> dict[str, tintype.ExportedProgram]:
    file = io.BytesIO()
    tintype.save(programs, file)
    found: dict[str, tintype.ExportedProgram] = tintype.load(file)
    return found


@pytest.mark.parametrize("change", [lambda programs: programs, loaded], ids=["exported", "loaded"])
def test_modules_share_what_one_of_them_writes(change: Any) -> None:
    programs = change(both())
    x = torch.randn(2, 3)
    torch.manual_seed(0)
    model = TwoSteps()
    together = tintype.modules(programs)
    with torch.no_grad():
        for _ in range(2):
            for store in (True, True, False):
                name = "store" if store else "recall"
                assert torch.equal(together[name](x, store), model(x, store))
            assert set(together["recall"].state()) == {"rows", "length"}
            together["recall"].reset()
            assert together["store"].state()["length"] == 1
            model.length.fill_(1)
            model.rows.zero_()
        alone = programs["recall"].module()
        together["store"](x, True)
        assert alone.state() == {} and not alone(x, False).eq(together["recall"](x, False)).all()


def test_state_that_is_replaced_can_not_be_shared() -> None:
    model = Replaces()
    programs = {name: tintype.export(model, (torch.ones(2),)) for name in ("a", "b")}
    with pytest.raises(InvalidRequestError, match="'a' puts another tensor in the place of seen, which 'b'"):
        tintype.modules(programs)
    assert list(tintype.modules({"a": programs["a"]})) == ["a"]
    with pytest.raises(InvalidRequestError, match="must be an ExportedProgram"):
        tintype.modules({"a": model})  # type: ignore[dict-item]
