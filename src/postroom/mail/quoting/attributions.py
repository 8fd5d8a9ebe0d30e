"""Attributions: the words above a quotation that say who wrote it, and when.

A few lines are read as tokens (dates, times, addresses, names, verbs, small words) by the words of
all languages at once. An attribution is a run of such tokens up to the end of the lines; words of
the writer's own sentence are no such tokens, which is how its start is found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from postroom.mail.data import load
from postroom.mail.text.prefilter import (
    may_be_dated,
    may_have_address,
    may_have_date,
    may_have_verb,
    may_have_zone,
    words_of,
)

LONGEST = 500
TRAILING = " \t\n-*_\xa0\u200e\u200f\u202a\u202b\u202c"
"""What may follow the colon of an attribution: rules, emphasis, marks of direction."""
_LINE_MARKS = " \t*_-–—|~=#\xa0\u200e\u200f\u202a\u202b\u202c"
_WRAP_CHARS, _MAX_VERB_WORDS = 55, 4
_ADDRESS = r"(?:[<(\[]\s{0,3})?(?:mailto:)?[^\s<>()\[\]@,;:\"]{1,100}@[\w.-]{1,200}[>)\]]{0,4}"
_DATE = (
    r"\d{2,4}\s?[年년]\s?\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일号號]"
    r"|\d{4}[-/.]\s?\d{1,2}[-/.]\s?\d{1,2}(?!\d)"
    r"|\d{1,2}(?:[/-]|\.\s?)\d{1,2}(?:[/-]|\.\s?)(?:\d{4}|\d\d)(?!\d|[:.]\d\d)"
    r"|\d{1,2}[-/.][^\W\d_]{3,9}\.?[-/.]\d{2,4}|[^\W\d_]{3,9}-\d{1,2}-\d{2,4}"
)
_TIME = (
    r"\d{1,2}[:.h]\d\d(?:[:.]\d\d(?:\.\d{1,6})?)?(?!\d)(?:[ \xa0\u202f]?[AaPp]\.?[ ]?[Mm]\b\.?)?"
    r"|\d{1,2}[ \xa0\u202f]?[AaPp][Mm]\b|\d{1,2}\s?[时時시点點]\s?\d{1,2}\s?[分분]"
)
_ZONE = (
    r"(?:GMT|UTC)\s?(?:[+−-]\d{1,2}(?::?\d\d)?)?|[+−-]\d\d(?::?\d\d)?(?!\d)"
    r"|\b[A-Z]{1,3}ST\b|\b[CEPM]DT\b"
)
_WORD = r"[^\W\d_](?:[^\W\d_]|['’-]|\([^\W\d_]{1,3}\)|\((?:-\w{1,3})\)|\.(?=\w))*"
# Most words are plain ones between spaces, which no other kind of token can be.
_BEHIND_PLAIN = r"(?=[\s,]|[.:;!?](?:\s|\Z)|\Z)"
_PLAIN = rf"[A-Za-z][a-z]*+{_BEHIND_PLAIN}"
_PLAIN_NUMBER = r"[0-9]{1,4}+(?=,|[ ][B-OQ-Zb-oq-z])"
_TOKEN = re.compile(
    rf"[\s,]*+(?:(?P<plain>{_PLAIN})|(?P<digits>{_PLAIN_NUMBER})|(?P<address>{_ADDRESS})|(?P<date>{_DATE})T?|(?P<time>{_TIME})|(?P<zone>{_ZONE})"
    rf"|(?P<number>\d{{1,9}}(?:st|nd|rd|th|er|º)?)|(?P<word>{_WORD})|(?P<mark>[<\"'«“„(\[]))"
)
_WORD_BREAK = re.compile(r"[\s:：,.<>\"'”’*_-]+")
_NO_LETTERS, _BRACKETS = re.compile(r"[\W\d_]+"), re.compile(r"[()\[\]]")
_STOPS = frozenset(".!?…。！？")
_SENTENCE_END = re.compile(rf"[{''.join(sorted(_STOPS))}][\"'”’)\]]{{0,2}}\s")
# An hour and the initial of a name, which neither end a sentence nor open an attribution.
_NO_SENTENCE = re.compile(r"(?<=[a-z,] )\d\d?:\d\d(?::\d\d)? ?[AP]M\b|(?<=[a-z] )[A-Z]\.(?= )")
_OPENING = frozenset("([<")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DATED = frozenset(("number", "date", "month", "time", "weekday", "year"))


@cache
def _abbreviated(kind: str) -> frozenset[str]:
    """The names and their beginnings of at least three letters."""
    names = words_of(kind)
    return names | {name[:end] for name in names for end in range(3, len(name))}


@cache
def _small_words() -> frozenset[str]:
    words = (*words_of("small"), *words_of("openers"), *_listed("name_particles"))
    return frozenset(part for word in words for part in word.split())


@cache
def _opening_words() -> frozenset[str]:
    return frozenset(opener.split()[0] for opener in words_of("openers"))


@cache
def _listed(kind: str) -> frozenset[str]:
    return frozenset(load("quotations")[kind])


@dataclass(slots=True)
class _Token:
    kind: str
    start: int
    end: int
    text: str
    ends_sentence: bool = False
    opens_line: bool = False


def has_verb(text: str) -> bool:
    """Whether the text has a verb of writing."""
    return any(token.kind == "verb" for token in _tokens(text)) or has_verb_inside(text)


def has_verb_inside(text: str) -> bool:
    """Whether there is a verb in a language that has no spaces."""
    return not text.isascii() and any(verb in text for verb in load("quotations")["verbs_inside"])


def is_only_verb(text: str) -> bool:
    """Whether this is the end of an attribution: `wrote:`, `a écrit :`."""
    if len(text.split()) > _MAX_VERB_WORDS or not _may_have_verb(text):
        return False
    tokens = _tokens(text)
    kinds = {token.kind for token in tokens}
    return "verb" in kinds and kinds <= {"verb", "small"} and len(tokens) <= _MAX_VERB_WORDS


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    end = 0
    has_dates = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        start, before = match.start(kind), end
        end = match.end()
        word = text[start:end]
        if kind in ("plain", "word"):
            kind = _word_kind(word)
            has_dates = has_dates or kind in ("month", "weekday")
        elif kind in ("digits", "number"):
            kind = "year" if len(word) == 4 and _YEAR.fullmatch(word) else "number"
        token = _Token(kind, start, end, word)
        line = text.rfind("\n", before, start) + 1
        if line or not found:  # the first token of its line
            token.opens_line = not text[line:start].strip(_LINE_MARKS)
        if text[end : end + 1] in _STOPS:
            token.ends_sentence = _SENTENCE_END.match(text, end) is not None
        found.append(token)
    if has_dates:
        _settle_dates(found)
    return found


@lru_cache(maxsize=4096)
def _word_kind(text: str) -> str:
    word = text.lower().rstrip(".")
    if word in words_of("verbs"):
        return "verb"
    if word in _abbreviated("months"):
        return "month"
    if word in _abbreviated("weekdays"):
        return "weekday"
    return _plain_kind(text)


def _plain_kind(text: str) -> str:
    """A small word, a name, or any other word."""
    if text.lower() in _small_words() or text.lower() in ("pm", "am", "a.m", "p.m"):
        return "small"
    first = text[0]
    return "name" if first.isupper() or first.lower() == first.upper() else "word"


def _settle_dates(tokens: list[_Token]) -> None:
    """Months and weekdays are such only near a number: `mar`, `so`, `to` are words too."""
    for at, token in enumerate(tokens):
        if token.kind not in ("month", "weekday"):
            continue
        near = [t for t in tokens[at + 1 : at + 3] if t.kind != "small"][:1]
        near += [t for t in tokens[max(at - 2, 0) : at][::-1] if t.kind != "small"][:1]
        if token.kind == "weekday":  # a weekday precedes its day or follows the year
            near = [t for t in near if t.kind in _DATED]
        if not any(t.kind in _DATED for t in near):
            token.kind = _plain_kind(token.text)


@dataclass(slots=True)
class _Evidence:
    """What a run of tokens holds."""

    date: bool
    year: bool
    time: bool
    zone: bool
    address: bool
    verb: bool
    strong: bool
    unknown: int
    names: int
    sentences: int


def find_attribution(text: str, *, quote_follows: bool, is_paragraph: bool = False) -> int:
    """Where in these few lines an attribution begins that runs to their end, -1 if none does.

    With a quotation right below less proof is needed. `is_paragraph` says that the lines are
    followed by an empty one and then by more text.
    """
    if len(text) > LONGEST:
        return -1
    stripped = text.rstrip(TRAILING)
    if quote_follows and _is_usual(stripped):
        return 0
    if not _may_be_attribution(stripped, quote_follows=quote_follows, is_paragraph=is_paragraph):
        return -1
    has_colon = stripped.endswith((":", "："))
    tokens = _tokens(stripped)
    inside = has_verb_inside(stripped)
    best = -1
    for at in range(len(tokens) - 1, -1, -1):
        if not _may_start(stripped, tokens, at):
            continue
        evidence = _gather_evidence(tokens[at:], inside=inside)
        is_whole = is_paragraph and not stripped[: tokens[at].start].strip(" \t\n*_-\"'<([")
        if _is_complete(
            evidence, tokens[at:], colon=has_colon, quote=quote_follows, whole=is_whole
        ):
            best = at
            break
    if best < 0:
        is_plain = quote_follows and (has_colon or _ends_with_verb(tokens, inside=inside))
        if not is_plain or not (inside or any(t.kind in ("verb", "address") for t in tokens)):
            return -1
        start = _last_sentence(stripped, tokens)
        best = next((at for at, token in enumerate(tokens) if token.start >= start), -1)
        if best < 0 or not tokens[best].opens_line:
            return start
    return _line_start(stripped, tokens, _extend_upwards(stripped, tokens, best))


def _is_usual(line: str) -> bool:
    """One line up to a verb and a colon, in which no second sentence can begin: all of it counts.

    It is what the tokens tell as well, found without them.
    """
    if "\n" in line or line[-1:] != ":" or not line[0].isalnum():
        return False
    line = _NO_SENTENCE.sub("", line) if "AM" in line or ". " in line else line
    first, _, verb = line[:-1].rpartition(" ")
    is_verb = verb.isalpha() and verb.lower() in words_of("verbs")
    words = _NO_LETTERS.split(first)[1:]
    is_one = is_verb and not _SENTENCE_END.search(line)
    return is_one and not any(w[:1].isupper() and w.lower() in _opening_words() for w in words)


def _may_be_attribution(text: str, *, quote_follows: bool, is_paragraph: bool) -> bool:
    """A quick look: it needs an address or a verb, unless it is a paragraph with a date.

    With neither a quotation nor an empty line below, an address alone needs a colon at the end.
    """
    if not quote_follows and not _may_stand_alone(text, is_paragraph=is_paragraph):
        return False
    if is_paragraph or ("@" in text and (quote_follows or text.endswith((":", "：")))):
        return True
    if _may_have_verb(text) or ("(" in text and _may_have_verb(_BRACKETS.sub(" ", text))):
        return True
    return quote_follows and may_be_dated(text) and may_have_zone(text)


def _may_stand_alone(text: str, *, is_paragraph: bool) -> bool:
    """Whether without a quotation below there can be enough proof: see `_is_complete`."""
    if may_have_date(text):
        is_timed = is_paragraph and may_have_zone(text)
        return is_timed or may_have_address(text) or may_have_verb(text)
    has_colon = is_paragraph and text.endswith((":", "："))
    return has_colon and may_have_address(text) and may_have_verb(text)


def _may_have_verb(text: str) -> bool:
    if not may_have_verb(text):
        return False
    words = _WORD_BREAK.split(text.lower())
    return not words_of("verbs").isdisjoint(words) or has_verb_inside(text)


def _may_start(text: str, tokens: list[_Token], at: int) -> bool:
    """An attribution starts a line, follows a finished sentence, or is opened by `On Monday`."""
    token = tokens[at]
    if token.opens_line:
        return True
    before = tokens[at - 1]
    between = text[before.end : token.start]
    if before.ends_sentence and "\n" not in between and before.kind in ("word", "verb", "small"):
        return not (before.kind == "small" and len(before.text) < 3)
    if before.ends_sentence and between.strip()[:1] in ("!", "?", "。", "！", "？"):
        return True
    is_opener = token.text[0].isupper() and token.text.lower() in _opening_words()
    return is_opener and _opens_date(tokens, at)


def _opens_date(tokens: list[_Token], at: int) -> bool:
    """Whether a date or a weekday directly follows the word."""
    behind = tokens[at + 1 : at + 3]
    if behind and behind[0].kind == "small":
        behind = behind[1:]
    return bool(behind) and behind[0].kind in ("date", "weekday", "month", "number", "time")


def _gather_evidence(tokens: list[_Token], *, inside: bool) -> _Evidence:
    kinds = [token.kind for token in tokens]
    verbs = [token.text.lower() for token in tokens if token.kind == "verb"]
    found = frozenset(kinds)
    has_date = "date" in found or ("month" in found and not found.isdisjoint(("number", "year")))
    return _Evidence(
        # or a month in a language that we do not know
        date=has_date or found >= {"number", "year", "time"},
        year=not found.isdisjoint(("year", "date")),
        time="time" in found, zone="zone" in found, address="address" in found,
        verb=inside or bool(verbs),
        strong=inside or not _listed("weak_verbs").issuperset(verbs),
        unknown=kinds.count("word"), names=kinds.count("name"),
        sentences=sum(t.ends_sentence and t.kind in ("word", "verb") for t in tokens[:-1]),
    )  # fmt: skip


def _is_complete(
    found: _Evidence, tokens: list[_Token], *, colon: bool, quote: bool, whole: bool
) -> bool:
    """Whether there is enough of a date, an address and a verb, and little else."""
    if not (quote or found.address) and _is_by_writer(tokens):
        return False
    opens = tokens[0].kind in _DATED or _opens_date(tokens, 0) or tokens[0].opens_line
    if not opens or found.names > 14:
        return False
    verb_ends = _ends_with_verb(tokens, inside=False) or colon
    dated = found.date and (found.year or found.time)
    if found.sentences and not (quote and dated and found.time and found.strong):
        return False
    if dated and found.address and (colon or verb_ends or found.verb):
        return found.unknown <= (6 if found.verb or colon else 2)
    if dated and found.verb and verb_ends:
        if not (found.strong or found.time or quote):
            return False
        most = 6 if quote else 1 if found.time else 0
        return found.unknown <= most and (quote or found.names > 0 or found.time)
    if quote and dated and found.verb:
        return found.unknown <= 2
    if quote and found.address:
        return dated and found.unknown <= 3
    if not (whole or quote) or found.unknown:
        return False
    if found.address and (dated or (found.verb and colon)):
        return found.names <= 8
    return dated and found.time and found.zone and 1 <= found.names <= 5


def _is_by_writer(tokens: list[_Token]) -> bool:
    """Whether nobody is named but the writer: `On 5 March I wrote:`."""
    said = {token.text.lower() for token in tokens if token.kind in ("name", "word", "small")}
    names = {token.text.lower() for token in tokens if token.kind == "name"}
    writer = _listed("first_person")
    return not said.isdisjoint(writer) and names <= writer


def _ends_with_verb(tokens: list[_Token], *, inside: bool) -> bool:
    return inside or any(token.kind == "verb" for token in tokens[-2:])


def _extend_upwards(text: str, tokens: list[_Token], at: int) -> int:
    """The start moved up over lines that belong to a wrapped attribution."""
    for _ in range(6):
        if (above := _start_above(text, tokens, at)) < 0:
            break
        at = above
    return at


def _start_above(text: str, tokens: list[_Token], at: int) -> int:
    """The token of the line above with which the attribution begins, -1 if it does not there."""
    if not tokens[at].opens_line:
        return -1
    line = max((n for n in range(at) if tokens[n].opens_line), default=at)
    starts = (n for n in range(at - 1, line - 1, -1) if _may_start(text, tokens, n))
    return next((start for start in starts if _belongs(text, tokens, start, at)), -1)


def _belongs(text: str, tokens: list[_Token], start: int, at: int) -> bool:
    """Whether the tokens of the line above are the beginning of the attribution at `at`."""
    above, rest = tokens[start:at], tokens[at:]
    kinds = {token.kind for token in above}
    if "word" in kinds or ("verb" in kinds and "date" not in kinds and len(above) < 2):
        return False
    if any(token.ends_sentence and token.kind not in _DATED | {"small"} for token in above):
        return False
    opens = above[0].kind in _DATED or _opens_date(tokens[start:], 0)
    is_head = opens and bool(kinds & {"date", "month", "weekday", "time", "year"})
    if not _can_begin(text, rest):
        return is_head or "address" in kinds or _is_wrapped(text, above, rest)
    below = {token.kind for token in rest}
    if "address" in kinds and "address" not in below and has_verb(text):
        return kinds <= {"name", "small", "mark", "address"}
    if kinds == {"small", "address"} and above[0].text[0].isupper():  # In message <1@x>
        return True
    if kinds <= {"weekday", "small"} and opens and above[0].opens_line:
        return rest[0].kind in _DATED | {"small"} and len(above) <= 3
    if is_head:
        return below.isdisjoint(("date", "year", "time"))
    return kinds <= {"name", "mark", "small"} and _is_wrapped(text, above, rest)


def _is_wrapped(text: str, above: list[_Token], rest: list[_Token]) -> bool:
    """Whether the line above has the beginning of the name that the next one continues."""
    if not {token.kind for token in above} <= {"name", "mark", "small", "weekday", "verb"}:
        return False
    line = text.rfind("\n", 0, above[-1].start) + 1
    said = text[line : rest[0].start].strip()
    is_open = said.count('"') % 2 == 1 or said.endswith(("<", "("))
    is_long = len(said) + len(rest[0].text) >= _WRAP_CHARS
    if is_open or is_long or rest[0].kind == "verb":
        return True
    # a name alone above another name may as well be how the writer signs
    return rest[0].text.startswith("<") and len(above) <= 4


def _can_begin(text: str, tokens: list[_Token]) -> bool:
    """Whether an attribution can begin like this; if not, more of it is above."""
    first = tokens[0]
    second = tokens[1].kind if len(tokens) > 1 else ""
    if text[: first.start].rstrip(" \t").endswith(("<", ",")) or first.text.startswith(("<", "(")):
        return False
    if first.kind == "verb":
        return first.text[0].isupper()
    if first.kind == "small":
        third = tokens[2].kind if len(tokens) > 2 else ""
        return _opens_date(tokens, 0) and (second != "month" or third == "number")
    if first.kind == "month":
        return second == "number"
    if first.kind == "number":
        return second in ("month", "weekday", "small", "number")
    if first.kind == "time":
        return second in ("date", "number", "small", "weekday")
    return first.kind not in ("year", "word", "zone") and first.text not in _OPENING


def _line_start(text: str, tokens: list[_Token], at: int) -> int:
    """The start of the token, or of its line with the marks before it."""
    start = tokens[at].start
    if tokens[at].opens_line:
        return text.rfind("\n", 0, start) + 1
    while start and text[start - 1] in "\"'<([*_":
        start -= 1
    return start


def _last_sentence(text: str, tokens: list[_Token]) -> int:
    """The last line, or the last two if the last one is only `wrote:` or `<address> wrote:`."""
    start = text.rfind("\n") + 1
    last = text[start:]
    of_line = [token for token in tokens if token.start >= start]
    is_rest = last.lstrip()[:1] == "<" or len(of_line) < 2 or is_only_verb(last)
    return text.rfind("\n", 0, max(start - 1, 0)) + 1 if is_rest and start else start
