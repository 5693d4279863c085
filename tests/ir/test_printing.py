"""Programs as text: Python that can be run, a page for notebooks."""

from __future__ import annotations

import ast
import html.parser
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tintype
from tests.export.modes import assert_same, capture, copied
from tintype import OutputKind


def x() -> torch.Tensor:
    return torch.randn(3, 4)


def run_text(program: tintype.ExportedProgram, args: tuple[Any, ...]) -> list[Any]:
    """Execute the code of a program, on the program's state; returns the user's outputs."""
    namespace: dict[str, Any] = {"__name__": "printed"}
    exec(compile(program.code, "<printed program>", "exec"), namespace)
    module = namespace["Program"]()
    signature = program.graph_signature
    state = {**program.constants, **program.state_dict}
    inputs = iter(pytree.tree_leaves(args))
    values = [next(inputs) if spec.target is None else state[spec.target].clone() for spec in signature.input_specs]
    results = module(*values)
    return [
        result
        for result, spec in zip(results, signature.output_specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"first": nn.Linear(4, 4), "a:b": nn.LayerNorm(4)})
        self.register_buffer("count", torch.zeros(()))

    def forward(self, value: torch.Tensor) -> dict[str, Any]:
        self.count += 1
        for layer in self.layers.values():
            value = layer(value)
        return {"a": value.relu() * self.count + torch.tensor([1.0, 2.0, 3.0, 4.0]), "n": 5, "none": None}


def special_values(value: torch.Tensor) -> Any:
    value = value.clamp(max=math.inf).masked_fill(value > 10, -math.inf) + torch.full((4,), math.nan).nan_to_num()
    parts = value.split([1, 2, 1], dim=1)
    picked = value[[0, 2], 1:3]
    value = value.to(torch.float64, copy=True).to(dtype=torch.float32)
    made = torch.zeros(2, 3, dtype=torch.int32, device="cpu", layout=torch.strided)
    last = torch.ones(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    joined = torch.cat([*parts], dim=1)
    text = nn.functional.pad(joined, (1, 1), mode="constant", value=0.5)
    ordered = torch.sort(value, dim=-1, descending=True)
    return [value, picked, made, last, text, ordered.values, ordered.indices, value.max(dim=1).values, 1.5, "it's"]


PROGRAMS: dict[str, Any] = {
    "model": Model,
    "special": lambda: special_values,
    "linear": lambda: nn.Linear(4, 4),
    "empty": lambda: lambda value: None,
    "identity": lambda: nn.Identity(),
    "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8).eval(),
    "number": lambda: lambda value: value + value.long().sum().item(),
    "masked": lambda: lambda value: value[value > 0].sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_print_is_runnable_python(mode: str, name: str) -> None:
    value = x()
    model = PROGRAMS[name]()
    program = capture(mode, model, (value,))
    expected = program.module()(*copied((value,)))
    assert_same(run_text(program, copied((value,))), pytree.tree_leaves(expected, is_leaf=lambda v: v is None))


def test_text_names_stage_sizes_and_lines(mode: str) -> None:
    text = capture(mode, Model(), (x(),)).code
    stage = {"training": "training", "decomposed": "core"}.get(mode.removeprefix("saved, "), "functional")
    assert f"class Program(torch.nn.Module):  # {stage} stage" in text
    assert 'value: "f32[3, 4]"' in text
    assert "test_printing.py:" in text
    assert "in forward: self.count += 1" in text
    assert "# Signature" in text
    assert "USER_INPUT" in text
    if not mode.endswith("training"):
        assert "BUFFER_MUTATION target='count'" in text


def test_text_is_valid_python_of_one_class(mode: str) -> None:
    tree = ast.parse(capture(mode, Model(), (x(),)).code)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(classes) == 1
    (forward,) = [node for node in classes[0].body if isinstance(node, ast.FunctionDef)]
    assert forward.name == "forward"


def test_expected_text() -> None:
    program = tintype.export(nn.Linear(4, 2), (torch.ones(3, 4),))
    lines = [line for line in program.code.splitlines() if "# /" not in line]
    assert lines == [
        "import torch",
        "",
        "",
        "class Program(torch.nn.Module):  # functional stage",
        '    def forward(self, p_weight: "f32[2, 4]", p_bias: "f32[2]", input: "f32[3, 4]"):',
        '        linear: "f32[3, 2]" = torch.ops.aten.linear.default(input, p_weight, p_bias)',
        "        return (linear,)",
        "",
        "",
        "# Signature",
        "# # inputs",
        "# p_weight: PARAMETER target='weight'",
        "# p_bias: PARAMETER target='bias'",
        "# input: USER_INPUT",
        "#",
        "# # outputs",
        "# linear: USER_OUTPUT",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(2, dtype=torch.float64), "f64[2]"),
        (torch.ones(2, dtype=torch.bfloat16), "bf16[2]"),
        (torch.ones(2, dtype=torch.float16), "f16[2]"),
        (torch.ones(2, dtype=torch.int64), "i64[2]"),
        (torch.ones(2, dtype=torch.bool), "b8[2]"),
        (torch.ones(2, dtype=torch.complex64), "c64[2]"),
        (torch.ones(()), "f32[]"),
        (torch.ones(0, 3), "f32[0, 3]"),
        (torch.ones(2, device="meta"), "f32[2] meta"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes_in_text(value: torch.Tensor, text: str) -> None:
    assert f'value: "{text}"' in tintype.export(lambda value: value + value, (value,)).code


def test_custom_operators_in_text(mode: str) -> None:
    @torch.library.custom_op("tintype_behaviour::printed", mutates_args=())
    def printed(value: torch.Tensor, names: list[float]) -> torch.Tensor:
        return value * sum(names)

    printed.register_fake(lambda value, names: torch.empty_like(value))
    program = capture(mode, lambda value: printed(value, [1.0, 2.0]), (x(),))
    assert "torch.ops.tintype_behaviour.printed.default(value, [1.0, 2.0])" in program.code
    value = x()
    assert_same(run_text(program, (value,)), [value * 3])


def test_mutating_custom_operator_in_text(mode: str) -> None:
    @torch.library.custom_op("tintype_behaviour::printed_write", mutates_args=("target",))
    def printed_write(target: torch.Tensor) -> None:
        target.add_(1)

    def function(value: torch.Tensor) -> torch.Tensor:
        value = value.clone()
        printed_write(value)
        return value

    program = capture(mode, function, (x(),))
    value = x()
    assert_same(run_text(program, (value,)), [value + 1])


def test_source_that_is_not_a_file(mode: str) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec("def function(value):\n    return value.sin()\n", namespace)
    program = capture(mode, namespace["function"], (x(),))
    value = x()
    assert_same(run_text(program, (value,)), [value.sin()])


def test_source_line_with_odd_characters(mode: str) -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        return value.sin()  # π "quoted" \ backslash 'x' # {braces}

    value = x()
    program = capture(mode, function, (value,))
    assert_same(run_text(program, (value,)), [value.sin()])


class _Balanced(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_for_notebooks(mode: str) -> None:
    program = capture(mode, lambda value: (value < 3) & (value > 1), (x(),))
    page = program._repr_html_()
    parser = _Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert "class Program(torch.nn.Module)" in parser.text
    assert "f32[3, 4]" in parser.text
    assert "(value < 3) & (value > 1)" in parser.text  # the source line, escaped in the page
    assert "&lt;" in page
