"""The text of an HTML mail that its reader sees, and a record of what is hidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.data import load, pattern
from postroom.mail.html.html import QUOTE, HtmlText, Page
from postroom.mail.html.styles import (
    BY_COLOUR,
    Attributes,
    Style,
    host_of,
    is_citation,
    is_pixel,
    parse_declarations,
    presentation,
    styled,
)
from postroom.mail.html.stylesheets import Element, Stylesheet, merge
from postroom.mail.message import HiddenText, Link
from postroom.mail.mime.decoding import clean
from postroom.mail.text.invisible import hidden_text

_DATA = load("html")
EXCERPT = 200
_MAX_FOUND = 200
_TAG = re.compile(r"<[^>]{0,2000}>?")
_WORD = re.compile(r"[^\W\d_]{2,}")
# Titles, comments and alternative texts never show, and ordinary mail is full of them. They
# are only worth a word if they speak to a machine, or ask for something to be sent.
_TO_A_MACHINE = pattern(_DATA["to_a_machine"])
_MAX_CHARS = 20_000
_FEW_CHARS = 20


class Observer(Protocol):
    """Is told what the walk decides about each node, in the order of the document.

    This is all that marking (`marks`) knows of the detection, so that both can change apart.
    """

    def open(self, tag: str, attributes: Attributes) -> None:
        """An element begins."""

    def close(self) -> None:
        """The innermost open element ends."""

    def shown(self, text: str) -> None:
        """Text that a reader sees; it is written to the page next."""

    def begin_hidden(self) -> None:
        """Text that a reader does not see begins here."""

    def end_hidden(self, text: str, reason: str) -> None:
        """What was hidden from there on; without text, it was nothing to report."""

    def mentioned(self, text: str, reason: str) -> None:
        """Text that is never displayed, and that addresses a machine."""

    def picture(self, attributes: Attributes, *, is_remote: bool, is_pixel: bool) -> None:
        """A picture."""


@dataclass(slots=True)
class HiddenTexts:
    """Hidden texts and the reason for each; adjacent texts with one reason are joined."""

    observer: Observer | None = None
    found: list[HiddenText] = field(default_factory=list)
    _pieces: list[str] = field(default_factory=list)
    _reason: str = ""
    _chars_left: int = 100_000

    def add(self, text: str, reason: str) -> None:
        """Text that is hidden by a style or an attribute."""
        if reason != self._reason:
            self.flush()
            self._reason = reason
        if self.observer and not self._pieces:
            self.observer.begin_hidden()
        self._pieces.append(text)

    def flush(self) -> None:
        if not self._pieces:
            return
        text = " ".join("".join(self._pieces).split())
        self._pieces = []
        text = text if _WORD.search(text) else ""
        if self.observer:
            self.observer.end_hidden(text, self._reason)
        if text:
            self._keep(text, self._reason)

    def mention(self, text: str, reason: str) -> None:
        """Text that is never displayed, recorded only if it addresses a machine."""
        text = text[: min(_MAX_CHARS, self._chars_left)]
        if len(text) < _FEW_CHARS:
            return
        self._chars_left -= len(text)
        if not _TO_A_MACHINE.search(text):
            return
        prose = " ".join(_TAG.sub(" ", text).split())
        if _TO_A_MACHINE.search(prose):
            if self.observer:
                self.observer.mentioned(prose, reason)
            self._keep(prose, reason)

    def _keep(self, text: str, reason: str) -> None:
        if len(self.found) < _MAX_FOUND:
            self.found.append(hidden_text(reason, clean(text), len(text)))


_BLOCKS, _PARAGRAPHS = frozenset(_DATA["blocks"]), frozenset(_DATA["paragraphs"])
_NEVER_SHOWN = frozenset(_DATA["never_shown"])
_TEXT_ATTRIBUTES: list[str] = _DATA["text_attributes"]
_MAX_NODES = 100_000
_MAX_LINKS = 500
_MAX_ALTERNATIVES = 200
_LETTER = re.compile(r"\w")
_NOTHING: Attributes = {}


def render(
    html: str,
    defects: tuple[str, ...],
    observer: Observer | None = None,
    page: Page | None = None,
) -> HtmlText:
    """The text that shows, the text that does not, and what the mail would load.

    *observer* is told of each node what was decided, *page* is where the text is laid out.
    """
    tree = LexborHTMLParser(html)
    sheet = Stylesheet(_css(tree))
    walker = _Walker(sheet, page=page or Page(), hidden=HiddenTexts(observer), observer=observer)
    if tree.root is not None and not walker.walk(tree.root):
        defects = (*defects, f"HTML with more than {_MAX_NODES} nodes, read up to there")
    if sheet.is_partial:
        defects = (*defects, "HTML styles beyond measure, hidden text may show")
    text = clean(walker.page.text())
    if not _LETTER.search(text):
        by_colour = any(hidden.reason == BY_COLOUR for hidden in walker.hidden.found)
        again = _at_a_second_look(tree, sheet) if by_colour else ""
        text = again or clean("\n".join(walker.alternatives)) or text
    return HtmlText(
        text,
        tuple(walker.hidden.found),
        walker.remote_images,
        walker.tracking_pixels,
        tuple(walker.links),
        tuple(walker.alternatives),
        defects,
    )


def _at_a_second_look(tree: LexborHTMLParser, sheet: Stylesheet) -> str:
    """The text of a mail that shows nothing, whatever its colours: hidden beside what?"""
    walker = _Walker(sheet, sees_colours=False)
    if tree.root is not None:
        walker.walk(tree.root)
    text = clean(walker.page.text())
    return text if _LETTER.search(text) else ""


def styles_of(html: str) -> str:
    """The style sheets for screens in an HTML mail."""
    return _css(LexborHTMLParser(html))


def _css(tree: LexborHTMLParser) -> str:
    sheets = tree.css("style")[:50]
    screens = [s for s in sheets if (s.attributes.get("media") or "all").lower() in _SCREENS]
    return "\n".join(sheet.text() or "" for sheet in screens)


_SCREENS = frozenset(("", "all", "screen", "only screen", "screen,print", "screen, print"))


@dataclass(slots=True)
class _Frame:
    """An element that is open, and what to do when it closes."""

    element: Element
    style: Style
    hidden: str
    silent: bool = False
    close: Callable[[], None] | None = None
    pre: bool = False


@dataclass(slots=True)
class _Walker:
    sheet: Stylesheet
    sees_colours: bool = True
    page: Page = field(default_factory=Page)
    hidden: HiddenTexts = field(default_factory=HiddenTexts)
    links: list[Link] = field(default_factory=list)
    alternatives: list[str] = field(default_factory=list)
    remote_images: int = 0
    tracking_pixels: int = 0
    frames: list[_Frame] = field(default_factory=list)
    path: list[Element] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    styles: dict[tuple[object, ...], Style] = field(default_factory=dict)
    observer: Observer | None = None

    def walk(self, root: LexborNode) -> bool:
        """Depth first without recursion: mail nests deeper than Python does.

        Returns whether the end was reached before `_MAX_NODES`.
        """
        self.frames.append(_Frame(Element("", "", frozenset()), Style(), ""))
        node: LexborNode | None = root
        depth = nodes = 0
        while node is not None and nodes < _MAX_NODES:
            nodes += 1
            child = self._enter(node)
            if child is not None:
                node, depth = child, depth + 1
                continue
            while node is not None and node.next is None and depth:
                node, depth = node.parent, depth - 1
                self._close()
            if not depth or node is None:
                break
            node = node.next
        self.hidden.flush()
        return nodes < _MAX_NODES

    def _enter(self, node: LexborNode) -> LexborNode | None:
        """Handle one node; returns its first child if there is one to go to."""
        tag = node.tag or ""
        if tag == "-text":
            self._text(node.text_content or "")
            return None
        if tag[:1] in ("", "-", "!", "#"):  # "" is a processing instruction
            if tag == "-comment":
                self.hidden.mention(node.comment_content or "", "comment")
            return None
        attributes = node.attributes if node.attrs else _NOTHING
        frame = self._frame(tag, attributes)
        self._open(tag, attributes, frame)
        if self.observer:
            self.observer.open(tag, attributes)
        child = node.first_child
        if tag == "template":
            self.hidden.mention(node.html or "", "template element")
        if child is None:
            self._end(frame)
            return None
        self.frames.append(frame)
        self.path.append(frame.element)
        return child

    def _close(self) -> None:
        self.path.pop()
        self._end(self.frames.pop())

    def _end(self, frame: _Frame) -> None:
        if frame.close:
            frame.close()
        if self.observer:
            self.observer.close()

    def _frame(self, tag: str, attributes: Attributes) -> _Frame:
        above = self.frames[-1]
        style, element = above.style, Element(tag, "", frozenset())
        if attributes:
            for name in _TEXT_ATTRIBUTES:
                if value := attributes.get(name):
                    self.hidden.mention(value, f"{name} attribute")
            classes = (attributes.get("class") or "").lower().split()
            element = Element(tag, (attributes.get("id") or "").lower(), frozenset(classes))
        if attributes or self.sheet or tag == "dialog":
            style = self._style(element, attributes, style)
        hidden = above.hidden if style is above.style else style.hidden
        if hidden == BY_COLOUR and not self.sees_colours:
            hidden = ""
        pre = above.pre or tag in ("pre", "listing", "xmp", "textarea")
        silent = above.silent or tag in _NEVER_SHOWN
        return _Frame(element, style, hidden, silent, pre=pre)

    def _style(self, element: Element, attributes: Attributes, parent: Style) -> Style:
        css = presentation(element.tag, attributes)
        if self.sheet:
            merge(css, self.sheet.declarations(element, self.path))
        if inline := attributes.get("style"):
            merge(css, parse_declarations(inline))
        if not css:
            return parent
        key = (parent, *sorted(css.items()))
        style = self.styles.get(key)
        if style is None:
            style = self.styles[key] = styled(parent, css)
        return style

    def _text(self, text: str) -> None:
        frame = self.frames[-1]
        if frame.silent:
            self.hidden.mention(text, f"{frame.element.tag} element")
        elif frame.hidden:
            self.hidden.add(text, frame.hidden)
        else:
            self.hidden.flush()
            if self.observer:
                self.observer.shown(text)
            self.page.write_pre(text) if frame.pre else self.page.write(text)

    def _open(self, tag: str, attributes: Attributes, frame: _Frame) -> None:
        if tag == "img":
            self._image(attributes, is_hidden=bool(frame.hidden))
        if frame.style.hidden_below:
            return
        page = self.page
        if tag == "br":
            page.break_line()
        elif tag == "a":
            self._open_link(attributes, frame)
        elif tag in ("td", "th"):
            page.cell()
        elif tag == "hr":
            page.rule()
        elif tag == "li":
            self._open_item(frame)
        elif tag in ("ul", "ol"):
            self._open_list(tag, frame)
        elif tag == "blockquote":
            self._open_quote(attributes, frame)
        elif tag in _PARAGRAPHS:
            # the paragraph of a list item stays on the line of its marker
            is_item = bool(self.counters) and tag == "p"
            frame.close = page.end_line if is_item else page.blank_line
            frame.close()
        elif tag in _BLOCKS:
            page.end_line()
            frame.close = page.end_line

    def _open_list(self, tag: str, frame: _Frame) -> None:
        page = self.page
        page.end_line() if self.counters else page.blank_line()
        self.counters.append(1 if tag == "ol" else 0)

        def close() -> None:
            self.counters.pop()
            page.end_line() if self.counters else page.blank_line()

        frame.close = close

    def _open_item(self, frame: _Frame) -> None:
        number = self.counters[-1] if self.counters else 0
        if number:
            self.counters[-1] += 1
        self.page.item(f"{number}. " if number else "- ")
        frame.close = self.page.outdent

    def _open_quote(self, attributes: Attributes, frame: _Frame) -> None:
        self.page.blank_line()
        self.page.indent(QUOTE if is_citation(attributes) else "")

        def close() -> None:
            self.page.outdent()
            self.page.blank_line()

        frame.close = close

    def _open_link(self, attributes: Attributes, frame: _Frame) -> None:
        url = (attributes.get("href") or "").strip()
        if frame.hidden or not url:
            return
        place, pictures = self.page.place(), len(self.alternatives)

        def close() -> None:
            self._close_link(self.page.since(place), self.alternatives[pictures:], url)

        frame.close = close

    def _close_link(self, said: str, pictures: list[str], url: str) -> None:
        if len(self.links) < _MAX_LINKS:
            picture = "" if said else clean(" ".join(pictures)[:EXCERPT])
            self.links.append(Link(clean(said[:EXCERPT]), clean(url[:2_000]), picture))
        host = host_of(url)
        if said and host and host not in said.lower():
            self.page.write(f" ({host})")

    def _image(self, attributes: Attributes, *, is_hidden: bool) -> None:
        source = (attributes.get("src") or "").strip().lower()
        alternative = " ".join((attributes.get("alt") or "").split())
        if alternative and not is_hidden and len(self.alternatives) < _MAX_ALTERNATIVES:
            self.alternatives.append(alternative[:EXCERPT])
        is_remote = source.startswith(("http:", "https:", "//"))
        is_tracker = is_remote and (is_hidden or is_pixel(attributes))
        self.remote_images += is_remote
        self.tracking_pixels += is_tracker
        if self.observer:
            self.observer.picture(attributes, is_remote=is_remote, is_pixel=is_tracker)
