"""Tensors that a program copies, stores, asks for their class or turns into text; sizes as text or as keys."""

from __future__ import annotations

import copy
import functools
import io
import logging
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tests.export.modes import assert_same, capture, compare
from tintype.errors import CaptureError, ConstraintViolationError, DataDependentError, InputMismatchError

X = torch.arange(12.0).reshape(3, 4)
log = logging.getLogger(__name__)


def stored(x: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file) + 1


COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "copy": lambda x: copy.copy(x) + 1,
    "copy shares memory": lambda x: (copy.copy(x).add_(1), x * 2)[1],
    "copy of a result": lambda x: (lambda y: (copy.copy(y).mul_(3), y + x)[1])(x * 2),
    "deepcopy": lambda x: copy.deepcopy(x) + 1,
    "deepcopy has memory of its own": lambda x: (copy.deepcopy(x).add_(1), x * 2)[1],
    "deepcopy of a result": lambda x: copy.deepcopy(x * 2).add_(x),
    "deepcopy keeps what is the same": lambda x: (lambda both: both[0].add_(1) + both[1])(copy.deepcopy([x, x])),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies(mode: str, name: str) -> None:
    compare(mode, COPIES[name], (X.clone(),))


@pytest.mark.parametrize("name", ["copy", "deepcopy"])
def test_copies_of_what_has_a_gradient_are_refused(name: str) -> None:
    with pytest.raises(CaptureError, match="copies a tensor that requires a gradient") as caught:
        tintype.export(COPIES[name], (X.clone().requires_grad_(),))
    assert caught.value.location is not None


@pytest.mark.parametrize("name", ["copy", "deepcopy"])
def test_no_gradient_flows_through_a_copy(mode: str, name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 3 + COPIES[name](x)

    module = capture(mode, function, (X.clone(),)).module()
    x = X.clone().requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 3))


STORED: dict[str, Callable[[torch.Tensor], Any]] = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)) + 1,
    "torch.save": stored,
    "numpy": lambda x: x * float(x.numpy().sum()),
    "asarray": lambda x: x + torch.from_numpy(np.asarray(x)),
    "str": lambda x: x * len(str(x)),
    "repr": lambda x: x * len(repr(x)),
    "format": lambda x: x * len(f"{x.sum():.3f}"),
    "percent": lambda x: x * len("%s" % x),  # noqa: UP031
    "number": lambda x: x * len(f"{x.sum().item():.3f}"),
}


@pytest.mark.parametrize("name", STORED)
def test_data_that_leaves_the_program_is_refused_with_the_line(name: str) -> None:
    for export in (tintype.export, tintype.export_for_training):
        with pytest.raises(CaptureError) as caught:
            export(STORED[name], (X,))
        assert caught.value.location is not None and caught.value.location.filename == __file__
        assert caught.value.remedy is not None or isinstance(caught.value, DataDependentError)


def test_text_of_a_constant_is_known(mode: str) -> None:
    compare(mode, lambda x: x * len(f"{torch.tensor(2.5):.3f}") + len(str(torch.tensor([1, 2]))), (X,))


CLASSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "__class__": lambda x: x * 2 if x.__class__ is torch.Tensor else x * 3,
    "__class__ of a result": lambda x: x * 2 if (x + 1).__class__ is torch.Tensor else x * 3,
    "isinstance": lambda x: x * 2 if isinstance(x, torch.Tensor) and not isinstance(x, (list, int)) else x * 3,
    "type()": lambda x: x * 2 if x.type() == "torch.FloatTensor" else x * 3,
    "hash": lambda x: {x: x * 2}[x],
    "is": lambda x: x * 2 if any(x is other for other in [x]) else x * 3,
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes_and_identity(mode: str, name: str) -> None:
    compare(mode, CLASSES[name], (X,))


def test_a_class_that_was_asked_for_is_checked(mode: str) -> None:
    module = capture(mode, CLASSES["__class__"], (X,)).module()
    with pytest.raises(InputMismatchError, match=r"to be torch\.Tensor, but got torch\.nn\.parameter\.Parameter"):
        module(torch.nn.Parameter(X))
    module = capture(mode, CLASSES["isinstance"], (X,)).module()
    assert_same(module(torch.nn.Parameter(X)), X * 2)


# --- sizes -----------------------------------------------------------------------------------------------


def shown(x: torch.Tensor) -> torch.Tensor:
    print(x.shape, x.shape[0], f"{x.shape[0]:3d}", f"{x.sum():.3f}", x)
    log.info("%s %s", x.shape[0], x)
    log.warning(
        "several lines: "  # noqa: G004
        f"{x.shape[0]}"
    )  # fmt: skip
    warnings.warn(f"{x.shape[0]}", stacklevel=1)
    assert x.dim() == 2, f"{x.shape} {x}"
    if x.dim() != 2:
        raise ValueError(f"{x.shape[0]}")
    return x * 2


def test_what_is_shown_to_people_does_not_fix_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = tintype.export(shown, (X,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert "FakeTensor" in capsys.readouterr().out
    assert_same(program.module()(torch.ones(7, 4)), torch.ones(7, 4) * 2)


TEXTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "f-string": lambda x: x * len(f"{x.shape[0]}"),
    "f-string with a format": lambda x: x * len(f"{x.shape[0]:d}"),
    "str": lambda x: x * len(str(x.shape[0])),
    "repr": lambda x: x * len(repr(x.shape)),
    "int of text": lambda x: x * int(f"{x.shape[0]}"),
    "format": lambda x: x * len("{}".format(x.shape[0])),  # noqa: UP032
    "percent": lambda x: x * len("%s" % x.shape[0]),  # noqa: UP031
    "join": lambda x: x * len(",".join(map(str, x.shape))),
    "printed by another name": lambda x: x * len([f"{x.shape[0]}"][0]),
    "arithmetic": lambda x: x * len(f"{x.shape[0] * 25 + 1}"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_a_size_fixes_the_size(mode: str, name: str) -> None:
    model = TEXTS[name]
    if mode in ("training", "export"):
        export = tintype.export if mode == "export" else tintype.export_for_training
        program = export(model, (X,), dynamic_shapes={"x": {0: tintype.Dim.AUTO}})
        assert_same(program.module()(X), model(X))
        with pytest.raises(InputMismatchError, match=r"shape\[0\] to be equal to 3, but got 1234"):
            program.module()(torch.ones(1234, 4))
        assert any("shape[0] == 3" in line.text or "= 3" in line.text for line in program.contract())
        assert any(line.location is not None and line.location.filename == __file__ for line in program.contract())
        with pytest.raises(ConstraintViolationError, match="test_copies_and_text"):
            export(model, (X,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    else:
        compare(mode, model, (X,))


def test_the_text_of_a_programs_sizes_fixes_nothing_afterwards() -> None:
    program = tintype.export(lambda x: x * 2, (X,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    size = program.graph.find_nodes(op="placeholder")[0].meta["val"].shape[0]
    assert str(size) == f"{size}" == "s0"
    with pytest.raises(TypeError, match="unhashable"):
        hash(size)
    assert_same(program.module()(torch.ones(9, 4)), torch.ones(9, 4) * 2)
    assert "__format__" not in vars(torch.SymInt)


@functools.lru_cache
def table(size: int) -> int:
    return size * 2


def cached_or_not(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * table(x.shape[0])
    except TypeError:
        return x * (x.shape[0] * 2)


KEYS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dict": lambda x: x * {4: 1.0, 3: 2.0}.get(x.shape[0], 3.0),
    "set": lambda x: x * (2 if x.shape[0] in {4, 3} else 3),
}


@pytest.mark.parametrize("name", KEYS)
def test_sizes_as_keys_are_refused_with_the_line(name: str) -> None:
    with pytest.raises(CaptureError, match="as a key of a dictionary, set or cache") as caught:
        tintype.export(KEYS[name], (X,), dynamic_shapes={"x": {0: tintype.Dim.AUTO}})
    assert isinstance(caught.value, TypeError)
    assert caught.value.location is not None and caught.value.location.filename == __file__


def test_a_function_with_a_cache_takes_sizes_that_vary() -> None:
    program = tintype.export(lambda x: x * table(x.shape[0]), (X,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert_same(program.module()(torch.ones(9, 4)), torch.ones(9, 4) * 18)


def test_a_program_that_does_without_a_cache_keeps_its_sizes_free() -> None:
    program = tintype.export(cached_or_not, (X,), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert_same(program.module()(torch.ones(9, 4)), torch.ones(9, 4) * 18)
