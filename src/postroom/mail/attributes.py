"""What the attributes of HTML elements say about how they show."""

from __future__ import annotations

from urllib.parse import urlsplit

from postroom.mail.styles import Declarations, length_px, parse_declarations

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
    for name in ("width", "height"):
        size = length_px(css.get(name) or attributes.get(name) or "")
        if size is not None and size <= 2:
            return True
    return False


def is_citation(attributes: Attributes) -> bool:
    """Quoted mail, and not just a paragraph that somebody indented."""
    kind = f"{attributes.get('type')} {attributes.get('class')} {attributes.get('cite')}".lower()
    css = (attributes.get("style") or "").lower()
    return "cite" in kind or "quote" in kind or "border-left" in css or "mid:" in kind


def presentation(tag: str, attributes: Attributes) -> Declarations:
    """The old attributes, as if they were CSS."""
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
