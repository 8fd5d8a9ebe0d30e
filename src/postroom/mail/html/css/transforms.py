"""Transforms and clip paths of CSS: how large text is drawn, where, and whether it is cut away."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from postroom.mail.html.css.syntax import WIDTH, Base, functions, length, split, words

Matrix = list[list[float]]
_HEIGHT = 20.0
_MAX_FUNCTIONS = 20
_MIN_AREA = 30.0
_NUMBERS = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")


@dataclass(frozen=True, slots=True)
class TransformEffect:
    """What a transform does to a box."""

    scale: float = 1.0
    x: float = 0.0
    y: float = 0.0
    is_behind: bool = False
    is_turned: bool = False


_IDENTITY = TransformEffect()


def transform_effect(
    values: Mapping[str, str], em: float, width: float, perspective: str = "none"
) -> TransformEffect | None:
    """How an element with these properties is drawn; None if that is not understood."""
    calls = functions(values.get("transform", "none"))
    if values.get("transform", "none") not in ("none", "") and not calls:
        return None
    single = [
        ("translate", values.get("translate", "none")),
        ("rotate", values.get("rotate", "none")),
        ("scale", values.get("scale", "none")),
    ]
    own = [(name, _commas(name, value)) for name, value in single if value != "none"]
    if perspective != "none" and (own or calls):
        own.insert(0, ("perspective", perspective))
    found = _identity()
    for name, inner in [*own, *calls][:_MAX_FUNCTIONS]:
        matrix = _matrix(name, [part.strip() for part in split(inner, ",")], em, width)
        if matrix is None:
            return None
        found = _product(found, matrix)
    if not own and not calls:
        return _IDENTITY
    return _effect_of_matrix(found, _origin(values.get("transform-origin", ""), em, width), width)


def _commas(name: str, value: str) -> str:
    """The arguments of an individual property, as those of the function."""
    parts = words(value)
    axes = {"x": ["1", "0", "0"], "y": ["0", "1", "0"], "z": ["0", "0", "1"]}
    named = next((part for part in parts if part in axes), "")
    if named:
        parts = [*axes[named], *(part for part in parts if part != named)]
    return ",".join(parts)


def _origin(value: str, em: float, width: float) -> tuple[float, float]:
    named = {"left": "0%", "top": "0%", "right": "100%", "bottom": "100%", "center": "50%"}
    parts = [named.get(part, part) for part in words(value)] + ["50%", "50%"]
    x = length(parts[0], Base(em, width))
    y = length(parts[1], Base(em, _HEIGHT))
    return (width / 2 if x is None else x), (_HEIGHT / 2 if y is None else y)


def _effect_of_matrix(matrix: Matrix, origin: tuple[float, float], width: float) -> TransformEffect:
    def apply(x: float, y: float) -> tuple[float, float, float]:
        x, y = x - origin[0], y - origin[1]
        w = matrix[3][0] * x + matrix[3][1] * y + matrix[3][3]
        near = w if abs(w) > 1e-6 else 1e-6
        px = (matrix[0][0] * x + matrix[0][1] * y + matrix[0][3]) / near
        py = (matrix[1][0] * x + matrix[1][1] * y + matrix[1][3]) / near
        return px + origin[0], py + origin[1], w

    middle = (width / 2, _HEIGHT / 2)
    x, y, w = apply(*middle)
    right, down = apply(middle[0] + 1, middle[1]), apply(middle[0], middle[1] + 1)
    a, b, c, d = right[0] - x, right[1] - y, down[0] - x, down[1] - y
    return TransformEffect(
        _smallest_scale(a, b, c, d),
        x - middle[0],
        y - middle[1],
        is_behind=w <= 0,
        is_turned=matrix[2][2] < 0,
    )


def _smallest_scale(a: float, b: float, c: float, d: float) -> float:
    """The smaller singular value: how thin a glyph gets in its thinnest direction."""
    total = a * a + b * b + c * c + d * d
    product = abs(a * d - b * c)
    root = math.sqrt(max(total * total - 4 * product * product, 0.0))
    largest = math.sqrt((total + root) / 2)
    return product / largest if largest > 1e-9 else 0.0


def _identity() -> Matrix:
    return [[float(row == column) for column in range(4)] for row in range(4)]


def _product(left: Matrix, right: Matrix) -> Matrix:
    cells = range(4)
    return [[sum(left[i][k] * right[k][j] for k in cells) for j in cells] for i in cells]


def _matrix(name: str, arguments: list[str], em: float, width: float) -> Matrix | None:
    name, found = name.removeprefix("-webkit-"), _identity()
    wholes = [width, _HEIGHT, 0.0] if name.startswith("translate") else [1.0] * 20
    if name == "translatey":
        wholes = [_HEIGHT]
    values = [length(a, Base(em, w)) for a, w in zip(arguments, wholes, strict=False)]
    if any(value is None for value in values) or not values:
        return found if name == "perspective" else None
    numbers = [value for value in values if value is not None]
    if name.startswith(("translate", "scale")):
        return _translated_or_scaled(found, name, numbers)
    if name.startswith("rotate"):
        return _rotated(name, numbers)
    return _other_function(found, name, numbers)


def _translated_or_scaled(found: Matrix, name: str, numbers: list[float]) -> Matrix:
    axis = name.removeprefix("translate").removeprefix("scale")
    axes = {"x": (0,), "y": (1,), "z": (2,)}.get(axis, (0, 1, 2))
    if name == "scale" and len(numbers) == 1:
        numbers *= 2
    for row, number in zip(axes, numbers, strict=False):
        found[row][row if name.startswith("scale") else 3] = number
    return found


def _rotated(name: str, numbers: list[float]) -> Matrix:
    axis = {"rotatex": (1.0, 0.0, 0.0), "rotatey": (0.0, 1.0, 0.0)}.get(name, (0.0, 0.0, 1.0))
    if len(numbers) == 4:
        axis = (numbers[0], numbers[1], numbers[2])
    size = math.hypot(*axis) or 1.0
    x, y, z = (part / size for part in axis)
    angle = math.radians(numbers[-1])
    c, s = math.cos(angle), math.sin(angle)
    t = 1 - c
    return [
        [t * x * x + c, t * x * y - s * z, t * x * z + s * y, 0.0],
        [t * x * y + s * z, t * y * y + c, t * y * z - s * x, 0.0],
        [t * x * z - s * y, t * y * z + s * x, t * z * z + c, 0.0],
        [0.0, 0.0, 0.0, 1.0],
    ]


def _other_function(found: Matrix, name: str, numbers: list[float]) -> Matrix | None:
    if name == "matrix" and len(numbers) == 6:
        (found[0][0], found[1][0], found[0][1], found[1][1], found[0][3], found[1][3]) = numbers
    elif name == "matrix3d" and len(numbers) == 16:
        return [[numbers[4 * column + row] for column in range(4)] for row in range(4)]
    elif name in ("skew", "skewx", "skewy"):
        x, y = (numbers[0], 0.0) if name != "skewy" else (0.0, numbers[0])
        if len(numbers) > 1:
            y = numbers[1]
        found[0][1], found[1][0] = math.tan(math.radians(x)), math.tan(math.radians(y))
    elif name == "perspective":
        found[3][2] = -1 / max(numbers[0], 1.0)
    else:
        return None
    return found


def is_cut_away(clip_path: str, em: float, width: float) -> bool:
    """Whether a clip path leaves nothing to read; what is not understood could leave nothing."""
    calls = functions(clip_path)
    if not calls:
        return clip_path.startswith("url(")
    name, inner = calls[0]
    shape = inner.partition(" round ")[0]
    if name == "inset":
        return _is_inset(shape, em, width)
    if name in ("circle", "ellipse"):
        return _is_round(shape, em, width)
    if name == "polygon":
        return _is_polygon(shape, em, width)
    if name in ("rect", "xywh"):
        return _is_rectangle(name, shape, em, width)
    if name == "path":
        return _is_path(shape)
    return True


def _inside(left: float, top: float, right: float, bottom: float, width: float) -> bool:
    """Whether enough of a rectangle lies in a box as wide as that and of one line."""
    wide, high = min(right, width) - max(left, 0.0), min(bottom, _HEIGHT) - max(top, 0.0)
    return wide > 4 and high > 3 and wide * high > _MIN_AREA


def _is_inset(shape: str, em: float, width: float) -> bool:
    parts = words(shape)
    if not parts:
        return False
    sides = [parts[0], parts[min(1, len(parts) - 1)], parts[2] if len(parts) > 2 else parts[0],
             parts[3] if len(parts) > 3 else parts[min(1, len(parts) - 1)]]  # fmt: skip
    wholes = (_HEIGHT, width, _HEIGHT, width)
    found = [length(side, Base(em, whole)) for side, whole in zip(sides, wholes, strict=True)]
    if None in found:
        return True
    top, right, bottom, left = (side or 0.0 for side in found)
    # of a tall box more than this one line could remain
    high = max(_HEIGHT, 20.0 if "%" in sides[0] + sides[2] else 200.0)
    return width - left - right < 5 or high - top - bottom < 4


def _is_round(shape: str, em: float, width: float) -> bool:
    radii, _, place = f" {shape} ".partition(" at ")
    found = [length(part, Base(em, _HEIGHT if "%" in part else width)) for part in words(radii)]
    if any(radius is not None and radius < 3 for radius in found):
        return True
    centre = _origin(place, em, width) if place.strip() else (width / 2, _HEIGHT / 2)
    reach = max((radius for radius in found if radius is not None), default=width)
    return not _inside(
        centre[0] - reach, centre[1] - reach, centre[0] + reach, centre[1] + reach, width
    )


def _is_polygon(shape: str, em: float, width: float) -> bool:
    points = []
    for pair in split(shape, ","):
        parts = words(pair)
        if len(parts) == 2:
            x, y = length(parts[0], Base(em, width)), length(parts[1], Base(em, _HEIGHT))
            points.append((x or 0.0, y or 0.0))
    return _is_outline_empty(points, width)


def _is_outline_empty(points: list[tuple[float, float]], width: float) -> bool:
    if len(points) < 3:
        return True
    after = points[1:] + points[:1]
    area = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, after, strict=True)) / 2
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return abs(area) < _MIN_AREA or not _inside(min(xs), min(ys), max(xs), max(ys), width)


def _is_rectangle(name: str, shape: str, em: float, width: float) -> bool:
    bases = (width, _HEIGHT, width, _HEIGHT) if name == "xywh" else (_HEIGHT, width) * 2
    found = [length(part, Base(em, base)) for part, base in zip(words(shape), bases, strict=False)]
    if len(found) != 4:
        return True
    if name == "xywh":
        x, y, wide, high = (value or 0.0 for value in found)
        return not _inside(x, y, x + wide, y + high, width)
    top, right, bottom, left = found
    right = width if right is None else right
    bottom = _HEIGHT if bottom is None else bottom
    return not _inside(left or 0.0, top or 0.0, right, bottom, width)


def _is_path(shape: str) -> bool:
    numbers = [float(number) for number in _NUMBERS.findall(shape)[:200]]
    if re.search(r"[a-gi-uw-y]", shape.split('"')[1] if '"' in shape else shape):
        return True  # relative and curved commands
    points = list(zip(numbers[::2], numbers[1::2], strict=False))
    if re.search("[hv]", shape, re.IGNORECASE):
        return max((abs(number) for number in numbers), default=0.0) < 5
    return _is_outline_empty(points, WIDTH)


def is_clipped(clip: str, em: float) -> bool:
    """Whether `clip: rect(…)` leaves nothing to read."""
    calls = functions(clip)
    if not calls or calls[0][0] != "rect":
        return False
    parts = words(calls[0][1].replace(",", " "))
    found = [length(part, Base(em)) for part in parts]
    if len(found) != 4:
        return False
    top, right, bottom, left = found
    high = (_HEIGHT if bottom is None else bottom) - (top or 0.0)
    wide = (WIDTH if right is None else right) - (left or 0.0)
    outside = (top or 0.0) >= 200 or (left or 0.0) >= WIDTH
    return high < 4 or wide < 5 or outside
