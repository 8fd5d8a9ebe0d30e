"""Charsets that bytes look like: East Asian text without a declaration, and ISO-2022-JP as sent."""

from __future__ import annotations

import re
from collections.abc import Callable

from postroom.mail.data import load

_MIN_WIDE = 2
_COMMON = 0.85
_ADJACENT = 0.6
_ODD = 0.1


def lines_with_letters(data: bytes, max_bytes: int) -> bytes:
    """The lines with bytes beyond ASCII: the others only make a detector think of English."""
    return b"\n".join(line for line in data.split(b"\n") if not line.isascii())[:max_bytes]


def rare_letters(sample: bytes, codec: str) -> int:
    """How many letters hardly anybody writes: half-width kana, and those of private use."""
    text = sample.decode(codec, "replace")
    return sum("\uff61" <= letter <= "\uff9f" or "\ue000" <= letter <= "\uf8ff" for letter in text)


def _is_kana(letter: str) -> bool:
    return "\u3040" <= letter <= "\u30ff"


def _lead_byte(letter: str, codec: str) -> int:
    """The first byte of a letter in a charset, 0 if it is not in it."""
    try:
        encoded = letter.encode(codec)
    except UnicodeEncodeError:
        return 0
    return encoded[0] if len(encoded) == 2 else 0


# The characters that most words consist of, which each standard puts into its first part.
_CANDIDATES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("cp949", lambda letter: 0xB0 <= _lead_byte(letter, "euc_kr") <= 0xC8),
    ("cp932", lambda letter: _is_kana(letter) or 0xB0 <= _lead_byte(letter, "euc_jp") <= 0xCF),
    ("euc_jp", lambda letter: _is_kana(letter) or 0xB0 <= _lead_byte(letter, "euc_jp") <= 0xCF),
    ("gb18030", lambda letter: 0xB0 <= _lead_byte(letter, "gb2312") <= 0xD7),
    ("big5hkscs", lambda letter: 0xA4 <= _lead_byte(letter, "big5") <= 0xC6),
)
_JAPANESE = frozenset(("cp932", "euc_jp"))
_MIN_KANA = 0.2


def detect_multibyte(sample: bytes) -> str | None:
    """The East Asian charset in which all bytes pair up to common characters, None if none.

    In Western text such pairs would be isolated between ASCII letters.
    """
    scores = {codec: _score(sample, codec, common) for codec, common in _CANDIDATES}
    fitting = [codec for codec, score in scores.items() if score >= _COMMON]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    return max(fitting, key=lambda codec: (_share_of_frequent(sample, codec), scores[codec]))


def _share_of_frequent(sample: bytes, codec: str) -> float:
    """The share of frequent characters; kana are in every Japanese sentence."""
    letters = [letter for letter in _decode_sample(sample, codec) if letter >= "\u2e80"]
    known = frozenset(load("charsets")["frequent"].get(codec, ()))
    return sum(letter in known or _is_kana(letter) for letter in letters) / len(letters)


def _score(sample: bytes, codec: str, is_common: Callable[[str], bool]) -> float:
    """The share of common characters, 0 if the bytes do not fit."""
    try:
        text = _decode_sample(sample, codec)
    except UnicodeDecodeError:
        return 0
    wide = [at for at, letter in enumerate(text) if letter >= "\u2e80"]
    letters = [text[at] for at in wide if not _is_punctuation(text[at])]
    others = sum("\x7f" < letter < "\u2e80" for letter in text)
    if len(letters) < _MIN_WIDE or others > _ODD * len(wide):
        return 0
    places = set(wide)
    adjacent = sum(at - 1 in places or at + 1 in places for at in wide)
    if adjacent < _ADJACENT * len(wide):
        return 0
    kana = sum(map(_is_kana, letters))
    if codec in _JAPANESE and kana < _MIN_KANA * len(letters):
        return 0
    if codec not in _JAPANESE and kana > _ODD * len(letters):
        return 0
    return sum(map(is_common, letters)) / len(letters)


def _is_punctuation(letter: str) -> bool:
    return "\u3000" <= letter <= "\u303f" or letter >= "\uff00"


def _decode_sample(sample: bytes, codec: str) -> str:
    """Decode strictly, but for a last character that the sample cut in two."""
    try:
        return sample.decode(codec)
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 2:
            raise
        return sample[: error.start].decode(codec)


def is_latin(sample: bytes) -> bool:
    """Whether the 8-bit letters are mixed with ASCII letters, as in no other script."""
    letters = sum(byte > 127 for byte in sample)
    among = sum(len(run) for run in _AMONG_ASCII.findall(sample))
    return among * 2 > letters


def is_western(sample: bytes) -> bool:
    """Whether windows-1252 gives only letters of one language of Western Europe."""
    text = sample.decode("cp1252", "replace")
    if _NOT_FRENCH.search(text) or _POUND_IN_WORD.search(text):
        return False
    data = load("charsets")
    letters = {letter for letter in text.lower() if letter > "\x7f"} - set(data["western_signs"])
    return any(letters.issubset(alphabet) for alphabet in data["western"])


_AMONG_ASCII = re.compile(
    rb"(?<=[A-Za-z])[\x80-\xff]{1,2}(?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff]{1,2}(?=[A-Za-z])"
)
_NOT_FRENCH = re.compile(r"œ(?![uieUIE])")  # what ś of windows-1250 looks like
_POUND_IN_WORD = re.compile(r"£[^\W\d_]")  # and its Ł
_ESCAPE = re.compile(rb"\x1b(\$\([@BDO-Q]|\$[@AB]|\([BJIH])|([\x0e\x0f])")


def decode_iso2022_jp(data: bytes) -> str:
    """ISO-2022-JP with the vendor characters that Windows and phones send in it.

    Each pair of JIS X 0208 becomes Shift_JIS, in which cp932 knows those characters.
    """
    pieces: list[str] = []
    mode, at, shifted = b"(B", 0, False
    for escape in _ESCAPE.finditer(data):
        pieces.append(_decode_segment(data[at : escape.start()], b"(I" if shifted else mode))
        at = escape.end()
        mode = escape[1] or mode
        shifted = escape[2] == b"\x0e" if escape[2] else shifted
    pieces.append(_decode_segment(data[at:], b"(I" if shifted else mode))
    return "".join(pieces)


def _decode_segment(data: bytes, mode: bytes) -> str:
    if mode == b"(I":
        return bytes(byte | 0x80 if 0x21 <= byte <= 0x5F else byte for byte in data).decode(
            "cp932", "replace"
        )
    if mode == b"$(D":
        pairs = (data[at : at + 2] for at in range(0, len(data), 2))
        wide = b"".join(b"\x8f" + bytes(byte | 0x80 for byte in pair) for pair in pairs)
        return wide.decode("euc_jp", "replace")
    if mode.startswith(b"$"):
        return b"".join(_shift_jis(data)).decode("cp932", "replace")
    return data.decode("cp932", "replace")


def _shift_jis(data: bytes) -> list[bytes]:
    """Pairs of JIS X 0208 as Shift_JIS; line breaks and strays stay."""
    out: list[bytes] = []
    at = 0
    while at < len(data):
        first, second = data[at], data[at + 1] if at + 1 < len(data) else 0
        if not (0x21 <= first <= 0x7E and 0x21 <= second <= 0x7E):
            out.append(bytes((first,)))
            at += 1
            continue
        lead = ((first - 0x21) >> 1) + (0x81 if first < 0x5F else 0xC1)
        odd = 0x1F if second < 0x60 else 0x20
        trail = second + (odd if first % 2 else 0x7E)
        out.append(bytes((lead, trail)))
        at += 2
    return out
