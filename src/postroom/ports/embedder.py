"""The door to meaning: texts in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from postroom.model.memory import Vector


class Embedder(Protocol):
    """Turns texts into vectors; texts that mean the same point the same way.

    `model` names what made them: vectors of two models cannot be compared.
    """

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text.

        Raises:
            ProviderError: whoever makes them failed.
        """

    async def close(self) -> None:
        """Let go of what it holds."""
