"""Files that other programs wrote: ``load`` says what they are and what reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tintype
from tests.serde.programs import safetensors, saved_bytes, small
from tintype.errors import FileFormatError


def _refusal(path: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        tintype.load(path)
    return str(caught.value)


def test_a_program_of_torch_export(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), path)
    text = _refusal(path)
    assert "is a program of torch.export, no file of tintype's" in text
    assert f"tintype.interop.from_torch(torch.export.load('{path}'))" in text


def test_a_file_of_torchscript(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.jit.save(torch.jit.trace(torch.nn.ReLU(), (torch.ones(2),)), path)
    assert f"tintype.interop.from_torchscript(torch.jit.load('{path}'), args)" in _refusal(path)


def test_a_file_of_torch_save(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.ones(2)}, path)
    assert "is a file of torch.save" in _refusal(path)
    torch.save({"weight": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    assert "is a pickle" in _refusal(path)


def test_weights_without_a_program(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"weight": ("F32", [1], 4)}, b"\0" * 4))
    assert "tintype.attach_weights(program, " in _refusal(path)


def test_a_damaged_file_of_ours_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    path.write_bytes(saved_bytes(small())[:-1])
    assert "no tintype file" in _refusal(path)
