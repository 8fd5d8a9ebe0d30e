"""Accounts, messages and changes at their provider, and the networks of mail servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Literal, NamedTuple

from postroom.model.mail.message import INTERNAL
from postroom.model.values import dataclass

ProviderName = Literal["imap", "gmail", "outlook", "fastmail"]
PUBLIC_ONLY = "public_only"
"""The option of an account whose servers were named by a key, not by the owner."""

AccountState = Literal["new", "syncing", "ready", "failing", "needs_reauth"]


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A change of a message that its provider did not make: what, when and why."""

    at: datetime
    message_id: str
    change: dict[str, Any]
    detail: str


@dataclass(frozen=True, slots=True)
class Account:
    """A login at a provider, whose mail is synced with one inbox.

    `synced` counts the stored messages. `total` is what the provider counts, if it does,
    until all was read once; after that it would only be old. `detail` says what is wrong and what
    to do; `last_refusal` is what the provider refused last, which needs nothing to be done.
    """

    id: str
    provider: ProviderName
    address: str
    inbox_id: str
    state: AccountState
    detail: str
    synced: int
    total: int | None
    synced_at: datetime | None
    created_at: datetime
    last_refusal: RefusedChange | None = None
    options: dict[str, Any] = field(default_factory=dict, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The maximum rate of requests to a provider."""

    requests_per_second: int
    burst: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that one account, or the local inboxes, support.

    `has_labels` says whether labels reach the provider; if not, they are stored in Postroom only.
    """

    provider: str
    has_threading: bool
    has_server_side_rules: bool
    max_attachment_size_mb: int
    rate_limits: RateLimits
    has_labels: bool
    has_push: bool
    can_send: bool
    can_create_alias: bool
    account_id: str | None = None
    address: str | None = None
    state: str | None = None
    last_refusal: RefusedChange | None = None
    # Limits of the provider: a whole mail, its decoded files together, and the mail without them.
    mail_bytes: int | None = field(default=None, metadata=INTERNAL)
    files_bytes: int | None = field(default=None, metadata=INTERNAL)
    text_bytes: int | None = field(default=None, metadata=INTERNAL)
    # The id of the mailbox at the provider and its address, where known.
    owner: str | None = field(default=None, metadata=INTERNAL)
    owner_address: str | None = field(default=None, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class CapabilityReport(Capabilities):
    """The same, with every account that the caller may use."""

    accounts: tuple[Capabilities, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """An address to send from. The signature is sanitised HTML."""

    id: str
    email: str
    name: str
    signature: str
    inbox_id: str
    account_id: str | None
    is_default: bool


UNUSED_REDIRECT = "http://127.0.0.1:1/"
"""The redirect for a sign-in by pasting; nothing listens there."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """A sign-in in a browser that was started: the URL for the person, and its secrets."""

    url: str
    redirect: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeviceSignIn:
    """A sign-in on another device: the code to type, and where."""

    user_code: str
    url: str
    device_code: str = field(repr=False)
    interval_s: int = 5
    expires_s: int = 900


SLOW_DOWN_S = 5
"""How much longer to wait between two questions after `slow_down`."""

DeviceAnswer = Literal["authorization_pending", "slow_down"]
"""What a provider answers while a person has not signed in yet (RFC 8628 §3.5)."""


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """A sign-in that a person continues at `url`; `sign_in` identifies it, encrypted.

    With a `user_code` it is a sign-in on any device, which is asked about every `interval_s`.
    """

    sign_in: str
    provider: ProviderName
    account_id: str
    url: str
    user_code: str | None
    interval_s: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SignInProgress:
    """The account once a person has signed in; before that, the sign-in to continue."""

    account: Account | None
    started: StartedSignIn | None = None


Checkpoint = dict[str, Any]
"""How far an account was read, in terms of its provider; JSON."""


class RemoteRef(NamedTuple):
    """One place of a message at its provider.

    `key` is unique within `scope`: a mailbox with its UIDVALIDITY, a folder, or the whole account
    (an empty scope).
    """

    scope: str
    key: str


@dataclass(frozen=True, slots=True)
class RemoteMessage:
    """The state of a message at its provider.

    `labels` is None if the provider has no labels.
    """

    ref: RemoteRef
    mailboxes: tuple[str, ...]
    flags: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    arrived_at: datetime | None = None
    size_bytes: int = 0
    unsupported_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteChanges:
    """Changes at a provider, and the checkpoint after they are stored.

    `removed_scopes` are scopes that were removed with their messages. `total` is the number of all
    messages, where known. `is_partial` means that other mailboxes were not read: a message that is
    gone from one may be in another.
    """

    checkpoint: Checkpoint
    messages: tuple[RemoteMessage, ...] = ()
    removed: tuple[RemoteRef, ...] = ()
    removed_scopes: tuple[str, ...] = ()
    total: int | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Unfetched:
    """A message that could not be fetched, and the time of the next attempt."""

    ref: RemoteRef
    attempts: int
    next_at: datetime


@dataclass(frozen=True, slots=True)
class RemoteIdentity:
    """An address that the provider allows as sender."""

    email: str
    name: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Push:
    """A local change that has to be made at the provider.

    `refs` are the places of the message, each with its mailboxes. The draft of a mail that was not
    sent has none and is found by its Message-ID. `recipients` are those of a copy in Sent.
    """

    number: int
    message_id: str
    kind: Literal["change", "delete", "save_sent", "drop_draft"]
    refs: tuple[tuple[RemoteRef, tuple[str, ...]], ...] = ()
    add_flags: tuple[str, ...] = ()
    remove_flags: tuple[str, ...] = ()
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    move_to: str | None = None
    raw: str | None = None
    internet_message_id: str | None = None
    recipients: tuple[str, ...] = ()
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a push was abandoned, and the state of the message at the provider."""

    reason: str
    at: datetime
    remote_messages: tuple[RemoteMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class Pushed:
    """The places of a message that a push removed and added."""

    removed_refs: tuple[RemoteRef, ...] = ()
    added_refs: tuple[tuple[RemoteRef, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderTraits:
    """What a provider does automatically, and what it does not accept."""

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

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class AnyNetwork:
    """The owner named the server, so any address is allowed."""


@dataclass(frozen=True, slots=True)
class PublicNetworks:
    """A key named the server: public addresses with mail ports, and any port of these networks."""

    networks: tuple[Network, ...] = ()


NetworkPolicy = AnyNetwork | PublicNetworks
"""The networks that a connection to a mail server may go to."""

ANY_NETWORK = AnyNetwork()
