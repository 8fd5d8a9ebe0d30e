"""What the settings choose: each part of a Postroom, loaded when it is used."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.config import ConfigError, Settings
from postroom.errors import InvalidInput
from postroom.mail.authentication import Trust
from postroom.model.page import Slice
from postroom.ports.blobs import BlobStore
from postroom.ports.embedder import Embedder
from postroom.ports.imap import LiveImap
from postroom.ports.inbound import Bucket, Fetcher, Inbound
from postroom.ports.sender import Sender
from postroom.ports.store import GrantsLeases, Store

if TYPE_CHECKING:
    from postroom.model.imap import ImapAccount
    from postroom.providers.accounts import Accounts
    from postroom.store.store import SqlStore

MOST_ACCOUNTS = 1_000


def make_embedder(settings: Settings) -> Embedder | None:
    """What the settings choose; none of it is loaded before it is used."""
    if settings.embeddings == "none" or not settings.memory_search:
        return None
    from postroom.providers.embeddings.recent import RecentEmbedder

    if settings.embeddings == "bundled":
        from postroom.providers.embeddings.bundled import BundledEmbedder

        return RecentEmbedder(BundledEmbedder())
    from postroom.providers.embeddings.endpoint import EndpointEmbedder

    endpoint = EndpointEmbedder(
        settings.embeddings, settings.embeddings_model, settings.embeddings_key
    )
    return RecentEmbedder(endpoint)


def read_trust(settings: Settings) -> Trust:
    """Whom the settings trust. Raises ConfigError when the keys cannot be read."""
    servers = frozenset(settings.trusted_servers)
    if settings.dkim_keys is None:
        return Trust(servers)
    from postroom.mail.dkim_keys import read_keys

    try:
        return Trust(servers, read_keys(settings.dkim_keys.read_text("utf-8")))
    except (OSError, ValueError) as error:
        problem = {"field": "dkim_keys", "problem": f"{settings.dkim_keys}: {error}"}
        raise ConfigError(f"dkim_keys: {problem['problem']}", problems=[problem]) from error


def make_sender(settings: Settings) -> Sender | None:
    """The relay that the settings name. Raises ConfigError when a file for it cannot be read."""
    if settings.relay_url is None:
        return None
    from postroom.providers.smtp.relay import SmtpRelay, tls_context
    from postroom.providers.smtp.signing import load_signer
    from postroom.providers.smtp.url import parse_relay_url

    address = parse_relay_url(settings.relay_url)
    try:
        tls_context(address)
    except ValueError as error:
        problem = {"field": "relay_url", "problem": str(error)}
        raise ConfigError(f"relay_url: {problem['problem']}", problems=[problem]) from error
    return SmtpRelay(
        address,
        settings.domains[0],
        load_signer(settings.dkim_key, settings.dkim_selector, settings.domains),
    )


def make_inbound(settings: Settings, leases: GrantsLeases) -> dict[str, Inbound]:
    """The providers that may post mail to us. Raises InvalidInput for a key that is none."""
    from postroom.providers.inbound.mailgun import Mailgun
    from postroom.providers.inbound.postmark import Postmark
    from postroom.providers.inbound.resend import Resend, key_of

    window = timedelta(seconds=settings.inbound_window_s)
    found: dict[str, Inbound] = {}
    if settings.mailgun_signing_key is not None:
        found["mailgun"] = Mailgun(settings.mailgun_signing_key, window, leases)
    if settings.postmark_login is not None:
        found["postmark"] = Postmark(settings.postmark_login)
    if settings.resend_signing_secret is not None:
        if settings.resend_api_key is None:
            raise InvalidInput("POSTROOM_RESEND_API_KEY: is needed too; it fetches the mail")
        key = key_of(settings.resend_signing_secret)
        found["resend"] = Resend(key, settings.resend_api_key, window, _fetcher(settings))
    if settings.sendgrid_public_key is not None:
        from postroom.providers.inbound.sendgrid import SendGrid, load_public_key

        found["sendgrid"] = SendGrid(load_public_key(settings.sendgrid_public_key), window)
    if settings.ses_topics:
        from postroom.providers.inbound.ses import Ses

        found["ses"] = Ses(settings.ses_topics, _fetcher(settings), _bucket(settings))
    return found


def _bucket(settings: Settings) -> Bucket | None:
    if settings.ses_bucket is None:
        return None
    from postroom.providers.inbound.bucket import MailBucket

    return MailBucket.named(settings.ses_bucket, settings.limits.message_bytes)


def _fetcher(settings: Settings) -> Fetcher:
    from postroom.providers.inbound.fetcher import HttpsFetcher
    from postroom.providers.webhooks.guard import Guard

    return HttpsFetcher(Guard(settings.webhook_allow), settings.limits.message_bytes)


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
                f"MAIL_IMAP_{account.account_id.upper()}_HOST: there is an account of this name "
                "already; choose another, or remove that one: postroom account remove"
            )
    if not accounts:
        return None
    from postroom.providers.imap.provider import ImapAccounts

    return ImapAccounts(accounts.values(), live.timeouts, is_write_enabled=live.is_write_enabled)


async def synced_imap(store: Store, providers: Accounts) -> list[ImapAccount]:
    """The accounts over IMAP that are kept in step; they are live as well."""
    found = await store.accounts(None, Slice(limit=MOST_ACCOUNTS))
    live = (providers.live(account) for account in found.rows if account.provider == "imap")
    return [account for account in live if account is not None]


def make_providers(settings: Settings) -> Accounts:
    """What opens accounts, at the places that the settings name."""
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
        settings.data_dir / "secrets", settings.secrets, endpoints, settings.limits.message_bytes
    )


def is_new(settings: Settings) -> bool:
    """Whether to open the store would make a new file."""
    return settings.database_url is None and not (settings.data_dir / "postroom.db").exists()


def is_house(folder: Path) -> bool:
    """Whether a folder holds all of a house: a database, and the blobs that are that one's."""
    from postroom.blobs.file_mark import FileMark
    from postroom.store.sqlite.backup import house_of

    house = house_of(folder / "postroom.db")
    return house is not None and house == FileMark(folder / "blobs").read_now()


async def open_store(settings: Settings) -> SqlStore:
    """The store that the settings name: a PostgreSQL database, or a file in the data folder."""
    if settings.database_url is not None:
        from postroom.store import postgres

        return await postgres.open_store(
            settings.database_url, settings.data_dir, settings.audit_key
        )
    from postroom.store import sqlite

    return await sqlite.open_store(settings.data_dir / "postroom.db", settings.audit_key)


def open_blobs(settings: Settings) -> BlobStore:
    """The blobs that the settings name: a bucket, or files in the data folder."""
    if settings.blobs_url is not None:
        from postroom.blobs.objects import ObjectBlobs

        return ObjectBlobs.at(settings.blobs_url, settings.blobs_public_url)
    from postroom.blobs.files import FileBlobs

    return FileBlobs(settings.data_dir / "blobs")
