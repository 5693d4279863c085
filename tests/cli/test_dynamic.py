"""``--dynamic``: sizes that vary, as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.test_commands import call
from tintype.cli.dynamic import dynamic_shapes_of
from tintype.errors import InvalidRequestError
from tintype.export.dimensions import Dim

X = torch.ones(4, 16)
ARGUMENTS = {"x": X, "cache": [X, (X,)], "options": {"mask": X, "n": 3}, "flag": True}


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        (["x.0=batch"], {"x": "{0: Dim('batch')}"}),
        (["x.-1=batch:2"], {"x": "{1: Dim('batch', min=2)}"}),
        (["x.0=batch::64"], {"x": "{0: Dim('batch', max=64)}"}),
        (["x.0=b:1:64, x.1=8*b"], {"x": "{0: Dim('b', min=1, max=64), 1: 8*b}"}),
        (["x.1=b*8+1", "x.0=b:2"], {"x": "{0: Dim('b', min=2), 1: 8*b + 1}"}),
        (["x.1=2*b-1"], {"x": "{1: 2*b - 1}"}),
        (["x.0=auto", "x.1=dynamic"], {"x": "{0: Dim.AUTO, 1: Dim.DYNAMIC}"}),
        (["cache.1.0.1=length"], {"cache": "[None, ({1: Dim('length')},)]"}),
        (["options.n=steps", "options.mask.0=b"], {"options": "{'mask': {0: Dim('b')}, 'n': Dim('steps')}"}),
        (
            ["auto,x.1=8*b", "options.n=static"],
            {
                "x": "{0: Dim.AUTO, 1: 8*b}",
                "cache": "[{0: Dim.AUTO, 1: Dim.AUTO}, ({0: Dim.AUTO, 1: Dim.AUTO},)]",
                "options": "{'mask': {0: Dim.AUTO, 1: Dim.AUTO}, 'n': None}",
                "flag": "auto",
            },
        ),
    ],
)
def test_what_is_said(wishes: list[str], expected: dict[str, str]) -> None:
    found = dynamic_shapes_of(wishes, ARGUMENTS)
    nothing = {"x": "None", "cache": "[None, (None,)]", "options": "{'mask': None, 'n': None}", "flag": "None"}
    assert {name: str(spec) for name, spec in found.items()} == {**nothing, **expected}


def test_one_name_is_one_size() -> None:
    found: Any = dynamic_shapes_of(["x.0=batch", "options.mask.0=batch", "x.1=2*batch:1:8"], ARGUMENTS)
    assert found["x"][0] is found["options"]["mask"][0] is found["x"][1].root
    assert found["x"][0].max == 8
    assert dynamic_shapes_of([], ARGUMENTS) is None and dynamic_shapes_of(["auto"], ARGUMENTS) == "auto"
    assert isinstance(found["x"][0], Dim)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        (["y.0=batch"], "there is no input 'y'; the inputs are x, cache"),
        (["chache.0=batch"], "did you mean cache?"),
        (["x.2=batch"], "x is a tensor of 2 dimensions, [4, 16], which has no such size"),
        (["x=batch"], "the sizes are x.0, x.1"),
        (["cache.0=batch"], "the sizes are cache.0.0, cache.0.1, cache.1.0.0, cache.1.0.1"),
        (["flag=batch"], "flag is a bool"),
        (["x.0"], "expected INPUT.DIMENSION=SIZE"),
        (["x.0=3"], "3 is a fixed size"),
        (["x.0=8/batch"], "'8/batch' is no size"),
        (["x.0=2*batch*2"], "'2*batch*2' is no size"),
        (["x.0=batch:9:2"], "min 9 is greater than max 2"),
        (["x.0=batch:1:4", "x.1=2*batch:2"], "batch has the bounds 1:4 elsewhere, and here 2:"),
        (["x.0=a", "x.0=b"], "x.0 is given twice"),
        (["x.0=0*batch"], "multiply with a positive integer"),
    ],
)
def test_what_is_refused(wishes: list[str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        dynamic_shapes_of(wishes, ARGUMENTS)


USERS_CODE = """
import torch

class Net(torch.nn.Module):
    def forward(self, image, rows):
        half = torch.nn.functional.avg_pool2d(image, 8)
        return image + torch.nn.functional.interpolate(half, scale_factor=8) + rows[0].sum() + rows[1].sum()
"""


def test_the_advice_works_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "the_zoo.py").write_text(USERS_CODE, encoding="utf-8")
    given = ("-i", "image=2x3x64x64", "-i", "rows=[[1.5, 2], [[3, 4], [5, 6]]]")
    wishes = "image.0=batch,image.2=H:1:512,image.3=W,rows.1.0=n"
    text = call("export", "the_zoo:Net", "net.tt", *given, "-d", wishes, code=1)
    advice = "image.0=batch,image.2=8*_H:1:64,image.3=8*_W:1:,rows.1.0=n"
    assert f"on the command line that is --dynamic {advice}" in text
    text = call("export", "the_zoo:Net", "net.tt", *given, "--dynamic", advice)
    assert "image.shape[2] = 8*_H, 1 <= _H <= 64" in text and "agree" in text
