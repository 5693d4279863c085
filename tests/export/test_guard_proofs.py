"""What a program checks implies what its capture relied on: proved by z3. For models: tests/sweep/model_shapes.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import tintype
from tests.export.guard_proofs import prove_guards
from tintype import Dim


def halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, -1)[0] + y[: x.shape[0] // 2]


def flattened(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1) + y


def windows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.unfold(0, 3, 2) * (2 if y.shape[0] > 3 else 3)


X, Y = torch.randn(8), torch.randn(6)
PROGRAMS: list[tuple[Any, Any, Any]] = [
    (halves, (X, Y), "auto"),
    (halves, (X, Y), {"x": {0: 2 * Dim("half", min=2, max=6)}, "y": {0: Dim("length", min=6)}}),
    (flattened, (torch.randn(2, 3), Y), "auto"),
    (windows, (X, Y), "auto"),
    (windows, (X, Y), {"x": {0: Dim.AUTO}, "y": {0: Dim("length", min=4)}}),
    (lambda x, n: x[:n] + torch.arange(n), (X, 3), "auto"),
    (lambda x, y: x.view(-1, 4) + y.shape[0], (X, Y), "auto"),
]


@pytest.mark.parametrize("index", range(len(PROGRAMS)))
@pytest.mark.parametrize("decompose", [False, True])
def test_checks_imply_guards(index: int, decompose: bool) -> None:
    function, args, shapes = PROGRAMS[index]
    program = tintype.export(function, args, dynamic_shapes=shapes)
    proofs = prove_guards(program.run_decompositions() if decompose else program)
    assert proofs.proved
    assert proofs.refuted == []
    assert proofs.undecided == []


def test_a_missing_assertion_is_found() -> None:
    function, args, shapes = PROGRAMS[5]
    program = copy.deepcopy(tintype.export(function, args, dynamic_shapes=shapes))
    assert prove_guards(program).refuted == []
    asserted = [node for node in program.graph.nodes if node.target is torch.ops.aten._assert_scalar.default]
    assert asserted
    for node in asserted:
        program.graph.erase_node(node)
    assert prove_guards(program).refuted == ["s1 <= s0"]
