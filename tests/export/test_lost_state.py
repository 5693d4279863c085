"""What a model keeps in plain attributes: a warning where its second call would be another program."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

import tintype
from tintype import Dim, LostStateWarning


class Model(torch.nn.Module):
    """A model whose forward is given as a function of itself and its inputs."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        return self.function(self, x)


def counts(model, x):
    model.calls += 1
    return x * model.calls


def initializes(model, x):
    if not model.is_ready:
        model.is_ready = True
        return x + 1
    return x


def collects(model, x):
    model.log.append(1)
    return x + len(model.log)


def fails_the_second_time(model, x):
    assert model.calls == 0
    model.calls = 1
    return x


def remembers(model, x):
    model.last = tuple(x.shape)
    model.calls += 1
    return x + 1


def fills_a_table(model, x):
    if model.last is None:
        model.last = 2.5
    return x * model.last


DIFFERENT = [counts, initializes, collects, fails_the_second_time]
ALIKE = [remembers, fills_a_table]


def _model(function):
    return Model(function, calls=0, is_ready=False, log=[], last=None)


@pytest.mark.parametrize("function", DIFFERENT, ids=lambda function: function.__name__)
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_a_second_call_that_differs_is_told(function, export):
    model = _model(function)
    with pytest.warns(LostStateWarning, match="'calls' of a Model|'is_ready' of a Model|of a list"):
        program = export(model, (torch.ones(2),))
    assert (model.calls, model.is_ready, model.log, model.last) == (0, False, [], None)
    for _ in range(2):
        assert torch.equal(program.module()(torch.ones(2)), _model(function)(torch.ones(2)))


@pytest.mark.parametrize("function", ALIKE, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dynamic_shapes", [None, ({0: Dim("n")},)], ids=["fixed", "varying"])
def test_what_makes_no_difference_is_not(function, dynamic_shapes):
    model = _model(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tintype.export(model, (torch.ones(2),), dynamic_shapes=dynamic_shapes)
    assert (model.calls, model.last) == (0, None)


def test_a_model_that_was_called_before():
    """The remedy that the warning names."""
    model = _model(initializes)
    model(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(model, (torch.ones(2),))
    assert torch.equal(program.module()(torch.ones(2)), torch.ones(2))


def test_the_line_is_named():
    class Counting(torch.nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    with pytest.warns(
        LostStateWarning, match=r"'calls' of a Counting: .* became 1  # .*test_lost_state.py:\d+ in forward"
    ):
        tintype.export(Counting(), (torch.ones(2),))


COUNT = 0
COUNTS = [0]
TABLE: dict[str, int] = {}
LOG: list[str] = []


class Holder:
    count = 0


HOLDER = Holder()


def counts_in_a_global(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def counts_in_a_list(x):
    COUNTS[0] += 1
    return x * COUNTS[0]


def counts_in_a_table(x):
    TABLE["n"] = TABLE.get("n", 0) + 1
    return x * TABLE["n"]


def counts_in_a_class(x):
    Holder.count += 1
    return x * Holder.count


def counts_in_an_object(x):
    HOLDER.count += 1
    return x * HOLDER.count


def counts_in_a_default(x, seen=[]):  # noqa: B006
    seen.append(1)
    return x * len(seen)


def counts_in_a_keyword_default(x, *, seen=[]):  # noqa: B006
    seen.append(1)
    return x * len(seen)


def counts_in_its_attribute(x):
    counts_in_its_attribute.count = getattr(counts_in_its_attribute, "count", 0) + 1
    return x * counts_in_its_attribute.count


def _closure():
    count = 0

    def counts_in_a_closure(x):
        nonlocal count
        count += 1
        return x * count

    return counts_in_a_closure


OUTSIDE = [
    counts_in_a_global,
    counts_in_a_list,
    counts_in_a_table,
    counts_in_a_class,
    counts_in_an_object,
    counts_in_a_default,
    counts_in_a_keyword_default,
    counts_in_its_attribute,
    _closure(),
]


@pytest.mark.parametrize("function", OUTSIDE, ids=lambda function: function.__name__)
@pytest.mark.parametrize("as_model", [False, True])
def test_counts_outside_of_the_model_are_told_and_put_back(function, as_model):
    model = Model(lambda model, x: function(x)) if as_model else function
    with pytest.warns(LostStateWarning, match=r"became .*  # .*test_lost_state.py:\d+ in counts_in"):
        program = tintype.export(model, (torch.ones(2),))
    counted = [COUNT, COUNTS, TABLE, Holder.count, vars(HOLDER), counts_in_a_default.__defaults__]
    assert counted == [0, [0], {}, 0, {}, ([],)]
    assert not hasattr(counts_in_its_attribute, "count")
    assert torch.equal(program.module()(torch.ones(2)), torch.ones(2))


def test_notes_that_nobody_reads_stay_once():
    """As what was printed does, however often the model is captured for one export."""

    def function(x):
        LOG.append("called")
        return sum(x.values())

    LOG.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", tintype.LostEffectWarning)  # which strict=True gives all the same
        tintype.export(function, ({"a": torch.ones(2), "b": torch.ones(2)},))
    assert LOG == ["called"]


def test_a_dictionary_makes_no_difference_by_itself():
    class Remembers(torch.nn.Module):
        def forward(self, x):
            self.last = 1
            return torch.cat(list(x.values()))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tintype.export(Remembers(), ({"a": torch.ones(2), "b": torch.ones(2)},))


def test_compiled_functions_count_for_real():
    compiled = tintype.aot.function(_closure())
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]


class TakesApart(torch.nn.Module):
    def __init__(self, part):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        self.others = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3)})
        self.part = part

    def forward(self, x):
        if self.part == "bias":
            y = self.layer(x)
            self.layer.bias = None
            return y
        if self.part == "unused bias":
            self.layer.bias = None
        elif "a" in self.others:
            self.others.pop("a")
        return self.layer(x)


@pytest.mark.parametrize("part", ["unused bias", "module"])
def test_a_model_that_takes_out_what_it_does_not_use(part):
    model, x = TakesApart(part), torch.ones(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = tintype.export(model, (x,)).module()
    assert model.layer.bias is not None and "a" in model.others
    torch.testing.assert_close(module(x), model(x))


def test_a_model_that_takes_out_what_it_uses():
    with pytest.warns(LostStateWarning):
        tintype.export(TakesApart("bias"), (torch.ones(1, 3),))


def test_a_compiled_module_that_takes_out_a_module_is_refused():
    with pytest.raises(tintype.CaptureError, match="takes away parameters or buffers"):
        tintype.aot.module(TakesApart("module"))(torch.ones(1, 3))


@pytest.mark.parametrize("capture", [lambda m, x: tintype.export(m, (x,)), lambda m, x: tintype.aot.module(m)(x)])
def test_a_module_that_the_program_makes_and_keeps_is_refused(capture):
    class Makes(torch.nn.Module):
        def forward(self, x):
            if not hasattr(self, "extra"):
                self.extra = torch.nn.Linear(3, 3)
            return self.extra(x)

    model, x = Makes(), torch.ones(1, 3)
    with pytest.raises(tintype.CaptureError, match=r"makes a module .Linear. .* keeps it as 'extra'") as caught:
        capture(model, x)
    assert caught.value.location is not None and not list(model.parameters())
    model(x)
    capture(model, x)


# --- sizes that vary, kept as numbers ------------------------------------------------------------------------------


@dataclasses.dataclass
class Kept:
    size: object


def keeps_the_first_size(model, x):
    if model.last is None:
        model.last = x.shape[0]
    return x * model.last


def reads_the_size_before(model, x):
    before, model.calls = model.calls, x.shape[0]
    return x * before


def reads_a_size_that_is_the_examples_by_chance(model, x):
    before, model.three = model.three, x.shape[0]
    return x * before


def computes_from_sizes(model, x):
    before, model.calls = model.calls, x.numel() // 2 + 1
    return x * before


def keeps_a_flag_of_sizes(model, x):
    before, model.is_ready = model.is_ready, x.shape[0] > 2
    return x + 1 if before else x


def keeps_sizes_in_a_list(model, x):
    model.log.append(x.shape[0])
    return x * model.log[0]


def keeps_sizes_in_a_table(model, x):
    return x * model.table.setdefault("size", x.shape[0])


def keeps_sizes_in_containers(model, x):
    if model.last is None:
        model.last = {"sizes": [x.shape]}
    return x * model.last["sizes"][0][0]


def keeps_a_size_in_an_object(model, x):
    if model.last is None:
        model.last = Kept(x.shape[0])
    return x * model.last.size


def keeps_a_size_in_a_global(model, x):
    COUNTS[0], before = x.shape[0], COUNTS[0]
    return x * before


SIZES_KEPT = [
    keeps_the_first_size,
    reads_the_size_before,
    reads_a_size_that_is_the_examples_by_chance,
    computes_from_sizes,
    keeps_a_flag_of_sizes,
    keeps_sizes_in_a_list,
    keeps_sizes_in_a_table,
    keeps_sizes_in_containers,
    keeps_a_size_in_an_object,
    keeps_a_size_in_a_global,
]


def _keeping(function):
    return Model(function, calls=0, is_ready=False, log=[], last=None, table={}, three=3)


@pytest.mark.parametrize("function", SIZES_KEPT, ids=lambda function: function.__name__)
def test_a_size_that_varies_and_that_the_next_call_reads_is_told(function):
    model, n = _keeping(function), Dim("n")
    with pytest.warns(
        LostStateWarning, match=r"became .*  # .*test_lost_state.py|of a (list|dict): <nothing> became 3"
    ):
        program = tintype.export(model, (torch.ones(3, 2),), dynamic_shapes=({0: n},))
    assert (model.calls, model.is_ready, model.log, model.last, model.table, COUNTS[0]) == (0, False, [], None, {}, 0)
    for size in (3, 5):
        expected = _keeping(function)(torch.ones(size, 2))
        COUNTS[0] = 0
        assert torch.equal(program.module()(torch.ones(size, 2)), expected)


def notes_sizes(model, x):
    model.log.append(x.shape)
    model.last = Kept(x.shape[0])
    return x + 1


def tells_a_part_of_itself(model, x):
    model.last = x.shape[0] * 2
    return x.reshape(model.last)


@pytest.mark.parametrize("function", [notes_sizes, tells_a_part_of_itself], ids=lambda function: function.__name__)
def test_a_size_that_no_later_call_reads_is_not_told(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(_keeping(function), (torch.ones(3, 2),), dynamic_shapes=({0: Dim("n")},))
    assert program.module()(torch.ones(5, 2)).shape[0] in (5, 10)


def test_fixed_numbers_in_an_object_that_a_call_makes_are_told():
    def makes_an_object(model, x):
        before, model.last = model.last, Kept(2)
        return x if before is None else x * before.size

    with pytest.warns(LostStateWarning, match="None became Kept"):
        tintype.export(_keeping(makes_an_object), (torch.ones(3),))
