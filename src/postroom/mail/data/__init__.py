"""Words of mail in many languages, as data: one TOML file per subject.

A pattern is a table. `words` match as whole words, `parts` match anywhere; both are lists of
alternatives in the syntax of `re`. `before` and `after` surround them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

_SPACES = r"\s\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_OTHERS = r"\x{80}-\x{10ffff}"
_WIDER = {r"\s": _SPACES, r"\w": r"\w" + _OTHERS, r"\d": r"\d" + _OTHERS}


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


def prefilter(source: str) -> Callable[[str], bool]:
    """A quick test that is false only if a pattern, in whatever case, is nowhere in a text.

    It finds all alternatives in one pass, by RE2, and takes more for a match than the pattern does.
    The pattern has no lookaround.
    """

    @cache
    def compiled() -> Any:
        import re2  # type: ignore[import-untyped]  # late, for a quick start

        options = re2.Options()
        options.log_errors, options.never_capture = False, True
        return re2.compile(f"(?im){_widened(source)}".encode(), options)

    def may_match(text: str) -> bool:
        if not text.isascii():
            text = text.replace("İ", "i").replace("ı", "i")  # which are the same to `re`
        return compiled().search(text.encode("utf-8", "replace")) is not None

    return may_match


def _widened(source: str) -> str:
    """The pattern without word boundaries, its classes with all letters: RE2's are ASCII.

    Counted repetitions become any number, for fewer states.
    """
    found: list[str] = []
    is_class = False
    for piece in re.findall(r"\\.|\{\d+,\d*\}|[^\\]", source.replace("ı", "i"), re.DOTALL):
        if piece in _WIDER:
            piece = _WIDER[piece] if is_class else f"[{_WIDER[piece]}]"
        is_class = piece == "[" or (is_class and piece != "]")
        if len(piece) > 1 and piece[0] == "{":
            piece = "*" if piece[1] == "0" else "+"
        found.append("" if piece == r"\b" else piece)
    return "".join(found)
