"""Where the box of an element is, and what of it is cut off, as far as styles tell.

Positions are estimates in pixels, relative to where the element would be without any style. `x` is
measured from the left edge of the window, `y` from the place of the element in the flow, or from
the top of the window if it was taken out of the flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from postroom.mail.data import load
from postroom.mail.html.css.properties import could_be_anything
from postroom.mail.html.css.syntax import HEIGHT, WIDTH, Base, length, number, words
from postroom.mail.html.css.transforms import is_clipped, is_cut_away, transform_effect

_PROPERTIES = load("html")["properties"]
_BOX: frozenset[str] = frozenset(_PROPERTIES["box"])
_CLIPS = frozenset(("hidden", "auto", "scroll", "overlay"))
_THIN = 4.0
_FAR_RIGHT, _FAR_DOWN = 1500.0, 5000.0
_ENDLESS = 1e9
_LETTER, _LINE = 0.5, 1.15

Values = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TextPosition:
    """The position of text in the flow: pixels from the top, and from the top of the clipping box.

    `clip_y` is a lower bound, estimated from the lines and heights above.
    """

    y: float = 0.0
    clip_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """The box that absolute positions are relative to."""

    x: float = 0.0
    y: float = 0.0
    is_in_flow: bool = False
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True, slots=True)
class Clip:
    """The edges beyond which nothing shows."""

    left: float = -_ENDLESS
    top: float = -_ENDLESS
    right: float = _ENDLESS
    bottom: float = _ENDLESS


@dataclass(frozen=True, slots=True)
class Box:
    """An estimate of a box; `reason` says why nothing in it shows, if it is so."""

    x: float = 0.0
    y: float = 0.0
    width: float = WIDTH
    is_in_flow: bool = True
    is_fixed: bool = False
    indent: float = 0.0
    line_px: float | None = None
    is_one_line: bool = False
    anchor: Anchor = Anchor()
    clip: Clip | None = None
    starts_clip: bool = False
    scale: float = 1.0
    reason: str = ""
    is_plain: bool = True

    def hides(self, chars: int, size: float, position: TextPosition) -> str:
        """Why a text of so many characters does not show here, empty if it does."""
        width = chars * size * _LETTER
        width = width if self.is_one_line else min(width, WIDTH)
        x, y = self.x + self.indent, self.y + (position.y if self.is_in_flow else 0.0)
        is_left = x < -100 and x + width <= 2
        if is_left or x >= _FAR_RIGHT or y + size <= 0 or self.y > _FAR_DOWN:
            return "off screen"
        if self.is_fixed and (y >= HEIGHT or x >= WIDTH):
            return "off screen"
        return self._clips(x, width, size, position.clip_y) if self.clip else ""

    def _clips(self, x: float, width: float, size: float, clip_y: float) -> str:
        clip, y = self.clip or Clip(), self.y + clip_y
        leading = max(self.line(size) - _LINE * size, 0.0) / 2
        is_beside = x >= clip.right - 2 or x + width <= clip.left + 2
        is_beyond = y + leading >= clip.bottom - 2 or (not clip_y and y + size <= clip.top + 2)
        return "clipped" if is_beside or is_beyond else ""

    def line(self, size: float) -> float:
        """The height of a line of text."""
        return _LINE * size if self.line_px is None else self.line_px


def box_of(parent: Box, values: Values, inherited: Values, size: float, above: Values) -> Box:
    """The box of an element with these values in the box of its parent."""
    if _BOX.isdisjoint(values) and not _zero_tracks(above):
        return inherit_box(parent)
    return _Builder(parent, values, inherited, size, above).build()


def inherit_box(box: Box) -> Box:
    """The box of an element of which nothing is said."""
    if not (box.reason or box.starts_clip) and box.scale == 1.0:
        return box
    return replace(box, reason="", scale=1.0, starts_clip=False)


@dataclass(slots=True)
class _Builder:
    parent: Box
    values: Values
    inherited: Values
    size: float
    above: Values

    def build(self) -> Box:
        parent, base = self.parent, Base(self.size, self.parent.width)
        x, y, is_in_flow = self._position()
        is_far = self._is_beyond_right()
        x += self._px("margin-left", base)
        y += self._px("margin-top", base)
        if self.values.get("float") == "right":
            out = -min(self._px("margin-right", base), 0.0)
            x, is_far = x + out, is_far or out >= WIDTH
        drawing = transform_effect(
            self.values, self.size, parent.width, self.above.get("perspective", "none")
        )
        shows_back = self.values.get("backface-visibility") != "hidden"
        is_turned = drawing is not None and (
            drawing.is_behind or (drawing.is_turned and not shows_back)
        )
        reason = self._reason(is_back_face=is_turned)
        if drawing is not None:
            x, y, scale = x + drawing.x, y + drawing.y, drawing.scale
            is_far = is_far or drawing.x >= WIDTH
        else:
            scale = 1.0
        width, height = self._width(base), self._height(base)
        clip, starts_clip = self._clip(x, y, width, height)
        if starts_clip and not reason and self._is_empty(width, height):
            reason = "zero size"
        left, top = self._px("padding-left", base), self._px("padding-top", base)
        indent = length(self.inherited.get("text-indent", "0"), base) or 0.0
        is_fixed = parent.is_fixed or self.values.get("position") == "fixed"
        is_one_line = self.inherited.get("white-space", "normal") in ("nowrap", "pre")
        anchor = self._anchor(x, y, width, is_in_flow=is_in_flow)
        found = Box(
            x + left, y + top, parent.width if width is None else width, is_in_flow, is_fixed,
            indent, self._line_px(), is_one_line, anchor, clip, starts_clip, scale,
            "off screen" if is_far and not reason else reason,
        )  # fmt: skip
        if _is_plain(found):  # small offsets are forgotten, so that equal boxes are the same
            return replace(found, x=min(found.x, 0.0), y=min(found.y, 0.0))
        return replace(found, is_plain=False)

    def _px(self, name: str, base: Base) -> float:
        return length(self.values[name], base) or 0.0 if name in self.values else 0.0

    def _known(self, name: str, base: Base) -> float | None:
        return length(self.values[name], base) if name in self.values else None

    def _position(self) -> tuple[float, float, bool]:
        parent, kind = self.parent, self.values.get("position", "static")
        if kind == "relative":
            base = Base(self.size, parent.width)
            left, right = self._known("left", base), self._known("right", base)
            top, bottom = self._known("top", base), self._known("bottom", base)
            x = left if left is not None else -(right or 0.0)
            y = top if top is not None else -(bottom or 0.0)
            return parent.x + x, parent.y + y, parent.is_in_flow
        if kind not in ("absolute", "fixed"):
            return parent.x, parent.y, parent.is_in_flow
        anchor = Anchor() if kind == "fixed" else parent.anchor
        return self._absolute(anchor)

    def _absolute(self, anchor: Anchor) -> tuple[float, float, bool]:
        wide, high = Base(self.size, anchor.width), Base(self.size, anchor.height)
        x, y, is_in_flow = self.parent.x, self.parent.y, self.parent.is_in_flow
        left, right = self._known("left", wide), self._known("right", wide)
        top, bottom = self._known("top", high), self._known("bottom", high)
        if left is not None:
            x = anchor.x + left
        elif right is not None:
            end = anchor.x + anchor.width - right
            x = end - (WIDTH if end <= 0 else min(anchor.width / 2, 300.0))
        if top is not None:
            y, is_in_flow = anchor.y + top, anchor.is_in_flow
        elif bottom is not None:
            y, is_in_flow = anchor.y + anchor.height - bottom - 20.0, anchor.is_in_flow
        return x, y, is_in_flow

    def _is_beyond_right(self) -> bool:
        """Whether text begins right of the window, however wide that is."""
        names = ["margin-left", "padding-left"]
        position = self.values.get("position")
        if position in ("absolute", "fixed", "relative"):
            names.append("left")
        if position in ("absolute", "fixed") and "left" not in self.values:
            out, width = -self._px("right", Base(self.size)), self._known("width", Base(self.size))
            if width is not None and out >= max(width, 1.0) and self.parent.anchor.width >= WIDTH:
                return True
        wide = Base(self.size, 2 * WIDTH, 2 * WIDTH, HEIGHT)
        return any(
            self._px(name, Base(self.size)) >= WIDTH and self._px(name, wide) >= 2 * WIDTH
            for name in names
        )

    def _reason(self, *, is_back_face: bool) -> str:
        values = self.values
        if is_back_face:
            return "clipped"
        if values.get("position") in ("absolute", "fixed") and is_clipped(
            values.get("clip", ""), self.size
        ):
            return "clipped"
        path = values.get("clip-path", "none")
        if path != "none" and is_cut_away(path, self.size, self.parent.width):
            return "clipped"
        if values.get("offset-path", "none") != "none":
            return "off screen"
        if any(could_be_anything(values[name]) for name in _BOX & values.keys()):
            return "style not understood"
        return ""

    def _width(self, base: Base) -> float | None:
        sizes = ("width", "max-width", "min-width", "padding-left", "padding-right")
        found = self._extent(sizes, base)
        basis = self.values.get("flex-basis", "auto")
        flex = words(self.values.get("flex", ""))
        if len(flex) > 2 and number(flex[0]) == 0:
            basis = flex[2]
        if found is None and length(basis, base) == 0 and "flex" in self.above.get("display", ""):
            return 0.0
        return 0.0 if "columns" in _zero_tracks(self.above) else found

    def _height(self, base: Base) -> float | None:
        sizes = ("height", "max-height", "min-height", "padding-top", "padding-bottom")
        found = self._extent(sizes, Base(base.em, 0.0 if self._is_zero_percent() else HEIGHT))
        if found is not None and "%" in self.values.get("height", "") and found > 0:
            found = None  # of a height that is not known
        if "rows" in _zero_tracks(self.above):
            return 0.0
        if found is None and "size" in self._contained():
            return 0.0
        lines = number(self.values.get("-webkit-line-clamp", "none"))
        line = self._line_px()
        if found is None and lines:
            return lines * (1.2 * self.size if line is None else line)
        return 0.0 if found is None and line is not None and line < 3 else found

    def _is_zero_percent(self) -> bool:
        return any(number(self.values.get(name, "auto")) == 0 for name in ("height", "max-height"))

    def _extent(self, names: tuple[str, str, str, str, str], base: Base) -> float | None:
        """The size of the content along one axis, None if it is as large as what is in it."""
        size, most, least, before, after = (self._known(name, base) for name in names)
        if size is None and most is None:
            return None
        found = min(_ENDLESS if size is None else size, _ENDLESS if most is None else most)
        found = max(found, least or 0.0)
        if self.values.get("box-sizing") == "border-box":
            found = max(found - (before or 0.0) - (after or 0.0), 0.0)
        if size is None and found > _THIN:
            return found if names[0] == "height" else None
        return max(found, 0.0)

    def _contained(self) -> list[str]:
        contain = words(self.values.get("contain", ""))
        return [*contain, "size", "paint"] if "strict" in contain else contain

    def _clipping(self) -> tuple[bool, bool]:
        x, y = (self.values.get(f"overflow-{axis}", "visible") for axis in "xy")
        both = x in _CLIPS or y in _CLIPS or {"paint", "content"} & set(self._contained())
        return bool(both) or x == "clip", bool(both) or y == "clip"

    def _is_empty(self, width: float | None, height: float | None) -> bool:
        """Whether what is left to see is too thin; text may overflow into the padding behind it."""
        base = Base(self.size, self.parent.width)
        in_x, in_y = self._clipping()
        thin_x = width is not None and width + self._px("padding-right", base) < _THIN
        thin_y = height is not None and height + self._px("padding-bottom", base) < _THIN
        return (in_x and thin_x) or (in_y and thin_y)

    def _clip(
        self, x: float, y: float, width: float | None, height: float | None
    ) -> tuple[Clip | None, bool]:
        in_x, in_y = self._clipping()
        clip = self.parent.clip
        if not in_x and not in_y:
            return clip, False
        base, old = Base(self.size, self.parent.width), clip or Clip()
        inner = self.parent.width if width is None else width
        wide = inner + self._px("padding-left", base) + self._px("padding-right", base)
        high = _ENDLESS
        if height is not None:
            high = height + self._px("padding-top", base) + self._px("padding-bottom", base)
        return Clip(
            max(old.left, x) if in_x else old.left,
            max(old.top, y) if in_y else old.top,
            min(old.right, x + wide) if in_x else old.right,
            min(old.bottom, y + high) if in_y else old.bottom,
        ), True

    def _line_px(self) -> float | None:
        value = self.inherited.get("line-height", "normal")
        if value == "normal":
            return None
        found = length(value, Base(self.size, self.size))
        is_factor = found is not None and not value[-1].isalpha() and value[-1] not in "%)"
        return found * self.size if found is not None and is_factor else found

    def _anchor(self, x: float, y: float, width: float | None, *, is_in_flow: bool) -> Anchor:
        is_positioned = self.values.get("position", "static") != "static"
        if not is_positioned and self.values.get("transform", "none") == "none":
            return self.parent.anchor
        height = self._known("height", Base(self.size, HEIGHT))
        return Anchor(
            x, y, is_in_flow, self.parent.width if width is None else width,
            100.0 if height is None else height,
        )  # fmt: skip


def _is_plain(box: Box) -> bool:
    """Whether text in a box is visible at any position."""
    is_near = -20 <= box.x + box.indent <= WIDTH and -20 <= box.y <= WIDTH
    return is_near and box.clip is None and not box.is_fixed and box.is_in_flow


def _zero_tracks(above: Values) -> set[str]:
    """The axes along which a grid gives its children no room."""
    if "grid" not in above.get("display", ""):
        return set()
    rows, _, columns = above.get("grid-template", above.get("grid", "")).partition("/")
    given = {
        "rows": above.get("grid-template-rows", rows) or above.get("grid-auto-rows", ""),
        "columns": above.get("grid-template-columns", columns),
    }
    first = {axis: (words(said.strip()) or ["auto"])[0] for axis, said in given.items()}
    return {axis for axis, said in first.items() if number(said.removesuffix("fr")) == 0}


def is_flat(values: Values, size: float) -> bool:
    """Whether a box is so thin that its background is not behind its text."""
    found = (length(values[name], Base(size)) for name in ("height", "width") if name in values)
    return any(one is not None and one < 3 for one in found) and "padding-top" not in values


def is_behind(values: Values) -> bool:
    """Whether an element is painted below the background of its ancestors."""
    return (number(values.get("z-index", "auto")) or 0.0) < 0 and values.get(
        "position", "static"
    ) != "static"


_EXTENT = ("height", "min-height", "padding-top", "padding-bottom")
_EXTENTS = frozenset(_EXTENT)


def has_height(values: Values) -> bool:
    """Whether a style says how high an element is, or how much room it keeps free."""
    return not _EXTENTS.isdisjoint(values)


def height_px(values: Values) -> float:
    """The height that an element has at least, if it says so in pixels or letters."""
    height, least, above, below = (_plain_px(values.get(name, "")) for name in _EXTENT)
    overlap = min(_plain_px(values.get("margin-bottom", "")), 0.0)
    return max(height, least, above + below) + overlap


def _plain_px(said: str) -> float:
    return 0.0 if not said or "%" in said or "v" in said else length(said, Base()) or 0.0


def covers(values: Values, lines: int) -> bool:
    """Whether a box lies over all of the box that its position refers to."""
    if values.get("position") not in ("absolute", "fixed") or lines > 30:
        return False
    if (number(values.get("z-index", "auto")) or 0.0) < 0:
        return False
    base = Base()

    def reaches(start: str, end: str, size: str) -> bool:
        first, last = (length(values.get(name, "auto"), base) for name in (start, end))
        extent = length(values.get(size, "auto"), base)
        begins = first is not None and first <= 0
        return begins and ((last is not None and last <= 0) or (extent or 0.0) >= WIDTH / 2)

    return reaches("left", "right", "width") and reaches("top", "bottom", "height")


def is_stacked(values: Values) -> bool:
    """Whether an element is a stacking context: nothing in it is painted below its background."""
    if any(
        values.get(name, "none") not in ("none", "normal", "auto")
        for name in _PROPERTIES["stacking"]
    ):
        return True
    if (number(values.get("opacity", "1")) or 0.0) < 1 or values.get("position") == "fixed":
        return True
    return values.get("position", "static") != "static" and "z-index" in values
