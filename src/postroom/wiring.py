"""Wiring: creates the adapters that the settings name, each imported on first use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.config import ConfigError, Settings
from postroom.errors import InvalidInput, MailError
from postroom.extras import is_installed, require
from postroom.mail.senders import Trust
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import OAuthOptions
from postroom.ports.blobs import BlobStore
from postroom.ports.imap import LiveImap
from postroom.ports.provider import Bucket, Embedder, Fetcher, Inbound, Leases, Sender

if TYPE_CHECKING:
    from postroom.model.account import Account
    from postroom.model.imap import ImapAccount
    from postroom.providers.accounts import Accounts
    from postroom.providers.smtp_relay import SmtpRelay
    from postroom.store.store import Store

log = logging.getLogger(__name__)

MAX_ACCOUNTS = 1_000
_CHECK_S = 10.0
_CELL_RESPONSE_S, _CELL_FINAL_RESPONSE_S = 15.0, 60.0
"""Other cells answer soon or not at all; a mail that they do not confirm is sent again."""
_MAX_DOCUMENT_BYTES, _DOCUMENT_S = 16_384, 5.0
"""Limits of the metadata document of an OAuth client."""


def make_embedder(settings: Settings) -> Embedder | None:
    """The embedder, if there is one."""
    if settings.embeddings == "none" or not settings.memory_search or lacks_model(settings):
        return None
    from postroom.providers.embeddings import BundledEmbedder, EndpointEmbedder, RecentEmbedder

    if settings.embeddings == "bundled":
        return RecentEmbedder(BundledEmbedder())
    endpoint = EndpointEmbedder(
        settings.embeddings, settings.embeddings_model, settings.embeddings_key
    )
    return RecentEmbedder(endpoint)


def lacks_model(settings: Settings) -> bool:
    """Whether the bundled model is wanted, but the packages that run it are not installed."""
    wanted = settings.embeddings == "bundled" and settings.memory_search
    return wanted and not is_installed("embeddings")


def read_trust(settings: Settings) -> Trust:
    """Trusted servers and keys for authentication. Raises ConfigError if keys cannot be read."""
    servers = frozenset(settings.trusted_servers)
    if settings.dkim_keys is None:
        return Trust(servers)
    from postroom.mail.dkim import read_keys

    try:
        return Trust(servers, read_keys(settings.dkim_keys.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError.of(("dkim_keys", f"{settings.dkim_keys}: {error}")) from error


async def check_relay(settings: Settings) -> str:
    """Connect to the relay, log in if a user is set, and describe it; nothing is sent.

    Raises ConfigError, ProviderAuthFailed or ProviderError.
    """
    relay = _smtp_relay(settings, "relay_url", settings.relay_url or "")
    return await _checked(relay, "relay")


async def check_cell_relays(settings: Settings) -> str:
    """Connect to every other cell, and describe them; nothing is sent. Raises as `check_relay`."""
    relays = make_cell_relays(settings)
    found = await asyncio.gather(*(_checked(relay, name) for name, relay in relays.items()))
    return "; ".join(f"{domain}: {what}" for domain, what in zip(relays, found, strict=True))


async def _checked(relay: SmtpRelay, name: str) -> str:
    max_bytes = await replace(relay, response_s=_CHECK_S).check(name)
    address = relay.address
    tls = {"tls": "over TLS", "starttls": "with STARTTLS"}.get(address.security, "without TLS")
    login = "the login is accepted" if address.username else "no login is set"
    size = f"; mails up to {max_bytes // 1_048_576} MB" if max_bytes else ""
    return f"{address.host}:{address.port} answers {tls}; {login}{size}"


def make_sender(settings: Settings) -> Sender | None:
    """The relay that the settings name. Raises ConfigError when a file for it cannot be read."""
    if settings.relay_url is None:
        return None
    return _smtp_relay(settings, "relay_url", settings.relay_url)


def _smtp_relay(settings: Settings, field: str, url: str) -> SmtpRelay:
    from postroom.providers.smtp_relay import SmtpRelay, load_signer, parse_relay_url, tls_context

    address = parse_relay_url(url)
    try:
        tls_context(address)
    except ValueError as error:
        raise ConfigError.of((field, str(error))) from error
    signer = load_signer(settings.dkim_key, settings.dkim_selector, settings.domains)
    return SmtpRelay(address, settings.domains[0], signer)


def make_cell_relays(settings: Settings) -> dict[str, SmtpRelay]:
    """The senders to other cells, by domain; cells at one URL share theirs. Raises ConfigError."""
    urls = dict.fromkeys(url for _, url in settings.cell_relays)
    relays = {url: _smtp_relay(settings, "cell_relays", url) for url in urls}
    for relay in relays.values():
        relay.response_s, relay.final_response_s = _CELL_RESPONSE_S, _CELL_FINAL_RESPONSE_S
    return {domain: relays[url] for domain, url in settings.cell_relays}


def make_inbound(settings: Settings, leases: Leases) -> dict[str, Inbound]:
    """The inbound providers that are configured. Raises InvalidInput for an invalid key."""
    window = timedelta(seconds=settings.inbound_window_s)
    found: dict[str, Inbound] = {}
    if settings.mailgun_signing_key is not None:
        from postroom.providers.inbound_forms import Mailgun

        found["mailgun"] = Mailgun(settings.mailgun_signing_key, window, leases)
    if settings.postmark_login is not None:
        from postroom.providers.inbound_json import Postmark

        found["postmark"] = Postmark(settings.postmark_login)
    if settings.resend_signing_secret is not None:
        if settings.resend_api_key is None:
            raise InvalidInput("POSTROOM_RESEND_API_KEY: is needed too; it fetches the mail")
        from postroom.providers.inbound_json import Resend, key_of

        key = key_of(settings.resend_signing_secret)
        found["resend"] = Resend(key, settings.resend_api_key, window, _fetcher(settings))
    if settings.sendgrid_public_key is not None:
        from postroom.providers.inbound_forms import SendGrid, load_public_key

        found["sendgrid"] = SendGrid(load_public_key(settings.sendgrid_public_key), window)
    if settings.ses_topics:
        from postroom.providers.inbound_json import Ses

        found["ses"] = Ses(settings.ses_topics, _fetcher(settings), _bucket(settings))
    return found


def _bucket(settings: Settings) -> Bucket | None:
    if settings.ses_bucket is None:
        return None
    from postroom.providers.inbound_json import MailBucket

    return MailBucket.named(settings.ses_bucket, settings.limits.message_bytes)


def _fetcher(settings: Settings) -> Fetcher:
    from postroom.providers.allowed_hosts import AddressGuard
    from postroom.providers.http_clients import HttpsFetcher

    return HttpsFetcher(AddressGuard(settings.webhook_allow), settings.limits.message_bytes)


def make_oauth(settings: Settings) -> OAuthOptions:
    """The settings of the OAuth server; metadata documents are fetched as webhooks are posted."""
    from postroom.providers.allowed_hosts import AddressGuard
    from postroom.providers.http_clients import HttpsFetcher

    guard = AddressGuard(settings.webhook_allow)
    return OAuthOptions(
        settings.oauth_registration,
        settings.oauth_access_s,
        settings.oauth_refresh_s,
        HttpsFetcher(guard, _MAX_DOCUMENT_BYTES, _DOCUMENT_S),
    )


def make_live_imap(settings: Settings, synced: Iterable[ImapAccount]) -> LiveImap | None:
    """The live accounts, if there are any; connections are made when they are used.

    Raises:
        ConfigError: a name is in the settings and was added as an account, too.
    """
    live = settings.imap
    accounts = {account.account_id: account for account in live.accounts}
    for account in synced:
        if accounts.setdefault(account.account_id, account) is not account:
            raise ConfigError(
                f"MAIL_IMAP_{account.account_id.upper()}_HOST: an account of this name already "
                "exists; choose another name, or remove it with `postroom account remove`"
            )
    if not accounts:
        return None
    from postroom.providers.imap.live import ImapAccounts

    return ImapAccounts(accounts.values(), live.timeouts, is_write_enabled=live.is_write_enabled)


async def synced_imap(store: Store, providers: Accounts) -> list[ImapAccount]:
    """The IMAP accounts that are synced; they are live as well."""
    found = await store.accounts(EVERYTHING, Slice(limit=MAX_ACCOUNTS))
    live = (_live(providers, account) for account in found.rows if account.provider == "imap")
    return [account for account in live if account is not None]


def _live(providers: Accounts, account: Account) -> ImapAccount | None:
    """An account that cannot be opened is logged and skipped."""
    try:
        return providers.live(account)
    except MailError as error:
        log.error("accounts.no_login", extra={"account": account.id, "error": str(error)})
        return None


def make_providers(settings: Settings) -> Accounts:
    """The factory of provider accounts."""
    from postroom.providers.accounts import Accounts, Endpoints

    endpoints = Endpoints(
        gmail=settings.gmail_url,
        gmail_login=settings.gmail_login_url,
        gmail_token=settings.gmail_oauth_url,
        gmail_client_id=settings.gmail_client_id,
        gmail_client_secret=settings.gmail_client_secret,
        outlook=settings.outlook_url,
        outlook_login=settings.outlook_login_url,
        outlook_client_id=settings.outlook_client_id,
        fastmail=settings.fastmail_url,
    )
    return Accounts(
        settings.data_dir / "secrets",
        settings.secrets,
        endpoints,
        settings.limits.message_bytes,
        settings.account_allow,
        settings.vault_key_file,
    )


def key_of_logins(settings: Settings) -> Path | None:
    """The key file of the file vault; None if it is not used.

    Raises:
        MailError: it is not there, or holds no key.
    """
    from postroom.providers.vault import FileVault, choose_vault

    folder = settings.data_dir / "secrets"
    vault = choose_vault(folder, settings.secrets, settings.vault_key_file)
    return vault.key_in_use() if isinstance(vault, FileVault) else None


def is_new(settings: Settings) -> bool:
    """Whether opening the store would create a new database."""
    return settings.database_url is None and not (settings.data_dir / "postroom.db").exists()


def is_installation(folder: Path) -> bool:
    """Whether a folder holds a whole installation: a database and its blobs."""
    from postroom.blobs.files import FileInstallationMark
    from postroom.store.maintenance.database_files import installation_of

    owner = installation_of(folder / "postroom.db")
    return owner is not None and owner == FileInstallationMark(folder / "blobs").read_sync()


async def open_store(settings: Settings) -> Store:
    """The store that the settings name: a PostgreSQL database, or a file in the data folder."""
    if settings.database_url is not None:
        require("postgres")
        from postroom.store import postgres

        return await postgres.open_store(
            settings.database_url,
            settings.data_dir,
            settings.audit_key,
            patience_s=settings.database_patience_s,
        )
    from postroom.store import sqlite

    return await sqlite.open_store(settings.data_dir / "postroom.db", settings.audit_key)


def open_blobs(settings: Settings) -> BlobStore:
    """The blobs that the settings name: a bucket, or files in the data folder."""
    if settings.blobs_url is not None:
        require("s3")
        from postroom.blobs.objects import ObjectBlobs

        return ObjectBlobs.at(settings.blobs_url, settings.blobs_public_url)
    from postroom.blobs.files import FileBlobs

    return FileBlobs(settings.data_dir / "blobs")
