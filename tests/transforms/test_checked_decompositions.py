"""Decomposed programs refuse what eager mode refuses, and compute what it does at sizes that are special to it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tintype.errors import InputMismatchError

aten = torch.ops.aten
EYE = torch.eye(3)
PROBABILITIES = torch.tensor([0.25, 0.5, 0.75])
ROWS = torch.arange(12.0).reshape(3, 4)


def integers(*values: Any) -> torch.Tensor:
    return torch.tensor(values)


# name: (function, inputs that eager mode takes, inputs that it refuses)
REFUSED_DATA: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, ...]]]] = {
    "gather": (
        lambda x, i: x.gather(1, i),
        (ROWS, integers([0], [1], [3])),
        [(ROWS, integers([0], [1], [4])), (ROWS, integers([0], [1], [-1]))],
    ),
    "index_select": (
        lambda x, i: x.index_select(0, i), (ROWS, integers(0, 2)), [(ROWS, integers(0, 3)), (ROWS, integers(0, -1))]
    ),
    "index": (lambda x, i: x[i], (ROWS, integers(0, 2)), [(ROWS, integers(0, 3)), (ROWS, integers(0, -4))]),
    "index_put": (
        lambda x, i: x.index_put((i,), torch.ones(())),
        (ROWS, integers(0, 2)),
        [(ROWS, integers(0, 3)), (ROWS, integers(0, -4))],
    ),
    "index_add": (
        lambda x, i: x.index_add(0, i, torch.ones(2, 4)),
        (ROWS, integers(0, 2)),
        [(ROWS, integers(0, 3)), (ROWS, integers(0, -1))],
    ),
    "index_copy": (
        lambda x, i: x.index_copy(0, i, torch.ones(2, 4)),
        (ROWS, integers(0, 2)),
        [(ROWS, integers(0, 3)), (ROWS, integers(0, -1))],
    ),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), (ROWS, integers(0, 2)), [(ROWS, integers(0, 3))]),
    "scatter": (
        lambda x, i: x.scatter(1, i, 1.0), (ROWS, integers([0], [3])), [(ROWS, integers([0], [4]))]
    ),
    "scatter_add": (
        lambda x, i: x.scatter_add(1, i, torch.ones(2, 1)),
        (ROWS, integers([0], [3])),
        [(ROWS, integers([0], [-1]))],
    ),
    "take": (torch.take, (ROWS, integers(0, 11)), [(ROWS, integers(0, 12))]),
    "put": (lambda x, i: x.put(i, torch.ones(2)), (ROWS, integers(0, 11)), [(ROWS, integers(0, 12))]),
    "embedding": (
        lambda x, i: F.embedding(i, x), (ROWS, integers(0, 2)), [(ROWS, integers(0, 3)), (ROWS, integers(0, -1))]
    ),
    "embedding_bag": (
        lambda x, i: F.embedding_bag(i, x), (ROWS, integers([0, 2])), [(ROWS, integers([0, 3]))]
    ),
    "nll_loss": (
        F.nll_loss, (ROWS, integers(0, 2, 3)), [(ROWS, integers(0, 2, 4)), (ROWS, integers(0, 2, -1))]
    ),
    "cross_entropy": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1),
        (ROWS, integers(0, 2, 3)),
        [(ROWS, integers(0, 2, 4)), (ROWS, integers(0, 2, -1))],
    ),
    "multi_margin_loss": (
        F.multi_margin_loss, (ROWS, integers(0, 2, 3)), [(ROWS, integers(0, 2, 4)), (ROWS, integers(0, 2, -1))]
    ),
    "binary_cross_entropy": (
        F.binary_cross_entropy,
        (PROBABILITIES, PROBABILITIES),
        [(PROBABILITIES + 1, PROBABILITIES), (-PROBABILITIES, PROBABILITIES), (PROBABILITIES, PROBABILITIES + 2)],
    ),
    "one_hot": (lambda i: F.one_hot(i, 4), (integers(0, 3),), [(integers(0, 4),), (integers(0, -1),)]),
    "max_unpool2d": (
        lambda x, i: F.max_unpool2d(x, i, 2),
        (torch.ones(1, 1, 1, 1), integers([[[0]]])),
        [(torch.ones(1, 1, 1, 1), integers([[[9]]])), (torch.ones(1, 1, 1, 1), integers([[[-1]]]))],
    ),
    "max_unpool3d": (
        lambda x, i: F.max_unpool3d(x, i, 2),
        (torch.ones(1, 1, 1, 1, 1), integers([[[[0]]]])),
        [(torch.ones(1, 1, 1, 1, 1), integers([[[[-1]]]]))],
    ),
    "cholesky": (torch.linalg.cholesky, (EYE,), [(-EYE,)]),
    "cholesky of a batch": (torch.linalg.cholesky, (EYE.repeat(2, 1, 1),), [(torch.stack([EYE, -EYE]),)]),
    "inv": (torch.linalg.inv, (EYE,), [(torch.zeros(3, 3),)]),
    "solve": (lambda x: torch.linalg.solve(x, torch.ones(3)), (EYE,), [(torch.zeros(3, 3),)]),
    "lu_factor": (torch.linalg.lu_factor, (EYE,), [(torch.zeros(3, 3),)]),
    "eigh": (torch.linalg.eigh, (EYE,), [(torch.full((3, 3), torch.nan),)]),
    "svd": (torch.linalg.svd, (EYE,), [(torch.full((3, 3), torch.nan),)]),
    "multinomial": (
        lambda x: torch.multinomial(x, 1), (torch.ones(3),), [(-torch.ones(3),), (torch.zeros(3),)]
    ),
    "bernoulli": (torch.bernoulli, (PROBABILITIES,), [(PROBABILITIES + 1,), (-PROBABILITIES,)]),
    "normal": (lambda x: torch.normal(torch.zeros(3), x), (torch.ones(3),), [(-torch.ones(3),)]),
    "bincount": (torch.bincount, (integers(0, 1),), [(integers(0, -1),)]),
    "histc": (lambda x: torch.histc(x, 4), (torch.ones(3),), [(torch.full((3,), torch.inf),)]),
    "floor_divide": (lambda x, y: x // y, (integers(4, 5), integers(1, 2)), [(integers(4, 5), integers(0, 2))]),
    "remainder": (lambda x, y: x % y, (integers(4, 5), integers(1, 2)), [(integers(4, 5), integers(0, 2))]),
    "repeat_interleave": (
        lambda x, r: x.repeat_interleave(r), (ROWS[0, :2], integers(1, 2)), [(ROWS[0, :2], integers(1, -2))]
    ),
    "quantile": (torch.quantile, (ROWS[0], torch.tensor(0.5)), [(ROWS[0], torch.tensor(1.5))]),
    "masked_scatter": (
        lambda x, m: x.masked_scatter(m, torch.ones(2)),
        (ROWS[0], integers(True, False, True, False)),
        [(ROWS[0], integers(True, True, True, False))],
    ),
    "unused cholesky": (lambda x: (torch.linalg.cholesky(x), x * 2)[1], (EYE,), [(-EYE,)]),
    "unused one_hot": (lambda i: (F.one_hot(i, 4), i * 2)[1], (integers(0, 3),), [(integers(0, 4),)]),
}  # fmt: skip


@functools.cache
def torchs_table() -> dict[Any, Callable[..., Any]]:
    return dict(torch._decomp.core_aten_decompositions().items())


def forms(program: tintype.ExportedProgram) -> dict[str, tintype.ExportedProgram]:
    """A program, and what it can be decomposed into."""
    found = {
        "exported": program,
        "core": program.run_decompositions(),
        "by nothing": program.run_decompositions({}),
        "by torch's table": program.run_decompositions(torchs_table()),
    }
    for form in found.values():
        form.validate()
    return found


@pytest.mark.parametrize("name", REFUSED_DATA)
def test_data_that_eager_mode_refuses(name: str) -> None:
    function, good, refused = REFUSED_DATA[name]
    for form, program in forms(tintype.export(function, good)).items():
        module = program.module()
        torch.manual_seed(0)
        wanted = function(*good)
        torch.manual_seed(0)
        torch.testing.assert_close(module(*good), wanted, msg=lambda text, form=form: f"{form}: {text}")
        for bad in refused:
            for run in (function, module):
                with pytest.raises((RuntimeError, IndexError)):
                    run(*bad)


SIZES: dict[str, tuple[Callable[[torch.Tensor], Any], int]] = {
    "reflect": (lambda x: F.pad(x, (2, 1), mode="reflect"), 1),
    "reflect an image": (lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"), 2),
    "reflect a volume": (lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="reflect"), 3),
    "reflect and cut": (lambda x: F.pad(x, (-2, 1), mode="reflect"), 1),
    "replicate": (lambda x: F.pad(x, (2, 1), mode="replicate"), 1),
    "around": (lambda x: F.pad(x, (2, 1), mode="circular"), 1),
    **{
        f"{mode} by {scale}": (
            lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode), dimensions
        )
        for mode, dimensions in (
            ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2), ("nearest", 1), ("nearest", 2),
            ("nearest-exact", 2), ("area", 1),
        )
        for scale in (1.3, 0.7, 1.05)
    },
    "linear, corners": (lambda x: F.interpolate(x, scale_factor=1.3, mode="linear", align_corners=True), 1),
    "linear, to a size": (lambda x: F.interpolate(x, size=5, mode="linear"), 1),
}  # fmt: skip


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_are_special_to_eager_mode(name: str, varies: bool) -> None:
    function, dimensions = SIZES[name]

    def image(size: int) -> torch.Tensor:
        return torch.sin(torch.arange(2.0 * size**dimensions)).reshape(1, 2, *[size] * dimensions)

    sizes = (1, 2, 3, 4, 5, 7)
    if varies:
        shapes = ({2 + dimension: tintype.Dim.AUTO for dimension in range(dimensions)},)
        programs = [(tintype.export(function, (image(5),), dynamic_shapes=shapes), sizes)]
    else:
        programs = [(tintype.export(function, (image(size),)), (size,)) for size in (4, 5)]
    for program, others in programs:
        for form, decomposed in forms(program).items():
            for size in others:
                _compare_at_size(function, decomposed.module(), image(size), f"{form} at {size}")


def _compare_at_size(function: Callable[..., Any], module: Callable[..., Any], x: torch.Tensor, what: str) -> None:
    try:
        wanted = function(x)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            module(x)
        return
    try:
        result = module(x)
    except (InputMismatchError, RuntimeError) as error:
        # sizes that a program says it is not for are no wrong answers
        assert "Runtime assertion" in str(error) or isinstance(error, InputMismatchError), f"{what}: {error}"
        return
    torch.testing.assert_close(result, wanted, msg=lambda text: f"{what}: {text}")


def test_fixed_sizes_are_decomposed_where_that_is_right() -> None:
    def operators(function: Callable[..., Any], x: torch.Tensor) -> set[Any]:
        program = tintype.export(function, (x,)).run_decompositions()
        return {node.target for node in program.graph.nodes if node.op == "call_function"}

    assert aten.reflection_pad1d.default not in operators(SIZES["reflect"][0], torch.ones(1, 2, 5))
    assert aten.upsample_linear1d.default not in operators(SIZES["linear by 1.3"][0], torch.ones(1, 2, 5))
    assert aten.upsample_linear1d.default in operators(SIZES["linear by 1.3"][0], torch.ones(1, 2, 3))
    assert aten.upsample_linear1d.default in operators(SIZES["linear by 1.05"][0], torch.ones(1, 2, 5))


def test_dropout_between_recurrent_layers_draws_what_eager_mode_draws() -> None:
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 3, num_layers=2, dropout=0.5, batch_first=True)
    x = torch.ones(2, 5, 4)
    for form, program in forms(tintype.export(model, (x,))).items():
        torch.manual_seed(1)
        wanted = model(x)
        torch.manual_seed(1)
        torch.testing.assert_close(program.module()(x), wanted, msg=lambda text, form=form: f"{form}: {text}")


def _weighted(x: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(x, x, y, reduction=reduction)


@pytest.mark.parametrize(
    "loss",
    [
        F.huber_loss,
        F.soft_margin_loss,
        F.mse_loss,
        F.smooth_l1_loss,
        F.l1_loss,
        F.binary_cross_entropy_with_logits,
        _weighted,
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kinds", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_a_loss_has_the_kind_that_eager_mode_gives_it(loss: Any, reduction: str, kinds: Any) -> None:
    given = torch.ones(3, dtype=kinds[0]), torch.zeros(3, dtype=kinds[1])
    program = tintype.export(lambda x, y: loss(x, y, reduction=reduction), given)
    for variant in (program, program.run_decompositions()):
        torch.testing.assert_close(variant.module()(*given), loss(*given, reduction=reduction))
        (output,) = variant.graph.find_nodes(op="output")
        assert output.args[0][0].meta["val"].dtype is loss(*given, reduction=reduction).dtype


ZERO_DIVISIONS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], tuple[Any, ...]]] = {
    "label smoothing": (
        lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1),
        lambda n: (torch.randn(n, n), torch.zeros(n, dtype=torch.int64)),
        ({0: tintype.Dim.AUTO, 1: tintype.Dim.AUTO}, {0: tintype.Dim.AUTO}),
    ),
    "label smoothing of probabilities": (
        lambda x: F.cross_entropy(x, x.softmax(1), label_smoothing=0.1),
        lambda n: (torch.randn(3, n),),
        ({0: tintype.Dim.AUTO, 1: tintype.Dim.AUTO},),
    ),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda n: (torch.randn(1, 2, 3, n),),
        ({3: tintype.Dim.AUTO},),
    ),
}


@pytest.mark.parametrize("name", ZERO_DIVISIONS)
@pytest.mark.parametrize("example", [4, 0])
def test_kernels_divide_by_zero(name: str, example: int) -> None:
    function, arguments, sizes = ZERO_DIVISIONS[name]
    program = tintype.export(function, arguments(example), dynamic_shapes=sizes)
    decomposed = program.run_decompositions()
    joint = None
    if name == "attention":
        leaves = [value.requires_grad_() for value in arguments(example)]
        loss = tintype.export_joint(lambda x: function(x).sum(), tuple(leaves), dynamic_shapes=sizes)
        joint = loss.module()
    file = io.BytesIO()
    tintype.save(decomposed, file)
    for module in (decomposed.module(), tintype.load(file).module()):
        for size in (0, 5) if example else (0,):
            given = arguments(size)
            torch.testing.assert_close(module(*given), function(*given), equal_nan=True)
            if joint is not None:
                torch.testing.assert_close(joint(*given)[0], function(*given).sum(), equal_nan=True)


def test_python_does_not_divide_by_zero() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * (2 / (x.shape[0] - 3))

    program = tintype.export(model, (torch.ones(5),), dynamic_shapes=({0: tintype.Dim.AUTO},))
    again = tintype.export(program.module(), (torch.ones(5),), dynamic_shapes=({0: tintype.Dim.AUTO},))
    for made in (program, program.run_decompositions(), again):
        torch.testing.assert_close(made.module()(torch.ones(7)), model(torch.ones(7)))
        with pytest.raises(ZeroDivisionError):
            made.module()(torch.ones(3))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("options", ["correction", "fweights", "aweights", "both"])
def test_covariances_with_weights(rows: int, options: str) -> None:
    def model(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        given: dict[str, Any] = {
            "correction": {"correction": 0},
            "fweights": {"fweights": counts},
            "aweights": {"aweights": counts / 3},
            "both": {"fweights": counts, "aweights": counts / 3, "correction": 2},
        }[options]
        return torch.cov(x, **given)

    example = (torch.randn(rows, 4), torch.tensor([1, 2, 1, 3]))
    program = tintype.export(model, example)
    for made in (program, program.run_decompositions()):
        for counts in (example[1], torch.tensor([0, 0, 1, 1])):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(made.module()(x, counts), model(x, counts), equal_nan=True)
        if options != "correction":
            with pytest.raises(RuntimeError, match="negative"):
                made.module()(example[0], torch.tensor([1, -2, 1, 3]))


def test_a_norm_in_half_precision_is_computed_in_single_precision() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.instance_norm(x)

    x = torch.linspace(-3, 3, 30).sin().reshape(2, 3, 5).bfloat16()
    weights = torch.linspace(-1, 1, 30).cos().reshape(2, 3, 5).bfloat16()
    program = tintype.export(Model(), (x,), dynamic_shapes="auto").run_decompositions().module()
    gradients = []
    for function, dtype in ((Model(), torch.float64), (program, torch.bfloat16)):
        leaf = x.clone().to(dtype).requires_grad_()
        (function(leaf) * weights.to(dtype)).sum().backward()
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-2)
