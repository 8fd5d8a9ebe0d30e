"""Readers of setting values. Errors do not repeat the value, which may be a secret."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from postroom.providers.smtp.url import parse_relay_url

_DATABASE = re.compile(r"[a-z]+://([^@/]*@)?[^@/?]*(/[^@/?]*)?(\?.*)?")
"""Less than what libpq takes for a URL: a password with a bare `@` or `/` would be one, too, and
end up in the name of the host or the database, which errors show."""

_TOPIC = r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w.-]{1,256}"


def read_text(raw: object) -> str:
    """Printable text. Raises ValueError."""
    if not isinstance(raw, (str, Path)) or not str(raw).isprintable():
        raise ValueError("must be text")
    return str(raw)


def read_integer(least: int, most: int, raw: object) -> int:
    """A whole number within bounds. Raises ValueError."""
    try:
        number = int(raw) if isinstance(raw, str) else raw
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ValueError(f"must be a whole number from {least} to {most}")
    return number


def read_truth(raw: object) -> bool:
    """True or false, as people write it. Raises ValueError."""
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    value = words.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def read_words(pattern: str, wanted: str, raw: object) -> tuple[str, ...]:
    """Names separated by commas, each of a pattern. Raises ValueError."""
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)) or not items:
        raise ValueError(f"must be {wanted}")
    words = tuple(dict.fromkeys(read_text(item).strip().lower() for item in items))
    for word in words:
        if not re.fullmatch(pattern, word):
            raise ValueError(f"{word or 'an empty name'} is not one of {wanted}")
    return words


def read_path(raw: object) -> Path:
    """A path; `~` is the user's home. Raises ValueError."""
    return Path(read_text(raw)).expanduser()


def read_file_elsewhere(raw: object) -> Path:
    """A file by its whole path, wherever we are started. Raises ValueError."""
    path = read_path(raw)
    if not path.is_absolute():
        raise ValueError("must be an absolute path, of a file outside of the data folder")
    return path


def read_host(raw: object) -> str:
    """An IP address or a host name. Raises ValueError."""
    host = read_text(raw)
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,255}", host):
        raise ValueError("must be an IP address or a host name")
    return host


def read_key(raw: object) -> str:
    """A secret that fits a header. Raises ValueError."""
    key = read_text(raw)
    if not re.fullmatch(r"[!-~]{8,256}", key):
        raise ValueError("must be 8 to 256 visible ASCII characters without spaces")
    return key


def read_owner_key(raw: object) -> str:
    """The owner's key, long enough that it cannot be guessed. Raises ValueError."""
    key = read_text(raw)
    if not re.fullmatch(r"[!-~]{20,256}", key):
        raise ValueError(
            "must be 20 to 256 visible ASCII characters without spaces; set a longer one "
            "(`openssl rand -base64 32` makes one), or unset it and run `postroom key reset`"
        )
    return key


def read_bearers_key(raw: object) -> str:
    """A key as its bearer has it. Raises ValueError."""
    if isinstance(raw, str) and not raw.strip():
        raise ValueError(
            "is empty; set it to a key, as `postroom key create` shows it, or unset it for the "
            "rights of the owner's agent"
        )
    key = read_text(raw)
    if not re.fullmatch(r"[!-~]{1,256}", key):
        raise ValueError("must be a key, as `postroom key create` shows it")
    return key


def read_signing_secret(raw: object) -> str:
    """The secret of Resend's webhook. Raises ValueError."""
    from postroom.providers.inbound.json_posts import key_of

    secret = read_key(raw)
    key_of(secret)
    return secret


def read_public_key(raw: object) -> str:
    """A public key as SendGrid shows it. Raises ValueError."""
    from postroom.providers.inbound.form_posts import load_public_key

    key = read_key(raw)
    load_public_key(key)
    return key


def read_url(raw: object) -> str:
    """The beginning of URLs. Raises ValueError."""
    url = read_text(raw).rstrip("/")
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]{1,255}(:\d{1,5})?(/[!-~]*)?", url):
        raise ValueError("must be like https://mail.example.com")
    return url


def read_vault_kind(raw: object) -> str:
    """Where secrets are kept. Raises ValueError."""
    (word,) = read_words("auto|keyring|file", "auto, keyring or file", raw)
    return word


def read_relay(raw: object) -> str:
    """The URL of a server that takes mail. Raises ValueError."""
    url = read_text(raw)
    parse_relay_url(url)
    return url


def read_database(raw: object) -> str:
    """The URL of a PostgreSQL database. Raises ValueError, without a word of what libpq says."""
    url = read_text(raw)
    looks_right = re.fullmatch(r"postgres(ql)?://[!-~]+", url) and _DATABASE.fullmatch(url)
    if not (looks_right and _is_read_by_libpq(url)):
        raise ValueError(
            "must be like postgresql://user:password@host:5432/postroom; in the password, write "
            "% as %25, @ as %40 and / as %2F"
        )
    return url


def _is_read_by_libpq(url: str) -> bool:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        ports = str(conninfo_to_dict(url).get("port", ""))
    except ProgrammingError:
        return False
    return re.fullmatch(r"[0-9,]*", ports) is not None


def read_audit_key(raw: object) -> bytes:
    """32 bytes in hexadecimal digits. Raises ValueError."""
    text = read_text(raw)
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError("must be 64 hexadecimal digits, like those in audit.key")
    return bytes.fromhex(text)


def read_blobs(raw: object) -> str:
    """The URL of a bucket, perhaps with a prefix. Raises ValueError."""
    url = read_text(raw).rstrip("/")
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,62}(/[!-~]*)?", url):
        raise ValueError("must be like s3://bucket/prefix")
    return url


def read_listen(raw: object) -> str | None:
    """An address and a port, or None to disable the listener. Raises ValueError."""
    text = read_text(raw)
    if text.lower() in ("none", "off"):
        return None
    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}", text):
        raise ValueError("must be like 127.0.0.1:8725, or none")
    return text


def read_address(raw: object) -> str:
    """A mail address, in lower case. Raises ValueError."""
    address = read_text(raw)
    if not re.fullmatch(r"[^@\s]{1,64}@[^@\s]{1,255}", address):
        raise ValueError("must be an address, such as catchall@example.com")
    return address.lower()


def read_networks(raw: object) -> tuple[IPv4Network | IPv6Network, ...]:
    """IP networks separated by commas. Raises ValueError."""
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)):
        raise ValueError("must be networks, such as 10.0.0.0/8, several with commas")
    try:
        return tuple(ip_network(read_text(item).strip()) for item in items)
    except ValueError:
        raise ValueError("must be networks, such as 10.0.0.0/8, several with commas") from None


def read_login(raw: object) -> str:
    """A name and a password. Raises ValueError."""
    login = read_text(raw)
    if not re.fullmatch(r"[!-9;-~]{1,100}:[!-~]{8,100}", login):
        raise ValueError("must be name:password, the password of 8 characters or more")
    return login


def read_topics(raw: object) -> tuple[str, ...]:
    """The ARNs of SNS topics, separated by commas. Raises ValueError."""
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, (list, tuple)):
        raise ValueError("must be topics, such as arn:aws:sns:eu-west-1:123456789012:mail")
    topics = tuple(read_text(item).strip() for item in items)
    if not all(re.fullmatch(_TOPIC, topic) for topic in topics):
        raise ValueError("must be topics, such as arn:aws:sns:eu-west-1:123456789012:mail")
    return topics


def read_bucket(raw: object) -> str:
    """The name of a bucket. Raises ValueError."""
    name = read_text(raw)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name):
        raise ValueError("must be the name of a bucket, such as mail-for-us")
    return name


def read_selector(raw: object) -> str:
    """The selector of a DKIM key. Raises ValueError."""
    selector = read_text(raw)
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?", selector):
        raise ValueError("must be a DNS label, such as mail2026")
    return selector


def read_embeddings(raw: object) -> str:
    """The source of embeddings: `bundled`, `none` or a URL. Raises ValueError."""
    word = read_text(raw)
    if word.lower() in ("bundled", "none"):
        return word.lower()
    try:
        return read_url(word)
    except ValueError:
        raise ValueError("must be bundled, none, or like https://api.example.com/v1") from None


def read_model(raw: object) -> str:
    """The name of a model. Raises ValueError."""
    name = read_text(raw)
    if not re.fullmatch(r"[!-~]{1,128}", name):
        raise ValueError("must be 1 to 128 visible ASCII characters without spaces")
    return name
