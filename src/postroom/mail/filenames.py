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


def shown_filename(name: str, *, default: str = "attachment") -> str:
    """The sender's name for a file as one may show it: no path, nothing that does not show."""
    pieces = [piece for piece in _PATH.split(clean(name)) if piece.strip(" .")]
    last = " ".join(pieces[-1].split()) if pieces else ""
    return shorten("".join(c for c in last if not _shows_nothing(c)), MOST_CHARS) or default


def safe_filename(name: str, *, default: str = "attachment") -> str:
    """A name that no system treats specially: for writing a file, not only for showing it."""
    name = _UNSAFE.sub("_", shown_filename(name, default="")).strip(". ")
    if _RESERVED.match(name):
        name = f"_{name}"
    return name[:MOST_CHARS] or default


def _shows_nothing(char: str) -> bool:
    """Controls, bidirectional overrides and their kin."""
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
