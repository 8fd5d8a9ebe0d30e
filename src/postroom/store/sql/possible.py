"""Changes as a provider can make them; what none can do is refused before anything is done."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from postroom.errors import InvalidInput
from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, SENT, STANDARD_MAILBOXES
from postroom.model.stored import Change
from postroom.store.sql.pushes import Delta, Origin
from postroom.store.sql.values import caseless

_STANDARD = {caseless(name): name for name in STANDARD_MAILBOXES}
_GMAIL_OWN = frozenset(
    ("inbox", "sent", "draft", "spam", "trash", "chat", "unread", "starred", "important")
)
"""Labels of Gmail that nobody else can make (Gmail API, "Manage labels")."""

_UNPRINTABLE = ("Cc", "Zl", "Zp")


def as_provider_has_it(origin: Origin, change: Change) -> Change:
    """A change as the provider will make it: in Gmail, mailboxes of one's own are labels."""
    destination = change.move_to
    if destination is None:
        return change
    standard = _STANDARD.get(caseless(destination))
    if standard is not None:
        return replace(change, move_to=standard)
    _refuse_name(destination)
    if origin.provider != "gmail":
        return change
    labels = (*change.add_labels, destination)
    return replace(change, add_labels=labels, move_to=ARCHIVE)


def after_move(origin: Origin, present: Sequence[str], destination: str) -> tuple[str, ...]:
    """Where a message is once it was moved: what Gmail has sent stays in Sent as well."""
    if origin.provider == "gmail" and SENT in present and destination in (ARCHIVE, INBOX, SENT):
        return (INBOX, SENT) if destination == INBOX else (SENT,)
    return (destination,)


def _refuse_name(name: str) -> None:
    """Refuse a name that no mailbox can have. Raises InvalidInput."""
    if not all(part.strip() for part in name.split("/")):
        raise InvalidInput(f"no mailbox can be called {name!r}: / stands between two names")
    if any(unicodedata.category(letter) in _UNPRINTABLE for letter in name):
        raise InvalidInput(f"no mailbox can be called {name!r}: take out the control characters")


def refuse_impossible(origin: Origin, delta: Delta) -> None:
    """Refuse what the provider would not do, or would do by losing the message.

    Raises:
        InvalidInput: says what to do instead.
    """
    if delta.move_to == DRAFTS:
        raise InvalidInput(
            "Drafts is for mail that is still being written, and what is in it is no message here; "
            "choose another mailbox, or write a new mail with create_draft"
        )
    if origin.provider in ("gmail", "outlook") and "draft" in delta.add_flags:
        raise InvalidInput(f"{origin.provider} keeps no flag draft on a message; leave it out")
    if origin.provider == "gmail":
        _refuse_at_gmail(delta)


def _refuse_at_gmail(delta: Delta) -> None:
    if delta.move_to == SENT:
        raise InvalidInput(
            "Gmail lets nobody move mail to Sent; what was sent is there already; Archive takes a "
            "message out of Inbox"
        )
    for label in delta.add_labels:
        folded = caseless(label)
        if folded in _GMAIL_OWN or folded.startswith("category_"):
            raise InvalidInput(
                f"{label} is a label of Gmail's own; choose another name, or use move_message "
                "(Inbox, Junk, Trash) or the flags (seen, flagged)"
            )
        if not all(part.strip() for part in label.split("/")):
            raise InvalidInput(f"no label of Gmail can be called {label!r}: / nests labels")
