"""Readers of setting values. Errors do not repeat the value, which may be a secret."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from postroom.extras import is_installed, missing

T = TypeVar("T")


class Reader(NamedTuple, Generic[T]):
    """What a setting accepts, and the function that reads it, which raises ValueError."""

    accepts: str
    read: Callable[[object], T]


def _read_text(raw: object) -> str:
    if not isinstance(raw, (str, Path)) or not str(raw).isprintable():
        raise ValueError("must be text")
    return str(raw)


def matching(accepts: str, pattern: str, problem: str, *, strip: str = "") -> Reader[str]:
    """Text that matches a pattern, without the characters in *strip* at its end."""

    def read(raw: object) -> str:
        text = _read_text(raw).rstrip(strip)
        if not re.fullmatch(pattern, text):
            raise ValueError(problem)
        return text

    return Reader(accepts, read)


def whole_number(least: int, most: int) -> Reader[int]:
    """A whole number within bounds."""

    def read(raw: object) -> int:
        try:
            number = int(raw) if isinstance(raw, str) else raw
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return number

    return Reader(f"{least} to {most}", read)


def comma_list(accepts: str, pattern: str, wanted: str) -> Reader[tuple[str, ...]]:
    """Names separated by commas, each of a pattern, in lower case."""

    def read(raw: object) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(word.lower() for word in _items(raw, f"must be {wanted}")))
        if not found:
            raise ValueError(f"must be {wanted}")
        for word in found:
            if not re.fullmatch(pattern, word):
                raise ValueError(f"{word or 'an empty name'} is not one of {wanted}")
        return found

    return Reader(accepts, read)


def choice(*words: str, accepts: str = "") -> Reader[str]:
    """One of a few words."""
    wanted = f"{', '.join(words[:-1])} or {words[-1]}"
    some = comma_list(accepts or wanted, "|".join(words), wanted)

    def read(raw: object) -> str:
        found = some.read(raw)
        if len(found) != 1:
            raise ValueError(f"must be {wanted}")
        return found[0]

    return Reader(some.accepts, read)


def _items(raw: object, problem: str) -> list[str]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)):
        raise ValueError(problem)
    return [_read_text(item).strip() for item in items]


def _read_boolean(raw: object) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    value = known.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _read_path(raw: object) -> Path:
    return Path(_read_text(raw)).expanduser()


def _read_absolute_path(raw: object) -> Path:
    path = _read_path(raw)
    if not path.is_absolute():
        raise ValueError("must be an absolute path, of a file outside of the data folder")
    return path


def _read_client_key(raw: object) -> str:
    if isinstance(raw, str) and not raw.strip():
        raise ValueError(
            "is empty; set it to a key, as `postroom key create` shows it, or unset it to "
            "run as the agent without a key"
        )
    return _A_KEY.read(raw)


def _read_signing_secret(raw: object) -> str:
    from postroom.providers.inbound_json import key_of

    secret = SECRET.read(raw)
    key_of(secret)
    return secret


def _read_public_key(raw: object) -> str:
    from postroom.providers.inbound_forms import load_public_key

    key = SECRET.read(raw)
    load_public_key(key)
    return key


def _read_relay(raw: object) -> str:
    from postroom.providers.smtp_relay import parse_relay_url

    url = _read_text(raw)
    parse_relay_url(url)
    return url


def _read_cell_relays(raw: object) -> tuple[tuple[str, str], ...]:
    form = "must be like b.example.com=smtp://10.0.0.2:8725, separated by commas"
    found: dict[str, str] = {}
    for item in _items(raw, form):
        domain, _, url = item.partition("=")
        domain = domain.strip().lower()
        if not re.fullmatch(_DOMAIN, domain) or domain in found:
            raise ValueError(f"{form}; each domain once")
        try:
            found[domain] = _read_relay(url.strip())
        except ValueError as error:
            raise ValueError(f"the URL for {domain} {error}") from None
    return tuple(found.items())


def requires_extra(extra: str, inner: Reader[str]) -> Reader[str]:
    """What another reader reads, if the packages for it are installed."""

    def read(raw: object) -> str:
        found = inner.read(raw)
        if not is_installed(extra):
            raise ValueError(missing(extra))
        return found

    return Reader(inner.accepts, read)


def _read_database(raw: object) -> str:
    """The URL of a PostgreSQL database; errors contain nothing of what libpq says."""
    url = _read_text(raw)
    looks_right = re.fullmatch(r"postgres(ql)?://[!-~]+", url) and re.fullmatch(_DATABASE, url)
    if not (looks_right and _is_read_by_libpq(url)):
        raise ValueError(
            "must be like postgresql://user:password@host:5432/postroom; in the password, write "
            "% as %25, @ as %40 and / as %2F"
        )
    return url


def _is_read_by_libpq(url: str) -> bool:
    if not is_installed("postgres"):
        return True
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        ports = str(conninfo_to_dict(url).get("port", ""))
    except ProgrammingError:
        return False
    return re.fullmatch(r"[0-9,]*", ports) is not None


def _read_listen(raw: object) -> str | None:
    is_off = _read_text(raw).lower() in ("none", "off")
    return None if is_off else _ADDRESS_AND_PORT.read(raw)


def _read_networks(raw: object) -> tuple[IPv4Network | IPv6Network, ...]:
    problem = "must be networks, such as 10.0.0.0/8, separated by commas"
    try:
        return tuple(ip_network(item) for item in _items(raw, problem))
    except ValueError:
        raise ValueError(problem) from None


def _read_topics(raw: object) -> tuple[str, ...]:
    problem = "must be topics, such as arn:aws:sns:eu-west-1:123456789012:mail"
    topics = tuple(_items(raw, problem))
    if not all(re.fullmatch(_TOPIC, topic) for topic in topics):
        raise ValueError(problem)
    return topics


def _read_embeddings(raw: object) -> str:
    word = _read_text(raw)
    if word.lower() in ("bundled", "none"):
        return word.lower()
    try:
        url = URL.read(word)
    except ValueError:
        raise ValueError("must be bundled, none, or like https://api.example.com/v1") from None
    if not is_installed("index"):
        raise ValueError(missing("index", "search by meaning"))
    return url


_DATABASE = r"[a-z]+://([^@/]*@)?[^@/?]*(/[^@/?]*)?(\?.*)?"
"""Less than what libpq takes for a URL: a password with a bare `@` or `/` would be one, too, and
end up in the name of the host or the database, which errors show."""

_DOMAIN = r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
_TOPIC = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w.-]{1,256}"
_A_KEY = matching("a key", r"[!-~]{1,256}", "must be a key, as `postroom key create` shows it")
_ADDRESS_AND_PORT = matching(
    "", r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}", "must be like 127.0.0.1:8725, or none"
)
_MAIL_ADDRESS = matching(
    "", r"[^@\s]{1,64}@[^@\s]{1,255}", "must be an address, such as catchall@example.com"
)
_HEX_KEY = matching(
    "", r"[0-9a-fA-F]{64}", "must be 64 hexadecimal digits, like those in audit.key"
)

TEXT = Reader("text", _read_text)
BOOLEAN = Reader("true or false", _read_boolean)
FOLDER = Reader("a folder", _read_path)
FILE = Reader("a file", _read_path)
PEM_FILE = Reader("a PEM file", _read_path)
VAULT_KEY_FILE = Reader("an absolute path outside the data folder", _read_absolute_path)
HOST = matching("an address", r"[A-Za-z0-9._:-]{1,255}", "must be an IP address or a host name")
URL = matching(
    "an http or https URL",
    r"https?://[A-Za-z0-9.-]{1,255}(:\d{1,5})?(/[!-~]*)?",
    "must be like https://mail.example.com",
    strip="/",
)
DATABASE = requires_extra("postgres", Reader("a postgresql URL", _read_database))
_BLOBS = matching(
    "an s3 URL",
    r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[!-~]*)?",
    "must be like s3://bucket/prefix",
    strip="/",
)
BLOBS = requires_extra("s3", _BLOBS)
_BUCKET = matching(
    "the name of a bucket",
    r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
    "must be the name of a bucket, such as mail-for-us",
)
BUCKET = requires_extra("s3", _BUCKET)
RELAY = Reader("an smtp or smtps URL", _read_relay)
CELL_RELAYS = Reader("domain=smtp URL, with commas", _read_cell_relays)
LISTEN = Reader("an address and a port, or none", _read_listen)
ADDRESS = Reader("an address", lambda raw: _MAIL_ADDRESS.read(raw).lower())
DOMAINS = comma_list("domain names, with commas", _DOMAIN, "domain names, separated by commas")
CELL = matching("1 to 16 of a-z and 0-9", r"[a-z0-9]{1,16}", "must be 1 to 16 of a-z and 0-9")
SERVERS = comma_list("names, with commas", _DOMAIN, "names of servers, separated by commas")
TOOLSETS = comma_list("names, with commas", r"[a-z]+", "names of toolsets, separated by commas")
NETWORKS = Reader("networks, with commas", _read_networks)
TOPICS = Reader("topic ARNs, with commas", _read_topics)
SECRET = matching(
    "8 to 256 characters",
    r"[!-~]{8,256}",
    "must be 8 to 256 visible ASCII characters without spaces",
)
OWNER_KEY = matching(
    "20 to 256 characters",
    r"[!-~]{20,256}",
    "must be 20 to 256 visible ASCII characters without spaces; set a longer one "
    "(`openssl rand -base64 32` makes one), or unset it and run `postroom key reset`",
)
CLIENT_KEY = Reader("a key", _read_client_key)
AUDIT_KEY = Reader("64 hexadecimal digits", lambda raw: bytes.fromhex(_HEX_KEY.read(raw)))
PUBLIC_KEY = Reader("base64, as SendGrid shows it", _read_public_key)
SIGNING_SECRET = Reader("whsec_ and base64", _read_signing_secret)
LOGIN = matching(
    "name:password",
    r"[!-9;-~]{1,100}:[!-~]{8,100}",
    "must be name:password, the password of 8 characters or more",
)
SELECTOR = matching(
    "a DNS label",
    r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?",
    "must be a DNS label, such as mail2026",
)
VAULT = choice("auto", "keyring", "file")
APPROVAL = choice("never", "risky", "always")
LOG_LEVEL = choice("debug", "info", "warning", "error")
LOG_FORMAT = choice("text", "json")
EMBEDDINGS = Reader("bundled, none, or a URL", _read_embeddings)
MODEL = matching(
    "a name", r"[!-~]{1,128}", "must be 1 to 128 visible ASCII characters without spaces"
)
IMAP_AUTH = choice("login", "xoauth2", accepts="login, xoauth2")
