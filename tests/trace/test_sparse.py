"""Sparse tensors as inputs, results, state and in between, in every form of a program, against eager mode."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import tintype

warnings.filterwarnings("ignore", message="Sparse .* tensor support is in beta state")
pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")


def matrix(rows: int, columns: int, seed: int = 0, density: float = 0.4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    return values * (torch.rand(rows, columns, generator=generator) < density)


def repeated(
    rows: int = 4, columns: int = 5, count: int = 9, seed: int = 0, width: int | None = None
) -> torch.Tensor:
    """A tensor in which places come several times, in no order."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.stack(
        [
            torch.randint(0, rows, (count,), generator=generator),
            torch.randint(0, columns, (count,), generator=generator),
        ]
    )
    shape = (count,) if width is None else (count, width)
    size = (rows, columns) if width is None else (rows, columns, width)
    return torch.sparse_coo_tensor(indices, torch.randn(shape, generator=generator), size)


def coo(seed: int = 0, density: float = 0.4) -> torch.Tensor:
    return matrix(4, 5, seed, density).to_sparse()


def csr(seed: int = 0, density: float = 0.4) -> torch.Tensor:
    return matrix(4, 5, seed, density).to_sparse_csr()


def csc(seed: int = 0, density: float = 0.4) -> torch.Tensor:
    return matrix(4, 5, seed, density).to_sparse_csc()


def bsr(seed: int = 0, density: float = 0.4) -> torch.Tensor:
    return matrix(4, 6, seed, density).to_sparse_bsr((2, 3))


def bsc(seed: int = 0, density: float = 0.4) -> torch.Tensor:
    return matrix(4, 6, seed, density).to_sparse_bsc((2, 3))


def dense(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed + 100))


class Weights(nn.Module):
    """A sparse parameter and a sparse buffer."""

    def __init__(self, layout: torch.layout) -> None:
        super().__init__()
        self.weight = nn.Parameter(matrix(4, 5).to_sparse(layout=layout))
        self.register_buffer("mask", matrix(4, 5, 7).to_sparse())
        self.bias = nn.Parameter(dense(4))
        self.table = matrix(4, 4, 3).to_sparse_csr()  # no state

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.sparse.mm(self.weight, x.t()).t() + self.bias
        return y @ self.mask.to_dense() + 1, self.table @ y.t()


class Scaling(nn.Module):
    """Writes to the values of its state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", coo())

    def forward(self, x: torch.Tensor) -> Any:
        self.weight.values().mul_(2)
        return self.weight @ x


def linear(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, weight, torch.ones(4))


# what to capture, and inputs by a seed
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "to_dense": (lambda s: s.to_dense(), lambda n: (coo(n),)),
    "to_dense of repeated places": (lambda s: s.to_dense() * 2, lambda n: (repeated(seed=n),)),
    "to_dense of rows": (lambda s: s.to_dense(), lambda n: (repeated(seed=n, width=3),)),
    "to_dense of csr": (lambda s: s.to_dense(), lambda n: (csr(n),)),
    "to_dense of csc": (lambda s: s.to_dense(), lambda n: (csc(n),)),
    "to_dense of bsr": (lambda s: s.to_dense(), lambda n: (bsr(n),)),
    "to_dense of bsc": (lambda s: s.to_dense(), lambda n: (bsc(n),)),
    "to_sparse": (lambda x: x.to_sparse(), lambda n: (matrix(4, 5, n),)),
    "to_sparse of rows": (lambda x: x.to_sparse(1), lambda n: (matrix(4, 5, n),)),
    "to_sparse_csr": (lambda x: x.to_sparse_csr(), lambda n: (matrix(4, 5, n),)),
    "to_sparse_csc": (lambda x: x.to_sparse_csc(), lambda n: (matrix(4, 5, n),)),
    "to_sparse_bsr": (lambda x: x.to_sparse_bsr((2, 3)), lambda n: (matrix(4, 6, n),)),
    "to_sparse_bsc": (lambda x: x.to_sparse_bsc((2, 3)), lambda n: (matrix(4, 6, n),)),
    "csr to coo": (lambda s: s.to_sparse(), lambda n: (csr(n),)),
    "coo to csr": (lambda s: s.to_sparse_csr(), lambda n: (coo(n),)),
    "coo to csc": (lambda s: s.to_sparse_csc(), lambda n: (coo(n),)),
    "csr to csc": (lambda s: s.to_sparse(layout=torch.sparse_csc), lambda n: (csr(n),)),
    "csr to bsr": (lambda s: s.to_sparse_bsr((2, 5)), lambda n: (csr(n),)),
    "parts": (lambda s: (s.indices(), s.values(), s._nnz(), s.shape, s.sparse_dim()), lambda n: (coo(n),)),
    "parts of csr": (lambda s: (s.crow_indices() * 2, s.col_indices(), s.values().sum()), lambda n: (csr(n),)),
    "layout": (lambda s: s.to_dense() if s.layout is torch.sparse_coo and s.is_sparse else s, lambda n: (coo(n),)),
    "made": (
        lambda i, v: torch.sparse_coo_tensor(i, v, (4, 5)) @ torch.ones(5, 2),
        lambda n: (repeated(seed=n)._indices(), repeated(seed=n)._values()),
    ),
    "made of any size": (
        lambda i, v: torch.sparse_coo_tensor(i, v).to_dense(),
        lambda n: (repeated(seed=n)._indices(), repeated(seed=n)._values()),
    ),
    "made csr": (
        lambda i, j, v: torch.sparse_csr_tensor(i, j, v, (4, 5)) @ torch.ones(5, 2),
        lambda n: (csr().crow_indices(), csr().col_indices(), csr().values() + n),
    ),
    "made empty": (lambda x: torch.sparse_coo_tensor((4, 5)) @ x, lambda n: (dense(5, 2, seed=n),)),
    "coalesce": (lambda s: s.coalesce(), lambda n: (repeated(seed=n),)),
    "coalesce rows": (lambda s: s.coalesce().values(), lambda n: (repeated(seed=n, width=2),)),
    "matmul": (lambda s, x: s @ x, lambda n: (coo(n), dense(5, 3, seed=n))),
    "matmul of repeated places": (lambda s, x: torch.mm(s, x), lambda n: (repeated(seed=n), dense(5, 3, seed=n))),
    "matmul of csr": (lambda s, x: s @ x, lambda n: (csr(n), dense(5, 3, seed=n))),
    "matmul of csc": (lambda s, x: s @ x, lambda n: (csc(n), dense(5, 3, seed=n))),
    "matmul of bsr": (lambda s, x: s @ x, lambda n: (matrix(4, 6, n).to_sparse_bsr((2, 2)), dense(6, 3, seed=n))),
    "matmul from the left": (lambda s, x: x @ s, lambda n: (csr(n), dense(3, 4, seed=n))),
    "matmul of both": (lambda s, t: torch.sparse.mm(s, t.t()), lambda n: (coo(n), coo(n + 1))),
    "matmul of csr both": (lambda s, t: s @ t, lambda n: (csr(n), matrix(5, 3, n + 1).to_sparse_csr())),
    "matrix and vector": (lambda s, x: (s @ x, torch.mv(s, x)), lambda n: (coo(n), dense(5, seed=n))),
    "vector and csr": (lambda s, x: s @ x, lambda n: (csr(n), dense(5, seed=n))),
    "sparse.mm": (lambda s, x: torch.sparse.mm(s, x), lambda n: (coo(n), dense(5, 3, seed=n))),
    "addmm": (
        lambda b, s, x: torch.addmm(b, s, x, beta=0.5, alpha=2),
        lambda n: (dense(4, 3, seed=n), coo(n), dense(5, 3, seed=n)),
    ),
    "sparse.addmm": (
        lambda b, s, x: torch.sparse.addmm(b, s, x, beta=0),
        lambda n: (dense(4, 3, seed=n), coo(n), dense(5, 3, seed=n)),
    ),
    "addmm of csr": (torch.addmm, lambda n: (dense(4, 3, seed=n), csr(n), dense(5, 3, seed=n))),
    "bmm": (
        lambda s, x: torch.bmm(s, x),
        lambda n: (torch.stack([matrix(3, 4, n), matrix(3, 4, n + 1)]).to_sparse(), dense(2, 4, 3, seed=n)),
    ),
    "linear": (linear, lambda n: (csr(n), dense(3, 5, seed=n))),
    "sampled_addmm": (
        lambda s, x, y: torch.sparse.sampled_addmm(s, x, y, beta=0.5, alpha=2),
        lambda n: (csr(n), dense(4, 3, seed=n), dense(3, 5, seed=n)),
    ),
    "mm with means": (lambda s, x: torch.sparse.mm(s, x, "mean"), lambda n: (csr(n), dense(5, 3, seed=n))),
    "mm with maxima": (lambda s, x: torch.sparse.mm(s, x, "amax"), lambda n: (csr(n), dense(5, 3, seed=n))),
    "transpose": (lambda s: (s.t(), s.transpose(0, 1) @ torch.ones(4, 2)), lambda n: (coo(n),)),
    "transpose of csr": (lambda s: (s.t(), s.transpose(0, 1).to_dense()), lambda n: (csr(n),)),
    "permute": (lambda s: s.permute(1, 0, 2), lambda n: (repeated(seed=n, width=2),)),
    "unsqueeze": (lambda s: (s.unsqueeze(0), s.unsqueeze(-1)), lambda n: (coo(n),)),
    "select": (lambda s: (s[1], s[:, 2] if False else s.select(1, 2)), lambda n: (coo(n),)),
    "index_select": (lambda s: s.index_select(0, torch.tensor([2, 0, 2])), lambda n: (coo(n),)),
    "narrow": (lambda s: s.narrow_copy(1, 1, 3), lambda n: (coo(n),)),
    "cat": (lambda s, t: (torch.cat([s, t]), torch.cat([s, t], 1)), lambda n: (coo(n), coo(n + 1))),
    "cat of rows": (lambda s: torch.cat([s, s * 2], 2), lambda n: (repeated(seed=n, width=2),)),
    "unary": (lambda s: (s.sin(), -s, s.abs().sqrt(), torch.relu(s), s.tanh()), lambda n: (repeated(seed=n),)),
    "unary of csr": (lambda s: (s.sin(), -s, torch.relu(s).sqrt()), lambda n: (csr(n),)),
    "scaled": (lambda s: (s * 2, s / 3, 2 * s, s * torch.tensor(4.0)), lambda n: (coo(n),)),
    "scaled csr": (lambda s: s * 2, lambda n: (csr(n),)),
    "times dense": (lambda s, x: s * x, lambda n: (coo(n), dense(4, 5, seed=n))),
    "times sparse": (lambda s, t: s * t, lambda n: (coo(n), coo(n + 1, 0.6))),
    "plus sparse": (lambda s, t: (s + t, s - t * 2), lambda n: (coo(n), coo(n + 1))),
    "plus repeated": (lambda s, t: torch.add(s, t, alpha=3), lambda n: (repeated(seed=n), coo(n))),
    "plus csr": (lambda s, t: s + t, lambda n: (csr(n), csr(n + 1))),
    "dense plus sparse": (
        lambda s, x: (x + s, torch.add(x, s, alpha=2)),
        lambda n: (repeated(seed=n), dense(4, 5, seed=n)),
    ),
    "dense plus csr": (lambda s, x: x + s, lambda n: (csr(n), dense(4, 5, seed=n))),
    "sum": (lambda s: (s.sum(), torch.sparse.sum(s)), lambda n: (coo(n),)),
    "sums of rows": (lambda s: torch.sparse.sum(s, 1), lambda n: (coo(n),)),
    "sums of columns": (lambda s: torch.sparse.sum(s, [0]), lambda n: (repeated(seed=n, width=3),)),
    "sums of all places": (lambda s: torch.sparse.sum(s, [0, 1]), lambda n: (repeated(seed=n, width=3),)),
    "norm": (lambda s: s.norm(), lambda n: (repeated(seed=n),)),
    "softmax": (lambda s: torch.sparse.softmax(s, 1), lambda n: (coo(n),)),
    "log_softmax": (lambda s: torch.sparse.log_softmax(s, 0), lambda n: (repeated(seed=n),)),
    "softmax of rows": (lambda s: torch.sparse.softmax(s, 2), lambda n: (repeated(seed=n, width=3),)),
    "sparse_mask": (lambda s, x: x.sparse_mask(s), lambda n: (coo(n), dense(4, 5, seed=n))),
    "dtype": (lambda s: (s.double(), s.to(torch.float16)), lambda n: (coo(n),)),
    "clone": (lambda s: (s.clone(), s.detach() * 2), lambda n: (csr(n),)),
    "written values": (lambda s: (s.values().mul_(2), s.to_dense())[1], lambda n: (coo(n),)),
    "written": (lambda s: s.mul_(2).to_dense() if False else s.neg_().to_dense(), lambda n: (coo(n),)),
    "in containers": (lambda d: {"a": d["a"][0] * 2, "b": [d["b"]]}, lambda n: ({"a": (coo(n),), "b": csr(n)},)),
    "coo weights": (lambda: Weights(torch.sparse_coo), lambda n: (dense(3, 5, seed=n),)),
    "csr weights": (lambda: Weights(torch.sparse_csr), lambda n: (dense(3, 5, seed=n),)),
    "written weights": (Scaling, lambda n: (dense(5, 3, seed=n),)),
    "diagonals": (
        lambda d, o: torch.sparse.spdiags(d, o, (4, 5)),
        lambda n: (dense(3, 6, seed=n), torch.tensor([n, -2, n - 1])),
    ),
    "diagonals as csr": (
        lambda d: torch.sparse.spdiags(d, torch.tensor([-1, 1]), (4, 5), torch.sparse_csr),
        lambda n: (dense(2, 4, seed=n),),
    ),
    "in between": (lambda x: torch.sparse.mm(x.relu().to_sparse(), x.t()).sum(0), lambda n: (dense(4, 5, seed=n),)),
}


def model_of(name: str) -> Any:
    made = PROGRAMS[name][0]
    return made() if name.endswith("weights") else made


def plain(value: Any) -> Any:
    """What a result consists of: all of it that the user can see."""
    if not isinstance(value, torch.Tensor) or value.layout is torch.strided:
        return value
    if value.layout is torch.sparse_coo:
        # the order of places is that of eager mode where it is known to be the one there is
        if value._nnz() > 1 and value.is_coalesced():
            return {str(value.layout): (value.shape, value.indices(), value.values())}
        return {"any order": (value.shape, value.to_dense())}
    by_rows = value.layout in (torch.sparse_csr, torch.sparse_bsr)
    lines, places = (
        (value.crow_indices(), value.col_indices()) if by_rows else (value.ccol_indices(), value.row_indices())
    )
    # MKL's products have the places of a row in any order
    return {str(value.layout): (value.shape, lines.long(), places.sort().values.long(), value.to_dense())}


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
def test_programs_of_sparse_tensors(name: str, tmp_path: Any) -> None:
    inputs = PROGRAMS[name][1]
    model = model_of(name)
    program = tintype.export(model, inputs(0))
    program.validate()
    for form, make in FORMS.items():
        run = make(program, tmp_path)
        for seed in range(3):
            args, copies = inputs(seed), inputs(seed)
            eager = model_of(name)
            try:
                if seed and isinstance(model, nn.Module):  # which may have written to its state
                    run = make(program, tmp_path)
                got, wanted = run(*args), eager(*copies)
                assert_same(got, wanted)
                assert_same(args, copies)  # what was written to them
            except AssertionError as error:
                raise AssertionError(f"{form}, seed {seed}") from error


# --- sizes and numbers of values that vary ---------------------------------------------------------------------

LAYOUTS: dict[str, Any] = {
    "coo": lambda rows, columns: matrix(rows, columns, rows).to_sparse(),
    "csr": lambda rows, columns: matrix(rows, columns, rows).to_sparse_csr(),
    "csc": lambda rows, columns: matrix(rows, columns, rows).to_sparse_csc(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shapes", ["auto", ({0: tintype.Dim("rows")}, None)], ids=["auto", "rows"])
def test_sizes_that_vary(layout: str, shapes: Any, tmp_path: Any) -> None:
    make = LAYOUTS[layout]

    def function(tensor: torch.Tensor, x: torch.Tensor) -> Any:
        return tensor @ x, tensor * 2, tensor.shape[0] + x.shape[1]

    program = tintype.export(function, (make(4, 5), dense(5, 3)), dynamic_shapes=shapes)
    for run in (program.module(), saved(program, tmp_path), program.run_decompositions().module()):
        for rows in (4, 1, 0, 7):
            columns = 2 if shapes == "auto" else 5
            args = (make(rows, columns), dense(columns, 3))
            assert_same(run(*args), function(*args))
    if shapes != "auto":
        with pytest.raises(tintype.InputMismatchError, match=r"to be equal to (5, but got 6|6, but got 7)"):
            program.module()(make(4, 6), dense(5, 3))


def test_dense_sizes_that_vary_become_sparse() -> None:
    program = tintype.export(
        lambda x: (x.to_sparse(), x.to_sparse_csr() @ x.t()), (matrix(4, 5),), dynamic_shapes="auto"
    )
    for rows, columns in ((4, 5), (1, 1), (0, 3), (7, 2)):
        x = matrix(rows, columns)
        assert_same(program.module()(x), (x.to_sparse(), x.to_sparse_csr() @ x.t()))


@pytest.mark.parametrize("density", [0.0, 1.0])
@pytest.mark.parametrize("name", ["to_dense", "matmul", "matmul of csr", "coalesce", "plus sparse", "times sparse"])
def test_tensors_without_values_and_full_ones(name: str, density: float) -> None:
    function, inputs = PROGRAMS[name]
    module = tintype.export(function, inputs(0)).module()
    args = [
        matrix(4, 5, 1, density).to_sparse(layout=arg.layout) if arg.layout is not torch.strided else arg
        for arg in inputs(0)
    ]
    if name == "coalesce":
        args = [torch.sparse_coo_tensor(args[0].indices(), args[0].values(), (4, 5), is_coalesced=False)]
    assert_same(module(*args), function(*args))


# --- gradients -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [coo, repeated, csr])
def test_gradients_of_sparse_inputs_and_what_they_meet(make: Any) -> None:
    def function(tensor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(tensor * 2, x).sin().sum()

    module = tintype.export(function, (make(), dense(5, 3))).module()
    found = []
    for run in (module, function):
        args = (make(seed=1).requires_grad_(), dense(5, 3).requires_grad_())
        run(*args).backward()
        found.append((args[0].grad.to_dense(), args[1].grad))
    # a gradient has the places of the tensor, in eager mode as well where the product is torch.sparse's
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_gradients_of_sparse_weights(layout: torch.layout) -> None:
    class Loss(Weights):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum(part.sin().sum() for part in super().forward(x))

    model, x = Loss(layout), dense(3, 5)
    model(x).backward()
    wanted = {"weight": model.weight.grad.to_dense(), "bias": model.bias.grad.clone()}
    model.zero_grad()
    module = tintype.export_for_training(model, (x,)).module()
    module(x).backward()
    parts = dict(module.named_parameters())
    loss, gradients, _ = tintype.export_joint(model, (x,)).module()(x)
    torch.testing.assert_close(loss, model(x))
    for values, bias in (
        (parts["weight.values"].grad, parts["bias"].grad),
        (gradients["weight.values"], gradients["bias"]),
    ):
        torch.testing.assert_close(bias, wanted["bias"])
        weight = model.weight.detach()
        rows, columns = (weight if layout is torch.sparse_coo else weight.to_sparse()).coalesce().indices()
        torch.testing.assert_close(values, wanted["weight"][rows, columns])


# --- state -----------------------------------------------------------------------------------------------------


def test_sparse_state_is_what_it_consists_of() -> None:
    model = Weights(torch.sparse_csr)
    program = tintype.export(model, (dense(3, 5),))
    assert list(program.state_dict) == [
        *("weight.crow_indices", "weight.col_indices", "weight.values", "bias", "mask.indices", "mask.values"),
    ]
    assert program.state_dict["weight.values"].data_ptr() == model.weight.detach().values().data_ptr()
    assert program.state_dict["weight.values"].requires_grad
    other = Weights(torch.sparse_csr)
    with torch.no_grad():
        other.weight.values().add_(1)
    x = dense(3, 5)
    assert_same(program.with_state(other.state_dict()).module()(x), other(x))


def test_the_model_and_its_inputs_stay_as_they_were() -> None:
    model, x = Scaling(), dense(5, 3)
    before = plain(model.weight.clone())
    module = tintype.export(model, (x,)).module()
    torch.testing.assert_close(plain(model.weight), before)
    for _ in range(2):
        assert_same(module(x), model(x))


# --- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            lambda: torch.ones(4, 5),
            "a tensor of layout torch.sparse_coo, coalesced, but got a tensor or another single",
        ),
        (csr, "torch.sparse_coo, coalesced, but got a tensor of layout torch.sparse_csr"),
        (repeated, "torch.sparse_coo, coalesced, but got a tensor of layout torch.sparse_coo$"),
    ],
)
def test_calls_with_another_layout_are_refused(given: Any, text: str) -> None:
    module = tintype.export(lambda tensor: tensor.to_dense(), (coo(),)).module()
    with pytest.raises(tintype.InputStructureError, match=f"(?m){text}"):
        module(given())
    with pytest.raises(
        tintype.InputMismatchError, match=r"values\.dtype to be torch\.float32, but got torch\.float64"
    ):
        module(coo().double())


@pytest.mark.parametrize(
    ("function", "make", "name"),
    [
        (lambda tensor: tensor.cos(), coo, "aten.cos.default of a tensor with layout torch.sparse_coo"),
        (lambda tensor: tensor[1:3], coo, "aten.slice.Tensor of a tensor with layout torch.sparse_coo"),
        (lambda tensor: tensor.add_(tensor), coo, "aten.add_.Tensor of a tensor"),
        (lambda tensor: tensor * tensor, bsr, "aten.mul.Tensor of a tensor with layout torch.sparse_bsr"),
    ],
)
def test_operators_that_are_not_known_are_refused(function: Any, make: Any, name: str) -> None:
    with pytest.raises(tintype.UnsupportedOperatorError, match=name) as caught:
        tintype.export(function, (make(),))
    assert "to_dense()" in str(caught.value)


def test_aot_refuses_sparse_arguments() -> None:
    with pytest.raises(tintype.UnsupportedInputError, match="sparse"):
        tintype.aot.function(lambda tensor: tensor.to_dense() * 2)(coo())


def blocks() -> torch.Tensor:
    return matrix(4, 6).to_sparse_bsr((2, 2))  # MKL multiplies square ones alone


@pytest.mark.parametrize("make", [coo, csr, csc, blocks])
def test_products_lie_in_memory_as_in_eager_mode(make: Any) -> None:
    """So what may be a view of them is one."""
    weight = make()
    wide = weight.shape[1]
    programs: list[tuple[Any, tuple[torch.Tensor, ...]]] = [
        (lambda x: x @ weight.t(), (dense(3, wide),)),
        (lambda x: nn.functional.linear(x, weight), (dense(3, wide),)),
        (lambda x: weight @ x.t(), (dense(3, wide),)),
        (lambda b, x: torch.addmm(b.t(), weight, x), (dense(3, 4), dense(wide, 3))),
    ]
    if weight.layout is not torch.sparse_bsr:  # eager mode has no kernel for blocks from the right
        programs.append((lambda x: x @ weight, (dense(3, 4),)))
    for function, args in programs:
        got = tintype.export(function, args).module()(*args)
        assert got.stride() == function(*args).stride()


def test_diagonals_that_are_there_twice_are_refused() -> None:
    module = tintype.export(
        lambda d, o: torch.sparse.spdiags(d, o, (3, 3)).to_dense(), (dense(2, 3), torch.tensor([0, 1]))
    ).module()
    with pytest.raises(tintype.RuntimeAssertionError, match="duplicate"):
        module(dense(2, 3), torch.tensor([1, 1]))


# --- other captures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["to_dense", "matmul", "matmul of csr", "sum", "in between", "coo weights"])
def test_every_way_to_capture(name: str) -> None:
    inputs = PROGRAMS[name][1]
    model = model_of(name)
    program = tintype.export(model, inputs(0))
    captured = {
        "strict": tintype.export(model, inputs(0), strict=True),
        "training": tintype.export_for_training(model, inputs(0)),
        "again": tintype.export(program.module(), inputs(1)),
    }
    for each in captured.values():
        assert_same(each.module()(*inputs(2)), model(*inputs(2)))


@pytest.mark.parametrize("name", ["to_dense", "matmul", "matmul of csr", "sum"])
def test_torch_export_computes_the_same(name: str) -> None:
    function, inputs = PROGRAMS[name]

    class Model(nn.Module):
        def forward(self, *args: Any) -> Any:
            return function(*args)

    theirs = torch.export.export(Model(), inputs(0)).module()(*inputs(0))
    assert_same(tintype.export(Model(), inputs(0)).module()(*inputs(0)), theirs)


def test_torchs_program_would_not_know_its_parts() -> None:
    program = tintype.export(lambda tensor, x: tensor @ x, (coo(), dense(5, 3)))
    with pytest.raises(tintype.InvalidRequestError, match="tensors that consist of others"):
        tintype.interop.to_torch(program)
