"""Colours of CSS in all their notations, and whether text in one can be read on another."""

from __future__ import annotations

import colorsys
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from postroom.mail.data import load
from postroom.mail.html.css.syntax import Base, function, length, split, words

_NAMES: dict[str, str] = load("html")["colours"]
_HEX = re.compile(r"#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})")
# Colours are indistinguishable if they differ by less than this in every channel.
_TOO_CLOSE = 30
_MAX_CHARS = 300


class Colour(NamedTuple):
    """Red, green, blue of 0..255 and alpha of 0..1."""

    red: float
    green: float
    blue: float
    alpha: float = 1.0

    def over(self, below: Colour) -> Colour:
        """This colour painted over another."""
        a = self.alpha
        if a >= 1:
            return self
        red, green, blue = (x * a + y * (1 - a) for x, y in zip(self[:3], below[:3], strict=True))
        return Colour(red, green, blue)

    def faded(self, opacity: float) -> Colour:
        return self._replace(alpha=self.alpha * opacity)

    def vanishes_on(self, background: Colour) -> bool:
        """Whether text of this colour is invisible on its background."""
        a, (red, green, blue, _) = self.alpha, background
        return (
            abs(self.red - red) * a < _TOO_CLOSE
            and abs(self.green - green) * a < _TOO_CLOSE
            and abs(self.blue - blue) * a < _TOO_CLOSE
        )


WHITE = Colour(255, 255, 255)
BLACK = Colour(0, 0, 0)
CLEAR = Colour(0, 0, 0, 0.0)
LINK = Colour(0, 0, 238)


@lru_cache(maxsize=2048)
def parse_colour(value: str) -> Colour | None:
    """The colour that a CSS value or an HTML attribute names; None if there is none.

    `currentcolor` is not resolved, because it depends on the element.
    """
    value = value.strip().lower()
    if value == "transparent":
        return CLEAR
    if found := _HEX.fullmatch(_NAMES.get(value, value)):
        return _from_hex(found[1])
    call = function(value) if len(value) <= _MAX_CHARS else None
    if call is None:
        return None
    try:
        return _from_function(*call)
    except (ValueError, LookupError, ArithmeticError):
        return None


def is_colour_function(value: str) -> bool:
    """Whether a value is a colour, though perhaps in a notation that is not understood."""
    return value.partition("(")[0] in _FUNCTIONS


def _from_hex(digits: str) -> Colour:
    if len(digits) < 6:
        digits = "".join(2 * digit for digit in digits)
    red, green, blue = (int(digits[i : i + 2], 16) for i in (0, 2, 4))
    return Colour(red, green, blue, int(digits[6:8], 16) / 255 if len(digits) == 8 else 1.0)


def _from_function(name: str, inner: str) -> Colour | None:
    if name == "light-dark":
        return parse_colour(split(inner, ",")[0].strip())
    if name == "color-mix":
        return _color_mix(inner)
    if name not in _FUNCTIONS:
        return None
    channels, _, alpha = inner.replace(",", " ").partition("/")
    parts = words(channels)
    origin = parse_colour(parts[1]) if parts[0] == "from" else None
    if origin is not None:
        return _relative_colour(name, origin, parts[2:], alpha)
    space = parts.pop(0) if name == "color" else ""
    opaque = _alpha(alpha or (parts[3] if len(parts) > 3 else "1"))
    wholes, convert = _FUNCTIONS[name]
    first, second, third = (_value(part, whole) for part, whole in zip(parts, wholes, strict=False))
    red, green, blue = _SPACES.get(space, convert)(first, second, third)
    return Colour(255 * _unit(red), 255 * _unit(green), 255 * _unit(blue), opaque)


def _alpha(text: str) -> float:
    return min(max(_value(text.strip(), 1.0), 0.0), 1.0)


def _value(text: str, whole: float) -> float:
    """A channel; percentages are of *whole*, angles are degrees."""
    if text == "none":
        return 0.0
    found = length(text, Base(whole=whole))
    if found is None:
        raise ValueError(text)
    return found


Channels = tuple[float, float, float]


def _rgb(red: float, green: float, blue: float) -> Channels:
    return red / 255, green / 255, blue / 255


def _hsl(hue: float, saturation: float, lightness: float) -> Channels:
    return colorsys.hls_to_rgb(hue % 360 / 360, _unit(lightness / 100), _unit(saturation / 100))


def _hwb(hue: float, white: float, black: float) -> Channels:
    white, black = white / 100, black / 100
    if white + black >= 1:
        grey = white / (white + black)
        return grey, grey, grey
    pure = colorsys.hls_to_rgb(hue % 360 / 360, 0.5, 1.0)
    red, green, blue = (c * (1 - white - black) + white for c in pure)
    return red, green, blue


def _lch(lightness: float, chroma: float, hue: float) -> Channels:
    return _lab(lightness, *_polar(chroma, hue))


def _oklch(lightness: float, chroma: float, hue: float) -> Channels:
    return _oklab(lightness, *_polar(chroma, hue))


def _polar(chroma: float, hue: float) -> tuple[float, float]:
    return chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))


def _lab(lightness: float, a: float, b: float) -> Channels:
    fy = (min(max(lightness, 0.0), 100.0) + 16) / 116
    fx, fz = fy + a / 500, fy - b / 200
    x, y, z = (f**3 if f > 6 / 29 else 3 * (6 / 29) ** 2 * (f - 4 / 29) for f in (fx, fy, fz))
    return _xyz(x * 0.9505, y, z * 1.089)


def _oklab(lightness: float, a: float, b: float) -> Channels:
    lightness = _unit(lightness)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    return _srgb_linear(
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )


def _xyz(x: float, y: float, z: float) -> Channels:
    return _srgb_linear(
        3.2404542 * x - 1.5371385 * y - 0.4985314 * z,
        -0.9692660 * x + 1.8760108 * y + 0.0415560 * z,
        0.0556434 * x - 0.2040259 * y + 1.0572252 * z,
    )


def _srgb_linear(*channels: float) -> Channels:
    red, green, blue = (
        12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055
        for c in (_unit(channel) for channel in channels)
    )
    return red, green, blue


def _srgb(red: float, green: float, blue: float) -> Channels:
    """Spaces with a wider range are read as sRGB: near white and black they agree."""
    return red, green, blue


def _unit(value: float) -> float:
    return min(max(value, 0.0), 1.0)


Convert = Callable[[float, float, float], Channels]
_FUNCTIONS: dict[str, tuple[Channels, Convert]] = {
    **dict.fromkeys(("rgb", "rgba"), ((255, 255, 255), _rgb)),
    **dict.fromkeys(("hsl", "hsla"), ((360, 100, 100), _hsl)),
    "hwb": ((360, 100, 100), _hwb),
    "lab": ((100, 125, 125), _lab),
    "lch": ((100, 150, 360), _lch),
    "oklab": ((1, 0.4, 0.4), _oklab),
    "oklch": ((1, 0.4, 360), _oklch),
    **dict.fromkeys(("color", "color-mix", "light-dark"), ((1, 1, 1), _srgb)),
    **dict.fromkeys(("contrast-color", "device-cmyk"), ((1, 1, 1), _srgb)),
}
"""What 100 % of each channel is, and the conversion to red, green and blue of 0..1."""

_XYZ = ("xyz", "xyz-d65", "xyz-d50")
_SPACES: dict[str, Convert] = {"srgb-linear": _srgb_linear, **dict.fromkeys(_XYZ, _xyz)}


def _color_mix(inner: str) -> Colour | None:
    """`color-mix()`, mixed in sRGB whatever the space."""
    mixed: list[tuple[Colour, float | None]] = []
    for part in split(inner, ",")[1:3]:
        shares = [word for word in words(part) if word.endswith("%")]
        colour = parse_colour(" ".join(word for word in words(part) if not word.endswith("%")))
        if colour is None:
            return None
        mixed.append((colour, _value(shares[0], 1.0) if shares else None))
    (one, share), (other, rest) = mixed
    share = share if share is not None else 0.5 if rest is None else 1 - rest
    rest = rest if rest is not None else 1 - share
    total = share + rest or 1.0
    alpha = (one.alpha * share + other.alpha * rest) / total
    red, green, blue = (
        (a * one.alpha * share + b * other.alpha * rest) / total / (alpha or 1.0)
        for a, b in zip(one[:3], other[:3], strict=True)
    )
    return Colour(red, green, blue, alpha * min(total, 1.0))


def _relative_colour(name: str, origin: Colour, parts: list[str], alpha: str) -> Colour | None:
    """A colour that is made of the channels of another one."""
    opaque = _alpha(alpha) if alpha.strip() and alpha.strip() != "alpha" else origin.alpha
    red, green, blue = (channel / 255 for channel in origin[:3])
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    scale = 1 if name == "color" else 255
    known = {"r": red * scale, "g": green * scale, "b": blue * scale}
    if name in ("hsl", "hsla"):
        known = {"h": hue * 360, "s": saturation * 100, "l": lightness * 100}
    if all(part in ("l", "a", "b", "c", "h", "w", "s") for part in parts):
        return origin._replace(alpha=opaque)
    values = [re.sub(r"\b[a-z]\b", lambda m: f"{known[m[0]]:.4f}", part) for part in parts]
    found = _from_function(name, " ".join(values))
    return found and found._replace(alpha=opaque)


def gradient_colours(value: str) -> list[Colour]:
    """The colours that a gradient runs through."""
    _, _, inner = value.partition("(")
    found = []
    for stop in split(inner.rpartition(")")[0], ","):
        named = (parse_colour(word) for word in words(stop))
        found += [colour for colour in named if colour is not None]
    return found


_BLENDS: dict[str, Callable[[float, float], float]] = {
    "multiply": lambda b, s: b * s,
    "screen": lambda b, s: b + s - b * s,
    "darken": min,
    "lighten": max,
    "plus-lighter": lambda b, s: min(b + s, 1.0),
    "plus-darker": lambda b, s: max(b + s - 1.0, 0.0),
    "difference": lambda b, s: abs(b - s),
    "exclusion": lambda b, s: b + s - 2 * b * s,
    "overlay": lambda b, s: 2 * b * s if b <= 0.5 else 1 - 2 * (1 - b) * (1 - s),
    "hard-light": lambda b, s: 2 * b * s if s <= 0.5 else 1 - 2 * (1 - b) * (1 - s),
    "soft-light": lambda b, s: (
        b - (1 - 2 * s) * b * (1 - b) if s <= 0.5 else b + (2 * s - 1) * (math.sqrt(b) - b)
    ),
    "color-dodge": lambda b, s: 0.0 if b == 0 else 1.0 if s >= 1 else min(1.0, b / (1 - s)),
    "color-burn": lambda b, s: 1.0 if b >= 1 else 0.0 if s <= 0 else 1 - min(1.0, (1 - b) / s),
}  # fmt: skip
_KEEP_LIGHTNESS = frozenset(("hue", "saturation", "color"))


def blend_colours(mode: str, colour: Colour, below: Colour) -> Colour:
    """A colour that is mixed with what is below by `mix-blend-mode`."""
    if mode in _KEEP_LIGHTNESS:
        return below
    blend = _BLENDS.get(mode)
    if blend is None:
        return colour
    red, green, blue = (
        255 * blend(b / 255, s / 255) for b, s in zip(below[:3], colour[:3], strict=True)
    )
    return Colour(red, green, blue, colour.alpha)


def apply_filter(colour: Colour, name: str, amount: float) -> Colour:
    """A colour after a function of `filter`."""
    red, green, blue, alpha = colour
    if name == "opacity":
        return Colour(red, green, blue, alpha * min(amount, 1.0))
    if name == "brightness":
        changed = [c * amount for c in (red, green, blue)]
    elif name == "contrast":
        changed = [(c - 127.5) * amount + 127.5 for c in (red, green, blue)]
    elif name == "invert":
        changed = [c * (1 - amount) + (255 - c) * amount for c in (red, green, blue)]
    elif name in ("grayscale", "saturate", "sepia"):
        keep = amount if name == "saturate" else 1 - min(amount, 1.0)
        grey = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        changed = [grey + (c - grey) * keep for c in (red, green, blue)]
    else:
        return colour
    red, green, blue = (min(max(c, 0.0), 255.0) for c in changed)
    return Colour(red, green, blue, alpha)
