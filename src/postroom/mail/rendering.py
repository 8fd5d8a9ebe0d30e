"""Walking an HTML tree the way a reader's eye does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.charsets import clean
from postroom.mail.html import HtmlText
from postroom.mail.layout import Page
from postroom.mail.message import HiddenText, Link
from postroom.mail.styles import Declarations, Style, length_px, parse_declarations, styled
from postroom.mail.stylesheets import Element, Stylesheet, merge

_BLOCKS = frozenset(
    ("address", "article", "aside", "body", "caption", "center", "dd", "details", "dialog", "div",
     "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "legend",
     "main", "nav", "section", "summary", "tbody", "tfoot", "thead", "tr")
)  # fmt: skip
_PARAGRAPHS = frozenset(
    ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote", "pre", "dl")
)
# What a browser does not show as text, with the reason we give.
_NEVER_SHOWN = {
    "template": "not rendered", "noscript": "not rendered", "title": "not rendered",
    "noframes": "not rendered", "noembed": "not rendered", "object": "not rendered",
    "audio": "not rendered", "video": "not rendered", "canvas": "not rendered",
    "iframe": "not rendered", "datalist": "not rendered", "svg": "drawing", "math": "",
    "script": "", "style": "", "head": "", "meta": "", "link": "", "select": "form field",
    "textarea": "form field", "option": "form field", "xml": "not rendered", "rp": "",
}  # fmt: skip
_EXCERPT = 200
_MOST_FOUND = 200
_MOST_LINKS = 500
_LETTER = re.compile(r"\w")


def render(html: str, defects: tuple[str, ...]) -> HtmlText:
    """The text that shows, the text that does not, and what the mail would load."""
    tree = LexborHTMLParser(html)
    walker = _Walker(Stylesheet(_css(tree)))
    root = tree.root
    if root is not None:
        walker.walk(root)
    text = clean(walker.page.text())
    if not _LETTER.search(text):
        text = "\n".join(walker.alternatives) or text
    return HtmlText(
        text,
        tuple(walker.hidden),
        walker.remote_images,
        walker.tracking_pixels,
        tuple(walker.links),
        defects,
    )


def _css(tree: LexborHTMLParser) -> str:
    return "\n".join(node.text_content or node.text() or "" for node in tree.css("style")[:50])


@dataclass(slots=True)
class _Frame:
    """An element that is open, and what to do when it closes."""

    element: Element
    style: Style
    close: Callable[[], None] | None = None
    pre: bool = False


@dataclass(slots=True)
class _Walker:
    sheet: Stylesheet
    page: Page = field(default_factory=Page)
    hidden: list[HiddenText] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    alternatives: list[str] = field(default_factory=list)
    remote_images: int = 0
    tracking_pixels: int = 0
    frames: list[_Frame] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    _unseen: list[str] = field(default_factory=list)
    _reason: str = ""

    def walk(self, root: LexborNode) -> None:
        """Depth first without recursion: mail nests deeper than Python does."""
        node: LexborNode | None = root
        self.frames.append(_Frame(Element("", "", frozenset()), Style()))
        depth = 0
        while node is not None:
            child = self._enter(node)
            if child is not None:
                node, depth = child, depth + 1
                continue
            while node is not None and node.next is None and depth:
                node, depth = node.parent, depth - 1
                self._leave()
            if not depth or node is None:
                break
            node = node.next
        self._flush_unseen()

    def _enter(self, node: LexborNode) -> LexborNode | None:
        """Handle one node; returns its first child if there is anything to see inside."""
        tag = node.tag or ""
        if tag == "-text":
            self._text(node.text_content or "")
            return None
        if tag[:1] in ("-", "!") or tag == "#document":
            return None
        child = node.first_child
        frame = self._frame(node, tag)
        self._open(node, tag, frame)
        if child is None:
            if frame.close:
                frame.close()
            return None
        self.frames.append(frame)
        return child

    def _leave(self) -> None:
        frame = self.frames.pop()
        if frame.close:
            frame.close()

    def _frame(self, node: LexborNode, tag: str) -> _Frame:
        above = self.frames[-1]
        attributes = node.attributes if node.attrs else {}
        if not attributes and not self.sheet:
            element = Element(tag, "", frozenset())
            style = above.style
        else:
            classes = (attributes.get("class") or "").lower().split()
            element = Element(tag, (attributes.get("id") or "").lower(), frozenset(classes))
            style = self._style(element, attributes, above.style)
        if tag in _NEVER_SHOWN and not style.gone:
            style = styled(style, {"display": "none"})
        return _Frame(element, style, pre=above.pre or tag in ("pre", "listing", "xmp"))

    def _style(self, element: Element, attributes: dict[str, str | None], parent: Style) -> Style:
        css = _presentation(attributes)
        if self.sheet:
            merge(css, self.sheet.declarations(element, [frame.element for frame in self.frames]))
        if inline := attributes.get("style"):
            merge(css, parse_declarations(inline))
        return styled(parent, css) if css else parent

    def _text(self, text: str) -> None:
        frame = self.frames[-1]
        reason = frame.style.unseen
        if reason:
            if frame.element.tag not in ("script", "style"):
                self._keep_unseen(text, reason)
            return
        self._flush_unseen()
        if frame.pre:
            self.page.write_pre(text)
        else:
            self.page.write(text)

    def _keep_unseen(self, text: str, reason: str) -> None:
        if reason != self._reason:
            self._flush_unseen()
            self._reason = reason
        self._unseen.append(text)

    def _flush_unseen(self) -> None:
        if not self._unseen:
            return
        text = " ".join("".join(self._unseen).split())
        self._unseen = []
        if _LETTER.search(text) and len(self.hidden) < _MOST_FOUND:
            self.hidden.append(HiddenText(self._reason, clean(text[:_EXCERPT]), len(text)))

    def _open(self, node: LexborNode, tag: str, frame: _Frame) -> None:
        if frame.style.gone:
            if tag == "img":
                self._image(node.attributes, is_hidden=True)
            return
        page = self.page
        if tag == "br":
            page.break_line()
        elif tag == "img":
            self._image(node.attributes, is_hidden=bool(frame.style.unseen))
        elif tag == "a":
            self._open_link(node.attributes.get("href") or "", frame)
        elif tag in ("td", "th"):
            page.cell()
        elif tag == "hr":
            page.rule()
        elif tag == "li":
            self._open_item(frame)
        elif tag == "blockquote":
            self._open_quote(node.attributes, frame)
        elif tag in _PARAGRAPHS:
            self._open_paragraph(tag, frame)
        elif tag in _BLOCKS:
            page.end_line()
            frame.close = page.end_line

    def _open_paragraph(self, tag: str, frame: _Frame) -> None:
        page = self.page
        page.blank_line() if not self.counters or tag not in ("ul", "ol", "p") else page.end_line()
        if tag not in ("ul", "ol"):
            frame.close = page.blank_line
            return
        self.counters.append(1 if tag == "ol" else 0)

        def close() -> None:
            self.counters.pop()
            page.end_line() if self.counters else page.blank_line()

        frame.close = close

    def _open_item(self, frame: _Frame) -> None:
        number = self.counters[-1] if self.counters else 0
        marker = f"{number}. " if number else "- "
        if number:
            self.counters[-1] += 1
        self.page.indent(" " * len(marker))
        self.page.mark(marker)
        frame.close = self.page.outdent

    def _open_quote(self, attributes: dict[str, str | None], frame: _Frame) -> None:
        self.page.blank_line()
        self.page.indent("> " if _is_citation(attributes) else "")

        def close() -> None:
            self.page.outdent()
            self.page.blank_line()

        frame.close = close

    def _open_link(self, url: str, frame: _Frame) -> None:
        if frame.style.unseen or not url.strip():
            return
        lines, before = len(self.page.lines), len(self.page._line)

        def close() -> None:
            said = "".join(self.page._line[before:]) if len(self.page.lines) == lines else ""
            self._close_link(said.strip(), url.strip())

        frame.close = close

    def _close_link(self, said: str, url: str) -> None:
        if len(self.links) < _MOST_LINKS:
            self.links.append(Link(clean(said[:_EXCERPT]), clean(url[:2_000])))
        host = _host(url)
        if said and host and host not in said.lower():
            self.page.write(f" ({host})")

    def _image(self, attributes: dict[str, str | None], *, is_hidden: bool) -> None:
        source = (attributes.get("src") or "").strip().lower()
        alternative = " ".join((attributes.get("alt") or "").split())
        if alternative and not is_hidden and len(self.alternatives) < _MOST_FOUND:
            self.alternatives.append(alternative[:_EXCERPT])
        if source.startswith(("http:", "https:", "//")):
            self.remote_images += 1
            self.tracking_pixels += is_hidden or _is_pixel(attributes)


def _host(url: str) -> str:
    if not url.lower().startswith(("http:", "https:")):
        return ""
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def _is_pixel(attributes: dict[str, str | None]) -> bool:
    css = parse_declarations(attributes.get("style") or "")
    for name in ("width", "height"):
        size = length_px(css.get(name) or attributes.get(name) or "")
        if size is not None and size <= 2:
            return True
    return False


def _is_citation(attributes: dict[str, str | None]) -> bool:
    """Quoted mail, and not just a paragraph that somebody indented."""
    kind = f"{attributes.get('type')} {attributes.get('class')} {attributes.get('cite')}".lower()
    css = (attributes.get("style") or "").lower()
    return "cite" in kind or "quote" in kind or "border-left" in css or "mid:" in kind


def _presentation(attributes: dict[str, str | None]) -> Declarations:
    """The old attributes, as if they were CSS."""
    css: Declarations = {}
    for name, declared in (("bgcolor", "background-color"), ("color", "color"), ("text", "color")):
        if value := attributes.get(name):
            css[declared] = value.strip().lower()
    if attributes.get("background"):
        css["background-image"] = "url("
    if "hidden" in attributes or (attributes.get("aria-hidden") or "").lower() == "true":
        css["display"] = "none"
    return css
