"""HTML in which everything that an agent does not get is marked in place, for a browser.

One walk decides what a reader sees (`visible_text`); here is what it reports, written as HTML. No
markup of the mail is copied: elements and attributes are written again from lists, styles from
declarations that cannot hide or move anything, and the result passes the sanitiser like any other
HTML. The marks have classes and ids, and nothing else in the document can have any. Before a mark
says that an agent does not get some words, they are looked for in the text that the agent gets.

The styles of the marks are in the template of the frame. They start from `all: initial` and are
`!important`, so that nothing is inherited from the mail, and they use stripes, which no style that
is kept of a mail can draw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import groupby
from operator import itemgetter

from postroom.mail.data import load
from postroom.mail.html.elements import Attributes, host_of, parse_declarations
from postroom.mail.html.html import (
    LINK_SCHEMES,
    HtmlText,
    Page,
    clean_for_browser,
    is_too_deep,
    limit_html,
    picture_source,
    with_direction_of,
    without_tags,
)
from postroom.mail.html.visible_text import render
from postroom.mail.text.invisible import cleaned
from postroom.mail.text.marks import (
    AgentText,
    characters,
    how_hidden,
    kinds_by_line,
    left_out,
    name_characters,
    removed_in,
)
from postroom.model.mail.message import Mark, MarkKind

_DATA = load("html")
_VOID = frozenset(("br", "hr", "wbr", "col"))
# A closed `details` hides its content; pictures are written by `picture`.
_TAGS = frozenset(_DATA["tags"]) - {"img", "details", "summary", "body"}
_BLOCKS = frozenset(_DATA["blocks"]) | frozenset(("listing", "xmp"))
_ATTRIBUTES: dict[str, frozenset[str]] = {
    tag: frozenset(names) - {"style", "title", "height", "src", "alt"}
    for tag, names in _DATA["attributes"].items()
}
_VALUE = re.compile(r"[#\w %.,()-]{1,100}", re.ASCII)
_ODD_NUMBER = re.compile(r"-\s*[\d.]|(?<![#\w])\d{4,}|calc|var|url")
_SPACE = re.compile(r"(?:(?:\d{1,2}(?:\.\d{1,4})?(?:px|pt|em|rem|%)?|auto)\s*){1,4}")
_WIDTH = re.compile(r"(?:[3-9]|\d\d{1,3})(?:\.\d{1,4})?(?:px|pt|em|%)?")
_DISPLAYS = frozenset(("block", "inline", "inline-block", "table", "table-cell", "table-row"))
_STYLES = frozenset(_DATA["style_properties"]) - {
    *("height", "letter-spacing", "line-height", "vertical-align", "white-space"),
}
_CLASSES = frozenset(("mark", "label", "words", "left-out", *MarkKind.__args__))  # type: ignore[attr-defined]
_OURS = {
    "class": re.compile(rf"(?:{'|'.join(sorted(_CLASSES))}| ){{1,3}}"),
    "id": re.compile(r"mark-\d{1,6}"),
    "href": re.compile(rf"{LINK_SCHEMES.pattern}.*", re.IGNORECASE | re.DOTALL),
}
_MAX_MARKS = 500
_MAX_WORDS = 2_000
_MAX_ALT, _MAX_HOST = 200, 100
_FULL = (
    '<span class="mark hidden"><span class="label">There may be more than the '
    f"{_MAX_MARKS} marks that are shown</span></span>"
)


@dataclass(frozen=True, slots=True)
class MarkedHtml:
    """Sanitised HTML with marks, and what the same walk found."""

    html: str
    marks: tuple[Mark, ...]
    found: HtmlText


def mark_html(html: str, pictures: Mapping[str, str], agent_text: AgentText) -> MarkedHtml:
    """The HTML of a mail with marks; *agent_text* is what an agent gets."""
    html = limit_html(html)
    if is_too_deep(html):
        text = without_tags(html)
        return MarkedHtml(f"<pre>{escape(text)}</pre>", (), HtmlText(text))
    page = _TracedPage()
    writer = _Writer(agent_text, page)
    found = render(html, (), writer, page)
    written = writer.finish(kinds_by_line(page.text()))
    sanitised = clean_for_browser(written, partial(_keep, pictures), {"span": {"class", "id"}})
    return MarkedHtml(with_direction_of(html, sanitised), tuple(writer.marks), found)


def _keep(pictures: Mapping[str, str], tag: str, attribute: str, value: str) -> str | None:
    """What the writer may have written, once more; pictures of the mail are put in here."""
    wanted = _OURS.get(attribute)
    if wanted is not None:
        return value if wanted.fullmatch(value) else None
    if attribute == "src":
        return picture_source(value, pictures, remote_images=False)
    return value


class _TracedPage(Page):
    """A page that remembers which texts are on each line."""

    def __init__(self) -> None:
        super().__init__()
        self.source = -1
        self.sources: list[set[int]] = []
        self._on_line: set[int] = set()

    def _put(self, words: str) -> None:
        super()._put(words)
        if words:
            self._on_line.add(self.source)

    def end_line(self) -> None:
        before = len(self.lines)
        super().end_line()
        if len(self.lines) > before:
            self.sources += [set()] * (len(self.lines) - before - 1) + [self._on_line]
        self._on_line = set()


_Write = Callable[[], str]
"""Writes a mark when its turn has come, so that marks are numbered in the order of the document."""


@dataclass(slots=True)
class _Writer:
    """An `Observer` that writes the document; `out` is HTML, and marks to be written."""

    agent_text: AgentText
    page: _TracedPage
    marks: list[Mark] = field(default_factory=list)
    out: list[str | _Write] = field(default_factory=list)
    texts: list[tuple[str, int, int]] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _hidden_at: int = 0

    def on_open(self, tag: str, attributes: Attributes) -> None:
        name = tag if tag in _TAGS else "div" if tag in _BLOCKS else ""
        self._open.append(name)
        if name:
            self.out.append(f"<{name}{_attributes(name, attributes)}>")

    def on_close(self) -> None:
        name = self._open.pop()
        if name and name not in _VOID:
            self.out.append(f"</{name}>")

    def on_visible_text(self, text: str) -> None:
        self.page.source, start = len(self.texts), len(self.out)
        visible = cleaned(text)
        pieces = removed_in(text, visible) if visible != text else [(text, False)]
        self.out.append("")  # where a label goes, if the text is left out
        for piece, is_removed in pieces:
            write = partial(self._invisible, piece) if is_removed and piece else escape(piece)
            self.out.append(write)
        self.out.append("")
        self.texts.append((text, start, len(self.out) - 1))

    def on_hidden_start(self) -> None:
        self._hidden_at = len(self.out)
        self.out.append("")

    def on_hidden_end(self, text: str, reason: str) -> None:
        if text:
            self.out[self._hidden_at] = partial(self._hidden, text, reason)

    def on_machine_text(self, text: str, reason: str) -> None:
        self.out.append(partial(self._hidden, text, reason))

    def on_picture(self, attributes: Attributes, *, is_remote: bool, is_pixel: bool) -> None:
        source = (attributes.get("src") or "").strip()
        if is_remote:
            self.out.append(partial(self._not_loaded, source, attributes, is_pixel=is_pixel))
            return
        alternative = escape(" ".join((attributes.get("alt") or "").split())[:_MAX_ALT])
        self.out.append(f'<img src="{escape(source)}" alt="{alternative}">')

    def finish(self, kinds: Sequence[str]) -> str:
        """The document; *kinds* says of each line of the page which part of a reply it is."""
        self._mark_left_out(kinds)
        written = [piece if isinstance(piece, str) else piece() for piece in self.out]
        return "".join([*written, _FULL if len(self.marks) >= _MAX_MARKS else ""])

    def _mark_left_out(self, kinds: Sequence[str]) -> None:
        lines = zip(kinds, self.page.sources, strict=False)
        for kind, group in groupby(lines, key=itemgetter(0)):
            on_lines = sorted(set[int]().union(*(sources for _, sources in group)) - {-1})
            words = " ".join(self.texts[index][0] for index in on_lines)
            if not kind or not words.strip() or self.agent_text.has_new(words):
                continue
            for index in on_lines:
                _, start, end = self.texts[index]
                self.out[start], self.out[end] = '<span class="left-out">', "</span>"
            first = self.texts[on_lines[0]][1]
            self.out[first] = partial(self._left_out, kind, len(" ".join(words.split())))

    def _left_out(self, kind: str, chars: int) -> str:
        mark = left_out(kind, len(self.marks) + 1, chars)
        return self._box(mark) + '<span class="left-out">'

    def _hidden(self, text: str, reason: str) -> str:
        is_in_agent_text = self.agent_text.has(text)
        end = "not given to the agent"
        if is_in_agent_text:
            end = "but the agent gets the same text elsewhere"
        label = f"Hidden from readers: {how_hidden(reason)} · {characters(len(text))}, {end}"
        mark = Mark(len(self.marks) + 1, "hidden", label, reason, len(text), is_in_agent_text)
        more = len(text) - _MAX_WORDS
        rest = f" … and {characters(more)} more" if more > 0 else ""
        return self._box(mark, cleaned(text[:_MAX_WORDS]) + rest)

    def _invisible(self, run: str) -> str:
        label = name_characters(run)
        return self._box(Mark(len(self.marks) + 1, "invisible", label, chars=len(run)))

    def _not_loaded(self, source: str, attributes: Attributes, *, is_pixel: bool) -> str:
        host = host_of(f"https:{source}" if source.startswith("//") else source)[:_MAX_HOST]
        what = "Tracking pixel" if is_pixel else "Picture"
        label = f"{what}, not loaded: {cleaned(host, one_line=True) or 'another host'}"
        kind: MarkKind = "pixel" if is_pixel else "picture"
        alternative = " ".join((attributes.get("alt") or "").split())[:_MAX_ALT]
        return self._box(Mark(len(self.marks) + 1, kind, label), cleaned(alternative))

    def _box(self, mark: Mark, text: str = "") -> str:
        """The mark in the document, and in the list."""
        if len(self.marks) >= _MAX_MARKS:
            return ""
        self.marks.append(mark)
        words = f' <span class="words">{escape(text)}</span>' if text else ""
        return (
            f'<span class="mark {mark.kind}" id="mark-{mark.number}"><span class="label">'
            f"{mark.number} · {escape(mark.label)}</span>{words}</span>"
        )


def _attributes(tag: str, attributes: Attributes) -> str:
    """The attributes of an element that remain, written again."""
    names = _ATTRIBUTES["*"] | _ATTRIBUTES.get(tag, frozenset())
    kept = {name: value for name, value in attributes.items() if name in names and value}
    if "width" in kept and not _WIDTH.fullmatch(kept["width"]):
        del kept["width"]
    if style := _style(attributes.get("style") or ""):
        kept["style"] = style
    return "".join(f' {name}="{escape(value)}"' for name, value in kept.items())


def _style(css: str) -> str:
    """The declarations that can neither hide an element nor move it elsewhere."""
    declared = parse_declarations(css).items() if css else ()
    return ";".join(f"{name}:{value}" for name, value in declared if _is_harmless(name, value))


def _is_harmless(name: str, value: str) -> bool:
    if name not in _STYLES or not _VALUE.fullmatch(value) or _ODD_NUMBER.search(value):
        return False
    if name.startswith(("margin", "padding", "border-spacing")):
        return bool(_SPACE.fullmatch(value))
    if name.endswith("width") and not name.startswith("border"):
        return bool(_WIDTH.fullmatch(value))
    return name != "display" or value in _DISPLAYS
