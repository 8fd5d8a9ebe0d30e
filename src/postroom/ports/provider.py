"""Outside systems: accounts at providers, vault, senders, inbound mail, webhooks, embeddings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from postroom.model.account import (
    Account,
    Capabilities,
    Checkpoint,
    DeviceAnswer,
    DeviceSignIn,
    Push,
    Pushed,
    RemoteChanges,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
    SignIn,
)
from postroom.model.event import WebhookResponse
from postroom.model.mail.sending import Envelope, Outcome
from postroom.model.memory import Vector
from postroom.model.values import dataclass

Secret = Mapping[str, str]
"""The login of an account: a password, or tokens."""


class Vault(Protocol):
    """Stores secrets. A write replaces the whole secret atomically."""

    def read(self, name: str) -> Secret | None: ...
    def write(self, name: str, secret: Secret) -> None: ...
    def remove(self, name: str) -> None: ...
    def renewal_lock(self, name: str) -> AbstractContextManager[None]:
        """A lock for replacing a secret, across processes."""


Accepted = Callable[[Sequence[str]], Awaitable[None]]
"""Called with the accepted recipients before the content is transmitted: an interruption after that
leaves it unknown whether the relay has the mail."""


class Sender(Protocol):
    """Transmits mail, and never repeats it automatically."""

    async def transmit(
        self, envelope: Envelope, raw: bytes, accepted: Accepted
    ) -> Mapping[str, Outcome]:
        """Transmit one mail; return the outcome of each recipient. Does not raise."""

    async def close(self) -> None:
        """Close the connection."""


class StoredRefs(Protocol):
    """What is stored of an account, for providers that do not report removals."""

    async def scopes(self) -> frozenset[str]: ...
    async def keys(self, scope: str) -> frozenset[str]: ...
    async def labels(self) -> frozenset[str]: ...


class Provider(Protocol):
    """One account, logged in.

    Every method raises ProviderError or a subclass if the provider fails, ProviderAuthFailed if it
    refuses the login, and RateLimited if it asks to wait.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What this account can do; known after `check`."""

    async def check(self) -> None:
        """Log in and find out what the account can do."""

    def changes(
        self, since: Checkpoint | None, known: StoredRefs
    ) -> AsyncGenerator[RemoteChanges, None]:
        """What changed since a checkpoint, newest first; with None, everything.

        Each part is complete: after it is stored, a pass can continue from its checkpoint.
        """

    def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        """The raw messages, as they are received; removed ones are left out."""

    async def push(self, push: Push) -> Pushed:
        """Apply a local change at the provider; may be repeated without harm."""

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        """Add a copy of a mail to Sent, unless it is there already."""

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        """The current state of these messages; removed ones are left out."""

    async def identities(self) -> list[RemoteIdentity]:
        """The addresses one may send from, the account's own first."""

    async def close(self) -> None:
        """Close connections."""


@runtime_checkable
class SupportsPush(Protocol):
    """Reports changes without being polled."""

    async def wait(self) -> None:
        """Return when something may have changed, or when the connection must be renewed."""


@runtime_checkable
class SupportsAliases(Protocol):
    """Can add addresses to send from."""

    async def create_alias(self, identity: RemoteIdentity) -> RemoteIdentity:
        """Create an address. Raises ProviderError with the reason of the provider."""


class Providers(Protocol):
    """Opens accounts."""

    def open(self, account: Account) -> AbstractAsyncContextManager[Provider]:
        """An account, not connected yet. Raises ProviderAuthFailed if its secret is missing."""

    def sender(self, account: Account) -> Sender:
        """The sender for mail of this account."""

    async def check(self, account: Account, secret: Secret | None) -> Capabilities:
        """Log in with this secret or the stored one; return what the account can do."""

    async def create_alias(self, account: Account, alias: RemoteIdentity) -> RemoteIdentity:
        """Create an address to send from at the provider."""

    def has_secret(self, account_id: str) -> bool:
        """Whether a secret of the account is stored on this machine, valid or not."""

    def login_fingerprint(self, account_id: str) -> str | None:
        """A text that changes with the stored login and does not reveal it; None without one."""

    def store_secret(self, account_id: str, secret: Secret) -> None:
        """Store the secret of an account, replacing the one before.

        This and `remove_secret` may block while it is being renewed: call them in a thread.
        """

    def remove_secret(self, account_id: str) -> None: ...

    def start_sign_in(
        self,
        provider: str,
        scopes: Sequence[str],
        redirect: str,
        state_of: Callable[[str], str],
    ) -> SignIn:
        """Start a sign-in in a browser that may be on another machine.

        *state_of* makes its state from the code verifier. With UNUSED_REDIRECT, the person pastes
        the address on which the browser ends. Raises InvalidInput if no client is configured.
        """

    async def finish_sign_in(
        self, provider: str, scopes: Sequence[str], sign_in: SignIn, pasted: str
    ) -> Secret:
        """The tokens for the address on which the browser ended, or for the code in it."""

    async def start_device_sign_in(self, provider: str, scopes: Sequence[str]) -> DeviceSignIn:
        """Start a sign-in on another device."""

    async def poll_device_sign_in(
        self, provider: str, scopes: Sequence[str], device_code: str
    ) -> Secret | DeviceAnswer:
        """Ask once whether the person has signed in."""


@dataclass(frozen=True, slots=True)
class InboundRequest:
    """A request of the provider: headers by lower-case name, body, and time of arrival."""

    headers: Mapping[str, str]
    body: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class InboundMail:
    """A mail of a posting, and the addresses it may be for."""

    raw: bytes
    recipients: tuple[str, ...]


class Inbound(Protocol):
    """Reads the postings of one provider."""

    def max_bytes(self, headers: Mapping[str, str], at: datetime) -> int | None:
        """The maximum size of the body with these headers; None if there is no maximum.

        Raises:
            Unauthenticated: the headers show that it is not from the provider.
        """

    async def read(self, request: InboundRequest) -> Sequence[InboundMail]:
        """The mails of a posting; none if it is about something else.

        Raises:
            Unauthenticated: it is not from the provider, or too old.
            Malformed: it is not in the documented form.
            ProviderError: what it refers to cannot be fetched.
        """


class Fetcher(Protocol):
    """Fetches a URL of a provider."""

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        """The whole response; redirects are not followed. Raises ProviderError."""


class Bucket(Protocol):
    """Where a provider stores mail that is too large for a posting."""

    @property
    def name(self) -> str:
        """The name of the bucket."""

    async def read(self, key: str) -> bytes:
        """A whole mail. Raises InvalidInput, TooLarge, ProviderError."""


class Leases(Protocol):
    """Names that one holder can have at a time."""

    async def claim(self, name: str, holder: str, *, now: datetime, lifetime: timedelta) -> bool:
        """Take or renew a lease; False while another holder has it."""


class WebhookClient(Protocol):
    """Posts to untrusted servers."""

    def check(self, url: str) -> None:
        """Raise InvalidInput if the URL is not permitted."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Post once; redirects are not followed. Does not raise."""

    def public(self) -> WebhookClient:
        """A client for URLs that a sender of mail names: it connects to no private network."""


class Embedder(Protocol):
    """Computes vectors of texts; similar texts have similar vectors.

    `model` names the model: vectors of two models cannot be compared.
    """

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text.

        Raises:
            ProviderError: the endpoint failed.
        """

    async def close(self) -> None:
        """Close connections."""
