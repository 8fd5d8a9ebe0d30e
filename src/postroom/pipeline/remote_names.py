"""Names as providers write them, made fit to be kept: they may be anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from postroom.errors import InvalidInput
from postroom.mail.typed import parse_own_address
from postroom.model.inbox import ARCHIVE
from postroom.model.remote import RemoteIdentity, RemoteMessage

_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
_MOST_LABEL = 128
_MOST_NAME = 256
_MOST_KEY = 2_000
_MOST_LABELS = 100


def storable(messages: Sequence[RemoteMessage]) -> tuple[RemoteMessage, ...]:
    """Messages whose names can be kept; one whose place has no name we can keep is left out."""
    return tuple(_named(message) for message in messages if _is_placed(message))


def _is_placed(message: RemoteMessage) -> bool:
    name = message.ref.scope + message.ref.key
    return "\x00" not in name and _is_text(name) and len(name.encode()) <= _MOST_KEY


def _named(message: RemoteMessage) -> RemoteMessage:
    mailboxes = _names(message.mailboxes, _MOST_NAME) or (ARCHIVE,)
    labels = None
    if message.labels is not None:
        labels = _names(message.labels, _MOST_LABEL)[:_MOST_LABELS]
    if (mailboxes, labels) == (message.mailboxes, message.labels):
        return message
    return replace(message, mailboxes=mailboxes, labels=labels)


def _names(names: Iterable[object], most: int) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for name in names:
        if kept := name_in(name, most):
            found.setdefault(kept.casefold(), kept)
    return tuple(found.values())


def name_in(name: object, most: int = _MOST_NAME) -> str:
    """A name on one line and not too long, perhaps with replacement characters."""
    text = str(name) if _is_text(str(name)) else str(name).encode("utf-8", "replace").decode()
    kept = _CONTROLS.sub("", text)[:most]
    return kept if kept.strip() else ""


def is_identity(found: RemoteIdentity) -> bool:
    """Whether one can send from this address."""
    try:
        return parse_own_address(found.email) == ("", found.email) and _is_text(found.signature)
    except (InvalidInput, AttributeError, TypeError):
        return False


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
