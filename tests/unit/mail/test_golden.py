"""Small mails with all parsed fields; `--update-golden` rewrites the JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from postroom.mail.message import ParsedMessage
from postroom.mail.parse import read_message
from postroom.model.limits import Limits

GOLDEN = Path(__file__).parents[2] / "golden" / "mail"


def as_json(parsed: ParsedMessage) -> dict[str, Any]:
    """All fields that are not empty, with the first bytes of files."""
    values = asdict(parsed)
    values["date"] = parsed.date.isoformat() if parsed.date else None
    values["headers"] = [f"{name}: {value}" for name, value in parsed.headers]
    for attachment in values["attachments"]:
        attachment["content"] = attachment["content"][:40].decode("ascii", "backslashreplace")
    return without_empty(values)


def without_empty(values: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in values.items():
        value = without_empty(value) if isinstance(value, dict) else value
        if value not in (None, "", (), [], {}, 0, False):
            kept[name] = value
    return kept


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.eml")), ids=lambda path: path.stem)
def test_a_golden_mail_is_parsed_as_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    found = json.dumps(as_json(read_message(path.read_bytes(), Limits())), indent=1,
                       ensure_ascii=False, default=list) + "\n"  # fmt: skip
    expected = path.with_suffix(".json")
    if request.config.getoption("--update-golden"):
        expected.write_text(found)

    assert expected.read_text() == found
