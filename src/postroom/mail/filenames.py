"""File names that are only names."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

from postroom.mail.charsets import clean

MOST_CHARS = 255
MOST_DOWNLOAD_BYTES = 150
_UNSAFE = re.compile(r'[<>:"|?*]')
_PATH = re.compile(r"[\\/]+")
_RESERVED = re.compile(r"^(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?=\.|$)", re.IGNORECASE)
_SHOWS_NOTHING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def safe_filename(name: str, *, default: str = "attachment") -> str:
    """A name without path, control or direction characters that no system treats specially."""
    name = clean(name).strip()
    last = [piece for piece in _PATH.split(name) if piece.strip(" .")]
    name = "".join(c for c in (last[-1] if last else "") if not _is_inert(c))
    name = _UNSAFE.sub("_", name).strip().rstrip(". ").lstrip(". ")
    if _RESERVED.match(name):
        name = f"_{name}"
    return shorten(name, MOST_CHARS) or default


def _is_inert(char: str) -> bool:
    """Controls, bidirectional overrides and other characters that show nothing."""
    joins = ("\u200c", "\u200d")  # letters of some scripts need them
    return char not in joins and unicodedata.category(char) in _SHOWS_NOTHING


def shorten(name: str, most: int) -> str:
    """Cut the stem, keep the extension."""
    if len(name) <= most:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot or len(extension) > 20:
        return name[:most]
    return stem[: most - len(extension) - 1] + "." + extension


def download_name(filename: str) -> str:
    """The safe name, cut to fit a header."""
    name = safe_filename(filename)
    most = MOST_DOWNLOAD_BYTES
    while len(name.encode()) > MOST_DOWNLOAD_BYTES:
        name = shorten(name, most)
        most -= 1
    return name


def content_disposition(filename: str) -> str:
    """The header value that makes a browser save a file under this name (RFC 6266, RFC 8187)."""
    name = download_name(filename)
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^\w .()+,=@!-]", "_", plain).strip() or "attachment"
    if plain == name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
