"""What Chromium shows of each snippet is what the tests of reading mail take for true."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.surfaces.web.pixels import FEW_PIXELS, shown_pixels
from tests.unit.mail.test_visibility import TRUTH, read_truth, write_truth
from tests.unit.mail.visibility_snippets import SAME_WIDTH, SNIPPETS, TEXT

pytestmark = pytest.mark.one_python


async def test_the_recorded_truth_is_what_chromium_shows(
    shared_browser: Browser, request: pytest.FixtureRequest
) -> None:
    pixels = await shown_pixels(shared_browser, SNIPPETS, (TEXT, SAME_WIDTH))
    shown = {name: count >= FEW_PIXELS for name, count in pixels.items()}
    if request.config.getoption("--update-golden"):
        write_truth(shown)

    assert TRUTH.exists()
    assert read_truth() == shown
