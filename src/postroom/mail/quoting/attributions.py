"""The lines with which mail programs introduce a quotation, in many languages.

Every pattern is applied to a bounded piece of text and has no nested repetition, so that no
input can make it slow.
"""

from __future__ import annotations

import re

from postroom.mail.data import load, pattern

_WORDS = load("quotations")
VERBS, WEAK_VERBS = frozenset(_WORDS["verbs"]), frozenset(_WORDS["weak_verbs"])
VERBS_INSIDE: tuple[str, ...] = tuple(_WORDS["verbs_inside"])
HEADERS = {name: header for header, names in _WORDS["headers"].items() for name in names}

_LONGEST = 500
_WORD_BREAK = re.compile(r"[\s:：,.<>\"'”’*_-]+")
_DATE = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2}[:.h]\d\d\b|\d{4}\s?[年년]|\b(?:19|20)\d\d\b"
    r"|\d{1,2}-[A-Za-z]{3}\.?-\d{2,4}"
)
_TIME = re.compile(r"\d{1,2}[:.h]\d\d")
_ADDRESS = re.compile(r"[^\s@<>()]@[^\s@<>()]{2}|mailto:")
_OPENER = pattern(_WORDS["opener"], re.MULTILINE)
_DATED_LINE = re.compile(
    r"^\W{0,3}(?:\d{1,4}[./年-]\s?\d{1,2}|\d{1,2}[:.]\d\d|\d{1,2}\.? \w{3,12}\.? \d{4})",
    re.MULTILINE,
)
_ENDS_WITH_ADDRESS = re.compile(r"(?:[>)\]\"]|@[\w.-]{3,80})\s?[:：]$")
_ORIGINALS, _FORWARDS = "|".join(_WORDS["originals"]), "|".join(_WORDS["forwards"])
_RULED = re.compile(rf"[-_*=]{{2,80}}\s{{0,9}}(?:{_ORIGINALS})", re.IGNORECASE)
_FORWARD = re.compile(rf"(?:[-_*=>]{{2,80}}\s{{0,9}})?(?:{_FORWARDS})", re.IGNORECASE)
_WROTE = re.compile(r"-{2,60}\s{0,9}\S.{0,200}(?:wrote|schrieb|a écrit)\s?-{2,60}", re.IGNORECASE)
_RULE = re.compile(r"[-_=*]{4,200}$")
_NEXT_HEADER = re.compile(
    r"\s(?:Date|Sent|To|Subject|Datum|Gesendet|An|Betreff|Envoyé|Objet|Fecha|Asunto|Data|Oggetto)"
    r"\s?:"
)


def header_word(line: str) -> str:
    """`from`, `date`, `to` or `subject` if the line looks like that header of a quoted mail."""
    colon = line.find(":", 0, 40)
    if colon < 0:
        colon = line.find("：", 0, 40)
    return HEADERS.get(line[:colon].strip(" \t*_>|\u200e\xa0").lower(), "") if colon > 0 else ""


def has_more_headers(line: str) -> bool:
    """True if further headers of the quoted mail stand on the same line."""
    return bool(_NEXT_HEADER.search(line[:_LONGEST]))


def is_rule(line: str) -> bool:
    """A line that is only a rule."""
    return bool(_RULE.match(line.strip()[:_LONGEST]))


def is_separator(line: str) -> bool:
    """`-----Original Message-----` and its kin: from here on everything is old."""
    line = line[:_LONGEST].lstrip()
    return bool(_RULED.match(line) or _WROTE.match(line))


def is_forward(line: str) -> bool:
    """The line above a mail that somebody passes on."""
    return bool(_FORWARD.match(line[:_LONGEST].lstrip()))


def find_attribution(text: str, *, quote_follows: bool) -> int:
    """Where in these few lines an attribution begins that runs to their end, -1 if none does.

    With a quotation right below less proof is needed.
    """
    if len(text) > _LONGEST:
        return -1
    stripped = text.rstrip(" \t\n-*_")
    has_colon = stripped.endswith((":", "："))
    has_verb = _has_verb(stripped)
    address = _ADDRESS.search(stripped)
    if not (has_verb or address) or not (has_colon or has_verb or quote_follows):
        return -1
    dated = _DATE.search(stripped)
    if not (address or quote_follows) and _is_weak(stripped):
        return -1
    if dated and (start := _dated_start(stripped, has_verb=has_verb)) >= 0:
        return start
    if dated and address and quote_follows and (line := _DATED_LINE.search(stripped)):
        return line.start()
    is_plain = quote_follows and (has_colon or _has_verb(stripped[-20:]))
    return _last_sentence(stripped) if is_plain else -1


def _has_verb(text: str) -> bool:
    words = _WORD_BREAK.split(text.lower())
    return not VERBS.isdisjoint(words) or any(verb in text for verb in VERBS_INSIDE)


def _is_weak(text: str) -> bool:
    """True if it may be any sentence with a date: no time of day, and a verb of every day."""
    verbs = VERBS.intersection(_WORD_BREAK.split(text.lower()))
    return verbs <= WEAK_VERBS and not _TIME.search(text)


def _dated_start(text: str, *, has_verb: bool) -> int:
    """The start of an attribution with a date; it ends with a verb or with an address."""
    ends_with_address = _ENDS_WITH_ADDRESS.search(text[-100:])
    if not has_verb and not ends_with_address:
        return -1
    for match in _OPENER.finditer(text):
        rest = text[match.start() :]
        if _DATE.search(rest) and (_has_verb(rest) or ends_with_address):
            return match.start()
    dated = _DATED_LINE.search(text)
    if dated:
        return dated.start()
    # whatever the language: a line with a date near its start, a verb and an address
    date = _DATE.search(text)
    start = text.rfind("\n", 0, date.start()) + 1 if date else 0
    is_near = date is not None and date.start() - start <= 60
    return start if is_near and has_verb and _ADDRESS.search(text, start) else -1


def ends_with_verb(line: str) -> bool:
    """True if the last word is one for writing."""
    return line.rstrip().rpartition(" ")[2].lower() in VERBS


def _last_sentence(text: str) -> int:
    """The last line, or the last two if the last one is only `wrote:` or `<address> wrote:`."""
    start = text.rfind("\n") + 1
    last = text[start:]
    is_rest = last.lstrip()[:1] == "<" or len(_WORD_BREAK.split(last.strip())) < 3
    return text.rfind("\n", 0, max(start - 1, 0)) + 1 if is_rest and start else start
