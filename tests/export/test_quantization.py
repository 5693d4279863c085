"""Models that are being quantized: observers, rounding in training, and operators on quantized numbers."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization as quantization
from torch import nn
from torch.ao.quantization import _learnable_fake_quantize as learnable
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (defines quantized_decomposed)

import tintype
from tests.export.modes import targets


def saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file)


FORMS: dict[str, Any] = {
    "exported": lambda program: program,
    "saved": saved,
    "decomposed": lambda program: program.run_decompositions(),
}


BYTES = (-128, 127, torch.int8)
SCALES, ZEROS = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int64)
whole = torch.ops.quantized_decomposed


def by_token(x: torch.Tensor) -> torch.Tensor:
    scale, zero = whole.choose_qparams_per_token(x, torch.int8)
    rounded = whole.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
    return whole.dequantize_per_token(rounded, scale, zero, -128, 127, torch.int8, torch.float32)


def by_range(x: torch.Tensor) -> torch.Tensor:
    scale, zero = whole.choose_qparams(x, -128, 127, 1e-7, torch.int8)
    rounded = whole.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return whole.dequantize_per_tensor.tensor(rounded, scale, zero, -128, 127, torch.int8)


def by_group(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = x.new_full((x.shape[0], 2), 0.1), x.new_zeros(x.shape[0], 2)
    rounded = whole.quantize_per_channel_group(x, scales, zeros, -8, 7, torch.int8, 2)
    return whole.dequantize_per_channel_group(rounded, scales, zeros, -8, 7, torch.int8, 2, torch.float32)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rounded": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127),
    "rounded, a scale of its own": lambda x: torch.fake_quantize_per_tensor_affine(
        x, x.abs().max() / 127 + 0.01, torch.zeros((), dtype=torch.int32), -128, 127
    ),
    "rounded, a number of the data": lambda x: torch.fake_quantize_per_tensor_affine(
        x, (x.abs().sum() / 127 + 0.01).item(), 0, -128, 127
    ),
    "rounded by channel": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 1, -128, 127),
    "rounded, learned": lambda x: torch._fake_quantize_learnable_per_tensor_affine(
        x, SCALES[:1], torch.zeros(1), -128, 127
    ),
    "rounded by channel, learned": lambda x: torch._fake_quantize_learnable_per_channel_affine(
        x, SCALES, torch.zeros(4), 1, -128, 127
    ),
    "and back": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
    "and back, by tensors": lambda x: torch.quantize_per_tensor(
        x, torch.tensor(0.1), torch.tensor(1), torch.quint8
    ).dequantize(),
    "and back, by data": lambda x: torch.quantize_per_tensor(
        x, float(x.abs().sum() + 1), int(x.sum()) % 3, torch.quint8
    ).dequantize(),
    "and back, in 32 bits": lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.qint32).dequantize(),
    "and back, by channel": lambda x: torch.quantize_per_channel(x, SCALES, ZEROS, 1, torch.qint8).dequantize(),
    "and back, by its range": lambda x: torch.quantize_per_tensor_dynamic(x, torch.quint8, False).dequantize(),
    "several and back": lambda x: torch.dequantize(
        torch.quantize_per_tensor([x, x + 1], SCALES[:2], ZEROS[:2], torch.qint8)
    ),
    "integers": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).int_repr(),
    "of integers": lambda x: torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 1).dequantize(),
    "of integers by channel": lambda x: torch._make_per_channel_quantized_tensor(
        x.to(torch.int8), SCALES, ZEROS, 1
    ).dequantize(),
    "in between": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).relu().reshape(-1).dequantize(),
    "sum": lambda x: torch.ops.quantized.add(
        *[torch.quantize_per_tensor(x, 0.1, 2, torch.quint8)] * 2, 0.2, 3
    ).dequantize(),
    "not quantized": lambda x: torch.dequantize(x),
    "observed": lambda x: torch.fused_moving_avg_obs_fake_quant(
        x, *[torch.ones(1, dtype=torch.int64)] * 2, torch.tensor([-1.0]), torch.ones(1), torch.ones(1),
        torch.zeros(1, dtype=torch.int32), 0.01, 0, 255, 0,
    ),
    "whole": lambda x: whole.dequantize_per_tensor(
        whole.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8), 0.1, 0, -128, 127, torch.int8
    ),
    "whole, by channel": lambda x: whole.dequantize_per_channel(
        whole.quantize_per_channel(x, SCALES, ZEROS, 1, *BYTES), SCALES, ZEROS, 1, *BYTES
    ),
    "whole, in half": lambda x: whole.dequantize_per_tensor(
        x.to(torch.int8), 0.1, 3, -128, 127, torch.int8, out_dtype=torch.float16
    ),
    "whole, by token": by_token,
    "whole, by range": by_range,
    "whole, by group": by_group,
    "whole, symmetric": lambda x: whole.choose_qparams_symmetric(x, -128, 127, 1e-7, torch.int8),
    "whole, rounded by channel": lambda x: whole.fake_quant_per_channel(x, SCALES, ZEROS, 1, -128, 127),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators(name: str, form: str) -> None:
    """On the example, on other values, and on other sizes."""
    function = FUNCTIONS[name]
    rows = tintype.Dim("rows", min=1)
    program = FORMS[form](tintype.export(function, (torch.randn(3, 4),), dynamic_shapes=({0: rows},)))
    for x in (torch.randn(3, 4) * 4, torch.randn(7, 4), torch.randn(1, 4)):
        torch.testing.assert_close(program.module()(x), function(x))


# what torch.export takes too; the others have no kernels for tensors without data there
TAKEN_BY_TORCH = [name for name in FUNCTIONS if name.startswith(("whole", "rounded")) and "number" not in name]


@pytest.mark.parametrize("name", TAKEN_BY_TORCH)
def test_torch_gives_the_same(name: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return FUNCTIONS[name](x)

    x, other = torch.randn(3, 4), torch.randn(3, 4) * 4
    theirs = torch.export.export(Model(), (x,)).module()(other)
    torch.testing.assert_close(tintype.export(Model(), (x,)).module()(other), theirs)


def test_gradients_of_rounding() -> None:
    for name in ("rounded", "rounded by channel", "rounded, learned"):
        x = torch.randn(3, 4).requires_grad_()
        (wanted,) = torch.autograd.grad(FUNCTIONS[name](x).square().sum(), x)
        found = tintype.export(FUNCTIONS[name], (torch.randn(3, 4, requires_grad=True),)).module()(x)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), x)[0], wanted)


def test_a_kernel_that_reads_memory_is_refused_by_name() -> None:
    def chosen(x: torch.Tensor) -> Any:
        return torch.choose_qparams_optimized(x, 12, 200, 0.16, 8)

    with pytest.raises(tintype.TintypeError, match="choose_qparams_optimized"):
        tintype.export(chosen, (torch.randn(12),))


def decomposed_and_back(x: torch.Tensor) -> torch.Tensor:
    return FUNCTIONS["whole"](x)


def test_decomposed_operators_are_kept_whole() -> None:
    program = tintype.export(decomposed_and_back, (torch.randn(3, 4),)).run_decompositions()
    assert targets(program) == [
        "quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default",
    ]  # fmt: skip


def after_a_call(module: nn.Module) -> nn.Module:
    module(torch.randn(3, 4))
    return module


def trained() -> nn.Module:
    """A model whose weights and activations are rounded in training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return after_a_call(quantization.prepare_qat(model))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.norm, self.relu = nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU()
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(self.quant(x[:, None, None].expand(-1, -1, 3, -1)))))
        return self.dequant(self.head(x.flatten(1)))


LAYERS = [["conv", "norm", "relu"]]
BOUNDS = quantization.QConfig(
    activation=quantization.MinMaxObserver.with_args(reduce_range=True), weight=quantization.default_weight_observer
)


def observed() -> nn.Module:
    """A model whose observers hang in hooks."""
    torch.manual_seed(0)
    model = Images().eval()
    model.qconfig = BOUNDS
    return quantization.prepare(quantization.fuse_modules(model, LAYERS))


def rounded_images() -> nn.Module:
    torch.manual_seed(0)
    model = Images().train()
    model.qconfig = quantization.get_default_qat_qconfig("x86")
    return after_a_call(quantization.prepare_qat(quantization.fuse_modules_qat(model, LAYERS)))


def dynamic() -> nn.Module:
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8)


def of_graphs(model: nn.Module) -> nn.Module:
    from torch.ao.quantization.quantize_fx import prepare_fx

    mapping = quantization.QConfigMapping().set_global(BOUNDS)
    return prepare_fx(model.eval(), mapping, (torch.randn(3, 4),))


def learned(change: str) -> nn.Module:
    observer = quantization.MovingAverageMinMaxObserver
    module = learnable._LearnableFakeQuantize(observer, quant_min=0, quant_max=255, scale=0.1, zero_point=1.0)
    getattr(module, change)()
    return module


def rounding(observer: Any, *, signed: bool = False, **options: Any) -> nn.Module:
    """What rounds as an observer says, which gives a zero in 32 bits, and in 64 where it has seen nothing."""
    bounds = {"quant_min": -128, "quant_max": 127} if signed else {"quant_min": 0, "quant_max": 255}
    kind = torch.qint8 if signed else torch.quint8
    return quantization.FakeQuantize(observer=observer, dtype=kind, **bounds, **options)


def unfused(weight: Any, scheme: torch.qscheme) -> nn.Module:
    """A model in training, with rounding and observing in modules of their own."""
    torch.manual_seed(0)
    model = Images().train()
    model.qconfig = quantization.QConfig(
        activation=functools.partial(rounding, quantization.MovingAverageMinMaxObserver),
        weight=functools.partial(rounding, weight, signed=True, qscheme=scheme),
    )
    return after_a_call(quantization.prepare_qat(quantization.fuse_modules_qat(model, LAYERS)))


UNFUSED = {
    "per tensor": (quantization.MovingAverageMinMaxObserver, torch.per_tensor_affine),
    "per tensor, symmetric": (quantization.MinMaxObserver, torch.per_tensor_symmetric),
    "per channel": (quantization.PerChannelMinMaxObserver, torch.per_channel_affine),
}
IN_TRAINING: dict[str, Callable[..., nn.Module]] = {
    "training": lambda model, x: tintype.export_for_training(model, (x,)).module(),
    "functional": lambda model, x: tintype.export(model, (x,)).module(),
    "decomposed": lambda model, x: tintype.export(model, (x,)).run_decompositions().module(),
    "saved": lambda model, x: saved(tintype.export_for_training(model, (x,))).module(),
    "unflattened": lambda model, x: tintype.unflatten(tintype.export_for_training(model, (x,))),
    "strict": lambda model, x: tintype.export(model, (x,), strict=True).module(),
}


def switched(module: nn.Module, *, observing: bool, rounding: bool) -> nn.Module:
    """The module with its switches so, as ``torch.ao.quantization.disable_observer`` and its kin put them."""
    for path, switch in module.named_buffers():
        if path.endswith(("observer_enabled", "fake_quant_enabled")):
            switch.fill_(observing if path.endswith("observer_enabled") else rounding)
    return module


@pytest.mark.parametrize("form", IN_TRAINING)
@pytest.mark.parametrize("name", UNFUSED)
def test_rounding_and_observing_in_modules_of_their_own(name: str, form: str) -> None:
    """Also where observers and rounding are switched on and off, which are buffers of the program."""
    model = unfused(*UNFUSED[name])
    eager = copy.deepcopy(model)
    module = IN_TRAINING[form](model, torch.randn(3, 4))
    for observing, rounds in ((True, True), (False, True), (True, False), (False, False), (True, True)):
        switched(module, observing=observing, rounding=rounds)
        switched(eager, observing=observing, rounding=rounds)
        x = torch.randn(3, 4) * (2 + observing + rounds)
        torch.testing.assert_close(module(x), eager(x))
    found = module.state_dict()
    for path, value in eager.state_dict().items():
        torch.testing.assert_close(found[path], value)


@pytest.mark.parametrize("name", UNFUSED)
def test_gradients_of_rounding_in_modules_of_their_own(name: str) -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = unfused(*UNFUSED[name])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    x = torch.randn(3, 4)
    model = Loss()
    loss, found, *_ = tintype.export_joint(model, (x,)).module()(x)
    expected = model(x)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, {name: parameter.grad for name, parameter in model.named_parameters()})


by_channel = quantization.PerChannelMinMaxObserver
MODULES: dict[str, Callable[[], nn.Module]] = {
    "minimum and maximum": quantization.MinMaxObserver,
    "moving average": quantization.MovingAverageMinMaxObserver,
    "histogram": quantization.HistogramObserver,
    "histogram after a call": lambda: after_a_call(quantization.HistogramObserver()),
    "per channel, after a call": lambda: after_a_call(by_channel()),
    "nothing": quantization.PlaceholderObserver,
    "fixed": lambda: quantization.FixedQParamsObserver(0.1, 0),
    "in training": trained,
    "in training, images": rounded_images,
    "in training, images, evaluated": lambda: rounded_images().eval(),
    "in hooks": observed,
    "in hooks, after a call": lambda: after_a_call(observed()),
    "in a graph": lambda: of_graphs(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))),
    "converted": lambda: quantization.convert(after_a_call(observed())),
    "converted after training": lambda: quantization.convert(rounded_images().eval()),
    "dynamic": dynamic,
    "rounding weights": quantization.default_weight_fake_quant,
    "rounding by channel": lambda: after_a_call(quantization.default_per_channel_weight_fake_quant()),
    "rounding, fused": quantization.default_fused_act_fake_quant,
    "rounding, by bounds": lambda: rounding(quantization.MinMaxObserver),
    "rounding, by a moving average": lambda: rounding(quantization.MovingAverageMinMaxObserver),
    "rounding, by a histogram": lambda: rounding(quantization.HistogramObserver),
    "rounding, by channel, affine": lambda: after_a_call(
        rounding(quantization.MovingAveragePerChannelMinMaxObserver, qscheme=torch.per_channel_affine)
    ),
    "rounding, fixed": quantization.FixedQParamsFakeQuantize.with_args(
        observer=quantization.FixedQParamsObserver.with_args(scale=1 / 256, zero_point=0)
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODULES)
def test_modules_that_observe(name: str, form: str) -> None:
    """Results, and what was observed afterwards, are eager mode's; also where histograms branch on what they have."""
    model = MODULES[name]()
    module = FORMS[form](tintype.export(model, (torch.randn(3, 4),))).module()
    eager = copy.deepcopy(model)
    for scale in (1, 2, 3):
        x = torch.randn(3, 4) * scale
        torch.testing.assert_close(module(x), eager(x))
    found = module.state_dict()
    for path, value in eager.state_dict().items():
        if path in found:  # packed weights are constants
            torch.testing.assert_close(found[path], value)


def test_gradients_of_rounded_training() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = trained()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).square().mean()

    x = torch.randn(3, 4)
    model = Loss()
    joint = tintype.export_joint(model, (x,))
    _, found, *_ = joint.module()(x)
    model(x).backward()
    torch.testing.assert_close(found, {name: parameter.grad for name, parameter in model.named_parameters()})


def test_observers_without_a_size_say_what_to_do() -> None:
    model = nn.Sequential(nn.Linear(4, 2)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    with pytest.raises(tintype.TintypeError, match="call the model once before it is exported"):
        tintype.export(quantization.prepare_qat(model), (torch.randn(3, 4),))


class Words(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.table = kind(10, 4)
        self.table.qconfig = quantization.float_qparams_weight_only_qconfig

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.table(words) * 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_tables_of_words(kind: Any, form: str) -> None:
    model = quantization.convert(quantization.prepare(Words(kind).eval()))
    rows = tintype.Dim("rows", min=1)
    words = torch.randint(0, 10, (3, 4))
    program = FORMS[form](tintype.export(model, (words,), dynamic_shapes=({0: rows},)))
    for other in (words, torch.randint(0, 10, (5, 4))):
        torch.testing.assert_close(program.module()(other), model(other))


def test_damaged_weights_are_refused() -> None:
    from tintype.serde.objects import loaded_object, saved_object

    packed = dynamic()[0]._packed_params._packed_params
    name, content = saved_object("weight", packed)
    assert torch.equal(loaded_object(name, content).unpack()[0].int_repr(), packed.unpack()[0].int_repr())
    for damaged in (
        b"",
        content[:-1],
        content + b"0",
        content.replace(b"qint8", b"qint9"),
        content.replace(b"8,", b"9,"),
    ):
        with pytest.raises(tintype.FileFormatError):
            loaded_object(name, damaged)
