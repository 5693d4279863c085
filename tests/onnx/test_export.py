"""From models to ONNX programs: inputs, outputs, state, sizes, files."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx_ir
import pytest
import torch

import tintype
from tests.onnx.comparing import assert_same, compared, operators

BATCH = tintype.Dim("batch", max=64)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        self.steps += 2
        return self.linear(x) * self.count + self.steps


def test_sizes_that_vary_have_the_names_of_their_dimensions() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    program = compared(model, (torch.randn(3, 4),), (torch.randn(7, 4),), dynamic_shapes=({0: BATCH},))
    (given,) = program.model.graph.inputs
    assert [str(size) for size in given.shape] == ["batch", "4"]
    assert [str(size) for size in program.model.graph.outputs[0].shape] == ["batch", "2"]


def test_relations_between_sizes_are_kept() -> None:
    def model(x: torch.Tensor) -> Any:
        size = x.shape[0]
        return x.reshape(2 * size, -1), torch.arange(size // 2 + 1), x.new_ones(size, 3), size * 3

    program = compared(
        model, (torch.randn(4, 6),), (torch.randn(9, 6),), (torch.randn(1, 6),), dynamic_shapes=({0: BATCH},)
    )
    assert [str(size) for size in program.model.graph.outputs[0].shape] == ["2*batch", "3"]


def test_an_example_of_size_one_fixes_nothing() -> None:
    compared(torch.nn.Linear(4, 2), (torch.randn(1, 4),), (torch.randn(5, 4),), dynamic_shapes=({0: BATCH},))


def test_sizes_from_data() -> None:
    def model(x: torch.Tensor) -> Any:
        return x.nonzero(), x[x > 0] * 2

    compared(model, (torch.randn(10),), (torch.randn(10),), (torch.zeros(10),))


def test_arguments_in_containers_by_keyword_and_none() -> None:
    def model(x: Any, pair: Any, *, scale: Any = None, shift: Any = None) -> Any:
        result = x["a"] + pair[0] * pair[1]
        return (result if scale is None else result * scale) + shift

    args = ({"a": torch.randn(3)}, [torch.randn(3), torch.randn(3)])
    program = compared(model, args, kwargs={"shift": torch.ones(3), "scale": None})
    assert program.input_names == ["x_a", "pair_0", "pair_1", "shift"]


def test_outputs_that_are_inputs_constants_or_the_same_twice() -> None:
    weight = torch.nn.Parameter(torch.randn(3))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: torch.Tensor) -> Any:
            y = x + 1
            return {"input": x, "state": self.weight, "twice": (y, y), "five": 5, "none": None, "text": "t"}

    compared(Model(), (torch.randn(3),))


def test_python_numbers_are_what_they_were() -> None:
    program = compared(lambda x, n: x * n, (torch.randn(3), 5))
    assert program.input_names == ["x"]
    with pytest.raises(tintype.TintypeError, match="to be equal to 5, but got 6"):
        program(torch.randn(3), 6)


def test_numbers_that_vary_are_inputs() -> None:
    program = tintype.onnx.export(
        lambda x, n: x[:n] * n, (torch.randn(8), 5), dynamic_shapes=(None, tintype.Dim.DYNAMIC)
    )
    x = torch.randn(8)
    assert_same(program(x, 3), x[:3] * 3)


def test_state_is_carried_from_call_to_call() -> None:
    model = Counter()
    program = tintype.onnx.export(model, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    for _ in range(3):
        assert_same(program(x), model(x))
    assert_same(program.state(), {"count": model.count, "steps": model.steps})
    program.reset()
    assert float(program.state()["count"]) == 0.0


def test_a_file_with_state_runs_by_hand(tmp_path: Path) -> None:
    """Mutated buffers are inputs with a default, so a plain session needs the user's inputs only."""
    import onnxruntime

    model = Counter()
    x = torch.randn(2, 4)
    path = tmp_path / "counter.onnx"
    tintype.onnx.export(model, (x,)).save(path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["x"]
    assert {each.name for each in session.get_overridable_initializers()} == {"count", "steps"}
    assert_same(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), model(x))


def test_written_inputs_are_written_to() -> None:
    program = tintype.onnx.export(lambda x: x.add_(1).sum(), (torch.zeros(3),))
    x = torch.ones(3)
    assert_same(program(x), torch.tensor(6.0))
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_weights_keep_their_names_and_tied_ones_are_there_once() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10, 4)
            self.head = torch.nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(x))

    program = compared(Tied(), (torch.tensor([1, 2, 3]),))
    names = [name for name in program.model.graph.initializers if not name.startswith("constant")]
    assert names == ["embed.weight"]


def test_type_promotion() -> None:
    def model(x: torch.Tensor, n: torch.Tensor, b: torch.Tensor) -> Any:
        return (
            x + n,
            n * 2.5,
            b + b,
            b + 1,
            n / 2,
            n > 0.5,
            b.sum(),
            n.mean(dtype=torch.float32),
            torch.cat([x, n]),
            x * b,
            b.cumsum(0),
            n.sin(),
        )

    compared(model, (torch.randn(3), torch.tensor([1, 2, 3]), torch.tensor([True, False, True])))


@pytest.mark.parametrize("opset", range(18, 25))
def test_every_opset(opset: int) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Softmax(-1)
    ).eval()
    program = compared(model, (torch.randn(2, 4),), (torch.randn(5, 4),), opset=opset, dynamic_shapes=({0: BATCH},))
    assert program.model.opset_imports[""] == opset
    assert ("Gelu" in operators(program)) == (opset >= 20)


def test_files_and_what_they_say_of_their_arguments(tmp_path: Path) -> None:
    def model(x: Any, scale: float = 2.0) -> Any:
        return {"double": x["a"] * scale, "size": x["a"].shape[0]}

    path = tmp_path / "model.onnx"
    program = tintype.onnx.export(model, ({"a": torch.randn(3)},))
    program.save(path)
    loaded = tintype.onnx.load(path)
    a = torch.randn(3)
    assert_same(loaded({"a": a}), model({"a": a}))
    with pytest.raises(tintype.TintypeError, match=r"shape\[0\] to be equal to 3, but got 4"):
        loaded({"a": torch.randn(4)})
    del loaded.model.metadata_props["tintype.program"]  # which files did not always have
    onnx_ir.save(loaded.model, path)
    with pytest.raises(tintype.TintypeError, match="to have the sizes"):
        tintype.onnx.load(path)({"a": torch.randn(4)})


def test_external_data(tmp_path: Path) -> None:
    model = torch.nn.Linear(64, 64)
    path = tmp_path / "model.onnx"
    x = torch.randn(2, 64)
    tintype.onnx.export(model, (x,)).save(path, external_data=True)
    assert (tmp_path / "model.onnx.data").stat().st_size >= 64 * 64 * 4
    assert_same(tintype.onnx.load(path)(x), model(x))


def test_programs_of_every_kind(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval()
    x = torch.randn(2, 4)
    expected = model(x)
    program = tintype.export(model, (x,))
    path = tmp_path / "model.tt"
    tintype.save(program, path)
    file = io.BytesIO()
    tintype.save(program, file)
    kinds = [
        program,
        program.run_decompositions(),
        tintype.export_for_training(model, (x,)),
        tintype.load(path),
        path,
        str(path),
        torch.export.export(model, (x,)),
    ]
    for each in kinds:
        assert_same(tintype.onnx.export(each)(x), expected)


def test_inputs_are_checked_with_the_programs_own_words() -> None:
    program = tintype.onnx.export(
        torch.nn.Linear(4, 2), (torch.randn(2, 4),), dynamic_shapes=({0: tintype.Dim("b", max=8)},)
    )
    with pytest.raises(tintype.TintypeError, match=r"Expected input at \*args\[0\].shape\[0\] to be <= 8, but got 9"):
        program(torch.randn(9, 4))
    with pytest.raises(tintype.TintypeError, match=r"to be torch\.float32, but got torch\.float64"):
        program(torch.randn(2, 4, dtype=torch.float64))


def test_assertions_of_the_program_are_checked() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        n = x.sum().item()
        torch._check(n > 3)
        return x + n

    program = tintype.onnx.export(model, (torch.tensor([2, 3]),))
    assert_same(program(torch.tensor([4, 5])), torch.tensor([13, 14]))
    with pytest.raises(tintype.TintypeError):
        program(torch.tensor([1, 1]))


def test_torch_onnx_is_not_loaded() -> None:
    code = (
        "import sys, torch, tintype\n"
        "program = tintype.onnx.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))\n"
        "program(torch.ones(4, 3))\n"
        "print([name for name in sys.modules if name == 'torch.onnx' or name.startswith('torch.onnx.')])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_an_opset_that_is_not_there_is_refused() -> None:
    with pytest.raises(tintype.TintypeError, match="18 to 24"):
        tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),), opset=9)


def test_complex_numbers() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = torch.complex(x, y)
        return z * z, z.abs(), z.real, torch.complex(x[:0], y[:0])

    compared(model, (torch.randn(3), torch.randn(3)))


def test_weights_come_later(tmp_path: Path) -> None:
    """A program on the meta device can be translated; to write it, its weights have to be there."""
    with torch.device("meta"):
        large = torch.nn.Linear(50_000, 50_000)
    program = tintype.onnx.export(large, (torch.empty(1, 50_000, device="meta"),))
    assert "not verified" in str(program.report)
    assert operators(program) == ["Gemm"]
    with pytest.raises(tintype.TintypeError, match="on the meta device"):
        program.save(tmp_path / "never.onnx", external_data=True)


def test_a_dtype_without_kernels_says_what_to_do() -> None:
    table = {torch.ops.aten.mul.Tensor: lambda op, left, right: op.Relu(left)}
    x = torch.ones(2, dtype=torch.int16)
    with pytest.raises(tintype.TintypeError, match="verify=False"):
        tintype.onnx.export(lambda x: x * x, (x,), translations=table)
    program = tintype.onnx.export(lambda x: x * x, (x,), translations=table, verify=False)
    assert operators(program) == ["Relu"]


def test_outputs_are_named_by_their_place_in_the_result() -> None:
    def model(x: torch.Tensor) -> Any:
        return {"logits": x * 2, "hidden": (x + 1, [x + 2]), "x": x}

    for optimize in (True, "full"):
        program = compared(model, (torch.ones(2),), optimize=optimize)
        assert program.output_names == ["logits", "hidden[0]", "hidden[1][0]", "x_1"]
    assert compared(lambda x: x + 1, (torch.ones(2),)).output_names == ["result"]
    assert compared(lambda x: (x + 1, x, x), (torch.ones(2),)).output_names == ["result[0]", "result[1]", "result[2]"]


def test_outputs_of_caches_are_named_by_their_place() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=9,
    )  # fmt: skip
    program = tintype.onnx.export(LlamaForCausalLM(config).eval(), (torch.ones(1, 3, dtype=torch.long),))
    assert program.output_names == ["logits", "past_key_values.layers[0].keys", "past_key_values.layers[0].values"]
