"""Composite operators for joint graphs, where autograd takes them apart before the recorder gets to see them.

torch's kernels ask sizes that vary for nothing there and go the way that is right in general, also where a size of 0
or 1 is not general. Here they are written so that they hold for those, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch, sym_ite
from tintype.trace.products import PRODUCTS

aten = torch.ops.aten
# by the number that operators have for them
_REDUCTIONS = ("none", "mean", "sum")


def _cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        return NotImplemented
    return _whole_cross_entropy(input, target, weight, _REDUCTIONS.index(reduction), ignore_index, label_smoothing)


def _nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Any:
    if size_average is not None or reduce is not None or reduction not in _REDUCTIONS:
        return NotImplemented
    return _whole_nll_loss(input, target, weight, _REDUCTIONS.index(reduction), ignore_index)


def loss_of_images(operator: Any, scores: Any, target: Any, weight: Any, reduction: int, *options: Any) -> Any:
    """A loss for classes of rows of several dimensions, which torch joins to one by a view that leaves its size
    open: there is none of nothing. Here all of its sizes are said."""
    if (
        scores.dim() in (0, 1, 2, 4)
        or target.dim() != scores.dim() - 1
        or target.is_floating_point()
        or not any(isinstance(size, torch.SymInt) for size in scores.shape)
        or any(one != other for one, other in zip(target.shape[1:], scores.shape[2:], strict=True))
    ):
        return NotImplemented
    images = scores.flatten(2).unsqueeze(2), target.flatten(1).unsqueeze(1)
    found = operator(*images, weight, reduction, *options)
    return found.reshape(target.shape) if reduction == 0 else found


def _whole_cross_entropy(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    if target.is_floating_point():
        return _mean_cross_entropy(scores, target, weight, reduction, ignore_index, label_smoothing)
    operator = aten.cross_entropy_loss.default
    return loss_of_images(operator, scores, target, weight, reduction, ignore_index, label_smoothing)


def _whole_nll_loss(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Any:
    return loss_of_images(aten.nll_loss_nd.default, scores, target, weight, reduction, ignore_index)


def _mean_cross_entropy(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """The mean for probabilities is a sum divided by the number of rows, and no number where there are no classes."""
    dim = min(scores.dim() - 1, 1)
    sizes: Any = scores.shape
    classes = sizes[dim] if sizes else 1
    if reduction != 1 or not target.is_floating_point() or not isinstance(classes, torch.SymInt):
        return NotImplemented
    total = aten.cross_entropy_loss.default(scores, target, weight, 2, ignore_index, label_smoothing)
    rows: Any = 1
    for place, size in enumerate(sizes):
        rows = rows if place == dim else rows * size
    return total / sym_ite(classes == 0, 0, rows)


def _over_all(function: Any) -> Callable[..., Any]:
    """The variance of all elements: that over all dimensions has a gradient which asks for no size."""

    def reduce(input: torch.Tensor, *args: Any, **options: Any) -> Any:
        sizes = input.shape
        flags = [argument for argument in args if type(argument) is bool]
        if flags:
            options["unbiased"] = flags[0]
        is_plain = len(args) == len(flags) <= 1 and "dim" not in options and (options.get("correction") or 0) <= 1
        if not is_plain or not any(isinstance(size, torch.SymInt) for size in sizes):
            return NotImplemented
        return function(input, dim=list(range(len(sizes))), **options)

    return reduce


def _differences(input: torch.Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Where nothing is left in the example, of which torch's kernel would be a part of less than no elements."""
    if not input.dim() or n != 1 or prepend is not None or append is not None:
        return NotImplemented
    length = from_torch(input.shape[dim])
    if not isinstance(length, Expr) or length.environment.hint(length) != 0:
        return NotImplemented
    places = torch.arange(torch.sym_max(input.shape[dim] - 1, 0), device=input.device)
    return input.index_select(dim, places + 1) - input.index_select(dim, places)


def _short_time_transform(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """torch's kernel lays windows over memory by numbers, which fixes all sizes."""
    width = n_fft if win_length is None else win_length
    hop = n_fft // 4 if hop_length is None else hop_length
    varies = any(isinstance(size, torch.SymInt) for size in input.shape)
    is_usual = varies and input.dim() in (1, 2) and bool(return_complex) and not align_to_window
    if not is_usual or input.is_complex() or window is None or window.dim() != 1 or window.shape[0] != width:
        return NotImplemented
    if center:
        batch = input if input.dim() == 2 else input[None]
        batch = torch.nn.functional.pad(batch[None], (n_fft // 2, n_fft // 2), mode=pad_mode)[0]
        input = batch if input.dim() == 2 else batch[0]
    parts = input.unfold(-1, n_fft, hop) * _placed(window, n_fft)
    transform = torch.fft.fft if onesided is False else torch.fft.rfft
    return transform(parts, norm="ortho" if normalized else "backward").transpose(-1, -2)


def _placed(window: torch.Tensor, n_fft: int) -> torch.Tensor:
    """A window in the middle of as many zeros as there are places."""
    missing = n_fft - window.shape[0]
    return torch.nn.functional.pad(window, (missing // 2, missing - missing // 2))


def _inverse_short_time_transform(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    """torch's kernel asks the data whether windows leave a gap; here the program asserts that they don't."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    frames: Any = input.shape[-1]
    if window is None or input.dim() != 3 or window.dim() != 1 or window.shape[0] != width or not 0 < hop <= width:
        return NotImplemented
    window = _placed(window, n_fft)
    norm = "ortho" if normalized else "backward"
    spectra = input.transpose(1, 2)
    if return_complex:
        signals = torch.fft.ifft(spectra, n_fft, norm=norm)
    else:
        signals = torch.fft.irfft(spectra[..., : n_fft // 2 + 1], n_fft, norm=norm)
    whole = n_fft + hop * (frames - 1)
    placed = [
        aten.unfold_backward.default(values, [rows, whole], 1, n_fft, hop)
        for values, rows in (
            (signals * window, input.shape[0]),
            (window.square().expand(1, frames, n_fft), 1),
        )
    ]
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    summed, envelope = (values[:, start:end] for values in placed)
    torch._assert_async(envelope.abs().min() >= 1e-11, "window overlap add min: 0")
    result = summed / envelope
    return torch.nn.functional.pad(result, (0, end - whole)) if end > whole else result


# By the functions of torch that a program calls, and by the operators of one that is captured again.
DIFFERENTIATED: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.cross_entropy: _cross_entropy,
    aten.cross_entropy_loss.default: _whole_cross_entropy,
    torch.nn.functional.nll_loss: _nll_loss,
    aten.nll_loss_nd.default: _whole_nll_loss,
    **dict.fromkeys((torch.diff, torch.Tensor.diff, aten.diff.default), _differences),
    **dict.fromkeys((torch.stft, torch.Tensor.stft), _short_time_transform),
    **dict.fromkeys((torch.istft, torch.Tensor.istft, aten.istft.default), _inverse_short_time_transform),
    **PRODUCTS,
    **{
        function: _over_all(function)
        for function in (torch.var, torch.std, torch.var_mean, torch.std_mean, torch.Tensor.var, torch.Tensor.std)
    },
    **{
        overload: _over_all(general)
        for packet in (aten.var, aten.std, aten.var_mean, aten.std_mean)
        for overload, general in ((packet.correction, packet.correction), (packet.default, packet.dim))
    },
}
