"""Character sets of bodies and of encoded words (RFC 2047)."""

from __future__ import annotations

import binascii
import codecs
import re
from encodings import normalize_encoding
from encodings.aliases import aliases
from functools import lru_cache

from postroom.mail.data import load
from postroom.mail.mime.transfer_encoding import decode_base64

REPLACEMENT = "\ufffd"

_DATA = load("charsets")
_ALIASES: dict[str, str] = {
    name: codec for codec, names in _DATA["aliases"].items() for name in names
}
_REFUSED = frozenset(_DATA["refused"])
_CODECS = frozenset((*aliases, *aliases.values(), *_DATA["codecs"]))
_SAMPLE = 8_000
_FEW_LETTERS = 4
_WESTERN = frozenset(("ascii", "cp1252", "iso8859-15"))
_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF8_LEAD = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")


@lru_cache(maxsize=256)
def codec_name(charset: str) -> str | None:
    """The Python codec for a charset name as mail writes it, None if there is none."""
    name = charset.strip().strip("'\"").lower()
    name = name.removeprefix("charset=")
    name = _ALIASES.get(name) or _ALIASES.get(name.replace("_", "-")) or name
    if not name or len(name) > 40 or not name.isascii() or "\0" in name:
        return None
    if normalize_encoding(name) not in _CODECS:  # asking `codecs` would try an import
        return _without_prefix(name)
    found = codecs.lookup(name).name
    return None if found in _REFUSED else found


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
    data: bytes, charset: str | None = None, *, detects: bool = True
) -> tuple[str, str | None]:
    """The text, and what was wrong with its charset if anything was.

    Detection takes a millisecond: `detects` is for who decodes thousands of pieces.
    """
    if data.isascii() and not _is_stateful(charset):
        return clean(data.decode("ascii")), None
    codec = codec_name(charset) if charset else None
    if charset and codec is None:
        return guess(data, detects=detects), f"unknown charset {clean(charset)[:40]!r}"
    if codec is None:
        return guess(data, detects=detects), "8-bit text without a charset"
    return _decode_as(data, codec, detects=detects)


def _is_stateful(charset: str | None) -> bool:
    """Charsets that spell other letters in ASCII bytes."""
    if not charset:
        return False
    codec = codec_name(charset)
    return codec is not None and (codec.startswith(("utf-7", "utf-16", "utf-32", "iso2022", "hz")))


def _decode_as(data: bytes, codec: str, *, detects: bool) -> tuple[str, str | None]:
    if codec in _WESTERN and not data.isascii() and (text := _utf8_in_disguise(data)) is not None:
        return text, f"declared {codec}, but it is utf-8"
    try:
        return clean(data.decode(codec)), None
    except (UnicodeError, ValueError):
        pass
    defect = f"not valid {codec}"
    if codec == "ascii":
        return guess(data, detects=detects), "8-bit text declared as us-ascii"
    if codec == "cp1252":
        return clean(data.decode("latin-1")), None
    return _repaired(data, codec, detects=detects), defect


def _repaired(data: bytes, codec: str, *, detects: bool) -> str:
    """The declared charset with replacement characters, unless another one fits better."""
    if codec == "utf-8":
        return guess(data, detects=detects)
    if (text := _utf8_in_disguise(data)) is not None:
        return text
    lenient = data.decode(codec, "replace")
    wrong = lenient.count(REPLACEMENT)
    if wrong * 20 <= len(data):
        return clean(lenient)
    other = guess(data, detects=detects)
    return other if other.count(REPLACEMENT) < wrong else clean(lenient)


def _utf8_in_disguise(data: bytes) -> str | None:
    """UTF-8 sent under another name: by chance, other text is hardly ever valid UTF-8."""
    if not _UTF8_LEAD.search(data):
        return None
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError:
        return None


def guess(data: bytes, *, detects: bool = True) -> str:
    """Decode bytes of unknown charset: UTF-8 if valid, else the detected charset."""
    try:
        return clean(data.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    if _is_damaged_utf8(data):
        return clean(data.decode("utf-8", "replace"))
    codec = (_detected(data) if detects else None) or "cp1252"
    try:
        return clean(data.decode(codec))
    except (UnicodeError, ValueError):
        return clean(data.decode("cp1252", "replace"))


def _is_damaged_utf8(data: bytes) -> bool:
    """True if far more letters are good UTF-8 than are not: somebody cut one in two."""
    sample = data[:_SAMPLE]
    wrong = sample.decode("utf-8", "replace").count(REPLACEMENT)
    return len(_UTF8_LEAD.findall(sample)) > 4 * wrong


def _detected(data: bytes) -> str | None:
    """The detected charset; too few bytes are not worth a guess."""
    if sum(byte > 127 for byte in data[:_SAMPLE]) < _FEW_LETTERS:
        return None
    import chardet

    found = chardet.detect(data[:_SAMPLE])["encoding"]
    return codec_name(found) if found else None


# The text of a word may hold what it must not (spaces, question marks), so its end is looked
# for with `find`, which cannot run over the same bytes twice.
_END = re.compile(r"\?=(?![0-9A-F]{2})")
_QUOTED_PAIR = re.compile(r"=[0-9A-F]{2}")
_MAX_WORDS = 5_000
_FEW_WORDS = 20
_START = re.compile(r"=\?([^\s?*]{1,40})(?:\*[^\s?]{0,40})?\?([BbQq])\?")


def decode_words(value: str) -> str:
    """Decode the encoded words of a header; white space between two of them is no content."""
    if "=?" not in value:
        return value
    pieces: list[str] = []
    found = _words(value)
    words = _Run(pieces, detects=len(found) <= _FEW_WORDS)
    at = 0
    for start, end, charset, data in found:
        between = value[at:start]
        if between.strip() or not words.is_open:
            words.close()
            pieces.append(between)
        words.add(charset, data)
        at = end
    words.close()
    pieces.append(value[at:])
    return clean("".join(pieces))


class _Run:
    """Neighbouring words of one charset, decoded together: senders cut letters in two."""

    def __init__(self, pieces: list[str], *, detects: bool) -> None:
        self._pieces = pieces
        self._detects = detects
        self._charset = ""
        self._data: list[bytes] = []

    @property
    def is_open(self) -> bool:
        return bool(self._data)

    def add(self, charset: str, data: bytes) -> None:
        if self._data and charset != self._charset:
            self.close()
        self._charset = charset
        self._data.append(data)

    def close(self) -> None:
        if self._data:
            data = b"".join(self._data)
            self._pieces.append(decode(data, self._charset, detects=self._detects)[0])
            self._data = []


def _words(value: str) -> list[tuple[int, int, str, bytes]]:
    """Each word: where it starts and ends, its charset, its bytes."""
    found: list[tuple[int, int, str, bytes]] = []
    at = 0
    while len(found) < _MAX_WORDS and (match := _START.search(value, at)):
        end = _end_of_word(value, match.end())
        if end < 0:
            break
        payload = value[match.end() : end]
        found.append((match.start(), end + 2, match[1].lower(), _payload(payload, match[2])))
        at = end + 2
    return found


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
