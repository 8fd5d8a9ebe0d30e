"""Conditions of CSS: `@media`, `@supports` and `@container`, for the window mail is read in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import eq, ge, gt, le, lt

from postroom.mail.data import load
from postroom.mail.html.css.properties import is_refused
from postroom.mail.html.css.syntax import HEIGHT, WIDTH, Base, length, split

_DATA = load("html")
_FEATURES: dict[str, list[str]] = _DATA["media_features"]
_SUPPORTED = frozenset(_DATA["supported_properties"])
_COMPARISONS = {"<=": le, ">=": ge, "<": lt, ">": gt, "=": eq}
_RANGE = re.compile(rf"({'|'.join(_COMPARISONS)})")
_SIZES = {
    "width": WIDTH, "height": HEIGHT, "device-width": 1920.0, "device-height": 1080.0,
    "inline-size": WIDTH, "block-size": HEIGHT, "aspect-ratio": WIDTH / HEIGHT,
    "device-aspect-ratio": 16 / 9, "resolution": 1.0, "-webkit-device-pixel-ratio": 1.0,
    "color": 8.0, "color-index": 0.0, "monochrome": 0.0,
}  # fmt: skip
_MAX_CHARS = 2_000
_MAX_DEPTH = 8
_RATIO = re.compile(r"([\d.]+)\s*/\s*([\d.]+)")


@lru_cache(maxsize=256)
def media_applies(query: str) -> bool:
    """Whether a list of media queries applies to a light screen of the usual size."""
    query = query.strip().lower()
    if not query:
        return True
    return len(query) <= _MAX_CHARS and any(_medium(one.strip()) for one in split(query, ","))


def _medium(query: str) -> bool:
    words = query.split(None, 2)
    if query.startswith(("only ", "not ")) and not query[4:].lstrip().startswith("("):
        negated = words[0] == "not"
        return _typed(query[4:].strip()) is not negated
    return condition(query, _feature) if query.startswith(("(", "not")) else _typed(query)


def _typed(query: str) -> bool:
    kind, _, rest = query.partition(" and ")
    return kind.strip() in ("screen", "all") and (not rest or condition(rest, _feature))


def condition(text: str, holds: Callable[[str], bool], depth: int = 0) -> bool:
    """A formula of `and`, `or` and `not`; *holds* evaluates what is in brackets."""
    text = text.strip()
    if depth > _MAX_DEPTH:
        return False
    for word, combine in ((" or ", any), (" and ", all)):
        parts = _split_words(text, word)
        if len(parts) > 1:
            return combine(condition(part, holds, depth + 1) for part in parts)
    if text.startswith("not") and text[3:].lstrip().startswith("("):
        return not condition(text[3:], holds, depth + 1)
    if text.startswith("(") and text.endswith(")"):
        inner = text[1:-1].strip()
        if inner.startswith("(") or (inner.startswith("not") and "(" in inner):
            return condition(inner, holds, depth + 1)
        return holds(inner)
    return holds(text)


def _split_words(text: str, word: str) -> list[str]:
    """The parts between words that are in no brackets."""
    return [part.replace("\0", word) for part in split(text.replace(word, "\0"), "\0")]


def _feature(text: str) -> bool:
    """One feature in its brackets: `max-width: 600px`, `width <= 600px`, `hover`."""
    if _RANGE.search(text):
        return _ranges(text)
    name, colon, value = (part.strip() for part in text.partition(":"))
    bare = name.removeprefix("min-").removeprefix("max-")
    prefixed = name.replace("-webkit-min-", "-webkit-").replace("-webkit-max-", "-webkit-")
    if bare in _SIZES or prefixed in _SIZES:
        actual = _SIZES.get(bare, _SIZES.get(prefixed, 0.0))
        wanted = _size(value) if colon else None
        if not colon:
            return bool(actual)
        if wanted is None:
            return False
        if "min-" in name:
            return actual >= wanted
        return actual <= wanted if "max-" in name else actual == wanted
    if name in _FEATURES:
        return value in _FEATURES[name] if colon else _FEATURES[name][0] not in ("none", "")
    return False


def _size(value: str) -> float | None:
    if ratio := _RATIO.fullmatch(value):
        return float(ratio[1]) / (float(ratio[2]) or 1.0)
    dots = re.fullmatch(r"([\d.]+)(dppx|x|dpi|dpcm)", value)
    if dots:
        return float(dots[1]) / {"dpi": 96.0, "dpcm": 37.8}.get(dots[2], 1.0)
    return length(value, Base())


def _ranges(text: str) -> bool:
    parts = [part.strip() for part in _RANGE.split(text)]
    found = (_SIZES.get(part, _size(part)) for part in parts[::2])
    values = [value for value in found if value is not None]
    if len(values) < len(parts[::2]) or len(values) > 3:
        return False
    pairs = zip(values, parts[1::2], values[1:], strict=False)
    return all(_COMPARISONS[sign](left, right) for left, sign, right in pairs)


@lru_cache(maxsize=256)
def is_supported(text: str) -> bool:
    """Whether a browser supports what `@supports` asks for."""
    return len(text) <= _MAX_CHARS and condition(text.lower(), _supports)


def _supports(text: str) -> bool:
    from postroom.mail.html.css.selectors import parse_selectors

    if text.startswith("selector("):
        return bool(parse_selectors(text[9:].removesuffix(")")))
    if text.startswith(("font-tech(", "font-format(", "at-rule(")):
        return True
    name, _, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not value or name.startswith("--"):
        return bool(value)
    return name in _SUPPORTED and not is_refused(name, value)


def container_applies(text: str) -> bool:
    """Whether a container as wide as the window meets a condition."""
    name, bracket, rest = text.lower().partition("(")
    if "style(" in text:
        return True  # it could be so, and then it could hide
    negated = "not" if name.split()[-1:] == ["not"] else ""
    return len(text) <= _MAX_CHARS and condition(f"{negated}{bracket}{rest}", _feature)
