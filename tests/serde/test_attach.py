"""Weights from safetensors files for programs that were exported without them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import tintype
from tests.export.modes import assert_same
from tintype.errors import FileFormatError, InvalidRequestError


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("volatile", torch.ones(4), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(self.embedding(tokens)) * self.scale + self.volatile
        return self.head(hidden + torch.arange(4, device=tokens.device))


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def without_weights() -> tintype.ExportedProgram:
    with torch.device("meta"):
        return tintype.export(
            Model(), (torch.zeros(2, 3, dtype=torch.long),), dynamic_shapes=({1: tintype.Dim("n")},)
        )


def write_shards(model: Model, folder: Path) -> None:
    """As Hugging Face writes a large model: several files, an index, tied weights once."""
    state = dict(model.state_dict())
    del state["head.weight"]
    places = {}
    for number, names in enumerate([["embedding.weight"], ["layer.weight", "layer.bias", "scale"]], 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: state[name] for name in names}, folder / file)
        places.update(dict.fromkeys(names, file))
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
VOLATILE = {"volatile": torch.ones(4)}


def test_shards_with_an_index(model: Model, tmp_path: Path) -> None:
    write_shards(model, tmp_path)
    for source in (tmp_path, str(tmp_path), tmp_path / "model.safetensors.index.json"):
        program = tintype.attach_weights(without_weights(), [source, VOLATILE])
        program.validate()
        assert program.state_dict["head.weight"] is program.state_dict["embedding.weight"]
        assert isinstance(program.state_dict["layer.weight"], nn.Parameter)
        assert_same(program.module()(TOKENS), model(TOKENS))
        assert "meta" not in program.code


def test_the_program_itself_stays_without_weights(model: Model, tmp_path: Path) -> None:
    write_shards(model, tmp_path)
    program = without_weights()
    before = program.code
    tintype.attach_weights(program, [tmp_path, VOLATILE])
    assert program.code == before
    assert program.state_dict["scale"].device.type == "meta"


def test_one_file_and_a_dictionary(model: Model, tmp_path: Path) -> None:
    state = {name: value for name, value in model.state_dict().items() if name != "head.weight"}
    save_file(state, tmp_path / "model.safetensors")
    for source in (tmp_path, tmp_path / "model.safetensors", {**state}):
        program = tintype.attach_weights(without_weights(), [source, VOLATILE])
        assert_same(program.module()(TOKENS), model(TOKENS))


def test_a_program_with_attached_weights_can_be_saved(model: Model, tmp_path: Path) -> None:
    write_shards(model, tmp_path)
    tintype.save(tintype.attach_weights(without_weights(), [tmp_path, VOLATILE]), tmp_path / "model.tt")
    assert_same(tintype.load(tmp_path / "model.tt").module()(TOKENS), model(TOKENS))


def test_a_saved_program_without_weights_gets_them_later(model: Model, tmp_path: Path) -> None:
    write_shards(model, tmp_path)
    tintype.save(without_weights(), tmp_path / "program.tt")
    program = tintype.attach_weights(tintype.load(tmp_path / "program.tt"), [tmp_path, VOLATILE])
    assert_same(program.module()(TOKENS), model(TOKENS))
    assert_same(program.run_decompositions().module()(TOKENS), model(TOKENS))


def test_control_flow_is_moved_to_the_device_too() -> None:
    def function(value: torch.Tensor) -> torch.Tensor:
        return torch.cond(value.sum() > 0, lambda x: x + torch.ones(3, device=x.device), lambda x: x.cos(), (value,))

    program = tintype.attach_weights(tintype.export(function, (torch.ones(3, device="meta"),)), {})
    assert "meta" not in program.code
    assert_same(program.module()(torch.ones(3)), function(torch.ones(3)))


def test_what_is_missing_or_too_much_is_named(model: Model) -> None:
    state: dict[str, Any] = {**model.state_dict(), **VOLATILE}
    del state["scale"]
    state["extra.bias"] = torch.ones(1)
    with pytest.raises(
        InvalidRequestError, match=r"no weights for 1 .*: scale; .*no place for 1 tensors: extra\.bias"
    ):
        tintype.attach_weights(without_weights(), state)
    program = tintype.attach_weights(without_weights(), state, strict=False)
    assert program.state_dict["scale"].device.type == "meta"
    assert program.state_dict["layer.bias"].device.type == "cpu"


def test_weights_of_another_size_or_type(model: Model) -> None:
    for changed in (torch.ones(5), torch.ones(4, dtype=torch.float64)):
        with pytest.raises(InvalidRequestError, match=r"needs scale as torch\.float32 \[4\], but the weights have"):
            tintype.attach_weights(without_weights(), {**model.state_dict(), **VOLATILE, "scale": changed})


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "", "..", "a/b"])
def test_an_index_that_names_files_elsewhere(name: str, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"scale": name}}))
    with pytest.raises(FileFormatError, match="which is not beside it"):
        tintype.attach_weights(without_weights(), index)


def test_files_that_are_no_weights(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="no safetensors files"):
        tintype.attach_weights(without_weights(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(FileFormatError, match="more than there are"):
        tintype.attach_weights(without_weights(), tmp_path)
    (tmp_path / "x.safetensors.index.json").write_text("[]")
    with pytest.raises(FileFormatError, match="no index"):
        tintype.attach_weights(without_weights(), tmp_path / "x.safetensors.index.json")


def test_a_tensor_whose_bytes_are_not_its_size(tmp_path: Path) -> None:
    from tests.serde.programs import safetensors

    header = {"scale": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 16]}}
    (tmp_path / "model.safetensors").write_bytes(safetensors(header, bytes(16)))
    with pytest.raises(FileFormatError, match="16 bytes, which are not"):
        tintype.attach_weights(without_weights(), tmp_path, strict=False)


# --- programs that have weights -----------------------------------------------------------------------------------


def _linear() -> tuple[torch.nn.Linear, tintype.ExportedProgram]:
    model = torch.nn.Linear(3, 2)
    return model, tintype.export(model, (torch.ones(4, 3),))


def test_weights_of_a_program_are_replaced() -> None:
    model, program = _linear()
    before = program.module()(torch.ones(4, 3))
    state = {name: torch.ones_like(value) for name, value in model.state_dict().items()}
    for made in (program.with_state(state), tintype.attach_weights(program, state)):
        made.validate()
        assert torch.equal(made.module()(torch.ones(4, 3)), torch.full((4, 2), 4.0))
        assert made.state_dict["weight"].requires_grad
    assert torch.equal(program.module()(torch.ones(4, 3)), before)


def test_state_that_does_not_fit_is_refused() -> None:
    _, program = _linear()
    weight, bias = torch.ones(2, 3), torch.ones(2)
    with pytest.raises(InvalidRequestError, match="no weights for 1 parameters or buffers: bias"):
        program.with_state({"weight": weight})
    with pytest.raises(InvalidRequestError, match="no place for 1 tensors: other"):
        program.with_state({"weight": weight, "bias": bias, "other": bias})
    with pytest.raises(InvalidRequestError, match="another configuration"):
        program.with_state({"weight": torch.ones(3, 3), "bias": bias})
    with pytest.raises(InvalidRequestError, match=r"weight.to\(torch.float32\)"):
        program.with_state({"weight": weight.double(), "bias": bias})
    kept = program.with_state({"weight": weight}, strict=False)
    assert kept.state_dict["bias"] is program.state_dict["bias"]


def test_tied_weights_are_given_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    program = tintype.export(model, (torch.ones(1, 2),))
    state = {"0.weight": torch.eye(2), "0.bias": torch.zeros(2), "1.bias": torch.zeros(2)}
    made = program.with_state(state)
    assert made.state_dict["0.weight"] is made.state_dict["1.weight"]


def test_a_call_without_weights_names_what_gives_some() -> None:
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    program = tintype.export(model, (torch.ones(4, 3, device="meta"),))
    with pytest.raises(
        tintype.TintypeError, match=r"2 parameters and buffers of the program have no data \(weight, bias\)"
    ):
        program.module()(torch.ones(4, 3))
    assert program.module()(torch.ones(4, 3, device="meta")).is_meta
