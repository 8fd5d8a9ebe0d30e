"""The syntax of CSS with the error recovery of browsers (CSS Syntax 3), its lengths and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

_STRING = r'"(?:\\.|[^"\\\n])*"?|' r"'(?:\\.|[^'\\\n])*'?"
_COMMENT = re.compile(rf"({_STRING})|/\*.*?(?:\*/|\Z)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{1,6})\s?|([^\n]))")
_NAME = re.compile(r"--[^\s:]*|-?[a-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*", re.ASCII)
_IMPORTANT = re.compile(r"!\s*important\s*$", re.IGNORECASE)
_URL = r"url\(\s*(?![\"'\s])[^)]{0,100000}\)?"
_STRUCTURE = re.compile(rf"{_STRING}|{_URL}|\\.|[{{}};()\[\]]", re.DOTALL | re.IGNORECASE)
_CDO = re.compile(r"<!--|-->")
_SPECIAL = re.compile(r"[(\[{\"'\\]")
_OPENS, _CLOSES = {"(": ")", "[": "]"}, frozenset(")]")
_MAX_DEPTH = 32
_MAX_DECLARATIONS = 200


class Declaration(NamedTuple):
    """`name: value`; the value has no comments, and is in lower case unless names are in it."""

    name: str
    value: str
    important: bool = False


Block = tuple[Declaration, ...]


@dataclass(slots=True)
class RawRule:
    """The prelude before the braces, and the content between them."""

    prelude: str
    declarations: list[Declaration] = field(default_factory=list)
    rules: list[RawRule] = field(default_factory=list)


def unescape(text: str) -> str:
    """An identifier with its escapes replaced by what they stand for."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(match: re.Match[str]) -> str:
    if match[2]:
        return match[2]
    code = int(match[1], 16)
    return chr(code) if 0 < code < 0x11_0000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def without_comments(css: str) -> str:
    return _COMMENT.sub(lambda match: match[1] or " ", css) if "/*" in css else css


@lru_cache(maxsize=1024)
def declarations_of(style: str) -> Block:
    """The declarations of a style attribute."""
    style = without_comments(style)
    found = (declaration(piece) for piece in split(style, ";")[: 2 * _MAX_DECLARATIONS])
    return tuple(one for one in found if one)[-_MAX_DECLARATIONS:]


def declaration(text: str) -> Declaration | None:
    """One declaration, None if a browser ignores it for its syntax."""
    name, colon, value = text.partition(":")
    if not colon:
        return None
    name = unescape(name.strip())
    name = name if name.startswith("--") else name.lower()
    if not _NAME.fullmatch(name):
        return None
    value, important = value.strip(), False
    if "!" in value and not name.startswith("--"):
        value, marks = _IMPORTANT.subn("", value)
        value, important = value.strip(), bool(marks)
        if "!" in value:
            return None
    elif "!" in value:
        value, marks = _IMPORTANT.subn("", value)
        important = bool(marks)
    if "\\" in value:
        value = unescape(value)
    if not name.startswith("--") and "--" not in value:
        value = value.lower()
    return Declaration(name, value, important)


def split(text: str, separator: str) -> list[str]:
    """The pieces between separators that are in no brackets and no string."""
    if not _SPECIAL.search(text):
        return text.split(separator)
    pieces, start, closing = list[str](), 0, list[str]()
    pattern = re.compile(rf"{_STRING}|{_URL}|\\.|[()\[\]{{}}{re.escape(separator)}]", re.DOTALL)
    for match in pattern.finditer(text):
        char = match[0]
        if char in "([{":
            closing.append(")" if char == "(" else "]" if char == "[" else "}")
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == separator and not closing:
            pieces.append(text[start : match.start()])
            start = match.end()
    pieces.append(text[start:])
    return pieces


def words(text: str) -> list[str]:
    """The pieces between white space that is in no brackets and no string."""
    if not _SPECIAL.search(text):
        return text.split()
    return [piece for piece in split(" ".join(text.split()), " ") if piece]


def closing_bracket(text: str, at: int) -> int:
    """The place of the bracket that ends a call, whose arguments begin at a place."""
    depth = 1
    for place in range(at, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    return len(text)


def function(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a function; None if the text is not a function."""
    if not text.endswith(")"):
        return None
    name, _, inner = text[:-1].partition("(")
    return (name, inner.strip()) if name else None


def functions(text: str) -> list[tuple[str, str]]:
    """The functions that a value lists."""
    return [found for word in words(text.replace(")", ") ")) if (found := function(word))]


def parse_rules(css: str) -> RawRule:
    """The rules of a style sheet, as the content of one rule without a prelude.

    Strings, brackets and nesting are respected, so that nothing in them ends a rule.
    """
    css = _CDO.sub(" ", without_comments(css))
    top = RawRule("")
    open_rules, closing, start, too_deep = [top], list[str](), 0, 0
    for match in _STRUCTURE.finditer(css):
        char = match[0]
        if len(char) > 1:
            continue
        if char in _OPENS:
            closing.append(_OPENS[char])
        elif char in _CLOSES:
            if closing and closing[-1] == char:
                closing.pop()
        elif closing:
            continue
        elif char == "{":
            if too_deep or len(open_rules) >= _MAX_DEPTH:
                too_deep += 1
                continue
            rule = RawRule(css[start : match.start()].strip())
            open_rules[-1].rules.append(rule)
            open_rules.append(rule)
            start = match.end()
        elif too_deep:
            too_deep -= char == "}"
            start = match.end()
        elif char == ";":
            start = _end_of_statement(open_rules, css, start, match.start())
        elif len(open_rules) > 1:
            _declare(open_rules.pop(), css[start : match.start()])
            start = match.end()
        # a closing brace without an opening one stays part of the prelude, which makes it invalid
    for rule in open_rules[1:]:
        _declare(rule, css[start:])
        start = len(css)
    return top


def _end_of_statement(open_rules: list[RawRule], css: str, start: int, end: int) -> int:
    text = css[start:end].strip()
    if text.startswith("@"):
        open_rules[-1].rules.append(RawRule(text))
    elif len(open_rules) > 1:
        _declare(open_rules[-1], text)
    else:
        return start  # no rule may hold a semicolon: what follows belongs to an invalid prelude
    return end + 1


def _declare(rule: RawRule, text: str) -> None:
    found = declaration(text) if ":" in text else None
    if found:
        rule.declarations.append(found)


WIDTH, HEIGHT = 800.0, 600.0
"""The window in which mail is thought to be read."""

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)([a-z]*|%)")
_EM = {"em": 1.0, "ex": 0.5, "ch": 0.5, "ic": 1.0, "cap": 0.7, "lh": 1.2}
_FIXED = {
    "": 1.0, "px": 1.0, "pt": 4 / 3, "in": 96.0, "cm": 96 / 2.54, "mm": 9.6 / 2.54, "q": 2.4 / 2.54,
    "pc": 16.0, "twip": 1 / 15, **{f"r{unit}": factor * 16.0 for unit, factor in _EM.items()},
    "deg": 1.0, "grad": 0.9, "rad": 180 / math.pi, "turn": 360.0,
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e, "infinity": 1e9, "-infinity": -1e9, "nan": 0.0}
_MAX_CHARS = 400
_MAX_NESTING = 12
_TOKEN = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?(?:[a-z]+|%)?|[a-z-]+\(|-?[a-z]+|[()*/,+-]"
)


@dataclass(frozen=True, slots=True)
class Base:
    """What relative lengths are relative to, in pixels."""

    em: float = 16.0
    whole: float = WIDTH
    width: float = WIDTH
    height: float = HEIGHT


Expression = Callable[[Base], float]
_SIZES = ("", "s", "l", "d")
"""The window, at its smallest, at its largest, and as it is."""

_WHOLES: dict[str, Expression] = {
    **{f"{of}{unit}": attrgetter("width") for of in _SIZES for unit in ("vw", "vi", "cqw", "cqi")},
    **{f"{of}{unit}": attrgetter("height") for of in _SIZES for unit in ("vh", "vb", "cqh", "cqb")},
    "%": attrgetter("whole"),
    "vmin": lambda base: min(base.width, base.height),
    "vmax": lambda base: max(base.width, base.height),
}


def px(number: float, unit: str) -> Expression | None:
    """A dimension as a function of what it is relative to."""
    if unit in _FIXED:
        fixed = number * _FIXED[unit]
        return lambda base: fixed
    if unit in _EM:
        factor = _EM[unit]
        return lambda base: number * factor * base.em
    if unit in _WHOLES:
        whole = _WHOLES[unit]
        return lambda base: number / 100 * whole(base)
    return None


@lru_cache(maxsize=2048)
def expression(value: str) -> Expression | None:
    """A length, a percentage, a number or an angle; None for any other value."""
    match = _NUMBER.fullmatch(value)
    if match:
        return px(_float(match[1]), match[2])
    if "(" not in value or len(value) > _MAX_CHARS:
        return None
    try:
        return _Parser(_tokens(value.removeprefix("-webkit-").removeprefix("-moz-"))).parse()
    except (ValueError, IndexError):
        return None


def length(value: str, base: Base) -> float | None:
    """A length in pixels (or a number, or degrees); None for any other value."""
    found = expression(value)
    if found is None:
        return None
    try:
        return max(min(found(base), 1e12), -1e12)
    except (ArithmeticError, ValueError):
        return 0.0


def number(value: str) -> float | None:
    """A number or a percentage of one."""
    return length(value, _ONE)


_ONE = Base(whole=1.0)


def _float(text: str) -> float:
    found = float(text)
    return found if math.isfinite(found) else math.copysign(1e12, found)


def _tokens(value: str) -> list[str]:
    tokens = _TOKEN.findall(value)
    if sum(map(len, tokens)) != len("".join(value.split())):
        raise ValueError("not arithmetic")
    return tokens


class _Parser:
    """Arithmetic by recursive descent; each result is a function of the `Base`."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def parse(self) -> Expression:
        found = self._factor()
        if self.at != len(self.tokens):
            raise ValueError("more than one value")
        return found

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def _sum(self) -> Expression:
        left = self._product()
        while (sign := self._peek()) and (sign in "+-" or sign[0] in "+-"):
            if sign in "+-":
                self._next()
                left = _added(left, self._product(), 1 if sign == "+" else -1)
            else:  # `1px -2px` without a space is one more term
                left = _added(left, self._product(), 1)
        return left

    def _product(self) -> Expression:
        left = self._factor()
        while self._peek() in ("*", "/"):
            sign = self._next()
            left = _scaled(left, self._factor(), is_division=sign == "/")
        return left

    def _factor(self) -> Expression:
        said = self._next()
        self.depth += 1
        if self.depth > _MAX_NESTING * 8:
            raise ValueError("too deep")
        if said == "(" or said in ("calc(", "-webkit-calc("):
            found = self._sum()
            self._expect(")")
            return found
        if said.endswith("("):
            return _call(said[:-1], self._arguments())
        if said in _CONSTANTS:
            constant = _CONSTANTS[said]
            return lambda base: constant
        match = _NUMBER.fullmatch(said)
        found_px = px(_float(match[1]), match[2]) if match else None
        if found_px is None:
            raise ValueError(said)
        return found_px

    def _arguments(self) -> list[Expression]:
        while self._peek().isalpha() and self._peek() not in _CONSTANTS:
            self._next()  # the strategy of round()
            self._expect(",")
        found = [self._sum()]
        while self._peek() == ",":
            self._next()
            found.append(self._sum())
        self._expect(")")
        return found

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise ValueError("unbalanced")


def _added(left: Expression, right: Expression, sign: int) -> Expression:
    return lambda base: left(base) + sign * right(base)


def _scaled(left: Expression, right: Expression, *, is_division: bool) -> Expression:
    def scaled(base: Base) -> float:
        by = right(base)
        if not is_division:
            return left(base) * by
        return left(base) / by if by else math.copysign(1e9, left(base) or 1.0)

    return scaled


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "min": min, "max": max, "abs": abs, "hypot": math.hypot, "sqrt": lambda x: math.sqrt(abs(x)),
    "sign": lambda x: (x > 0) - (x < 0), "pow": lambda x, y: x**y, "exp": math.exp,
    "clamp": lambda low, x, high: max(low, min(x, high)),
    "round": lambda x, step=1.0: round(x / step) * step if step else x,
    "mod": lambda x, y: x % y if y else 0.0, "rem": lambda x, y: math.fmod(x, y) if y else 0.0,
    "sin": lambda x: math.sin(math.radians(x)), "cos": lambda x: math.cos(math.radians(x)),
    "tan": lambda x: math.tan(math.radians(x)), "log": lambda x, *_: math.log(x) if x > 0 else 0.0,
    "asin": lambda x: math.degrees(math.asin(x)), "acos": lambda x: math.degrees(math.acos(x)),
    "atan": lambda x: math.degrees(math.atan(x)),
    "atan2": lambda y, x: math.degrees(math.atan2(y, x)),
}  # fmt: skip


def _call(name: str, arguments: list[Expression]) -> Expression:
    name = name.removeprefix("-webkit-")
    if name not in _FUNCTIONS:
        raise ValueError(name)
    apply = _FUNCTIONS[name]

    def called(base: Base) -> float:
        try:
            return float(apply(*(argument(base) for argument in arguments)))
        except (TypeError, ValueError, ArithmeticError):
            return 0.0

    return called


def lengths(value: str, base: Base) -> list[float]:
    """The lengths that a value lists; other parts are skipped."""
    found = (length(word, base) for word in split(value, " ") if word)
    return [one for one in found if one is not None]
