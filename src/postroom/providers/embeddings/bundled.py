"""The model that comes with Postroom: no download, no network, no graphics card."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.blocking import in_thread
from postroom.model.memory import Vector

if TYPE_CHECKING:
    from postroom.providers.embeddings.minilm import MiniLM

_AT_ONCE = 8


class BundledEmbedder:
    """all-MiniLM-L6-v2, read from the package when it is first used."""

    model = "all-MiniLM-L6-v2 (7 bits, 2)"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: MiniLM | None = None

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text; nothing of it leaves this machine."""
        return await in_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> list[Vector]:
        with self._lock:
            model = self._load()
            batches = (texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE))
            rows = (row for batch in batches for row in model.embed(batch))
            return [row.astype("<f4").tobytes() for row in rows]

    def _load(self) -> MiniLM:
        if self._loaded is None:
            # Here and not above: numpy and 24 MB of weights cost nothing until then.
            from postroom.providers.embeddings.minilm import MiniLM

            self._loaded = MiniLM()
        return self._loaded

    async def close(self) -> None:
        """Let the weights go."""
        self._loaded = None
