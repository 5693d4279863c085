"""The page in a real browser: ``make view-browser``. It needs Chromium, so its name keeps it out of ``make test``."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.view.browser import Browser
from tests.view.models import asserting_program, encoder_program, joint_program
from tests.view.test_pages import HOSTILE, runs
from tintype.symbolic import Environment, Expr, evaluate, floor_div, maximum, minimum, mod
from tintype.view.expressions import expression_data
from tintype.view.pages import Page, page_of, problems_page

SECONDS_TO_OPEN = 2.0  # for 10,000 nodes
APP = "tintypePage.app"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    try:
        browser = Browser()
    except LookupError as error:
        pytest.exit(str(error), returncode=1)
    with browser:
        yield browser


@pytest.fixture
def show(tab: Browser, tmp_path: Path) -> Iterator[Any]:
    """Opens a page; in the end, it must have said nothing and asked for nothing but itself."""
    opened: list[str] = []

    def open_page(page: Page) -> Browser:
        path = page.save(tmp_path / f"page{len(opened)}.html")
        opened.append(path.as_uri())
        tab.open(path)
        return tab

    tab.messages.clear()
    tab.requests.clear()
    yield open_page
    assert tab.messages == []
    assert set(tab.requests) <= set(opened)


def text(tab: Browser, selector: str) -> str:
    return tab.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent).join('\\n')")


def count(tab: Browser, selector: str) -> int:
    return tab.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")


def verdict(tab: Browser, sizes: list[list[int]]) -> bool:
    given = "[" + ", ".join("[" + ", ".join(f"{size}n" for size in each) + "]" for each in sizes) + "]"
    return tab.evaluate(f"tintypePage.checkSizes({APP}.program.contract, {given}).accepted")


def test_the_verdict_is_that_of_a_call(show: Any) -> None:
    program = encoder_program(1)
    tab = show(program.view())
    for sizes in itertools.product((0, 1, 2, 64, 65), (0, 2, 3, 4, 5, 100, 102)):
        runs_with = runs(program, (torch.zeros(sizes, dtype=torch.long), 1.0))
        assert verdict(tab, [list(sizes), []]) == runs_with, sizes
    program = asserting_program()
    tab = show(program.view())
    for a, b in itertools.product((1, 2, 3, 4, 5, 6, 12, 41), (1, 2, 3, 6, 7, 9)):
        assert verdict(tab, [[a], [b]]) == runs(program, (torch.ones(a), torch.ones(b))), (a, b)


def random_expression(symbols: list[Any], depth: int) -> Any:
    if depth == 0:
        return random.choice([*symbols, random.randint(-5, 9)])
    left, right = (random_expression(symbols, depth - 1) for _ in range(2))
    divisor = random.choice([2, 3, 7, *symbols])
    kinds = [lambda: left + right, lambda: left - right, lambda: left * right, lambda: minimum(left, right),
             lambda: maximum(left, right), lambda: floor_div(left, divisor), lambda: mod(left, divisor)]  # fmt: skip
    return random.choice(kinds)()


def test_expressions_are_computed_as_python_does(show: Any) -> None:
    tab = show(encoder_program(1).view())
    random.seed(5)
    environment = Environment()
    symbols = [environment.backed(random.randint(1, 9), lower=1) for _ in range(3)]
    for _ in range(300):
        expression = random_expression(symbols, 3)
        values = {symbol: random.randint(1, 10**9) for symbol in symbols}
        given = "{" + ", ".join(f"{symbol.name}: {value}n" for symbol, value in values.items()) + "}"
        found = tab.evaluate(f"String(tintypePage.evaluate({json.dumps(expression_data(expression))}, {given}))")
        expected = evaluate(expression, values) if isinstance(expression, Expr) else expression
        assert int(found) == expected, (expression, values)


def test_sizes_can_be_typed_in(show: Any) -> None:
    tab = show(encoder_program(1).view(source=True))
    assert text(tab, ".verdict strong") == "Accepted"
    tab.evaluate("document.querySelector('input.size').select(); document.querySelector('input.size').focus()")
    tab.type("65")
    assert text(tab, ".verdict strong") == "Refused"
    assert "tokens.shape[0] = 65 is too large: batch is at most 64" in text(tab, ".verdict li")
    assert count(tab, "input.size.wrong") == 1 and count(tab, ".line.broken") == 1
    tab.evaluate("document.querySelector('input.size').select()")
    tab.type("7")
    assert text(tab, ".verdict strong") == "Accepted" and "[7, 6, 8]" in text(tab, ".results")


def test_everything_can_be_reached_by_keys(show: Any) -> None:
    tab = show(page_of({"functional": encoder_program(), "core": encoder_program().run_decompositions()}))
    tab.press("2")
    assert text(tab, ".tab.chosen").startswith("Modules") and "2 more like it" in text(tab, ".module-row")
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    assert text(tab, ".panel h2") == "embedding"
    tab.press("3")
    tab.press("/")
    tab.type("op:linear module:layers.1.* dim:batch")
    assert "2 of " in text(tab, ".found") and count(tab, ".node-row") == 2
    tab.press("Enter")
    assert text(tab, ".panel h2") == "linear_2" and "layers/1/wide" in text(tab, ".crumbs")
    tab.press("Escape")
    tab.press("j")
    tab.press("4")
    assert text(tab, ".tab.chosen").startswith("Side by side") and count(tab, ".pair-row") > 10
    tab.press("t")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 22, 20)"
    tab.press("?")
    assert count(tab, "dialog[open]") == 1
    tab.press("Escape")


def test_a_size_shows_where_it_flows(show: Any) -> None:
    tab = show(encoder_program().view())
    tab.evaluate("document.querySelector('button.dim').click()")
    assert text(tab, ".panel h2") == "batch" and "Flows through" in text(tab, ".panel")
    tab.evaluate("document.querySelector('.panel .quiet').click()")
    assert tab.evaluate("document.querySelector('.search').value") == "dim:batch"


def test_stages_backward_and_comparisons_are_side_by_side(show: Any) -> None:
    program = encoder_program(1)
    tab = show(page_of({"functional": program, "core": program.run_decompositions()}))
    tab.press("4")
    rows = tab.evaluate(
        "[...document.querySelectorAll('.rows .pair-row')].map(r => [...r.children].map(c => c.textContent))"
    )
    linked = [right for left, right in rows if left.startswith("layer_norm")]
    assert linked and linked[0].startswith("native_layer_norm")
    tab = show(joint_program().view())
    tab.press("4")
    assert "backward" in text(tab, ".pair-head") and count(tab, ".rows .pair-row") > 10
    other = program.rewrite(torch.ops.aten.gelu.default, torch.nn.functional.relu)
    tab = show(program.view(against=other))
    tab.press("4")
    assert "1 changed" in text(tab, ".compared") and "0 added" in text(tab, ".compared")
    assert "operators: 2 differ" in text(tab, ".compared") and "weights: the same" in text(tab, ".compared")


def test_problems_are_shown(show: Any) -> None:
    def forward(x):
        return x * float(x.sum()) * x.numpy().sum()

    with pytest.raises(tintype.TintypeError) as caught:
        tintype.export(forward, (torch.ones(2),))
    tab = show(problems_page(caught.value))
    assert count(tab, ".problem") >= 1 and "x.numpy()" in text(tab, ".problem .source")


def test_hostile_names_run_nothing(show: Any) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(HOSTILE.replace(".", ""), torch.nn.Linear(2, 2))

        def forward(self, x):
            return {HOSTILE: next(self.children())(x)}

    tab = show(page_of({HOSTILE: tintype.export(Model(), (torch.ones(1, 2),))}, title=HOSTILE, source=True))
    for view in "123":
        tab.press(view)
        assert count(tab, "img") == 0 and count(tab, "script") == 2
    assert HOSTILE in text(tab, "h1")


def test_ten_thousand_nodes_open_quickly(show: Any) -> None:
    class Deep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(200))

        def forward(self, x):
            for layer in self.layers:
                y = layer(x)
                for _ in range(48):
                    y = y.sin()
                x = x + y
            return x

    program = tintype.export(Deep().eval(), (torch.ones(3, 2),), dynamic_shapes={"x": {0: tintype.Dim("batch")}})
    page = program.view()
    assert len(page.data["programs"][0]["nodes"]) > 10_000
    tab = show(page)
    opened = tab.evaluate("performance.now()")

    def timed(code: str) -> float:
        return tab.evaluate(f"{{ const start = performance.now(); {code}; performance.now() - start }}")

    graph, search = timed(f"{APP}.show('graph')"), timed(f"{APP}.search('op:sin')")
    print(f"opened after {opened:.0f} ms, graph {graph:.0f} ms, search {search:.0f} ms")
    assert max(opened, graph, search) < 1000 * SECONDS_TO_OPEN
    assert count(tab, ".row") < 200
