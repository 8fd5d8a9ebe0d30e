"""The text of an RTF file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from postroom.mail.text_extraction.extract import ExtractedText, TextBuilder

_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+"
    rb"|([^\\{}\r\n]+)",
)
_SKIPPED_GROUPS = frozenset(
    b"""fonttbl colortbl stylesheet info pict object header footer headerl headerr headerf footerl
    footerr footerf listtable listoverridetable rsidtbl generator themedata colorschememapping
    datastore latentstyles xmlnstbl bkmkstart bkmkend fldinst filetbl revtbl pgdsctbl nonshppict
    annotation atnid atnauthor""".split()
)
"""Groups that hold no text of the document."""

_CHARACTER_WORDS = {
    b"par": "\n", b"line": "\n", b"sect": "\n", b"page": "\n", b"row": "\n", b"tab": "\t",
    b"cell": "\t", b"nestcell": "\t", b"nestrow": "\n", b"emdash": "—", b"endash": "–",
    b"bullet": "•", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“", b"rdblquote": "”",
    b"emspace": " ", b"enspace": " ",
}  # fmt: skip
_SYMBOLS = {b"~": " ", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}", b"\n": "\n", b"\r": "\n"}
_MAX_DEPTH = 1_000


@dataclass(frozen=True, slots=True)
class _Group:
    is_skipped: bool = False
    is_hidden: bool = False
    skip: int = 1
    """Characters after \\u that repeat it for older readers."""


def read_rtf(data: bytes, max_chars: int) -> ExtractedText:
    """The text that shows. Raises ValueError."""
    reader = _Reader(TextBuilder(max_chars))
    for token in _TOKEN.finditer(data):
        reader.read(token)
        if reader.builder.is_full:
            break
    return reader.builder.result()


class _Reader:
    def __init__(self, builder: TextBuilder) -> None:
        self.builder = builder
        self.groups = [_Group()]
        self.codec = "cp1252"
        self.left_to_skip = 0
        self.bytes_ = b""
        self.half = 0

    def read(self, token: re.Match[bytes]) -> None:
        word, number, escaped, symbol, brace, text = token.groups()
        if escaped is None:
            self._flush()
        if brace:
            self._brace(brace)
        elif escaped is not None:
            self._escaped(bytes.fromhex(escaped.decode()))
        elif symbol == b"*":
            self.groups[-1] = replace(self.groups[-1], is_skipped=True)
        elif symbol is not None:
            self._write(_SYMBOLS.get(symbol, ""))
        elif word is not None:
            self._word(word, None if number is None else int(number))
        elif text is not None:
            skipped, self.left_to_skip = min(self.left_to_skip, len(text)), 0
            self._write(text[skipped:].decode(self.codec, "replace"))

    def _brace(self, brace: bytes) -> None:
        self.left_to_skip = 0
        if brace == b"{":
            if len(self.groups) > _MAX_DEPTH:
                raise ValueError(f"the RTF is nested more than {_MAX_DEPTH} levels deep")
            self.groups.append(self.groups[-1])
        elif len(self.groups) > 1:
            self.groups.pop()

    def _escaped(self, byte: bytes) -> None:
        """Bytes of one character may come one by one."""
        if self.left_to_skip:
            self.left_to_skip -= 1
        else:
            self.bytes_ += byte

    def _flush(self) -> None:
        if self.bytes_:
            self._write(self.bytes_.decode(self.codec, "replace"))
            self.bytes_ = b""

    def _word(self, word: bytes, number: int | None) -> None:
        group = self.groups[-1]
        if word in _SKIPPED_GROUPS:
            self.groups[-1] = replace(group, is_skipped=True)
        elif word == b"v":
            self.groups[-1] = replace(group, is_hidden=number != 0)
        elif word == b"plain":
            self.groups[-1] = replace(group, is_hidden=False)
        elif word == b"uc" and number is not None:
            self.groups[-1] = replace(group, skip=max(0, min(number, 100)))
        elif word == b"u" and number is not None:
            self._unicode(number % 65_536)
        elif word == b"ansicpg" and number in _CODE_PAGES:
            self.codec = "gbk" if number == 936 else f"cp{number}"
        elif word == b"mac":
            self.codec = "mac_roman"
        else:
            self._write(_CHARACTER_WORDS.get(word, ""))

    def _unicode(self, code: int) -> None:
        """A character, which may come as two halves."""
        if 0xD800 <= code < 0xDC00:
            self.half = code
        elif 0xDC00 <= code < 0xE000:
            pair = 0x10000 + (self.half - 0xD800 << 10) + (code - 0xDC00) if self.half else 0xFFFD
            self.half = 0
            self._write(chr(pair))
        else:
            self._write(chr(code))
        self.left_to_skip = self.groups[-1].skip

    def _write(self, text: str) -> None:
        group = self.groups[-1]
        if group.is_skipped or not text:
            return
        if group.is_hidden:
            self.builder.hide(text, "hidden font")
        else:
            self.builder.write(text)


_CODE_PAGES = frozenset((437, 850, 852, 866, 874, 932, 936, 949, 950, *range(1250, 1259)))
