"""What users note on programs and rely on: annotations, names of classes, examples, adapters of arguments."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.traceback import annotate, preserve_node_meta

import tintype
from tests.export.modes import assert_same


class Staged(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with annotate({"stage": 1}):
            x = self.first(x)
            with annotate({"inner": "yes"}):
                x = x.relu()
        x = x + 1
        with annotate({"stage": 2}):
            return self.second(x)


def saved(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file)


def notes(graph: Any) -> list[tuple[str, Any]]:
    """Operators with what was noted on them; torch adds notes of its own, with an underscore."""
    nodes = [(str(node.target), node.meta.get("custom")) for node in graph.nodes if node.op == "call_function"]
    own = [(target, {k: v for k, v in (said or {}).items() if not k.startswith("_")}) for target, said in nodes]
    return [(target, said or None) for target, said in own]


EXPECTED = [
    ("aten.linear.default", {"stage": 1}),
    ("aten.relu.default", {"stage": 1, "inner": "yes"}),
    ("aten.add.Tensor", None),
    ("aten.linear.default", {"stage": 2}),
]
FORMS: dict[str, Any] = {
    "exported": lambda program, x: program,
    "interpreted": lambda program, x: tintype.export(Staged(), (x,), strict=True),
    "saved": lambda program, x: saved(program),
    "captured again": lambda program, x: tintype.export(program.module(), (x,)),
    "saved and captured again": lambda program, x: tintype.export(saved(program).module(), (x,)),
}


@pytest.mark.parametrize("form", FORMS)
def test_annotations_are_kept(form: str) -> None:
    x = torch.randn(2, 4)
    program = tintype.export(Staged(), (x,))
    assert notes(FORMS[form](program, x).graph) == EXPECTED


def test_torch_gives_the_same_annotations() -> None:
    x = torch.randn(2, 4)
    with preserve_node_meta():
        assert notes(torch.export.export(Staged(), (x,)).graph) == EXPECTED


def test_annotations_of_what_operators_consist_of() -> None:
    x = torch.randn(2, 4)
    for program in (tintype.export(Staged(), (x,)), saved(tintype.export(Staged(), (x,)))):
        core = notes(program.run_decompositions().graph)
        assert [custom for target, custom in core if "addmm" in target] == [{"stage": 1}, {"stage": 2}]


def test_annotations_in_modules_and_joint_graphs() -> None:
    x = torch.randn(2, 4)
    tree = tintype.unflatten(tintype.export(Staged(), (x,)))
    assert notes(tree.first.graph) == [EXPECTED[0]] and notes(tree.second.graph) == [EXPECTED[3]]

    class Loss(Staged):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).sum()

    joint = tintype.export_joint(Loss(), (x,))
    products = [custom for target, custom in notes(joint.graph) if target == "aten.mm.default"]
    assert {"stage": 1} in products and {"stage": 2} in products


def test_what_users_write_into_a_node_survives_decomposition() -> None:
    x = torch.randn(2, 4)
    program = tintype.export(nn.Linear(4, 4), (x,))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    node.meta["custom"] = {"mine": 3}
    assert notes(program.run_decompositions().graph)[-1] == ("aten.addmm.default", {"mine": 3})
    assert notes(saved(program).run_decompositions().graph)[-1] == ("aten.addmm.default", {"mine": 3})


# --- unflatten ---------------------------------------------------------------------------------------------------


def test_modules_say_what_class_they_were() -> None:
    x = torch.randn(2, 4)
    for program in (tintype.export(Staged(), (x,)), saved(tintype.export(Staged(), (x,)))):
        tree = tintype.unflatten(program)
        theirs = torch.export.unflatten(torch.export.export(Staged(), (x,)))
        assert tree.first.type_name() == theirs.first.type_name() == "torch.nn.modules.linear.Linear"


class OnlyTheFirst(tintype.FlatArgsAdapter):
    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> list[Any]:
        assert isinstance(obj, nn.Module)
        return input_args[: target_spec.num_leaves]


def test_an_adapter_is_asked_for_arguments_of_another_structure() -> None:
    x = torch.randn(2, 4)
    model = Staged()
    tree = tintype.unflatten(tintype.export(model, (x,)), flat_args_adapter=OnlyTheFirst())
    assert_same(tree(x), model(x))
    assert_same(tree(x, torch.ones(1), {"more": 3}), model(x))
    with pytest.raises(tintype.InputStructureError, match="the adapter of arguments returned 0 values"):
        tree()
    with pytest.raises(tintype.InputMismatchError):
        tree(torch.ones(3, 4), 5)
    with pytest.raises(tintype.InputStructureError):
        tintype.unflatten(tintype.export(model, (x,)))(x, 5)


def test_dead_code_may_be_gone_before_a_program_is_unflattened() -> None:
    class WithDeadCode(Staged):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.second(x)
            return self.first(x)

    x = torch.randn(2, 4)
    model = WithDeadCode()
    program = tintype.export(model, (x,))
    program.graph_module.graph.eliminate_dead_code()
    program.graph_module.recompile()
    program.validate()
    assert_same(tintype.unflatten(program)(x), model(x))


def test_signatures_are_preserved_again_and_after_decomposition() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: dict[str, Any]) -> dict[str, torch.Tensor]:
            return {"a": x * scale["by"], "b": x + 1}

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = self.inner(x, scale={"by": 2})
            return result["a"] + result["b"]

    x = torch.randn(3)
    options: dict[str, Any] = {"preserve_module_call_signature": ("inner",)}
    program = tintype.export(Outer(), (x,), **options)
    again = tintype.export(tintype.unflatten(program.run_decompositions()), (x,), **options)
    for tree in (tintype.unflatten(again), tintype.unflatten(again.run_decompositions())):
        assert_same(tree(x), Outer()(x))
        assert_same(tree.inner(x, scale={"by": 2}), Inner()(x, scale={"by": 2}))


# --- examples -----------------------------------------------------------------------------------------------------


def test_other_examples() -> None:
    model = nn.Linear(4, 2)
    program = tintype.export(model, (torch.ones(3, 4),))
    other = torch.randn(3, 4)
    program.example_inputs = ((other,), {})
    assert program.example_inputs is not None and program.example_inputs[0][0] is other
    assert_same(saved(program).example_inputs[0][0], other)
    program.example_inputs = None
    assert program.example_inputs is None
    for wrong in ((other,), [other], ((torch.ones(4, 4),), {}), ((), {})):
        with pytest.raises(tintype.TintypeError):
            program.example_inputs = wrong
