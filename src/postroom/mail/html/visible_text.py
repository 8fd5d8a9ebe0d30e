"""The text of an HTML mail that its reader sees, and a record of what is hidden."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.data import load
from postroom.mail.html.css.boxes import TextPosition, covers, has_height, height_px
from postroom.mail.html.css.colours import BLACK, LINK
from postroom.mail.html.css.computed_style import Style, inherit_style
from postroom.mail.html.css.paint import BY_COLOUR
from postroom.mail.html.css.stylesheets import StyleResolver, Stylesheet, is_quirky, sheets_in
from postroom.mail.html.elements import (
    Attributes,
    Element,
    host_of,
    is_citation,
    is_pixel,
    names_of,
)
from postroom.mail.html.hidden_texts import HiddenTexts, Observer
from postroom.mail.html.html import QUOTE, HtmlText, Page
from postroom.mail.html.layout import (
    TABLE_TAGS,
    Columns,
    CoveredElements,
    Flow,
    Line,
    count_painted,
    has_layout,
    is_opaque,
    is_row,
    line_of,
    may_cover,
)
from postroom.mail.message import Link
from postroom.mail.mime.decoding import clean

_DATA = load("html")
EXCERPT = 200
_BLOCKS, _PARAGRAPHS = frozenset(_DATA["blocks"]), frozenset(_DATA["paragraphs"])
_NEVER_SHOWN = frozenset(_DATA["never_shown"])
_TEXT_ATTRIBUTES = frozenset(_DATA["text_attributes"])
_MAX_NODES = 100_000
_MAX_LINKS = 500
_MAX_ALTERNATIVES = 200
_LETTER = re.compile(r"\w")
_LINE_PX = 24.0
_FOLDED = "details element"
_STYLED = frozenset(("dialog", "mark"))
_PREFORMATTED = frozenset(("pre", "listing", "xmp", "textarea"))
_NO_CLASSES: frozenset[str] = frozenset()
_NOTHING: Attributes = {}


def render(
    html: str,
    defects: tuple[str, ...],
    observer: Observer | None = None,
    page: Page | None = None,
) -> HtmlText:
    """The text that shows, the text that does not, and what the mail would load.

    *observer* receives the decision on each node; the text is laid out on *page*.
    """
    tree = LexborHTMLParser(html)
    sheets, folds = sheets_in(tree, html), is_quirky(html)
    sheet = Stylesheet(sheets, folds=folds)
    lower_html = html.lower()
    painted = count_painted(tree, sheets) if "z-index" in lower_html else 0
    resolver = StyleResolver(sheet, inherits="inherit" in lower_html, painted=painted)
    covers, below = _covered(tree, resolver, folds=folds) if may_cover(lower_html) else ({}, set())
    walker = _Walker(
        resolver, page=page or Page(), hidden=HiddenTexts(observer), observer=observer,
        covered=below.union(covers.values()), covers=covers, folds=folds,
        lays_out=has_layout(lower_html),
    )  # fmt: skip
    if not walker.walk(tree.root):
        defects = (*defects, f"HTML with more than {_MAX_NODES} nodes; the rest was not read")
    if sheet.is_partial:
        defects = (*defects, "HTML styles over the limits; text counts as hidden")
    text = clean(walker.page.text())
    if not walker.has_words and any(one.reason == BY_COLOUR for one in walker.hidden.found):
        text = _text_ignoring_colours(tree, resolver, folds=folds) or text
    if not _LETTER.search(text):
        text = clean("\n".join(walker.alternatives)) or text
    return HtmlText(
        text,
        tuple(walker.hidden.found),
        walker.remote_images,
        walker.tracking_pixels,
        tuple(walker.links),
        tuple(walker.alternatives),
        defects,
    )


def _covered(
    tree: LexborHTMLParser, resolver: StyleResolver, *, folds: bool
) -> tuple[dict[int, int], set[int]]:
    """Boxes that lie over the box they are placed in, and elements under the box behind them."""
    walker = _Walker(resolver, folds=folds)
    walker.walk(tree.root)
    return walker.covers, walker.covered_elements.ids


def _text_ignoring_colours(tree: LexborHTMLParser, resolver: StyleResolver, *, folds: bool) -> str:
    """The text of a mail that shows nothing, whatever its colours: hidden beside what?"""
    walker = _Walker(resolver, sees_colours=False, folds=folds)
    walker.walk(tree.root)
    text = clean(walker.page.text())
    return text if _LETTER.search(text) else ""


@dataclass(slots=True)
class _Frame:
    """An element that is open, and what to do when it closes."""

    element: Element
    style: Style
    hidden: str
    is_never_shown: bool = False
    close: Callable[[], None] | None = None
    pre: bool = False
    clip_start: list[float] = field(default_factory=list)
    layout_reason: str = ""
    start: float = 0.0
    columns: Columns | None = None
    line: Line | None = None


@dataclass(slots=True)
class _Walker:
    resolver: StyleResolver
    sees_colours: bool = True
    page: Page = field(default_factory=Page)
    hidden: HiddenTexts = field(default_factory=HiddenTexts)
    links: list[Link] = field(default_factory=list)
    alternatives: list[str] = field(default_factory=list)
    remote_images: int = 0
    tracking_pixels: int = 0
    frames: list[_Frame] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    observer: Observer | None = None
    has_words: bool = False
    flow: Flow = field(default_factory=Flow)
    covers: dict[int, int] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)
    covered_elements: CoveredElements = field(default_factory=CoveredElements)
    folds: bool = True
    lays_out: bool = False

    def walk(self, node: LexborNode | None) -> bool:
        """Depth first without recursion: mail nests deeper than Python does.

        Returns whether the end was reached before `_MAX_NODES`.
        """
        self.frames.append(_Frame(Element("", folds=self.folds), Style(), ""))
        depth = nodes = 0
        while node is not None and nodes < _MAX_NODES:
            nodes += 1
            child = self._enter(node)
            if child is not None:
                node, depth = child, depth + 1
                continue
            while node is not None and node.next is None and depth:
                node, depth = node.parent, depth - 1
                self._end(self.frames.pop())
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
        frame = self._frame(tag, attributes, node)
        self._open(tag, attributes, frame)
        if self.observer:
            self.observer.on_open(tag, attributes)
        child = node.first_child
        if tag == "template":
            self._template(node, attributes)
        if child is None:
            self._end(frame)
            return None
        self.frames.append(frame)
        return child

    def _template(self, node: LexborNode, attributes: Attributes) -> None:
        self.hidden.mention(node.html or "", "template element")
        if "shadowrootmode" in attributes:  # it is shown instead of what else the element holds
            above = self.frames[-1]
            above.hidden = "display"
            above.style = replace(above.style, hidden_below="display", hidden="display")

    def _end_clipped_row(self, frame: _Frame) -> None:
        """Count the height of an element that ends in a box that clips."""
        above, values = self.frames[-1], frame.style.values
        is_high = has_height(values)
        if not above.clip_start and above.style.box.clip:
            above.clip_start.append(frame.start if is_high else self.flow.y)
        if frame.element.tag == "br":
            self.flow.add_line(frame.style.box.line(frame.style.size_px))
        if is_high:
            self.flow.reach(frame.start + height_px(values))
        self.flow.is_new_row = True

    def _end(self, frame: _Frame) -> None:
        if frame.close:
            frame.close()
        style = frame.style
        if style.box.clip and not style.is_gone and is_row(frame.element.tag, style.values):
            self._end_clipped_row(frame)
        if self.observer:
            self.observer.on_close()

    def _frame(self, tag: str, attributes: Attributes, node: LexborNode) -> _Frame:
        above, resolver = self.frames[-1], self.resolver
        element = Element(tag, "", _NO_CLASSES, attributes, above.element, node, self.folds)
        for name, value in attributes.items():
            if value and name in _TEXT_ATTRIBUTES:
                self.hidden.mention(value, f"{name} attribute")
        if attributes and resolver.has_rules and ("class" in attributes or "id" in attributes):
            element.classes, element.id = names_of(attributes, folds=self.folds)
        style = above.style
        if attributes or resolver.has_rules or tag in _STYLED:
            style = resolver.style_of(element, style)
        elif not style.is_passed_on:
            style = inherit_style(style)
        is_same = style is above.style
        is_never_shown = above.is_never_shown or tag in _NEVER_SHOWN
        pre = above.pre or tag in _PREFORMATTED
        hidden = above.hidden if is_same else style.hidden
        frame = _Frame(
            element, style, hidden, is_never_shown, None, pre, above.clip_start, above.layout_reason
        )
        if self.lays_out:
            self._lay_out(frame, above)
        if not is_same or (self.covered and node.mem_id in self.covered):
            self._note_layout(frame, node)
        if hidden or tag == "details":
            self._apply_implied_hiding(frame, above)
        return frame

    def _apply_implied_hiding(self, frame: _Frame, above: _Frame) -> None:
        """Decide what does not follow from styles: folded parts, and colours that nobody chose."""
        style, tag = frame.style, frame.element.tag
        if above.element.tag == "details" and "open" not in above.element.attributes:
            if tag == "summary":
                frame.hidden = style.hidden
            else:
                frame.style = replace(style, hidden_below=_FOLDED, hidden=_FOLDED)
        if frame.hidden == BY_COLOUR and not self.sees_colours and style.colour is BLACK:
            frame.hidden = ""  # nobody said that it is black
        if tag == "details" and "open" not in frame.element.attributes:
            frame.hidden = frame.hidden or _FOLDED

    def _lay_out(self, frame: _Frame, above: _Frame) -> None:
        """Decide what follows from neighbours: columns that are collapsed, lines that are full."""
        tag, attributes = frame.element.tag, frame.element.attributes
        if above.line is not None:
            frame.layout_reason = frame.layout_reason or ("clipped" if above.line.is_full() else "")
            above.line.add(frame.style.values, frame.style.size_px)
        if tag != "table":
            frame.columns = above.columns
        if tag not in TABLE_TAGS:
            return
        if tag[:3] == "col":
            table = next(
                (one for one in reversed(self.frames) if one.element.tag == "table"), above
            )
            table.columns = table.columns or Columns()
            is_collapsed = frame.style.inherited.get("visibility") == "collapse"
            table.columns.add(tag, attributes, is_collapsed=is_collapsed)
        elif frame.columns is not None and frame.columns.hides(tag, attributes):
            frame.hidden = frame.hidden or "visibility"
            frame.style = replace(frame.style, hidden_below="visibility", hidden="visibility")

    def _note_layout(self, frame: _Frame, node: LexborNode) -> None:
        """Note what a style says about rows, and about boxes that lie over others."""
        values = frame.style.values
        if frame.style.box.clip and has_height(values) and is_row(frame.element.tag, values):
            frame.start = self.flow.end_row()
        if frame.style.box.starts_clip:
            frame.line = line_of(values, frame.style.inherited, frame.style.size_px)
            frame.clip_start = []  # where the first text in it stands, once there is one
        if self.covered and node.mem_id in self.covered:
            frame.layout_reason = "covered"
        if "position" in values or "transform" in values:
            self.covered_elements.record(node, frame.style, len(self.page.lines))
        position = values.get("position", "static")
        if position == "static":
            return
        if frame.layout_reason == "covered" and (node.mem_id in self.covers or covers(values, 0)):
            frame.layout_reason = ""
        lines = len(self.page.lines)
        if not self.covered and covers(values, lines) and is_opaque(frame.style):
            self.covers[node.mem_id] = self._anchor(position)

    def _anchor(self, position: str) -> int:
        """The element that an absolute position refers to."""
        for above, frame in zip(reversed(self.frames[:-1]), reversed(self.frames), strict=False):
            values = frame.style.values
            is_own = frame.style is not above.style
            if is_own and position != "fixed" and values.get("position", "static") != "static":
                return frame.element.node.mem_id if frame.element.node else 0
        root = self.frames[1].element.node if len(self.frames) > 1 else None
        return root.mem_id if root else 0

    def _text(self, text: str) -> None:
        frame = self.frames[-1]
        if frame.is_never_shown:
            self.hidden.mention(text, f"{frame.element.tag} element")
            return
        hidden = frame.hidden
        if not hidden and (frame.layout_reason or not frame.style.box.is_plain):
            hidden = self._reason_hidden_here(frame, text)
        if hidden:
            self.hidden.add(text, hidden)
        else:
            self.hidden.flush()
            if not self.has_words and frame.style.colour is not LINK:
                self.has_words = _LETTER.search(text) is not None
            if self.observer:
                self.observer.on_visible_text(text)
            self.page.write_pre(text) if frame.pre else self.page.write(text)

    def _reason_hidden_here(self, frame: _Frame, text: str) -> str:
        """Why text does not show in this place, though it would elsewhere."""
        if text.isspace():
            return ""
        if frame.layout_reason:
            return frame.layout_reason
        self.flow.add_line(frame.style.box.line(frame.style.size_px))
        if not frame.clip_start:
            frame.clip_start.append(self.flow.y)
        clip_y = self.flow.y - frame.clip_start[0]
        position = TextPosition(_LINE_PX * len(self.page.lines) + 8, clip_y)
        return frame.style.hides(text.strip(), position)

    def _open(self, tag: str, attributes: Attributes, frame: _Frame) -> None:
        if tag == "img":
            self._image(attributes, is_hidden=frame.style.is_gone)
        if frame.style.hidden_below:
            return
        if frame.style.box.clip and tag != "br" and is_row(tag, frame.style.values):
            self.flow.is_new_row = True
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
        if frame.style.is_gone or not url:
            return
        place, pictures = self.page.place(), len(self.alternatives)

        def close() -> None:
            said, shown = self.page.since(place), self.alternatives[pictures:]
            if said or shown or not frame.hidden:
                self._close_link(said, shown, url)

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
            self.observer.on_picture(attributes, is_remote=is_remote, is_pixel=is_tracker)
