"""The settings of a process: their values, and the table with one row each."""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from postroom.config import readers
from postroom.config.readers import Reader, whole_number
from postroom.model.imap import ImapSettings
from postroom.model.key import ACCESS_LIFETIME_S, REFRESH_LIFETIME_S
from postroom.model.limits import Limits
from postroom.model.mail.approval import Approval
from postroom.model.values import dataclass

PREFIX = "POSTROOM_"
DEFAULT_LISTEN = "127.0.0.1:8725"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, validated. No toolset means all of them."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    database_patience_s: int = 10
    audit_key: bytes | None = field(default=None, repr=False)
    blobs_url: str | None = field(default=None, repr=False)
    blobs_public_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8700
    domains: tuple[str, ...] = ("postroom.localhost",)
    cell: str | None = None
    cell_relays: tuple[tuple[str, str], ...] = field(default=(), repr=False)
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
    agent_approval: Approval = "risky"
    approval_expires_s: int = 259_200
    approval_notify: str | None = None
    key_file: Path | None = None
    url: str | None = None
    public_url: str | None = None
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    oauth_registration: bool = True
    oauth_access_s: int = ACCESS_LIFETIME_S
    oauth_refresh_s: int = REFRESH_LIFETIME_S
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
    log_level: str = "warning"
    log_format: str = "text"
    access_log: bool = False
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


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: its name in the file, how it is read and what is accepted.

    `settings_field` is the field of `Settings`, or of `Limits` if it starts with `limits.`;
    `option` is how the command line spells it; `prefix` is what its variable begins with. A
    variable that is empty counts as not set, but for one that takes rights away, which may not be
    empty.
    """

    name: str
    reader: Reader[Any]
    summary: str
    default_words: str | None = None
    settings_field: str = ""
    option: str = ""
    is_secret: bool = False
    prefix: str = PREFIX
    may_be_empty: bool = True

    @property
    def variable(self) -> str:
        return self.prefix + self.name.upper()

    @property
    def default(self) -> str:
        """The default as it is written; in words, if there is no default value."""
        if self.default_words is not None:
            return self.default_words
        return format_value(_DEFAULTS[self.settings_field or self.name])


def format_value(value: object) -> str:
    """A value for display, as it is written in the environment."""
    if value is None or value is MISSING:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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

_DEFAULTS = {field.name: field.default for field in fields(Settings)}


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data_dir", readers.FOLDER, "The data folder.", "the user's data folder", option="--data"
    ),
    Setting(
        "database_url",
        readers.DATABASE,
        "The PostgreSQL database to use instead of SQLite.",
        "SQLite in the data folder",
        is_secret=True,
    ),
    Setting(
        "database_patience_s",
        readers.whole_number(1, 600),
        "How long requests wait while PostgreSQL does not answer, in seconds; then they get 503.",
    ),
    Setting(
        "blobs_url",
        readers.BLOBS,
        "The bucket for raw mail and attachments.",
        "files in the data folder",
    ),
    Setting(
        "blobs_public_url",
        readers.URL,
        "The URL under which clients reach the bucket, for links to files.",
        "the URL that the server uses",
    ),
    Setting(
        "audit_key",
        readers.AUDIT_KEY,
        "The HMAC key of the audit log; machines that share a database must share it.",
        "the file audit.key of the data folder",
        is_secret=True,
    ),
    Setting("host", readers.HOST, "The address on which the server listens."),
    Setting(
        "port", readers.whole_number(0, 65_535), "The port of the server; 0 chooses a free one."
    ),
    Setting(
        "domain",
        readers.DOMAINS,
        "The domains to receive mail for; new inboxes get the first.",
        settings_field="domains",
    ),
    Setting(
        "cell",
        readers.CELL,
        "The name of this installation among several; new keys begin with it.",
    ),
    Setting(
        "cell_relays",
        readers.CELL_RELAYS,
        "Domains that other cells serve, each with the URL of its SMTP listener.",
        "none",
        is_secret=True,
    ),
    Setting(
        "trusted_servers",
        readers.SERVERS,
        "Mail servers in front of Postroom whose Authentication-Results are trusted.",
        "none",
    ),
    Setting(
        "dkim_keys",
        readers.FILE,
        "Public DKIM keys to verify signatures with, as `dig TXT` shows them.",
    ),
    Setting(
        "smtp_listen",
        readers.LISTEN,
        "The address and port of the SMTP and LMTP listener.",
        option="--smtp",
    ),
    Setting(
        "catch_all", readers.ADDRESS, "The inbox for mail to unknown addresses of these domains."
    ),
    Setting("tls_cert", readers.PEM_FILE, "The certificate for STARTTLS of the SMTP listener."),
    Setting("tls_key", readers.PEM_FILE, "The key of that certificate."),
    Setting(
        "relay_url",
        readers.RELAY,
        "The SMTP relay for outgoing mail; without it, no mail is sent to other servers.",
        is_secret=True,
    ),
    Setting(
        "webhook_allow", readers.NETWORKS, "Private networks that webhooks may connect to.", "none"
    ),
    Setting(
        "account_allow",
        readers.NETWORKS,
        "Private networks in which keys may add accounts, with any port and a ca_file; "
        "`postroom account add` is not limited.",
        "none",
    ),
    Setting("dkim_key", readers.PEM_FILE, "The key that signs outgoing mail (RSA or Ed25519)."),
    Setting("dkim_selector", readers.SELECTOR, "The DKIM selector."),
    Setting(
        "mailgun_signing_key",
        readers.SECRET,
        "Mailgun's HTTP webhook signing key, to receive mail from its routes.",
        is_secret=True,
    ),
    Setting(
        "sendgrid_public_key",
        readers.PUBLIC_KEY,
        "The public key of SendGrid's security policy, to receive from Inbound Parse.",
    ),
    Setting(
        "resend_signing_secret",
        readers.SIGNING_SECRET,
        "The signing secret of Resend's webhook, to receive mail from it.",
        is_secret=True,
    ),
    Setting(
        "resend_api_key", readers.SECRET, "The API key to fetch mail from Resend.", is_secret=True
    ),
    Setting(
        "ses_topics",
        readers.TOPICS,
        "The SNS topics through which Amazon SES delivers mail.",
        "none",
    ),
    Setting("ses_bucket", readers.BUCKET, "The bucket in which Amazon SES stores mail."),
    Setting(
        "postmark_login",
        readers.LOGIN,
        "The name and password in the URL that Postmark posts mail to.",
        is_secret=True,
    ),
    Setting(
        "inbound_window_s",
        readers.whole_number(30, 86_400),
        "The maximum age of a signature of Mailgun, SendGrid or Resend, in seconds.",
    ),
    Setting(
        "api_key",
        readers.OWNER_KEY,
        "The owner's key; without it, the first `serve` creates one.",
        is_secret=True,
    ),
    Setting(
        "key",
        readers.CLIENT_KEY,
        "The key that `postroom mcp` and `--url` use; an empty value is an error.",
        "the owner's rights",
        is_secret=True,
        may_be_empty=False,
    ),
    Setting("key_file", readers.FILE, "A file with the key that `--url` uses."),
    Setting("url", readers.URL, "The server that commands use instead of a data folder."),
    Setting(
        "agent_approval",
        readers.APPROVAL,
        "When mail of an agent on stdio without a key waits for a person's approval.",
    ),
    Setting(
        "approval_expires_s",
        readers.whole_number(60, 2_592_000),
        "How long mail waits for approval, in seconds; then it is rejected.",
    ),
    Setting(
        "approval_notify",
        readers.ADDRESS,
        "The address that is notified of mail that waits for approval.",
    ),
    Setting(
        "public_url",
        readers.URL,
        "The URL under which clients reach the server, if it is behind a proxy.",
    ),
    Setting(
        "trusted_proxies",
        readers.NETWORKS,
        "Networks of proxies whose `X-Forwarded-For` gives the client's address, "
        "for limits and the log.",
        "none",
    ),
    Setting(
        "oauth_registration",
        readers.BOOLEAN,
        "Whether OAuth clients without a metadata document may register themselves.",
    ),
    Setting(
        "oauth_access_s",
        readers.whole_number(60, 86_400),
        "How long an OAuth access token is valid, in seconds.",
    ),
    Setting(
        "oauth_refresh_s",
        readers.whole_number(3_600, 31_536_000),
        "How long an unused OAuth refresh token is valid, in seconds.",
    ),
    Setting(
        "toolsets",
        readers.TOOLSETS,
        "The MCP toolsets to show.",
        "inbox, mail, memory; imap if there is a live account",
    ),
    Setting("read_only", readers.BOOLEAN, "Hide every MCP tool that writes."),
    Setting("memory_search", readers.BOOLEAN, "Whether memories can be searched."),
    Setting(
        "embeddings",
        readers.EMBEDDINGS,
        "What computes embeddings: the bundled model, none, or an endpoint like OpenAI's `/v1`.",
    ),
    Setting("embeddings_model", readers.MODEL, "The model of the endpoint."),
    Setting("embeddings_key", readers.SECRET, "The key for the endpoint.", is_secret=True),
    Setting(
        "secrets",
        readers.VAULT,
        "Where logins of accounts are stored: the keyring of the operating system, "
        "or encrypted files.",
    ),
    Setting(
        "vault_key_file",
        readers.VAULT_KEY_FILE,
        "The file with the key of encrypted logins; created if it does not exist.",
        "the file secrets/key of the data folder",
    ),
    Setting("gmail_url", readers.URL, "The base URL of the Gmail API."),
    Setting("gmail_login_url", readers.URL, "The URL of Google's sign-in."),
    Setting("gmail_oauth_url", readers.URL, "The URL of Google's token endpoint."),
    Setting("gmail_client_id", readers.TEXT, "The OAuth client ID at Google."),
    Setting(
        "gmail_client_secret", readers.TEXT, "The OAuth client secret at Google.", is_secret=True
    ),
    Setting("outlook_url", readers.URL, "The base URL of Microsoft Graph."),
    Setting("outlook_login_url", readers.URL, "The URL of Microsoft's sign-in."),
    Setting("outlook_client_id", readers.TEXT, "The OAuth client ID at Microsoft."),
    Setting("fastmail_url", readers.URL, "The base URL of Fastmail's JMAP API."),
    Setting("log_level", readers.LOG_LEVEL, "The minimum severity of events that are logged."),
    Setting("log_format", readers.LOG_FORMAT, "Log lines as text, or as one JSON object each."),
    Setting(
        "access_log",
        readers.BOOLEAN,
        "Log every request: caller, route, status and duration, but never arguments.",
    ),
    *LIMITS,
)
