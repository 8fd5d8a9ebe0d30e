"""From the bytes of a body or header to text: transfer encodings and character sets."""

from __future__ import annotations

import binascii
import codecs
import re
from collections.abc import Sequence
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import cache, lru_cache

from postroom.mail.data import load
from postroom.mail.mime.detection import (
    decode_iso2022_jp,
    detect_multibyte,
    is_latin,
    is_western,
    lines_with_letters,
    rare_letters,
)
from postroom.model.values import late_pattern

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_NOT_BASE64 = bytes(set(range(256)) - set(_ALPHABET))
_PROSE_SAMPLE, _MUCH = 2_048, 8
_PADDED = late_pattern(rb"[^=]++=*+")
_MAX_STREAMS = 1_000
_MAX_UU = 1_000
_PADDED_BREAKS = tuple(
    (b"=" + pad + end, b"=" + end) for pad in (b" ", b"\t", b"  ") for end in (b"\n", b"\r\n")
)
_UU_BEGIN = late_pattern(rb"^begin[ \t]+[0-7]{3,4}[ \t]+([^\r\n]*?)[ \t]*\r?$", re.MULTILINE)


_ENCODINGS = frozenset(("", "7bit", "8bit", "base64", "quoted-printable"))
_MISSPELT = {"base64": "base64", "quotedprintable": "quoted-printable", "qp": "quoted-printable"}
_NO_LETTER = re.compile(r"[^a-z0-9]+")


def transfer_encoding(value: str) -> str:
    """The transfer encoding that a header names, also if it is misspelt."""
    said = value.strip().strip('"').lower()
    return said if said in _ENCODINGS else _MISSPELT.get(_NO_LETTER.sub("", said), said)


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
    lines = data[:_PROSE_SAMPLE].split()
    between = sum(len(line.translate(None, _ALPHABET)) for line in lines)
    between += len(lines) - 1 - data[:_PROSE_SAMPLE].strip().count(b"\n")
    return between >= _MUCH and between * 25 > len(data[:_PROSE_SAMPLE])


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
    if spare == 1:  # six bits are not a byte
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


REPLACEMENT = "\ufffd"

_SAMPLE = 8_000
_FEW_LETTERS = 4
_SHORTEST = 12
_WESTERN = frozenset(("ascii", "cp1252", "iso8859-15"))
_LATIN = frozenset(("cp1250", "cp1254", "cp1257", "iso8859-2", "iso8859-13", "iso8859-16", "cp852"))
_POLISH_SIGNS = (b"\xb3", b"\xb9")  # ł and ą, which are small digits in windows-1252
_COMMON = _WESTERN | {"utf-8", "utf-16", "utf-7"}
_SURROGATE = late_pattern("[\ud800-\udfff]")
_UTF8_LEAD = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")


@cache
def _charsets() -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """The codec of each alias, all codecs, and codecs that are no charsets."""
    data = load("charsets")
    named = {name: codec for codec, names in data["aliases"].items() for name in names}
    known = frozenset((*aliases, *aliases.values(), *data["codecs"]))
    return named, known, frozenset(data["refused"])


@lru_cache(maxsize=256)
def codec_name(charset: str) -> str | None:
    """The Python codec for a charset name as mail writes it, None if there is none."""
    name = charset.partition(" (")[0].strip().strip("'\"").lower()  # without a comment
    name = name.removeprefix("charset=")
    named, known, refused = _charsets()
    name = named.get(name) or named.get(name.replace("_", "-")) or name
    if not name or len(name) > 40 or not name.isascii() or "\0" in name:
        return None
    if normalize_encoding(name) not in known:  # asking `codecs` would try an import
        return _without_prefix(name)
    found = codecs.lookup(name).name
    return None if found in refused else found


def _without_prefix(name: str) -> str | None:
    for prefix in ("x-", "windows-", "cs"):
        if name.startswith(prefix) and len(name) > len(prefix):
            return codec_name(name.removeprefix(prefix))
    return None


def clean(text: str) -> str:
    """Remove what cannot be stored: NUL and lone surrogates."""
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(REPLACEMENT, text)
    return text


def decode(
    data: bytes,
    charset: str | None = None,
    *,
    detects: bool = True,
    hints: Sequence[str] = (),
) -> tuple[str, str | None]:
    """The text, and what was wrong with its charset if anything was.

    Detection takes a millisecond: `detects` is for who decodes thousands of pieces. `hints` are
    charsets that other parts of the mail declare.
    """
    if data.isascii() and not _is_stateful(charset):
        return clean(data.decode("ascii")), None
    codec = codec_name(charset) if charset else None
    if charset and codec is None:
        defect = f"unknown charset {clean(charset)[:40]!r}"
        return decode_unknown(data, detects=detects, hints=hints), defect
    if codec is None:
        return decode_unknown(data, detects=detects, hints=hints), "8-bit text without a charset"
    return _decode_as(data, codec, detects=detects)


def _is_stateful(charset: str | None) -> bool:
    """Charsets that spell other letters in ASCII bytes."""
    if not charset:
        return False
    codec = codec_name(charset)
    return codec is not None and (codec.startswith(("utf-7", "utf-16", "utf-32", "iso2022", "hz")))


def _decode_as(data: bytes, codec: str, *, detects: bool) -> tuple[str, str | None]:
    if codec in _WESTERN and not data.isascii() and (text := _misdeclared_utf8(data)) is not None:
        return text, f"declared {codec}, but it is utf-8"
    if codec.startswith("iso2022_jp"):
        return _iso2022_jp(data, codec, detects=detects)
    has_wide = codec.startswith(("utf-16", "utf-32")) and b"\0" not in data
    if has_wide and len(data) >= _SHORTEST and (text := _misdeclared_utf8(data)) is not None:
        return text, f"declared {codec}, but it is utf-8"
    try:
        return clean(data.decode(codec)), None
    except (UnicodeError, ValueError):
        pass
    defect = f"not valid {codec}"
    if codec == "ascii":
        return decode_unknown(data, detects=detects), "8-bit text declared as us-ascii"
    if codec == "cp1252":
        return clean(data.decode("latin-1")), None
    return _decode_damaged(data, codec, detects=detects), defect


def _iso2022_jp(data: bytes, codec: str, *, detects: bool) -> tuple[str, str | None]:
    """ISO-2022-JP; without its escapes it is another charset of Japan under this name."""
    if data.isascii() or b"\x1b" in data:
        return clean(decode_iso2022_jp(data)), None if data.isascii() else f"not valid {codec}"
    return decode_unknown(data, detects=detects, hints=("cp932", "euc_jp")), f"not valid {codec}"


def _decode_damaged(data: bytes, codec: str, *, detects: bool) -> str:
    """The declared charset with replacement characters, unless another one fits better."""
    if codec == "utf-8":
        is_cut = _is_damaged_utf8(data, per_wrong=1) and detect_multibyte(data[:_SAMPLE]) is None
        return (
            clean(data.decode(codec, "replace"))
            if is_cut
            else decode_unknown(data, detects=detects)
        )
    if (text := _misdeclared_utf8(data)) is not None:
        return text
    lenient = data.decode(codec, "replace")
    wrong = lenient.count(REPLACEMENT)
    if wrong * 20 <= len(data):
        return clean(lenient)
    other = decode_unknown(data, detects=detects)
    return other if other.count(REPLACEMENT) < wrong else clean(lenient)


def _misdeclared_utf8(data: bytes) -> str | None:
    """UTF-8 sent under another name: by chance, other text is hardly ever valid UTF-8."""
    if not (_UTF8_LEAD.search(data) or data.isascii()):
        return None
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def decode_unknown(data: bytes, *, detects: bool = True, hints: Sequence[str] = ()) -> str:
    """Decode bytes of unknown charset: UTF-8 if valid, else the detected charset."""
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    if _is_damaged_utf8(data):
        return clean(data.decode("utf-8", "replace"))
    codec = (_detect_charset(data, hints) if detects else None) or "cp1252"
    try:
        return clean(data.decode(codec))
    except (UnicodeError, ValueError):
        return clean(data.decode("cp1252", "replace"))


def _is_damaged_utf8(data: bytes, per_wrong: int = 4) -> bool:
    """True if far more letters are valid UTF-8 than not: a character was cut in two."""
    sample = data[:_SAMPLE]
    wrong = sample.decode("utf-8", "replace").count(REPLACEMENT)
    return len(_UTF8_LEAD.findall(sample)) > per_wrong * wrong


def _detect_charset(data: bytes, hints: Sequence[str]) -> str | None:
    """The charset that the lines with 8-bit bytes look like; too few are not worth a guess."""
    sample = lines_with_letters(data, _SAMPLE)
    named = [codec for hint in hints if (codec := codec_name(hint)) and codec not in _COMMON]
    if fitting := [codec for codec in named if _is_decodable(sample, codec)]:
        return min(fitting, key=lambda codec: rare_letters(sample, codec))
    if sum(byte > 127 for byte in sample) < _FEW_LETTERS:
        return None
    if (codec := detect_multibyte(sample)) is not None:
        return codec
    latin = is_latin(sample)
    if latin and is_western(sample):
        return "cp1252"
    import chardet

    found = chardet.detect(sample)["encoding"]
    codec = codec_name(found) if found else None
    if codec and not codec.startswith("utf") and b"mail".decode(codec, "replace") != "mail":
        return None  # EBCDIC
    if not latin or codec in _LATIN:
        return codec
    return "cp1250" if any(sign in sample for sign in _POLISH_SIGNS) else "cp1252"


def _is_decodable(sample: bytes, codec: str) -> bool:
    try:
        sample.decode(codec)
    except (UnicodeError, ValueError):
        return False
    return True


# The text of a word may hold what it must not (spaces, question marks), so its end is looked
# for with `find`, which cannot run over the same bytes twice.
_END = late_pattern(r"\?=(?![0-9A-F]{2})")
_QUOTED_PAIR = late_pattern(r"=[0-9A-F]{2}")
_MAX_WORDS = 5_000
_FEW_WORDS = 20
_START = late_pattern(r"=\?([^\s?*]{1,40})(?:\*[^\s?]{0,40})?\?([BbQq])\?")


_LONGEST_WORD = 500
_PARTIAL_LETTER = re.compile(r"=[0-9A-Fa-f]?$")
_PARTIAL_UTF8 = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})$")


def decode_words(value: str) -> str:
    """Decode the encoded words of a header; white space between two of them is no content."""
    if "=?" not in value:
        return value
    found = _encoded_words(value)
    # Neighbouring words of one charset are decoded together: senders cut letters in two.
    runs: list[tuple[str, str, list[bytes]]] = []
    at = 0
    for start, end, charset, data in found:
        between = value[at:start]
        at = end
        follows = bool(runs) and not between.strip()
        if follows and runs[-1][1] == charset:
            runs[-1][2].append(data)
        else:
            runs.append(("" if follows else between, charset, [data]))
    detects = len(found) <= _FEW_WORDS
    pieces = [
        before + decode(b"".join(data), charset, detects=detects)[0]
        for before, charset, data in runs
    ]
    return clean("".join((*pieces, value[at:])))


def _encoded_words(value: str) -> list[tuple[int, int, str, bytes]]:
    """Each word: where it starts and ends, its charset, its bytes."""
    found: list[tuple[int, int, str, bytes]] = []
    at = 0
    while len(found) < _MAX_WORDS and (match := _START.search(value, at)):
        end = _end_of_word(value, match.end())
        if end < 0:
            if (rest := _truncated_word(value[match.end() :])) is not None:
                data, charset = _payload(rest, match[2]), match[1].lower()
                data = _PARTIAL_UTF8.sub(b"", data) if codec_name(charset) == "utf-8" else data
                found.append((match.start(), len(value), charset, data))
            break
        payload = value[match.end() : end]
        found.append((match.start(), end + 2, match[1].lower(), _payload(payload, match[2])))
        at = end + 2
    return found


def _truncated_word(rest: str) -> str | None:
    """The beginning of a truncated last word, without its partial last letter."""
    rest = rest.rstrip().removesuffix("?")
    is_word = bool(rest) and " " not in rest and "?" not in rest and len(rest) < _LONGEST_WORD
    return _PARTIAL_LETTER.sub("", rest) if is_word else None


def _end_of_word(value: str, start: int) -> int:
    """The closing `?=`; not one where the question mark belongs to a quoted `=3D` after it."""
    end = value.find("?=", start)
    if end < 0 or not _QUOTED_PAIR.match(value, end + 1):
        return end
    opening = value.find("=?", end + 2)
    better = _END.search(value, end + 2, opening if opening >= 0 else len(value))
    return better.start() if better else end


def _payload(text: str, encoding: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if encoding in "Bb":
        return decode_base64(data)
    return binascii.a2b_qp(data.replace(b" ", b"_"), header=True)
