"""Functions that want a number of elements as a plain integer, for sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "hann": lambda x: torch.hann_window(x.shape[0]),
    "hann, symmetric": lambda x: torch.hann_window(x.shape[0], False, dtype=torch.float64),
    "hamming": lambda x: torch.hamming_window(x.shape[0]),
    "hamming with numbers": lambda x: torch.hamming_window(x.shape[0], True, 0.6, 0.3),
    "blackman": lambda x: torch.blackman_window(x.shape[0]),
    "bartlett": lambda x: torch.bartlett_window(x.shape[0], periodic=False),
    "kaiser": lambda x: torch.kaiser_window(x.shape[0]),
    "kaiser with a number": lambda x: torch.kaiser_window(x.shape[0], False, beta=5.0),
    "linspace": lambda x: torch.linspace(-1, 2, x.shape[0]),
    "logspace": lambda x: torch.logspace(0, 1, x.shape[0]),
    "logspace of 2": lambda x: torch.logspace(0, 1, x.shape[0], base=2),
    "vander": lambda x: torch.vander(x[:, 0]),
    "vander, increasing": lambda x: torch.vander(x[:, 0], x.shape[0], increasing=True),
    "vander of integers": lambda x: torch.vander((x[:, 0] * 3).int()),
    "combinations": lambda x: torch.combinations(x[:, 0]),
    "combinations with themselves": lambda x: torch.combinations(x[:, 0], with_replacement=True),
    "tril_indices": lambda x: torch.tril_indices(x.shape[0], x.shape[0]),
    "triu_indices": lambda x: torch.triu_indices(x.shape[0], 4, 1, dtype=torch.int32),
    "affine_grid": lambda x: F.affine_grid(torch.eye(2, 3)[None], [1, 1, x.shape[0] + 1, 4], align_corners=False),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_for_every_size(name: str) -> None:
    function = FUNCTIONS[name]
    program = tintype.export(function, (torch.randn(4, 4),), dynamic_shapes=({0: tintype.Dim("n", min=1)},))
    for form in (program, program.run_decompositions()):
        form.validate()
        module = form.module()
        for size in (1, 2, 3, 9):
            x = torch.randn(size, 4)
            torch.testing.assert_close(module(x), function(x), rtol=1e-5, atol=1e-6)


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "histogram": lambda x: torch.histogram(x, 5),
    "histogramdd": lambda x: torch.histogramdd(x[:, :2], [3, 4]),
    "histogram between edges": lambda x: torch.histogram(x, torch.linspace(-1, 1, 4)).hist,
    "geqrf": lambda x: torch.geqrf(x),
    "lstsq": lambda x: torch.linalg.lstsq(x, x[:, :1])[:1],
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_that_torch_has_no_fake_kernels_for(name: str) -> None:
    function = CALLS[name]
    program = tintype.export(function, (torch.randn(4, 4),))
    for form in (program, program.run_decompositions()):
        x = torch.randn(4, 4)
        torch.testing.assert_close(list(form.module()(x)), list(function(x)))
