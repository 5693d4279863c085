"""Several programs in one file: what they share is stored once, and shared again when they are loaded."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import tintype
from tests.serde.programs import archive_of, edited_json, entries_of, everything, loaded, saved_bytes, small
from tintype.errors import FileFormatError, InvalidRequestError
from tintype.serde import schema
from tintype.serde.description import MOST_PROGRAMS

Programs = dict[str, tintype.ExportedProgram]


class Twice(nn.Module):
    """A model with two ways to call it, a tied weight, a table and a buffer that calls change."""

    def __init__(self, width: int = 300) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.register_buffer("calls", torch.zeros(2))
        self.table = torch.arange(float(width))

    def forward(self, x: torch.Tensor, deep: bool) -> torch.Tensor:
        self.calls[0] += 1
        x = self.first(x)
        return self.second(x).relu() + self.table if deep else x + self.table


def of_one_model() -> Programs:
    torch.manual_seed(0)
    model = Twice()
    x = torch.ones(2, 300)
    return {name: tintype.export(model, (x, name == "deep")) for name in ("flat", "deep")}


def bytes_of(programs: Programs, **options: Any) -> bytes:
    file = io.BytesIO()
    tintype.save(programs, file, **options)
    return file.getvalue()


def memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def saved_to(path: Path, programs: Programs) -> Path:
    tintype.save(programs, path)
    return path


LOADERS: dict[str, Callable[[bytes, Path], Programs]] = {
    "mapped": lambda content, folder: tintype.load(_written(content, folder)),
    "read": lambda content, folder: tintype.load(_written(content, folder), mmap=False),
    "from an open file": lambda content, folder: loaded(content),
}


def _written(content: bytes, folder: Path) -> Path:
    path = folder / "programs.tt"
    path.write_bytes(content)
    return path


def test_programs_come_back_by_name_and_compute_what_they_did() -> None:
    programs = of_one_model()
    found = loaded(bytes_of(programs))
    assert type(found) is dict and list(found) == ["flat", "deep"]
    x = torch.randn(2, 300)
    for name, program in programs.items():
        deep = name == "deep"
        assert torch.equal(found[name].module()(x, deep), program.module()(x, deep))
        assert found[name].same_structure(program)
        assert found[name].code == program.code  # with the lines that nodes come from


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_what_programs_of_one_model_share_they_share_again(load: Any, tmp_path: Path) -> None:
    flat, deep = load(bytes_of(of_one_model()), tmp_path).values()
    for name in ("first.weight", "first.bias", "second.weight", "calls"):
        assert flat.state_dict[name] is deep.state_dict[name]
    assert flat.state_dict["first.weight"] is flat.state_dict["second.weight"]


def test_the_file_of_two_programs_is_not_much_larger_than_of_one() -> None:
    programs = of_one_model()
    assert len(bytes_of(programs)) <= 1.1 * len(saved_bytes(programs["deep"]))


def test_a_file_of_one_program_says_what_it_said_before() -> None:
    entries = entries_of(saved_bytes(small()))
    assert list(entries) == ["format.json", "program.json", "weights.safetensors", "examples.safetensors"]
    assert msgspec.json.decode(entries["format.json"])["format"] == [1, 1]
    assert "returned" not in msgspec.json.decode(entries["program.json"])


def test_saving_is_canonical() -> None:
    content = bytes_of(of_one_model())
    assert bytes_of(of_one_model()) == content
    assert bytes_of(loaded(content)) == content


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_equal_memories_of_different_programs_are_stored_once_and_stay_apart(load: Any, tmp_path: Path) -> None:
    """Identity is lost when programs were saved on their own; a teacher and its student begin equal too."""
    apart = {name: loaded(saved_bytes(program)) for name, program in of_one_model().items()}
    content = bytes_of(apart)
    assert len(content) <= 1.1 * len(saved_bytes(apart["deep"]))
    flat, deep = load(content, tmp_path).values()
    weights = [program.state_dict["first.weight"] for program in (flat, deep)]
    assert torch.equal(*weights) and memory(weights[0]) != memory(weights[1])
    with torch.no_grad():
        weights[1].add_(1)
    assert torch.equal(weights[0], apart["flat"].state_dict["first.weight"])
    again = loaded(bytes_of({"flat": flat, "deep": deep}))
    assert torch.equal(again["deep"].state_dict["first.weight"], weights[1])
    assert torch.equal(again["flat"].state_dict["first.weight"], weights[0])


def test_equal_memories_of_one_program_stay_apart_too() -> None:
    def of_zeros() -> tintype.ExportedProgram:
        model = nn.BatchNorm1d(4, affine=False)
        model.register_buffer("running_var", torch.zeros(4))
        return tintype.export(model, (torch.ones(2, 4),))

    found = loaded(bytes_of({"a": of_zeros(), "b": of_zeros(), "c": of_zeros()}))
    buffers = [value for program in found.values() for value in program.state_dict.values() if value.dim()]
    assert len({memory(buffer) for buffer in buffers}) == len(buffers) == 6


def test_decomposed_programs_share_with_the_others() -> None:
    program = of_one_model()["deep"]
    both = loaded(bytes_of({"deep": program, "core": program.run_decompositions()}))
    assert both["deep"].state_dict["first.weight"] is both["core"].state_dict["first.weight"]


def test_views_that_programs_have_of_one_memory() -> None:
    whole = torch.arange(10.0)

    class Part(nn.Module):
        def __init__(self, part: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("part", part)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.part

    parts = {"head": whole[:4], "tail": whole[2:]}
    found = loaded(bytes_of({name: tintype.export(Part(part), (torch.ones(()),)) for name, part in parts.items()}))
    found["head"].state_dict["part"][2] = 70
    assert found["tail"].state_dict["part"].tolist() == [70, 3, 4, 5, 6, 7, 8, 9]


def test_one_entry_can_be_loaded() -> None:
    content = bytes_of(of_one_model())
    program = loaded(content, entry="deep")
    assert isinstance(program, tintype.ExportedProgram)
    assert program.module()(torch.ones(2, 300), True).shape == (2, 300)
    with pytest.raises(InvalidRequestError, match="no program 'decode'; it has 'flat', 'deep'"):
        loaded(content, entry="decode")
    with pytest.raises(InvalidRequestError, match="one program, which has no name, and not 'decode'"):
        loaded(saved_bytes(small()), entry="decode")


def test_a_mapping_of_one_program_is_a_mapping_again() -> None:
    assert list(loaded(bytes_of({"only": small()}))) == ["only"]


def test_extra_files_and_no_metadata() -> None:
    extra: dict[str, Any] = {}
    content = bytes_of(of_one_model(), extra_files={"tokens": "a b"}, metadata=False)
    loaded(content, extra_files=extra)
    assert extra == {"tokens": "a b"}
    assert os.path.basename(__file__).encode() not in content


@pytest.mark.parametrize("name", ["", "a\nb", 3, None, "\0", "\ud800", "x" * 1001], ids=repr)
def test_what_is_no_name_of_a_program(name: Any) -> None:
    with pytest.raises(InvalidRequestError, match="can't be the name of a program"):
        bytes_of({name: small()})


def test_what_is_no_program() -> None:
    with pytest.raises(InvalidRequestError, match="saved as 'a' must be an ExportedProgram, but got Linear"):
        bytes_of({"a": nn.Linear(1, 1)})  # type: ignore[dict-item]
    with pytest.raises(InvalidRequestError, match=f"holds 1 to {MOST_PROGRAMS} programs, but got 0"):
        bytes_of({})
    program = small()
    with pytest.raises(InvalidRequestError, match="but got 300"):
        bytes_of({str(number): program for number in range(300)})


# --- files that lie -----------------------------------------------------------------------------------------------

SEVERAL = bytes_of({"a": everything(), "b": small()})


def programs_json(edit: Callable[[Any], Any]) -> bytes:
    return edited_json(SEVERAL, "programs.json", edit)


FAULTS: dict[str, tuple[bytes, str]] = {
    "two of a name": (programs_json(lambda p: {**p, "names": ["a", "a"]}), "not one each"),
    "no names": (programs_json(lambda p: {**p, "names": []}), "no names"),
    "absurdly many": (programs_json(lambda p: {**p, "names": [str(n) for n in range(9999)]}), "not one each"),
    "a name of several lines": (programs_json(lambda p: {**p, "names": ["a", "b\nc"]}), "not one each"),
    "one that is not there": (programs_json(lambda p: {**p, "names": ["a", "b", "c"]}), "no entry 'programs/2.json'"),
    "no table of names": (programs_json(lambda p: {}), "missing required field `names`"),
    "tensors that are not there": (programs_json(lambda p: {**p, "tensors": p["tensors"][:2]}), "no tensor"),
    "storages that are not there": (programs_json(lambda p: {**p, "storages": p["storages"][:1]}), "no storage"),
    "lines that are not there": (programs_json(lambda p: {**p, "frames": []}), "metadata has no entry"),
    "its own tensors": (
        edited_json(SEVERAL, "programs/1.json", lambda p: {**p, "storages": [["weights", "weight", 24]]}),
        "not the file's",
    ),
    "a version that can't have them": (
        edited_json(SEVERAL, "format.json", lambda info: {**info, "minimum_reader": [1, 0]}),
        "says that it has one",
    ),
    "one program and several": (
        archive_of({**entries_of(SEVERAL), "program.json": entries_of(SEVERAL)["programs/1.json"]}),
        "says that it has one",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_file_that_lies(fault: tuple[bytes, str]) -> None:
    content, message = fault
    with pytest.raises(FileFormatError, match=message):
        loaded(content)


def test_no_more_memories_than_programs_have_the_same_bytes() -> None:
    """Copies of bytes that are in a file once would be a way to ask for any amount of memory."""

    def edit(shared: Any) -> None:
        first = next(tensor for tensor in shared["tensors"] if shared["storages"][tensor[0]][0] == "weights")
        for _ in range(3):
            shared["tensors"].append([len(shared["storages"]), *first[1:]])
            shared["storages"].append(shared["storages"][first[0]])

    content = programs_json(edit)
    count = len(msgspec.json.decode(entries_of(content)["programs.json"])["tensors"])

    def use_them(program: Any) -> None:
        program["constants"] = [[f"c{number}", [17, number]] for number in range(count - 3, count)]

    with pytest.raises(FileFormatError, match="more memories have the data of"):
        loaded(edited_json(content, "programs/1.json", use_them))


def test_older_readers_refuse_the_file() -> None:
    info = msgspec.json.decode(entries_of(SEVERAL)["format.json"])
    assert tuple(info["minimum_reader"]) == tuple(info["format"]) == schema.SEVERAL_PROGRAMS > schema.ONE_PROGRAM
