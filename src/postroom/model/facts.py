"""What a rule sees of a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from postroom.model.message import Direction


class Named(NamedTuple):
    """A name and an address, as they stood in a header."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class State:
    """What an action can change about a message without anybody else noticing."""

    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ("Inbox",)


@dataclass(frozen=True, slots=True)
class Head:
    """The headers of a message, and what they say about who sent it.

    `is_ours` marks what a rule has sent; `is_report` what speaks of another mail.
    """

    headers: tuple[tuple[str, str], ...] = ()
    list_id: str | None = None
    is_automatic: bool = False
    is_report: bool = False
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """A message as conditions look at it. `head` is None until somebody has read the headers.

    `folded_subject` and `folded_text` are in the form in which text is compared.
    """

    message_id: str
    inbox_id: str
    thread_id: str
    direction: Direction
    subject: str
    folded_subject: str
    senders: tuple[Named, ...]
    to: tuple[Named, ...]
    cc: tuple[Named, ...]
    date: datetime
    size_bytes: int
    state: State
    text: str = ""
    folded_text: str = ""
    files: tuple[tuple[str, str], ...] = ()
    has_attachment: bool = False
    auth: tuple[str, ...] = ()
    head: Head | None = None
    raw: str = ""
    number: int = field(default=0, compare=False)

    @property
    def sender(self) -> str:
        """The address it came from; empty if it names none."""
        return self.senders[0].address if self.senders else ""
