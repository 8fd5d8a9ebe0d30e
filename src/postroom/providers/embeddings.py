"""Texts as vectors: the model that comes with Postroom, an endpoint that others run, and a cache.

docs/decisions/0002-wordpiece.md says why the tokenizer of the model is not a library.
"""

from __future__ import annotations

import hashlib
import math
import struct
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from postroom.blocking import in_thread
from postroom.errors import MailError, ProviderAuthFailed, ProviderError, ProviderTimeout
from postroom.model.memory import Vector
from postroom.ports.provider import Embedder

if TYPE_CHECKING:
    import numpy as np  # an extra, as are the next ones
    import onnxruntime  # type: ignore[import-untyped]
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

_MAX_CACHED = 512


class RecentEmbedder:
    """Any embedder, with a cache of the vectors of single texts."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._recent: OrderedDict[str, Vector] = OrderedDict()

    @property
    def model(self) -> str:
        return self._inner.model

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        if len(texts) != 1:
            return await self._inner.embed(texts)
        text = texts[0]
        if text in self._recent:
            self._recent.move_to_end(text)
            return [self._recent[text]]
        [vector] = await self._inner.embed(texts)
        self._recent[text] = vector
        if len(self._recent) > _MAX_CACHED:
            self._recent.popitem(last=False)
        return [vector]

    async def close(self) -> None:
        """Empty the cache, and close the embedder."""
        self._recent.clear()
        await self._inner.close()


_BUNDLED_BATCH = 8


class BundledEmbedder:
    """all-MiniLM-L6-v2, read from the package when it is first used."""

    model = "all-MiniLM-L6-v2 (7 bits, 2)"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: MiniLM | None = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text; the texts stay on this machine."""
        return await in_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> list[Vector]:
        with self._lock:
            if self._loaded is None:
                self._loaded = MiniLM()
            model = self._loaded
            batches = (
                texts[at : at + _BUNDLED_BATCH] for at in range(0, len(texts), _BUNDLED_BATCH)
            )
            rows = (row for batch in batches for row in model.embed(batch))
            return [row.astype("<f4").tobytes() for row in rows]

    async def close(self) -> None:
        self._loaded = None


DIMENSIONS = 384
MAX_PIECES = 256
"""What the model was trained to read of a text; the rest is not looked at."""

_ERRORS_ONLY = 3


class MiniLM:
    """The model in memory, 24 MB. Rows of words stay whole numbers, and so do the layers."""

    def __init__(self, folder: Path | None = None) -> None:
        import numpy as np

        folder = folder or weights_folder()
        check_weights(folder)
        self._vocabulary = Vocabulary(folder / "vocabulary.txt")
        with np.load(folder / "words.npz") as packed:
            self._words = packed["words.rows"], packed["words.scale"]
            places = packed["places.rows"] * packed["places.scale"]
        self._places: Array = places[:MAX_PIECES].reshape(-1, DIMENSIONS)
        self._layers = _open(folder / "layers.onnx")

    def embed(self, texts: Sequence[str]) -> Array:
        """One row for each text, each of length one."""
        import numpy as np

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
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def weights_folder() -> Path:
    """Where the files of the bundled model are."""
    import postroom_model

    return Path(postroom_model.__file__).parent


def check_weights(folder: Path) -> None:
    """Compare the files with their checksums. Raises MailError."""
    for line in (folder / "SHA256SUMS").read_text("ascii").splitlines():
        wanted, name = line.split()
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != wanted:
            raise MailError(f"{name} of the bundled model is damaged; install Postroom again")


UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
_LONGEST_WORD = 100
_CONTINUES = "##"


class Vocabulary:
    """Turns text into numbers of word pieces, the longest match first."""

    def __init__(self, path: Path) -> None:
        pieces = path.read_text("utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(pieces) if piece}
        self._pieces = lru_cache(maxsize=20_000)(self._word_pieces)

    def numbers(self, text: str, max_pieces: int) -> list[int]:
        """The pieces of a text between [CLS] and [SEP], at most *max_pieces* in all."""
        known = self._numbers
        found = [known[START]]
        for word in words(text):
            found += self._pieces(word)
            if len(found) >= max_pieces:
                break
        return [*found[: max_pieces - 1], known[END]]

    def _word_pieces(self, word: str) -> tuple[int, ...]:
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


_TIMEOUT_S = 20.0
_ENDPOINT_BATCH = 64
_SHAPE_ERRORS = (ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error)


class EndpointEmbedder:
    """`POST {url}/embeddings`. The texts of memories and mail go there: choose whom you trust."""

    def __init__(self, url: str, name: str, key: str | None) -> None:
        self.model = f"{name} at {url}"
        self._name = name
        self._http = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=_TIMEOUT_S,
        )

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text. Raises ProviderError."""
        vectors: list[Vector] = []
        for start in range(0, len(texts), _ENDPOINT_BATCH):
            vectors += await self._request_vectors(list(texts[start : start + _ENDPOINT_BATCH]))
        return vectors

    async def _request_vectors(self, texts: list[str]) -> list[Vector]:
        body = {"model": self._name, "input": texts}
        try:
            response = await self._http.post("/embeddings", json=body)
        except httpx2.TimeoutException as error:
            raise ProviderTimeout("the embeddings endpoint did not answer in time") from error
        except httpx2.HTTPError as error:
            raise ProviderError(
                "the embeddings endpoint cannot be reached; check POSTROOM_EMBEDDINGS"
            ) from error
        if response.status_code in (401, 403):
            raise ProviderAuthFailed(
                "the embeddings endpoint refused the key; check POSTROOM_EMBEDDINGS_KEY"
            )
        if response.is_error:
            raise ProviderError(f"the embeddings endpoint answered {response.status_code}")
        return _vectors(response, len(texts))

    async def close(self) -> None:
        await self._http.aclose()


def _vectors(response: httpx2.Response, count: int) -> list[Vector]:
    try:
        rows: list[Any] = sorted(response.json()["data"], key=lambda row: row["index"])
        vectors = [_pack_vector(row["embedding"]) for row in rows]
    except _SHAPE_ERRORS as error:
        raise ProviderError("unexpected response from the embeddings endpoint") from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise ProviderError(
            f"the embeddings endpoint returned {len(vectors)} vectors for {count} texts"
        )
    return vectors


def _pack_vector(numbers: list[float]) -> Vector:
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("a vector is empty or not finite")
    return struct.pack(f"<{len(numbers)}f", *numbers)
