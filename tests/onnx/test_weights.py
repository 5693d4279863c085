"""Weights: streamed, in files beside the model, attached later."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tintype
from tintype.onnx import runtime
from tintype.onnx.weights import _is_mapped


def layers(device: str = "cpu") -> torch.nn.Module:
    with torch.device(device):
        return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))


def test_weights_are_given_later() -> None:
    program = tintype.onnx.export(layers("meta"), (torch.ones(2, 64, device="meta"),))
    assert "meta device" in str(program.report)
    for use in (lambda: program.save("nowhere.onnx"), lambda: program.model_proto, lambda: program.initialize()):
        with pytest.raises(tintype.onnx.OnnxExportError, match=r"no data: 0\.weight"):
            use()
    model, x = layers(), torch.randn(2, 64)
    program.apply_weights(model.state_dict())
    torch.testing.assert_close(program(x), model(x).detach())
    with pytest.raises(tintype.TintypeError, match="no weight 7"):
        program.apply_weights({"7": torch.ones(1)})
    with pytest.raises(tintype.TintypeError, match=r"0\.bias is torch\.float64"):
        program.apply_weights({"0.weight": torch.zeros(128, 64), "0.bias": torch.zeros(128, dtype=torch.float64)})
    torch.testing.assert_close(program(x), model(x).detach())  # nothing was changed


def test_weights_attached_to_a_program() -> None:
    model, x = layers(), torch.randn(2, 64)
    captured = tintype.export(layers("meta"), (torch.ones(2, 64, device="meta"),))
    program = tintype.onnx.export(tintype.attach_weights(captured, model.state_dict()))
    torch.testing.assert_close(program(x), model(x).detach())


def test_parts_are_aligned_and_written_again(tmp_path: Path) -> None:
    model, x = torch.nn.Sequential(*(torch.nn.Linear(600, 600) for _ in range(4))), torch.randn(2, 600)
    path = tmp_path / "model.onnx"
    (tmp_path / "model-00001-of-00002.onnx.data.txt").write_text("somebody else's")
    program = tintype.onnx.export(model, (x,))
    for size in (2_000_000, 4_000_000, 2_000_000):
        program.save(path, max_shard_bytes=size)
        torch.testing.assert_close(tintype.onnx.load(path)(x), model(x).detach())
    parts = sorted(each.name for each in tmp_path.iterdir())
    assert len([name for name in parts if name.endswith(".data")]) == 4  # none is left of the second time
    assert "model-00001-of-00002.onnx.data.txt" in parts
    told: list[str] = []
    program.save(tmp_path / "whole.onnx", external_data=True, progress=told.append)
    assert len(told) == 8 and told[-1].endswith("8 of 8")
    offsets = [
        value.const_value.offset
        for value in tintype.onnx.load(tmp_path / "whole.onnx").model.graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > 1_100_000
    ]
    assert offsets and all(offset % 65536 == 0 for offset in offsets)


def test_large_models_have_their_weights_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tintype.onnx.program.LARGEST_MESSAGE", 10_000)
    monkeypatch.setattr(runtime, "LARGEST_MESSAGE", 10_000)
    model, x = layers(), torch.randn(2, 64)
    program = tintype.onnx.export(model, (x,))
    torch.testing.assert_close(program(x), model(x).detach())  # through a file
    program.save(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx.data").stat().st_size > 60_000
    torch.testing.assert_close(tintype.onnx.load(tmp_path / "model.onnx")(x), model(x).detach())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="asks Linux")
def test_only_pages_of_files_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"1" * 8192)
    mapped = torch.from_file(str(path), size=8192, dtype=torch.uint8)
    assert _is_mapped(mapped.data_ptr())
    assert not _is_mapped(torch.ones(100_000).data_ptr())
