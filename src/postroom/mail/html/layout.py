"""What decides by its neighbours whether an element has room: columns, and lines of boxes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.data import load
from postroom.mail.html.css.colours import parse_colour
from postroom.mail.html.css.computed_style import Style
from postroom.mail.html.css.syntax import WIDTH, Base, length, number, words
from postroom.mail.html.elements import Attributes

TABLE_TAGS = frozenset(("table", "col", "colgroup", "tr", "td", "th"))
_DATA = load("html")
_ROWS = frozenset(
    (*_DATA["blocks"], *_DATA["paragraphs"], "blockquote", "br", "hr", "li", "ol", "ul")
)
_MAX_COLUMNS = 1_000
_MANY = 1_000
_ENTITY = re.compile(r"style\s*+=\s*+(?:\"[^\"&]*+&|'[^'&]*+&|[^\s>\"'&]*+&)")
_LINE_PX = 24.0
_CHARS_OF_LINE = 90
_LEAST_SHIFT = 12.0
_MOVED_UP = re.compile(
    r"(?:top|margin|translatey|translate3d|translate)\s*[:(][^;\"'}]{0,40}-\s*[\d.]|bottom\s*:\s*[1-9]"
)
_MOVES_UP = re.compile(r"translate(?:y\(|\([^,()]*,|3d\([^,()]*,)\s*-([\d.]+)px")

Values = Mapping[str, str]


def count_painted(tree: LexborHTMLParser, sheets: list[str]) -> int:
    """How many elements inside the body have a background; many if style sheets give them."""
    if any("background" in css.lower() for css in sheets):
        return _MANY
    styled = (node.attributes.get("style") or "" for node in tree.css("body [style]"))
    plain = tree.css("body [bgcolor], body [background], body img")
    return len(plain) + sum("background" in style.lower() or "\\" in style for style in styled)


def _span(attributes: Attributes, name: str) -> int:
    said = (attributes.get(name) or "").strip()
    return min(max(int(said), 1), _MAX_COLUMNS) if said.isascii() and said.isdigit() else 1


@dataclass(slots=True)
class Columns:
    """The columns of a table, and which of them are collapsed."""

    collapsed: set[int] = field(default_factory=set)
    _count: int = 0
    _group_end: int = 0
    _at: int = 0

    def add(self, tag: str, attributes: Attributes, *, is_collapsed: bool) -> None:
        """Add a `col`, or a `colgroup`, whose own columns take its place if it has any."""
        if tag == "col":
            self._count = min(self._count, self._group_end)
        first, end = self._count, min(self._count + _span(attributes, "span"), _MAX_COLUMNS)
        if is_collapsed:
            self.collapsed.update(range(first, end))
        self._count = end
        self._group_end = end if tag == "col" else first

    def hides(self, tag: str, attributes: Attributes) -> bool:
        """Whether a cell is in collapsed columns only."""
        if tag == "tr":
            self._at = 0
            return False
        first = self._at
        self._at += _span(attributes, "colspan")
        return bool(self.collapsed) and self.collapsed.issuperset(range(first, self._at))


@dataclass(slots=True)
class Line:
    """Boxes side by side in a box that clips: what is beyond its end is not visible."""

    room: float
    is_flex: bool
    _used: float = 0.0

    def is_full(self) -> bool:
        return self._used >= self.room - 2

    def add(self, values: Values, size: float) -> None:
        """Take the room of a box that cannot shrink."""
        base = Base(size, self.room)
        if values.get("position") not in ("absolute", "fixed"):
            self._used += _flex_px(values, base) if self.is_flex else _inline_px(values, base)


def line_of(values: Values, inherited: Values, size: float) -> Line | None:
    """The line of boxes that a clipping box of known width holds, None if it wraps."""
    display = values.get("display", "block")
    is_flex = "flex" in display
    is_row = "column" not in values.get("flex-direction", values.get("flex-flow", "row"))
    wraps = "wrap" in words(values.get("flex-wrap", "") + " " + values.get("flex-flow", ""))
    is_line = is_flex or inherited.get("white-space") in ("nowrap", "pre")
    if not is_line or (is_flex and (wraps or not is_row)):
        return None
    sizes = [length(values[name], Base(size)) for name in ("width", "max-width") if name in values]
    known = [one for one in sizes if one is not None and one > 0]
    return Line(min(known), is_flex) if known else None


def _flex_px(values: Values, base: Base) -> float:
    """The width that an item keeps in a line that is too short."""
    flex = words(values.get("flex", ""))
    shrink = values.get("flex-shrink", flex[1] if len(flex) > 1 else "1")
    basis = values.get("flex-basis", flex[2] if len(flex) > 2 else "auto")
    min_px = length(values.get("min-width", "auto"), base) or 0.0
    if number("0" if flex == ["none"] else shrink) != 0:
        return min_px
    fixed = length(basis, base)
    return max(
        min_px, (length(values.get("width", "auto"), base) if fixed is None else fixed) or 0.0
    )


def _inline_px(values: Values, base: Base) -> float:
    if not values.get("display", "inline").startswith("inline-"):
        return 0.0
    return length(values.get("width", "auto"), base) or 0.0


@dataclass(slots=True)
class Flow:
    """The height of the content so far in boxes that clip: a lower bound, in pixels."""

    y: float = 0.0
    is_new_row: bool = False
    _row: float = 0.0

    def end_row(self) -> float:
        """Begin a new row; returns its place."""
        self.y += self._row
        self._row, self.is_new_row = 0.0, False
        return self.y

    def add_line(self, height: float) -> None:
        """Add text to the row, which begins a new one if an element ended before it."""
        if self.is_new_row:
            self.end_row()
        self._row = max(self._row, height)

    def reach(self, y: float) -> None:
        """End an element that is at least so high."""
        self.y = max(self.end_row(), y)


def is_row(tag: str, values: Values) -> bool:
    """Whether an element begins its own row."""
    if values.get("float", "none") != "none" or values.get("position") in ("absolute", "fixed"):
        return False
    return "inline" not in values.get("display", "block" if tag in _ROWS else "inline")


def may_cover(html: str) -> bool:
    """Whether a box could lie over others; escapes can spell anything."""
    is_escaped = "\\" in html
    if _may_move_up(html):
        return True
    if "absolute" not in html and "fixed" not in html:
        return is_escaped and "position" in html
    return "position" in html or is_escaped or _ENTITY.search(html) is not None


def is_opaque(style: Style) -> bool:
    """Whether nothing can be seen through the background of an element."""
    colour = parse_colour(style.values.get("background-color", ""))
    return (
        style.opacity > 0.9 and not style.hidden_below and colour is not None and colour.alpha > 0.9
    )


def has_layout(html: str) -> bool:
    """Whether columns could be collapsed, or boxes are in a line that is too short for them."""
    is_line = ("flex" in html or "nowrap" in html) and ("overflow" in html or "contain" in html)
    is_table = "<col" in html and "collapse" in html
    return is_line or is_table or "\\" in html or _ENTITY.search(html) is not None


def _may_move_up(html: str) -> bool:
    """Whether a box could be moved over the content before it."""
    is_placed = "position" in html and ("relative" in html or "absolute" in html)
    return (is_placed or "transform:" in html) and _MOVED_UP.search(html) is not None


@dataclass(slots=True)
class CoveredElements:
    """The elements right before boxes that lie over them, by their ids."""

    ids: set[int] = field(default_factory=set)
    chars_left: int = 5_000_000

    def record(self, node: LexborNode, style: Style, lines: int) -> None:
        """Note what a box lies over; `lines` of text stand before it.

        Elements that are stacked themselves are left alone.
        """
        values, size = style.values, style.size_px
        before = node.prev
        while before is not None and not before.is_element_node:
            before = before.prev
        can_cover = is_opaque(style) and _is_above(values) and _is_wide(values, size)
        height = length(values.get("height", "auto"), Base(size)) or _LINE_PX
        room = _room_px(values, size, height, lines)
        if before is None or not can_cover or room < _LEAST_SHIFT or self.chars_left < 0:
            return
        html, text = before.html or "", before.text(deep=True, strip=True)
        self.chars_left -= len(html)
        need = min(lines, -(-len(text) // _CHARS_OF_LINE)) * _LINE_PX - 8
        if text and "z-index" not in html.lower() and min(room, height) >= need:
            self.ids.add(before.mem_id)


def _room_px(values: Values, size: float, height: float, lines: int) -> float:
    """How much of the content before a box the box covers, in pixels."""
    if values.get("position") not in ("absolute", "fixed") or "top" not in values:
        return _shift_up(values, size)
    top = length(values["top"], Base(size))
    is_over = top is not None and 0 <= top <= 8 and height >= lines * _LINE_PX + 8
    return height if is_over else 0.0


def _is_above(values: Values) -> bool:
    """Whether a box is painted after the text before it."""
    is_placed = values.get("position", "static") != "static"
    is_below = (number(values.get("z-index", "auto")) or 0.0) < 0
    return (is_placed or values.get("transform", "none") != "none") and not is_below


def _is_wide(values: Values, size: float) -> bool:
    is_free = values.get("position") in ("absolute", "fixed")
    width = length(values.get("width", "auto"), Base(size))
    return (width or 0.0) >= WIDTH / 2 or (width is None and not is_free)


def _shift_up(values: Values, size: float) -> float:
    base, up = Base(size), -(length(values.get("margin-top", "0"), Base(size)) or 0.0)
    if values.get("position") == "relative":
        top = length(values.get("top", "auto"), base)
        up += (length(values.get("bottom", "auto"), base) or 0.0) if top is None else -top
    moved = _MOVES_UP.search(values.get("transform", ""))
    return up + (float(moved[1]) if moved else 0.0)
