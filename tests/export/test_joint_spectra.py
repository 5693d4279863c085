"""Short-time transforms and counts in joint graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype


class Filter(nn.Module):
    """A spectrum that is weighted and turned back into a signal."""

    def __init__(self, length_is_kept: bool = True, **options: Any) -> None:
        super().__init__()
        self.options = {"n_fft": 16, "hop_length": 4, "win_length": 16, **options}
        self.length_is_kept = length_is_kept
        self.weights = nn.Parameter(torch.rand(9, 1))
        self.register_buffer("window", torch.hann_window(self.options["win_length"]))

    def forward(self, signal: Any) -> Any:
        spectrum = torch.stft(signal, window=self.window, return_complex=True, **self.options)
        length = signal.shape[-1] if self.length_is_kept else None
        found = torch.istft(spectrum * self.weights, window=self.window, length=length, **self.options)
        return (found * torch.linspace(0, 1, found.shape[-1])).square().sum()


@pytest.mark.parametrize(
    "options", [{}, {"length_is_kept": False}, {"win_length": 12}, {"normalized": True}, {"hop_length": 5}], ids=str
)
def test_short_time_transforms_of_any_length(options: Any) -> None:
    model = Filter(**options)
    sizes = {"signal": {0: tintype.Dim("batch"), 1: tintype.Dim("samples", min=16)}}
    joint = tintype.export_joint(model, (torch.randn(2, 40),), dynamic_shapes=sizes).module()
    compiled = tintype.aot.module(model)
    for batch, samples in ((2, 40), (1, 41), (3, 67)):
        signal = torch.randn(batch, samples)
        expected = model(signal)
        (gradient,) = torch.autograd.grad(expected, [model.weights])
        loss, gradients, _ = joint(signal)
        assert torch.allclose(loss, expected, rtol=1e-4) and torch.allclose(gradients["weights"], gradient, rtol=1e-3)
        assert torch.allclose(torch.autograd.grad(compiled(signal), [model.weights])[0], gradient, rtol=1e-3)


def test_windows_that_leave_a_gap_are_refused_as_in_eager_mode() -> None:
    def gaps(spectrum: Any, window: Any) -> Any:
        return torch.istft(spectrum, 8, 4, window=window, center=False).sum()

    spectrum, window = torch.randn(1, 5, 6, dtype=torch.complex64, requires_grad=True), torch.ones(8)
    program = tintype.aot.function(gaps)
    assert torch.allclose(program(spectrum, window), gaps(spectrum, window), atol=1e-5)
    for function in (gaps, program):
        with pytest.raises(RuntimeError, match="window overlap add min"):
            function(spectrum, torch.zeros(8))


def test_a_count_is_as_long_as_it_was_asked_to_be() -> None:
    def spread(places: Any, rows: Any) -> Any:
        counts = torch.bincount(places, minlength=rows.shape[0]).clamp(min=1)
        return nn.functional.dropout(rows / counts.unsqueeze(-1), 0.5, training=True).sum()

    for count in (1, 3):
        rows = torch.randn(count, 2, requires_grad=True)
        torch.manual_seed(0)
        expected = spread(torch.zeros(4, dtype=torch.long), rows)
        torch.manual_seed(0)
        assert torch.allclose(tintype.aot.function(spread)(torch.zeros(4, dtype=torch.long), rows), expected)
