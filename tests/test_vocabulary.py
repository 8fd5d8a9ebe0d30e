"""Names and prose use the words of the glossary or standard terms, not metaphors."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "postroom"
TESTS = ROOT / "tests"
TEXTS = sorted(
    path
    for pattern in ("src/**/*.py", "src/**/*.sql", "src/**/*.md", "docs/**/*.md", "*.md",
                    "deploy/*", "scripts/*", "Makefile")
    for path in ROOT.glob(pattern)
    if path.is_file() and SOURCE / "surfaces/web/site" not in path.parents  # copies of docs/
)  # fmt: skip
OLD_VALUES = {
    "CHANGELOG.md": "tells what was renamed",
    "docs/reference/glossary.md": "tells which words not to use",
    "src/postroom/blobs/files.py": "reads the mark `.house` of older versions",
    "src/postroom/sending/outgoing_mail.py": "keeps a name of the published OpenAPI document",
    "src/postroom/store/maintenance/database_files.py": "reads databases of older versions",
    "src/postroom/store/upgrade.py": "renames the tables of older versions",
}
OLD_WORDS = frozenset(
    ("attendance", "bell", "bells", "census", "confidences", "crew", "crowd", "deed", "deeds",
     "enclosure", "enclosures", "errand", "errands", "house", "houses", "nursery", "shelf",
     "shelves", "tally", "tick", "ticks", "vouch", "vouched", "vouches")
)  # fmt: skip
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names_of(text: str) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def metaphors_in(path: Path) -> set[str]:
    """Names in a module, and its own name, that contain a retired word."""
    names = names_of(path.read_text()) | set(path.relative_to(ROOT).with_suffix("").parts)
    return {name for name in names if words_of(name) & OLD_WORDS}


def words_of(name: str) -> set[str]:
    return {part.lower() for part in _PARTS.findall(name)}


@pytest.mark.parametrize("folder", [SOURCE, TESTS], ids=["src", "tests"])
def test_no_name_is_an_old_metaphor(folder: Path) -> None:
    found = {path: metaphors_in(path) for path in folder.rglob("*.py")}

    assert found
    assert {} == {str(path.relative_to(ROOT)): names for path, names in found.items() if names}


def test_no_text_has_an_old_metaphor() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in TEXTS
        if str(path.relative_to(ROOT)) not in OLD_VALUES
        for word in OLD_WORDS & set(re.findall(r"[a-z]+", path.read_text().lower()))
    }

    assert set() == found


def test_every_exception_is_needed() -> None:
    needless = {
        name
        for name in OLD_VALUES
        if not OLD_WORDS & set(re.findall(r"[a-z]+", (ROOT / name).read_text().lower()))
    }

    assert set() == needless


def test_a_metaphor_is_detected() -> None:
    assert {"_house", "ShelfName", "bells"} == {
        name
        for name in names_of("_house, ShelfName, bells, services = 1, 2, 3, 4")
        if words_of(name) & OLD_WORDS
    }
