"""A message in which everything that an agent does not get is marked."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from postroom.model.message import INTERNAL
from postroom.model.values import dataclass

MarkKind = Literal["hidden", "invisible", "pixel", "picture", "quoted", "signature"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that an agent does not get: where it stands (`number`), what, and why.

    `is_given` says that the same words are in the text that the agent gets, by another way.
    """

    number: int
    kind: MarkKind
    label: str
    reason: str = ""
    chars: int = 0
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a text; `mark` is set if an agent does not get it.

    Only the first piece of a mark `is_first`, and carries its label.
    """

    text: str
    mark: Mark | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class MarkedMessage:
    """A message as a browser shows it, with marks; `html` is empty if it has none.

    `plain` is the plain text, if that is what the agent gets, and `marks` are those of both.
    """

    html: str
    plain: tuple[TextPiece, ...]
    marks: tuple[Mark, ...]
    message_id: str = field(default="", metadata=INTERNAL)
