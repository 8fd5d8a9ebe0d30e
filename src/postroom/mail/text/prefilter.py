"""What a text must have before it is read word by word: quick tests that never miss.

Each test is passed by everything that the slow code would accept, and by little else. Words of all
languages are looked for in one pass by RE2, on bytes, because its wrapper counts characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import permutations
from typing import Any

from postroom.mail.data import load

_SPACES = r"\s\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_OTHERS = r"\x{80}-\x{10ffff}"
_WIDER = {r"\s": _SPACES, r"\w": r"\w" + _OTHERS, r"\d": r"\d" + _OTHERS}
OTHER_MARK = r"^[ ]{0,6}(?:([|:])[ \t]+\S|([A-Z][A-Za-z]{0,2})>{1,4}[ \t]?\S)"
"""Marks of quoted lines other than `>`."""

# Numbers without which there is neither a date, a year nor a time: see the tokens of attributions.
_MAY_BE_DATED = re.compile(r"\d(?:\d|[ \xa0\u202f]?[AaPp]|\s?[時时시点點])")
# The same with what stands beside them, for texts in which numbers are frequent.
_MAY_BE_DATE = re.compile(
    r"\d(?:[:.h]\d\d|[ \xa0\u202f]?[AaPp][Mm]|\s?[時时시点點年년]|[-/.]\s?\d{1,2}[-/.]|-\d\d"
    r"|[-/.][^\W\d_]{3,9}\.?[-/.])|19\d\d|20\d\d"
)
_MAY_BE_ADDRESS = re.compile(r"@(?<=[^\s<>()\[\]@,;:\"]@)[\w.-]")
_MAY_BE_ZONE = re.compile(r"GMT|UTC|[+−-]\d|ST\b|DT\b")
AROUND_HEADER = " \t*_>|\u200e\xa0"
DECORATION = " \t*_#~=<>|+‐‒–—―─-\u200e\xa0[]"
_MAX_LINES = 200
_BEFORE_VERB = "(?:^|[^a-z]|gmt|utc|[0-9]t)"  # which tokens end without a space


def prefilter(source: str) -> Callable[[str], bool]:
    """A quick test that is false only if a pattern, in whatever case, is nowhere in a text.

    It finds all alternatives in one pass, by RE2, and takes more for a match than the pattern does.
    The pattern has no lookaround.
    """

    compiled = _compile_late(source)
    return lambda text: compiled().search(_encode(text)) is not None


def line_finder(source: str) -> Callable[[str], list[int]]:
    """The lines on which such a pattern may begin to match, as `prefilter` looks for it."""
    compiled = _compile_late(source)
    return lambda text: _matching_lines(compiled(), _encode(text))


def _compile_late(source: str) -> Callable[[], Any]:
    @cache
    def compiled() -> Any:
        import re2  # type: ignore[import-untyped]  # late, for a quick start

        options = re2.Options()
        options.log_errors, options.never_capture = False, True
        return re2.compile(f"(?im){_widen(source)}".encode(), options)

    return compiled


def _encode(text: str) -> bytes:
    if not text.isascii():
        text = text.replace("İ", "i").replace("ı", "i")  # which are the same to `re`
    return text.encode("utf-8", "replace")


def _widen(source: str) -> str:
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


@cache
def words_of(kind: str) -> frozenset[str]:
    """Words of all languages: `verbs`, `months`, `weekdays`, `small` or `openers`."""
    languages = load("quotations")["languages"].values()
    return frozenset(word for language in languages for word in language.get(kind, ()))


@cache
def _pattern(source: str) -> Any:
    import re2  # late, for a quick start

    return re2.compile(source.encode())


def _is_found(source: str, lowered: str) -> bool:
    return _pattern(source).search(lowered.encode("utf-8", "replace")) is not None


@cache
def _verbs() -> str:
    plain = "|".join(sorted(re.escape(verb) for verb in words_of("verbs") if verb.isascii()))
    others = sorted(re.escape(verb) for verb in words_of("verbs") if not verb.isascii())
    inside = map(re.escape, load("quotations")["verbs_inside"])
    return "|".join((f"{_BEFORE_VERB}(?:{plain})(?:[^a-z]|$)", *others, *inside))


@lru_cache(maxsize=16)
def may_have_verb(text: str) -> bool:
    """False if the text has no verb of writing in any language."""
    return _is_found(_verbs(), text.lower())


def lines_with_verbs(text: str) -> list[int]:
    """The lines of which `may_have_verb` is true, and in a text with very many perhaps others.

    In order; one pass for all lines of a mail costs as much as looks at two of them.
    """
    return _matching_lines(_pattern(_verbs()), text.lower().encode("utf-8", "replace"))


def _matching_lines(pattern: Any, data: bytes) -> list[int]:
    """The lines on which a match begins; behind very many of them all lines."""
    found: list[int] = []
    line = counted = at = 0
    while match := pattern.search(data, at):
        begin = match.start() + 1  # behind a line break that the pattern takes as a border
        line, counted = line + data.count(b"\n", counted, begin), begin
        if len(found) >= _MAX_LINES:
            return [*found, *range(line, line + data.count(b"\n", begin) + 1)]
        found.append(line)
        at = data.find(b"\n", begin)
        if at < 0:
            break
    return found


def may_be_dated(text: str) -> bool:
    """False if there is neither a date, a year nor a time in the text."""
    return _MAY_BE_DATED.search(text) is not None


def may_have_date(text: str) -> bool:
    """False if there is neither a date, a year nor a time in the text; slower and stricter."""
    return _MAY_BE_DATE.search(text) is not None


def may_have_address(text: str) -> bool:
    """False if the text has no address; an `@` alone may belong to a patch."""
    return "@" in text and _MAY_BE_ADDRESS.search(text) is not None


def may_have_zone(text: str) -> bool:
    """False if the text has no time zone."""
    return _MAY_BE_ZONE.search(text) is not None


def _line_with(*kinds: str) -> str:
    """A line with words of all these kinds, in any order and language."""
    languages = load("quotations")["languages"].values()
    words = [
        "|".join(sorted({re.escape(word) for one in languages for word in one.get(kind, ())}))
        for kind in kinds
    ]
    orders = permutations(f"(?:{kind})" for kind in words)
    return "|".join(r"[^\n]*".join(order) for order in orders)


@cache
def _marks() -> Callable[[str], bool]:
    return prefilter(f"(?-i:{OTHER_MARK})|{_line_with('above', 'line')}")


@cache
def _reply_mark() -> Callable[[str], bool]:
    return prefilter(_line_with("above", "line", "reply"))


def may_have_marks(text: str) -> bool:
    """False if no line of a text is a reply mark or begins with a rare mark of quotations.

    One pass for both: most texts have neither.
    """
    return _marks()(text)


def may_have_reply_mark(text: str) -> bool:
    """False if no line of a text says `reply`, `above` and `line`."""
    return _reply_mark()(text)


@cache
def _headings() -> Callable[[str], list[int]]:
    """Finds the lines that `headings` accepts, and few others."""
    words = load("quotations")
    languages = words["languages"].values()
    earlier = "|".join(one for language in languages for one in language.get("earlier", ()))
    forwards, originals = "|".join(words["forwards"]), "|".join(words["originals"])
    notices = "|".join(words["notices"])
    decoration, marks = f"[{re.escape(DECORATION)}]", f"[{re.escape(DECORATION.strip())}]"
    rule, letter = "[-_=*~#‐–—―─]", r"[A-Za-z\x{80}-\x{10ffff}]"
    blank = r"[^\nA-Za-z0-9]*"  # or more signs
    around = f"[{re.escape(AROUND_HEADER)}]*"
    firsts = (*words["headers"]["from"], *words["headers"]["date"])
    names = "|".join(map(re.escape, firsts))
    lines = (
        f"{decoration}*(?:{forwards})",
        f"{decoration}*{marks}{decoration}*(?:{originals})",
        r">>>[^\n]*\d[^\n]*>>>[\s]*$",
        rf"{decoration}*{rule}{rule}[^\n]*{letter}[^\n]*{rule}{rule}[\s]*$",
        rf"{blank}{rule}{rule}{blank}\n[\s]*[^\n]*(?:{notices})",
        rf"{blank}{rule}{rule}{blank}\n[\s]*(?:{decoration}|:)*(?:{earlier})",
        f"{around}(?:{names}){around}[:：]",
    )
    return line_finder("|".join(f"^{line}" for line in lines))


def lines_with_headings(text: str) -> list[int]:
    """The lines that may be a separator, a forward, the first header of a quoted mail, or a rule
    above a notice; in a text with very many of them perhaps others too.
    """
    return _headings()(text)
