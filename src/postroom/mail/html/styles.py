"""CSS of HTML mail, as far as it decides what a reader sees."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from postroom.mail.data import load

_NAMES: dict[str, str] = load("html")["colours"]
_HEX = re.compile(r"^#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$")
_NUMBERS = re.compile(r"[\d.]{1,12}%?")
# Colours are indistinguishable if they differ by less than this in every channel.
_TOO_CLOSE = 24


class Colour(NamedTuple):
    """Red, green, blue of 0..255 and alpha of 0..1."""

    red: float
    green: float
    blue: float
    alpha: float = 1.0

    def over(self, below: Colour) -> Colour:
        """This colour painted over another."""
        a = self.alpha
        red, green, blue = (x * a + y * (1 - a) for x, y in zip(self[:3], below[:3], strict=True))
        return Colour(red, green, blue)

    def vanishes_on(self, background: Colour) -> bool:
        """Whether text of this colour is invisible on its background."""
        pairs = zip(self.over(background)[:3], background[:3], strict=True)
        return all(abs(seen - behind) < _TOO_CLOSE for seen, behind in pairs)


WHITE = Colour(255, 255, 255)
BLACK = Colour(0, 0, 0)
CLEAR = Colour(0, 0, 0, 0.0)


@lru_cache(maxsize=1024)
def parse_colour(value: str) -> Colour | None:
    """The colour that a CSS value or an HTML attribute names, None if it names none."""
    value = value.strip().lower()
    if value == "transparent":
        return CLEAR
    value = _NAMES.get(value, value)
    if match := _HEX.match(value):
        return _from_hex(match[1])
    if value.startswith(("rgb", "hsl")) and "(" in value:
        return _from_function(value)
    return None


def _from_hex(digits: str) -> Colour:
    if len(digits) < 6:
        digits = "".join(2 * digit for digit in digits)
    red, green, blue = (int(digits[i : i + 2], 16) for i in (0, 2, 4))
    return Colour(red, green, blue, int(digits[6:8], 16) / 255 if len(digits) == 8 else 1.0)


def _from_function(value: str) -> Colour | None:
    numbers = _NUMBERS.findall(value[:100])
    try:
        alpha = _number(numbers[3], 1.0) if len(numbers) > 3 else 1.0
        if value.startswith("rgb"):
            red, green, blue = (_number(number, 255.0) for number in numbers[:3])
            return Colour(red, green, blue, alpha)
        lightness = _number(numbers[2], 1.0)
        is_grey = _number(numbers[1], 1.0) < 0.1 or not 0.08 < lightness < 0.92
        grey = lightness * 255
        return Colour(grey, grey, grey, alpha) if is_grey else None
    except (ValueError, IndexError):
        return None


def _number(text: str, whole: float) -> float:
    return float(text[:-1]) / 100 * whole if text.endswith("%") else float(text)


def gradient_colours(value: str) -> list[Colour]:
    """The colours that a gradient runs through."""
    words = re.findall(r"#[0-9a-f]{3,8}|(?:rgb|hsl)a?\([^)]{0,60}\)|[a-z]{3,20}", value.lower())
    return [colour for word in words if (colour := parse_colour(word)) is not None]


Declarations = dict[str, str]
BY_COLOUR = "colour on colour"

_LENGTH = re.compile(
    r"(-?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}))\s?(px|pt|em|rem|ex|%|vw|vh|in|cm|mm)?"
)
_PX = {"": 1.0, "px": 1.0, "pt": 4 / 3, "em": 16.0, "rem": 16.0, "ex": 8.0, "in": 96.0,
       "cm": 37.8, "mm": 3.78, "vw": 8.0, "vh": 6.0, "%": 0.16}  # fmt: skip
_SIZES = {"xx-small": 9.0, "x-small": 10.0, "small": 13.0, "medium": 16.0, "large": 18.0,
          "x-large": 24.0, "xx-large": 32.0, "smaller": 13.0, "larger": 19.0}  # fmt: skip
_COMMENT = re.compile(r"/\*.*?(?:\*/|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{1,6}) ?")
_FONT_SIZE = re.compile(r"(?:^|\s)(\d{1,4}(?:\.\d{1,4})?(?:px|pt|em|%)?)(?:/|\s|$)")
_FAR = -400.0
_CRAMPED = -20.0
_SMALL_PX = 2.0
_FAINT = 0.1
_SHRUNK = re.compile(
    r"scale[xy3d]{0,2}\(\s{0,9}(?:0?\.0\d*|0)\s{0,9}[,)]|matrix\(\s{0,9}0\s{0,9},|rotate[xy]\(\s?90deg"
)
_SHIFTED = re.compile(r"translate[xyz3d]{0,2}\(([^)]{0,80})\)")
_CLIPPED = re.compile(
    r"inset\(\s{0,9}(?:100|[5-9]\d)%|(?:circle|ellipse)\(\s{0,9}0|polygon\(\s{0,9}0(?:px|%)?\s{1,9}0(?:px|%)?"
    r"\s{0,9}(?:,\s{0,9}0(?:px|%)?\s{1,9}0(?:px|%)?\s{0,9})*\)"
)
_TINY_RECT = re.compile(r"rect\(\s{0,9}[01](?:px)?[\s,]{1,9}[01](?:px)?[\s,]{1,9}[01](?:px)?[\s,]")


@dataclass(frozen=True, slots=True)
class Style:
    """The computed style that children inherit.

    `hidden_below` hides everything below for good; `hidden` is why text right here does not show.
    A `background` of None is a picture: nobody can tell what it looks like.
    """

    hidden_below: str = ""
    invisible: bool = False
    size_px: float = 16.0
    colour: Colour | None = BLACK
    background: Colour | None = WHITE
    opacity: float = 1.0
    clear_text: bool = False

    @property
    def hidden(self) -> str:
        if self.hidden_below:
            return self.hidden_below
        if self.invisible:
            return "visibility"
        if self.size_px < _SMALL_PX:
            return "font size"
        if self.clear_text:
            return "transparent text"
        if self.colour and self.background and self.colour.vanishes_on(self.background):
            return BY_COLOUR
        return ""


def parse_declarations(css: str) -> Declarations:
    """`name: value` pairs of a style attribute or rule; the last of a name wins."""
    if "/*" in css or "\\" in css:
        css = _ESCAPE.sub(_unescape, _COMMENT.sub("", css))
    found: Declarations = {}
    for piece in css.split(";"):
        name, colon, value = piece.partition(":")
        if colon:
            name = name.strip().lower()
            value = value.strip().lower()
            if "!" in value or "!important" not in found.get(name, ""):
                found[name] = value
    return found


def _unescape(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 32 <= code < 0x11_0000 and not 0xD800 <= code < 0xE000 else ""


def length_px(value: str, em_px: float = 16.0) -> float | None:
    """A CSS length in pixels, None if it is none."""
    match = _LENGTH.match(value.strip())
    if match is None:
        return None
    unit = match[2] or ""
    if unit == "em":
        return float(match[1]) * em_px
    if unit == "%":
        return float(match[1]) * em_px / 100
    return float(match[1]) * _PX[unit]


def styled(parent: Style, css: Declarations) -> Style:
    """The style of an element with these declarations inside `parent`."""
    css = {name: value.partition("!")[0].strip() for name, value in css.items()}
    hidden_below = parent.hidden_below or _reason_hidden(css)
    opacity = parent.opacity * _opacity(css)
    if not hidden_below and opacity < _FAINT:
        hidden_below = "opacity"
    style = replace(
        parent,
        hidden_below=hidden_below,
        opacity=opacity,
        invisible=_is_invisible(css, parent),
        size_px=_size(css, parent.size_px),
        background=_background(css, parent.background),
    )
    return _with_colour(style, css)


def _is_invisible(css: Declarations, parent: Style) -> bool:
    visibility = css.get("visibility")
    if visibility is None or visibility == "inherit":
        return parent.invisible
    return visibility in ("hidden", "collapse")


def _opacity(css: Declarations) -> float:
    value = css.get("opacity", "")
    if not value and "opacity=" in css.get("filter", ""):
        value = css["filter"].partition("opacity=")[2].rstrip(") ") + "%"
    if not value and (match := re.search(r"opacity\(([\d.]{1,9}%?)\)", css.get("filter", ""))):
        value = match[1]
    try:
        return float(value[:-1]) / 100 if value.endswith("%") else float(value or 1.0)
    except ValueError:
        return 1.0


def _size(css: Declarations, inherited: float) -> float:
    value = css.get("font-size", "")
    if not value and (match := _FONT_SIZE.search(css.get("font", ""))):
        value = match[1]
    if not value:
        return inherited
    if value in _SIZES:
        return _SIZES[value]
    size = length_px(value, inherited)
    return inherited if size is None else max(size, 0.0)


def _background(css: Declarations, inherited: Colour | None) -> Colour | None:
    shorthand = css.get("background", "")
    colour = css.get("background-color", "")
    picture = css.get("background-image", "") or shorthand
    if "gradient" in picture:
        shades = gradient_colours(picture)
        return shades[0] if shades and all(s.vanishes_on(shades[0]) for s in shades) else None
    if "url(" in picture and "url()" not in picture:
        return None
    for word in [colour] if colour else [shorthand, *shorthand.split()]:
        painted = parse_colour(word) if word else None
        if painted is not None:
            return _painted(painted, inherited)
    return inherited


def _painted(colour: Colour, below: Colour | None) -> Colour | None:
    if colour.alpha >= 1 or below is None:
        return colour if colour.alpha >= _FAINT else below
    return colour.over(below)


def _with_colour(style: Style, css: Declarations) -> Style:
    fill = css.get("-webkit-text-fill-color") or css.get("color")
    if not fill or fill in ("inherit", "currentcolor"):
        return style
    colour = parse_colour(fill)
    if colour is None:
        return replace(style, colour=None, clear_text=False)
    is_clear = colour.alpha < _FAINT
    # letters cut out of a picture are how gradients get into text; there the picture shows
    if is_clear and "text" in (css.get("-webkit-background-clip"), css.get("background-clip")):
        return replace(style, colour=None, clear_text=False)
    return replace(style, colour=None if is_clear else colour, clear_text=is_clear)


def _reason_hidden(css: Declarations) -> str:
    """The reason why nothing of this element shows, whatever its children say."""
    if css.get("display") == "none" or css.get("mso-hide") == "all":
        return "display"
    if css.get("content-visibility") == "hidden":
        return "visibility"
    if _is_clipped_by_box(css):
        return "zero size"
    if _is_clipped(css):
        return "clipped"
    return "off screen" if _is_off_screen(css) else ""


def _is_clipped_by_box(css: Declarations) -> bool:
    clips = any(
        css.get(name, "").startswith(("hidden", "clip"))
        for name in ("overflow", "overflow-x", "overflow-y")
    )
    if not clips:
        return False
    names = ("height", "max-height", "width", "max-width")
    sizes = [length_px(css[name]) for name in names if name in css]
    return any(size is not None and size <= 1 for size in sizes)


def _is_clipped(css: Declarations) -> bool:
    if _TINY_RECT.search(css.get("clip", "")) or _CLIPPED.search(css.get("clip-path", "")):
        return True
    if css.get("zoom", "") in ("0", "0%", "0.0"):
        return True
    return bool(_SHRUNK.search(css.get("transform", "")))


def _is_off_screen(css: Declarations) -> bool:
    names = ["text-indent", "margin-left", "margin-top", "margin-right", "margin"]
    if css.get("position") in ("absolute", "fixed", "relative"):
        names += ["left", "top", "right", "bottom", "inset"]
        if any((length_px(css.get(name, "")) or 0) > 5_000 for name in ("left", "top", "right")):
            return True
    if (length_px(css.get("letter-spacing", "")) or 0) <= _CRAMPED:
        return True
    shifted = _SHIFTED.search(css.get("transform", ""))
    values = [css[name] for name in names if name in css]
    values += shifted[1].split(",") if shifted else []
    lengths = [length_px(word) for value in values for word in value.split()]
    return any(length is not None and length <= _FAR for length in lengths)


Attributes = dict[str, str | None]


def host_of(url: str) -> str:
    """The host that a web link goes to, empty for other links."""
    if not url.lower().startswith(("http:", "https:")):
        return ""
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def is_pixel(attributes: Attributes) -> bool:
    css = parse_declarations(attributes.get("style") or "")
    given = (css.get(name) or attributes.get(name) or "" for name in ("width", "height"))
    return any(size is not None and size <= 2 for size in map(length_px, given))


def is_citation(attributes: Attributes) -> bool:
    """Quoted mail, and not just a paragraph that somebody indented."""
    kind = f"{attributes.get('type')} {attributes.get('class')} {attributes.get('cite')}".lower()
    css = (attributes.get("style") or "").lower()
    return "cite" in kind or "quote" in kind or "border-left" in css or "mid:" in kind


def presentation(tag: str, attributes: Attributes) -> Declarations:
    """Presentational attributes of HTML, as CSS declarations."""
    css: Declarations = {}
    for name, declared in (("bgcolor", "background-color"), ("color", "color"), ("text", "color")):
        if value := attributes.get(name):
            css[declared] = value.strip().lower()
    if attributes.get("background"):
        css["background-image"] = "url("
    if "hidden" in attributes or (attributes.get("aria-hidden") or "").lower() == "true":
        css["display"] = "none"
    if tag == "dialog" and "open" not in attributes:
        css["display"] = "none"
    return css
