"""Callers and what they may do; OAuth clients, and tokens of grants, which are keys; sessions."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from postroom.model.inbox import Visible
from postroom.model.mail.approval import OPEN_POLICY, Approval, Policy, RecipientLists
from postroom.model.mail.message import INTERNAL
from postroom.model.memory import Namespaces
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING, NOTHING, View


class Scope(StrEnum):
    """What a key allows. No scope includes another."""

    READ = "read"
    WRITE = "write"
    SEND = "send"
    ADMIN = "admin"
    APPROVE = "approve"


ALL_SCOPES = frozenset(Scope) - {Scope.APPROVE}
"""What the owner's key may do. Only a person approves mail, or a key that does nothing else."""

MIN_KEY_CHARS = 20
"""A shorter key could be guessed."""


@dataclass(frozen=True, slots=True)
class Key:
    """A caller with scopes. `key` is the secret itself, shown once, when it is made.

    A key that is limited to inboxes or accounts has no namespaces but those that it names, whenever
    it was made: memories hold what came out of any mail.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    inboxes: View
    namespaces: View
    accounts: View
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None = None
    key: str | None = field(default=None, kw_only=True, repr=False)
    approval: Approval = field(default="never", kw_only=True)
    recipients: RecipientLists = field(default=RecipientLists(), kw_only=True)
    signed_in: bool | None = field(default=None, kw_only=True)
    """Whether the OAuth client of a grant has a valid token; None for keys that are no grant."""
    former_inboxes: tuple[str, ...] = field(default=(), kw_only=True, metadata=INTERNAL)
    """The inboxes that it could see before they were removed."""
    client_id: str | None = field(default=None, kw_only=True, metadata=INTERNAL)
    """The OAuth client of a grant. Nobody has the secret of a grant: its tokens stand for it."""
    resource: str | None = field(default=None, kw_only=True, metadata=INTERNAL)
    """What an access token is for, if one stands for the key; it opens nothing else."""

    def has_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def __post_init__(self) -> None:
        is_unlimited = self.inboxes == EVERYTHING and self.accounts == EVERYTHING
        if not is_unlimited and self.namespaces == EVERYTHING:
            object.__setattr__(self, "namespaces", NOTHING)

    @property
    def policy(self) -> Policy:
        """What its mail needs before it leaves."""
        return Policy(self.approval, self.recipients)


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What to change of a key; None leaves it as it is. `never_expires` clears the expiry."""

    name: str | None = None
    expires_at: datetime | None = None
    never_expires: bool = False
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request. `key_id` selects the rate limits and idempotency keys.

    `is_owner` distinguishes the owner from an agent with the owner's rights. `is_local` is the
    person at the terminal, who may use this machine and its network. `secret_hash` finds the key
    again while it exists, and `expires_at` is when it ends.
    """

    key_id: str
    scopes: frozenset[Scope] = ALL_SCOPES
    inboxes: Visible = field(kw_only=True)
    accounts: View = field(kw_only=True)
    namespaces: Namespaces = field(kw_only=True)
    is_metered: bool = True
    is_owner: bool = False
    is_local: bool = False
    expires_at: datetime | None = None
    secret_hash: bytes | None = field(default=None, repr=False, compare=False)
    policy: Policy = OPEN_POLICY
    for_keys: tuple[str, ...] = ()
    """The keys that a rule acts for; empty for a caller who acts for themselves."""

    @property
    def is_agent(self) -> bool:
        """Whether this is the agent without its own key."""
        return self.key_id == AGENT_ID

    @property
    def sees_everything(self) -> bool:
        """Whether no inbox, account or namespace is hidden from the caller."""
        return self.inboxes == self.accounts == self.namespaces == EVERYTHING

    @property
    def authors(self) -> tuple[str, ...]:
        """The ids of the keys whose policies hold for the mail of this caller."""
        return self.for_keys or (self.key_id,)


AGENT_ID = "agent"

OWNER = Caller(
    key_id="owner",
    scopes=ALL_SCOPES | {Scope.APPROVE},
    inboxes=EVERYTHING,
    accounts=EVERYTHING,
    namespaces=EVERYTHING,
    is_metered=False,
    is_owner=True,
    is_local=True,
)
"""The person at the terminal."""

AGENT = Caller(key_id=AGENT_ID, inboxes=EVERYTHING, accounts=EVERYTHING, namespaces=EVERYTHING)
"""The agent on stdio, and any caller where no key is required: it has the rights of the owner, the
rate limits of a key, and not the owner's trust."""

NOTICES = Caller(
    key_id="notices",
    scopes=frozenset({Scope.SEND}),
    inboxes=EVERYTHING,
    accounts=NOTHING,
    namespaces=NOTHING,
)
"""Tells the owner of held mail, in our own words; no request has this caller."""

NOBODY = Caller(
    key_id="nobody", scopes=frozenset(), inboxes=NOTHING, accounts=NOTHING, namespaces=NOTHING
)
"""A caller without rights."""

INBOUND_CALLER = Caller(
    key_id="inbound",
    scopes=frozenset({Scope.WRITE}),
    inboxes=EVERYTHING,
    accounts=NOTHING,
    namespaces=NOTHING,
)
"""An inbound webhook, which is authenticated by its signature and not by a key."""


@dataclass(frozen=True, slots=True)
class WebSession:
    """A person who is signed in to the web pages, in one browser.

    `key_hash` finds the key they signed in with; None if they came by a link from the terminal.
    """

    id: str
    key_id: str
    user_agent: str
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    key_hash: bytes | None = field(default=None, repr=False, metadata=INTERNAL)


TokenKind = Literal["code", "access", "refresh"]

ACCESS_LIFETIME_S, REFRESH_LIFETIME_S = 3_600, 2_592_000
"""How long an access token is valid, and a refresh token that is not used, unless set."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """A program that asks for access.

    Its `id` is the URL of its metadata document, which then says its name and `redirect_uris`, or
    the id that it got when it registered itself.
    """

    id: str
    name: str
    redirect_uris: tuple[str, ...]

    @property
    def is_verified(self) -> bool:
        """Whether a document at its own host describes it. Anybody can register with any name."""
        return is_document_url(self.id)


def is_document_url(client_id: str) -> bool:
    """Whether a client is named by the URL of its metadata document."""
    return client_id.startswith("https://")


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """A code or token of the grant `key_id`, for one client and one resource (RFC 8707).

    A code also has the redirect URI and the code challenge of its request (RFC 7636).
    """

    kind: TokenKind
    key_id: str
    client_id: str
    resource: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None = None
    redirect_uri: str | None = None
    code_challenge: str | None = None


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What the token endpoint answers with."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_in_s: int
    scopes: tuple[str, ...]
