"""The style sheets of a mail, and the cascade: which declarations win for an element."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from selectolax.lexbor import LexborHTMLParser, LexborNode

from postroom.mail.html.css.computed_style import (
    SheetDefinitions,
    Style,
    compute_style,
    inherit_style,
)
from postroom.mail.html.css.conditions import container_applies, is_supported, media_applies
from postroom.mail.html.css.selectors import Budget, Selector, parse_selectors
from postroom.mail.html.css.syntax import Block, Declaration, RawRule, declarations_of, parse_rules
from postroom.mail.html.elements import Element, presentational_hints

_MAX_CHECKS = 500_000
_MAX_RULES = 20_000
_MAX_SHEETS = 500
_MAX_IMPORTS = 10
_AT = re.compile(r"@(-?[\w-]+)\s*(.*)", re.DOTALL)
_DATA_URL = re.compile(r"data:text/css([^,]*),(.*)", re.DOTALL | re.IGNORECASE)
_IMPORT = re.compile(
    r"(?:url\(\s*)?[\"']?(data:[^\"')]*)[\"']?\s*\)?(.*)", re.DOTALL | re.IGNORECASE
)
_LAYER_OF_IMPORT = re.compile(r"\blayer\b(?:\([^)]*\))?|\bsupports\([^)]*\)")
_DOCTYPE = re.compile(
    r"(?:\s|<!--.*?-->|<\?[^>]*>|\ufeff)*+<!doctype\s([^>]*)", re.DOTALL | re.IGNORECASE
)
_OLD_DOCTYPE = re.compile(
    r"(?!html\b)|html\s+public\s+[\"']-//(?:ietf//|w3c//dtd (?:html 3|html 4\.0(?:1)? "
    r"(?:transitional|frameset)//[a-z]*[\"']\s*$)|netscape|microsoft|sun |webtechs)",
    re.IGNORECASE,
)
_UNLAYERED = 1_000_000
_SCOPE = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)(?:\s*to\s*\((.*)\))?\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """A selector, what it declares, and its place in the cascade."""

    selector: Selector
    block: Block
    layer: int
    order: int
    scope: tuple[tuple[Selector, ...], tuple[Selector, ...]] | None = None

    def fits(self, element: Element, budget: Budget) -> bool:
        if not self.selector.fits(element, budget):
            return False
        return self.scope is None or self._is_in_scope(element, budget)

    def _is_in_scope(self, element: Element, budget: Budget) -> bool:
        roots, limits = self.scope or ((), ())
        above: Element | None = element
        while above is not None:
            if any(root.fits(above, budget) for root in roots):
                return True
            if any(limit.fits(above, budget) for limit in limits):
                return False
            above = above.parent
        return False


@dataclass(frozen=True, slots=True)
class _RuleContext:
    """The context of rules: a layer, the selectors around them, a scope."""

    layer: str = ""
    parents: tuple[Selector, ...] = ()
    scope: tuple[tuple[Selector, ...], tuple[Selector, ...]] | None = None


class Stylesheet:
    """Rules by the last thing that their selector asks for, so that most elements look at few."""

    def __init__(self, sheets: Iterable[str], *, folds: bool = True) -> None:
        self._folds = folds
        self.keyframes: dict[str, tuple[Block, Block]] = {}
        self.initial: dict[str, str] = {}
        self.own_fonts: set[str] = set()
        self.budget = Budget(_MAX_CHECKS)
        self._by_key: dict[str, list[Rule]] = {}
        self._layers: dict[str, int] = {}
        self._known: dict[tuple[object, ...], tuple[Rule, ...]] = {}
        self._lists: dict[tuple[int, ...], tuple[Rule, ...]] = {}
        self._count = self._imports = 0
        filled = [css for css in sheets if css.strip()]
        self._has_more = len(filled) > _MAX_SHEETS
        for css in filled[:_MAX_SHEETS]:
            self._add_all(parse_rules(css).rules, _RuleContext())

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def is_partial(self) -> bool:
        """Whether the limit on sheets, rules or work was reached."""
        return self._has_more or self._count > _MAX_RULES or self.budget.left < 0

    def _add_all(self, rules: list[RawRule], context: _RuleContext) -> None:
        for rule in rules:
            if self._count > _MAX_RULES:
                return
            if rule.prelude.startswith("@"):
                self._at_rule(rule, context)
            else:
                self._style_rule(rule, context)

    def _style_rule(self, rule: RawRule, context: _RuleContext) -> None:
        self._count += 1
        if not rule.declarations and not rule.rules:
            return
        selectors = parse_selectors(rule.prelude, context.parents, folds=self._folds)
        self._declare(selectors, rule.declarations, context)
        if rule.rules and selectors:
            self._add_all(rule.rules, _RuleContext(context.layer, selectors, context.scope))

    def _declare(
        self,
        selectors: tuple[Selector, ...],
        declarations: list[Declaration],
        context: _RuleContext,
    ) -> None:
        if not declarations:
            return
        block = tuple(declarations)
        layer = self._layer(context.layer) if context.layer else _UNLAYERED
        for selector in selectors:
            if selector.pseudo_element not in ("", "first-line"):
                continue
            self._count += 1
            rule = Rule(selector, block, layer, self._count, context.scope)
            self._by_key.setdefault(selector.key, []).append(rule)

    def _layer(self, name: str) -> int:
        """Layers rank in the order in which they are first named; outer ones after inner ones."""
        return self._layers.setdefault(name, len(self._layers))

    def _at_rule(self, rule: RawRule, context: _RuleContext) -> None:
        match = _AT.match(rule.prelude)
        name, prelude = (match[1].lower(), match[2].strip()) if match else ("", "")
        name = name.removeprefix("-webkit-")
        if name == "import":
            self._import(prelude, context)
        elif name == "keyframes":
            self._add_keyframes(prelude.strip("\"'"), rule.rules)
        elif name == "property":
            declared = {one.name: one.value for one in rule.declarations}
            self.initial[prelude] = declared.get("initial-value", "")
        elif name == "font-face":
            self._add_font({one.name: one.value for one in rule.declarations})
        elif name == "layer":
            self._add_layer(rule, prelude, context)
        elif name == "scope":
            self._add_all(rule.rules, self._scope_context(prelude, context))
        elif _applies(name, prelude):
            self._declare(context.parents, rule.declarations, context)
            self._add_all(rule.rules, context)

    def _scope_context(self, prelude: str, context: _RuleContext) -> _RuleContext:
        match = _SCOPE.match(prelude)
        roots = parse_selectors(match[1] if match else "html", folds=self._folds)
        limits = parse_selectors(match[2], folds=self._folds) if match and match[2] else ()
        return _RuleContext(context.layer, context.parents, (roots, limits))

    def _add_layer(self, rule: RawRule, prelude: str, context: _RuleContext) -> None:
        names = [name.strip() for name in prelude.split(",")] or [""]
        full = [f"{context.layer}.{name}" if context.layer else name for name in names]
        for name in full:
            self._layer(name or f"layer {self._count}")
        if rule.rules or rule.declarations:
            layer = full[0] or f"layer {self._count}"
            self._declare(context.parents, rule.declarations, _RuleContext(layer, context.parents))
            self._add_all(rule.rules, _RuleContext(layer, context.parents, context.scope))

    def _import(self, prelude: str, context: _RuleContext) -> None:
        """An imported style sheet, if it is part of the mail; others are not fetched."""
        match = _IMPORT.match(prelude)
        self._imports += 1
        if match is None or self._imports > _MAX_IMPORTS:
            return
        if media_applies(_LAYER_OF_IMPORT.sub("", match[2])):
            self._add_all(parse_rules(css_of_url(match[1])).rules, context)

    def _add_keyframes(self, name: str, frames: list[RawRule]) -> None:
        first, last = list[Declaration](), list[Declaration]()
        for frame in frames[:100]:
            places = [place.strip().lower() for place in frame.prelude.split(",")]
            if "from" in places or "0%" in places:
                first += frame.declarations
            if "to" in places or "100%" in places:
                last += frame.declarations
        self.keyframes[name.lower()] = (tuple(first), tuple(last))

    def _add_font(self, declared: dict[str, str]) -> None:
        if "data:" in declared.get("src", ""):
            self.own_fonts.add(declared.get("font-family", "").strip("\"' ").lower())

    def rules_for(self, element: Element) -> tuple[Rule, ...]:
        """The rules that fit an element, the weakest first.

        The work is limited, because rules times elements grows quadratically on hostile mail.
        """
        if self.budget.left < 0:
            return ()
        known = (element.tag, element.id, element.classes)
        if known in self._known:
            return self._known[known]
        keys = [element.tag, "*", *(f".{name}" for name in element.classes)]
        if element.id:
            keys.append(f"#{element.id}")
        found = [rule for key in keys if key in self._by_key for rule in self._by_key[key]]
        if not found:
            self._known[known] = ()
            return ()
        fitting = [rule for rule in found if rule.fits(element, self.budget)]
        fitting.sort(key=lambda rule: (rule.layer, rule.selector.specificity, rule.order))
        same = self._lists.setdefault(tuple(rule.order for rule in fitting), tuple(fitting))
        if all(rule.selector.is_plain and rule.scope is None for rule in found):
            self._known[known] = same
        return same


def _applies(name: str, prelude: str) -> bool:
    if name == "media":
        return media_applies(prelude)
    if name == "supports":
        return is_supported(prelude)
    return name == "container" and container_applies(prelude)


def styles_of(html: str) -> str:
    """The style sheets for screens in an HTML mail."""
    return "\n".join(sheets_in(LexborHTMLParser(html), html))


def sheets_in(tree: LexborHTMLParser, html: str) -> list[str]:
    """The style sheets that apply, in the order of the document."""
    if "<link" not in html and "<LINK" not in html:
        return [_css_of(sheet) for sheet in tree.css("style")]
    return [_css_of(sheet) for sheet in tree.css("style, link")]


def _css_of(node: LexborNode) -> str:
    attributes = node.attributes
    kind = (attributes.get("type") or "text/css").strip().lower()
    if kind != "text/css" or not media_applies(attributes.get("media") or ""):
        return ""
    if node.tag == "link":
        is_sheet = "stylesheet" in (attributes.get("rel") or "").lower().split()
        return css_of_url(attributes.get("href") or "") if is_sheet else ""
    return node.text() or ""


def is_quirky(html: str) -> bool:
    """Whether a browser takes the document for an old one, in which the case of names is nothing.

    It does without a doctype, or with one of HTML before 4.01 Strict and XHTML.
    """
    found = _DOCTYPE.match(html[:2_000])
    return found is None or _OLD_DOCTYPE.match(found[1]) is not None


def css_of_url(url: str) -> str:
    """The style sheet in a `data:` URL; empty for any other."""
    match = _DATA_URL.match(url.strip().partition("#")[0])
    if match is None:
        return ""
    data = unquote_to_bytes(match[2])
    if match[1].lower().endswith(";base64"):
        try:
            data = b64decode(data + b"==")
        except ValueError:
            return ""
    return data.decode("utf-8", "replace")


def cascade(rules: Iterable[Rule], *own: Block) -> list[Declaration]:
    """All declarations for an element, the weakest first.

    *rules* are sorted; *own* are those of attributes: presentational ones are weaker than any
    rule, the style attribute is stronger.
    """
    *hints, inline = own
    normal = [one for hint in hints for one in hint]
    important: list[tuple[int, Declaration]] = []
    for rule in rules:
        for one in rule.block:
            if one.important:
                important.append((-rule.layer, one))
            else:
                normal.append(one)
    important.sort(key=lambda pair: pair[0])
    normal += [one for one in inline if not one.important]
    normal += [one for _, one in important]
    return normal + [one for one in inline if one.important]


_NOT_OF_LINES = frozenset(("display", "opacity", "overflow", "height", "position", "transform"))
_MAX_STYLES, _MAX_COMPUTED = 2_000, 15_000
_TOO_MANY = "style not understood"


class StyleResolver:
    """Computes the style of each element of a mail; what was computed before is found again."""

    def __init__(self, sheet: Stylesheet, *, inherits: bool, painted: int = 1) -> None:
        self._sheet = sheet
        self.has_rules = bool(sheet)
        self._sheets = SheetDefinitions(
            sheet.keyframes, sheet.initial, frozenset(sheet.own_fonts), painted
        )
        self._known: dict[tuple[object, ...], tuple[Style, object]] = {}
        self._same: dict[tuple[object, ...], Style] = {}
        self._inherits = inherits
        self._computed_count = 0

    def style_of(self, element: Element, parent: Style) -> Style:
        attributes = element.attributes
        hints = presentational_hints(element.tag, attributes)
        rules = self._sheet.rules_for(element) if self.has_rules else ()
        if self.has_rules and self._sheet.is_partial:  # a rule that was not read could hide
            return replace(parent, hidden_below=_TOO_MANY, hidden=_TOO_MANY)
        inline = attributes.get("style") or "" if attributes else ""
        if not hints and not rules and not inline:
            return inherit_style(parent)
        key = (id(parent), id(hints), id(rules), inline)
        if key in self._known:
            return self._known[key][0]
        self._computed_count += 1
        if self._computed_count > _MAX_COMPUTED:  # what is not computed could hide
            return replace(parent, hidden_below=_TOO_MANY, hidden=_TOO_MANY)
        style = self._compute(element, parent, hints, rules, inline)
        if style is not parent and not self._inherits:
            style = self._same.setdefault(style.key(), style)
        if len(self._known) > _MAX_STYLES:
            self._known.clear()
            self._same.clear()
        if "attr(" not in inline:
            # what the key names by its id is kept, so that no other can get the same id
            self._known[key] = (style, (parent, hints, rules))
        return style

    def _compute(
        self, element: Element, parent: Style, hints: Block, rules: tuple[Rule, ...], inline: str
    ) -> Style:
        plain = tuple(rule for rule in rules if not rule.selector.pseudo_element)
        own = declarations_of(inline) if inline else ()
        declared = cascade(plain, hints, own)
        is_root = element.tag in ("html", "body")
        style = compute_style(
            parent, declared, self._sheets, is_root=is_root, attributes=element.attributes
        )
        if len(plain) < len(rules):
            lines = [rule for rule in rules if rule.selector.pseudo_element]
            declared = [one for one in cascade(lines, ()) if one.name not in _NOT_OF_LINES]
            style = compute_style(style, declared, self._sheets)
        return style
