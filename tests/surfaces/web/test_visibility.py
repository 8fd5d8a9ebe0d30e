"""The recorded visibility of each snippet is what Chromium shows.

`make test` checks every fourth snippet, `make fuzz` all (`VISIBILITY=all`).
"""

from __future__ import annotations

import os

import pytest
from playwright.async_api import Browser

from tests.surfaces.web.pixels import FEW_PIXELS, shown_pixels
from tests.unit.mail.test_visibility import (
    TRUTH,
    read_recorded_visibility,
    write_recorded_visibility,
)
from tests.unit.mail.visibility_snippets import SAME_WIDTH, SNIPPETS, TEXT

pytestmark = pytest.mark.one_python


async def test_the_recorded_visibility_is_that_of_chromium(
    shared_browser: Browser, request: pytest.FixtureRequest
) -> None:
    is_updated = request.config.getoption("--update-golden")
    step = 1 if is_updated or os.environ.get("VISIBILITY") == "all" else 4
    seen = {name: SNIPPETS[name] for name in list(SNIPPETS)[::step]}
    pixels = await shown_pixels(shared_browser, seen, (TEXT, SAME_WIDTH))
    shown = {name: count >= FEW_PIXELS for name, count in pixels.items()}
    if is_updated:
        write_recorded_visibility(shown)

    assert TRUTH.exists()
    assert read_recorded_visibility().keys() == SNIPPETS.keys()
    assert {name: read_recorded_visibility()[name] for name in seen} == shown
