"""The architecture page names functions that exist, and every folder."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
NAMED = sorted(set(re.findall(r"`(postroom[\w.]*)(?::([\w.]+))?`", ARCHITECTURE.read_text())))


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda part: part or "module")
def test_the_named_functions_exist(module: str, name: str) -> None:
    found = importlib.import_module(module)

    assert reduce(getattr, filter(None, name.split(".")), found) is not None


def test_every_folder_is_listed() -> None:
    rows = re.findall(r"^\| (`.*?) \|", ARCHITECTURE.read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    source = ROOT / "src" / "postroom"
    folders = {path.parent.relative_to(source).as_posix() for path in source.glob("*/__init__.py")}

    assert folders <= named
    assert [] == [name for name in named if not (source / name).exists() and name != "approval"]


def test_functions_are_named() -> None:
    assert 40 < len(NAMED)
