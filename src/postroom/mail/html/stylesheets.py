"""The `<style>` element: rules that can hide text, and which elements they fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.mail.data import load
from postroom.mail.html.styles import Declarations, parse_declarations

_COMMENT = re.compile(r"/\*.*?(?:\*/|$)|<!--|-->", re.DOTALL)
_COMPOUND = re.compile(r"^([a-z0-9]{1,20}|\*)?((?:[.#][\w-]{1,100})*)$", re.ASCII)
_NAME = re.compile(r"[.#][\w-]+")
_ATTRIBUTE = re.compile(r"\[(class|id)[~*^|$]?=[\"']?([\w-]{1,100})[\"']?\]")
_BRACE = re.compile(r"[{}]")
_MAX_CHECKS = 500_000
_MAX_RULES = 2_000
_HIDING_PROPERTIES: tuple[str, ...] = tuple(load("html")["hiding_properties"])
_ALWAYS_ON = frozenset(("", "all", "screen", "only screen", "screen,print", "all,screen"))


@dataclass(frozen=True, slots=True)
class Element:
    """What a selector can ask of an element."""

    tag: str
    id: str
    classes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A chain of compounds, the last for the element itself, and what it declares."""

    chain: tuple[Element, ...]
    declarations: Declarations
    weight: tuple[int, int]

    def fits(self, element: Element, ancestors: Sequence[Element]) -> bool:
        if not _fits(self.chain[-1], element):
            return False
        wanted = len(self.chain) - 2
        for ancestor in reversed(ancestors):
            if wanted < 0:
                return True
            if _fits(self.chain[wanted], ancestor):
                wanted -= 1
        return wanted < 0


def _fits(compound: Element, element: Element) -> bool:
    return (
        compound.tag in ("", "*", element.tag)
        and compound.id in ("", element.id)
        and compound.classes <= element.classes
    )


class Stylesheet:
    """Rules by the last thing they ask for, so that most elements look at none."""

    def __init__(self, css: str) -> None:
        self._by_key: dict[str, list[Rule]] = {}
        self._count = 0
        self._budget = _MAX_CHECKS
        self._known: dict[Element, Declarations] = {}
        blocks = _blocks(_COMMENT.sub(" ", css))
        for selectors, body in blocks[:_MAX_RULES]:
            self._add(selectors, body)
        self._is_cut = len(blocks) > _MAX_RULES or self._count >= _MAX_RULES
        self._is_flat = all(len(r.chain) == 1 for rules in self._by_key.values() for r in rules)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def is_partial(self) -> bool:
        """Whether the limit on rules or work was reached."""
        return self._is_cut or self._budget < 0

    def _add(self, selectors: str, body: str) -> None:
        if not any(word in body.lower() for word in _HIDING_PROPERTIES):
            return
        declarations = parse_declarations(body)
        for selector in selectors.split(",")[:100]:
            chain = _chain(selector)
            if chain and self._count < _MAX_RULES:
                self._count += 1
                weight = sum(100 * bool(c.id) + 10 * len(c.classes) + bool(c.tag) for c in chain)
                rule = Rule(chain, declarations, (weight, self._count))
                self._by_key.setdefault(_key(chain[-1]), []).append(rule)

    def declarations(self, element: Element, ancestors: Sequence[Element]) -> Declarations:
        """Everything the rules declare for an element; the most specific wins.

        The work is limited, because rules times elements grows quadratically on hostile mail.
        """
        if self._is_flat and element in self._known:
            return self._known[element]
        candidates = self._candidates(element, len(ancestors))
        rules = [rule for rule in candidates if rule.fits(element, ancestors)]
        merged: Declarations = {}
        for rule in sorted(rules, key=lambda rule: rule.weight):
            merge(merged, rule.declarations)
        if self._is_flat:
            self._known[element] = merged
        return merged

    def _candidates(self, element: Element, depth: int) -> list[Rule]:
        if self._budget < 0:
            return []
        keys = [element.tag, "*", *(f".{name}" for name in element.classes)]
        if element.id:
            keys.append(f"#{element.id}")
        found = [rule for key in keys for rule in self._by_key.get(key, ())]
        self._budget -= sum(1 if len(rule.chain) == 1 else 1 + depth for rule in found)
        return found


def merge(into: Declarations, more: Declarations) -> None:
    """Lay declarations over others; what is `!important` stays."""
    for name, value in more.items():
        if "!" in value or "!" not in into.get(name, ""):
            into[name] = value


def _key(compound: Element) -> str:
    if compound.id:
        return f"#{compound.id}"
    if compound.classes:
        return f".{min(compound.classes)}"
    return compound.tag or "*"


def _chain(selector: str) -> tuple[Element, ...] | None:
    """A selector of plain compounds; None for anything that we do not understand."""
    words = selector.replace(">", " ").strip().split()
    compounds = [_compound(word) for word in words[:10]]
    if not compounds or None in compounds:
        return None
    return tuple(compound for compound in compounds if compound is not None)


def _compound(word: str) -> Element | None:
    match = _COMPOUND.match(_ATTRIBUTE.sub(_as_name, word.lower()))
    if match is None:
        return None
    names = _NAME.findall(match[2] or "")
    ids = [name[1:] for name in names if name[0] == "#"]
    classes = frozenset(name[1:] for name in names if name[0] == ".")
    return Element(match[1] or "", ids[0] if ids else "", classes)


def _as_name(match: re.Match[str]) -> str:
    """`[class="x"]` as `.x`."""
    return ("." if match[1] == "class" else "#") + match[2]


def _blocks(css: str) -> list[tuple[str, str]]:
    """Selector and body of each rule; of at-rules only media that always apply."""
    found: list[tuple[str, str]] = []
    at = 0
    while (brace := css.find("{", at)) >= 0:
        head = css[at:brace].rpartition(";")[2].strip().lstrip("}").strip()
        end = css.find("}", brace)
        end = len(css) if end < 0 else end
        if head.startswith("@"):
            is_on = head.lower().removeprefix("@media").strip() in _ALWAYS_ON
            at = brace + 1 if is_on else _end_of_block(css, brace)
            continue
        found.append((head, css[brace + 1 : end]))
        at = end + 1
    return found


def _end_of_block(css: str, brace: int) -> int:
    depth = 0
    for match in _BRACE.finditer(css, brace):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.end()
    return len(css)
