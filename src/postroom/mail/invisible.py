"""Characters that hide: they show nothing, yet a machine reads them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from postroom.mail.message import HiddenText

# Tag characters spell ASCII invisibly; only after a black flag do they mean something.
_TAGS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]+")
# One selector belongs to the letter before it; more of them carry something else.
_SELECTORS = re.compile(
    "(?:([\ufe00-\ufe0f])|[\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]+"
)
_ZERO_WIDTH = re.compile("[\u200b\u2060-\u2064\ufeff\u180e\u00ad\u034f]+|[\u200c\u200d]{2,}")
_TELLING_RUN = re.compile("[\u200b-\u200d\u2060-\u2064\ufeff]{16,}")
_OVERRIDES = re.compile("[\u202d\u202e]")
_ANY = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200d\u202d\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef]"
)
_MOST_FOUND = 200
_EXCERPT = 200


def strip_invisible(text: str) -> tuple[str, tuple[HiddenText, ...]]:
    """The text as it shows, and what was hidden between its letters."""
    if text.isascii() or not _ANY.search(text):
        return text, ()
    found = _noted(_TAGS, text, "tag characters", _spelled)
    text = _TAGS.sub("", text)
    found += _noted(_SELECTORS, text, "variation selectors", _smuggled)
    text = _SELECTORS.sub(r"\1", text)
    if run := _TELLING_RUN.search(text):
        found.append(HiddenText("zero-width characters", "", len(run[0])))
    text = _ZERO_WIDTH.sub("", text)
    if _OVERRIDES.search(text):
        found.append(HiddenText("direction override", "", len(_OVERRIDES.findall(text))))
        text = _OVERRIDES.sub("", text)
    return text, tuple(found)


def _noted(
    pattern: re.Pattern[str], text: str, reason: str, read: Callable[[str], str]
) -> list[HiddenText]:
    runs = itertools.islice(pattern.finditer(text), _MOST_FOUND)
    return [HiddenText(reason, read(run[0])[:_EXCERPT], len(run[0])) for run in runs]


def _spelled(run: str) -> str:
    """Tag characters are ASCII moved far up."""
    return "".join(chr(ord(c) - 0xE0000) for c in run[:1_000] if 0xE0020 <= ord(c) < 0xE007F)


def _smuggled(run: str) -> str:
    """Text as one selector per byte."""
    numbers = (ord(c) - 0xFE00 if c <= "\ufe0f" else ord(c) - 0xE0100 + 16 for c in run[:1_000])
    return "".join(c for c in bytes(numbers).decode("utf-8", "replace") if c.isprintable())
