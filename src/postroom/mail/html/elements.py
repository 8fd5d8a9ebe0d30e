"""Elements of the tree, as selectors and layout see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

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
