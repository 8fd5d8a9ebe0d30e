"""all-MiniLM-L6-v2: BERT's uncased WordPiece tokens of a text, and its embedding.

docs/decisions/0002-wordpiece.md says why the tokenizer is not a library.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import postroom_model
from numpy.typing import NDArray

from postroom.errors import MailError

UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
_LONGEST_WORD = 100
_CONTINUES = "##"


class Vocabulary:
    """Turns text into numbers of word pieces, the longest match first."""

    def __init__(self, path: Path) -> None:
        pieces = path.read_text("utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(pieces) if piece}
        self._pieces = lru_cache(maxsize=20_000)(self._cut)

    def numbers(self, text: str, most: int) -> list[int]:
        """The pieces of a text between [CLS] and [SEP], at most *most* in all."""
        known = self._numbers
        found = [known[START]]
        for word in words(text):
            found += self._pieces(word)
            if len(found) >= most:
                break
        return [*found[: most - 1], known[END]]

    def _cut(self, word: str) -> tuple[int, ...]:
        """The pieces of one word; [UNK] if a part of it is not in the vocabulary."""
        if len(word) > _LONGEST_WORD:
            return (self._numbers[UNKNOWN],)
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else _CONTINUES + word[start:end]
                if piece in self._numbers:
                    break
            else:
                return (self._numbers[UNKNOWN],)
            found.append(self._numbers[piece])
            start = end
        return tuple(found)


def words(text: str) -> Iterator[str]:
    """The words of a text, in lower case and without accents.

    Each punctuation mark and each Han character is a word.
    """
    clean = _clean(text)
    if not clean.isascii():
        clean = "".join(f" {c} " if _is_han(ord(c)) else c for c in clean)
    for word in clean.split():
        yield from _split_at_marks(word)


def _clean(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.lower()
    kept = "".join(" " if c.isspace() else c for c in text if not _is_control(c))
    # In this order, because some upper-case letters have a mark only in lower case.
    apart = unicodedata.normalize("NFD", kept)
    return "".join(c.lower() for c in apart if unicodedata.category(c) != "Mn")


def _is_control(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")


def _is_han(code: int) -> bool:
    return code >= 0x3400 and any(first <= code <= last for first, last in _HAN)


_HAN = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


def _split_at_marks(word: str) -> Iterator[str]:
    if word.isalnum():
        yield word
        return
    start = 0
    for place, character in enumerate(word):
        if _is_mark(character):
            if start < place:
                yield word[start:place]
            yield character
            start = place + 1
    if start < len(word):
        yield word[start:]


def _is_mark(character: str) -> bool:
    """Punctuation, and every visible ASCII character that is no letter or digit."""
    if character < "\x7f":
        return not character.isalnum()
    return unicodedata.category(character).startswith("P")


Array = NDArray[np.float32]

WEIGHTS = Path(postroom_model.__file__).parent
DIMENSIONS = 384
MAX_PIECES = 256
"""What the model was trained to read of a text; the rest is not looked at."""

_ERRORS_ONLY = 3


class MiniLM:
    """The model in memory. Rows of words stay whole numbers, and so do the layers."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        check_weights(folder)
        self._vocabulary = Vocabulary(folder / "vocabulary.txt")
        with np.load(folder / "words.npz") as packed:
            self._words = packed["words.rows"], packed["words.scale"]
            places = packed["places.rows"] * packed["places.scale"]
        self._places: Array = places[:MAX_PIECES].reshape(-1, DIMENSIONS)
        self._layers = _open(folder / "layers.onnx")

    def embed(self, texts: Sequence[str]) -> Array:
        """One row for each text, each of length one."""
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Array:
        pieces = self._vocabulary.numbers(text, MAX_PIECES)
        rows, scale = (packed.take(pieces, axis=0) for packed in self._words)
        state = (rows * scale).reshape(-1, DIMENSIONS) + self._places[: len(pieces)]
        [vector] = self._layers.run(None, {"pieces": state})
        unit: Array = vector / math.sqrt(vector @ vector)
        return unit


def _open(path: Path) -> onnxruntime.InferenceSession:
    """The layers, ready to run in the thread that asks: for texts this short, more are slower."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check_weights(folder: Path = WEIGHTS) -> None:
    """Compare the files with their checksums. Raises MailError."""
    for line in (folder / "SHA256SUMS").read_text("ascii").splitlines():
        wanted, name = line.split()
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != wanted:
            raise MailError(f"{name} of the bundled model is damaged; install Postroom again")
