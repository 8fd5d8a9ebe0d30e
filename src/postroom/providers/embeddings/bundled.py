"""The embedding model that comes with Postroom, and a cache of recent embeddings."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.blocking import in_thread
from postroom.model.memory import Vector
from postroom.ports.embeddings import Embedder

if TYPE_CHECKING:
    from postroom.providers.embeddings.minilm import MiniLM

_BATCH = 8
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
            model = self._load()
            batches = (texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH))
            rows = (row for batch in batches for row in model.embed(batch))
            return [row.astype("<f4").tobytes() for row in rows]

    def _load(self) -> MiniLM:
        if self._loaded is None:
            # Imported here: numpy, onnxruntime and 24 MB of weights are slow to load.
            from postroom.providers.embeddings.minilm import MiniLM

            self._loaded = MiniLM()
        return self._loaded

    async def close(self) -> None:
        self._loaded = None
