"""Opens the provider and the sender of an account: the port `Providers`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import Conflict, FeatureDisabled, MailError, ProviderAuthFailed, ProviderError
from postroom.model.account import (
    ANY_NETWORK,
    PUBLIC_ONLY,
    Account,
    AnyNetwork,
    Capabilities,
    DeviceAnswer,
    DeviceSignIn,
    Network,
    NetworkPolicy,
    PublicNetworks,
    RateLimits,
    RemoteIdentity,
    SignIn,
)
from postroom.model.limits import attachment_mb
from postroom.model.values import dataclass
from postroom.ports.provider import Provider, Secret, Sender, SupportsAliases, Vault

if TYPE_CHECKING:
    from postroom.model.imap import ImapAccount
    from postroom.providers.oauth_client import Client
    from postroom.providers.smtp_relay import SmtpRelay
    from postroom.providers.web.api import Api, Authorizer, RateLimiter
    from postroom.providers.web.gmail_client import GmailClient
    from postroom.providers.web.graph_client import GraphClient
    from postroom.providers.web.jmap import JmapProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """URLs and OAuth clients of the providers, from the settings."""

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
    """Opens accounts with the secrets of the vault, which is opened on first use."""

    folder: Path
    kind: str
    endpoints: Endpoints
    message_bytes: int
    allowed: tuple[Network, ...] = ()
    key_file: Path | None = None
    _limiters: dict[tuple[str, str], RateLimiter] = field(default_factory=dict)

    @cached_property
    def vault(self) -> Vault:
        from postroom.providers.vault import open_vault

        return open_vault(self.folder, self.kind, self.key_file)

    def secret(self, account: Account) -> Secret:
        """The login of an account. Raises ProviderAuthFailed."""
        secret = self.vault.read(account.id)
        if secret is None:
            raise ProviderAuthFailed(f"{account.id}: no password or token is stored here")
        return secret

    def without_secret(self, account_ids: Iterable[str]) -> tuple[str, ...]:
        """The accounts whose secret is not stored here, or cannot be read."""
        return tuple(one for one in account_ids if not self._has_secret(one, if_unreadable=False))

    def _has_secret(self, account_id: str, *, if_unreadable: bool) -> bool:
        try:
            return self.vault.read(account_id) is not None
        except MailError:
            return if_unreadable

    @asynccontextmanager
    async def open(self, account: Account) -> AsyncIterator[Provider]:
        provider = self.provider(account)
        try:
            yield provider
        finally:
            await provider.close()

    def provider(self, account: Account, secret: Secret | None = None) -> Provider:
        """The provider of an account, with its stored secret or one that is not stored yet."""
        can_send = _may_send(account)
        if account.provider == "imap":
            from postroom.providers.imap.provider import ATTACHMENT_MB, ImapProvider

            return ImapProvider(
                self._imap(account, secret or self.secret(account)),
                account.address,
                can_send=can_send,
                message_bytes=self.message_bytes,
                attachment_mb=account.options.get("attachment_mb", ATTACHMENT_MB),
                mail_bytes=account.options.get("mail_bytes"),
            )
        if account.provider == "gmail":
            from postroom.providers.web.gmail import GmailProvider

            return GmailProvider(self._gmail(account, secret), account.address, can_send)
        if account.provider == "outlook":
            from postroom.providers.web.graph import GraphProvider

            return GraphProvider(self._graph(account, secret), account.address, can_send)
        return self._jmap(account, secret)

    def sender(self, account: Account) -> Sender:
        if not _may_send(account):
            raise Conflict(f"{account.id}: the sign-in did not include sending")
        if account.provider == "imap":
            return self._smtp(account, self.secret(account))
        if account.provider == "gmail":
            from postroom.providers.web.gmail import GmailSender

            return GmailSender(self._gmail(account, None))
        if account.provider == "outlook":
            from postroom.providers.web.graph_sender import GraphSender

            return GraphSender(self._graph(account, None))
        from postroom.providers.web.jmap_sender import JmapSender

        return JmapSender(self._jmap(account, None))

    def _gmail(self, account: Account, secret: Secret | None) -> GmailClient:
        from postroom.providers.web.gmail_client import RATES, GmailClient

        return GmailClient(self._oauth_api(account, self.endpoints.gmail, secret, RATES))

    def _graph(self, account: Account, secret: Secret | None) -> GraphClient:
        from postroom.providers.web.graph_client import RATES, GraphClient

        return GraphClient(self._oauth_api(account, self.endpoints.outlook, secret, RATES))

    def _jmap(self, account: Account, secret: Secret | None) -> JmapProvider:
        from postroom.providers.web.api import FixedHeader
        from postroom.providers.web.jmap import JmapProvider
        from postroom.providers.web.jmap_client import RATES, JmapClient

        password = (secret or self.secret(account))["password"]
        authorization = f"Bearer {password}"
        if account.options.get("basic"):
            pair = f"{account.options['user']}:{password}".encode()
            authorization = f"Basic {b64encode(pair).decode()}"
        api = self._api(account, self.endpoints.fastmail, FixedHeader(authorization), RATES)
        return JmapProvider(JmapClient(api), account.address, wants_to_send=_may_send(account))

    def _api(self, account: Account, url: str, authorizer: Authorizer, rates: RateLimits) -> Api:
        """The API of an account; its provider and its sender share a rate limiter."""
        from postroom.providers.web.api import MAX_BYTES, Api, RateLimiter

        key = (account.provider, account.address)
        limiter = self._limiters.setdefault(key, RateLimiter(rates))
        # A mail may come as base64 inside of JSON.
        max_bytes = max(MAX_BYTES, self.message_bytes * 4 // 3 + 2**20)
        return Api(account.id, url, authorizer, limiter, max_bytes=max_bytes)

    def _oauth_api(
        self, account: Account, url: str, secret: Secret | None, rates: RateLimits
    ) -> Api:
        """The API of an account, with its stored tokens, which are renewed, or the given ones."""
        from postroom.providers.oauth_client import Tokens, refresh
        from postroom.providers.web.api import FixedHeader

        if secret is not None:
            return self._api(account, url, FixedHeader(f"Bearer {secret['access_token']}"), rates)
        client = self.oauth_client(account.provider, account.options.get("scopes", ()))
        tokens = Tokens(self.vault, account.id, lambda token: refresh(client, token))
        return self._api(account, url, tokens, rates)

    def oauth_client(self, provider: str, scopes: Iterable[str]) -> Client:
        """The OAuth client for a provider. Raises InvalidInput."""
        from postroom.providers import oauth_client

        at = self.endpoints
        if provider == "gmail":
            client = at.gmail_client_id, at.gmail_client_secret
            return oauth_client.google_client(at.gmail_login, at.gmail_token, *client, scopes)
        return oauth_client.microsoft_client(at.outlook_login, at.outlook_client_id, scopes)

    def start_sign_in(
        self,
        provider: str,
        scopes: Sequence[str],
        redirect: str,
        state_of: Callable[[str], str],
    ) -> SignIn:
        from postroom.providers import oauth_client

        return oauth_client.start_sign_in(self.oauth_client(provider, scopes), redirect, state_of)

    async def finish_sign_in(
        self, provider: str, scopes: Sequence[str], sign_in: SignIn, pasted: str
    ) -> Secret:
        from postroom.providers import oauth_client

        code = oauth_client.code_of(sign_in, pasted)
        return await oauth_client.exchange(self.oauth_client(provider, scopes), sign_in, code)

    async def start_device_sign_in(self, provider: str, scopes: Sequence[str]) -> DeviceSignIn:
        from postroom.providers import oauth_client

        return await oauth_client.start_device_sign_in(self.oauth_client(provider, scopes))

    async def poll_device_sign_in(
        self, provider: str, scopes: Sequence[str], device_code: str
    ) -> Secret | DeviceAnswer:
        from postroom.providers import oauth_client

        return await oauth_client.poll_device_sign_in(
            self.oauth_client(provider, scopes), device_code
        )

    def live(self, account: Account) -> ImapAccount | None:
        """The account for live access; None without its secret."""
        secret = self.vault.read(account.id)
        return self._imap(account, secret) if secret else None

    async def check(self, account: Account, secret: Secret | None) -> Capabilities:
        self._refuse_servers(account)
        provider = self.provider(account, secret)
        try:
            await provider.check()
            found = provider.capabilities
        finally:
            await provider.close()
        if account.provider != "imap" or not found.can_send:
            return found
        from postroom.providers.imap.provider import ATTACHMENT_MB

        relay = self._smtp(account, secret or self.secret(account))
        mail_bytes = await relay.check(account.id)
        size_mb = ATTACHMENT_MB if mail_bytes is None else attachment_mb(mail_bytes)
        return replace(found, max_attachment_size_mb=size_mb, mail_bytes=mail_bytes)

    def _refuse_servers(self, account: Account) -> None:
        """Refuse servers and files that a key must not name. Raises InvalidInput."""
        network_policy, options = self._network_policy(account), account.options
        if account.provider != "imap" or isinstance(network_policy, AnyNetwork):
            return
        from postroom.providers.allowed_hosts import IMAP_PORTS, SMTP_PORTS, check_file, check_host

        check_host(network_policy, options["host"], options["port"], IMAP_PORTS, "")
        if options.get("smtp_host"):
            check_host(
                network_policy, options["smtp_host"], options["smtp_port"], SMTP_PORTS, "smtp_"
            )
        if options.get("ca_file"):
            check_file(network_policy, "ca_file")

    def _network_policy(self, account: Account) -> NetworkPolicy:
        return PublicNetworks(self.allowed) if account.options.get(PUBLIC_ONLY) else ANY_NETWORK

    def _imap(self, account: Account, secret: Secret) -> ImapAccount:
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
            network_policy=self._network_policy(account),
        )

    def _smtp(self, account: Account, secret: Secret) -> SmtpRelay:
        from postroom.providers.smtp_relay import RelayAddress, SmtpRelay, is_loopback

        options = account.options
        if options["smtp_security"] == "none" and not is_loopback(options["smtp_host"]):
            raise ProviderError(
                f"{account.id}: its SMTP server would get the password unencrypted; remove the "
                "account and add it with smtp_security tls or starttls"
            )
        address = RelayAddress(
            host=options["smtp_host"],
            port=options["smtp_port"],
            security=options["smtp_security"],
            username=options.get("smtp_user") or None,
            password=secret.get("smtp_password") or secret["password"],
            ca_file=_path(options.get("ca_file")),
            network_policy=self._network_policy(account),
        )
        return SmtpRelay(address, account.address.rpartition("@")[2])

    async def create_alias(self, account: Account, alias: RemoteIdentity) -> RemoteIdentity:
        async with self.open(account) as provider:
            if not isinstance(provider, SupportsAliases):
                raise FeatureDisabled(
                    f"{account.id}: its provider does not support creating addresses"
                )
            return await provider.create_alias(alias)

    def has_secret(self, account_id: str) -> bool:
        return self._has_secret(account_id, if_unreadable=True)  # using it reports the error

    def login_fingerprint(self, account_id: str) -> str | None:
        secret = self.vault.read(account_id)
        if secret is None:
            return None
        return sha256(repr(sorted(secret.items())).encode()).hexdigest()

    def store_secret(self, account_id: str, secret: Secret) -> None:
        with self.vault.renewal_lock(account_id):
            self.vault.write(account_id, secret)

    def remove_secret(self, account_id: str) -> None:
        with self.vault.renewal_lock(account_id):
            self.vault.remove(account_id)


def _may_send(account: Account) -> bool:
    """Whether the sign-in included sending, and the account has a server for it."""
    options = account.options
    has_server = account.provider != "imap" or bool(options.get("smtp_host"))
    return has_server and "send" in options.get("scopes", ["send"])


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
