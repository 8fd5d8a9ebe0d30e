"""A condition that can never match is reported, with a suggestion."""

from __future__ import annotations

import pytest

from postroom.rules.matching import impossible_conditions
from postroom.rules.parser import parse_rule


def warnings(when: str) -> list[str]:
    return list(impossible_conditions(parse_rule(f"when: {when}\nthen: [archive]\n")))


@pytest.mark.parametrize("field", ["from", "to", "cc"])
@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("builds.example", 'write "@builds.example" for the domain'),
        ("sub.builds.example", 'write "@sub.builds.example" for the domain'),
        ("[builds.example, ci.example]", 'write "@builds.example" for the domain'),
        ("Ana Lima <ana@example.com>", 'write the address alone: "ana@example.com"'),
        ("ana@", "write a whole address"),
    ],
)
def test_a_person_is_an_address_a_domain_or_a_name(field: str, value: str, advice: str) -> None:
    [warning] = warnings(f"[{{{field}: {value if value[0] == '[' else repr(value)}}}]")

    assert warning.startswith(field)
    assert advice in warning


@pytest.mark.parametrize(
    "when",
    [
        "[{from: ana@example.com}]",
        "[{from: '@example.com'}]",
        "[{from: Ana Lima}]",
        "[{from: [builds.example, '@builds.example']}]",
        "[{from: {contains: builds.example}}]",
        "[{from: {matches: '*builds.example'}}]",
        "[{attachment.type: application/pdf}]",
        "[{date: {after: 2026-01-01, before: 2026-02-01}}]",
        "[{age_days: {greater_than: 3, less_than: 9}}]",
        "[{any: [{subject: A}, {subject: B}]}]",
        "[{label: A}, {label: B}]",
        "[{subject: A}, {none: [{subject: B}]}]",
        "[{none: [{date: {after: 2026-01-01}}, {date: {before: 2025-01-01}}]}]",
    ],
)
def test_conditions_that_can_match_have_no_warning(when: str) -> None:
    assert [] == warnings(when)


@pytest.mark.parametrize(
    "when",
    [
        "[{attachment.type: pdf}]",
        "[{date: {after: 2026-02-01, before: 2026-01-01}}]",
        "[{date: {before: 2026-01-01}}, {date: {after: 2026-01-01}}]",
        "[{age_days: {greater_than: 9, less_than: 3}}]",
        "[{size_bytes: {less_than: 0}}]",
        "[{subject: A}, {subject: B}]",
        "[{has_attachment: true}, {all: [{has_attachment: false}]}]",
        "[{subject: A}, {none: [{subject: A}]}]",
        "[{any: [{all: [{subject: A}, {subject: B}]}, {subject: C}]}]",
    ],
)
def test_a_condition_that_never_matches_is_reported_once(when: str) -> None:
    assert 1 == len(warnings(when))
