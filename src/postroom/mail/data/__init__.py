"""Words of mail in many languages, as data: one TOML file per subject.

A pattern is a table. `words` match as whole words, `parts` match anywhere; both are lists of
alternatives in the syntax of `re`. `before` and `after` surround them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any


@cache
def load(subject: str) -> dict[str, Any]:
    """The lists and tables of one subject."""
    import tomllib
    from importlib.resources import files  # late, for a quick start

    return tomllib.loads(files(__name__).joinpath(f"{subject}.toml").read_text("utf-8"))


def pattern(table: dict[str, Any], flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Compile a table that describes a pattern."""
    words = [rf"\b(?:{'|'.join(table['words'])})\b"] if "words" in table else []
    alternatives = "|".join([*words, *table.get("parts", ())])
    return re.compile(table.get("before", "") + alternatives + table.get("after", ""), flags)
