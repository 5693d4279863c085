"""What an attack on the converter found: programs of users' files that were wrong, failed with an error of torch's,
or were refused without need."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tintype
from tests.interop.torchscript.comparing import Case, cases, compare, converted, from_file
from tintype import Dim

X = torch.linspace(-2.0, 3.0, 12).reshape(3, 4)
ROWS = {"x": {0: Dim("rows", min=1)}}
CASES: list[Case] = []
case = cases(CASES)


def of(rows: int) -> torch.Tensor:
    return torch.linspace(-1.0, 2.0, rows * 4).reshape(rows, 4)


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_programs(entry: Case) -> None:
    entry.run()


# --- lists of as many items as a size that varies ------------------------------------------------------------


@case(X, of(1), of(6), dynamic=ROWS)
def added_to_in_place(x: torch.Tensor) -> torch.Tensor:
    rows: list[torch.Tensor] = []
    for i in range(x.size(0)):
        rows += [x[i] * i, x[i]]
    return torch.stack(rows)


@case(X, of(1), of(6), dynamic=ROWS)
def turned_around(x: torch.Tensor) -> list[torch.Tensor]:
    rows: list[torch.Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[x.size(0) - 1 - i].cumsum(0))
    copied = list(rows)
    rows.reverse()
    return [torch.stack(rows), torch.stack(copied), copied[0]]


@case(X, of(1), of(6), dynamic=ROWS)
def unbound(x: torch.Tensor) -> tuple[torch.Tensor, int, torch.Tensor]:
    rows = x.unbind(0)
    total = rows[0]
    for i in range(1, len(rows)):
        total = total * 0.5 + rows[i]
    for row in rows:
        total = total + row
    return total, len(rows), torch.stack(rows)


@case(X, of(1), of(6), dynamic=ROWS)
def unbound_and_written(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y = x * 2
    rows = y.unbind(0)
    y.add_(1)
    together = torch.stack(rows)
    rows[0].mul_(3)
    return rows[0], together, y


@case((torch.ones(2, 3),), (torch.ones(2, 1),), (torch.ones(2, 5),), dynamic={"x": {1: Dim("columns", min=1)}})
def stacked_along_another_dimension(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows: list[torch.Tensor] = []
    for row in x.unbind(1):
        rows.append(row.cumsum(0))
    return torch.stack(rows, 1).view(-1), torch.cat(rows)


def test_unbind_fixes_a_size_where_its_items_are_needed() -> None:
    @torch.jit.script
    def items(x: torch.Tensor) -> list[torch.Tensor]:
        return x.unbind(0)

    with pytest.raises(tintype.ConstraintViolationError, match="must be specialized to 3"):
        converted(items, (X,), ROWS)
    assert len(converted(items, (X,), "auto").module()(X)) == 3


@pytest.mark.parametrize("again", ["torch.stack(rows)", "rows[0]"])
def test_a_list_is_not_read_after_its_stack_was_written_to(again: str) -> None:
    unit = torch.jit.CompilationUnit(f"""
def again(x):
    rows = torch.jit.annotate(List[Tensor], [])
    for i in range(x.size(0)):
        rows.append(x[i] * 2)
    y = torch.stack(rows)
    y.add_(1)
    return y, {again}
""")
    with pytest.raises(tintype.CaptureError, match=r"is read after what .* made of it was written to"):
        converted(unit.again, (X,), ROWS)


@case(X, of(1), of(5), dynamic=ROWS)
def stacked_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows: list[torch.Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[i] * 2)
    y, z = torch.stack(rows), torch.stack(rows)
    y.add_(1)
    return y, z


# --- numbers -------------------------------------------------------------------------------------------------


@case(X, of(1), of(5), dynamic=ROWS)
def functions_of_sizes(x: torch.Tensor) -> tuple[torch.Tensor, float, float, float, float]:
    n = x.size(0)
    return x * math.log(n), math.exp(n / 10), math.tanh(n / 3.0), round(n / 4), math.fabs(n - 3)


@case(torch.tensor(2.0), torch.tensor(0.0))
def logarithm_of_data(x: torch.Tensor) -> float:
    return math.log(float(x) ** 2 + 1) + math.log10(float(x) + 1)


@case(X, of(1), of(5), dynamic=ROWS)
def largest_of_a_list(x: torch.Tensor) -> tuple[int, int]:
    return max([x.size(0), x.size(1), 3]), min([x.size(0), 2])


@case((X, torch.tensor(1)), (X, torch.tensor(-3)), (X, torch.tensor(2)))
def item_chosen_by_data(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return [x, x + 1, x * 2][int(index)], x * [10, 20, 30][int(index)]


def test_an_item_chosen_by_data_must_be_there() -> None:
    module = converted(torch.jit.script(item_chosen_by_data), (X, torch.tensor(1))).module()
    with pytest.raises(RuntimeError, match=r"between \[-3, 2\]"):
        module(X, torch.tensor(3))


@case(X, -X, of(1), of(5), dynamic=ROWS)
def a_loop_that_returns_several(x: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    total = torch.zeros(())
    for i in range(x.size(0)):
        j = 0
        while j < 4:
            if x[i, j] > 1:
                break
            j += 1
            if x[i, j - 1] < 0:
                continue
            total = total + x[i, j - 1] * i
        if total > 4:
            return total, i, j
    return total, -1, 0


@case((X, 5), (X, 0), (X, 9), dynamic={"x": None, "limit": Dim("limit", max=50)})
def a_loop_that_only_breaks_end(x: torch.Tensor, limit: int) -> tuple[torch.Tensor, int]:
    i = 0
    while True:
        if i >= limit:
            break
        x = x + i
        i += 1
    return x, i


def test_an_operator_that_takes_plain_numbers_is_refused_by_name() -> None:
    @torch.jit.script
    def normalized(x: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(x, [4], eps=float(x.max()))

    with pytest.raises(tintype.CaptureError, match="aten::layer_norm is called on a value that is only known"):
        converted(normalized, (X,))


# --- modules -------------------------------------------------------------------------------------------------


def test_weights_of_recurrent_layers_of_a_file_are_parameters() -> None:
    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[0]

    script = from_file(torch.jit.script(Tagger()))
    x = torch.randn(6, 2, 4)
    program = converted(script, (x,))
    assert not program.constants
    module = program.module()
    script(x).sum().backward()
    module(x).sum().backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    for name, parameter in script.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad)


def test_hooks_that_were_scripted_with_a_module() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    def before(self, input: tuple[torch.Tensor]) -> tuple[torch.Tensor]:  # type: ignore[no-untyped-def]
        self.calls += 1
        return (input[0] * 2,)

    def after(self, input: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:  # type: ignore[no-untyped-def]
        return output + input[0] + self.calls

    model = Model()
    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)
    script = torch.jit.script(model)
    compare(script, (X,), (X + 1,), (X,))
    torch.testing.assert_close(converted(script.forward, (X,)).module()(X), script.forward(X))


def test_statistics_over_all_calls_and_packed_sequences() -> None:
    compare(torch.nn.BatchNorm1d(4, momentum=None), (X,), (X * 2,), (X - 1,))

    class Packed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.GRU(4, 3)

        def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return torch.nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0])

    x = torch.randn(5, 2, 4)
    compare(Packed(), (x, torch.tensor([5, 3])), (x, torch.tensor([4, 5])))


@torch.jit.script
def of_any_kind(x: Any) -> torch.Tensor:
    if torch.jit.isinstance(x, list[torch.Tensor]):
        return x[0] + 1
    if torch.jit.isinstance(x, dict[str, torch.Tensor]):
        return x["a"] + 2
    return torch.zeros(1)


@pytest.mark.parametrize("value", [[X], {"a": X}, 3])
def test_arguments_of_any_kind(value: Any) -> None:
    torch.testing.assert_close(converted(of_any_kind, (value,)).module()(value), of_any_kind(value))


# --- autocast ------------------------------------------------------------------------------------------------


class Casting(torch.nn.Module):
    """Inside of modules, branches and other regions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
        self.calls = 0

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        self.calls += 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.layers(x)
            with torch.autocast("cpu", enabled=False):
                z = self.layer(x)
            w = torch.exp(y) + z
            if x.size(0) > 3:
                w = self.layer(w).float()
        return y, z, w, torch.softmax(y, -1), self.layer(x) * self.calls


class CastingInside(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Casting()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0] + self.inner.layer(x)


@pytest.mark.parametrize("model", [Casting, CastingInside])
def test_autocast_in_a_script(model: Any) -> None:
    compare(model(), (X,), (of(1),), (of(6),), dynamic_shapes=ROWS)


def test_autocast_that_torchscript_does_not_understand() -> None:
    class Flagged(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flag = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=self.flag):
                return x @ x.t()

    with pytest.raises(tintype.CaptureError, match=r"can't tell what torch.autocast does in this script"):
        converted(torch.jit.script(Flagged()), (X,))


# --- lists and dictionaries in attributes ----------------------------------------------------------------------


class Keeping(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = [torch.zeros(4), torch.ones(4)]
        self.cache = {"k": torch.zeros(3, 4), "a b": torch.ones(3, 4)}
        self.sizes = [1, 2]
        self.only_read = [torch.ones(4)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        self.last = [self.last[1], self.last[0] + x[0]]
        if x.sum() > 0:
            self.cache["k"] = self.cache["k"] + x.sum()
        self.cache["a b"][self.sizes[0] % 3].add_(1)
        self.sizes[0] += x.size(0)
        return self.last[0] + self.only_read[0], self.cache["k"] * self.cache["a b"], self.sizes[0]


def test_lists_and_dictionaries_in_attributes_are_state() -> None:
    program = compare(Keeping(), (X,), (-X,), (of(1),), (of(5),), dynamic_shapes=ROWS)
    buffers = {"last_0", "last_1", "cache_k", "cache_a_b", "sizes_0", "sizes_1"}
    assert set(program.graph_signature.buffers) == buffers


def test_a_list_in_an_attribute_keeps_its_length() -> None:
    class Growing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history = [1]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.history.append(x.size(0))
            return x

    script = torch.jit.script(Growing())
    with pytest.raises(tintype.errors.StateChangedError, match="with other items than before"):
        converted(script, (X,))
    assert script.history == [1]
