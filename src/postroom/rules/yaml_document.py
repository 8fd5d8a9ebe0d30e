"""A YAML document as a tree of plain data with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, TypeVar

import yaml

from postroom.rules.definition import closest

P = ParamSpec("P")
T = TypeVar("T")

MAX_BYTES = 65_536
MAX_DEPTH = 20
MAX_NODES = 5_000
MAX_DOCUMENTS = 200

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}


class SourcePosition(NamedTuple):
    """A line and a column, counted from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, mark: Any) -> SourcePosition:
        return cls(mark.line + 1, mark.column + 1) if mark else cls(1, 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem at one place, what was expected there, and a suggestion."""

    position: SourcePosition
    message: str
    expected: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        hint = f"; did you mean `{self.suggestion}`?" if self.suggestion else ""
        expected = f"; expected {self.expected}" if self.expected else ""
        line, column = self.position
        return f"line {line}, column {column}: {self.message}{expected}{hint}"


class Invalid(Exception):
    """A document or a value that is not valid."""

    def __init__(
        self, position: SourcePosition, message: str, expected: str = "", suggestion: str = ""
    ) -> None:
        super().__init__(message)
        self.problem = Problem(position, message, expected, suggestion)

    @classmethod
    def unknown(
        cls,
        position: SourcePosition,
        message: str,
        name: str,
        known: Iterable[str],
        more: Iterable[str] = (),
    ) -> Invalid:
        """An unknown word; *more* words can be suggested, but are not listed."""
        names = list(known)
        expected = "one of " + ", ".join(names)
        return cls(position, f"{message} `{name[:50]}`", expected, closest(name, (*names, *more)))


MAX_PROBLEMS = 20


@dataclass(slots=True)
class Problems:
    """The problems of a document, up to a limit."""

    found: list[Problem] = field(default_factory=list)

    def add(self, invalid: Invalid) -> None:
        if len(self.found) < MAX_PROBLEMS:
            self.found.append(invalid.problem)

    def attempt(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What *read* returns; None if it raises Invalid, whose problem is added."""
        try:
            return read(*args, **kwargs)
        except Invalid as invalid:
            self.add(invalid)
            return None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word, a number, true, false or nothing. Quoted, it is always text."""

    position: SourcePosition
    text: str
    is_quoted: bool

    @property
    def value(self) -> str | int | bool | None:
        """The value as number or constant; `no` and `0644` are text."""
        if self.is_quoted:
            return self.text
        if self.text.lower() in _CONSTANTS:
            return _CONSTANTS[self.text.lower()]
        return int(self.text) if _NUMBER.fullmatch(self.text) else self.text


@dataclass(slots=True)
class Sequence:
    """A list."""

    position: SourcePosition
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Mapping:
    """Keys with values, in order; each key once."""

    position: SourcePosition
    items: dict[str, tuple[SourcePosition, Node]] = field(default_factory=dict)

    def get(self, name: str) -> Node | None:
        return self.items[name][1] if name in self.items else None


Node = Scalar | Sequence | Mapping


class _Loader(yaml.SafeLoader):
    """A scanner that refuses deep nesting before it scans it.

    It overrides `fetch_flow_collection_start`, which PyYAML does not document;
    `tests/test_library_internals.py` fails if a version lacks it.
    """

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level >= MAX_DEPTH:
            raise Invalid(SourcePosition.of(self.get_mark()), _TOO_DEEP, "less")
        super().fetch_flow_collection_start(token)


_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def read_documents(text: str) -> list[Node]:
    """Every document of a text. Raises Invalid.

    The tree is built from parser events: no tag is resolved, and no alias is followed.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Invalid(
            SourcePosition(1, 1), f"it has more than {MAX_BYTES} bytes", "a shorter document"
        )
    try:
        return _build(yaml.parse(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        position = SourcePosition.of(error.problem_mark or error.context_mark)
        raise Invalid(position, _message_of(error), "YAML") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        position = SourcePosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise Invalid(position, "a character that YAML does not allow", "text") from None
    except (yaml.YAMLError, ValueError, OverflowError):
        # QUIRK: the scanner accepts \U00110000, which is not a character.
        raise Invalid(SourcePosition(1, 1), "this is not YAML", "YAML") from None


def _message_of(error: yaml.MarkedYAMLError) -> str:
    words = " ".join(part for part in (error.context, error.problem) if part)
    return re.sub(r"[\x00-\x1f\x7f]+", " ", words)[:200] or "this is not YAML"


def _build(events: Iterator[yaml.Event]) -> list[Node]:
    documents: list[Node] = []
    limited = _limited(events)
    for event in limited:
        if isinstance(event, yaml.NodeEvent):
            document = _read(event, limited, depth=0)
            if len(documents) >= MAX_DOCUMENTS:
                message = f"there are more than {MAX_DOCUMENTS} documents"
                raise Invalid(document.position, message, "fewer")
            documents.append(document)
    return documents


def _limited(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    for count, event in enumerate(events):
        if count > MAX_NODES:
            position = SourcePosition.of(event.start_mark)
            raise Invalid(position, f"there are more than {MAX_NODES} values", "fewer values")
        yield event


def _read(event: yaml.NodeEvent, events: Iterator[yaml.Event], *, depth: int) -> Node:
    """The node that begins with an event, with everything in it."""
    node = _node(event)
    if isinstance(node, Scalar):
        return node
    if depth >= MAX_DEPTH:
        raise Invalid(node.position, _TOO_DEEP, "less")
    key: Scalar | None = None
    while isinstance(following := next(events), yaml.NodeEvent):
        inner = _read(following, events, depth=depth + 1)
        if isinstance(node, Sequence):
            node.items.append(inner)
        elif key is None:
            key = _key(inner, node)
        else:
            node.items[key.text] = (key.position, inner)
            key = None
    return node


def _node(event: yaml.NodeEvent) -> Node:
    position = SourcePosition.of(event.start_mark)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise Invalid(position, "anchors (&) and aliases (*) are not allowed", "the value itself")
    if getattr(event, "tag", None) is not None:
        raise Invalid(position, "tags (!) are not allowed", "the value without its tag")
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(position, event.value, event.style is not None)
    return Sequence(position) if isinstance(event, yaml.SequenceStartEvent) else Mapping(position)


def _key(node: Node, mapping: Mapping) -> Scalar:
    if not isinstance(node, Scalar):
        raise Invalid(node.position, "a key must be a word", "a word")
    if node.text == "<<" and not node.is_quoted:
        raise Invalid(node.position, "merge keys (<<) are not allowed", "the keys themselves")
    if node.text in mapping.items:
        first = mapping.items[node.text][0]
        raise Invalid(
            node.position, f"duplicate key `{node.text[:50]}`, first in line {first.line}"
        )
    return node
