"""The link that a mail asks its reader to follow, told from all others that it has.

Whoever asks for it will follow it, so one that does harm is worse than none: a link counts only
where words ask for it, and never one that unsubscribes, refuses or shows a picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from postroom.mail.attributes import host_of
from postroom.mail.link_words import (
    ASKS,
    BESIDE,
    BESIDE_PLACE,
    CALLS,
    DOES,
    ELSEWHERE,
    FELLOWS,
    NEVER,
    STILL,
)
from postroom.mail.message import Link

_MOST_CHARS = 50_000
_NEAR_CHARS = 200
_PLACE_CHARS = 500
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_END = re.compile(r"[.!?;。！？](?=\s)|[。！？|•·]|\n\s*\n|\n\s*[-*–—_]{2,}")
_GOES_ON = re.compile(r"[>)\]]?,? +\w")
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_ENOUGH = 4


class _Offered(NamedTuple):
    """A link, the words that go with it, and the sentence that they stand in."""

    said: str
    url: str
    sentence: str


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    text = text[:_MOST_CHARS]
    offered = [*_of_html(text, links), *_of_text(text)]
    harmful = {link.url for link in offered if _is_harmful(link)}
    is_asking = ASKS.are_in(text)
    best: tuple[int, str] | None = None
    for link in offered:
        if link.url in harmful or _is_beside(link):
            continue
        points = _points(link, is_asking=is_asking)
        if points >= _ENOUGH and (best is None or points > best[0]):
            best = (points, link.url)
    return best[1] if best else None


def _points(link: _Offered, *, is_asking: bool) -> int:
    """How much speaks for it: its own words, its place, or a call in a mail that asks for one."""
    place, given = _parts(link.url)
    host, _, path = place.partition("/")
    points = 5 * bool(DOES.search(place)) + 5 * ASKS.are_in(link.said)
    if not points and is_asking and CALLS.search(link.said):
        points = _ENOUGH
    points -= bool(ELSEWHERE.search(host)) or not (path or given)
    return points + bool(_LONG_ID.search(path) or _LONG_ID.search(given))


def _parts(url: str) -> tuple[str, str]:
    """Where a link leads, as a host and a path; and what it gives to whoever is there."""
    place, *given = re.split(r"[?#]", url.partition("://")[2], maxsplit=1)
    return place[:_PLACE_CHARS], FELLOWS.sub("", given[0]) if given else ""


def _is_harmful(link: _Offered) -> bool:
    """Whether to follow it may end something, or shows nothing but a picture."""
    if STILL.search(re.split(r"[?#]", link.url, maxsplit=1)[0]):
        return True
    return any(NEVER.are_in(text) for text in (unquote(link.url), link.said, link.sentence))


def _is_beside(link: _Offered) -> bool:
    """Whether a link is one of those that stand below many mails."""
    is_usual = BESIDE_PLACE.search(_parts(link.url)[0]) or BESIDE.search(link.said)
    return bool(is_usual) and not _does_something(link.url)


def _does_something(url: str) -> bool:
    """Whether the path says what it does, for somebody in particular."""
    place, given = _parts(url)
    path = place.partition("/")[2]
    names_one = any(any(c.isdigit() for c in found) for found in _LONG_ID.findall(path))
    return DOES.search(path) is not None and (bool(given) or names_one)


def _of_html(text: str, links: Iterable[Link]) -> Iterator[_Offered]:
    """The links of the HTML, each in its sentence if the text was made of it."""
    end = 0
    for link in links:
        if not link.url.lower().startswith(("https://", "http://")):
            continue
        shown = f"{link.text} ({host_of(link.url)})"
        place = text.find(shown, end) if link.text else -1
        if place < 0:
            yield _Offered(link.text, link.url, "")
            continue
        before = _END.split(text[max(end, place - _NEAR_CHARS) : place])[-1]
        end = place + len(shown)
        sentence = f"{before}{link.text}"
        is_clear = ASKS.are_in(link.text) or BESIDE.search(link.text)
        said = link.text if is_clear else sentence + _after(text[end : end + 80])
        yield _Offered(said, link.url, sentence)


def _of_text(text: str) -> Iterator[_Offered]:
    end = 0
    for match in _URL.finditer(text):
        before = text[max(end, match.start() - _NEAR_CHARS) : match.start()]
        end = match.end()
        emphasis = "*_" if before.endswith("_") else "*"
        url = _balanced(match[0]).rstrip(".,;:!?([" + emphasis)
        yield _Offered(_before(before) + _after(text[end : end + 80]), url, "")


def _before(text: str) -> str:
    """The sentence in front of a link, also if it ends there."""
    return _END.split(text.rstrip().rstrip(".!?:;<([。！？|"))[-1]


def _after(text: str) -> str:
    """The end of a sentence with a link in its middle; what leads to the next link is not of it."""
    line = text.partition("\n")[0]
    if _URL.search(line) or not _GOES_ON.match(line):
        return ""
    return _END.split(line, maxsplit=1)[0]


def _balanced(url: str) -> str:
    """A URL up to the first bracket that it closes and did not open: that one is the text's."""
    open_brackets: list[str] = []
    for position, char in enumerate(url):
        if char in "([":
            open_brackets.append(")" if char == "(" else "]")
        elif char in ")]" and (not open_brackets or open_brackets.pop() != char):
            return url[:position]
    return url
