"""Elements of the tree, as selectors and layout see them, and what their attributes say."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import urlsplit

from selectolax.lexbor import LexborNode

from postroom.mail.data import load
from postroom.mail.html.css.syntax import Base, Block, Declaration, declarations_of, length

Attributes = dict[str, str | None]


@dataclass(slots=True, eq=False)
class Element:
    """An element of the tree, as a selector sees it."""

    tag: str
    id: str = ""
    classes: frozenset[str] = frozenset()
    attributes: Attributes = field(default_factory=dict)
    parent: Element | None = None
    node: LexborNode | None = None
    folds: bool = True


def element_of(node: LexborNode, parent: Element | None) -> Element:
    """The element of a node of the tree."""
    attributes = node.attributes if node.attrs else {}
    folds = parent is None or parent.folds
    classes, name = names_of(attributes, folds=folds)
    return Element(node.tag or "", name, classes, attributes, parent, node, folds)


def names_of(attributes: Attributes, *, folds: bool) -> tuple[frozenset[str], str]:
    """The classes and the id; without a doctype (`folds`) their case does not count."""
    classes, name = attributes.get("class") or "", attributes.get("id") or ""
    return frozenset((classes.lower() if folds else classes).split()), (
        name.lower() if folds else name
    )


__all__ = ["Attributes", "Declarations", "host_of", "is_citation", "is_pixel", "parse_declarations"]

Declarations = dict[str, str]
_FONT_SIZES: list[str] = load("html")["font_sizes"]
_SIZED = frozenset(("table", "td", "th", "tr", "marquee"))


def parse_declarations(css: str) -> Declarations:
    """`name: value` pairs of a style attribute; the last of a name wins."""
    found: Declarations = {}
    for name, value, important in declarations_of(css):
        if important or not found.get(name, "").endswith("!"):
            found[name] = f"{value} !" if important else value
    return found


def host_of(url: str) -> str:
    """The host that a web link goes to, empty for other links."""
    if not url.lower().startswith(("http:", "https:")):
        return ""
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""


def is_pixel(attributes: Attributes) -> bool:
    sizes = (attributes.get("width"), attributes.get("height"))
    return _is_tiny(attributes.get("style") or "", *sizes)


@lru_cache(maxsize=1024)
def _is_tiny(style: str, width: str | None, height: str | None) -> bool:
    css = parse_declarations(style)
    given = (css.get("width") or width or "", css.get("height") or height or "")
    sizes = (length(value.removesuffix(" !").strip(), Base()) for value in given)
    return any(size is not None and size <= 2 for size in sizes)


def is_citation(attributes: Attributes) -> bool:
    """Quoted mail, and not just a paragraph that somebody indented."""
    kind = f"{attributes.get('type')} {attributes.get('class')} {attributes.get('cite')}".lower()
    css = (attributes.get("style") or "").lower()
    return "cite" in kind or "quote" in kind or "border-left" in css or "mid:" in kind


_COLOURED = {
    "bgcolor": "background-color", "color": "color", "text": "color", "link": "--link colour",
}  # fmt: skip
_FLAGS = frozenset(("background", "hidden", "href", "open", "popover"))
_TINY = frozenset(("0", "1", "2", "0%", "0px", "1px"))
_PRESENTATIONAL = frozenset((*_COLOURED, *_FLAGS, "width", "height", "size"))
_HIDDEN = (Declaration("display", "none"),)
_NOTHING: Block = ()
_BY_TAG: dict[str, Block] = {
    "dialog": _HIDDEN,
    "mark": (Declaration("background-color", "yellow"), Declaration("color", "black")),
}


def presentational_hints(tag: str, attributes: Attributes) -> Block:
    """What the tag and presentational attributes of HTML say, as declarations."""
    if _PRESENTATIONAL.isdisjoint(attributes):
        return _BY_TAG.get(tag, _NOTHING)
    said: list[tuple[str, str]] = []
    for name, value in attributes.items():
        if name in _COLOURED:
            said.append((name, value or ""))
        elif name in _FLAGS:
            said.append((name, ""))
        elif name in ("width", "height"):
            if value in _TINY and tag in _SIZED and "style" in attributes:
                said.append((name, value))
        elif name == "size" and tag == "font":
            said.append((name, value or ""))
    return _computed_hints(tag, tuple(said)) if said else _BY_TAG.get(tag, _NOTHING)


@lru_cache(maxsize=1024)
def _computed_hints(tag: str, said: tuple[tuple[str, str], ...]) -> Block:
    found = list(_BY_TAG.get(tag, _NOTHING))
    attributes = dict(said)
    for name, value in said:
        value = value.strip().lower()
        if name in _COLOURED and value:
            found.append(Declaration(_COLOURED[name], value))
        elif name == "background":
            found.append(Declaration("background-image", "url(x)"))
        elif name in ("width", "height"):
            found.append(Declaration(name, value))
        elif name == "size":
            found += _font_size(value)
    if tag in ("a", "area") and "href" in attributes:
        found.append(Declaration("color", "linktext"))
    if tag == "dialog" and "open" in attributes:
        found.remove(_HIDDEN[0])
    if "hidden" in attributes or "popover" in attributes:
        found.append(_HIDDEN[0])
    return tuple(found)


def _font_size(value: str) -> list[Declaration]:
    digits = value.lstrip("+-")
    if not digits.isdecimal():
        return []
    steps = min(int(digits), 7)
    steps = 3 - steps if value[0] == "-" else 3 + steps if value[0] == "+" else steps
    return [Declaration("font-size", _FONT_SIZES[min(max(steps, 1), 7) - 1])]
