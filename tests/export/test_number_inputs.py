"""Integers and floats among the inputs that vary: symbols in the graph, checked when the program is called."""

import pytest
import torch

import tintype
from tintype import Dim
from tintype.errors import ConstraintViolationError, DataDependentError, InputMismatchError, InvalidRequestError
from tintype.ir.signature import ConstantArgument, SymFloatArgument, SymIntArgument


def scaled(x, n, factor):
    return x[:n] * factor + n, n + 1


X = torch.randn(8, 3)
VARYING = {"x": {0: Dim("rows", min=1)}, "n": Dim.DYNAMIC, "factor": Dim.DYNAMIC}


def stages(function, args, dynamic_shapes):
    """A program in every stage, captured again, and decomposed after that."""
    program = tintype.export(function, args, dynamic_shapes=dynamic_shapes)
    yield program
    yield program.run_decompositions()
    yield tintype.export_for_training(function, args, dynamic_shapes=dynamic_shapes)
    again = tintype.export(program.module(), args, dynamic_shapes=dynamic_shapes)
    yield again
    yield again.run_decompositions()


@pytest.mark.parametrize("index", range(5))
def test_matches_eager(index):
    program = list(stages(scaled, (X, 3, 0.5), VARYING))[index]
    program.validate()
    module = program.module()
    for x, n, factor in ((X, 3, 0.5), (X, 0, 2.0), (torch.randn(5, 3), 9, -1.5), (X, 8, float("inf"))):
        found, following = module(x, n, factor)
        expected, expected_following = scaled(x, n, factor)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert following == expected_following and type(following) is int


def test_signature_and_contract():
    program = tintype.export(scaled, (X, 3, 0.5), dynamic_shapes=VARYING)
    assert [type(spec.arg) for spec in program.graph_signature.input_specs[1:]] == [SymIntArgument, SymFloatArgument]
    lines = [line.text for line in program.contract()]
    # a slice takes a negative end as counted from the other side, so what came is the other case
    assert lines == ["x.shape[0] = rows, rows >= 1", "n >= 0", "factor is any float"]
    assert program.contract().lines[1].location.line == scaled.__code__.co_firstlineno + 1
    assert [str(bounds) for bounds in program.range_constraints.values()] == ["[1, oo]", "[0, oo]"]


def test_an_integer_that_nothing_asks_about_is_any_integer():
    program = tintype.export(lambda x, n: x * n, (X, 3), dynamic_shapes={"n": Dim.AUTO})
    assert str(program.contract()) == "n is any integer"
    assert torch.equal(program.module()(X, -4), X * -4)


def test_checks():
    module = tintype.export(scaled, (X, 3, 0.5), dynamic_shapes=VARYING).module()
    for given in (True, 3.0, "3", None, torch.tensor(3)):
        with pytest.raises(InputMismatchError, match=r"Expected input at \*args\[1\] to be an int, but got"):
            module(X, given, 0.5)
    with pytest.raises(InputMismatchError, match=r"Expected input at \*args\[1\] to be >= 0, but got -1"):
        module(X, -1, 0.5)
    with pytest.raises(InputMismatchError, match=r"Expected input at \*args\[2\] to be a float, but got 1"):
        module(X, 3, 1)


def test_bounds():
    program = tintype.export(lambda x, n: x * n, (X, 3), dynamic_shapes={"n": Dim.DYNAMIC(min=2, max=5)})
    assert str(program.contract()) == "2 <= n <= 5"
    for outside, text in ((1, ">= 2, but got 1"), (6, "<= 5, but got 6")):
        with pytest.raises(InputMismatchError, match=text):
            program.module()(X, outside)
    with pytest.raises(ConstraintViolationError, match=r"9 not in range \[2, 5\] of Dim.DYNAMIC"):
        tintype.export(lambda x, n: x * n, (X, 9), dynamic_shapes={"n": Dim.DYNAMIC(min=2, max=5)})


@pytest.mark.parametrize("number_first", [False, True])
def test_a_named_integer_is_the_same_as_a_size_of_that_name(number_first):
    rows = Dim("rows", min=1)
    function = (lambda n, x: x.reshape(n, -1)) if number_first else (lambda x, n: x.reshape(n, -1))
    shapes = {"n": rows, "x": {0: rows}}

    def arguments(n, size):
        return (n, torch.randn(size, 3)) if number_first else (torch.randn(size, 3), n)

    module = tintype.export(function, arguments(8, 8), dynamic_shapes=shapes).module()
    assert module(*arguments(5, 5)).shape == (5, 3)
    with pytest.raises(InputMismatchError, match="to be equal to"):
        module(*arguments(4, 5))


def test_derived_integer():
    half = Dim("half", min=1)
    program = tintype.export(lambda n, x: x[:n] + n, (9, X), dynamic_shapes={"n": 2 * half + 1})
    for candidate in (program, program.run_decompositions()):
        assert torch.equal(candidate.module()(5, X), X[:5] + 5)
        with pytest.raises(InputMismatchError, match=r"to be of the form 2\*s1 \+ 1, where s1 is an integer"):
            candidate.module()(6, X)


def test_numbers_in_containers():
    def function(options):
        return options["x"] * options["n"] + options["factors"][0]

    def options(n, factor):
        return {"x": X, "n": n, "factors": [factor, "unused"]}

    shapes = {"options": {"n": Dim.DYNAMIC, "factors": [Dim.DYNAMIC, None]}}
    module = tintype.export(function, (options(3, 0.5),), dynamic_shapes=shapes).module()
    assert torch.equal(module(options(7, 2.5)), function(options(7, 2.5)))


def test_auto_takes_integers_but_no_floats():
    program = tintype.export(scaled, (X, 3, 0.5), dynamic_shapes="auto")
    kinds = [type(spec.arg) for spec in program.graph_signature.input_specs[1:]]
    assert kinds == [SymIntArgument, ConstantArgument]
    assert program.module()(torch.randn(6, 2), 4, 0.5)[0].shape == (4, 2)


def repeated(x, n):
    for _ in range(n):
        x = x + 1
    return x


def test_an_integer_that_the_program_fixes():
    program = tintype.export(repeated, (X, 3), dynamic_shapes={"n": Dim.AUTO})
    (line,) = program.contract()
    assert (line.kind, line.text) == ("specialization", "n = 3")
    assert line.location.line == repeated.__code__.co_firstlineno + 1
    with pytest.raises(InputMismatchError, match="to be equal to 3, but got 4"):
        program.module()(X, 4)
    with pytest.raises(ConstraintViolationError, match=r"n must be specialized to 3 because of the guard n == 3"):
        tintype.export(repeated, (X, 3), dynamic_shapes={"n": Dim.DYNAMIC}, control_flow="refuse")
    module = tintype.export(repeated, (X, 3), dynamic_shapes={"n": Dim.DYNAMIC}).module()  # a loop
    for n in (0, 1, 5):
        assert torch.equal(module(X, n), repeated(X, n))


def test_suggested_shapes_for_integers():
    def small(x, n):
        return x * 2 if n <= 6 else x

    with pytest.raises(ConstraintViolationError) as caught:
        tintype.export(small, (X, 3), dynamic_shapes={"n": Dim("n")})
    assert repr(caught.value.suggested) == "{'x': None, 'n': Dim('n', max=6)}"
    program = tintype.export(small, (X, 3), dynamic_shapes=caught.value.suggested)
    assert str(program.contract()) == "n <= 6"


def test_a_branch_on_a_float_is_refused():
    with pytest.raises(DataDependentError, match="is not known while the program is captured"):
        tintype.export(
            lambda x, f: x if f > 1 else -x, (X, 0.5), dynamic_shapes={"f": Dim.DYNAMIC}, control_flow="refuse"
        )


def test_examples_that_differ_in_a_number():
    examples = tintype.AdditionalInputs()
    examples.add((X, 4, 2.5))
    program = tintype.export(scaled, (X, 3, 0.5), dynamic_shapes=examples)
    examples.verify(program)
    assert program.module()(X, 5, 0.5)[1] == 6


@pytest.mark.parametrize(
    ("value", "entry", "text"),
    [
        (True, Dim.DYNAMIC, "f is a bool, but dynamic_shapes has Dim.DYNAMIC for it"),
        ("a", Dim.AUTO, "f is a str, but dynamic_shapes has Dim.AUTO for it"),
        (0.5, Dim("f"), r"f is a float, but dynamic_shapes has Dim\('f'\) for it"),
        (3, {0: Dim("f")}, "f is a int, but dynamic_shapes has {0: Dim\\('f'\\)} for it"),
        (3, 4, "f is 3, but dynamic_shapes says that it is 4"),
    ],
)
def test_wrong_specs(value, entry, text):
    with pytest.raises(InvalidRequestError, match=text):
        tintype.export(lambda x, f: x, (X, value), dynamic_shapes={"f": entry})


def test_static_numbers_stay_what_they_are():
    for entry in (None, Dim.STATIC, 3):
        program = tintype.export(lambda x, f: x * f, (X, 3), dynamic_shapes={"f": entry})
        assert isinstance(program.graph_signature.input_specs[1].arg, ConstantArgument)


def test_a_number_that_was_decided_about_is_decided_about_again():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.ones(4))

        def forward(self, x, size):
            self.kept.split(size)[0].zero_()
            return x

    spec = {"x": {}, "size": Dim.AUTO}
    program = tintype.export(Model(), (X, 1), dynamic_shapes=spec)
    again = tintype.export(program.module(), (X, 1), dynamic_shapes=({}, Dim.AUTO)).module()
    again(X, 1)
    assert again.kept.tolist() == [0, 1, 1, 1]
    with pytest.raises(tintype.TintypeError, match="to be equal to 1, but got 2"):
        again(X, 2)
