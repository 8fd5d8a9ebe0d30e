"""Everything that can be set, checked; and what a setting is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from postroom.model.imap import ImapSettings
from postroom.model.limits import Limits

PREFIX = "POSTROOM_"
DEFAULT_LISTEN = "127.0.0.1:8725"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set, checked. No toolset named means all of them."""

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
    public_url: str | None = None
    toolsets: tuple[str, ...] = ()
    read_only: bool = False
    memory_search: bool = True
    embeddings: str = "bundled"
    embeddings_model: str = "text-embedding-3-small"
    embeddings_key: str | None = field(default=None, repr=False)
    secrets: str = "auto"
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
    the command line spells it; `prefix` is what its variable begins with.
    """

    name: str
    read: Callable[[Any], Any]
    accepts: str
    summary: str
    default: str = ""
    place: str = ""
    option: str = ""
    is_secret: bool = False
    prefix: str = PREFIX

    @property
    def variable(self) -> str:
        return self.prefix + self.name.upper()
