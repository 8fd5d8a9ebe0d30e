"""Content-Transfer-Encoding: from what travelled to the bytes that were meant."""

from __future__ import annotations

import binascii
import re

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_NOT_BASE64 = bytes(set(range(256)) - set(_ALPHABET))
_SAMPLE, _MUCH = 2_048, 8
_PADDED = re.compile(rb"[^=]++=*+")
_MAX_STREAMS = 1_000
_MAX_UU = 1_000
_PADDED_BREAKS = tuple(
    (b"=" + pad + end, b"=" + end) for pad in (b" ", b"\t", b"  ") for end in (b"\n", b"\r\n")
)
_UU_BEGIN = re.compile(rb"^begin[ \t]+[0-7]{3,4}[ \t]+([^\r\n]*?)[ \t]*\r?$", re.MULTILINE)


def decode_transfer(data: bytes, encoding: str) -> bytes:
    """Undo a transfer encoding; one we do not know leaves the bytes as they are."""
    if encoding == "base64":
        return data if _is_prose(data) else decode_base64(data)
    if encoding == "quoted-printable":
        return decode_quoted_printable(data)
    if encoding in ("x-uuencode", "uuencode", "x-uue", "uue"):
        return decode_uu(data)
    return data


def _is_prose(data: bytes) -> bool:
    """Text that only claims to be base64: there is much between the words of its lines."""
    lines = data[:_SAMPLE].split()
    between = sum(len(line.translate(None, _ALPHABET)) for line in lines)
    between += len(lines) - 1 - data[:_SAMPLE].strip().count(b"\n")
    return between >= _MUCH and between * 25 > len(data[:_SAMPLE])


def decode_base64(data: bytes) -> bytes:
    """Decode base64 with line breaks, stray characters, missing or repeated padding."""
    compact = data.translate(None, _NOT_BASE64)
    body = compact.rstrip(b"=")
    if b"=" not in body:
        return _decode_unpadded(body)
    if compact.count(b"=") > _MAX_STREAMS:
        return _decode_unpadded(body[: body.index(b"=")])
    first, *others = _PADDED.findall(compact)
    # after its padding base64 is over, unless whole other streams follow
    follows = all(len(piece) % 4 == 0 for piece in others)
    pieces = [first, *others] if follows else [first]
    return b"".join(_decode_unpadded(piece.rstrip(b"=")) for piece in pieces)


def _decode_unpadded(body: bytes) -> bytes:
    spare = len(body) % 4
    if spare == 1:  # six bits are no byte
        body, spare = body[:-1], 0
    return binascii.a2b_base64(body + b"=" * (-spare % 4))


def decode_quoted_printable(data: bytes) -> bytes:
    """Decode quoted-printable; a soft break may have grown white space on its way."""
    if b"= " in data or b"=\t" in data:
        for padded, plain in _PADDED_BREAKS:
            data = data.replace(padded, plain)
    return binascii.a2b_qp(data)


def decode_uu(data: bytes) -> bytes:
    """Decode the first uuencoded file in the data."""
    begin = _UU_BEGIN.search(data)
    return _uu_lines(data, begin.end())[0] if begin else data


def find_uu(data: bytes) -> list[tuple[int, int, str, bytes]]:
    """Every uuencoded file inside a text: where it starts and ends, its name, its bytes."""
    found: list[tuple[int, int, str, bytes]] = []
    at = 0
    for _ in range(_MAX_UU):
        begin = _UU_BEGIN.search(data, at)
        if begin is None:
            break
        content, at = _uu_lines(data, begin.end())
        if content:
            found.append((begin.start(), at, begin[1].decode("utf-8", "replace"), content))
    return found


def without_uu(text: str) -> str:
    """The text without the files in it."""
    if "begin " not in text:
        return text
    data = text.encode()
    pieces: list[bytes] = []
    at = 0
    for start, end, _, _ in find_uu(data):
        pieces.append(data[at:start])
        at = end
    return b"".join((*pieces, data[at:])).decode() if pieces else text


def _uu_lines(data: bytes, start: int) -> tuple[bytes, int]:
    """The bytes of the lines up to `end`, and where the next line begins."""
    pieces: list[bytes] = []
    at = data.find(b"\n", start) + 1 or len(data)
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end].strip(b"\r\n")
        if line.strip() == b"end":
            return b"".join(pieces), end
        piece = _uu_line(line)
        if piece is None:
            break
        pieces.append(piece)
        at = end
    return b"".join(pieces), at


def _uu_line(line: bytes) -> bytes | None:
    try:
        return binascii.a2b_uu(line)
    except binascii.Error:
        pass
    if not line or not 32 <= line[0] <= 96:
        return None
    # some encoders append a checksum, or cut trailing spaces
    wanted = ((line[0] - 32) & 63) * 4 // 3 + 3
    try:
        return binascii.a2b_uu(line[:wanted].ljust(wanted))
    except binascii.Error:
        return None
