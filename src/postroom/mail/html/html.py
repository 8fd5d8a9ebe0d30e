"""HTML parts: sanitised, laid out as lines of text, and compared with the plain alternative."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from urllib.parse import unquote

from postroom.mail.data import load
from postroom.mail.message import HiddenText, Link
from postroom.mail.mime.decoding import clean
from postroom.model.limits import Limits

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]{0,20})([^>]{0,2000})>?")
_DATA = load("html")
_VOID = frozenset(_DATA["void"])
# The tree builder walks up the open elements for every tag: depth is what makes it slow.
_DEEPEST = 512
_NO_DEEPER = ("</", "<!--", "<br>", "<BR>", "<img ", "<IMG ")
_LONG_TAG = re.compile(r"<[A-Za-z][^<>]{5000,}")
_MAX_ATTRIBUTES = 1_000
_SILENT = re.compile(
    r"<(script|style|head|title|template|noscript)\b.*?(?:</\1\s{0,9}>|$)|<!--.*?(?:-->|$)",
    re.DOTALL | re.IGNORECASE,
)
LINK_SCHEMES = re.compile(r"(?:https?://|mailto:|tel:)", re.IGNORECASE)
"""What a link may begin with."""

_DEFAULT_LIMITS = Limits()
_NOTHING: Mapping[str, set[str]] = {}


@dataclass(frozen=True, slots=True)
class HtmlText:
    """What a reader of the HTML sees, and what was kept from them."""

    text: str
    hidden: tuple[HiddenText, ...] = ()
    remote_images: int = 0
    tracking_pixels: int = 0
    links: tuple[Link, ...] = ()
    alternatives: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()


def html_to_text(html: str, limits: Limits = _DEFAULT_LIMITS) -> HtmlText:
    """The visible text, laid out in lines; linear in the size of the HTML."""
    defects: tuple[str, ...] = ()
    if len(html) > limits.html_bytes:
        html = html[: limits.html_bytes]
        defects = (f"HTML over {limits.html_bytes} characters; the rest was not read",)
    html = clean(html)
    if is_too_deep(html):
        return HtmlText(without_tags(html), defects=(*defects, "HTML nested too deeply"))
    from postroom.mail.html.visible_text import render  # selectolax is only loaded for HTML mail

    return render(html, defects)


def is_too_deep(html: str) -> bool:
    """True if elements are nested too deeply, or have far too many attributes."""
    if any(len(tag.split()) > _MAX_ATTRIBUTES for tag in _LONG_TAG.findall(html)):
        return True
    if html.count("<") - sum(map(html.count, _NO_DEEPER)) <= _DEEPEST:
        return False
    depth = 0
    for match in _TAG.finditer(html):
        if match[2].lower() in _VOID or match[3].endswith("/"):
            continue
        depth = max(depth - 1, 0) if match[1] else depth + 1
        if depth > _DEEPEST:
            return True
    return False


def without_tags(html: str) -> str:
    """Text without a tree, for HTML that is nested too deeply."""
    from html import unescape

    visible = re.sub(r"<[^>]*+>?", " ", _SILENT.sub(" ", html))
    return clean("\n".join(line.strip() for line in unescape(visible).split("\n") if line.strip()))


def sanitise_html(html: str) -> str:
    """HTML that cannot run, load or submit anything; remote images are gone too."""
    html = limit_html(html)
    return "" if is_too_deep(html) else _clean(html, _only_own_images)


def limit_html(html: str) -> str:
    """As much of HTML as is ever shown."""
    return clean(html[: _DEFAULT_LIMITS.html_bytes])


def html_for_browser(html: str, pictures: Mapping[str, str], *, remote_images: bool) -> str:
    """Sanitised HTML to show in a frame; links open in another window.

    Its styles are kept, so that the frame shows what a mail client shows. *pictures* are the data
    URLs of the files of the mail, by content id. With *remote_images*, pictures are loaded over
    https.
    """
    html = limit_html(html)
    if is_too_deep(html):
        return f"<pre>{escape(without_tags(html))}</pre>"

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if attribute == "src":
            return picture_source(value, pictures, remote_images=remote_images)
        if attribute == "href":
            return value if LINK_SCHEMES.match(value) else None
        if attribute == "style":
            return _without_loading(value, remote_images=remote_images)
        return value

    cleaned = clean_for_browser(html, keep, {"*": {"class", "id"}}, keeps_styles=True)
    return with_direction_of(html, cleaned)


_OUTERMOST = re.compile(r"<(?:html|body)\b[^<>]{0,2000}", re.IGNORECASE)
_DIRECTION = re.compile(r"\sdir\s{0,9}=\s{0,9}[\"']?(rtl|auto)\b", re.IGNORECASE)


def with_direction_of(html: str, cleaned: str) -> str:
    """Sanitised HTML in the direction of the page, whose outermost elements are not kept."""
    found = _DIRECTION.search("".join(_OUTERMOST.findall(html)))
    return f'<div dir="{found[1].lower()}">{cleaned}</div>' if found else cleaned


def styles_for_browser(html: str, *, remote_images: bool) -> str:
    """The style sheets of a mail, as the content of one `style` element."""
    # late: selectolax is only loaded for HTML mail
    from postroom.mail.html.css.stylesheets import styles_of

    html = limit_html(html)
    css = "" if is_too_deep(html) else styles_of(html)
    return _without_loading(css, remote_images=remote_images).replace("</", "< /")


_LOADING_CSS = re.compile(
    r"(?:url|src|image|image-set|cross-fade|element)\s*\(|@import", re.IGNORECASE
)


def _without_loading(css: str, *, remote_images: bool) -> str:
    """Styles that ask for nothing; the policy of the frame would refuse it as well.

    Escapes are removed, because they can spell the name of a function.
    """
    return css if remote_images else _LOADING_CSS.sub("none(", css.replace("\\", ""))


def clean_for_browser(
    html: str,
    keep: Keep,
    more: Mapping[str, set[str]] | None = None,
    *,
    keeps_styles: bool = False,
) -> str:
    """Sanitised HTML whose links open in another window; *more* attributes may remain."""
    return _clean(html, keep, {"a": {"target": "_blank"}}, more or {}, keeps_styles=keeps_styles)


def picture_source(url: str, pictures: Mapping[str, str], *, remote_images: bool) -> str | None:
    """The address from which a picture is shown, None if it is not."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "cid":
        return pictures.get(unquote(rest).strip("<>"))
    return url if remote_images and scheme.lower() == "https" else None


Keep = Callable[[str, str, str], str | None]
"""The value of an attribute that remains: of an element, the name and the value before."""


def _clean(
    html: str,
    keep: Keep,
    added: dict[str, dict[str, str]] | None = None,
    more: Mapping[str, set[str]] = _NOTHING,
    *,
    keeps_styles: bool = False,
) -> str:
    import nh3

    kept = {tag: set(names) for tag, names in _DATA["attributes"].items()}
    return nh3.clean(
        html,
        tags=set(_DATA["tags"]),
        attributes={**kept, **{tag: kept.get(tag, set()) | names for tag, names in more.items()}},
        clean_content_tags={"script", "style", "title", "noscript", "template", "svg", "math"},
        url_schemes={"http", "https", "mailto", "tel", "cid"},
        link_rel="noopener noreferrer nofollow",
        attribute_filter=keep,
        filter_style_properties=None if keeps_styles else set(_DATA["style_properties"]),
        set_tag_attribute_values=added,
    )


def _only_own_images(tag: str, attribute: str, value: str) -> str | None:
    """Pictures come from the mail itself; anything else would tell the sender who reads."""
    if attribute in ("src", "background"):
        return value if value.lower().startswith("cid:") else None
    if attribute == "style" and ("url(" in value.lower() or "\\" in value):
        return None
    return value


_WORD = re.compile(r"\w{3,}")
_FEW_CHARS = 6
_MAX_CHARS = 200_000


def text_differs(plain: str, rendered: str) -> bool:
    """True if the plain part has a paragraph that the HTML part does not say.

    That way round, because a person reads the HTML while a machine reads the plain text.
    """
    seen = set(_WORD.findall(rendered[:_MAX_CHARS].casefold()))
    if not seen:
        return False
    for paragraph in re.split(r"\n[ \t]*+\n", plain[:_MAX_CHARS]):
        prose = " ".join(word for word in paragraph.casefold().split() if not _is_address(word))
        words = _WORD.findall(prose)
        missing = sum(word not in seen for word in words)
        if missing >= _FEW_CHARS and missing > 0.6 * len(words):
            return True
    return False


def _is_address(word: str) -> bool:
    """Links and addresses: HTML shows them otherwise, or not at all."""
    return "://" in word or "@" in word or word.startswith(("<", "[", "www."))


_SPACES = re.compile(r"[ \t\n\r\f]+")
QUOTE = "> "
_RULE = "-" * 10
_MAX_INDENTS = 20


@dataclass(slots=True)
class Page:
    """Text under construction. Quotes and indents are prefixes of the lines they hold."""

    lines: list[str] = field(default_factory=list)
    _prefixes: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)
    _gap: int = 0
    _needs_space: bool = False
    _marker: str = ""
    _indent: str = ""
    _quote: str = ""

    def write(self, text: str) -> None:
        """Running text: white space collapses."""
        words = _SPACES.sub(" ", text)
        if words[:1] == " ":
            self._needs_space = True
            words = words[1:]
        if not words:
            return
        ends_with_space = words[-1] == " "
        self._put(words[:-1] if ends_with_space else words)
        self._needs_space = ends_with_space

    def write_pre(self, text: str) -> None:
        """Text whose line breaks and spaces count."""
        first, *rest = text.split("\n")
        self._put(first)
        for line in rest:
            self.break_line()
            self._put(line)

    def _put(self, words: str) -> None:
        if not words:
            return
        if self._line and self._needs_space:
            self._line.append(" ")
        self._needs_space = False
        self._line.append(words)

    def place(self) -> tuple[int, int]:
        """Where we are, to be handed to `since`."""
        return len(self.lines), len(self._line)

    def since(self, place: tuple[int, int]) -> str:
        """What was written on this line since then; nothing if the line is over."""
        lines, pieces = place
        return "".join(self._line[pieces:]).strip() if len(self.lines) == lines else ""

    def cell(self) -> None:
        """Begin a cell of a row."""
        if self._line:
            self._line.append(" | ")
            self._needs_space = False

    def break_line(self) -> None:
        """A forced line break; on an empty line it is an empty line."""
        if self._line:
            self.end_line()
        else:
            self._gap = 1

    def end_line(self) -> None:
        self._needs_space = False
        text = "".join(self._line).rstrip(" |") if self._line else ""
        self._line = []
        if text and not text.isspace():
            if self._gap and self.lines:
                self.lines.append(self._quote)
            self._gap = 0
            self.lines.append(self._prefix() + text)

    def _prefix(self) -> str:
        prefix = self._indent
        if self._marker:
            prefix = prefix[: max(len(prefix) - len(self._marker), 0)] + self._marker
            self._marker = ""
        return prefix

    def blank_line(self) -> None:
        """The next text is a new paragraph."""
        self.end_line()
        self._gap = 1

    def rule(self) -> None:
        self.end_line()
        self.write(_RULE)
        self.end_line()

    def item(self, marker: str) -> None:
        """Begin a list item: the marker is put before its first line, the others are indented."""
        self.indent(" " * len(marker))
        self._marker = marker

    def indent(self, prefix: str) -> None:
        self.end_line()
        self._prefixes.append(prefix)
        self._set_indent()

    def outdent(self) -> None:
        self.end_line()
        self._marker = ""
        self._prefixes.pop()
        self._set_indent()

    def _set_indent(self) -> None:
        shown = self._prefixes[:_MAX_INDENTS]
        self._indent = "".join(shown)
        self._quote = "".join(prefix for prefix in shown if prefix == QUOTE).rstrip()

    def text(self) -> str:
        self.end_line()
        while self.lines and self.lines[-1].strip() in ("", _RULE):
            self.lines.pop()
        return "\n".join(self.lines).strip("\n")
