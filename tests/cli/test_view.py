"""``tintype view``: pages and files of other viewers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import tintype
from tests.cli.test_commands import call
from tests.view.models import encoder_program


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tintype.save(encoder_program(1), tmp_path / "model.tt")
    return tmp_path / "model.tt"


def data_in(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])


def test_a_page_of_a_file(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "model.html" in call("view", model)
    data = data_in(tmp_path / "model.html")
    assert data["title"] == "model" and [each["name"] for each in data["programs"]] == ["model"]
    assert data["lines"] == [] and not data["compare"]


def test_source_statistics_and_stages(model: Path, tmp_path: Path) -> None:
    call("view", model, "-o", tmp_path / "page.html", "--source", "--statistics", "--stages")
    data = data_in(tmp_path / "page.html")
    assert [each["name"] for each in data["programs"]] == ["functional", "core"]
    assert data["lines"] and "statistics" in data["programs"][0]["weights"]["shared.weight"]


def test_two_files_and_several_programs(model: Path, tmp_path: Path) -> None:
    call("view", model, model, "-o", tmp_path / "page.html")
    data = data_in(tmp_path / "page.html")
    assert data["compare"] and len({each["name"] for each in data["programs"]}) == 2
    program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    tintype.save({"prefill": program, "decode": program}, tmp_path / "llm.tt")
    call("view", tmp_path / "llm.tt", "-o", tmp_path / "llm.html")
    assert [each["name"] for each in data_in(tmp_path / "llm.html")["programs"]] == ["prefill", "decode"]
    call("view", tmp_path / "llm.tt", "--entry", "decode", "-o", tmp_path / "one.html")
    assert len(data_in(tmp_path / "one.html")["programs"]) == 1


def test_model_explorer(model: Path, tmp_path: Path) -> None:
    call("view", model, "--format", "model-explorer", "-o", tmp_path / "graph.json")
    assert json.loads((tmp_path / "graph.json").read_text())["graphs"][0]["nodes"]
    assert "--format netron: there is none" in call("view", model, "--format", "netron", code=1)
    assert "there is no folder" in call("view", model, "-o", tmp_path / "nowhere" / "page.html", code=1)


def test_check_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "viewed_models.py").write_text(
        "import torch\n"
        "class Bad(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x * x.numpy().sum()\n"
        "def good():\n    return torch.nn.ReLU()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = tmp_path / "page.html"
    call("check", "viewed_models:Bad", "-i", "x=2:float32", "--page", page, code=3)
    (problem,) = data_in(page)["problems"]
    assert problem["line"]["text"] == "return x * x.numpy().sum()" and problem["line"]["file"] == "viewed_models.py"
    call("check", "viewed_models:good", "-i", "input=2:float32", "--page", page)
    assert data_in(page)["programs"] and not data_in(page)["problems"]
