"""Errors in the words of a surface: advice names an operation as the surface calls it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from postroom.errors import MailError

_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def reword(error: MailError, names: Mapping[str, str]) -> MailError:
    """Replace the names of operations in an error, and return it."""

    def said(text: object) -> str:
        return _NAME.sub(lambda found: names.get(found[0], found[0]), str(text))

    error.args = (said(error), *error.args[1:])
    problems = error.details.get("problems")
    if isinstance(problems, list):
        error.details["problems"] = [
            {**item, "problem": said(item["problem"])} for item in problems
        ]
    return error
