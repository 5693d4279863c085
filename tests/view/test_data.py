"""What a page knows of a program."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tintype
from tests.view.models import Encoder, encoder_program, joint_program
from tintype.ir.graph import graphs_of
from tintype.symbolic import evaluate
from tintype.view.costs import operations_of, operations_of_a_step
from tintype.view.model_explorer import model_explorer_data
from tintype.view.modules import folded, module_tree
from tintype.view.pages import page_of


def data_of(program: tintype.ExportedProgram, **options: Any) -> dict[str, Any]:
    return page_of({"program": program}, **options).data["programs"][0]


def test_modules_with_their_costs() -> None:
    program = encoder_program()
    root = module_tree(program)
    assert [child.name for child in root.children] == ["embedding", "layers", "shared", "shared@1"]
    layers = root.children[1]
    assert [group.label for group in folded(layers.children)] == ["0 .. 2"]
    assert layers.children[0].class_name == "Block"
    assert root.parameters == sum(value.numel() for value in Encoder().state_dict().values())
    assert root.bytes == 4 * root.parameters
    assert root.without_formula == 0
    assert root.children[3].parameters == 0  # the second call has the weights of the first
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert root.calls == len(calls) == sum(len(entry.nodes) for entry in root.descendants())


def test_layers_that_differ_are_not_folded() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 5), torch.nn.LeakyReLU(0.1),
        torch.nn.LeakyReLU(0.2),
    )  # fmt: skip
    root = module_tree(tintype.export(model, (torch.ones(1, 4),)))
    assert [group.label for group in folded(root.children)] == ["0 .. 1", "2", "3", "4"]


class Products(torch.nn.Module):
    """Matrix products of every kind, and nothing else that torch counts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 6, bias=False)
        self.convolution = torch.nn.Conv2d(6, 12, 3, stride=2, padding=1, groups=3, bias=False)
        self.transposed = torch.nn.ConvTranspose1d(4, 6, 3, bias=False)

    def forward(self, x, image, signal):
        y = self.linear(x) @ x.mT
        z = torch.bmm(x, x.mT).sum()
        attended = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None])
        return y, z, attended, self.convolution(image), self.transposed(signal)


MATRIX = ("linear", "matmul", "bmm", "conv2d", "conv_transpose1d", "scaled_dot_product_attention")


@pytest.mark.parametrize("sizes", [(2, 5, 8), (3, 4, 11), (1, 1, 9)])
def test_products_cost_what_torch_counts(sizes: tuple[int, int, int]) -> None:
    batch, length, height = (tintype.Dim(name, min=1, max=64) for name in ("batch", "length", "height"))
    shapes = {"x": {0: batch, 1: length}, "image": {2: height}, "signal": None}
    model = Products().eval()

    def inputs(b: int, n: int, h: int) -> tuple[torch.Tensor, ...]:
        return torch.ones(b, n, 6), torch.ones(2, 6, h, 7), torch.ones(2, 4, 9)

    program = tintype.export(model, inputs(2, 3, 8), dynamic_shapes=shapes)
    names = {"batch": sizes[0], "length": sizes[1], "height": sizes[2]}
    counted = 0
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__.partition(".")[0] in MATRIX:
            formula = operations_of(node)
            environment = program.context.environment
            values = {symbol: names[environment.names[name]] for name, symbol in environment.symbols.items()}
            found = evaluate(formula, values)
            if "attention" in node.target.__name__:  # torch leaves out the softmax
                found -= 5 * sizes[0] * sizes[1] ** 2
            counted += found
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with FlopCounterMode(display=False) as counter, torch.no_grad(), plain:
        model(*inputs(*sizes))
    assert counted == counter.get_total_flops()


def test_an_operator_without_a_formula_is_counted_as_such() -> None:
    program = tintype.export(lambda x: torch.linalg.qr(x)[0] + 1, (torch.ones(3, 3),))
    root = module_tree(program)
    assert root.without_formula == 1 and root.operations == 9


def test_no_weights_lines_or_paths_unless_asked() -> None:
    program = encoder_program()
    page = page_of({"program": program})
    plain = json.dumps(page.data)
    assert "models.py" not in plain and "F.gelu" not in plain and "def forward" not in plain
    assert '"statistics"' not in plain and page.data["lines"] == []
    page = page_of({"program": program}, source=True, statistics=True)
    gelu = next(node for node in page.data["programs"][0]["nodes"] if node.get("operator") == "aten.gelu.default")
    innermost = page.data["lines"][gelu["lines"][-1]]
    assert innermost["text"] == "return x + self.narrow(torch.nn.functional.gelu(self.wide(self.norm(x))))"
    assert not innermost["file"].startswith("/")
    found = page.data["programs"][0]["weights"]["embedding.weight"]["statistics"]
    assert found["count"] == 80 and sum(found["histogram"]) == 80


def test_statistics_of_odd_weights() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("empty", torch.zeros(0))
            self.register_buffer("none", torch.tensor([float("nan"), float("inf")]))
            self.register_buffer("huge", torch.tensor([1e308, -1e308], dtype=torch.float64))
            self.register_buffer("whole", torch.tensor([True, False]))
            self.register_buffer("complex", torch.ones(2, dtype=torch.complex64))

        def forward(self, x):
            return x + self.none[0] + self.huge[0] + self.whole[0] + self.complex[0] + self.empty.sum()

    page = page_of({"odd": tintype.export(Odd(), (torch.ones(1),))}, statistics=True)
    json.loads(page.html.split('id="data">')[1].split("</script>")[0])
    weights = page.data["programs"][0]["weights"]
    assert weights["none"]["statistics"] == {"zeros": 0, "not_finite": 2, "count": 2}
    assert weights["huge"]["statistics"]["max"] == 1e308
    assert weights["empty"]["statistics"] == weights["complex"]["statistics"] == {}


def test_stages_are_linked_by_origin() -> None:
    program = encoder_program(1)
    core = data_of(program.run_decompositions())
    made_of = {node["name"]: node["from"] for node in core["nodes"] if "from" in node}
    assert ["layer_norm", "aten.layer_norm.default"] in made_of["native_layer_norm"]


def test_backward_nodes_have_the_step_of_the_forward() -> None:
    nodes = [node for node in data_of(joint_program())["nodes"] if node["kind"] == "call"]
    forward = {node["step"] for node in nodes if not node.get("backward") and "step" in node}
    backward = [node for node in nodes if node.get("backward")]
    assert backward and any(node["step"] in forward for node in backward)


def test_graphs_in_a_graph_stand_after_their_call() -> None:
    def forward(x):
        return tintype.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))

    data = data_of(tintype.export(forward, (torch.ones(2),)))
    inner = [module for module in data["modules"] if module.get("graph")]
    assert len(inner) == 2
    operators = [node.get("operator") for node in data["nodes"]]
    start = operators.index("higher_order.cond")
    assert operators.index("aten.sin.default") > start and operators.index("aten.cos.default") > start
    page_of({"program": tintype.export(forward, (torch.ones(2),))}, source=True)


def test_every_number_is_in_its_table() -> None:
    for program in (encoder_program(), joint_program()):
        data = data_of(program, source=True)
        for number, node in enumerate(data["nodes"]):
            assert 0 <= node["type"] < len(data["types"]) and 0 <= node["module"] < len(data["modules"])
            assert all(source < number for source in node.get("inputs", ()))
        for module in data["modules"]:
            assert module["parent"] is None or data["modules"][module["parent"]]


def test_model_explorer_graphs_are_whole() -> None:
    found = model_explorer_data({"encoder": encoder_program()})
    json.dumps(found, allow_nan=False)
    (graph,) = found["graphs"]
    ids = {node["id"] for node in graph["nodes"]}
    assert len(ids) == len(graph["nodes"])
    assert all(edge["sourceNodeId"] in ids for node in graph["nodes"] for edge in node["incomingEdges"])
    gelu = next(node for node in graph["nodes"] if node["label"] == "aten.gelu.default")
    assert gelu["namespace"] == "layers/0 (Block)"


def test_programs_that_come_from_files_have_pages(tmp_path) -> None:
    path = tmp_path / "encoder.tt"
    tintype.save(encoder_program(), path)
    loaded = data_of(tintype.load(path), source=True)
    fresh = data_of(encoder_program(), source=True)
    assert loaded["modules"] == fresh["modules"] and loaded["contract"] == fresh["contract"]
    assert [node["name"] for node in loaded["nodes"]] == [node["name"] for node in fresh["nodes"]]


def test_numbers_that_vary_are_inputs_of_the_page() -> None:
    shapes = {"x": None, "count": tintype.Dim.DYNAMIC, "scale": tintype.Dim.DYNAMIC}
    program = tintype.export(
        lambda x, count, scale: x * count * scale, (torch.ones(2), 3, 0.5), dynamic_shapes=shapes
    )
    inputs = data_of(program)["contract"]["inputs"]
    assert [each["kind"] for each in inputs] == ["tensor", "number", "number"]
    assert len(inputs[1]["sizes"]) == 1 and inputs[2]["sizes"] == []
    assert "count" in str(program)


def test_graphs_that_run_once_are_counted() -> None:
    def forward(x):
        with torch.no_grad():
            y = x @ x
        return y + x

    (entry,) = data_of(tintype.export_for_training(forward, (torch.ones(4, 4),)))["modules"][:1]
    assert "without_formula" not in entry


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_weights(layout: torch.layout) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("matrix", torch.eye(3).to_sparse(layout=layout))

        def forward(self, x):
            return self.matrix @ x

    program = tintype.export(Model(), (torch.ones(3, 2),))
    page = page_of({"sparse": program}, statistics=True, source=True)
    names = page.data["programs"][0]["weights"]  # the parts that it consists of
    assert len(names) > 1 and all(name.startswith("matrix.") for name in names)
    assert "matrix." in str(program)


def test_costs_of_branches_and_loops() -> None:
    weight = torch.ones(3, 3)

    def model(x: torch.Tensor) -> Any:
        either = tintype.cond(x.sum() > 0, lambda x: x @ weight, lambda x: x + 1, (x,))
        same = tintype.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + 1, (x,))
        rows = tintype.map(lambda row: row * 2 + 1, x)
        _, kept = tintype.scan(lambda carry, row: (carry + row, carry @ weight), torch.zeros(3), x)
        (grown,) = tintype.while_loop(lambda a: a.sum() < 10, lambda a: (a + 1,), (x,))
        return either, same, rows, kept, grown

    program = tintype.export(model, (torch.ones(4, 3),), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and graphs_of(node)]
    assert [str(operations_of(node)) for node in nodes] == ["18*s0", "3*s0", "6*s0", "21*s0", "None"]
    assert [str(operations_of_a_step(node)) for node in nodes] == ["None", "None", "None", "None", "6*s0 + 1"]
    data = program.view().data["programs"][0]
    (loop,) = (node for node in data["nodes"] if node.get("operator", "").endswith("while_loop"))
    assert loop["operations"] is None and "step" in loop
