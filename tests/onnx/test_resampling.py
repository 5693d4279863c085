"""``interpolate`` and ``grid_sample`` beside eager mode, at sizes where ONNX Runtime's own rounding would show."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import tintype
from tintype.onnx.errors import OnnxExportError

F = torch.nn.functional
nan, inf = float("nan"), float("inf")
FACTORS = (2.0, 1.5, 0.7, 3.0, 1.1, 2.3, 1.05, 1.2, 0.5, 4.0, 1 / 3)


def same(program: Any, function: Any, *inputs: Any) -> None:
    torch.testing.assert_close(program(*inputs), function(*inputs), rtol=1e-4, atol=1e-4, equal_nan=True)


def compared(function: Any, example: torch.Tensor, *others: torch.Tensor, **options: Any) -> Any:
    """Unverified, so that a wrong lowering would be seen here."""
    program = tintype.onnx.export(function, (example,), verify=False, **options)
    for each in (example, *others):
        same(program, function, each)
    return program


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "bicubic", "area"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_random_sizes(mode: str, dimensions: int) -> None:
    if mode == "bicubic" and dimensions != 2:
        return
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[dimensions] if mode == "linear" else mode
    generator = random.Random(dimensions)
    for _ in range(8):
        sizes = [generator.randint(3, 13) for _ in range(dimensions)]
        options: dict[str, Any] = {"mode": name}
        if generator.random() < 0.5:
            options["size"] = [generator.randint(1, 25) for _ in range(dimensions)]
        else:
            options["scale_factor"] = [generator.choice(FACTORS) for _ in range(dimensions)]
            same_size = all(int(size * factor) == size for size, factor in zip(sizes, options["scale_factor"]))
            if mode == "bicubic" and same_size:
                continue
        if mode in ("linear", "bicubic"):
            options["align_corners"] = generator.random() < 0.3
        compared(lambda x: F.interpolate(x, **options), torch.randn(2, 3, *sizes))  # noqa: B023


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 2.0},
        {"scale_factor": 41.0},
        {"scale_factor": 1.5},
        {"scale_factor": (1.05, 0.7)},
        {"scale_factor": (1.3, 2.3), "mode": "nearest-exact"},
        {"size": (9, 82)},
        {"scale_factor": (1.5, 0.7), "mode": "bilinear"},
        {"scale_factor": (1.05, 1.1), "mode": "bilinear"},
        {"scale_factor": 1.1, "mode": "bicubic"},
        {"size": (5, 1), "mode": "bilinear"},
        {"size": (4, 5), "mode": "bilinear", "antialias": True},
        {"size": (4, 9), "mode": "area"},
        {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True},
    ],
    ids=str,
)
def test_sizes_that_vary(options: dict[str, Any]) -> None:
    images = [torch.randn(2, 3, *size) for size in ((10, 12), (2, 47), (13, 11), (3, 10))]
    sizes = ({2: tintype.Dim("height"), 3: tintype.Dim("width")},)
    if options.get("mode") == "bicubic":
        images = images[:3]  # the last one stays as large as it is
    compared(lambda x: F.interpolate(x, **options), *images, dynamic_shapes=sizes)


def test_lengths_and_volumes_that_vary() -> None:
    length = ({2: tintype.Dim("length")},)
    for factor in (1.5, 0.7, 0.3):
        signal = torch.randn(1, 2, 10)
        compared(
            lambda x: F.interpolate(x, scale_factor=factor, mode="linear"),  # noqa: B023
            signal, signal[..., :7], signal[..., :4], dynamic_shapes=length,
        )  # fmt: skip
    depth = ({2: tintype.Dim("depth")},)
    volume = torch.randn(1, 2, 6, 2, 3)
    compared(
        lambda x: F.interpolate(x, scale_factor=(1.1, 3.0, 1.5), mode="trilinear"),
        volume, volume[:, :, :5], torch.randn(1, 2, 13, 2, 3), dynamic_shapes=depth,
    )  # fmt: skip


def test_decomposed_programs_keep_their_factors() -> None:
    image = torch.randn(1, 2, 10, 11)
    for mode in ("nearest", "bilinear", "bicubic"):

        def function(x: torch.Tensor, mode: str = mode) -> torch.Tensor:
            return F.interpolate(x, scale_factor=1.3, mode=mode)

        program = tintype.export(function, (image,)).run_decompositions()
        same(tintype.onnx.export(program, verify=False), function, image)


def test_what_is_refused() -> None:
    pixels = torch.randint(0, 255, (1, 3, 8, 8), dtype=torch.uint8)
    with pytest.raises(OnnxExportError, match="floating point first"):
        tintype.onnx.export(lambda x: F.interpolate(x, size=(4, 4), mode="bilinear"), (pixels,))
    compared(lambda x: F.interpolate(x, size=(4, 13)), pixels)
    image = torch.randn(1, 1, 11, 12)
    with pytest.raises(OnnxExportError, match="one pixel wide"):
        tintype.onnx.export(lambda x: F.interpolate(x, size=(9, 1), mode="bilinear", antialias=True), (image,))
    sizes = ({2: tintype.Dim("height"), 3: tintype.Dim("width")},)
    program = tintype.onnx.export(
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True), (image,), dynamic_shapes=sizes
    )
    with pytest.raises(tintype.TintypeError, match="one pixel wide"):
        program(torch.randn(1, 1, 5, 3))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_places_that_are_nowhere(mode: str, padding: str) -> None:
    for image in (torch.randn(2, 3, 5, 6), torch.randn(2, 3, 4, 5, 6)):
        if image.dim() == 5 and mode == "bicubic":
            continue
        dimensions = image.dim() - 2
        grid = torch.rand(2, *[3] * dimensions, dimensions) * 3 - 1.5
        odd = grid.clone()
        odd[0].view(-1)[:4] = torch.tensor([nan, inf, -inf, 0.3])
        if padding != "reflection":
            odd[1].view(-1)[:3] = torch.tensor([1e20, -1e20, 1e12])

        def function(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=False)

        program = tintype.onnx.export(function, (image, grid), verify=False)
        same(program, function, image, grid)
        same(program, function, image, odd)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_a_resize_does_not_do(dtype: torch.dtype) -> None:
    image = torch.randn(2, 3, 7, 8).to(dtype)
    for options in (
        {"scale_factor": 1.05, "mode": "bicubic"},  # an image of the same size, which is another one
        {"scale_factor": 1.1, "mode": "bilinear", "antialias": True},
        {"size": (5, 9), "mode": "bilinear", "antialias": True, "align_corners": True},
        {"size": (5, 9), "mode": "bicubic", "antialias": True, "align_corners": True},
    ):
        if dtype is torch.float16 and "antialias" in options:  # of which torch has none
            continue
        program = tintype.onnx.export(lambda x: F.interpolate(x, **options), (image,), verify=False)  # noqa: B023
        tolerance = 1e-5 if dtype is torch.float32 else 4e-3
        wanted = F.interpolate(image, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(program(image), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options",
    [
        {"scale_factor": 1.1, "mode": "bicubic"},
        {"scale_factor": 1.1, "mode": "bilinear", "antialias": True},
        {"scale_factor": (0.7, 1.4), "mode": "bicubic", "antialias": True},
        {"size": (4, 9), "mode": "bilinear", "antialias": True, "align_corners": True},
        {"size": (4, 9), "mode": "bicubic", "antialias": True, "align_corners": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes_that_vary_and_may_stay(options: dict[str, Any], dtype: torch.dtype) -> None:
    sizes = ({2: tintype.Dim("height"), 3: tintype.Dim("width")},)
    images = [torch.randn(2, 3, *size, dtype=dtype) for size in ((11, 12), (3, 4), (5, 23), (30, 7))]
    compared(lambda x: F.interpolate(x, **options), *images, dynamic_shapes=sizes)


@pytest.mark.parametrize("number", [nan, inf])
@pytest.mark.parametrize("varying", [False, True])
def test_numbers_in_one_window_stay_there(number: float, varying: bool) -> None:
    image = torch.randn(2, 3, 7, 8)
    image[0, 0, 0, 3] = number
    sizes = ({2: tintype.Dim("height"), 3: tintype.Dim("width")},) if varying else None
    for wanted in ((3, 5), (7, 4), (9, 2)):
        function = torch.nn.AdaptiveAvgPool2d(wanted)
        program = tintype.onnx.export(function, (image,), dynamic_shapes=sizes, verify=False)
        same(program, function, image)
