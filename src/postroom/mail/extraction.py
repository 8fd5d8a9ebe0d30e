"""Finding the one-time code of a mail, and the link that it asks its reader to follow.

The caller will probably follow the link, so a harmful one is worse than none: a link counts only
where words ask for it, and never if it unsubscribes, deletes, refuses or loads a picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple
from urllib.parse import unquote

from postroom.mail.data import load, pattern
from postroom.mail.html.elements import host_of
from postroom.mail.message import Link

_WORDS = load("one_time_codes")
NOUN, VERB = pattern(_WORDS["noun"]), pattern(_WORDS["verb"])
CERTAIN = pattern(_WORDS["certain"])
_LINK_WORDS, _LINK_PARTS = "|".join(_WORDS["link_words"]), "|".join(_WORDS["link_parts"])
CODE_FOLLOWS = re.compile(
    rf"(?:{NOUN.pattern}|{VERB.pattern})[*_\"']{{0,3}}"
    rf"(?:\s+(?:{_LINK_WORDS})\b\s*[:=：]?|\s*(?:[:=：]|{_LINK_PARTS}))[\s\"'*(“„«\[]*$",
    re.IGNORECASE,
)
"""The end of `your code is`, after which only the code can come."""

CODE_FOLLOWS_LATER = re.compile(
    rf"(?:{NOUN.pattern})[^\n.:;!?\d]{{0,50}}"
    rf"(?:\s(?:{_LINK_WORDS})\b(?<!\son)\s*[:=：]?|\s?[:=：]|{_LINK_PARTS})[\s\"'*(“„«\[]*$",
    re.IGNORECASE,
)
"""The end of `your code for Acme is`; "on" is the Finnish word, and too often the English one."""

VALIDITY = pattern(_WORDS["validity"])

USE, PURPOSE = pattern(_WORDS["use"]), pattern(_WORDS["purpose"])
OTHER_CODE, OFFER = pattern(_WORDS["other_code"]), pattern(_WORDS["offer"])
_CURRENCY, _UNIT = "|".join(_WORDS["currencies"]), "|".join(_WORDS["units"])
AMOUNT_BEFORE = re.compile(rf"(?:{_CURRENCY}|(?<!\w)(?:usd|rs)\.)\s?$", re.IGNORECASE)
AMOUNT_AFTER = re.compile(rf"\s?(?:{_CURRENCY}|元|円|원|%|(?:{_UNIT})\b)", re.IGNORECASE)
PURCHASE, PHONE = pattern(_WORDS["purchase"]), pattern(_WORDS["phone"])
OTHER_NUMBER = pattern(_WORDS["other_number"])

_MAX_CHARS = 50_000
_MAX_NUMBERS = 500
_NEAR_CHARS = 160
_LETTER = r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
"""What a word goes on with. Chinese, Japanese and Korean put no space between words and numbers."""

_CODE = re.compile(
    rf"(?:(?<!{_LETTER})(?<![.,/$€£#%&=@+:-])|(?<=[^\W\d_][:=]))"
    r"(?:([A-Z]{1,2})-(?=\d))?"
    r"(\d{3}[ \u00a0-]\d{3}(?![ \u00a0]\d{3}\b)|(?<!\d )\d(?: \d){3,7}(?! ?\d)"
    r"|(?<!\d )(?:\d\d(?:[ \u00a0]\d\d){1,3}|\d{4}[ \u00a0-]\d{4}|\d{3}(?:[ \u00a0]\d{3}){2})"
    r"(?![ \u00a0-]?\d)|\d\d(?:-\d\d){2,3}|(?<!\d{4}[ \u00a0])\d{4,10}(?![ \u00a0]\d{4}(?!\d))"
    r"|(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{5,16}|[A-Za-z\d]{3,5}-[A-Za-z\d]{3,5})"
    rf"(?!{_LETTER}|[/%@#]|[.,:-]\d|-\w)"
)
_NEEDS_INTRODUCTION = re.compile(r"\d(?: \d)+|\d\d(?:-\d\d)+|[A-Za-z\d]{11,}|.*[a-z].*")
"""Counts only where a code is said to follow."""

_GROUPS = re.compile(r"\d\d(?:[ \u00a0]\d\d)+|\d{4}[ \u00a0-]\d{4}|\d{3}(?:[ \u00a0]\d{3}){2}")
"""12 34 56: the form of dates, phone and account numbers too."""

_OFFERED = re.compile(r"[A-Z]{4,}\d{1,4}")
"""SAVE20: a word and a number, as in vouchers."""

_KEY = re.compile(r"[A-Z]{2,5}-\d{3,5}")
"""ACME-4821: a ticket key, unless it is introduced as a code or stands alone."""

_CALLED = re.compile(r"\w_\w*\($")
"""`verify_code(`: source code follows."""

_YEAR = re.compile(r"(?:19|20)\d\d(?:[01]\d[0-3]\d)?")
_SENTENCE_END = re.compile(r"[.!?;。！？](?=\s|$)|[。！？]|\n")
_STARTS = re.compile(r"\s*(?:$|[(,.;:–—-]|(?:is|ist|est|es|è|é|är|er)\b)", re.IGNORECASE)
_SIX = re.compile(r"\d{6}|\d{3}\D\d{3}")
_MIN_CODE_SCORE = 3


def find_code(subject: str, text: str) -> str | None:
    """The one-time code of a mail, without the spaces inside it; None if there is none."""
    best: tuple[int, str] | None = None
    for whole in (text[:_MAX_CHARS], subject[:_MAX_CHARS]):
        masked = OTHER_CODE.sub(lambda found: "·" * len(found[0]), whole)
        sells = OFFER.search(whole) is not None
        for match in islice(_CODE.finditer(whole), _MAX_NUMBERS):
            points = _code_points(_seen(masked, match), sells=sells)
            if points > _MIN_CODE_SCORE and (best is None or points > best[0]):
                best = (points, _bare(match[2]))
    return best[1] if best else None


def _bare(code: str) -> str:
    """`123 456`, `123-456` and `1 2 3 4` are typed without what is between; `AB1-2CD` is not."""
    digits = re.sub(r"[ \u00a0-]", "", code)
    return digits if digits.isdigit() else code


@dataclass(frozen=True, slots=True)
class _Seen:
    """What may be a code, and the words around it: its sentence, its line, and what is near."""

    prefix: str
    """The letters of `FB-48291`, which are not typed."""

    code: str
    before: str
    after: str
    line_before: str
    sentence_before: str
    sentence_after: str
    beside: str
    """The two lines above and the one below."""

    starts_line: bool
    is_alone: bool
    is_said: bool

    @property
    def sentence(self) -> str:
        return f"{self.sentence_before} {self.sentence_after}"


def _seen(text: str, match: re.Match[str]) -> _Seen:
    before = text[max(0, match.start() - _NEAR_CHARS) : match.start()]
    rest = text[match.end() : match.end() + _NEAR_CHARS]
    after, _, below = rest.partition("\n")
    line_before = before.rpartition("\n")[2]
    above = [line for line in before.split("\n") if line.strip()][-2:]
    starts_line = not line_before.strip(" \t>#*_\"'") and _STARTS.match(after) is not None
    return _Seen(
        match[1] or "",
        match[2],
        before,
        after[:80],
        line_before,
        sentence_before=_SENTENCE_END.split(line_before)[-1],
        sentence_after=_SENTENCE_END.split(after[:80], maxsplit=1)[0],
        beside="\n".join((*above, below.strip().partition("\n")[0])),
        starts_line=starts_line,
        is_alone=starts_line and not after.strip(" \t\r.*_\"'"),
        is_said=CODE_FOLLOWS.search(before[-60:]) is not None,
    )


def _code_points(seen: _Seen, *, sells: bool) -> int:
    """The score of a candidate: 0 if it cannot be a code, higher if words of codes are nearer."""
    if _is_inside(seen.before) or _is_amount(seen):
        return 0
    if not _has_digit(seen.code) and seen.code != seen.code.upper():  # a word, such as `one-time`
        return 0
    if not seen.is_said and not _is_usual(seen):
        return 0
    points = 9 if seen.is_said else _word_score(seen)
    if not points or (sells and _is_offer(seen)):
        return 0
    if _is_other_number(seen) and not seen.is_said:
        points -= 5
    return points + 3 * seen.is_alone + (len(_bare(seen.code)) in (4, 6, 8))


def _word_score(seen: _Seen) -> int:
    """How near the words are that tell of a code."""
    if NOUN.search(seen.sentence_before):
        return 6
    is_used = USE.search(seen.before[-30:]) is not None
    if NOUN.search(seen.sentence_after) or (is_used and PURPOSE.match(seen.after)):
        return 5
    if seen.starts_line and NOUN.search(seen.beside):
        return 5
    if seen.is_alone and VERB.search(seen.beside) and not PURCHASE.search(seen.beside):
        return 4
    if is_used and NOUN.search(seen.before):
        return 4
    if _SIX.fullmatch(seen.code) and NOUN.search(seen.line_before):
        return 3
    return 2 * bool(VERB.search(seen.sentence))


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _is_usual(seen: _Seen) -> bool:
    """Whether a code looks like one by itself; others count only where they are said to follow."""
    is_shown = seen.is_alone and NOUN.search(seen.beside) is not None
    if _GROUPS.fullmatch(seen.code):
        return is_shown or _is_told(seen)
    if len(seen.prefix) > 1:
        is_named = seen.starts_line and NOUN.search(seen.sentence_after) is not None
        return is_shown or is_named or _is_told(seen)
    if _NEEDS_INTRODUCTION.fullmatch(seen.code):
        if " " in seen.code:
            return is_shown or NOUN.search(seen.sentence_before.rstrip()[-20:]) is not None
        is_last = is_shown and seen.before.rstrip().endswith((":", "："))
        return _has_digit(seen.code) and (is_last or _is_told(seen))
    if _KEY.fullmatch(seen.code):
        return is_shown or _is_told(seen)
    if _has_digit(seen.code):
        return not _OFFERED.fullmatch(seen.code) or CERTAIN.search(seen.sentence) is not None
    return is_shown


def _is_told(seen: _Seen) -> bool:
    """Whether words lead to the code and to nothing else."""
    led = CODE_FOLLOWS_LATER.search(seen.line_before[-100:])
    if led is not None:
        return VALIDITY.search(led[0]) is None
    is_used = USE.search(seen.before[-30:]) is not None
    return is_used and PURPOSE.match(seen.after) is not None


def _is_inside(before: str) -> bool:
    """Whether it is part of a link, or joined to a word that is about something else."""
    if not before or before[-1].isspace():
        return False
    joined = before.rsplit(maxsplit=1)[-1]
    is_other = joined[-1] in ":=" and not (NOUN.search(joined) or VERB.search(joined))
    return is_other or bool(_CALLED.search(joined[-80:])) or any(c in joined for c in "/?&")


def _is_amount(seen: _Seen) -> bool:
    """Money, a percentage, a time or a size."""
    return bool(AMOUNT_BEFORE.search(seen.before[-8:]) or AMOUNT_AFTER.match(seen.after))


def _is_offer(seen: _Seen) -> bool:
    """Whether it is good for a discount. One with letters may stand apart from what it is for."""
    apart = f"{seen.beside}\n{seen.after}" if any(c.isalpha() for c in seen.code) else ""
    is_offered = OFFER.search(f"{seen.sentence}\n{apart}") is not None
    return is_offered and CERTAIN.search(seen.sentence) is None


def _is_other_number(seen: _Seen) -> bool:
    """A year, a phone number, or the number of an order."""
    is_year = _YEAR.fullmatch(seen.code) is not None
    return is_year or any(kind.search(seen.line_before[-50:]) for kind in (PHONE, OTHER_NUMBER))


_DATA = load("action_links")
ASKS_IN_PATH, INTRODUCES = pattern(_DATA["asks_in_path"]), pattern(_DATA["introduces"])
MENTIONS_END, FINAL = pattern(_DATA["mentions_end"]), pattern(_DATA["final"])
NO, STATIC_FILE = pattern(_DATA["no"]), pattern(_DATA["static_file"])
SECONDARY, SECONDARY_PATH = pattern(_DATA["secondary"]), pattern(_DATA["secondary_path"])
OTHER_HOST, TRACKING = pattern(_DATA["other_host"]), pattern(_DATA["tracking"], re.NOFLAG)


class Words:
    """Beginnings of words, in lower case, and patterns."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.listed = table["listed"]
        self.pattern = re.compile("|".join(table["parts"]))

    def are_in(self, text: str) -> bool:
        """Whether one is in the text. Plain words are searched one by one, which is fast."""
        lower = text.lower()
        return any(word in lower for word in self.listed) or bool(self.pattern.search(lower))


ASKS, ENDS, NEVER = Words(_DATA["asks"]), Words(_DATA["ends"]), Words(_DATA["never"])
_SENTENCE_CHARS = 200
_ABOVE_CHARS = 400
_PLACE_CHARS = 500
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_LINKED = re.compile(r"https?://|\([\w-]{1,63}\.[\w.-]{2,200}\)", re.IGNORECASE)
_PART_END = re.compile(r"[.!?;。！？](?=\s)|[。！？|•·]|\n\s*\n|\n\s*[-*–—_]{2,}")
_CONTINUES = re.compile(r"[>)\]]?,? +\w")
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_MIN_LINK_SCORE = 4


class _Offered(NamedTuple):
    """A link, the words that go with it, their sentence, and what stands above since the last."""

    said: str
    url: str
    sentence: str
    above: str


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    text = text[:_MAX_CHARS]
    if FINAL.search(MENTIONS_END.sub(" ", text)):
        return None
    offered = [*_of_html(text, links), *_of_text(text)]
    harmful = {link.url for link in offered if _is_harmful(link)}
    safe = [link for link in offered if link.url not in harmful and not _is_secondary(link)]
    is_asking = ASKS.are_in(text)
    best: tuple[int, str] | None = None
    for link in safe:
        points = _link_points(link, is_asking=is_asking)
        if points >= _MIN_LINK_SCORE and (best is None or points > best[0]):
            best = (points, link.url)
    return best[1] if best else _lone(safe)


def _lone(links: Iterable[_Offered]) -> str | None:
    """The single link that follows a sentence asking the reader to act; None if there are several.

    Its own text may be only `Continue`.
    """
    urls = {
        link.url
        for link in links
        if link.sentence
        and not NO.match(link.said)
        and _names_one("/".join(_parts(link.url)))
        and ASKS.are_in(link.above)
    }
    return urls.pop() if len(urls) == 1 else None


def _link_points(link: _Offered, *, is_asking: bool) -> int:
    """How much speaks for it: its own words, its place, or a call in a mail that asks for one."""
    place, given = _parts(link.url)
    host, _, path = place.partition("/")
    points = 5 * bool(ASKS_IN_PATH.search(place)) + 5 * ASKS.are_in(link.said)
    if not points and is_asking and INTRODUCES.search(link.said):
        points = _MIN_LINK_SCORE
    points -= bool(OTHER_HOST.search(host)) or not (path or given)
    return points + bool(_LONG_ID.search(path) or _LONG_ID.search(given))


def _parts(url: str) -> tuple[str, str]:
    """Where a link leads, as a host and a path; and what it gives to whoever is there."""
    place, *given = re.split(r"[?#]", url.partition("://")[2], maxsplit=1)
    return place[:_PLACE_CHARS], TRACKING.sub("", given[0]) if given else ""


def _is_harmful(link: _Offered) -> bool:
    """Whether to follow it may end something, or shows nothing but a picture."""
    if STATIC_FILE.search(re.split(r"[?#]", link.url, maxsplit=1)[0]):
        return True
    meant = [
        MENTIONS_END.sub(" ", text)
        for text in (unquote(link.url), link.said, link.sentence, link.above)
    ]
    return any(map(ENDS.are_in, meant)) or any(map(NEVER.are_in, meant[:-1]))


def _is_secondary(link: _Offered) -> bool:
    """Whether a link is one of those that stand below many mails."""
    is_usual = SECONDARY_PATH.search(_parts(link.url)[0]) or SECONDARY.search(link.said)
    return bool(is_usual) and not _does_something(link.url)


def _does_something(url: str) -> bool:
    """Whether the path says what it does, for somebody in particular."""
    place, given = _parts(url)
    path = place.partition("/")[2]
    return ASKS_IN_PATH.search(path) is not None and (bool(given) or _names_one(path))


def _names_one(path: str) -> bool:
    """Whether it has what looks drawn for one reader: long, with a digit."""
    return any(any(c.isdigit() for c in found) for found in _LONG_ID.findall(path))


def _of_html(text: str, links: Iterable[Link]) -> Iterator[_Offered]:
    """The links of the HTML, each in its sentence if the text was made of it.

    What stands above a button stands above all in its row.
    """
    end, above = 0, ""
    for link in links:
        if not link.url.lower().startswith(("https://", "http://")):
            continue
        shown = f"{link.text} ({host_of(link.url)})"
        place = text.find(shown, end) if link.text else -1
        if place < 0:
            yield _Offered(
                link.text or link.picture, link.url, "", _unlinked(text[end : end + _ABOVE_CHARS])
            )
            continue
        between = text[max(end, place - _ABOVE_CHARS) : place]
        above = between if between.strip() or "\n" in between else above
        end = place + len(shown)
        sentence = (
            _PART_END.split(between[-_SENTENCE_CHARS:])[-1]
            + link.text
            + _after(text[end : end + 80])
        )
        is_clear = ASKS.are_in(link.text) or SECONDARY.search(link.text) or NO.match(link.text)
        yield _Offered(link.text if is_clear else sentence, link.url, sentence, above)


def _unlinked(text: str) -> str:
    """The lines before the first with a link: among them is a picture that is none of the text."""
    lines = takewhile(lambda line: not _LINKED.search(line), text.split("\n"))
    return "\n".join(lines)


def _of_text(text: str) -> Iterator[_Offered]:
    end = 0
    for match in _URL.finditer(text):
        above = text[max(end, match.start() - _ABOVE_CHARS) : match.start()]
        end = match.end()
        emphasis = "*_" if above.endswith("_") else "*"
        url = _balanced(match[0]).rstrip(".,;:!?([" + emphasis)
        said = _before(above[-_SENTENCE_CHARS:]) + _after(text[end : end + 80])
        yield _Offered(said, url, said, above)


def _before(text: str) -> str:
    """The sentence in front of a link, also if it ends there."""
    return _PART_END.split(text.rstrip().rstrip(".!?:;<([。！？|"))[-1]


def _after(text: str) -> str:
    """The end of a sentence with a link in its middle; not a new one, nor one with a link."""
    line = text.partition("\n")[0]
    start = _CONTINUES.match(line)
    if _URL.search(line) or not start or start[0][-1].isupper():
        return ""
    return _PART_END.split(line, maxsplit=1)[0]


def _balanced(url: str) -> str:
    """A URL up to the first bracket that it closes and did not open: that one is the text's."""
    open_brackets: list[str] = []
    for position, char in enumerate(url):
        if char in "([":
            open_brackets.append(")" if char == "(" else "]")
        elif char in ")]" and (not open_brackets or open_brackets.pop() != char):
            return url[:position]
    return url
