"""What can be set: one row for each setting, and how its value is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from postroom.config.readers import (
    read_host,
    read_integer,
    read_key,
    read_path,
    read_text,
    read_truth,
    read_url,
    read_words,
)
from postroom.model.imap import ImapSettings
from postroom.model.limits import Limits
from postroom.providers.smtp.url import parse_relay_url

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


_A_URL = "an http or https URL"


def _vault_kind(raw: object) -> str:
    (word,) = read_words("auto|keyring|file", "auto, keyring or file", raw)
    return word


def _relay(raw: object) -> str:
    url = read_text(raw)
    parse_relay_url(url)
    return url


def _database(raw: object) -> str:
    url = read_text(raw)
    if not re.fullmatch(r"postgres(ql)?://[!-~]+", url):
        raise ValueError("must be like postgresql://user:password@host:5432/postroom")
    return url


def _audit_key(raw: object) -> bytes:
    text = read_text(raw)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("must be 64 hexadecimal digits, like those in audit.key")
    return bytes.fromhex(text)


def _blobs(raw: object) -> str:
    url = read_text(raw).rstrip("/")
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[!-~]*)?", url):
        raise ValueError("must be like s3://bucket/prefix")
    return url


def _listen(raw: object) -> str | None:
    text = read_text(raw)
    if text.lower() in ("none", "off"):
        return None
    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}", text):
        raise ValueError("must be like 127.0.0.1:8725, or none")
    return text


def _address(raw: object) -> str:
    address = read_text(raw)
    if not re.fullmatch(r"[^@\s]{1,64}@[^@\s]{1,255}", address):
        raise ValueError("must be an address, such as catchall@example.com")
    return address.lower()


def _networks(raw: object) -> tuple[IPv4Network | IPv6Network, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)):
        raise ValueError("must be networks, such as 10.0.0.0/8, several with commas")
    try:
        return tuple(ip_network(read_text(item).strip()) for item in items)
    except ValueError:
        raise ValueError("must be networks, such as 10.0.0.0/8, several with commas") from None


def _login(raw: object) -> str:
    login = read_text(raw)
    if not re.fullmatch(r"[!-9;-~]{1,100}:[!-~]{8,100}", login):
        raise ValueError("must be name:password, the password of 8 characters or more")
    return login


_TOPIC = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w.-]{1,256}"


def _topics(raw: object) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)):
        raise ValueError("must be topics, such as arn:aws:sns:eu-west-1:123456789012:mail")
    topics = tuple(read_text(item).strip() for item in items)
    if not all(
        re.fullmatch(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w.-]{1,256}", t) for t in topics
    ):
        raise ValueError("must be topics, such as arn:aws:sns:eu-west-1:123456789012:mail")
    return topics


def _bucket(raw: object) -> str:
    name = read_text(raw)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name):
        raise ValueError("must be the name of a bucket, such as mail-for-us")
    return name


def _selector(raw: object) -> str:
    selector = read_text(raw)
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?", selector):
        raise ValueError("must be a DNS label, such as mail2026")
    return selector


def _embeddings(raw: object) -> str:
    word = read_text(raw)
    if word.lower() in ("bundled", "none"):
        return word.lower()
    try:
        return read_url(word)
    except ValueError:
        raise ValueError("must be bundled, none, or like https://api.example.com/v1") from None


def _model(raw: object) -> str:
    name = read_text(raw)
    if not re.fullmatch(r"[!-~]{1,128}", name):
        raise ValueError("must be 1 to 128 visible ASCII characters without spaces")
    return name


_DOMAIN = r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_MOST = {"mime_depth": 100}
"""Where a hundred times the default would be too much."""


def _limit(name: str, default: int) -> Setting:
    most = _MOST.get(name, default * 100)
    return Setting(
        f"limit_{name}",
        partial(read_integer, 1, most),
        f"1 to {most}",
        _LIMIT_SUMMARIES[name],
        str(default),
        f"limits.{name}",
    )


_LIMIT_SUMMARIES = {
    "message_bytes": "A message, as received or sent.",
    "attachments_bytes": "The attachments of a sent message together, decoded.",
    "attachments_count": "Attachments of a sent message.",
    "header_bytes": "The header block that is parsed.",
    "header_count": "Headers that are parsed.",
    "mime_parts": "MIME parts that are parsed.",
    "mime_depth": "Depth of MIME parts that is parsed.",
    "header_addresses": "Addresses that are parsed in one header.",
    "filename_chars": "Characters of an attachment's file name.",
    "html_bytes": "HTML that goes into the sanitiser.",
    "recipients": "Recipients of a sent message.",
    "request_bytes": "The body of a request and the arguments of a tool.",
    "text_chars": "Characters of a message's text that are kept and searched.",
    "inline_bytes": "An attachment that is answered whole as base64.",
    "requests_per_second": "Requests a second of one key.",
    "requests_burst": "Requests of one key at once.",
    "sends_per_hour": "Messages that one key may send an hour.",
    "domain_sends_per_hour": "Messages that go to one domain an hour; more wait for the next.",
    "smtp_per_minute": "Mails a minute that one address may bring over SMTP.",
    "memory_bytes": "The text of a memory.",
}

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data_dir",
        read_path,
        "a folder",
        "Where everything is kept.",
        "the user's data folder",
        option="--data",
    ),
    Setting(
        "database_url",
        _database,
        "a postgresql URL",
        "The PostgreSQL database that keeps mail instead of SQLite in the data folder.",
        "SQLite in the data folder",
        is_secret=True,
    ),
    Setting(
        "blobs_url",
        _blobs,
        "an s3 URL",
        "The bucket that keeps raw mail and attachments instead of the data folder.",
        "files in the data folder",
    ),
    Setting(
        "blobs_public_url",
        read_url,
        _A_URL,
        "Where others reach the server of the bucket, for links to files, if not where we do.",
        "where we do",
    ),
    Setting(
        "audit_key",
        _audit_key,
        "64 hexadecimal digits",
        "What the audit log is sealed with; machines that share a database must share it.",
        "the file audit.key of the data folder",
        is_secret=True,
    ),
    Setting("host", read_host, "an address", "Where the server listens.", "127.0.0.1"),
    Setting(
        "port",
        partial(read_integer, 0, 65_535),
        "0 to 65535",
        "The port of the server; 0 takes any that is free.",
        "8700",
    ),
    Setting(
        "domain",
        partial(read_words, _DOMAIN, "domain names, several with commas"),
        "domain names, with commas",
        "The domains whose mail we receive; new inboxes get the first.",
        "postroom.localhost",
        place="domains",
    ),
    Setting(
        "trusted_servers",
        partial(read_words, _DOMAIN, "names of servers, several with commas"),
        "names, with commas",
        "The mail servers before us whose Authentication-Results we believe.",
        "none",
    ),
    Setting(
        "dkim_keys",
        read_path,
        "a file",
        "Public keys of DKIM signers, as `dig TXT` shows them, to check signatures with.",
    ),
    Setting(
        "smtp_listen",
        _listen,
        "an address and a port, or none",
        "Where mail is received over SMTP and LMTP.",
        "127.0.0.1:8725",
        option="--smtp",
    ),
    Setting(
        "catch_all",
        _address,
        "an address",
        "The inbox that gets mail to unknown addresses of our domains.",
    ),
    Setting(
        "tls_cert", read_path, "a PEM file", "The certificate for STARTTLS of the SMTP listener."
    ),
    Setting("tls_key", read_path, "a PEM file", "The key of that certificate."),
    Setting(
        "relay_url",
        _relay,
        "an smtp or smtps URL",
        "The server that takes our mail to others; without it nothing leaves.",
        is_secret=True,
    ),
    Setting(
        "webhook_allow",
        _networks,
        "networks, with commas",
        "Private networks that webhooks may be in.",
        "none",
    ),
    Setting(
        "dkim_key", read_path, "a PEM file", "The key that signs outgoing mail (RSA or Ed25519)."
    ),
    Setting(
        "dkim_selector",
        _selector,
        "a DNS label",
        "The name under which DNS has the public key.",
        "postroom",
    ),
    Setting(
        "mailgun_signing_key",
        read_key,
        "8 to 256 characters",
        "Mailgun's HTTP webhook signing key, to receive mail from its routes.",
        is_secret=True,
    ),
    Setting(
        "sendgrid_public_key",
        read_key,
        "8 to 256 characters",
        "The public key of SendGrid's security policy, to receive from Inbound Parse.",
    ),
    Setting(
        "resend_signing_secret",
        read_key,
        "8 to 256 characters",
        "The signing secret of Resend's webhook, to receive mail from it.",
        is_secret=True,
    ),
    Setting(
        "resend_api_key",
        read_key,
        "8 to 256 characters",
        "The API key that fetches the mail that Resend tells of.",
        is_secret=True,
    ),
    Setting(
        "ses_topics",
        _topics,
        "topic ARNs, with commas",
        "The SNS topics through which Amazon SES sends us mail.",
        "none",
    ),
    Setting(
        "ses_bucket",
        _bucket,
        "the name of a bucket",
        "The one bucket from which mail is fetched that Amazon SES has put there.",
    ),
    Setting(
        "postmark_login",
        _login,
        "name:password",
        "The name and password in the URL that Postmark posts mail to.",
        is_secret=True,
    ),
    Setting(
        "inbound_window_s",
        partial(read_integer, 30, 86_400),
        "30 to 86400",
        "How old the signature of Mailgun, SendGrid or Resend may be, in seconds.",
        "300",
    ),
    Setting(
        "api_key",
        read_key,
        "8 to 256 characters",
        "The owner's key; without it, the first `serve` makes one.",
        is_secret=True,
    ),
    Setting(
        "public_url",
        read_url,
        "an http or https URL",
        "The address others reach the server under, if it is behind a proxy.",
    ),
    Setting(
        "toolsets",
        partial(read_words, r"[a-z]+", "names of toolsets, several with commas"),
        "names, with commas",
        "The MCP toolsets to show.",
        "all",
    ),
    Setting("read_only", read_truth, "true or false", "Hide every MCP tool that writes.", "false"),
    Setting(
        "memory_search", read_truth, "true or false", "Whether memories can be searched.", "true"
    ),
    Setting(
        "embeddings",
        _embeddings,
        "bundled, none, or a URL",
        "What finds by meaning: our own model, nothing, or an endpoint like OpenAI's `/v1`.",
        "bundled",
    ),
    Setting(
        "embeddings_model",
        _model,
        "a name",
        "The model that the endpoint shall use.",
        "text-embedding-3-small",
    ),
    Setting(
        "embeddings_key",
        read_key,
        "8 to 256 characters",
        "The key for the endpoint.",
        is_secret=True,
    ),
    Setting(
        "secrets",
        _vault_kind,
        "auto, keyring or file",
        "Where passwords and tokens of accounts are kept: the keyring of the operating system, "
        "or encrypted files.",
        "auto",
    ),
    Setting(
        "gmail_url", read_url, _A_URL, "Where the Gmail API is.", "https://gmail.googleapis.com"
    ),
    Setting(
        "gmail_login_url",
        read_url,
        _A_URL,
        "Where people sign in to Google.",
        "https://accounts.google.com",
    ),
    Setting(
        "gmail_oauth_url",
        read_url,
        _A_URL,
        "Where Google gives out tokens.",
        "https://oauth2.googleapis.com",
    ),
    Setting("gmail_client_id", read_text, "text", "Our client ID at Google."),
    Setting(
        "gmail_client_secret", read_text, "text", "The secret that belongs to it.", is_secret=True
    ),
    Setting(
        "outlook_url",
        read_url,
        _A_URL,
        "Where Microsoft Graph is.",
        "https://graph.microsoft.com/v1.0",
    ),
    Setting(
        "outlook_login_url",
        read_url,
        _A_URL,
        "Where people sign in to Microsoft.",
        "https://login.microsoftonline.com/common",
    ),
    Setting("outlook_client_id", read_text, "text", "Our client ID at Microsoft."),
    Setting("fastmail_url", read_url, _A_URL, "Where JMAP is.", "https://api.fastmail.com"),
    *(_limit(f.name, f.default) for f in fields(Limits) if isinstance(f.default, int)),
)
