"""Names of operations in an error, and what a surface calls these operations."""

from __future__ import annotations

import re
from collections.abc import Mapping

from postroom.errors import MailError

_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def operations_named(error: MailError, names: Mapping[str, str]) -> dict[str, str]:
    """The operations that an error advises, and what they are called here."""
    return {name: names[name] for name in _NAME.findall(str(error)) if name in names}


def reword(error: MailError, names: Mapping[str, str]) -> MailError:
    """Replace the names of operations in an error, and return it."""
    said = _NAME.sub(lambda found: names.get(found[0], found[0]), str(error))
    error.args = (said, *error.args[1:])
    return error
