"""What Chromium shows of each snippet is what the tests of reading mail take for true.

`make test` looks at every fourth snippet, `make fuzz` at all (`VISIBILITY=all`).
"""

from __future__ import annotations

import os

import pytest
from playwright.async_api import Browser

from tests.surfaces.web.pixels import FEW_PIXELS, shown_pixels
from tests.unit.mail.test_visibility import TRUTH, read_truth, write_truth
from tests.unit.mail.visibility_snippets import SAME_WIDTH, SNIPPETS, TEXT

pytestmark = pytest.mark.one_python


async def test_the_recorded_truth_is_what_chromium_shows(
    shared_browser: Browser, request: pytest.FixtureRequest
) -> None:
    is_updated = request.config.getoption("--update-golden")
    step = 1 if is_updated or os.environ.get("VISIBILITY") == "all" else 4
    seen = {name: SNIPPETS[name] for name in list(SNIPPETS)[::step]}
    pixels = await shown_pixels(shared_browser, seen, (TEXT, SAME_WIDTH))
    shown = {name: count >= FEW_PIXELS for name, count in pixels.items()}
    if is_updated:
        write_truth(shown)

    assert TRUTH.exists()
    assert read_truth().keys() == SNIPPETS.keys()
    assert {name: read_truth()[name] for name in seen} == shown
