"""Every requirement has a test, and every test names a requirement that exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.contract.requirements import REQUIREMENTS

NAMED = re.compile(r'@requirement\("([^"]+)"\)')


def named() -> set[str]:
    files = Path(__file__).parent.glob("test_*.py")
    return {name for file in files for name in NAMED.findall(file.read_text())}


def test_every_requirement_has_a_test() -> None:
    assert set() == set(REQUIREMENTS) - named()


def test_every_test_names_a_requirement_that_exists() -> None:
    assert set() == named() - set(REQUIREMENTS)
