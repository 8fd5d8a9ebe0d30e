"""How each provider treats mail, where the stored mail has to follow it.

These hold for a provider, whatever the account; what one account can do is in `Capabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from postroom.model.account import ProviderName


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """What a provider does by itself, and what it does not accept."""

    title: str

    has_draft_flag: bool = True
    """The flag `draft` can be set on a message."""

    mailboxes_are_labels: bool = False
    """A mailbox other than the standard ones is a label on archived mail; sent mail stays in Sent
    wherever else it is, and nothing can be moved to Sent."""

    reserved_labels: frozenset[str] = frozenset()
    reserved_label_prefixes: tuple[str, ...] = ()
    """Labels of the provider's own, in lower case, which nobody else can add."""

    copies_to_sent: bool = True
    """The provider puts a copy of each mail that it sends into Sent."""

    sends_from_drafts: bool = False
    """A mail is in Drafts until the provider has sent it."""

    sends_sent_copy: bool = False
    """A copy that is in Sent already is the mail that the provider sends."""


TRAITS: Mapping[ProviderName, ProviderTraits] = {
    "imap": ProviderTraits("IMAP", copies_to_sent=False),
    "gmail": ProviderTraits(
        "Gmail",
        has_draft_flag=False,
        mailboxes_are_labels=True,
        # Gmail API, "Manage labels"
        reserved_labels=frozenset(
            ("inbox", "sent", "draft", "spam", "trash", "chat", "unread", "starred", "important")
        ),
        reserved_label_prefixes=("category_",),
    ),
    "outlook": ProviderTraits("Outlook", has_draft_flag=False, sends_from_drafts=True),
    "fastmail": ProviderTraits("Fastmail", sends_from_drafts=True, sends_sent_copy=True),
}
