"""Finding the link that a mail asks its reader to follow.

The caller will probably follow it, so a harmful link is worse than none: a link counts only where
words ask for it, and never if it unsubscribes, deletes, refuses or loads a picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple
from urllib.parse import unquote

from postroom.mail.data import load, pattern
from postroom.mail.html.styles import host_of
from postroom.mail.message import Link

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

_MAX_CHARS = 50_000
_NEAR_CHARS = 200
_ABOVE_CHARS = 400
_PLACE_CHARS = 500
_URL = re.compile(r"https?://[^\s<>\"'{}|\\^`]{3,2000}", re.IGNORECASE)
_LINKED = re.compile(r"https?://|\([\w-]{1,63}\.[\w.-]{2,200}\)", re.IGNORECASE)
_END = re.compile(r"[.!?;。！？](?=\s)|[。！？|•·]|\n\s*\n|\n\s*[-*–—_]{2,}")
_CONTINUES = re.compile(r"[>)\]]?,? +\w")
_LONG_ID = re.compile(r"[A-Za-z0-9_-]{16,}")
_MIN_SCORE = 4


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
        points = _points(link, is_asking=is_asking)
        if points >= _MIN_SCORE and (best is None or points > best[0]):
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
    points = 5 * bool(ASKS_IN_PATH.search(place)) + 5 * ASKS.are_in(link.said)
    if not points and is_asking and INTRODUCES.search(link.said):
        points = _MIN_SCORE
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
        sentence = _END.split(between[-_NEAR_CHARS:])[-1] + link.text + _after(text[end : end + 80])
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
        said = _before(above[-_NEAR_CHARS:]) + _after(text[end : end + 80])
        yield _Offered(said, url, said, above)


def _before(text: str) -> str:
    """The sentence in front of a link, also if it ends there."""
    return _END.split(text.rstrip().rstrip(".!?:;<([。！？|"))[-1]


def _after(text: str) -> str:
    """The end of a sentence with a link in its middle; not a new one, nor one with a link."""
    line = text.partition("\n")[0]
    start = _CONTINUES.match(line)
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
