"""From an account to its provider: the port `Providers`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import Conflict, FeatureDisabled, MailError, ProviderAuthFailed, ProviderError
from postroom.model.account import Account, Capabilities, RateLimits
from postroom.model.remote import RemoteIdentity
from postroom.ports.provider import MakesAliases, Provider
from postroom.ports.sender import Sender
from postroom.ports.vault import Secret, Vault
from postroom.providers.encoded import attachment_mb

if TYPE_CHECKING:
    from postroom.model.imap import ImapAccount
    from postroom.providers.gmail.client import GmailClient
    from postroom.providers.graph.client import GraphClient
    from postroom.providers.jmap.provider import JmapProvider
    from postroom.providers.oauth.signing_in import Client
    from postroom.providers.smtp.relay import SmtpRelay
    from postroom.providers.web.api import Api, Authorizer, Pace


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Where the providers are and who we are there; settings, so that they can be elsewhere."""

    gmail: str
    gmail_login: str
    gmail_token: str
    outlook: str
    outlook_login: str
    fastmail: str
    gmail_client_id: str | None = None
    gmail_client_secret: str | None = field(default=None, repr=False)
    outlook_client_id: str | None = None


@dataclass(frozen=True)
class Accounts:
    """Opens accounts with the secrets of the vault, which is opened when it is needed first."""

    folder: Path
    kind: str
    endpoints: Endpoints
    message_bytes: int
    _paces: dict[tuple[str, str], Pace] = field(default_factory=dict)

    @cached_property
    def vault(self) -> Vault:
        from postroom.providers.vault.keyrings import open_vault

        return open_vault(self.folder, self.kind)

    def secret(self, account: Account) -> Secret:
        """What logs an account in. Raises ProviderAuthFailed."""
        secret = self.vault.read(account.id)
        if secret is None:
            raise ProviderAuthFailed(f"{account.id}: there is no password or token for it here")
        return secret

    def without_secret(self, account_ids: Iterable[str]) -> tuple[str, ...]:
        """Those of the accounts that nothing here logs in."""
        return tuple(account_id for account_id in account_ids if not self._has_secret(account_id))

    def _has_secret(self, account_id: str) -> bool:
        try:
            return self.vault.read(account_id) is not None
        except MailError:
            return False

    @asynccontextmanager
    async def open(self, account: Account) -> AsyncIterator[Provider]:
        provider = self.provider(account)
        try:
            yield provider
        finally:
            await provider.close()

    def provider(self, account: Account, secret: Secret | None = None) -> Provider:
        """The account, with its own secret or one that is not in the vault yet."""
        if account.provider == "imap":
            from postroom.providers.imap.account import ATTACHMENT_MB, ImapProvider

            return ImapProvider(
                _imap(account, secret or self.secret(account)),
                account.address,
                can_send=_may_send(account),
                message_bytes=self.message_bytes,
                attachment_mb=account.options.get("attachment_mb", ATTACHMENT_MB),
                mail_bytes=account.options.get("mail_bytes"),
            )
        can_send = _may_send(account)
        if account.provider == "gmail":
            from postroom.providers.gmail.provider import GmailProvider

            return GmailProvider(self._gmail(account, secret), account.address, can_send)
        if account.provider == "outlook":
            from postroom.providers.graph.provider import GraphProvider

            return GraphProvider(self._graph(account, secret), account.address, can_send)
        return self._jmap(account, secret)

    def sender(self, account: Account) -> Sender:
        if not _may_send(account):
            raise Conflict(f"{account.id}: it was not signed in for sending")
        if account.provider == "imap":
            return _smtp(account, self.secret(account))
        if account.provider == "gmail":
            from postroom.providers.gmail.sender import GmailSender

            return GmailSender(self._gmail(account, None))
        if account.provider == "outlook":
            from postroom.providers.graph.sender import GraphSender

            return GraphSender(self._graph(account, None))
        from postroom.providers.jmap.sender import JmapSender

        return JmapSender(self._jmap(account, None))

    def _gmail(self, account: Account, secret: Secret | None) -> GmailClient:
        from postroom.providers.gmail.client import GmailClient
        from postroom.providers.gmail.provider import RATES

        tokens = self._tokens(account, secret)
        return GmailClient(self._api(account, self.endpoints.gmail, tokens, RATES))

    def _graph(self, account: Account, secret: Secret | None) -> GraphClient:
        from postroom.providers.graph.client import GraphClient
        from postroom.providers.graph.provider import RATES

        tokens = self._tokens(account, secret)
        return GraphClient(self._api(account, self.endpoints.outlook, tokens, RATES))

    def _jmap(self, account: Account, secret: Secret | None) -> JmapProvider:
        from postroom.providers.jmap.client import JmapClient
        from postroom.providers.jmap.provider import RATES, JmapProvider
        from postroom.providers.web.api import Fixed

        given = secret or self.secret(account)
        said = f"Bearer {given['password']}"
        if account.options.get("basic"):
            pair = f"{account.options['user']}:{given['password']}".encode()
            said = f"Basic {b64encode(pair).decode()}"
        client = JmapClient(self._api(account, self.endpoints.fastmail, Fixed(said), RATES))
        return JmapProvider(client, account.address, wants_to_send=_may_send(account))

    def _api(self, account: Account, url: str, authorizer: Authorizer, rates: RateLimits) -> Api:
        """The account's API. What reads it and what sends for it wait together."""
        from postroom.providers.web.api import MOST_BYTES, Api, Pace

        pace = self._paces.setdefault((account.provider, account.address), Pace(rates))
        # A mail may come as text of base64, with a little around it.
        most = max(MOST_BYTES, self.message_bytes * 4 // 3 + 2**20)
        return Api(account.id, url, authorizer, rates, pace=pace, most_bytes=most)

    def _tokens(self, account: Account, secret: Secret | None) -> Authorizer:
        """The tokens of the vault, which are renewed, or some that are only tried."""
        from postroom.providers.oauth.signing_in import refresh
        from postroom.providers.oauth.tokens import Tokens
        from postroom.providers.web.api import Fixed

        if secret is not None:
            return Fixed(f"Bearer {secret['access_token']}")
        client = self.oauth_client(account.provider, account.options.get("scopes", ()))
        return Tokens(self.vault, account.id, lambda token: refresh(client, token))

    def oauth_client(self, provider: str, scopes: Iterable[str]) -> Client:
        """Who we are where one signs in to this provider. Raises InvalidInput."""
        from postroom.providers.oauth import clients

        where = self.endpoints
        if provider == "gmail":
            return clients.google(
                where.gmail_login,
                where.gmail_token,
                where.gmail_client_id,
                where.gmail_client_secret,
                scopes,
            )
        return clients.microsoft(where.outlook_login, where.outlook_client_id, scopes)

    def live(self, account: Account) -> ImapAccount | None:
        """The account for whoever works on it live; None without its secret."""
        secret = self.vault.read(account.id)
        return _imap(account, secret) if secret else None

    async def check(self, account: Account, secret: Secret | None) -> Capabilities:
        provider = self.provider(account, secret)
        try:
            await provider.check()
            found = provider.capabilities
        finally:
            await provider.close()
        if account.provider != "imap" or not found.can_send:
            return found
        from postroom.providers.imap.account import ATTACHMENT_MB

        relay = _smtp(account, secret or self.secret(account))
        takes = await relay.check(account.id)
        if takes is None:
            return replace(found, max_attachment_size_mb=ATTACHMENT_MB, mail_bytes=None)
        return replace(found, max_attachment_size_mb=attachment_mb(takes), mail_bytes=takes)

    async def create_alias(self, account: Account, alias: RemoteIdentity) -> RemoteIdentity:
        async with self.open(account) as provider:
            if not isinstance(provider, MakesAliases):
                raise FeatureDisabled(f"{account.id}: its provider makes no addresses")
            return await provider.create_alias(alias)

    def has_secret(self, account_id: str) -> bool:
        try:
            return self.vault.read(account_id) is not None
        except MailError:
            return True  # whoever uses it is told what is wrong with it

    def login_mark(self, account_id: str) -> str | None:
        secret = self.vault.read(account_id)
        if secret is None:
            return None
        return sha256(repr(sorted(secret.items())).encode()).hexdigest()

    def keep_secret(self, account_id: str, secret: Secret) -> None:
        with self.vault.renewing(account_id):
            self.vault.write(account_id, secret)

    def forget_secret(self, account_id: str) -> None:
        with self.vault.renewing(account_id):
            self.vault.remove(account_id)


def _may_send(account: Account) -> bool:
    """Whether sending was asked for at the sign-in, and there is a way out."""
    options = account.options
    has_way = account.provider != "imap" or bool(options.get("smtp_host"))
    return has_way and "send" in options.get("scopes", ["send"])


def _imap(account: Account, secret: Secret) -> ImapAccount:
    from postroom.model.imap import ImapAccount

    options = account.options
    return ImapAccount(
        account_id=account.id,
        host=options["host"],
        user=options["user"],
        secret=secret["password"],
        port=options["port"],
        security=options["security"],
        ca_file=_path(options.get("ca_file")),
        is_unverified=bool(options.get("insecure")) and not options.get("ca_file"),
    )


def _smtp(account: Account, secret: Secret) -> SmtpRelay:
    from postroom.providers.smtp.relay import SmtpRelay
    from postroom.providers.smtp.url import RelayAddress, is_loopback

    options = account.options
    if options["smtp_security"] == "none" and not is_loopback(options["smtp_host"]):
        raise ProviderError(
            f"{account.id}: its SMTP server would get the password in the clear; remove the "
            "account and add it with smtp_security tls or starttls"
        )
    address = RelayAddress(
        host=options["smtp_host"],
        port=options["smtp_port"],
        security=options["smtp_security"],
        username=options.get("smtp_user") or None,
        password=secret.get("smtp_password") or secret["password"],
        ca_file=_path(options.get("ca_file")),
    )
    return SmtpRelay(address, account.address.rpartition("@")[2])


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
