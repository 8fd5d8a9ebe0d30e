"""The link that a mail asks its reader to follow, told from all others that it has.

Whoever asks for it will follow it, so one that does harm is worse than none: a link counts only
where words ask for it, and never one that ends or refuses something or shows a picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
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
    ENDS,
    FELLOWS,
    FINAL,
    NEVER,
    NO,
    NO_END,
    STILL,
)
from postroom.mail.message import Link

_MOST_CHARS = 50_000
_NEAR_CHARS = 200
_ABOVE_CHARS = 400
_PLACE_CHARS = 500
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_LINKED = re.compile(r"https?://|\([\w-]{1,63}\.[\w.-]{2,200}\)", re.IGNORECASE)
_END = re.compile(r"[.!?;。！？](?=\s)|[。！？|•·]|\n\s*\n|\n\s*[-*–—_]{2,}")
_GOES_ON = re.compile(r"[>)\]]?,? +\w")
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_ENOUGH = 4


class _Offered(NamedTuple):
    """A link, the words that go with it, their sentence, and what stands above since the last."""

    said: str
    url: str
    sentence: str
    above: str


def find_link(text: str, links: Iterable[Link] = ()) -> str | None:
    """The link that a mail asks its reader to follow; None if there is none."""
    text = text[:_MOST_CHARS]
    if FINAL.search(NO_END.sub(" ", text)):
        return None
    offered = [*_of_html(text, links), *_of_text(text)]
    harmful = {link.url for link in offered if _is_harmful(link)}
    safe = [link for link in offered if link.url not in harmful and not _is_beside(link)]
    is_asking = ASKS.are_in(text)
    best: tuple[int, str] | None = None
    for link in safe:
        points = _points(link, is_asking=is_asking)
        if points >= _ENOUGH and (best is None or points > best[0]):
            best = (points, link.url)
    return best[1] if best else _lone(safe)


def _lone(links: Iterable[_Offered]) -> str | None:
    """The only link that stands below words that ask, whatever it says itself: `Continue`."""
    urls = {
        link.url
        for link in links
        if link.sentence
        and not NO.match(link.said)
        and _names_one("/".join(_parts(link.url)))
        and ASKS.are_in(link.above)
    }
    return urls.pop() if len(urls) == 1 else None


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
    meant = [
        NO_END.sub(" ", text) for text in (unquote(link.url), link.said, link.sentence, link.above)
    ]
    return any(map(ENDS.are_in, meant)) or any(map(NEVER.are_in, meant[:-1]))


def _is_beside(link: _Offered) -> bool:
    """Whether a link is one of those that stand below many mails."""
    is_usual = BESIDE_PLACE.search(_parts(link.url)[0]) or BESIDE.search(link.said)
    return bool(is_usual) and not _does_something(link.url)


def _does_something(url: str) -> bool:
    """Whether the path says what it does, for somebody in particular."""
    place, given = _parts(url)
    path = place.partition("/")[2]
    return DOES.search(path) is not None and (bool(given) or _names_one(path))


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
        sentence = _END.split(between[-_NEAR_CHARS:])[-1] + link.text + _after(text[end : end + 80])
        is_clear = ASKS.are_in(link.text) or BESIDE.search(link.text) or NO.match(link.text)
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
        said = _before(above[-_NEAR_CHARS:]) + _after(text[end : end + 80])
        yield _Offered(said, url, said, above)


def _before(text: str) -> str:
    """The sentence in front of a link, also if it ends there."""
    return _END.split(text.rstrip().rstrip(".!?:;<([。！？|"))[-1]


def _after(text: str) -> str:
    """The end of a sentence with a link in its middle; not a new one, nor one with a link."""
    line = text.partition("\n")[0]
    start = _GOES_ON.match(line)
    if _URL.search(line) or not start or start[0][-1].isupper():
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
