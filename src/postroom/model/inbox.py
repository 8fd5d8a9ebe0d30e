"""Inboxes, labels, and rights to addresses."""

from __future__ import annotations

from datetime import datetime

from postroom.model.values import dataclass
from postroom.model.view import View

STANDARD_MAILBOXES = ("Inbox", "Sent", "Drafts", "Archive", "Junk", "Trash", "Outbox")
INBOX, SENT, DRAFTS, ARCHIVE, JUNK, TRASH, OUTBOX = STANDARD_MAILBOXES
HIDDEN_MAILBOXES = (JUNK, TRASH)
"""Excluded from lists, searches and counts unless a mailbox is named."""

WELL_KNOWN_MAILBOXES = {
    **{name.lower(): name for name in STANDARD_MAILBOXES},
    "draft": DRAFTS,
    **dict.fromkeys(("sent items", "sent messages", "sent mail", "sent-mail"), SENT),
    **dict.fromkeys(("all mail", "archived", "archives"), ARCHIVE),
    **dict.fromkeys(("spam", "junk e-mail", "junk email", "junk mail", "bulk mail"), JUNK),
    **dict.fromkeys(("deleted items", "deleted messages", "deleted", "bin"), TRASH),
}
"""The standard mailboxes and what other programs call them, in lower case."""

_GMAIL = ("[gmail]/", "[google mail]/")


def standard_mailbox(name: str) -> str | None:
    """The standard mailbox that a name means: Trash for `[Gmail]/Bin`; None for other names."""
    bare = name.strip().lower()
    for prefix in _GMAIL:
        bare = bare.removeprefix(prefix)
    return WELL_KNOWN_MAILBOXES.get(bare)


EVERY_MAILBOX = "*"

Visible = View
"""The ids of the inboxes that a caller may see."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """An address whose mail is stored for an agent; local, or synced from an account."""

    id: str
    address: str
    name: str
    account_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A folder of an inbox, and how many messages are in it; `unread` have no flag `seen`."""

    inbox_id: str
    name: str
    total: int
    unread: int


@dataclass(frozen=True, slots=True)
class Label:
    """A label, and how many of the caller's messages have it.

    `unread` have no flag `seen`.
    """

    name: str
    message_count: int
    unread: int


@dataclass(frozen=True, slots=True)
class AddressRights:
    """Which addresses an inbox may get, besides its own plus-addresses.

    `reserved_names` speak for the domain; `business_names` are those of them that do not prove its
    ownership (info, marketing, sales, support). `tags_of_others` are plus-addresses of another
    inbox, which would lose their mail. Without `other_addresses`, only its own tags are allowed.
    """

    reserved_names: bool = False
    business_names: bool = False
    tags_of_others: bool = False
    other_addresses: bool = True


OWNERS_RIGHTS = AddressRights(reserved_names=True, tags_of_others=True)


@dataclass(frozen=True, slots=True)
class QuestionableAddress:
    """An existing address that the current rules would refuse.

    `belongs_to` is the inbox address of which it is a plus-address; None if the name is reserved.
    """

    email: str
    identity_id: str
    inbox_id: str
    account_id: str | None
    belongs_to: str | None = None
