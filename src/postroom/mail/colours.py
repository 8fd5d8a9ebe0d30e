"""CSS colours, as far as one needs them to see white on white."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_NAMES = {
    "white": "ffffff", "black": "000000", "red": "ff0000", "green": "008000", "blue": "0000ff",
    "yellow": "ffff00", "gray": "808080", "grey": "808080", "silver": "c0c0c0", "navy": "000080",
    "maroon": "800000", "purple": "800080", "olive": "808000", "teal": "008080", "aqua": "00ffff",
    "cyan": "00ffff", "lime": "00ff00", "fuchsia": "ff00ff", "magenta": "ff00ff",
    "orange": "ffa500", "pink": "ffc0cb", "brown": "a52a2a", "gold": "ffd700", "tan": "d2b48c",
    "snow": "fffafa", "ivory": "fffff0", "whitesmoke": "f5f5f5", "ghostwhite": "f8f8ff",
    "floralwhite": "fffaf0", "azure": "f0ffff", "mintcream": "f5fffa", "aliceblue": "f0f8ff",
    "seashell": "fff5ee", "honeydew": "f0fff0", "linen": "faf0e6", "oldlace": "fdf5e6",
    "lightyellow": "ffffe0", "lavenderblush": "fff0f5", "beige": "f5f5dc", "lightcyan": "e0ffff",
    "lightgray": "d3d3d3", "lightgrey": "d3d3d3", "gainsboro": "dcdcdc", "darkgray": "a9a9a9",
    "darkgrey": "a9a9a9", "dimgray": "696969", "dimgrey": "696969", "darkblue": "00008b",
    "darkred": "8b0000", "darkgreen": "006400", "cornsilk": "fff8dc", "antiquewhite": "faebd7",
}  # fmt: skip
_HEX = re.compile(r"^#?([0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})$")
_NUMBERS = re.compile(r"[\d.]{1,12}%?")
# Where the eye gives up: the two differ by less than this in every channel.
_TOO_CLOSE = 24


@dataclass(frozen=True, slots=True)
class Colour:
    """Red, green, blue of 0..255 and alpha of 0..1."""

    red: float
    green: float
    blue: float
    alpha: float = 1.0

    def over(self, below: Colour) -> Colour:
        """This colour painted over another."""
        a = self.alpha
        return Colour(
            self.red * a + below.red * (1 - a),
            self.green * a + below.green * (1 - a),
            self.blue * a + below.blue * (1 - a),
        )

    def vanishes_on(self, background: Colour) -> bool:
        """True if text of this colour cannot be told from its background."""
        seen = self.over(background)
        return (
            abs(seen.red - background.red) < _TOO_CLOSE
            and abs(seen.green - background.green) < _TOO_CLOSE
            and abs(seen.blue - background.blue) < _TOO_CLOSE
        )


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
