"""docs/dynamic_shapes.md has one example per kind of error, as printed."""

from __future__ import annotations

import re

import pytest

from tests.export.documented_reports import PAGE, REPORTS, block


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_has_the_report(name: str) -> None:
    found = re.search(
        f"<!-- begin {name} -->\n(.*?)\n<!-- end {name} -->", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    assert found.group(1) == block(name)
