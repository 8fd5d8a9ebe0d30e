"""The settings of a process: their values, and the table with one row each."""

from __future__ import annotations

from dataclasses import field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, TypeVar

from postroom.config import readers
from postroom.config.readers import Reader, whole_number
from postroom.model.imap import ImapSettings
from postroom.model.key import ACCESS_LIFETIME_S, REFRESH_LIFETIME_S
from postroom.model.limits import Limits
from postroom.model.mail.approval import Approval
from postroom.model.values import dataclass

PREFIX = "POSTROOM_"
DEFAULT_LISTEN = "127.0.0.1:8725"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: its name in the file, how it is read and what is accepted.

    `default` is as it is written, or in words if there is no default value; `settings_field` is the
    field of `Settings`, or of `Limits` if it starts with `limits.`; `option` is how the command
    line spells it; `prefix` is what its variable begins with. A variable that is empty counts as
    not set, but for one that takes rights away, which may not be empty.
    """

    name: str
    reader: Reader[Any]
    summary: str
    default: str
    settings_field: str = ""
    option: str = ""
    is_secret: bool = False
    prefix: str = PREFIX
    may_be_empty: bool = True

    @property
    def variable(self) -> str:
        return self.prefix + self.name.upper()


def format_value(value: object) -> str:
    """A value for display, as it is written in the environment."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(reader: Reader[Any], summary: str, default: str, **more: Any) -> dict[str, Any]:
    """The row of a field of `Settings`, without what the field says itself."""
    return {"reader": reader, "summary": summary, "default": default, **more}


def _setting(
    default: T,
    reader: Reader[Any],
    summary: str,
    words: str | None = None,
    *,
    in_repr: bool = True,
    is_secret: bool = False,
    **more: Any,
) -> T:
    """A field of `Settings`, with its row; *words* stand for a default that is not a value."""
    shown = format_value(default) if words is None else words
    row = _row(reader, summary, shown, is_secret=is_secret, **more)
    return field(default=default, repr=in_repr and not is_secret, metadata=row)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, validated. No toolset means all of them."""

    data_dir: Path = field(
        metadata=_row(readers.FOLDER, "The data folder.", "the user's data folder", option="--data")
    )
    database_url: str | None = _setting(
        None,
        readers.DATABASE,
        "The PostgreSQL database to use instead of SQLite.",
        "SQLite in the data folder",
        is_secret=True,
    )
    database_patience_s: int = _setting(
        10,
        whole_number(1, 600),
        "How long requests wait while PostgreSQL does not answer, in seconds; then they get 503.",
    )
    blobs_url: str | None = _setting(
        None,
        readers.BLOBS,
        "The bucket for raw mail and attachments.",
        "files in the data folder",
        in_repr=False,
    )
    blobs_public_url: str | None = _setting(
        None,
        readers.URL,
        "The URL under which clients reach the bucket, for links to files.",
        "the URL that the server uses",
    )
    audit_key: bytes | None = _setting(
        None,
        readers.AUDIT_KEY,
        "The HMAC key of the audit log; machines that share a database must share it.",
        "the file audit.key of the data folder",
        is_secret=True,
    )
    host: str = _setting("127.0.0.1", readers.HOST, "The address on which the server listens.")
    port: int = _setting(
        8700, whole_number(0, 65_535), "The port of the server; 0 chooses a free one."
    )
    domains: tuple[str, ...] = _setting(
        ("postroom.localhost",),
        readers.DOMAINS,
        "The domains to receive mail for; new inboxes get the first.",
        name="domain",
    )
    cell: str | None = _setting(
        None, readers.CELL, "The name of this installation among several; new keys begin with it."
    )
    cell_relays: tuple[tuple[str, str], ...] = _setting(
        (),
        readers.CELL_RELAYS,
        "Domains that other cells serve, each with the URL of its SMTP listener.",
        "none",
        is_secret=True,
    )
    trusted_servers: tuple[str, ...] = _setting(
        (),
        readers.SERVERS,
        "Mail servers in front of Postroom whose Authentication-Results are trusted.",
        "none",
    )
    dkim_keys: Path | None = _setting(
        None, readers.FILE, "Public DKIM keys to verify signatures with, as `dig TXT` shows them."
    )
    smtp_listen: str | None = _setting(
        DEFAULT_LISTEN,
        readers.LISTEN,
        "The address and port of the SMTP and LMTP listener.",
        option="--smtp",
    )
    catch_all: str | None = _setting(
        None, readers.ADDRESS, "The inbox for mail to unknown addresses of these domains."
    )
    tls_cert: Path | None = _setting(
        None, readers.PEM_FILE, "The certificate for STARTTLS of the SMTP listener."
    )
    tls_key: Path | None = _setting(None, readers.PEM_FILE, "The key of that certificate.")
    relay_url: str | None = _setting(
        None,
        readers.RELAY,
        "The SMTP relay for outgoing mail; without it, no mail is sent to other servers.",
        is_secret=True,
    )
    webhook_allow: tuple[IPv4Network | IPv6Network, ...] = _setting(
        (), readers.NETWORKS, "Private networks that webhooks may connect to.", "none"
    )
    account_allow: tuple[IPv4Network | IPv6Network, ...] = _setting(
        (),
        readers.NETWORKS,
        "Private networks in which keys may add accounts, with any port and a ca_file; "
        "`postroom account add` is not limited.",
        "none",
    )
    dkim_key: Path | None = _setting(
        None, readers.PEM_FILE, "The key that signs outgoing mail (RSA or Ed25519)."
    )
    dkim_selector: str = _setting("postroom", readers.SELECTOR, "The DKIM selector.")
    mailgun_signing_key: str | None = _setting(
        None,
        readers.SECRET,
        "Mailgun's HTTP webhook signing key, to receive mail from its routes.",
        is_secret=True,
    )
    sendgrid_public_key: str | None = _setting(
        None,
        readers.PUBLIC_KEY,
        "The public key of SendGrid's security policy, to receive from Inbound Parse.",
    )
    resend_signing_secret: str | None = _setting(
        None,
        readers.SIGNING_SECRET,
        "The signing secret of Resend's webhook, to receive mail from it.",
        is_secret=True,
    )
    resend_api_key: str | None = _setting(
        None, readers.SECRET, "The API key to fetch mail from Resend.", is_secret=True
    )
    ses_topics: tuple[str, ...] = _setting(
        (), readers.TOPICS, "The SNS topics through which Amazon SES delivers mail.", "none"
    )
    ses_bucket: str | None = _setting(
        None, readers.BUCKET, "The bucket in which Amazon SES stores mail."
    )
    postmark_login: str | None = _setting(
        None,
        readers.LOGIN,
        "The name and password in the URL that Postmark posts mail to.",
        is_secret=True,
    )
    inbound_window_s: int = _setting(
        300,
        whole_number(30, 86_400),
        "The maximum age of a signature of Mailgun, SendGrid or Resend, in seconds.",
    )
    api_key: str | None = _setting(
        None,
        readers.OWNER_KEY,
        "The owner's key; without it, the first `serve` creates one.",
        is_secret=True,
    )
    key: str | None = _setting(
        None,
        readers.CLIENT_KEY,
        "The key that `postroom mcp` and `--url` use; an empty value is an error.",
        "the owner's rights",
        is_secret=True,
        may_be_empty=False,
    )
    key_file: Path | None = _setting(None, readers.FILE, "A file with the key that `--url` uses.")
    url: str | None = _setting(
        None, readers.URL, "The server that commands use instead of a data folder."
    )
    agent_approval: Approval = _setting(
        "risky",
        readers.APPROVAL,
        "When mail of an agent on stdio without a key waits for a person's approval.",
    )
    approval_expires_s: int = _setting(
        259_200,
        whole_number(60, 2_592_000),
        "How long mail waits for approval, in seconds; then it is rejected.",
    )
    approval_notify: str | None = _setting(
        None, readers.ADDRESS, "The address that is notified of mail that waits for approval."
    )
    public_url: str | None = _setting(
        None, readers.URL, "The URL under which clients reach the server, if it is behind a proxy."
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = _setting(
        (),
        readers.NETWORKS,
        "Networks of proxies whose `X-Forwarded-For` gives the client's address, "
        "for limits and the log.",
        "none",
    )
    oauth_registration: bool = _setting(
        True,
        readers.BOOLEAN,
        "Whether OAuth clients without a metadata document may register themselves.",
    )
    oauth_access_s: int = _setting(
        ACCESS_LIFETIME_S,
        whole_number(60, 86_400),
        "How long an OAuth access token is valid, in seconds.",
    )
    oauth_refresh_s: int = _setting(
        REFRESH_LIFETIME_S,
        whole_number(3_600, 31_536_000),
        "How long an unused OAuth refresh token is valid, in seconds.",
    )
    toolsets: tuple[str, ...] = _setting(
        (),
        readers.TOOLSETS,
        "The MCP toolsets to show.",
        "inbox, mail, memory; imap if there is a live account",
    )
    read_only: bool = _setting(False, readers.BOOLEAN, "Hide every MCP tool that writes.")
    memory_search: bool = _setting(True, readers.BOOLEAN, "Whether memories can be searched.")
    embeddings: str = _setting(
        "bundled",
        readers.EMBEDDINGS,
        "What computes embeddings: the bundled model, none, or an endpoint like OpenAI's `/v1`.",
    )
    embeddings_model: str = _setting(
        "text-embedding-3-small", readers.MODEL, "The model of the endpoint."
    )
    embeddings_key: str | None = _setting(
        None, readers.SECRET, "The key for the endpoint.", is_secret=True
    )
    secrets: str = _setting(
        "auto",
        readers.VAULT,
        "Where logins of accounts are stored: the keyring of the operating system, "
        "or encrypted files.",
    )
    vault_key_file: Path | None = _setting(
        None,
        readers.VAULT_KEY_FILE,
        "The file with the key of encrypted logins; created if it does not exist.",
        "the file secrets/key of the data folder",
    )
    gmail_url: str = _setting(
        "https://gmail.googleapis.com", readers.URL, "The base URL of the Gmail API."
    )
    gmail_login_url: str = _setting(
        "https://accounts.google.com", readers.URL, "The URL of Google's sign-in."
    )
    gmail_oauth_url: str = _setting(
        "https://oauth2.googleapis.com", readers.URL, "The URL of Google's token endpoint."
    )
    gmail_client_id: str | None = _setting(None, readers.TEXT, "The OAuth client ID at Google.")
    gmail_client_secret: str | None = _setting(
        None, readers.TEXT, "The OAuth client secret at Google.", is_secret=True
    )
    outlook_url: str = _setting(
        "https://graph.microsoft.com/v1.0", readers.URL, "The base URL of Microsoft Graph."
    )
    outlook_login_url: str = _setting(
        "https://login.microsoftonline.com/common", readers.URL, "The URL of Microsoft's sign-in."
    )
    outlook_client_id: str | None = _setting(
        None, readers.TEXT, "The OAuth client ID at Microsoft."
    )
    fastmail_url: str = _setting(
        "https://api.fastmail.com", readers.URL, "The base URL of Fastmail's JMAP API."
    )
    log_level: str = _setting(
        "warning", readers.LOG_LEVEL, "The minimum severity of events that are logged."
    )
    log_format: str = _setting(
        "text", readers.LOG_FORMAT, "Log lines as text, or as one JSON object each."
    )
    access_log: bool = _setting(
        False,
        readers.BOOLEAN,
        "Log every request: caller, route, status and duration, but never arguments.",
    )
    limits: Limits = field(default_factory=Limits)
    imap: ImapSettings = field(default_factory=ImapSettings)

    @property
    def server_url(self) -> str:
        """The URL at which people and programs reach the server."""
        return self.public_url or base_url(self.host, self.port)


_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def base_url(host: str, port: int) -> str:
    """The URL of the server for programs on this machine."""
    name = _ANYWHERE.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


_SUMMARIES = {
    "message_bytes": "Size of a message, received or sent.",
    "attachments_bytes": "Size of all attachments of a sent message, decoded.",
    "attachments_count": "Number of attachments of a sent message.",
    "header_bytes": "Size of the headers that are parsed.",
    "header_count": "Number of headers that are parsed.",
    "mime_parts": "Number of MIME parts that are parsed.",
    "mime_depth": "Nesting depth of MIME parts that is parsed.",
    "header_addresses": "Number of addresses that are parsed in one header.",
    "filename_chars": "Length of an attachment's file name, in characters.",
    "html_bytes": "Size of the HTML that is sanitised.",
    "recipients": "Number of recipients of a sent message.",
    "request_bytes": "Size of the body of a request or the arguments of a tool.",
    "text_chars": "Length of a message's text that is stored and searched, in characters.",
    "inline_bytes": "Size of an attachment that is returned whole as base64.",
    "requests_per_second": "Requests per second of one key.",
    "requests_burst": "Burst of requests of one key.",
    "sends_per_hour": "Messages per hour that one key may send; its rules may send as many again.",
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

SETTINGS = (
    *(
        Setting(**{"name": f.name, "settings_field": f.name, **f.metadata})
        for f in fields(Settings)
        if f.metadata
    ),
    *LIMITS,
)
"""The table of settings: the fields of `Settings` in their order, then those of `Limits`."""
