"""The page as a file: one piece, safe whatever a program is called, and what it says of sizes is what a call says."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

import tintype
from tests.view.models import asserting_program, encoder_program
from tintype.symbolic.evaluation import PYTHON
from tintype.view.pages import _FOLDER, _PARTS, page_code, page_of, page_style, problems_page

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<!--\u2028"


class Elements(HTMLParser):
    """The tags of a page with their attributes, and the text of its data."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            tag, attributes = self.tags[-1]
            key = attributes.get("id") or tag
            self.texts[key] = self.texts.get(key, "") + data


def parsed(html: str) -> Elements:
    found = Elements()
    found.feed(html)
    return found


def test_a_page_is_one_piece() -> None:
    html = encoder_program().view().html
    tags = parsed(html).tags
    assert [tag for tag, _ in tags] == [
        "html", "head", "meta", "meta", "meta", "meta", "title", "style",
        "body", "div", "noscript", "script", "script",
    ]  # fmt: skip
    assert not [attributes for _, attributes in tags if {"src", "href", "style"} & attributes.keys()]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page_code() + page_style())
    policy = next(attributes["content"] for _, attributes in tags if "http-equiv" in attributes)
    assert policy is not None and policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_code_puts_text_in_as_text() -> None:
    for name in _PARTS:
        code = (_FOLDER / f"{name}.js").read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\(|import\(", code
        ), name
    assert sorted(path.stem for path in _FOLDER.glob("*.js")) == sorted(_PARTS)


def test_hostile_names_stay_names() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(HOSTILE.replace(".", ""), torch.nn.Linear(2, 2))

        def forward(self, x):
            return {HOSTILE: next(self.children())(x)}

    program = tintype.export(Model(), (torch.ones(1, 2),))
    page = page_of({HOSTILE: program}, title=HOSTILE, source=True)
    found = parsed(page.html)
    assert [tag for tag, _ in found.tags].count("script") == 2 and "img" not in [tag for tag, _ in found.tags]
    assert json.loads(found.texts["data"]) == json.loads(json.dumps(page.data))
    assert page.data["programs"][0]["contract"]["outputs"][0]["place"].count("</script>") == 1
    assert found.texts["title"].removesuffix("\n") == HOSTILE
    assert "<script" not in page._repr_html_() and 'srcdoc="&lt;!doctype html&gt;' in page._repr_html_()


def test_problems_have_a_page_with_all_of_them() -> None:
    def forward(x):
        y = x.numpy()
        return x * float(x.sum()) * y.sum()

    with pytest.raises(tintype.TintypeError) as caught:
        tintype.export(forward, (torch.ones(2),))
    page = problems_page(caught.value)
    problems = page.data["problems"]
    assert [problem["id"] for problem in problems]
    assert all(problem["line"]["text"] and problem["remedy"] and problem["explanation"] for problem in problems)
    assert "line" not in problems_page(caught.value, source=False).data["problems"][0]
    with pytest.raises(tintype.InvalidRequestError, match="not a KeyError"):
        problems_page(KeyError("x"))  # type: ignore[arg-type]


def test_a_draft_shows_what_it_decided() -> None:
    program = tintype.draft_export(lambda x: x[: int(x.sum()) * 2].tolist()[0] + x, (torch.ones(3),))
    assert [each["id"] for each in program.view().data["programs"][0]["decisions"]] == ["data-dependent"]


def test_what_can_not_be_shown_is_refused(tmp_path) -> None:
    with pytest.raises(tintype.InvalidRequestError, match="a page needs a program"):
        page_of({})
    with pytest.raises(tintype.InvalidRequestError, match="there is no folder"):
        encoder_program(1).view(tmp_path / "nowhere" / "page.html")
    assert encoder_program(1).view(tmp_path / "page.html").html == (tmp_path / "page.html").read_text(
        encoding="utf-8"
    )


# --- the contract: the data of the page say what a call says. In JavaScript: tests/view/in_browser.py ------------


def value_of(data: Any, symbols: dict[str, int]) -> Any:
    """What ``page/expressions.js`` computes, in Python."""
    if isinstance(data, (bool, int)):
        return data
    if isinstance(data, str):
        return symbols[data]
    operation, *parts = data
    if operation in ("int", "float"):
        return (int if operation == "int" else float)(parts[0])
    if operation == "sum":
        terms = (value_of(count, symbols) * value_of(part, symbols) for count, part in parts[1:])
        return sum(terms, start=value_of(parts[0], symbols))
    values = [value_of(part, symbols) for part in parts]
    if operation == "product":
        product = 1
        for value in values:
            product *= value
        return product
    if operation in ("and", "or"):
        return (all if operation == "and" else any)(values)
    return PYTHON[operation](*values)


def accepts(contract: dict[str, Any], sizes: list[list[int]]) -> bool:
    symbols: dict[str, int] = {}
    for given, actual_sizes in zip(contract["inputs"], sizes, strict=True):
        for size, actual in zip(given.get("sizes", ()), actual_sizes, strict=True):
            unknown = [symbol for symbol in size.get("symbols", ()) if symbol not in symbols]
            if not unknown and value_of(size["value"], symbols) != actual:
                return False
            if len(unknown) == 1 and unknown[0] in size["linear"]:
                rest = value_of(size["value"], {**symbols, unknown[0]: 0})
                if (actual - rest) % size["linear"][unknown[0]]:
                    return False
                symbols[unknown[0]] = (actual - rest) // size["linear"][unknown[0]]
            lower, upper = size.get("lower"), size.get("upper")
            if (lower is not None and actual < lower) or (upper is not None and actual > upper):
                return False
    asked = [line["condition"] for line in contract["lines"] if "condition" in line]
    return all(value_of(condition, symbols) for condition in asked)


def runs(program: tintype.ExportedProgram, inputs: tuple[Any, ...]) -> bool:
    try:
        program.module()(*inputs)
    except tintype.TintypeError:
        return False
    return True


def test_the_contract_in_the_page_is_the_programs() -> None:
    program = encoder_program(1)
    contract = program.view().data["programs"][0]["contract"]
    for sizes in itertools.product((0, 1, 2, 64, 65), (0, 2, 3, 4, 5, 100, 102)):
        assert accepts(contract, [list(sizes), []]) == runs(program, (torch.zeros(sizes, dtype=torch.long), 1.0)), (
            sizes
        )


def test_conditions_that_the_graph_asserts_are_in_the_page() -> None:
    program = asserting_program()
    contract = program.view().data["programs"][0]["contract"]
    assert any("condition" in line for line in contract["lines"])
    answers = set()
    for a, b in itertools.product((1, 2, 3, 4, 5, 6, 12, 41), (1, 2, 3, 6, 7, 9)):
        found = accepts(contract, [[a], [b]])
        assert found == runs(program, (torch.ones(a), torch.ones(b))), (a, b)
        answers.add(found)
    assert answers == {True, False}


def test_sizes_that_must_be_multiples() -> None:
    dynamic = {"x": {0: tintype.Dim.AUTO}}
    program = tintype.export(lambda x: x.reshape(-1, 4).sum(0), (torch.ones(8),), dynamic_shapes=dynamic)
    contract = program.view().data["programs"][0]["contract"]
    for size in range(14):
        assert accepts(contract, [[size]]) == runs(program, (torch.ones(size),)), size
