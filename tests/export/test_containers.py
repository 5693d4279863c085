"""Containers that are registered by hand and on sight, and their stand-ins where a library is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import tintype
from tests.export.modes import capture
from tests.generation.architectures import llama
from tintype import tree


class Grid:
    """A tensor with a unit."""

    def __init__(self, cells: torch.Tensor, unit: str = "mm", count: int = 3) -> None:
        self.cells, self.unit, self.count = cells, unit, count


class Scaled(Grid):
    """A container whose count is a setting."""


class Box:
    """Has its parts under other names than its attributes."""

    def __init__(self, inside: Any, label: str) -> None:
        self._inside, self._label = inside, label


tintype.register_container(Grid)
tintype.register_container(Scaled, settings=["count"], name="tests.Scaled")
tintype.register_container(
    Box, lambda box: ({"inside": box._inside}, box._label), lambda parts, label: Box(parts["inside"], label)
)


def double(grid: Any) -> Any:
    return type(grid)(grid.cells * 2, grid.unit, grid.count)


def test_attributes_are_parts_and_settings(mode: str) -> None:
    class Model(nn.Module):
        def forward(self, grid: Grid) -> Grid:
            return Grid(grid.cells * 2, grid.unit, grid.count)

    module = capture(mode, Model(), (Grid(torch.ones(3)),)).module()
    result = module(Grid(torch.ones(3)))
    assert type(result) is Grid and result.unit == "mm" and result.cells.tolist() == [2, 2, 2]
    with pytest.raises(tintype.errors.InputStructureError):
        module(Grid(torch.ones(3), "cm"))


def test_parts_are_named_by_attribute() -> None:
    assert [tree.path_text(path) for path, _ in tree.flatten_with_paths([Grid(torch.ones(3))])[0]] == [
        "[0].cells",
        "[0].count",
    ]
    program = tintype.export(double, (Grid(torch.ones(3)),))
    assert program.graph_signature.user_inputs == ("grid_cells", 3)


def test_a_number_is_a_part_or_a_setting() -> None:
    assert len(tree.leaves(Grid(torch.ones(3)))) == 2
    assert len(tree.leaves(Scaled(torch.ones(3)))) == 1


def test_functions_of_the_users(mode: str, tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, box: Box) -> Box:
            return Box({"sum": box._inside["x"].sum()}, "sum of " + box._label)

    result = capture(mode, Model(), (Box({"x": torch.ones(3)}, "ones"),)).module()(Box({"x": torch.ones(3)}, "ones"))
    assert type(result) is Box and result._label == "sum of ones" and result._inside["sum"] == 3


def test_a_namespace_stands_for_an_object() -> None:
    module = tintype.export(double, (Grid(torch.ones(3)),)).module()
    assert module(SimpleNamespace(cells=torch.ones(3), count=3)).cells.tolist() == [2, 2, 2]
    with pytest.raises(tintype.errors.InputStructureError):
        module(SimpleNamespace(cells=torch.ones(3), count=3, unit="cm"))
    with pytest.raises(tintype.errors.InputStructureError):
        module(SimpleNamespace(cells=torch.ones(3)))
    with pytest.raises(tintype.errors.InputStructureError):
        module(Scaled(torch.ones(3)))  # whatever it has in common with a Grid


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "expects a class"),
        ((Grid,), "Grid is a container already"),
        ((nn.Linear, lambda value: ({}, None)), "both of flatten and unflatten"),
    ],
)
def test_what_can_not_be_registered(arguments: Any, message: str) -> None:
    with pytest.raises(tintype.errors.InvalidRequestError, match=message):
        tintype.register_container(*arguments)


def test_a_program_may_change_dictionaries_of_settings() -> None:
    class Counted:
        def __init__(self) -> None:
            self.sizes = {0: None}
            self.value = torch.ones(3)

    tintype.register_container(Counted, settings=["sizes"])

    def program(counted: Counted) -> Any:
        counted.sizes[0] = 7  # type: ignore[assignment]
        return counted

    module = tintype.export(program, (Counted(),)).module()
    assert module(Counted()).sizes == {0: 7}


def test_an_object_that_is_returned_is_the_callers(mode: str) -> None:
    class Model(nn.Module):
        def forward(self, value: torch.Tensor, grids: list[Grid]) -> Any:
            grids[0].cells = grids[0].cells + value
            grids[0].count += 1
            return {"all": (value, grids[0]), "other": Grid(value)}

    module = capture(mode, Model(), (torch.ones(3), [Grid(torch.ones(3)), Grid(torch.ones(3))])).module()
    first, second = Grid(torch.ones(3)), Grid(torch.ones(3))
    for arguments in ((torch.ones(3), [first, second]),):
        result = module(*arguments)
        assert result["all"][1] is first and result["other"] is not second
    assert first.cells.tolist() == [2, 2, 2] and first.count == 4
    assert second.cells.tolist() == [1, 1, 1]


def test_an_object_is_found_however_arguments_are_given() -> None:
    def program(a: Grid, b: Grid, *, c: Grid) -> Any:
        for grid in (a, b, c):
            grid.cells = grid.cells * 2
        return c, b, a

    grids = [Grid(torch.ones(2)), Grid(torch.ones(3)), Grid(torch.ones(4))]
    example = [Grid(grid.cells) for grid in grids]
    module = tintype.export(program, tuple(example[:2]), {"c": example[2]}).module()
    assert all(grid.cells.sum() == len(grid.cells) for grid in example)
    flat = tintype.unflatten(tintype.export(program, tuple(example[:2]), {"c": example[2]}))
    assert flat(*example[:2], c=example[2])[2] is example[0] and example[0].cells.sum() == 4
    calls = (
        lambda a, b, c: module(a, b, c=c),
        lambda a, b, c: module(a, c=c, b=b),
        lambda a, b, c: module(b=b, c=c, a=a),
    )
    for call in calls:
        results = call(*grids)
        assert [id(grid) for grid in results] == [id(grid) for grid in reversed(grids)]
    assert [grid.cells[0].item() for grid in grids] == [8, 8, 8]


def test_an_object_that_the_program_changes_is_refused_unless_it_is_returned() -> None:
    def changes(grid: Grid) -> torch.Tensor:
        grid.cells = grid.cells + 1
        return grid.cells.sum()

    def returns(grid: Grid) -> Any:
        grid.cells = grid.cells + 1
        return {"grid": [grid]}

    def writes(grid: Grid) -> torch.Tensor:
        grid.cells.add_(1)
        grid.unit = "mm"
        return grid.cells.sum()

    with pytest.raises(tintype.errors.StateChangedError, match=r"given as \*args\[0\].cells"):
        tintype.export(changes, (Grid(torch.ones(3)),))
    assert tintype.export(returns, (Grid(torch.ones(3)),)).module()(Grid(torch.ones(3)))["grid"][0].cells.sum() == 6
    grid = Grid(torch.ones(3))
    tintype.export(writes, (Grid(torch.ones(3)),)).module()(grid)
    assert grid.cells.tolist() == [2, 2, 2]


# --- of libraries ----------------------------------------------------------------------------------------


def test_batches_of_a_tokenizer() -> None:
    batch = transformers.BatchEncoding({"input_ids": torch.ones(2, 3), "attention_mask": torch.ones(2, 3)})
    features = transformers.BatchFeature({"pixel_values": torch.ones(2, 3)})

    def program(batch: Any, features: Any) -> Any:
        return batch["input_ids"] + batch.attention_mask + features["pixel_values"]

    exported = tintype.export(program, (batch, features), dynamic_shapes="auto")
    assert exported.graph_signature.user_inputs[0] == "batch_input_ids"
    assert exported.module()(batch, features).sum() == 18
    assert tintype.export(lambda **batch: batch["input_ids"] + 1, (), batch).module()(**batch).sum() == 12


def test_every_cache_has_named_parts() -> None:
    self_attention, cross_attention = transformers.DynamicCache(), transformers.DynamicCache()
    for cache in (self_attention, cross_attention):
        cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
    both = transformers.EncoderDecoderCache(self_attention, cross_attention)
    names = [tree.path_text(path) for path, _ in tree.flatten_with_paths(both)[0]]
    assert ".self_attention_cache.layers[0].keys" in names
    assert ".cross_attention_cache.layers[0].values" in names
    assert ".is_updated[0]" in names


def test_a_cache_of_fixed_size_is_written_in_place() -> None:
    model = llama().model

    def cache(batch: int) -> Any:
        made = transformers.StaticCache(config=model.config, max_cache_len=12)
        made.early_initialization(batch, 2, 8, torch.float32, torch.device("cpu"))
        with torch.no_grad():
            model(torch.arange(3 * batch).reshape(batch, 3) + 3, past_key_values=made)
        return made

    def step(batch: int, number: int) -> dict[str, Any]:
        return {
            "input_ids": torch.full((batch, 1), number + 5),
            "position_ids": torch.full((batch, 1), 3 + number),
        }

    with torch.no_grad():
        program = tintype.export(model, (), {**step(2, 0), "past_key_values": cache(2)}, dynamic_shapes="auto")
        module = program.module()
        for batch in (2, 1, 3):
            mine, theirs = cache(batch), cache(batch)
            for number in range(3):
                result = module(**step(batch, number), past_key_values=mine)
                expected = model(**step(batch, number), past_key_values=theirs)
                torch.testing.assert_close(result.logits, expected.logits)
                for ours, other in zip(mine.layers, theirs.layers, strict=True):
                    torch.testing.assert_close(ours.keys, other.keys)
                    assert ours.cumulative_length == other.cumulative_length


WITHOUT_TRANSFORMERS = """
import sys
from types import SimpleNamespace
import torch, tintype
prefill, decode = tintype.load(sys.argv[1]).module(), tintype.load(sys.argv[2]).module()
ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
result = prefill(input_ids=ids, past_key_values=SimpleNamespace(layers=[]))
tokens = []
for step in range(4):
    token = result.logits[:, -1:].argmax(-1)
    tokens.append(token[:, 0].tolist())
    length = result.past_key_values.layers[0].keys.shape[2] + 1
    mask = torch.ones(2, length, dtype=torch.long)
    result = decode(input_ids=token, past_key_values=result.past_key_values, attention_mask=mask)
assert type(result).__name__ == "CausalLMOutputWithPast" and result["logits"] is result[0]
assert "transformers" not in sys.modules
tintype.save(tintype.load(sys.argv[2]), sys.argv[2] + ".again")
print(tokens)
"""


def test_programs_with_caches_run_without_the_library(tmp_path: Path) -> None:
    architecture = llama()
    model = architecture.model
    with torch.no_grad():
        ids = torch.tensor([[5, 6, 7, 8], [8, 9, 10, 11]])
        prefill = {"input_ids": ids, "past_key_values": transformers.DynamicCache()}
        tintype.save(tintype.export(model, (), prefill, dynamic_shapes="auto"), tmp_path / "prefill.tt")
        cache = model(ids).past_key_values
        mask = torch.ones(2, 5, dtype=torch.long)
        decode = {"input_ids": ids[:, :1], "past_key_values": cache, "attention_mask": mask}
        tintype.save(tintype.export(model, (), decode, dynamic_shapes="auto"), tmp_path / "decode.tt")
        expected = model.generate(ids[:, :3], max_new_tokens=4, min_new_tokens=4, do_sample=False)[:, 3:]
    files = [str(tmp_path / name) for name in ("prefill.tt", "decode.tt")]
    command = [sys.executable, "-c", WITHOUT_TRANSFORMERS, *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": "."})
    assert run.returncode == 0, run.stderr
    assert eval(run.stdout) == expected.T.tolist()
    again = tintype.load(tmp_path / "decode.tt.again")  # where the library is, its own classes are used
    assert type(again.module()(**decode).past_key_values) is transformers.DynamicCache


@pytest.mark.parametrize("name", ["transformers.cache_utils.DynamicCache()", "diffusers.x-y.Z", "transformers..A"])
def test_a_stand_in_has_a_proper_name(name: str) -> None:
    assert tree.type_named(name) is None


def test_registrations_that_can_not_work_are_refused() -> None:
    class Slots:
        """Has no dictionary of attributes."""

        __slots__ = ("a",)

    class Table(dict[str, Any]):
        """Holds more than its attributes."""

    class Plain:
        """Could be registered."""

    for cls in (Slots, Table, torch.Tensor, nn.Module):
        with pytest.raises(tintype.errors.InvalidRequestError):
            tintype.register_container(cls)
    options: list[dict[str, Any]] = [
        {"settings": 3}, {"settings": "abc"}, {"name": 3}, {"name": ""}, {"flatten": 3, "unflatten": 4},
    ]  # fmt: skip
    for given in options:
        with pytest.raises(tintype.errors.InvalidRequestError):
            tintype.register_container(Plain, **given)
    tintype.register_container(Plain, name="tests.Plain")
    with pytest.raises(tintype.errors.InvalidRequestError, match="another class has the name"):
        tintype.register_container(type("Other", (), {}), name="tests.Plain")


def test_a_container_that_holds_itself_is_refused() -> None:
    grid = Grid(torch.ones(2))
    grid.itself = grid  # type: ignore[attr-defined]
    with pytest.raises(tintype.TintypeError, match="holds itself"):
        tintype.export(lambda value: value.cells * 2, (grid,))


def test_functions_that_return_something_else_are_refused() -> None:
    for number, wrong in enumerate(([1], {"a": 1}, ({"a": 1}, None, None), ([1], None))):
        kind = type(f"Wrong{number}", (), {})
        tintype.register_container(kind, lambda value, wrong=wrong: wrong, lambda parts, _, kind=kind: kind())
        with pytest.raises(tintype.errors.InvalidRequestError, match="flatten of a Wrong"):
            tintype.export(lambda value: torch.ones(1), (kind(),))


def test_sizes_of_an_empty_container_are_refused_with_words() -> None:
    with pytest.raises(tintype.errors.InvalidRequestError, match="dimension 0"):
        tintype.export(lambda v, x: x * 2, ([], torch.ones(2)), dynamic_shapes=({0: tintype.Dim("n")}, None))
