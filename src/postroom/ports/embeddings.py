"""Embeddings: vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.model.memory import Vector


class Embedder(Protocol):
    """Computes vectors of texts; similar texts have similar vectors.

    `model` names the model: vectors of two models cannot be compared.
    """

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text.

        Raises:
            ProviderError: the endpoint failed.
        """

    async def close(self) -> None:
        """Close connections."""
