"""Families of operators that ONNX has no operators for: special functions, matrices, scattering, order, integers."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import compared

F = torch.nn.functional
SPECIAL = torch.special
EDGES = torch.tensor([0.0, 1e-5, 2.0, 8.0, -8.0, 103.0, float("inf"), float("nan"), 1.0, -1.0])
LINE = torch.cat([torch.linspace(-30, 30, 121), EDGES])
ONE_ARGUMENT = (
    "i0", "i0e", "i1", "i1e", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai", "erfcx", "log_ndtr",
)  # fmt: skip


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_special_functions_of_one_number(name: str) -> None:
    compared(lambda x: getattr(SPECIAL, name)(x), (LINE,), tolerance=1e-4)


def test_inverse_of_the_normal_distribution() -> None:
    p = torch.cat([torch.linspace(-0.1, 1.1, 200), torch.tensor([0.0, 1.0, 1e-20, 0.135, 0.865])])
    compared(lambda x: SPECIAL.ndtri(x), (p,))


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_polygamma(order: int) -> None:
    compared(lambda x: torch.polygamma(order, x), (torch.linspace(0.1, 20, 60),), tolerance=1e-3)


def test_zeta_and_incomplete_gamma() -> None:
    a, x = torch.rand(80) * 30, torch.rand(80) * 40
    a[:3], x[:3] = torch.tensor([0.0, 2.0, -1.0]), torch.tensor([1.0, 0.0, 1.0])
    compared(lambda a, x: (torch.igamma(a, x), torch.igammac(a, x), SPECIAL.zeta(a + 1, x)), (a, x), tolerance=1e-3)


POLYNOMIALS = [f"{prefix}chebyshev_polynomial_{kind}" for prefix in ("", "shifted_") for kind in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials(name: str) -> None:
    torch.manual_seed(0)
    x, degree = torch.rand(50) * 3 - 1, torch.randint(-1, 12, (50,))
    compared(lambda x, n: getattr(SPECIAL, name)(x, n), (x, degree), tolerance=2e-3)


def spd(*batch: int, size: int = 4) -> torch.Tensor:
    torch.manual_seed(1)
    half = torch.randn(*batch, size, size)
    return half @ half.mT + torch.eye(size)


def square(*batch: int, size: int = 4) -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randn(*batch, size, size)


L = torch.linalg
MATRICES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (lambda x: (L.cholesky(x), L.cholesky(x, upper=True)), (spd(2),)),
    "cholesky_solve": (lambda b, x: (torch.cholesky_solve(b, x), torch.cholesky_inverse(x)), (square(), spd())),
    "inv": (lambda x: (L.inv(x), L.matrix_power(x, -2)), (square(3),)),
    "inv of nothing": (lambda x: (L.inv(x), L.slogdet(x)), (square(size=0),)),
    "solve": (lambda x, b: (L.solve(x, b), L.solve(x, b, left=False)), (square(2), square(2) + 1)),
    "solve a vector": (lambda x, b: L.solve(x, b), (square(), torch.randn(4))),
    "triangular": (
        lambda x, b: (
            L.solve_triangular(x, b, upper=True),
            L.solve_triangular(x, b, upper=False, left=False, unitriangular=True),
        ),
        (spd(), square()),
    ),
    "lu": (lambda x: (*L.lu(x), *L.lu_factor(x)), (square(2),)),
    "lu of other shapes": (lambda x: (*L.lu(x), *L.lu(x.mT)), (torch.randn(2, 3, 5),)),
    "lu_solve": (
        lambda x, b: (
            L.lu_solve(*L.lu_factor(x), b),
            L.lu_solve(*L.lu_factor(x), b, adjoint=True),
            L.lu_solve(*L.lu_factor(x), b, left=False),
        ),
        (square(), square() + 1),
    ),
    "slogdet": (lambda x: (*L.slogdet(x), L.det(x), x.logdet()), (spd(3),)),
    "qr": (lambda x: (*L.qr(x), *L.qr(x.mT), *L.qr(x, mode="complete")), (torch.randn(2, 5, 3),)),
    "householder": (lambda x, t: L.householder_product(x, t), (torch.randn(5, 3), torch.rand(3))),
    "matrix_exp": (lambda x: torch.matrix_exp(x), (square(2),)),
    "singular values": (
        lambda x: (L.svdvals(x), L.cond(x), L.matrix_norm(x, 2), L.matrix_norm(x, "nuc"), L.matrix_rank(x)),
        (torch.randn(2, 5, 3),),
    ),
    "pinv": (lambda x: (L.pinv(x), L.pinv(x.mT)), (torch.randn(2, 5, 3),)),
    "eigenvalues": (lambda x: (L.eigvalsh(x), L.pinv(x, hermitian=True)), (spd(2, size=5),)),
    "parts of svd": (lambda x: _put_together(*L.svd(x, full_matrices=False)), (torch.randn(2, 4, 5),)),
    "parts of eigh": (lambda x: _of_symmetric(*L.eigh(x)), (spd(size=5) - 3,)),
}


def _put_together(u: torch.Tensor, s: torch.Tensor, v: torch.Tensor) -> Any:
    return u * s[..., None, :] @ v, s, u.mT @ u


def _of_symmetric(values: torch.Tensor, vectors: torch.Tensor) -> Any:
    return vectors * values @ vectors.mT, values


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str) -> None:
    function, args = MATRICES[name]
    compared(function, args, tolerance=2e-3)


def test_a_matrix_that_is_not_positive_is_said_so_when_it_runs() -> None:
    program = tintype.onnx.export(lambda x: torch.linalg.cholesky(x), (spd(),))
    with pytest.raises(tintype.TintypeError, match="cholesky"):
        program(-spd())


def test_signs_that_nothing_determines_are_caught() -> None:
    with pytest.raises(tintype.onnx.OnnxVerificationError, match="_linalg_svd"):
        tintype.onnx.export(lambda x: torch.linalg.svd(x), (square(size=6),))


INDEX = torch.tensor([0, 2, 0, 1])
ODD = torch.tensor([[3.0, float("nan"), 1.0], [2.0, 2.0, 2.0], [3.0, 0.0, -1.0]])
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"{name} {reduce} {included}": (
            lambda x, y, name=name, reduce=reduce, included=included: (
                x.index_reduce(0, INDEX, y, reduce, include_self=included)
                if name == "index_reduce"
                else x.scatter_reduce(0, INDEX[:, None].expand(4, 3), y, reduce, include_self=included)
            ),
            (torch.randn(4, 3), torch.randn(4, 3)),
        )
        for name in ("index_reduce", "scatter_reduce")
        for reduce in ("prod", "mean", "amax", "amin")
        for included in (True, False)
    },
    "mean of integers": (
        lambda x, y: x.scatter_reduce(0, INDEX, y, "mean"),
        (torch.tensor([-5, 3, 7, 8]), torch.tensor([2, -4, -4, 1])),
    ),
    "nan is the largest": (lambda x, y: x.scatter_reduce(0, INDEX[:3], y, "amax"), (ODD[0], ODD[0])),
    "bincount": (lambda x, w: (x.bincount(w, 6), x.bincount()), (INDEX, torch.rand(4))),
    "segments": (
        lambda x, n: tuple(torch.segment_reduce(x, reduce, lengths=n) for reduce in ("sum", "mean", "max", "min")),
        (torch.randn(6, 2), torch.tensor([2, 1, 3])),
    ),
    "diagonal_scatter": (
        lambda x, y: (x.diagonal_scatter(y, 1), x.mT.diagonal_scatter(y, -1)),
        (torch.randn(4, 5), torch.randn(4)),
    ),
    "median": (lambda x: (x.median(), *x.median(0), *x.nanmedian(1), x.nanmedian(), *x[1:].mode(0)), (ODD,)),
    "median of all kinds": (lambda x: (*x.median(1), x.median()), (torch.tensor([[3, 1, 2], [5, 4, 9]]),)),
    "runs": (
        lambda x: torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True),
        (torch.tensor([[1, 2], [1, 2], [3, 4], [1, 2]]),),
    ),
    "frexp": (lambda x: torch.frexp(x), (torch.tensor([0.0, 1.0, -3.5, 0.5, 1e-30, float("inf"), 2.0**20]),)),
    "nextafter": (
        lambda x, y: torch.nextafter(x, y),
        (torch.tensor([0.0, 1.0, 1.0, -2.0, 3.4028235e38]), torch.tensor([1.0, 0.0, 2.0, -1.0, float("inf")])),
    ),
    "powers of integers": (
        lambda x, y: (x**y, 3**y, x**2),
        (torch.tensor([3, -1, 7, 1, 2]), torch.tensor([39, -3, 2, -5, 70])),
    ),
    "places of the largest": (
        lambda x: (
            *F.adaptive_max_pool2d(x, (3, 2), return_indices=True),
            *F.adaptive_max_pool1d(x[0], 1, return_indices=True),
        ),
        (torch.randn(2, 3, 7, 5),),
    ),
    "fractional pooling": (
        lambda x, s: torch.ops.aten.fractional_max_pool2d(x, [2, 3], [3, 2], s),
        (torch.randn(2, 3, 7, 8), torch.rand(2, 3, 2)),
    ),
    "convolutions of integers": (
        lambda x, w, b: (
            F.conv2d(x, w, b, stride=2, padding=1),
            F.conv2d(x[0], w),
            F.conv_transpose2d(x, w.transpose(0, 1), stride=2, padding=1, output_padding=1),
        ),
        (torch.randint(-9, 9, (2, 4, 6, 5)), torch.randint(-9, 9, (6, 4, 3, 2)), torch.randint(-9, 9, (6,))),
    ),
    "means of integers": (
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 2, ceil_mode=True),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 2, divisor_override=3),
        ),
        (torch.randint(-90, 90, (2, 3, 5, 7)),),
    ),
    "complex numbers": (
        lambda x: (F.silu(x), torch.fft.fft2(x, s=(4, 8)), x.mT[None].conj().resolve_conj()),
        (torch.randn(3, 5, dtype=torch.complex64),),
    ),
    "half a complex number": (lambda x: x.chalf(), (torch.randn(3),)),
    "shares of classes": (
        lambda x, y, w: (
            F.cross_entropy(x, y, w),
            F.cross_entropy(x, y, label_smoothing=0.1, reduction="none"),
            F.cross_entropy(x, torch.tensor([0, -100, 2]), w, label_smoothing=0.2),
            F.cross_entropy(x[0], torch.tensor(1)),
        ),
        (torch.randn(3, 4), torch.rand(3, 4), torch.rand(4)),
    ),
    "nan among the largest": (
        lambda x: (
            *x.max(1),
            *x.min(0),
            x.argmax(1),
            x.argmin(),
            x.max(),
            x.min(),
            x.topk(2).values,
            x.sort(1, True).values,
        ),
        (ODD,),
    ),
    "an ellipsis": (
        lambda x, y: (torch.einsum("...ik, ...j -> ij", x, y), torch.einsum("...ik,...kj->...ij", x, x[0].mT)),
        (torch.randn(2, 3, 4), torch.randn(3)),
    ),
    "distances": (lambda x: (F.pdist(x), F.pdist(x, 1.0), torch.isclose(x > 0, x > 1)), (torch.randn(4, 3),)),
    "numbers at distances": (
        lambda x: (torch.arange(0.1, 1.1) + x, torch.arange(0.0, -8.000001, -4.0, dtype=torch.int64)),
        (torch.ones(1),),
    ),
    "volumes": (
        lambda x, y: F.grid_sample(x, y, align_corners=True),
        (torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 2, 3) * 2 - 1),
    ),
    "copies of rows": (
        lambda x, y: (torch.ops.aten.copy(x, y), x.clone().copy_(y), x.clone().fill_(y[0])),
        (torch.randn(3, 4), torch.randn(4, dtype=torch.float64)),
    ),
    "convolutions": (
        lambda x, w: (
            F.conv2d(x, w),
            F.conv2d(x[0], w, stride=2, padding=1),
            F.conv1d(x[:, :, 0], w[0], padding="same"),
        ),
        (torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 3)),
    ),
    "norms": (
        lambda x: tuple(L.vector_norm(x, order, 0, keepdim=True) for order in (0, 1, 2, 3.5, -1, float("inf"))),
        (torch.randn(4, 3),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_family(name: str) -> None:
    torch.manual_seed(0)
    function, args = CASES[name]
    compared(function, args, tolerance=1e-3)


def test_batch_statistics_are_carried() -> None:
    model = torch.nn.BatchNorm1d(3, momentum=0.3).train()
    program = compared(model, (torch.randn(4, 3),))
    x = torch.randn(4, 3)
    program(x)
    model(x)
    torch.testing.assert_close(program.state()["running_var"], model.running_var)


@torch.library.custom_op("tintype_onnx_tests::add_into", mutates_args=("x",))
def add_into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return y * 2


@add_into.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(y)


def test_translations_of_operators_that_write() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> Any:
        x = x.clone()
        return torch.ops.tintype_onnx_tests.add_into(x, y), x

    target = torch.ops.tintype_onnx_tests.add_into.default
    args = (torch.randn(3), torch.randn(3))
    with pytest.raises(tintype.onnx.OnnxExportError, match="writes to its arguments"):
        tintype.onnx.export(model, args)
    with pytest.raises(tintype.onnx.OnnxExportError, match="must return 2 values"):
        tintype.onnx.export(model, args, translations={target: lambda op, x, y: op.Mul(y, 2.0)})
    compared(model, args, translations={target: lambda op, x, y: (op.Mul(y, 2.0), op.Add(x, y))})


Pair = namedtuple("Other", "first second")  # so nobody can find it by its name


def test_containers_without_a_name_for_files_are_returned() -> None:
    program = compared(lambda x: Pair(x + 1, x * 2), (torch.randn(3),))
    assert "a file will not say" in str(program.report)


def test_a_program_that_computes_nothing() -> None:
    assert tintype.onnx.export(lambda x: {"size": 3, "none": None}, (torch.ones(2),))(torch.ones(2)) == {
        "size": 3,
        "none": None,
    }
