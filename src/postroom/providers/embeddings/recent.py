"""Questions asked again need no new vector."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from postroom.model.memory import Vector
from postroom.ports.embedder import Embedder

_MOST = 512


class RecentEmbedder:
    """Any embedder, with the vectors of the last single texts at hand."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._recent: OrderedDict[str, Vector] = OrderedDict()

    @property
    def model(self) -> str:
        return self._inner.model

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text."""
        if len(texts) != 1:
            return await self._inner.embed(texts)
        text = texts[0]
        if text in self._recent:
            self._recent.move_to_end(text)
            return [self._recent[text]]
        [vector] = await self._inner.embed(texts)
        self._recent[text] = vector
        if len(self._recent) > _MOST:
            self._recent.popitem(last=False)
        return [vector]

    async def close(self) -> None:
        """Let go of what it holds."""
        self._recent.clear()
        await self._inner.close()
