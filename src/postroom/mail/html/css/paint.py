"""Colours as they are seen: text, what is behind it, filters, blending, shadows and masks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from postroom.mail.data import load
from postroom.mail.html.css import boxes
from postroom.mail.html.css.colours import (
    BLACK,
    CLEAR,
    LINK,
    Colour,
    apply_filter,
    blend_colours,
    gradient_colours,
    parse_colour,
)
from postroom.mail.html.css.syntax import WIDTH, Base, functions, lengths, number, split, words

if TYPE_CHECKING:
    from postroom.mail.html.css.computed_style import Style

BY_COLOUR = "colour on colour"
_PAINTS = frozenset(load("html")["properties"]["painting"])
FAINT = 0.12
"""Text that is less opaque than this cannot be read."""

Values = dict[str, str]
Tone = partial[Colour]


def paint(style: Style, values: Values, *, parent: Style, size: float, is_root: bool) -> None:
    """Set the colours of the text and of what is behind it, as they are seen."""
    if _PAINTS.isdisjoint(values):
        style.is_backed = parent.is_backed and not boxes.is_stacked(values)
        return
    style.tone = tone = parent.tone + _tones(values, parent)
    style.colour = colour = _colour(values.get("color"), parent.colour)
    if colour is LINK and style.custom:
        style.colour = colour = parse_colour(style.custom.get("--link colour", "")) or LINK
    if "-webkit-text-fill-color" in values:
        said = values["-webkit-text-fill-color"]
        style.fill = None if said == "currentcolor" else _colour(said, colour)
    style.background, own = _background(values, parent.background, tone, colour)
    if own is not None and values.get("background-clip") == "text":
        style.fill = (style.fill or colour or CLEAR).over(own)
        style.background = parent.background
    elif "text" in values.get("background-clip", "") and values.get("background-image"):
        style.background = style.colour = style.fill = None
    elif boxes.is_flat(values, size):
        style.background = parent.background
    is_backed = own is not None and own.alpha > 0.8 and not is_root
    style.is_backed = (is_backed or parent.is_backed) and not boxes.is_stacked(values)


def _colour(value: str | None, inherited: Colour | None) -> Colour | None:
    if value is None or value == "currentcolor":
        return inherited
    if value in ("linktext", "-webkit-link"):
        return LINK
    found = parse_colour(value)
    # a colour in a notation that is not understood could be that of the background
    return CLEAR if found is None else found


def _tones(values: Values, parent: Style) -> tuple[Tone, ...]:
    found: list[Tone] = []
    for name, inner in functions(values.get("filter", "")):
        amount = number(inner) if inner else 1.0
        if name != "blur" and amount is not None:
            found.append(partial(apply_filter, name=name, amount=amount))
    mode = values.get("mix-blend-mode", "normal")
    if mode != "normal" and parent.background is not None:
        found.append(partial(blend_colours, mode, below=parent.background))
    return tuple(reversed(found))  # the last one is applied first


def _apply_tones(colour: Colour, tone: tuple[Tone, ...]) -> Colour:
    for change in reversed(tone):
        colour = change(colour)
    return colour


def _background(
    values: Values, below: Colour | None, tone: tuple[Tone, ...],
    colour: Colour | None,
) -> tuple[Colour | None, Colour | None]:  # fmt: skip
    """What is behind the text, and the colour that the element itself paints, if it is one."""
    picture = values.get("background-image", "none")
    own: Colour | None
    if "gradient(" in picture and "url(" not in picture:
        shades = gradient_colours(picture)
        if not shades or not all(shade.vanishes_on(shades[0]) for shade in shades):
            return None, None
        own = shades[0]
    elif picture not in ("none", "") and "url()" not in picture:
        return None, None
    else:
        said = values.get("background-color")
        if said is None:
            return below, None
        own = parse_colour(said) if said != "currentcolor" else colour or BLACK
    if own is None:
        return None, None
    seen = _apply_tones(own, tone)
    if below is None:
        return (seen if seen.alpha > 0.9 else None), own
    return seen.over(below), own


def hidden_by_colour(style: Style) -> str:
    colour = style.fill if style.fill is not None else style.colour
    if colour is None:
        return ""
    colour = _apply_tones(colour, style.tone)
    faded = colour.faded(style.opacity)
    if faded.alpha >= FAINT and (
        style.background is None or not faded.vanishes_on(style.background)
    ):
        return ""
    if style.inherited and _has_outline(style):
        return ""
    return "transparent text" if colour.alpha < FAINT else BY_COLOUR


def _has_outline(style: Style) -> bool:
    """Whether letters in the colour of their background have a shadow or a stroke to be seen."""
    stroke = style.inherited.get("-webkit-text-stroke", "0")
    shadows = split(style.inherited.get("text-shadow", "none"), ",")
    for said, is_shadow in [(stroke, False), *((shadow, True) for shadow in shadows)]:
        sizes = lengths(said, Base(style.size_px))
        painted = (parse_colour(word) for word in words(said))
        found = next((one for one in painted if one is not None), None)
        colour = found or style.colour or BLACK
        if not sizes or (not is_shadow and sizes[0] <= 0) or (is_shadow and len(sizes) < 2):
            continue
        if is_shadow and len(sizes) > 2 and sizes[2] > style.size_px / 4:
            continue
        seen = _apply_tones(colour, style.tone).faded(style.opacity)
        if style.background is None or not seen.vanishes_on(style.background):
            return True
    return False


def is_masked(values: Values) -> bool:
    """Whether a mask leaves nothing; a picture as mask could leave nothing."""
    mask = f"{values.get('mask', '')} {values.get('mask-image', '')}".strip()
    if mask in ("", "none"):
        return False
    if "gradient(" not in mask:
        return "url(" in mask or "(" in mask
    size = lengths(values.get("mask-size", ""), Base())
    if size and min(size) < 3:
        return True
    place = lengths(values.get("mask-position", ""), Base())
    if place and max(map(abs, place)) >= WIDTH and "no-repeat" in values.get("mask-repeat", ""):
        return True
    gradients = [f"{name}({inner})" for name, inner in functions(mask) if "gradient" in name]
    shades = [shade for gradient in gradients for shade in gradient_colours(gradient)]
    return not any(shade.alpha > 0.3 for shade in shades)
