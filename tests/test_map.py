"""The map of the code names functions that exist."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ARCHITECTURE = Path(__file__).parent.parent / "docs" / "explanation" / "architecture.md"
NAMED = sorted(set(re.findall(r"`(postroom[\w.]*)(?::([\w.]+))?`", ARCHITECTURE.read_text())))


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda part: part or "module")
def test_what_the_map_names_is_there(module: str, name: str) -> None:
    found = importlib.import_module(module)

    assert reduce(getattr, filter(None, name.split(".")), found) is not None


def test_the_map_names_something() -> None:
    assert 40 < len(NAMED)
