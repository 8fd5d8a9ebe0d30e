"""The computed style of an element: what its text looks like, and why nobody can read it.

Each part of the style that text depends on is computed from the declarations that won and from the
style of the parent. Geometry is estimated, not laid out: an element is as wide as its parent unless
it says otherwise, a line is as high as its font, and everything starts at the left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from postroom.mail.data import load
from postroom.mail.html.css import boxes
from postroom.mail.html.css.colours import BLACK, WHITE, Colour
from postroom.mail.html.css.paint import FAINT, Tone, hidden_by_colour, is_masked, paint
from postroom.mail.html.css.properties import (
    could_be_anything,
    has_variables,
    longhands,
    substitute_variables,
)
from postroom.mail.html.css.syntax import Base, Block, Declaration, functions, length, number, words

_SMALL_PX = 3.0
_MAX_CUSTOM = 300
_SIZES = {"xx-small": 9.0, "x-small": 10.0, "small": 13.0, "medium": 16.0, "large": 18.0,
          "x-large": 24.0, "xx-large": 32.0, "xxx-large": 48.0}  # fmt: skip
_PROPERTIES = load("html")["properties"]
_SENSITIVE = frozenset(_PROPERTIES["sensitive"])
_HIDES = frozenset(_PROPERTIES["hiding"])
_HARMLESS_WORDS = {name: frozenset(said) for name, said in _PROPERTIES["harmless"].items()}
_INHERITED: dict[str, str] = _PROPERTIES["inherited"]
_INHERITED_AS_IS = _INHERITED.keys() - {
    *("color", "-webkit-text-fill-color", "font-size", "font-family"),
}
Values = dict[str, str]


@dataclass(slots=True, eq=False)
class Style:
    """The computed style that children inherit.

    `hidden_below` hides all descendants, which cannot undo it; `hidden` is the reason why text of
    this element itself is not visible. A `background` of None is a picture, whose colours are
    unknown.
    """

    hidden_below: str = ""
    hidden: str = ""
    invisible: bool = False
    size_px: float = 16.0
    colour: Colour | None = BLACK
    fill: Colour | None = None
    background: Colour | None = WHITE
    opacity: float = 1.0
    scale: float = 1.0
    tone: tuple[Tone, ...] = ()
    box: boxes.Box = field(default_factory=boxes.Box)
    values: Values = field(default_factory=dict)
    custom: Mapping[str, str] = field(default_factory=dict)
    inherited: Mapping[str, str] = field(default_factory=dict)
    is_backed: bool = False
    is_passed_on: bool = True

    @property
    def is_gone(self) -> bool:
        """Whether not even a picture would show here."""
        return bool(self.hidden_below) or self.invisible or self.opacity < FAINT

    def key(self) -> tuple[object, ...]:
        """What must be equal for two styles to be the same to text and children."""
        return (
            self.hidden_below, self.hidden, self.invisible, self.size_px, self.colour, self.fill,
            self.background, self.opacity, self.scale, self.tone, self.box, self.is_backed,
            self.colour is BLACK, id(self.custom), *sorted(self.inherited.items()),
            *[self.values.get(name) for name in _PROPERTIES["remembered"]],
        )  # fmt: skip

    def hides(self, text: str, position: boxes.TextPosition) -> str:
        """Why a text here does not show, empty if it does."""
        if self.hidden or self.box.is_plain:
            return self.hidden
        return self.box.hides(len(text), self.size_px, position)


@dataclass(frozen=True, slots=True)
class SheetDefinitions:
    """What style sheets define besides rules: animations, custom properties and fonts."""

    keyframes: Mapping[str, tuple[Block, Block]]
    initial: Mapping[str, str]
    own_fonts: frozenset[str]
    painted: int = 1
    """How many elements have a background, and could lie over others."""


def compute_style(
    parent: Style, declared: Iterable[Declaration], sheets: SheetDefinitions, *,
    is_root: bool = False, attributes: Mapping[str, str | None] | None = None,
) -> Style:  # fmt: skip
    """The style of an element with these declarations, the weakest first, inside `parent`."""
    declared = list(declared)
    custom = _custom_properties(parent.custom, declared, sheets)
    values = _values(parent, declared, custom, attributes or {})
    if sheets.keyframes and ("animation-name" in values or "animation" in values):
        moved = _animation_result(values, sheets)
        values = {**values, **_values(parent, moved, custom, {})} if moved else values
    values = _drop_harmless(values, parent, sheets)
    if not values and custom is parent.custom:
        return inherit_style(parent)
    inherited = parent.inherited
    own = {name: values[name] for name in _INHERITED_AS_IS if name in values}
    if own:
        inherited = {**inherited, **own}
    size = _size(values.get("font-size"), parent.size_px)
    box = boxes.box_of(parent.box, values, inherited, size, parent.values)
    style = Style(
        "", "", inherited.get("visibility", "visible") in ("hidden", "collapse"), size,
        parent.colour, parent.fill, parent.background, parent.opacity * _opacity(values),
        parent.scale * box.scale * _zoom(values), parent.tone, box, values, custom, inherited,
        parent.is_backed,
    )  # fmt: skip
    paint(style, values, parent=parent, size=size, is_root=is_root)
    style.hidden_below = parent.hidden_below or _element_hidden_reason(style, parent, sheets)
    style.hidden = style.hidden_below or _text_hidden_reason(style)
    is_own = values.get("display", "").endswith(("grid", "flex"))
    style.is_passed_on = not (is_own or box.starts_clip or box.reason)
    return style


def inherit_style(parent: Style) -> Style:
    """The style of an element of which nothing is said."""
    if parent.is_passed_on:
        return parent
    return replace(parent, values={}, box=boxes.inherit_box(parent.box), is_passed_on=True)


def _drop_harmless(values: Values, parent: Style, sheets: SheetDefinitions) -> Values:
    """Without what changes nothing that can be seen: most of the style of an ordinary mail."""
    if not values or parent.box.clip is not None or not _SENSITIVE.isdisjoint(values):
        return values
    kept = {
        name: value
        for name, value in values.items()
        if name in parent.inherited or not _is_harmless(name, value)
    }
    if "font-family" in kept and not sheets.own_fonts:
        del kept["font-family"]
    return kept


@lru_cache(maxsize=4096)
def _is_harmless(name: str, value: str) -> bool:
    """Whether a value alone neither hides, nor shows, nor moves anything by much."""
    if name in _HARMLESS_WORDS:
        return value in _HARMLESS_WORDS[name]
    if name.startswith(("margin", "padding", "letter", "text-indent")):
        found = length(value, Base()) if value not in ("auto", "normal") else 0.0
        return found is not None and (0 <= found <= 60 if name[0] != "l" else -2 <= found <= 20)
    if name.endswith(("width", "height")):
        if value in ("auto", "none", "normal"):
            return True
        found = length(value, Base())
        is_factor = name == "line-height" and value[-1].isdigit() and (found or 0.0) >= 0.7
        return found is not None and (found >= 10 or is_factor)
    return False


def _custom_properties(
    inherited: Mapping[str, str], declared: list[Declaration], sheets: SheetDefinitions
) -> Mapping[str, str]:
    own = {one.name: one.value for one in declared if one.name.startswith("--")}
    if not own:
        return inherited if inherited or not sheets.initial else sheets.initial
    for name, value in list(own.items()):
        if value in ("inherit", "unset"):
            own[name] = inherited.get(name, "")
        elif value == "initial":
            own[name] = sheets.initial.get(name, "")
    known = {**sheets.initial, **inherited, **own}
    return known if len(known) <= _MAX_CUSTOM else dict(list(known.items())[-_MAX_CUSTOM:])


def _values(
    parent: Style, declared: list[Declaration], custom: Mapping[str, str],
    attributes: Mapping[str, str | None],
) -> Values:  # fmt: skip
    """The value of each property that is set, with variables and keywords resolved."""
    found: Values = {}
    for name, value, _ in declared:
        if name.startswith("--"):
            continue
        if has_variables(value):
            known = dict(custom)
            if "attr(" in value:
                known |= {f"attr {key}": said or "" for key, said in attributes.items()}
            put = substitute_variables(value, known)
            value = "unset" if put is None else put.lower()
        if name == "all":
            found = {"all": value}
            continue
        for longhand, part in longhands(name, value):
            found[longhand] = part
    if found:
        _resolve(found, parent)
    return found


def _resolve(found: Values, parent: Style) -> None:
    """Replace `inherit`, `initial` and the like by what they stand for."""
    everything = found.pop("all", "")
    if everything == "initial":
        found.update({name: value for name, value in _INHERITED.items() if name not in found})
    for name, value in list(found.items()):
        if value == "inherit":
            kept = parent.inherited.get(name) if name in _INHERITED else parent.values.get(name)
            if name in _INHERITED or kept is None:
                del found[name]
            else:
                found[name] = kept
        elif value in ("unset", "revert", "revert-layer"):
            del found[name]
        elif value == "initial":
            if name in _INHERITED:
                found[name] = _INHERITED[name]
            else:
                del found[name]


_TIME = re.compile(r"\d{0,6}\.?\d{1,6}m?s$")
_LONG_S = 5.0


def _animation_result(values: Values, sheets: SheetDefinitions) -> list[Declaration]:
    """What an animation leaves: its last frame if that is kept, its first if it stands still.

    One that takes long shows its first frame for as long as a mail is read.
    """
    said = " ".join(
        values.get(name, "")
        for name in ("animation", "animation-name", "animation-duration", "animation-delay",
                     "animation-fill-mode", "animation-play-state", "animation-iteration-count")
    )  # fmt: skip
    parts = words(said.replace(",", " "))
    frames = next((sheets.keyframes[part] for part in parts if part in sheets.keyframes), None)
    if frames is None:
        return []
    duration, delay, *_ = [*map(_seconds, filter(_TIME.match, parts)), 0.0, 0.0]
    waits = delay > _LONG_S and not {"backwards", "both"}.isdisjoint(parts)
    if "paused" in parts or duration > _LONG_S or waits:
        return list(frames[0])
    return list(frames[1]) if {"forwards", "both", "infinite"} & set(parts) else []


def _seconds(time: str) -> float:
    return float(time[:-2]) / 1000 if time.endswith("ms") else float(time[:-1])


def _size(value: str | None, inherited: float) -> float:
    if value is None:
        return inherited
    if value in _SIZES:
        return _SIZES[value]
    if value in ("smaller", "larger"):
        return inherited * (1.2 if value == "larger" else 1 / 1.2)
    if could_be_anything(value):
        return 0.0
    size = length(value, Base(inherited, inherited))
    return inherited if size is None else max(size, 0.0)


def _opacity(values: Values) -> float:
    opacity = 1.0
    if "opacity" in values:
        found = number(values["opacity"])
        opacity = 0.0 if found is None else min(max(found, 0.0), 1.0)
    said = values.get("filter", "")
    if "opacity=" in said:  # the notation of old Outlook
        found = number(said.partition("opacity=")[2].rstrip(") ") + "%")
        opacity *= 1.0 if found is None else min(found, 1.0)
    return opacity


def _zoom(values: Values) -> float:
    found = number(values["zoom"]) if "zoom" in values else 1.0
    return 1.0 if found is None else found


def _text_hidden_reason(style: Style) -> str:
    """Why the text of an element itself does not show."""
    if style.invisible:
        return "visibility"
    if style.size_px * style.scale < _SMALL_PX:
        return "font size"
    if style.inherited and (reason := _hidden_by_spacing(style)):
        return reason
    if style.opacity < FAINT:
        return "opacity"
    return hidden_by_colour(style)


def _hidden_by_spacing(style: Style) -> str:
    inherited = style.inherited
    if inherited.get("-webkit-text-security", "none") != "none":
        return "masked letters"
    if number(inherited.get("font-size-adjust", "none")) == 0:
        return "font size"
    return "letter spacing" if _overlaps(inherited, style.size_px) else ""


def _overlaps(inherited: Mapping[str, str], size: float) -> bool:
    """Whether letters or words overlap, or are outside the page."""
    base = Base(size, size)
    letter = length(inherited.get("letter-spacing", "0"), base) or 0.0
    word = length(inherited.get("word-spacing", "0"), base) or 0.0
    return not -0.4 * size < letter < 300 or not -10 * size < word < 1500


def _element_hidden_reason(style: Style, parent: Style, sheets: SheetDefinitions) -> str:
    """The reason why nothing of this element shows, whatever its children say."""
    values = style.values
    if _HIDES.isdisjoint(values):
        return style.box.reason
    if values.get("display") == "none" or values.get("mso-hide") == "all":
        return "display"
    if values.get("content-visibility") == "hidden":
        return "visibility"
    if any(could_be_anything(values.get(name, "")) for name in ("display", "visibility")):
        return "style not understood"
    if "url(" in values.get("content", ""):
        return "display"  # the picture is shown instead
    blurs = [length(inner or "0", Base(style.size_px)) for name, inner
             in functions(values.get("filter", "")) if name == "blur"]  # fmt: skip
    if any(blur is None or blur >= 0.3 * style.size_px for blur in blurs):
        return "blurred"
    if "url(" in values.get("filter", "") or is_masked(values):
        return "clipped"
    if boxes.is_behind(values):
        is_free = values.get("position") in ("absolute", "fixed")  # what follows lies over it
        has_own = "background-color" in values or "background-image" in values
        is_over = parent.is_backed or sheets.painted > has_own
        if is_over if is_free else (parent.is_backed and style.background is not None):
            return "covered"
    if _has_own_font(values, sheets):
        return "font of the mail"
    return style.box.reason


def _has_own_font(values: Values, sheets: SheetDefinitions) -> bool:
    if not sheets.own_fonts or "font-family" not in values:
        return False
    family = values["font-family"].partition(",")[0].strip("\"' ")
    return family in sheets.own_fonts
