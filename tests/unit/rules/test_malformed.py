"""Ten thousand malformed documents: each is parsed or refused with a clear error, quickly."""

from __future__ import annotations

import random

import pytest

from postroom.errors import InvalidInput
from postroom.rules.parser import parse_rule

pytestmark = pytest.mark.one_python
COUNT = 10_000
WHOLE = """version: 1
name: Invoices "quoted" to bookkeeping
when:
  all:
    - subject: {contains: invoice}
    - any: [{from: {equals: "@supplier.example"}}, {attachment.name: {matches: "*.pdf"}}]
    - not: {label: {equals: Paid}}
    - header.X-Priority: {regex: "^[12]$"}
then: [{apply_label: Bookkeeping}, mark_read, {move: Archive}, {reply: "Thanks\\n"}, stop]
safety: {max_messages: 1000, require_plan: false, undo: true}
"""
SPLINTERS = (
    "&a", "*a", "!!python/name:os", "<<", "{", "}", "[", "]", ":", ",", "- ", "? ", "|", ">", "%",
    "\t", "\n", "\n\n  ", "'", '"', "#", "---", "...", "\\", "\x00", "\x85", "\ud800", "\ufeff",
    "😀", "null", "~", "1e999", "0x", "true", "{" * 40, "[" * 400, "a" * 3_000, "%YAML 9.9\n---\n",
    "%TAG ! tag:x,2000:\n", '"\\x', '"\\u12', '"\\U00110000"', "(" * 200, "a{1000}{1000}{1000}",
)  # fmt: skip


def malformed(source: random.Random) -> str:
    """A rule with one to five random errors, or random fragments."""
    if source.random() < 0.2:
        return "".join(source.choice(SPLINTERS) for _ in range(source.randint(1, 40)))
    text = WHOLE
    for _ in range(source.randint(1, 5)):
        at, length = source.randrange(len(text) or 1), source.randint(0, 12)
        text = text[:at] + source.choice(SPLINTERS) + text[at + length :]
    return text


def test_ten_thousand_malformed_documents_are_refused_or_read():
    source = random.Random(8)
    refused, unclear = 0, []
    for _ in range(COUNT):
        text = malformed(source)
        try:
            parse_rule(text)
        except InvalidInput as error:
            refused += 1
            problems = error.details["problems"]
            assert isinstance(problems, list)
            places = [p["line"] >= 1 and p["column"] >= 1 for p in problems]
            if not problems or not all(places) or len(str(error)) > 30_000:
                unclear.append(text)

    assert [] == unclear
    assert refused > COUNT * 0.9
