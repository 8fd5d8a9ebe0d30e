"""The parts of the stylesheet do not style classes of other parts."""

from __future__ import annotations

import re
from collections import defaultdict

from postroom.surfaces.web.rendering import asset

PART = re.compile(r"/\* (.+?) \*/")
RULE = re.compile(r"([^{}]+)\{[^{}]*\}")
FIRST = re.compile(r"\.([\w-]+)")


def classes(rules: str) -> set[str]:
    """The classes in a selector."""
    selectors = (one.strip() for many in RULE.findall(rules) for one in many.split(","))
    return {found[1] for selector in selectors if (found := FIRST.match(selector))}


def test_a_class_belongs_to_one_part_or_to_the_common_part() -> None:
    common, *rest = PART.split(asset("postroom.css").decode())
    owners: dict[str, set[str]] = defaultdict(set)
    for name, rules in zip(rest[::2], rest[1::2], strict=True):
        for one in classes(rules) - classes(common):
            owners[one].add(name)

    assert owners
    assert {} == {name: parts for name, parts in owners.items() if len(parts) > 1}
