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
"""What continues a word. Chinese, Japanese and Korean put no space between words and numbers."""

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

_VOUCHER = re.compile(r"[A-Z]{4,}\d{1,4}")
"""SAVE20: a word and a number, as in vouchers."""

_TICKET_KEY = re.compile(r"[A-Z]{2,5}-\d{3,5}")
"""ACME-4821: a ticket key, unless it is introduced as a code or stands alone."""

_FUNCTION_CALL = re.compile(r"\w_\w*\($")
"""`verify_code(`: source code follows."""

_YEAR = re.compile(r"(?:19|20)\d\d(?:[01]\d[0-3]\d)?")
_SENTENCE_END = re.compile(r"[.!?;。！？](?=\s|$)|[。！？]|\n")
_STARTS = re.compile(r"\s*(?:$|[(,.;:–—-]|(?:is|ist|est|es|è|é|är|er)\b)", re.IGNORECASE)
_CELLS = re.compile(r"(?<=\b\d)(?: \| |\n\n?)(?=\d\b)")
"""Between the digits of a code in the cells or lines of a table."""

_SIX_DIGITS = re.compile(r"\d{6}|\d{3}\D\d{3}")
_MIN_CODE_SCORE = 3


def find_code(subject: str, text: str) -> str | None:
    """The one-time code of a mail, without the spaces inside it; None if there is none."""
    best: tuple[int, str] | None = None
    for whole in (_CELLS.sub(" ", text[:_MAX_CHARS]), subject[:_MAX_CHARS]):
        masked = OTHER_CODE.sub(lambda found: "·" * len(found[0]), whole)
        has_offer = OFFER.search(whole) is not None
        for match in islice(_CODE.finditer(whole), _MAX_NUMBERS):
            points = _code_points(_code_candidate(masked, match), has_offer=has_offer)
            if points > _MIN_CODE_SCORE and (best is None or points > best[0]):
                best = (points, _typed_form(match[2]))
    return best[1] if best else None


def _typed_form(code: str) -> str:
    """`123 456`, `123-456` and `１２３` are typed as plain digits; `AB1-2CD` is not."""
    digits = re.sub(r"[ \u00a0-]", "", code)
    return "".join(str(int(digit)) for digit in digits) if digits.isdecimal() else code


@dataclass(frozen=True, slots=True)
class _CodeCandidate:
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
    is_introduced: bool

    @property
    def sentence(self) -> str:
        return f"{self.sentence_before} {self.sentence_after}"


def _code_candidate(text: str, match: re.Match[str]) -> _CodeCandidate:
    before = text[max(0, match.start() - _NEAR_CHARS) : match.start()]
    rest = text[match.end() : match.end() + _NEAR_CHARS]
    after, _, below = rest.partition("\n")
    line_before = before.rpartition("\n")[2]
    above = [line for line in before.split("\n") if line.strip()][-2:]
    starts_line = not line_before.strip(" \t>#*_\"'") and _STARTS.match(after) is not None
    return _CodeCandidate(
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
        is_introduced=CODE_FOLLOWS.search(before[-60:]) is not None,
    )


def _code_points(candidate: _CodeCandidate, *, has_offer: bool) -> int:
    """The score of a candidate: 0 if it cannot be a code, higher if words of codes are nearer."""
    if _is_inside(candidate.before) or _is_amount(candidate):
        return 0
    is_upper = candidate.code == candidate.code.upper()
    if not is_upper and not _has_digit(candidate.code):  # a word, such as `one-time`
        return 0
    if not candidate.is_introduced and not _is_usual(candidate):
        return 0
    points = 9 if candidate.is_introduced else _word_score(candidate)
    if not points or (has_offer and _is_offer(candidate)):
        return 0
    if _is_other_number(candidate) and not candidate.is_introduced:
        points -= 5
    return points + 3 * candidate.is_alone + (len(_typed_form(candidate.code)) in (4, 6, 8))


def _word_score(candidate: _CodeCandidate) -> int:
    """How near the words are that announce a code."""
    if NOUN.search(candidate.sentence_before):
        return 6
    is_used = USE.search(candidate.before[-30:]) is not None
    if NOUN.search(candidate.sentence_after) or (is_used and PURPOSE.match(candidate.after)):
        return 5
    beside = candidate.beside
    if candidate.starts_line and NOUN.search(beside):
        return 5
    if candidate.is_alone and VERB.search(beside) and not PURCHASE.search(beside):
        return 4
    if is_used and NOUN.search(candidate.before):
        return 4
    if _SIX_DIGITS.fullmatch(candidate.code) and NOUN.search(candidate.line_before):
        return 3
    return 2 * bool(VERB.search(candidate.sentence))


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _is_usual(candidate: _CodeCandidate) -> bool:
    """Whether a code looks like one by itself; others count only where they are said to follow."""
    is_shown = candidate.is_alone and NOUN.search(candidate.beside) is not None
    if _GROUPS.fullmatch(candidate.code):
        return is_shown or _has_introduction(candidate)
    if len(candidate.prefix) > 1:
        is_named = candidate.starts_line and NOUN.search(candidate.sentence_after) is not None
        return is_shown or is_named or _has_introduction(candidate)
    if _NEEDS_INTRODUCTION.fullmatch(candidate.code):
        if " " in candidate.code:
            return is_shown or NOUN.search(candidate.sentence_before.rstrip()[-20:]) is not None
        is_last = is_shown and candidate.before.rstrip().endswith((":", "："))
        return _has_digit(candidate.code) and (is_last or _has_introduction(candidate))
    if _TICKET_KEY.fullmatch(candidate.code):
        return is_shown or _has_introduction(candidate)
    if not _has_digit(candidate.code):
        return is_shown
    is_voucher = _VOUCHER.fullmatch(candidate.code) is not None
    return not is_voucher or CERTAIN.search(candidate.sentence) is not None


def _has_introduction(candidate: _CodeCandidate) -> bool:
    """Whether words lead to the code and to nothing else."""
    led = CODE_FOLLOWS_LATER.search(candidate.line_before[-100:])
    if led is not None:
        return VALIDITY.search(led[0]) is None
    is_used = USE.search(candidate.before[-30:]) is not None
    return is_used and PURPOSE.match(candidate.after) is not None


def _is_inside(before: str) -> bool:
    """Whether it is part of a link, or joined to a word that is about something else."""
    if not before or before[-1].isspace():
        return False
    joined = before.rsplit(maxsplit=1)[-1]
    is_other = joined[-1] in ":=" and not (NOUN.search(joined) or VERB.search(joined))
    return is_other or bool(_FUNCTION_CALL.search(joined[-80:])) or any(c in joined for c in "/?&")


def _is_amount(candidate: _CodeCandidate) -> bool:
    """Money, a percentage, a time or a size."""
    return bool(AMOUNT_BEFORE.search(candidate.before[-8:]) or AMOUNT_AFTER.match(candidate.after))


def _is_offer(candidate: _CodeCandidate) -> bool:
    """Whether it is good for a discount.

    A code with letters may be apart from the discount that it is for.
    """
    has_letter = any(c.isalpha() for c in candidate.code)
    apart = f"{candidate.beside}\n{candidate.after}" if has_letter else ""
    is_offered = OFFER.search(f"{candidate.sentence}\n{apart}") is not None
    return is_offered and CERTAIN.search(candidate.sentence) is None


def _is_other_number(candidate: _CodeCandidate) -> bool:
    """A year, a phone number, or the number of an order."""
    is_year = _YEAR.fullmatch(candidate.code) is not None
    return is_year or any(
        kind.search(candidate.line_before[-50:]) for kind in (PHONE, OTHER_NUMBER)
    )


_DATA = load("action_links")
ASKS_IN_PATH, INTRODUCES = pattern(_DATA["asks_in_path"]), pattern(_DATA["introduces"])
MENTIONS_END, FINAL = pattern(_DATA["mentions_end"]), pattern(_DATA["final"])
NO, STATIC_FILE = pattern(_DATA["no"]), pattern(_DATA["static_file"])
SECONDARY, SECONDARY_PATH = pattern(_DATA["secondary"]), pattern(_DATA["secondary_path"])
OTHER_HOST, TRACKING = pattern(_DATA["other_host"]), pattern(_DATA["tracking"], re.NOFLAG)


class WordList:
    """Beginnings of words, in lower case, and patterns."""

    def __init__(self, table: dict[str, list[str]]) -> None:
        self.listed = table["listed"]
        self.pattern = re.compile("|".join(table["parts"]))

    def are_in(self, text: str) -> bool:
        """Whether one is in the text. Plain words are searched one by one, which is fast."""
        lower = text.lower()
        return any(word in lower for word in self.listed) or bool(self.pattern.search(lower))


ASKS, ENDS, NEVER = WordList(_DATA["asks"]), WordList(_DATA["ends"]), WordList(_DATA["never"])
_SENTENCE_CHARS = 200
_ABOVE_CHARS = 400
_PLACE_CHARS = 500
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_LINKED = re.compile(r"https?://|\([\w-]{1,63}\.[\w.-]{2,200}\)", re.IGNORECASE)
_PART_END = re.compile(r"[.!?;。！？](?=\s)|[。！？|•·]|\n\s*\n|\n\s*[-*–—_]{2,}")
_CONTINUES = re.compile(r"[>)\]]?,? +\w")
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_MIN_LINK_SCORE = 4


class _LinkCandidate(NamedTuple):
    """A link, the words that go with it, their sentence, and the text since the last link."""

    text: str
    url: str
    sentence: str
    above: str


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    text = text[:_MAX_CHARS]
    if FINAL.search(MENTIONS_END.sub(" ", text)):
        return None
    candidates = [*_links_in_html(text, links), *_links_in_text(text)]
    harmful = {link.url for link in candidates if _is_harmful(link)}
    safe = [link for link in candidates if link.url not in harmful and not _is_secondary(link)]
    is_asking = ASKS.are_in(text)
    best: tuple[int, str] | None = None
    for link in safe:
        points = _link_points(link, is_asking=is_asking)
        if points >= _MIN_LINK_SCORE and (best is None or points > best[0]):
            best = (points, link.url)
    return best[1] if best else _single_requested_link(safe)


def _single_requested_link(links: Iterable[_LinkCandidate]) -> str | None:
    """The single link that follows a sentence asking the reader to act; None if there are several.

    Its own text may be only `Continue`.
    """
    urls = {
        link.url
        for link in links
        if link.sentence
        and not NO.match(link.text)
        and _has_personal_id("/".join(_split_url(link.url)))
        and ASKS.are_in(link.above)
    }
    return urls.pop() if len(urls) == 1 else None


def _link_points(link: _LinkCandidate, *, is_asking: bool) -> int:
    """The score of a link: by its words, its URL, or a request in a mail that asks for a click."""
    place, given = _split_url(link.url)
    host, _, path = place.partition("/")
    points = 5 * bool(ASKS_IN_PATH.search(place)) + 5 * ASKS.are_in(link.text)
    if not points and is_asking and INTRODUCES.search(link.text):
        points = _MIN_LINK_SCORE
    points -= bool(OTHER_HOST.search(host)) or not (path or given)
    return points + bool(_LONG_ID.search(path) or _LONG_ID.search(given))


def _split_url(url: str) -> tuple[str, str]:
    """Where a link leads, as a host and a path; and the parameters that it passes."""
    place, *given = re.split(r"[?#]", url.partition("://")[2], maxsplit=1)
    return place[:_PLACE_CHARS], TRACKING.sub("", given[0]) if given else ""


def _is_harmful(link: _LinkCandidate) -> bool:
    """Whether to follow it may end something, or shows nothing but a picture."""
    if STATIC_FILE.search(re.split(r"[?#]", link.url, maxsplit=1)[0]):
        return True
    meant = [
        MENTIONS_END.sub(" ", text)
        for text in (unquote(link.url), link.text, link.sentence, link.above)
    ]
    return any(map(ENDS.are_in, meant)) or any(map(NEVER.are_in, meant[:-1]))


def _is_secondary(link: _LinkCandidate) -> bool:
    """Whether a link is one of those at the end of many mails."""
    is_usual = SECONDARY_PATH.search(_split_url(link.url)[0]) or SECONDARY.search(link.text)
    return bool(is_usual) and not _is_personal_action(link.url)


def _is_personal_action(url: str) -> bool:
    """Whether the path says what it does, for somebody in particular."""
    place, given = _split_url(url)
    path = place.partition("/")[2]
    return ASKS_IN_PATH.search(path) is not None and (bool(given) or _has_personal_id(path))


def _has_personal_id(path: str) -> bool:
    """Whether it has what looks drawn for one reader: long, with a digit."""
    return any(any(c.isdigit() for c in found) for found in _LONG_ID.findall(path))


def _links_in_html(text: str, links: Iterable[Link]) -> Iterator[_LinkCandidate]:
    """The links of the HTML, each in its sentence if the text was made of it.

    Text above a button is above all buttons in its row.
    """
    end, above = 0, ""
    for link in links:
        if not link.url.lower().startswith(("https://", "http://")):
            continue
        shown = f"{link.text} ({host_of(link.url)})"
        place = text.find(shown, end) if link.text else -1
        if place < 0:
            lines = _lines_before_link(text[end : end + _ABOVE_CHARS])
            yield _LinkCandidate(link.text or link.picture, link.url, "", lines)
            continue
        between = text[max(end, place - _ABOVE_CHARS) : place]
        above = between if between.strip() or "\n" in between else above
        end = place + len(shown)
        before = _PART_END.split(between[-_SENTENCE_CHARS:])[-1]
        sentence = f"{before}{link.text}{_sentence_after(text[end : end + 80])}"
        is_clear = ASKS.are_in(link.text) or SECONDARY.search(link.text) or NO.match(link.text)
        yield _LinkCandidate(link.text if is_clear else sentence, link.url, sentence, above)


def _lines_before_link(text: str) -> str:
    """The lines before the first with a link: a picture among them is not part of the text."""
    lines = takewhile(lambda line: not _LINKED.search(line), text.split("\n"))
    return "\n".join(lines)


def _links_in_text(text: str) -> Iterator[_LinkCandidate]:
    end = 0
    for match in _URL.finditer(text):
        above = text[max(end, match.start() - _ABOVE_CHARS) : match.start()]
        end = match.end()
        emphasis = "*_" if above.endswith("_") else "*"
        url = _cut_unbalanced(match[0]).rstrip(".,;:!?([" + emphasis)
        after = _sentence_after(text[end : end + 80])
        sentence = _sentence_before(above[-_SENTENCE_CHARS:]) + after
        yield _LinkCandidate(sentence, url, sentence, above)


def _sentence_before(text: str) -> str:
    """The sentence in front of a link, also if it ends there."""
    return _PART_END.split(text.rstrip().rstrip(".!?:;<([。！？|"))[-1]


def _sentence_after(text: str) -> str:
    """The end of a sentence with a link in its middle; not a new one, nor one with a link."""
    line = text.partition("\n")[0]
    start = _CONTINUES.match(line)
    if _URL.search(line) or not start or start[0][-1].isupper():
        return ""
    return _PART_END.split(line, maxsplit=1)[0]


def _cut_unbalanced(url: str) -> str:
    """A URL up to the first bracket that it closes and did not open: that one is the text's."""
    open_brackets: list[str] = []
    for position, char in enumerate(url):
        if char in "([":
            open_brackets.append(")" if char == "(" else "]")
        elif char in ")]" and (not open_brackets or open_brackets.pop() != char):
            return url[:position]
    return url
