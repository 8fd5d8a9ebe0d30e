"""How the values of settings are read. What is wrong with one is said without repeating it."""

from __future__ import annotations

import re
from pathlib import Path


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


def read_url(raw: object) -> str:
    """The beginning of URLs. Raises ValueError."""
    url = read_text(raw).rstrip("/")
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]{1,255}(:\d{1,5})?(/[!-~]*)?", url):
        raise ValueError("must be like https://mail.example.com")
    return url
