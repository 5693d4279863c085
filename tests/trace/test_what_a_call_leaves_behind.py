"""Numbers of the data in containers outside of a model, and arrays that a model holds and writes to."""

from __future__ import annotations

import array
import warnings

import numpy as np
import pytest
import torch

import tintype

WAYS = pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
_LIST: list = []
_TABLE: dict = {}


class _Holder:
    pass


_HOLDER = _Holder()


def _to_a_global_list(x):
    _LIST.append(x.sum().item())
    return x * 2


def _to_a_global_table(x):
    _TABLE["sum"] = x.sum().item()
    return x * 2


def _to_an_object(x):
    _HOLDER.sum = int(x.argmax())
    return x * 2


def _inside_of_a_list(x):
    _LIST.append([{"sum": x.sum().item()}])
    return x * 2


def _number_of_rows(x):
    _LIST.append(x[x > 0].shape[0])
    return x * 2


@WAYS
@pytest.mark.parametrize(
    "model", [_to_a_global_list, _to_a_global_table, _to_an_object, _inside_of_a_list, _number_of_rows]
)
def test_a_number_of_the_data_is_refused_outside_of_the_model_and_taken_away(model, strict):
    with pytest.raises(tintype.StateChangedError, match="the data decide about a number"):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert not _LIST and not _TABLE and not vars(_HOLDER)


@WAYS
def test_a_number_of_the_data_is_refused_in_a_closure(strict):
    found = ["before"]

    def model(x):
        if x.sum() > 0:
            x = x * 2
        found.append(x.max().item())
        return x

    with pytest.raises(tintype.StateChangedError, match="the data decide about a number"):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert found == ["before"]


class Counting(torch.nn.Module):
    """Counts in memory that is neither a tensor nor a container."""

    def __init__(self, write, read):
        super().__init__()
        self.array = np.zeros(3)
        self.inside = {"arrays": [np.ones((2, 2), dtype=np.int64)]}
        self.bytes = bytearray(3)
        self.numbers = array.array("i", [1, 2])
        self.write, self.read = write, read

    def forward(self, x):
        self.write(self)
        return x * self.read(self)

    def contents(self):
        arrays = self.array.tolist(), self.inside["arrays"][0].tolist()
        return *arrays, bytes(self.bytes), self.numbers.tolist()


def _count(self):
    self.array[0] += 1


def _count_inside(self):
    self.inside["arrays"][0][1] += 2


def _count_bytes(self):
    self.bytes[0] += 1


def _grow(self):
    self.numbers.append(3)


WRITES = {
    "array": (_count, lambda self: float(self.array[0])),
    "inside": (_count_inside, lambda self: int(self.inside["arrays"][0].sum())),
    "bytes": (_count_bytes, lambda self: self.bytes[0]),
    "numbers": (_grow, lambda self: len(self.numbers)),
}


@WAYS
@pytest.mark.parametrize("name", WRITES)
def test_memory_that_a_model_holds_is_as_it_was_and_its_loss_is_told(name, strict):
    model = Counting(*WRITES[name])
    before = model.contents()
    with pytest.warns(tintype.LostStateWarning):
        program = tintype.export(model, (torch.ones(2),), strict=strict)
    assert model.contents() == before
    torch.testing.assert_close(program.module()(torch.ones(2)), model(torch.ones(2)))


@WAYS
@pytest.mark.parametrize("name", WRITES)
def test_a_count_that_nobody_reads_is_no_loss(name, strict):
    model = Counting(WRITES[name][0], lambda self: 2)
    before = model.contents()
    with warnings.catch_warnings():
        warnings.simplefilter("error", tintype.LostStateWarning)
        tintype.export(model, (torch.ones(2),), strict=strict)
    assert model.contents() == before
