"""The check itself finds mistakes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.own_exceptions import is_mistake
from tintype.trace import recorder


def _caught(function: Any, *args: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


def test_a_mistake_is_found() -> None:
    assert is_mistake(_caught(tintype.tree.path_name, None))  # TypeError: 'NoneType' object is not iterable
    assert is_mistake(_caught(tintype.errors.raise_all, [object()])) is False  # nothing but a wrong call


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {}[0],  # the model's own
        lambda x: x @ x,  # torch's
        lambda x: x.sum().numpy(),  # ours
        lambda x: x.shape[7],
    ],
)
def test_other_errors_are_none(function: Any) -> None:
    assert not is_mistake(_caught(tintype.export, function, (torch.ones(2, 3),)))


def test_a_mistake_fails_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "make_fake", None)
    with pytest.raises(pytest.fail.Exception, match="TypeError escapes from capture_program"):
        tintype.export(lambda x: x.sin(), (torch.ones(3),))
