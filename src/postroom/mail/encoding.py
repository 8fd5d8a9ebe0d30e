"""Writing headers and bodies so that any text survives any mail server."""

from __future__ import annotations

import binascii
import re
from urllib.parse import quote

LINE = 76
LONGEST = 998
_Q_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/")
_WORD_BYTES = 45
_7BIT = re.compile(rb"(?:[\t -~]{0,998}+\r\n)*+[\t -~]{0,998}+")


def encode_words(text: str) -> list[str]:
    """Encoded words (RFC 2047) for a text; no word splits a letter."""
    data = text.encode()
    plain = sum(byte in _Q_SAFE or byte == 32 for byte in data)
    letter = _q_word if plain * 2 > len(data) else _b_word
    words: list[str] = []
    chunk = ""
    size = 0
    for char in text:
        width = len(_q(char)) if letter is _q_word else len(char.encode())
        if chunk and size + width > (_WORD_BYTES + 15 if letter is _q_word else _WORD_BYTES):
            words.append(letter(chunk))
            chunk, size = "", 0
        chunk += char
        size += width
    return [*words, letter(chunk)] if chunk else words


def _b_word(text: str) -> str:
    return f"=?utf-8?b?{binascii.b2a_base64(text.encode(), newline=False).decode()}?="


def _q_word(text: str) -> str:
    return f"=?utf-8?q?{_q(text)}?="


def _q(text: str) -> str:
    return "".join(
        "_" if byte == 32 else chr(byte) if byte in _Q_SAFE else f"={byte:02X}"
        for byte in text.encode()
    )


def unstructured(text: str) -> list[str]:
    """The tokens of a header value such as Subject, ready to be folded between them."""
    tokens = text.split(" ")
    is_plain = text.isascii() and "=?" not in text and all(len(t) < LONGEST - 100 for t in tokens)
    if is_plain and all(tokens):
        return tokens
    return encode_words(text) if text else []


def phrase(name: str) -> str:
    """A display name, quoted or encoded as it needs."""
    if not name.isascii() or "=?" in name:
        return "\r\n ".join(encode_words(name))
    if all(c.isalnum() or c in "!#$%&'*+-/=?^_`{|}~ " for c in name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if len(escaped) < LONGEST - 400 else "\r\n ".join(encode_words(name))


def fold_tokens(name: str, tokens: list[str]) -> str:
    """A header line, broken before a token where it would get too long."""
    lines: list[str] = []
    line = f"{name}:"
    for token in tokens:
        if len(line) + 1 + len(token) > LINE and len(line) > len(name) + 1:
            lines.append(line)
            line = ""
        line += f" {token}"
        if "\r\n" in token:
            head, _, line = line.rpartition("\r\n")
            lines.append(head)
    lines.append(line)
    return "\r\n".join(lines) + "\r\n"


def parameter(name: str, value: str) -> list[str]:
    """A MIME parameter: plain, or in RFC 2231 sections when it is long or not ASCII."""
    if value.isascii() and len(value) <= 60 and "=?" not in value:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return [f'{name}="{escaped}"']
    encoded = "utf-8''" + quote(value, safe="")
    sections = _sections(encoded)
    if len(sections) == 1:
        return [f"{name}*={encoded}"]
    return [f"{name}*{number}*={section}" for number, section in enumerate(sections)]


def _sections(encoded: str) -> list[str]:
    """Pieces of at most 60 characters that do not cut a %XX."""
    sections: list[str] = []
    while encoded:
        end = 60
        if "%" in encoded[end - 2 : end]:
            end = encoded.index("%", end - 2)
        sections.append(encoded[:end])
        encoded = encoded[end:]
    return sections


def encode_text(text: str, *, boundary: str) -> tuple[str, bytes]:
    """The transfer encoding for a body and the body in it, with CRLF line ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data = "\r\n".join(lines).encode()
    is_plain = data.isascii() and all(len(line) <= LINE + 2 for line in lines)
    if is_plain and boundary not in text and not _has_odd_controls(data):
        return "7bit", data
    quoted = binascii.b2a_qp(data, istext=True)
    quoted = quoted.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    encoded = encode_base64(data)
    return ("quoted-printable", quoted) if len(quoted) <= len(encoded) else ("base64", encoded)


def _has_odd_controls(data: bytes) -> bool:
    return any((byte < 32 and byte not in (9, 10, 13)) or byte == 127 for byte in set(data))


def is_7bit(data: bytes, *, boundary: str) -> bool:
    """Whether bytes can stand in a mail between two boundaries just as they are."""
    return _7BIT.fullmatch(data) is not None and boundary.encode() not in data


def encode_base64(data: bytes) -> bytes:
    """Base64 in lines of 76."""
    width = LINE * 3 // 4
    lines = (data[at : at + width] for at in range(0, len(data), width))
    return b"".join(binascii.b2a_base64(line, newline=False) + b"\r\n" for line in lines)
