"""What an ONNX program is asked for wrongly, files that change or are damaged, and calls from several threads."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype

X = torch.randn(3, 4)
LINEAR = torch.nn.Linear(4, 2)


class Counter(torch.nn.Module):
    """State that a call changes, in both ways that a call can go."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if x.sum() > 0:
            self.calls += 1
        self.last.copy_(x)
        return x + self.last, self.calls.clone()


@pytest.mark.parametrize("optimize", [True, "full"])
def test_state_is_no_constant(optimize: bool | str) -> None:
    program = tintype.onnx.export(Counter(), (torch.ones(2),), optimize=optimize)
    assert [int(program(torch.ones(2))[1]) for _ in range(3)] == [1, 2, 3]


def test_threads_count_every_call() -> None:
    program = tintype.onnx.export(Counter(), (torch.ones(2),))
    threads = [threading.Thread(target=lambda: [program(torch.ones(2)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(program.state()["calls"]) == 200


def test_a_file_that_changed_after_it_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    tintype.onnx.export(lambda x: x + 1, (X,)).save(path)
    loaded = tintype.onnx.load(path)
    tintype.onnx.export(lambda x: x + 2, (X,)).save(path)
    with pytest.raises(tintype.TintypeError, match="was changed after it was loaded"):
        loaded(X)
    monkeypatch.chdir(tmp_path)
    loaded = tintype.onnx.load("model.onnx")
    os.chdir("/")
    assert torch.equal(loaded(X), X + 2)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    tintype.onnx.export(Counter(), (torch.ones(2),)).save(path)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1 << 5
        path.write_bytes(bytes(damaged))
        with contextlib.suppress(tintype.TintypeError):
            tintype.onnx.load(path)(torch.ones(2))


REQUESTS: dict[str, Callable[[Any], Any]] = {
    "a tensor without data": lambda program: program(X.to("meta")),
    "a sparse tensor": lambda program: program(X.to_sparse()),
    "shards of nothing": lambda program: program.save("model.onnx", external_data=True, max_shard_bytes=0),
    "shards by a text": lambda program: program.save("model.onnx", max_shard_bytes="5GB"),
    "weights in a list": lambda program: program.apply_weights([1]),
    "a weight that is no tensor": lambda program: program.apply_weights({"weight": [1]}),
    "translations in a list": lambda program: tintype.onnx.export(LINEAR, (X,), translations=[1]),  # type: ignore[arg-type]
    "a translation of a packet": lambda program: tintype.onnx.export(
        LINEAR, (X,), translations={torch.ops.aten.linear: lambda op, *args: None}
    ),
    "a translation that returns nothing": lambda program: tintype.onnx.export(
        LINEAR, (X,), translations={torch.ops.aten.linear.default: lambda op, *args: None}, verify=False
    ),
    "progress that can't be called": lambda program: tintype.onnx.export(LINEAR, (X,), progress=3),  # type: ignore[arg-type]
    "half an opset": lambda program: tintype.onnx.export(LINEAR, (X,), opset=20.0),  # type: ignore[arg-type]
    "arguments that a program does not take": lambda program: tintype.onnx.export(
        tintype.export(LINEAR, (X,)), (torch.ones(5, 4),)
    ),
    "sizes of a program": lambda program: tintype.onnx.export(
        tintype.export(LINEAR, (X,)), dynamic_shapes=({0: tintype.Dim("rows")},)
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_that_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tintype.TintypeError):
        REQUESTS[name](tintype.onnx.export(LINEAR, (X,)))


def test_one_provider_by_its_name() -> None:
    program = tintype.onnx.export(LINEAR, (X,)).initialize(providers="CPUExecutionProvider")
    torch.testing.assert_close(program(X), LINEAR(X))


def _where_contiguous(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.is_contiguous() else x * 3


def _by_gradients(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.requires_grad else x * 3


_B = tintype.Dim("b", min=2, max=8)
_SAME = torch.ones(3)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Any]] = {
    "shared memory": (
        lambda x, y: (x.add_(1), x + y)[1], (torch.ones(3), torch.ones(3)), (_SAME, _SAME), None,
    ),
    "layout": (_where_contiguous, (torch.ones(3, 2),), (torch.ones(2, 3).t(),), None),
    "gradients": (_by_gradients, (torch.ones(3),), (torch.ones(3, requires_grad=True),), None),
    "a number that is a size": (lambda x, k: x * k, (torch.ones(3), 3), (torch.ones(4), 3), ({0: _B}, _B)),
    "the range of a size": (lambda x: x * 2, (torch.ones(3),), (torch.ones(1),), ({0: _B},)),
    "sizes that are related": (
        lambda x, y: x.sum() + y.sum(), (torch.ones(3), torch.ones(6)), (torch.ones(3), torch.ones(5)),
        ({0: _B}, {0: 2 * _B}),
    ),
    "another kind of number": (lambda x, k: x.long() * k, (torch.ones(3), 3), (torch.ones(3), 3.0), None),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_loaded_program_refuses_what_the_exported_one_does(name: str, tmp_path: Path) -> None:
    function, example, call, sizes = CALLS[name]
    program = tintype.onnx.export(function, example, dynamic_shapes=sizes)
    program.save(tmp_path / "model.onnx")
    loaded = tintype.onnx.load(tmp_path / "model.onnx")
    torch.testing.assert_close(loaded(*copy.deepcopy(example)), function(*copy.deepcopy(example)))
    for each in (program, loaded):
        with pytest.raises(tintype.TintypeError):
            each(*call)


def test_the_metadata_hold_no_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    tintype.onnx.export(torch.nn.Linear(500, 500), (torch.ones(2, 500),)).save(path)
    assert path.stat().st_size < 1_020_000  # of which 1,002,000 are the weights


def test_outputs_are_written_to_memory_of_the_callers() -> None:
    batch = {0: tintype.Dim("batch")}
    layer = torch.nn.Linear(3, 2)
    program = tintype.onnx.export(
        lambda x: {"y": layer(x), "twice": x * 2}, (torch.ones(4, 3),), dynamic_shapes=(batch,)
    )
    for rows in (1, 5, 0):
        x, memory = torch.randn(rows, 3), torch.full((rows, 2), 7.0)
        result = program.write_into({"y": memory}, x)
        assert result["y"] is memory
        torch.testing.assert_close(result, {"y": layer(x).detach(), "twice": x * 2})
    x = torch.randn(2, 3)
    wrong = {
        "no tensor of torch.float32": {"y": torch.empty(2, 2, dtype=torch.float64)},
        "no contiguous": {"y": torch.empty(2, 2).T[:, :1].expand(2, 2)},
        "memory of an input": {"twice": x},
        "no result z": {"z": torch.empty(2)},
        "ONNX Runtime failed": {"y": torch.empty(3, 2)},
    }
    for text, outputs in wrong.items():
        with pytest.raises(tintype.TintypeError, match=text):
            program.write_into(outputs, x)


def test_arrays_are_arguments_too() -> None:
    import numpy

    program = tintype.onnx.export(lambda x: x + 1, (torch.ones(4, 3),))
    array = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)
    frozen = array.copy()
    frozen.flags.writeable = False
    for each in (array, array[::-1], array.T.copy().T, frozen):
        torch.testing.assert_close(program(each), torch.tensor(each.copy()) + 1)
    with pytest.raises(tintype.InputMismatchError, match="float32"):
        program(array.astype(numpy.float64))
    with pytest.raises(tintype.InputMismatchError, match="ndarray"):
        program(array.astype(object))

    def doubled(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x.sum()

    tintype.onnx.export(doubled, (torch.ones(4, 3),))(array)
    assert array[0, 1] == 2
