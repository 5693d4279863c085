"""Sizes that vary do what Python's numbers do."""

from __future__ import annotations

import collections
import copy
import decimal
import enum
import functools
import json
import marshal
import math
import numbers
import pickle
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tintype.errors import DataDependentError

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "divmod": lambda x: x * divmod(x.shape[0], 2)[0] + divmod(x.shape[0], 2)[1],
    "divmod of a number": lambda x: x + divmod(20, x.shape[0] + 1)[1],
    "divmod of two": lambda x: x + divmod(x.shape[0], x.shape[1])[0],
    "divmod of a float": lambda x: x * divmod(x.shape[0] / 2, 1.5)[1],
    "np.sqrt": lambda x: x / np.sqrt(x.shape[0]),
    "np.sqrt of a float": lambda x: x * np.sqrt(x.shape[1] * 0.5),
    "int of a float": lambda x: x * int(x.shape[0] * 0.7) + int(x.shape[1] / -2),
    "float": lambda x: x * float(x.shape[0]) + float(x.shape[1] > 2),
    "not": lambda x: x * ~x.shape[0],
    "not of a truth value": lambda x: x * ~(x.shape[0] > 3),
    "exclusive or": lambda x: x * ((x.shape[0] > 3) ^ (x.shape[1] > 2)) + ((x.shape[0] > 6) ^ True),
    "arithmetic with truth values": lambda x: x * (7 // (1 + (x.shape[0] > 3))) - (x.shape[1] > 2) / 2,
    "power and remainder": lambda x: x * pow(x.shape[0], 2, 7) + pow(3, x.shape[1], 5),
    "floor of a quotient": lambda x: x * (x.shape[0] // 0.1) + x.shape[1] // 2.0 + 20.0 // x.shape[0],
    "shifts by truth values": lambda x: x * (x.shape[0] << True) + (x.shape[1] >> (x.shape[0] > 3)),
    "rounded": lambda x: x * round(x.shape[0]) + round(x.shape[1], 2),
    "real": lambda x: x * x.shape[0].real,
    "copies": lambda x: x * copy.copy(x.shape[0]) + copy.deepcopy(x.shape)[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_plain_numbers(name: str) -> None:
    function = PROGRAMS[name]
    program = tintype.export(function, (torch.randn(5, 3),), dynamic_shapes="auto")
    for made in (program, program.run_decompositions()):
        for sizes in ((5, 3), (8, 2), (2, 7)):
            x = torch.randn(sizes)
            torch.testing.assert_close(made.module()(x), function(x), check_dtype=False)


# what only a plain number can do
FIXES: dict[str, Callable[[torch.Tensor], Any]] = {
    "json": lambda x: x * len(json.dumps({"size": x.shape[0]})),
    "pickle": lambda x: x * pickle.loads(pickle.dumps(x.shape[0])),
    "to_bytes": lambda x: x * x.shape[0].to_bytes(2, "big")[1],
    "hex of a float": lambda x: x * len((x.shape[0] / 3).hex()),
    "power and remainder of a negative": lambda x: x * pow(x.shape[0], -1, 7),
    "rounded to tens": lambda x: x * round(x.shape[0], -1),
    "no number": lambda x: x * (2 if math.isnan(x.shape[0] + math.nan) else 3),
}


@pytest.mark.parametrize("name", FIXES)
def test_what_only_a_plain_number_can_do_fixes_the_size(name: str) -> None:
    function, x = FIXES[name], torch.randn(5, 3)
    program = tintype.export(function, (x,), dynamic_shapes="auto")
    torch.testing.assert_close(program.module()(x), function(x))
    with pytest.raises((tintype.TintypeError, RuntimeError)):
        program.module()(torch.randn(6, 3))
    with pytest.raises(tintype.TintypeError, match="specialized"):
        tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("n")}})


# --- classes -------------------------------------------------------------------------------------------------


@functools.singledispatch
def kind_of(value: Any) -> int:
    return 2


@kind_of.register(int)
def _(value: int) -> int:
    return 3


@kind_of.register(float)
def _(value: float) -> int:
    return 5


def as_pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else tuple(value)


CLASSES: dict[str, Callable[[Any], Any]] = {
    "isinstance": lambda n: isinstance(n, int) + 2 * isinstance(n, float) + 4 * isinstance(n, bool),
    "isinstance of one of several": lambda n: isinstance(n, (str, float)),
    "isinstance of a union": lambda n: isinstance(n, int | str),
    "abstract classes": lambda n: isinstance(n, numbers.Integral) + 2 * isinstance(n, numbers.Real),
    "type": lambda n: {int: 2, float: 3, bool: 5}[type(n)],
    "__class__": lambda n: {int: 2, float: 3, bool: 5}[n.__class__],
    "its name": lambda n: len(type(n).__name__),
    "singledispatch": kind_of,
    "to its own class": lambda n: type(n)(3),
    "match": lambda n: _matched(n),
    "all of several": lambda n: all(isinstance(value, (int, float)) for value in [n]),
}


def _matched(n: Any) -> int:
    match n:
        case bool():
            return 2
        case int():
            return 3
        case float():
            return 5
    return 7


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("name", CLASSES)
def test_numbers_that_vary_are_of_pythons_classes(name: str, export: Any) -> None:
    question = CLASSES[name]

    def program(x: torch.Tensor, n: int, s: float) -> Any:
        kinds = [question(x.shape[0]), question(n), question(s), question(x.shape[0] > 2), question(x.shape[0] / 2)]
        return x * torch.tensor([float(kind) for kind in kinds])

    dim = tintype.Dim
    shapes = {"x": {0: dim("rows")}, "n": dim.DYNAMIC, "s": dim.DYNAMIC}
    module = export(program, (torch.ones(4, 5), 3, 2.5), dynamic_shapes=shapes).module()
    x = torch.ones(6, 5)
    assert torch.equal(module(x, 7, 0.5), program(x, 7, 0.5))


def test_a_size_is_made_a_pair() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.new_ones(as_pair(x.shape[0]))

    module = tintype.export(program, (torch.ones(4),), dynamic_shapes={"x": {0: tintype.Dim("n")}}).module()
    assert module(torch.ones(6)).shape == (6, 6)


@pytest.mark.direct("the model notes how often it is called")
def test_symbolic_numbers_are_still_torchs_own() -> None:
    """Programs that know of them ask for torch's class, and torch's own code finds nothing else."""
    found = []

    def program(x: torch.Tensor) -> torch.Tensor:
        found.append(isinstance(x.shape[0], torch.SymInt))
        return torch.nn.functional.pad(x, (1, x.shape[0]))

    tintype.export(program, (torch.ones(4),), dynamic_shapes="auto")
    assert found == [True]
    assert torch.SymInt(None).__class__ is torch.SymInt


# --- floats --------------------------------------------------------------------------------------------------

FLOATS = [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 0.1, 1e-320, 1e300, math.inf, -math.inf, math.nan]
OF_FLOATS: dict[str, Callable[[Any], Any]] = {
    "floor division": lambda s: s // 2,
    "floor division by a fraction": lambda s: s // 0.1,
    "floor division by it": lambda s: 2 // s,
    "remainder": lambda s: s % 3,
    "remainder by it": lambda s: 5.5 % s,
    "divmod": lambda s: divmod(s, 1.5),
    "square": lambda s: s**2,
    "inverse": lambda s: s**-1,
    "power of two": lambda s: 2**s,
    "root": lambda s: s**0.5,
    "int": lambda s: int(s),
    "int of a half": lambda s: int(s / 2),
    "floor": lambda s: math.floor(s),
    "absolute value": lambda s: abs(s),
    "least": lambda s: torch.sym_min(s, 1.5),
    "whole": lambda s: float(s) - 1,
}


@pytest.mark.parametrize("example", [2.5, 4.0])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_that_vary_compute_as_python_does(name: str, example: float) -> None:
    """Also at infinities, nan and negative values: the same number, or the same complaint, or one of ours."""
    function = OF_FLOATS[name]

    def program(x: torch.Tensor, s: float) -> Any:
        return x, function(s)

    x = torch.ones(2)
    shapes = {"x": None, "s": tintype.Dim.DYNAMIC}
    module = tintype.export(program, (x, example), dynamic_shapes=shapes).module()
    for value in FLOATS:
        try:
            expected = program(x, value)[1]
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error)):
                module(x, value)
            continue
        if name == "root" and not value >= 0:  # mostly a complex number
            with pytest.raises((tintype.TintypeError, RuntimeError)):
                module(x, value)
            continue
        assert repr(module(x, value)[1]) == repr(expected), value


@pytest.mark.parametrize("base", [-2, -2.5])
def test_the_power_of_a_negative_number_to_a_float_that_varies_is_refused(base: float) -> None:
    def program(x: torch.Tensor, s: float) -> Any:
        return x, base**s

    with pytest.raises(tintype.TintypeError, match="complex number"):
        tintype.export(program, (torch.ones(2), 2.0), dynamic_shapes={"x": None, "s": tintype.Dim.DYNAMIC})


@pytest.mark.parametrize("function", [lambda x: x * np.log(x.shape[0]), lambda x: x * np.exp(x.shape[0])])
def test_functions_that_a_program_has_no_operator_for_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(tintype.TintypeError, match="can't be computed in a captured program") as caught:
        tintype.export(function, (torch.randn(5),), dynamic_shapes="auto")
    assert caught.value.location.filename == __file__ and "torch.tensor(float(size))" in caught.value.remedy
    program = tintype.export(
        lambda x: x * torch.log(torch.tensor(float(x.shape[0]))), (torch.ones(5),), dynamic_shapes="auto"
    )
    torch.testing.assert_close(program.module()(torch.ones(7)), torch.full((7,), math.log(7)))


def test_nothing_is_left_on_torchs_classes() -> None:
    tintype.export(PROGRAMS["divmod"], (torch.randn(5, 3),), dynamic_shapes="auto")
    assert not hasattr(torch.SymInt, "__divmod__") and not hasattr(torch.SymFloat, "sqrt")
    assert "__class__" not in vars(torch.SymInt) and torch.SymInt.__class__ is type
    with pytest.raises(TypeError):
        json.dumps(object())


def _by_name(x: torch.Tensor) -> torch.Tensor:
    large = x.shape[0] > 3
    return x * 2 if large is not False else x * 3


def _same_of(truths: list[Any], x: torch.Tensor) -> torch.Tensor:
    above = x.shape[0] > 6
    return x * 2 if truths[0] is truths[1] else x * (4 if truths[0] is above else 3)


A_FLAG = True


class Modes(enum.Enum):
    FAST = 1
    SLOW = 2


Modes.flag = True  # type: ignore[attr-defined]


def _compared_with(flag: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x * 2 if (x.shape[0] > 3) is flag else x * 3


TRUTHS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "is True": lambda x: x * 2 if (x.shape[0] > 3) is True else x * 3,
    "is not True": lambda x: x * 2 if (x.shape[0] > 3) is not True else x * 3,
    "by name": _by_name,
    "of two": lambda x: x * 2 if (x.shape[0] > 3) is (x.shape[0] > 5) else x * 3,
    "not of two": lambda x: x * 2 if (x.shape[0] > 3) is not (x.shape[0] > 5) else x * 3,
    "of two in a list": lambda x: _same_of([x.shape[0] > 3, x.shape[0] > 5], x),
    "True is": lambda x: x * 2 if True is (x.shape[0] > 3) else x * 3,
    "a global": lambda x: x * 2 if (x.shape[0] > 3) is A_FLAG else x * 3,
    "an attribute": lambda x: x * 2 if (x.shape[0] > 3) is Modes.flag else x * 3,
    "one of two": lambda x: x * 2 if (x.shape[0] > 3) is (Modes if x.shape[0] > 9 else A_FLAG) else x * 3,
    "one of two first": lambda x: x * 2 if (x.shape[0] > 3 if x.shape[0] < 9 else Modes) is A_FLAG else x * 3,
    "inside": lambda x: (lambda flag: x * 2 if flag is (x.shape[0] > 3) else x * 3)(x.shape[0] > 5),
    "a variable of outside": lambda x: _compared_with(x.shape[0] > 5)(x),
    "index": lambda x: x * [3, 2][x.shape[0] > 3],
    "of a text": lambda x: x * ord("ab"[x.shape[0] > 3]),
    "larger": lambda x: x * max(x.shape[0] > 3, 0),
    "sorted": lambda x: x * sorted([x.shape[0] > 3, x.shape[0] > 2])[0],
    "of plain numbers": lambda x: x * 2 if (2 > 3) is False and None is not False and 1 is not True else x * 3,  # noqa: F632
}


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("example", [2, 5])
@pytest.mark.parametrize("name", TRUTHS)
def test_truth_values_that_vary_are_those_of_python(name: str, example: int, strict: bool) -> None:
    function, shapes = TRUTHS[name], {"x": {0: tintype.Dim.AUTO}}
    module = tintype.export(function, (torch.randn(example),), dynamic_shapes=shapes, strict=strict).module()
    torch.testing.assert_close(module(torch.ones(example)), function(torch.ones(example)))
    for size in (1, 2, 3, 4, 7):
        x = torch.randn(size)
        try:
            result = module(x)
        except (tintype.TintypeError, RuntimeError):
            continue
        torch.testing.assert_close(result, function(x))


def _identity(value: Any) -> Any:
    return value


def _asks_for_itself() -> Callable[[Any], bool]:
    def question(x: Any) -> bool:
        return x.new_tensor is question

    return question


NO_TRUTHS: dict[str, Callable[[Any], bool]] = {
    "classes": lambda x: type(x) is torch.Tensor,
    "two classes": lambda x: type(x) is type(x.shape),
    "by attribute": lambda x: x.__class__ is Modes.FAST.__class__,
    "a function": lambda x: x.new_tensor is _identity,
    "a member": lambda x: _identity(Modes.FAST) is Modes.FAST,
    "a dtype": lambda x: x.dtype is torch.float32,
    "a function of outside": _asks_for_itself(),
    "none": lambda x: None is x.grad_fn,
    "a text": lambda x: x.layout is ...,
}


@pytest.mark.parametrize("name", NO_TRUTHS)
def test_comparisons_of_what_is_no_truth_value_leave_sizes_alone(name: str) -> None:
    """They are everywhere, in the layers of transformers' models too."""
    question = NO_TRUTHS[name]

    def function(x: torch.Tensor) -> Any:
        return x * 2, x.shape[0] > 3, question(x)

    program = tintype.export(function, (torch.randn(5),), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    for size in (1, 7):
        assert program.module()(torch.ones(size))[1] == (size > 3)


def test_a_truth_value_from_data_that_is_compared_is_a_branch_on_data() -> None:
    with pytest.raises(DataDependentError):
        tintype.export(lambda x: x * 2 if (x.sum().item() > 3) is True else x * 3, (torch.ones(3),))


# functions of Python's and NumPy's that take plain numbers, whatever they say of others
PLAIN_ONES: dict[str, Callable[[torch.Tensor], Any]] = {
    "decimal": lambda x: x * float(decimal.Decimal(x.shape[0])),
    "ldexp": lambda x: x * math.ldexp(1.0, x.shape[0]),
    "marshal": lambda x: x * len(marshal.dumps(x.shape[0])),
    "deque": lambda x: x * len(collections.deque([1, 2], maxlen=x.shape[0])),
    "mean": lambda x: x * float(statistics.mean([x.shape[0], 2])),
    "np.isnan": lambda x: x * float(np.isnan(x.shape[0])),
    "a method of int": lambda x: x * int.__add__(2, x.shape[0]),
}


@pytest.mark.parametrize("swapped", [False, True])
def test_shifts_by_floats_are_none(swapped: bool) -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x * (2 << (x.shape[0] / 2) if swapped else x.shape[0] << 1.5)  # type: ignore[operator]

    with pytest.raises(tintype.CaptureError, match="unsupported operand"):
        tintype.export(shifted, (torch.ones(4),), dynamic_shapes="auto")


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("name", PLAIN_ONES)
def test_what_takes_no_symbolic_number_is_refused_with_the_line(name: str, strict: bool) -> None:
    function, x = PLAIN_ONES[name], torch.ones(3)
    with pytest.raises(tintype.CaptureError, match="plain") as caught:
        tintype.export(function, (x,), dynamic_shapes="auto", strict=strict)
    assert caught.value.location is not None and "int(" in str(caught.value.remedy)
    assert torch.equal(tintype.export(function, (x,), strict=strict).module()(x), function(x))


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
def test_what_takes_no_number_that_the_data_decide_is_refused_with_the_line(strict: bool) -> None:
    with pytest.raises(DataDependentError, match="Expected an int") as caught:
        tintype.export(lambda x: x * math.ldexp(1.0, int(x.max())), (torch.ones(3),), strict=strict)
    assert caught.value.location is not None


def test_what_the_model_raises_whatever_its_sizes_is_its_own() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        return x * math.ldexp(x.shape[0], 1.5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="Expected an int"):
        tintype.export(fails, (torch.ones(3),), dynamic_shapes="auto")


# --- tensors made of numbers -----------------------------------------------------------------------------------

NUMBERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "one element each": lambda x: torch.tensor([x[0:1, 0], x[0, 1:2], 2.0]),
    "one element in a matrix": lambda x: torch.tensor([[x[:1, :1]], [3]]),
    "new": lambda x: x.new_tensor([x.shape[0], x[0, 0]]),
    "several elements": lambda x: torch.tensor([x[0]]),
    "floats for integers": lambda x: torch.tensor([x[0, 0]], dtype=torch.int64),
    "integers for floats": lambda x: torch.tensor([x[0, 0].int(), 2], dtype=torch.float64),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_tensors_in_lists_are_numbers(name: str) -> None:
    function, x = NUMBERS[name], torch.randn(4, 3)

    def export() -> Any:
        return tintype.export(function, (x,), dynamic_shapes={"x": {0: tintype.Dim("n")}}).module()

    try:
        expected = function(x)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error), match=str(error)):
            export()
    else:
        torch.testing.assert_close(export()(x), expected)
