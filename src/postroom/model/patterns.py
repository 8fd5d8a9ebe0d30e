"""Regular expressions that are compiled with their first use: a start loads many of them."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def late_pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, but only for the methods of the pattern: `re.sub` refuses it."""
    return cast("re.Pattern[AnyStr]", _LatePattern(source, flags))


class _LatePattern:
    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        found = {one: getattr(compiled, one) for one in dir(compiled) if not one.startswith("_")}
        vars(self).update(found)  # from now on, this function is not called
        return found[name]
