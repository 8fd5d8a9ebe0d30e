"""Selectors of CSS: which elements a rule is for, and how specific it is (Selectors 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from postroom.mail.data import load
from postroom.mail.html.css.syntax import closing_bracket, split, unescape
from postroom.mail.html.elements import Element, element_of

Specificity = tuple[int, int, int]

_PSEUDO: dict[str, list[str]] = load("html")["pseudo_classes"]
_NEVER = frozenset(_PSEUDO["never"])
_ALWAYS = frozenset(_PSEUDO["always"])
_PSEUDO_ELEMENTS = frozenset(_PSEUDO["elements"])
_IDENT = r"(?:[\w\u0080-\U0010ffff-]|\\(?:[0-9A-Fa-f]{1,6}+\s?+|[^\n]))++"
"""A name reads in one way only: `\abc` is one escape, and not an escape before two letters."""

_PART = re.compile(
    rf"(?P<attribute>\[[^\]]{{1,400}}\])|(?P<pseudo>::?{_IDENT})(?P<call>\()?"
    rf"|\.(?P<class>{_IDENT})|\#(?P<id>{_IDENT})|(?:[\w*-]*\|)?(?P<tag>{_IDENT}|\*)|(?P<nesting>&)",
    re.ASCII,
)
_ATTRIBUTE = re.compile(
    rf"\[\s*(?:[\w*]*\|)?({_IDENT})\s*(?:([~|^$*]?=)\s*(\"[^\"]*\"|'[^']*'|{_IDENT})\s*([is])?\s*)?\]",
    re.IGNORECASE,
)
_COMBINATOR = re.compile(r"\s*([>+~]|\|\|)\s*|\s+")
_NTH = re.compile(r"\s*(?:(odd|even)|([+-]?\d*)n\s*([+-]\s*\d+)?|([+-]?\d+))\s*(?:of\s+(.+))?$")
_MAX_DEPTH = 6
_MAX_PARTS = 40
_HAS_STEPS = 2_000


@dataclass(slots=True)
class Budget:
    """How many comparisons are left; work that exceeds it is not done."""

    left: int


Test = Callable[[Element, Budget], bool]


class Compound:
    """What a selector asks of one element."""

    __slots__ = ("classes", "id", "tag", "tests")

    def __init__(self) -> None:
        self.tag = ""
        self.id = ""
        self.classes: set[str] = set()
        self.tests: list[Test] = []

    def fits(self, element: Element, budget: Budget) -> bool:
        budget.left -= 1
        return (
            (not self.tag or self.tag == element.tag)
            and (not self.id or self.id == element.id)
            and self.classes <= element.classes
            and (not self.tests or all(test(element, budget) for test in self.tests))
        )


@dataclass(frozen=True, slots=True)
class Selector:
    """Compounds from right to left, each with the combinator to its left."""

    compounds: tuple[tuple[Compound, str], ...]
    specificity: Specificity
    pseudo_element: str = ""

    @property
    def key(self) -> str:
        """What an element must have, to find the rules for it."""
        last = self.compounds[0][0]
        if last.id:
            return f"#{last.id}"
        return f".{min(last.classes)}" if last.classes else last.tag or "*"

    @property
    def is_plain(self) -> bool:
        """Whether it asks for a tag, an id and classes of one element, and nothing else."""
        return len(self.compounds) == 1 and not self.compounds[0][0].tests

    def fits(self, element: Element, budget: Budget) -> bool:
        return self.compounds[0][0].fits(element, budget) and self._fits_left(element, 0, budget)

    def _fits_left(self, element: Element, at: int, budget: Budget) -> bool:
        combinator = self.compounds[at][1]
        if not combinator:
            return True
        compound = self.compounds[at + 1][0]
        for candidate in _candidates(element, combinator):
            if budget.left < 0:
                return False
            if compound.fits(candidate, budget) and self._fits_left(candidate, at + 1, budget):
                return True
        return False


def _candidates(element: Element, combinator: str) -> Iterator[Element]:
    if combinator in (" ", ">"):
        above = element.parent
        while above is not None:
            yield above
            above = above.parent if combinator == " " else None
        return
    for sibling in _siblings(element, forward=False):
        yield sibling
        if combinator == "+":
            return


def _siblings(element: Element, *, forward: bool) -> Iterator[Element]:
    node = element.node
    while node is not None:
        node = node.next if forward else node.prev
        if node is not None and node.is_element_node:
            yield element_of(node, element.parent)


def parse_selectors(
    text: str, parent: tuple[Selector, ...] = (), *, folds: bool = True
) -> tuple[Selector, ...]:
    """The selectors of a list; none if a browser would ignore the rule."""
    try:
        return _Parser(parent, folds=folds).list_of(text, forgiving=False)
    except (ValueError, IndexError):
        return ()


class _Parser:
    """Selectors, with what `&` stands for."""

    def __init__(self, nesting: tuple[Selector, ...], depth: int = 0, *, folds: bool) -> None:
        self.nesting, self.folds = nesting, folds
        self.depth = depth
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")

    def list_of(self, text: str, *, forgiving: bool) -> tuple[Selector, ...]:
        found: list[Selector] = []
        for part in split(text, ",")[:200]:
            try:
                found.append(self.selector(part.strip()))
            except ValueError:
                if not forgiving:
                    raise
        return tuple(found)

    def selector(self, text: str, *, is_relative: bool = False) -> Selector:
        """One selector; a nested one without `&` is below the one that it is nested in."""
        if not text:
            raise ValueError("empty")
        if self.nesting and not is_relative and "&" not in text:
            text = f"& {text}"
        compounds: list[tuple[Compound, str]] = []
        weights: list[Specificity] = []
        at, combinator, pseudo_element = 0, "", ""
        while at < len(text):
            if pseudo_element or len(compounds) > _MAX_PARTS:
                raise ValueError("something behind a pseudo-element, or too much")
            compound, at, weight, pseudo_element = self._compound(text, at)
            compounds.append((compound, combinator))
            weights.append(weight)
            if at < len(text):
                match = _COMBINATOR.match(text, at)
                if not match or match[1] == "||" or match.end() == len(text):
                    raise ValueError(text)
                combinator, at = match[1] or " ", match.end()
        a, b, c = map(sum, zip(*weights, strict=True))
        return Selector(tuple(reversed(compounds)), (a, b, c), pseudo_element)

    def _compound(self, text: str, at: int) -> tuple[Compound, int, Specificity, str]:
        compound, weight, pseudo_element, start = Compound(), (0, 0, 0), "", at
        while at < len(text) and (match := _PART.match(text, at)):
            if match["tag"] and at > start:
                raise ValueError("a tag in the middle")
            at = match.end()
            if match["call"]:
                inner = text[at : closing_bracket(text, at)]
                at += len(inner) + 1
                if at > len(text):
                    raise ValueError("unbalanced")
                more = self._call(compound, match["pseudo"].lower(), inner)
            elif match["pseudo"]:
                more, pseudo_element = self._pseudo(compound, unescape(match["pseudo"]).lower())
            else:
                more = self._plain(compound, match)
            weight = (weight[0] + more[0], weight[1] + more[1], weight[2] + more[2])
        if at == start:
            raise ValueError(text)
        return compound, at, weight, pseudo_element

    def _name(self, text: str) -> str:
        return unescape(text).lower() if self.folds else unescape(text)

    def _plain(self, compound: Compound, match: re.Match[str]) -> Specificity:
        if match["tag"]:
            compound.tag = "" if match["tag"] == "*" else unescape(match["tag"]).lower()
            return (0, 0, 1 if compound.tag else 0)
        if match["class"]:
            compound.classes.add(self._name(match["class"]))
            return (0, 1, 0)
        if match["id"]:
            compound.id = self._name(match["id"])
            return (1, 0, 0)
        if match["nesting"]:
            return self._any_of(compound, self.nesting) if self.nesting else (0, 0, 0)
        compound.tests.append(_attribute_test(match["attribute"]))
        return (0, 1, 0)

    def _pseudo(self, compound: Compound, name: str) -> tuple[Specificity, str]:
        bare = name.lstrip(":")
        if name.startswith("::") or bare in ("before", "after", "first-line", "first-letter"):
            if bare not in _PSEUDO_ELEMENTS and not bare.startswith("-webkit-"):
                raise ValueError(name)
            return (0, 0, 1), bare
        if bare in _TESTS:
            compound.tests.append(_TESTS[bare])
        elif bare in _NEVER:
            compound.tests.append(_never)
        elif bare not in _ALWAYS:
            raise ValueError(name)
        return (0, 1, 0), ""

    def _call(self, compound: Compound, name: str, inner: str) -> Specificity:
        name = name.lstrip(":")
        below = _Parser(self.nesting, self.depth + 1, folds=self.folds)
        below.nesting = ()
        if name in ("is", "where", "matches", "-webkit-any"):
            weight = self._any_of(compound, below.list_of(inner, forgiving=True))
            return (0, 0, 0) if name == "where" else weight
        if name == "not":
            found = below.list_of(inner, forgiving=False)
            compound.tests.append(lambda e, b: not any(one.fits(e, b) for one in found))
            return max(one.specificity for one in found)
        if name == "has":
            relative = [_relative(below, part.strip()) for part in split(inner, ",")]
            compound.tests.append(lambda e, b: any(_has(e, c, s, b) for c, s in relative))
            return max(selector.specificity for _, selector in relative)
        if name.startswith("nth-"):
            compound.tests.append(_nth_test(name, inner.lower(), below))
        elif name == "lang":
            compound.tests.append(_lang_test(inner))
        elif name == "dir":
            compound.tests.append(lambda e, b: inner.strip().lower() == "ltr")
        else:
            raise ValueError(name)
        return (0, 1, 0)

    def _any_of(self, compound: Compound, found: tuple[Selector, ...]) -> Specificity:
        compound.tests.append(lambda e, b: any(one.fits(e, b) for one in found))
        return max((one.specificity for one in found), default=(0, 0, 0))


def _never(element: Element, budget: Budget) -> bool:
    return False


def _relative(parser: _Parser, text: str) -> tuple[str, Selector]:
    combinator = text[:1] if text[:1] in (">", "+", "~") else " "
    return combinator, parser.selector(text.lstrip(">+~ "), is_relative=True)


def _has(element: Element, combinator: str, selector: Selector, budget: Budget) -> bool:
    if combinator in "+~":
        for sibling in _siblings(element, forward=True):
            if selector.fits(sibling, budget):
                return True
            if combinator == "+" or budget.left < 0:
                return False
        return False
    waiting, steps = [element], 0
    while waiting and budget.left > 0 and steps < _HAS_STEPS:
        above = waiting.pop()
        node = above.node.first_child if above.node is not None else None
        while node is not None and steps < _HAS_STEPS:
            steps += 1
            if node.is_element_node:
                child = element_of(node, above)
                if selector.fits(child, budget):
                    return True
                if combinator == " ":
                    waiting.append(child)
            node = node.next
    return False


def _attribute_test(text: str) -> Test:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    name, operator, raw, flag = unescape(match[1]).lower(), match[2], match[3] or "", match[4]
    wanted = unescape(raw.strip("\"'"))
    folds = (flag or "").lower() == "i" or (not flag and name in _FOLDED)
    wanted = wanted.lower() if folds else wanted

    def test(element: Element, budget: Budget) -> bool:
        if name not in element.attributes:
            return False
        value = element.attributes[name] or ""
        return _compare(operator, value.lower() if folds else value, wanted)

    return test


_FOLDED = ("align", "bgcolor", "color", "dir", "lang", "media", "rel", "type", "valign")


def _compare(operator: str | None, value: str, wanted: str) -> bool:
    if operator is None:
        return True
    if operator == "=":
        return value == wanted
    if operator == "|=":
        return value == wanted or value.startswith(f"{wanted}-")
    if not wanted:
        return False
    if operator == "~=":
        return wanted in value.split()
    if operator == "^=":
        return value.startswith(wanted)
    return value.endswith(wanted) if operator == "$=" else wanted in value


def _nth_test(name: str, inner: str, parser: _Parser) -> Test:
    match = _NTH.match(inner)
    if match is None:
        raise ValueError(inner)
    step, first = _steps(match)
    among = parser.list_of(match[5], forgiving=False) if match[5] else ()

    def test(element: Element, budget: Budget) -> bool:
        place = 1
        for sibling in _siblings(element, forward="last" in name):
            budget.left -= 1
            if "of-type" in name and sibling.tag != element.tag:
                continue
            place += not among or any(one.fits(sibling, budget) for one in among)
        if among and not any(one.fits(element, budget) for one in among):
            return False
        rest = place - first
        return rest == 0 if not step else rest % step == 0 and rest // step >= 0

    return test


def _steps(match: re.Match[str]) -> tuple[int, int]:
    if match[1]:
        return 2, 1 if match[1] == "odd" else 0
    if match[4]:
        return 0, int(match[4])
    step = int(match[2]) if match[2] not in ("", "+", "-") else int(f"{match[2]}1")
    return step, int((match[3] or "0").replace(" ", ""))


def _lang_test(inner: str) -> Test:
    wanted = inner.strip("\"' ").lower()

    def test(element: Element, budget: Budget) -> bool:
        above: Element | None = element
        while above is not None and "lang" not in above.attributes:
            above = above.parent
        return above is not None and _compare(
            "|=", (above.attributes["lang"] or "").lower(), wanted
        )

    return test


def _none(siblings: Iterator[Element], tag: str = "") -> bool:
    return not any(not tag or sibling.tag == tag for sibling in siblings)


def _is_empty(element: Element, budget: Budget) -> bool:
    node = element.node.first_child if element.node is not None else None
    while node is not None:
        if node.is_element_node or (node.is_text_node and node.text_content):
            return False
        node = node.next
    return True


_CONTROLS = frozenset(("button", "fieldset", "input", "optgroup", "option", "select", "textarea"))
_TESTS: dict[str, Test] = {
    "root": lambda e, b: e.tag == "html",
    "scope": lambda e, b: e.tag == "html",
    "empty": _is_empty,
    "first-child": lambda e, b: _none(_siblings(e, forward=False)),
    "last-child": lambda e, b: _none(_siblings(e, forward=True)),
    "only-child": lambda e, b: (
        _none(_siblings(e, forward=False)) and _none(_siblings(e, forward=True))
    ),
    "first-of-type": lambda e, b: _none(_siblings(e, forward=False), e.tag),
    "last-of-type": lambda e, b: _none(_siblings(e, forward=True), e.tag),
    "only-of-type": lambda e, b: (
        _none(_siblings(e, forward=False), e.tag) and _none(_siblings(e, forward=True), e.tag)
    ),
    "link": lambda e, b: e.tag in ("a", "area") and "href" in e.attributes,
    "any-link": lambda e, b: e.tag in ("a", "area") and "href" in e.attributes,
    "checked": lambda e, b: "checked" in e.attributes or "selected" in e.attributes,
    "disabled": lambda e, b: e.tag in _CONTROLS and "disabled" in e.attributes,
    "enabled": lambda e, b: e.tag in _CONTROLS and "disabled" not in e.attributes,
    "required": lambda e, b: "required" in e.attributes,
    "optional": lambda e, b: (
        e.tag in ("input", "select", "textarea") and "required" not in e.attributes
    ),
    "open": lambda e, b: e.tag in ("details", "dialog", "select") and "open" in e.attributes,
    "read-only": lambda e, b: e.tag not in ("input", "textarea"),
    "read-write": lambda e, b: e.tag in ("input", "textarea"),
    "placeholder-shown": lambda e, b: "placeholder" in e.attributes and "value" not in e.attributes,
    "target": _never,
}  # fmt: skip
