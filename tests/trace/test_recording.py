"""A recording can be suspended: real code runs in the middle of a capture, and the program is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype.trace.recorder import active_recorder
from tintype.trace.recording import Recording

pytestmark = pytest.mark.direct(reason="what is captured is the same program with and without a pause")


class Layers(torch.nn.Module):
    """A model that calls a function in the middle, in a region of its own."""

    def __init__(self, between: Callable[[], None]) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(4)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.dropout(self.norm(self.first(x)), 0.5)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            self.between()
            scale = x @ x.mT
        return self.second(x) * scale.float().mean() * x.shape[0]


def current() -> Recording:
    """The recording that is going on in this thread."""
    recorder: Any = active_recorder()
    assert recorder is not None and recorder.recording is not None
    return recorder.recording


def nothing() -> None:
    pass


def export(model: torch.nn.Module, how: str) -> tintype.ExportedProgram:
    x = torch.randn(3, 4)
    shapes = {"x": {0: tintype.Dim("batch", min=2)}}
    if how == "joint":

        class Loss(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
                return (self.model(x).sum(),)

        return tintype.export_joint(Loss(), (x,), dynamic_shapes=shapes)
    return getattr(tintype, how)(model, (x,), dynamic_shapes=shapes)


@pytest.mark.parametrize("how", ["export", "export_for_training", "joint"])
def test_eager_code_and_another_export_run_in_the_middle_of_a_capture(how: str) -> None:
    seen: dict[str, Any] = {}
    other = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    weights = torch.randn(4, 4, requires_grad=True)
    plain = tintype.export(other, (torch.ones(2, 4),))

    def pause() -> None:
        with current().suspended():
            seen["is_compiling"] = torch.compiler.is_compiling()
            seen["recorder"] = active_recorder()
            seen["gradients"] = torch.is_grad_enabled()
            seen["dtype"] = (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
            (weights * weights).sum().backward()
            seen["program"] = tintype.export(other, (torch.ones(2, 4),))
            seen["sum"] = float(seen["program"].module()(torch.ones(2, 4)).detach().sum())
            seen["dictionary"] = {torch.ones(1).item(): torch.randn(2).tolist()}
        seen["inside"] = torch.is_grad_enabled(), torch.compiler.is_compiling(), torch.is_autocast_enabled("cpu")

    torch.manual_seed(0)
    expected = export(Layers(nothing), how)
    torch.manual_seed(0)
    paused = export(Layers(pause), how)
    assert paused.graph_module.code == expected.graph_module.code
    assert str(paused.contract()) == str(expected.contract())
    assert [node.meta["nn_module_stack"] for node in paused.graph.nodes if node.op == "call_function"] == [
        node.meta["nn_module_stack"] for node in expected.graph.nodes if node.op == "call_function"
    ]
    assert seen["is_compiling"] is False and seen["recorder"] is None and seen["gradients"] is True
    assert seen["dtype"] is torch.float32 and seen["inside"] == (False, True, True)
    torch.testing.assert_close(weights.grad, 2 * weights.detach())
    assert seen["program"].graph_module.code == plain.graph_module.code
    assert seen["sum"] == pytest.approx(float(other(torch.ones(2, 4)).detach().sum()))


def test_a_recording_goes_on_when_the_code_in_the_middle_raises() -> None:
    def pause() -> None:
        with pytest.raises(ZeroDivisionError), current().suspended():
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            raise ZeroDivisionError

    torch.manual_seed(0)
    expected = export(Layers(nothing), "export")
    torch.manual_seed(0)
    assert export(Layers(pause), "export").graph_module.code == expected.graph_module.code
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32


def test_a_recording_that_has_not_begun_can_not_be_suspended() -> None:
    from tintype.fake.context import FakeContext
    from tintype.trace.origin import OriginTracker
    from tintype.trace.recorder import Recorder

    recording = Recording(Recorder(FakeContext(), torch.fx.Graph(), OriginTracker(())))
    with pytest.raises(RuntimeError, match="has not begun"), recording.suspended():
        pass
