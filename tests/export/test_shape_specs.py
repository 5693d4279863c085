"""Specs that are shorter than the structure they are for, and what is said of those that don't fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tintype import Dim
from tintype.export.shape_spec import leaf_entries

BATCH, LENGTH = Dim("batch"), Dim("length")
A = Dim.AUTO


class Layer:
    def __init__(self, count: int = 3) -> None:
        self.keys, self.values = torch.ones(2, count, 4), torch.ones(2, count, 4)
        self.seen = count
        self.name = "layer"


class Cache:
    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]


tintype.register_container(Layer)
tintype.register_container(Cache)


def program(ids: torch.Tensor, cache: Cache, flag: bool = True, scale: float = 1.0, **more: Any) -> Any:
    return ids.sum() + cache.layers[0].keys.sum()


def entries(spec: Any, **more: Any) -> list[Any]:
    return leaf_entries(program, (torch.ones(2, 5), Cache()), {"flag": True, "scale": 0.5, **more}, spec)


STATIC_LAYER = [None, None, None]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("auto", [[A, A], [A] * 3, [A], [A] * 3, [A] * 3, [A], [A] * 3, None, None]),
        (Dim.AUTO, [[A, A], [A] * 3, [A], [A] * 3, [A] * 3, [A], [A] * 3, None, None]),
        ({"ids": "auto"}, [[A, A], *STATIC_LAYER, *STATIC_LAYER, None, None]),
        ({"ids": Dim.AUTO, "flag": "auto"}, [[A, A], *STATIC_LAYER, *STATIC_LAYER, None, None]),
        ({"ids": {0: "auto"}}, [[A, None], *STATIC_LAYER, *STATIC_LAYER, None, None]),
        ({"cache": Dim.STATIC}, [None, *STATIC_LAYER, *STATIC_LAYER, None, None]),
        ({"cache": "auto"}, [None, [A] * 3, [A], [A] * 3, [A] * 3, [A], [A] * 3, None, None]),
        ({"cache": {"layers": "auto"}}, [None, [A] * 3, [A], [A] * 3, [A] * 3, [A], [A] * 3, None, None]),
        ({"cache": {"layers": ["auto", None]}}, [None, [A] * 3, [A], [A] * 3, *STATIC_LAYER, None, None]),
        ({"cache": {"layers": {1: {"seen": A}}}}, [None, *STATIC_LAYER, None, [A], None, None, None]),
        (
            {"cache": {0: BATCH, -1: LENGTH}},
            [None, *[[BATCH, None, LENGTH], None, [BATCH, None, LENGTH]] * 2, None, None],
        ),
        ({"cache": {"layers": {"keys": {1: LENGTH}}}}, [None, *[[None, LENGTH, None], None, None] * 2, None, None]),
    ],
)
def test_short_specs(spec: Any, expected: Any) -> None:
    assert entries(spec) == expected


def test_a_keyword_of_kwargs_has_a_spec_of_its_own() -> None:
    assert entries({"extra": {0: BATCH}}, extra=torch.ones(4))[-1] == [BATCH]
    assert entries({"more": {"extra": {0: BATCH}}}, extra=torch.ones(4))[-1] == [BATCH]


def test_a_spec_that_does_not_fit_is_reported_with_one_that_does() -> None:
    with pytest.raises(tintype.errors.InvalidRequestError) as caught:
        entries({"cache": {"layers": {"key": {1: LENGTH}}}})
    text = str(caught.value)
    assert "cache.layers[0] has no 'key', which dynamic_shapes names; it has ['keys', 'seen', 'values']" in text
    copied = eval(text.partition("dynamic_shapes=")[2], {"Dim": Dim})
    assert copied["cache"]["layers"]["seen"] == Dim.AUTO
    assert entries(copied) == entries("auto")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cache": {5: BATCH}}, "no tensor in cache has the dimension 5 that dynamic_shapes names"),
        ({"cache": {"layers": {7: {"keys": {0: BATCH}}}}}, "cache.layers has 2 parts, but .* names number 7"),
        ({"cache": {"layers": [None]}}, "cache.layers has 2 parts, but dynamic_shapes has 1"),
        ({"cache": 3}, "cache is a Cache, but dynamic_shapes has a int for it"),
        ({"other": None}, "dynamic_shapes names 'other', but the arguments are"),
        ("automatic", "ids is a tensor, but dynamic_shapes has 'automatic' for it"),
    ],
)  # fmt: skip
def test_what_is_said(spec: Any, message: str) -> None:
    with pytest.raises(tintype.errors.InvalidRequestError, match=message):
        entries(spec)


def test_what_is_suggested_follows_the_attributes_of_an_object() -> None:
    def fixes(cache: Cache) -> torch.Tensor:
        assert cache.layers[0].keys.shape[0] == 2
        return cache.layers[0].keys

    with pytest.raises(tintype.ConstraintViolationError) as caught:
        tintype.export(fixes, (Cache(),), dynamic_shapes={"cache": {0: Dim("batch")}})
    suggested = tintype.suggest_dynamic_shapes(caught.value)
    assert suggested["cache"]["layers"][0]["keys"] == (2, None, None)
    tintype.export(fixes, (Cache(),), dynamic_shapes=suggested)


def test_collections_of_shapes_reach_into_objects() -> None:
    cache = Cache()
    shapes = tintype.ShapesCollection()
    shapes[cache.layers[1].values] = {0: BATCH}
    found = leaf_entries(lambda cache: None, (cache,), {}, shapes)
    assert found == [None, None, None, None, None, [BATCH, None, None]]
    more = tintype.AdditionalInputs()
    other = Cache()
    other.layers[0] = Layer(7)
    more.add((other,))
    found = leaf_entries(lambda cache: None, (cache,), {}, more)
    D = Dim.DYNAMIC
    assert found == [[None, D, None], [D], [None, D, None], [None] * 3, None, [None] * 3]


def test_a_function_without_a_signature_is_refused_with_words() -> None:
    x = torch.ones(3)
    with pytest.raises(tintype.TintypeError, match="the arguments of sin have no names") as caught:
        tintype.export(torch.sin, (x,), dynamic_shapes=({0: tintype.Dim("n")},))
    assert "lambda x: sin(x)" in str(caught.value)
    torch.testing.assert_close(tintype.export(torch.sin, (x,)).module()(x), x.sin())
