"""Characters that hide: they show nothing, yet a machine reads them."""

from __future__ import annotations

import re

from postroom.mail.message import HiddenText

# Tag characters spell ASCII invisibly; only after a black flag do they mean something.
_TAGS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
_ZERO_WIDTH = re.compile("[\u200b\u2060-\u2064\ufeff\u180e\u00ad\u034f]+")
_JOINERS = re.compile("[\u200c\u200d]{2,}")
_OVERRIDES = re.compile("[\u202d\u202e]")
_ANY = re.compile(
    "[\u00ad\u034f\u180e\u200b-\u200d\u202d\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff"
    "\U000e0000-\U000e01ef]"
)
_TELLING_RUN = 16
_EXCERPT = 200


def strip_invisible(text: str) -> tuple[str, tuple[HiddenText, ...]]:
    """The text as it shows, and what was hidden between its letters."""
    if text.isascii() or not _ANY.search(text):
        return text, ()
    found: list[HiddenText] = []
    text = _TAGS.sub(lambda m: _noted(found, "tag characters", _spelled(m[0]), m[0]), text)
    text = _SELECTORS.sub(lambda m: _noted(found, "variation selectors", _bytes(m[0]), m[0]), text)
    zero_width = sum(len(run) for run in _ZERO_WIDTH.findall(text))
    joiners = sum(len(run) for run in _JOINERS.findall(text))
    if _longest(text) >= _TELLING_RUN:
        found.append(HiddenText("zero-width characters", "", zero_width + joiners))
    text = _JOINERS.sub("", _ZERO_WIDTH.sub("", text))
    if _OVERRIDES.search(text):
        found.append(HiddenText("direction override", "", len(_OVERRIDES.findall(text))))
        text = _OVERRIDES.sub("", text)
    return text, tuple(found)


def _noted(found: list[HiddenText], reason: str, spelled: str, run: str) -> str:
    found.append(HiddenText(reason, spelled[:_EXCERPT], len(run)))
    return run[:1] if reason == "variation selectors" and run[0] <= "\ufe0f" else ""


def _spelled(run: str) -> str:
    return "".join(chr(ord(c) - 0xE0000) for c in run if 0xE0020 <= ord(c) < 0xE007F)


def _bytes(run: str) -> str:
    """Text smuggled as one selector per byte."""
    numbers = (ord(c) - 0xFE00 if c <= "\ufe0f" else ord(c) - 0xE0100 + 16 for c in run)
    return "".join(c for c in bytes(numbers).decode("utf-8", "replace") if c.isprintable())


def _longest(text: str) -> int:
    runs = re.findall("[\u200b-\u200d\u2060-\u2064\ufeff]+", text)
    return max(map(len, runs), default=0)
