"""Properties of CSS that decide what a reader sees: shorthands, and which values are valid.

A browser ignores a declaration whose value it does not understand, and the one before it holds.
"""

from __future__ import annotations

import re
from functools import lru_cache

from postroom.mail.data import load
from postroom.mail.html.css.colours import is_colour_function, parse_colour
from postroom.mail.html.css.syntax import closing_bracket, expression, split, words

_DATA = load("html")["properties"]
_ALIASES: dict[str, str] = _DATA["aliases"]
_LENGTHS = frozenset(_DATA["lengths"])
_NUMBERS = frozenset(_DATA["numbers"])
_COLOURS = frozenset(_DATA["colours"])
_FREE = frozenset(_DATA["free"])
_KEYWORDS: dict[str, frozenset[str]] = {k: frozenset(v) for k, v in _DATA["keywords"].items()}
_SIDES = {name: tuple(sides) for name, sides in _DATA["sides"].items()}
_GLOBAL = frozenset(("inherit", "initial", "unset", "revert", "revert-layer"))
_LENGTH_WORDS = frozenset(_DATA["length_words"])
_VAR = re.compile(r"\b(?:var|env|attr)\(", re.IGNORECASE)
_NOT_UNDERSTOOD = re.compile(r"(?:^|[\s(,])(?:if|--[\w-]+|anchor|anchor-size|sibling-index|attr)\(")
_MAX_DEPTH = 10
_MAX_CHARS = 2_000

Pairs = tuple[tuple[str, str], ...]


@lru_cache(maxsize=4096)
def longhands(name: str, value: str) -> Pairs:
    """What a declaration sets, one property at a time; nothing if it is invalid or of no matter."""
    name = _ALIASES.get(name, name)
    if name in _SIDES:
        return _expand_sides(_SIDES[name], value)
    if value in _GLOBAL:
        return tuple((part, value) for part in _EXPANDED.get(name, (name,)))
    if name == "font":
        return _font(value)
    if name == "background":
        return _background(value)
    return ((name, value),) if is_valid(name, value) else ()


def is_valid(name: str, value: str) -> bool:
    if value in _GLOBAL:
        return True
    if name in _KEYWORDS:
        return value in _KEYWORDS[name] or could_be_anything(value)
    if name in _LENGTHS or name in _NUMBERS:
        is_word = value in _LENGTH_WORDS and name in _LENGTHS
        is_quantity = expression(value) is not None or value.startswith("fit-content(")
        return is_word or is_quantity or could_be_anything(value)
    if name in _COLOURS:
        return is_colour(value)
    return name in _FREE


def is_refused(name: str, value: str) -> bool:
    """Whether a browser refuses a value of a property that takes words or colours."""
    return (name in _KEYWORDS or name in _COLOURS) and not is_valid(name, value)


def could_be_anything(value: str) -> bool:
    """Whether a value depends on something that is not computed here, and so could hide."""
    return "(" in value and _NOT_UNDERSTOOD.search(value) is not None


def is_colour(value: str) -> bool:
    if value in ("currentcolor", "-webkit-link", "linktext"):
        return True
    return parse_colour(value) is not None or is_colour_function(value)


_EXPANDED = {
    "font": ("font-size", "line-height", "font-family"),
    "background": ("background-color", "background-image", "background-clip"),
}


def _expand_sides(sides: tuple[str, ...], value: str) -> Pairs:
    parts = words(value)
    if not parts or len(parts) > len(sides):
        return ()
    if value not in _GLOBAL and not all(is_valid(sides[0], part) for part in parts):
        return ()
    if len(sides) == 4:
        parts = [parts[0], parts[1 % len(parts)], parts[2 % len(parts) if len(parts) > 2 else 0],
                 parts[3] if len(parts) > 3 else parts[1 % len(parts)]]  # fmt: skip
    elif len(parts) == 1:
        parts *= 2
    return tuple(zip(sides, parts, strict=True))


def _font(value: str) -> Pairs:
    """The size is the last word before the family that can be one."""
    parts = words(re.sub(r"\s*/\s*", "/", value.partition(",")[0]))
    for place, part in enumerate(parts):
        size, _, line = part.partition("/")
        if is_valid("font-size", size) and size not in ("normal", "none", "auto"):
            if expression(size) is not None and re.fullmatch(r"[1-9]00", size):
                continue  # a weight
            family = " ".join(parts[place + 1 :]) + value[len(value.partition(",")[0]) :]
            if not family.strip():
                return ()
            return (("font-size", size), ("line-height", line or "normal"), ("font-family", family))
    return ()


def _background(value: str) -> Pairs:
    """The colour is in the last layer, pictures are in all."""
    colour, clip, pictures = "transparent", "border-box", list[str]()
    for word in words(split(value, ",")[-1]):
        if is_colour(word):
            colour = word
    for layer in split(value, ","):
        for word in words(layer):
            if "gradient(" in word or word.startswith(("url(", "image", "cross-fade(", "element(")):
                pictures.append(word)
            elif word == "text":
                clip = "text"
    return (
        ("background-color", colour),
        ("background-image", " ".join(pictures) or "none"),
        ("background-clip", clip),
    )


def substitute_variables(value: str, known: dict[str, str], depth: int = 0) -> str | None:
    """A value with its custom properties put in, None if one of them is missing."""
    if depth > _MAX_DEPTH or len(value) > _MAX_CHARS:
        return None
    match = _VAR.search(value)
    if match is None:
        return value.strip()
    end = closing_bracket(value, match.end())
    name, comma, fallback = value[match.end() : end].partition(",")
    name = name.strip()
    if match[0].lower() == "attr(":
        name = f"attr {name.partition(' ')[0].lower()}"
    put = known.get(name, fallback if comma else None)
    if put is None:
        return None
    return substitute_variables(
        f"{value[: match.start()]}{put}{value[end + 1 :]}", known, depth + 1
    )


def has_variables(value: str) -> bool:
    return "(" in value and _VAR.search(value) is not None
