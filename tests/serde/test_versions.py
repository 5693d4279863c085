"""Files of other versions: older ones load for ever, newer ones as far as they can, with a word about it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import tintype
from tests.export.modes import assert_same
from tests.serde.golden.make import GOLDEN, PROGRAMS, golden_path, schema_text, version_of
from tests.serde.programs import edited_json, entries_of, loaded, saved_bytes, small
from tintype.errors import FileFormatError, FileVersionError
from tintype.ir.observations import FACTS, KEYS, OF_CONTAINERS, SURROUNDINGS
from tintype.serde import schema, upgrade
from tintype.serde.upgrade import calls_of, rename_operator


def of_version(**changes: Any) -> bytes:
    return edited_json(saved_bytes(small()), "format.json", lambda info: {**info, **changes})


def test_a_newer_minor_version_loads_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"wrote this file in format 1\.7, newer than this tintype's 1\."):
        program = loaded(of_version(format=[1, 7]))
    assert program.module()(torch.ones(4, 3)).shape == (4, 2)


def test_what_a_newer_minor_version_adds_is_left_out() -> None:
    content = of_version(format=[1, 7])
    content = edited_json(content, "program.json", lambda program: {**program, "invented_later": [1, {"a": 2}]})

    def longer_nodes(program: Any) -> None:
        for node in program["graphs"][0][0]:
            node.append("a field that was added at the end")

    content = edited_json(content, "program.json", longer_nodes)
    with pytest.warns(UserWarning, match="left out"):
        assert loaded(content).module()(torch.ones(4, 3)).shape == (4, 2)


def test_a_newer_major_version_is_refused() -> None:
    with pytest.raises(FileVersionError, match=r"format 2\.0, and this tintype reads up to 1\.\d+\n.*newer version"):
        loaded(of_version(format=[2, 0], minimum_reader=[2, 0]))


def test_a_file_that_needs_a_newer_reader_is_refused() -> None:
    with pytest.raises(FileVersionError, match="newer version of tintype"):
        loaded(of_version(format=[1, 7], minimum_reader=[1, 5]))


def test_a_newer_operator_set_is_refused() -> None:
    with pytest.raises(FileVersionError, match=r"operator set 99, and this tintype knows them up to"):
        loaded(of_version(operator_set=99))


@pytest.mark.parametrize("format", [[0, 1], [-1, 0], [1, -1]])
def test_versions_that_never_were(format: list[int]) -> None:
    with pytest.raises(FileFormatError, match="no format"):
        loaded(of_version(format=format))


def test_a_file_says_who_wrote_it() -> None:
    info = msgspec.json.decode(entries_of(saved_bytes(small()))["format.json"])
    assert info == {
        "format": [1, 1],  # what files of one program have said since they could hold observations
        "minimum_reader": [1, 0],
        "operator_set": schema.OPERATOR_SET,
        "producer": f"tintype {tintype.__version__}",
        "torch": torch.__version__,
    }


def test_an_upgrader_rewrites_programs_of_an_older_operator_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if linear had been called ``line`` in operator set 1, with its bias as a keyword."""

    def to_set_2(program: schema.Program) -> None:
        rename_operator(program, "torch.ops.aten.line.default", "torch.ops.aten.linear.default")
        for node in calls_of(program, "torch.ops.aten.linear.default"):
            if "offset" in node.kwargs:
                node.args.append(node.kwargs.pop("offset"))

    def as_in_set_1(program: Any) -> None:
        program["functions"] = ["torch.ops.aten.line.default"]
        (call,) = [node for node in program["graphs"][0][0] if node[0] == schema.CALL]
        call[4] = {"offset": call[3].pop()}

    content = edited_json(saved_bytes(small()), "program.json", as_in_set_1)
    with pytest.raises(FileFormatError, match=r"'torch.ops.aten.line.default', which is no operator here"):
        loaded(content)
    monkeypatch.setitem(upgrade.UPGRADERS, 1, [to_set_2])
    monkeypatch.setattr(schema, "OPERATOR_SET", 2)
    program = loaded(content)
    torch.manual_seed(0)
    assert_same(program.module()(torch.ones(4, 3)), torch.nn.Linear(3, 2)(torch.ones(4, 3)))
    assert msgspec.json.decode(entries_of(saved_bytes(program))["format.json"])["operator_set"] == 2


# --- files that were written once -----------------------------------------------------------------------------------

FILES = sorted(GOLDEN.glob("*.tt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_of_every_version_load_and_compute_what_they_did(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        extra: dict[str, Any] = {}
        program = tintype.load(path, extra_files=extra)
    if isinstance(program, dict):
        assert program
        for name, part in program.items():
            assert_computes(part, extra[f"expected/{name}"])
    else:
        assert_computes(program, extra["expected.json"])


def assert_computes(program: tintype.ExportedProgram, numbers: str) -> None:
    args, kwargs = program.example_inputs
    results = torch.utils._pytree.tree_leaves(program.module()(*args, **kwargs))
    expected = msgspec.json.decode(numbers)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        if isinstance(result, torch.Tensor):
            wanted = torch.tensor(wanted, dtype=result.dtype).reshape(result.shape)
            torch.testing.assert_close(result.detach(), wanted, rtol=1e-4, atol=1e-4)
        else:
            assert result == wanted


def test_there_are_files_of_this_version() -> None:
    assert {golden_path(name, version_of(name)) for name in PROGRAMS} <= set(FILES)
    assert golden_path("several", schema.SEVERAL_PROGRAMS) in FILES


def test_the_schema_of_a_version_does_not_change() -> None:
    """A change of the schema is a new version: raise FORMAT_MINOR and run ``python -m tests.serde.golden.make``."""
    path = GOLDEN / f"schema-{schema.FORMAT_MAJOR}.{schema.FORMAT_MINOR}.json"
    assert path.read_text(encoding="utf-8") == schema_text()


def test_the_specification_has_every_question() -> None:
    page = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
    missing = [name for name in (*FACTS, *SURROUNDINGS, KEYS, *OF_CONTAINERS) if f"`{name}`" not in page]
    assert not missing
