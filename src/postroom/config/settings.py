"""The settings of a process, as values."""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from postroom.config.readers import Reader, whole_number
from postroom.model.imap import ImapSettings
from postroom.model.limits import Limits
from postroom.model.values import dataclass

PREFIX = "POSTROOM_"
DEFAULT_LISTEN = "127.0.0.1:8725"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, validated. No toolset means all of them."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    audit_key: bytes | None = field(default=None, repr=False)
    blobs_url: str | None = field(default=None, repr=False)
    blobs_public_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8700
    domains: tuple[str, ...] = ("postroom.localhost",)
    trusted_servers: tuple[str, ...] = ()
    dkim_keys: Path | None = None
    smtp_listen: str | None = DEFAULT_LISTEN
    catch_all: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    relay_url: str | None = field(default=None, repr=False)
    webhook_allow: tuple[IPv4Network | IPv6Network, ...] = ()
    account_allow: tuple[IPv4Network | IPv6Network, ...] = ()
    dkim_key: Path | None = None
    dkim_selector: str = "postroom"
    mailgun_signing_key: str | None = field(default=None, repr=False)
    sendgrid_public_key: str | None = None
    resend_signing_secret: str | None = field(default=None, repr=False)
    resend_api_key: str | None = field(default=None, repr=False)
    ses_topics: tuple[str, ...] = ()
    ses_bucket: str | None = None
    postmark_login: str | None = field(default=None, repr=False)
    inbound_window_s: int = 300
    api_key: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    public_url: str | None = None
    toolsets: tuple[str, ...] = ()
    read_only: bool = False
    memory_search: bool = True
    embeddings: str = "bundled"
    embeddings_model: str = "text-embedding-3-small"
    embeddings_key: str | None = field(default=None, repr=False)
    secrets: str = "auto"
    vault_key_file: Path | None = None
    gmail_url: str = "https://gmail.googleapis.com"
    gmail_login_url: str = "https://accounts.google.com"
    gmail_oauth_url: str = "https://oauth2.googleapis.com"
    gmail_client_id: str | None = None
    gmail_client_secret: str | None = field(default=None, repr=False)
    outlook_url: str = "https://graph.microsoft.com/v1.0"
    outlook_login_url: str = "https://login.microsoftonline.com/common"
    outlook_client_id: str | None = None
    fastmail_url: str = "https://api.fastmail.com"
    limits: Limits = field(default_factory=Limits)
    imap: ImapSettings = field(default_factory=ImapSettings)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: its name in the file, how it is read and what is accepted.

    `place` is the field of `Settings`, or of `Limits` if it starts with `limits.`; `option` is how
    the command line spells it; `prefix` is what its variable begins with. A variable that is empty
    counts as not set, but for one that takes rights away, which may not be empty.
    """

    name: str
    reader: Reader[Any]
    summary: str
    default: str = ""
    place: str = ""
    option: str = ""
    is_secret: bool = False
    prefix: str = PREFIX
    may_be_empty: bool = True

    @property
    def variable(self) -> str:
        return self.prefix + self.name.upper()


def shown(value: object) -> str:
    """A value for display, as it is written in the environment."""
    if value is None or value is MISSING:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


_SUMMARIES = {
    "message_bytes": "Size of a message, received or sent.",
    "attachments_bytes": "Size of all attachments of a sent message, decoded.",
    "attachments_count": "Attachments of a sent message.",
    "header_bytes": "Size of the headers that are parsed.",
    "header_count": "Headers that are parsed.",
    "mime_parts": "MIME parts that are parsed.",
    "mime_depth": "Depth of MIME parts that is parsed.",
    "header_addresses": "Addresses that are parsed in one header.",
    "filename_chars": "Characters of an attachment's file name.",
    "html_bytes": "Size of the HTML that is sanitised.",
    "recipients": "Recipients of a sent message.",
    "request_bytes": "Size of the body of a request or the arguments of a tool.",
    "text_chars": "Characters of a message's text that are stored and searched.",
    "inline_bytes": "Size of an attachment that is returned whole as base64.",
    "requests_per_second": "Requests per second of one key.",
    "requests_burst": "Burst of requests of one key.",
    "sends_per_hour": "Messages per hour that one key may send, and as many again by its rules.",
    "domain_sends_per_hour": "Messages per hour to one domain; more wait for the next hour.",
    "automatic_replies_per_inbox": "Replies of rules per day to one address from one inbox.",
    "automatic_replies_per_day": "Automatic replies per day to one address from all inboxes "
    "together.",
    "smtp_per_minute": "Mails per minute from one address over SMTP.",
    "memory_bytes": "Size of the text of a memory.",
}
_MOST = {"mime_depth": 100}
"""Where a hundred times the default would be too much."""


def _limit(name: str, default: int) -> Setting:
    reader = whole_number(1, _MOST.get(name, default * 100))
    return Setting(f"limit_{name}", reader, _SUMMARIES[name], str(default), f"limits.{name}")


LIMITS = tuple(_limit(f.name, f.default) for f in fields(Limits) if isinstance(f.default, int))
