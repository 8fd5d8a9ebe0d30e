"""Vectors from a server that speaks the embeddings API of OpenAI."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import httpx2

from postroom.errors import ProviderAuthFailed, ProviderError, ProviderTimeout
from postroom.model.memory import Vector

_TIMEOUT_S = 20.0
_BATCH = 64
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
        for start in range(0, len(texts), _BATCH):
            vectors += await self._ask(list(texts[start : start + _BATCH]))
        return vectors

    async def _ask(self, texts: list[str]) -> list[Vector]:
        body = {"model": self._name, "input": texts}
        try:
            response = await self._http.post("/embeddings", json=body)
        except httpx2.TimeoutException as error:
            raise ProviderTimeout("the embeddings endpoint did not answer in time") from error
        except httpx2.HTTPError as error:
            raise ProviderError("the embeddings endpoint cannot be reached") from error
        if response.status_code in (401, 403):
            raise ProviderAuthFailed("the embeddings endpoint refused our key")
        if response.is_error:
            raise ProviderError(f"the embeddings endpoint answered {response.status_code}")
        return _vectors(response, len(texts))

    async def close(self) -> None:
        await self._http.aclose()


def _vectors(response: httpx2.Response, count: int) -> list[Vector]:
    try:
        rows: list[Any] = sorted(response.json()["data"], key=lambda row: row["index"])
        vectors = [_packed(row["embedding"]) for row in rows]
    except _SHAPE_ERRORS as error:
        raise ProviderError("unexpected response from the embeddings endpoint") from error
    if len(vectors) != count or len({len(vector) for vector in vectors}) > 1:
        raise ProviderError(f"the embeddings endpoint gave {len(vectors)} vectors for {count}")
    return vectors


def _packed(numbers: list[float]) -> Vector:
    if not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("a vector is empty or not finite")
    return struct.pack(f"<{len(numbers)}f", *numbers)
