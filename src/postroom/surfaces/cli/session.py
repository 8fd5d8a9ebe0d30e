"""What a command needs: the settings it was started with, and the house, opened for the owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Configuration, Settings

T = TypeVar("T")


@dataclass
class Session:
    """One run of the program."""

    data: str | None = None
    output: str = "table"
    shows_traceback: bool = False

    @property
    def as_json(self) -> bool:
        return self.output == "json"

    def configuration(self, **given: object) -> Configuration:
        """The settings, with what this command was given on top. Raises ConfigError."""
        from postroom.config import load

        asked = {name: value for name, value in given.items() if value is not None}
        return load({"data_dir": self.data, **asked} if self.data is not None else asked)

    @cached_property
    def settings(self) -> Settings:
        return self.configuration().settings

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Open the house, do the work in it and close it again."""
        import asyncio

        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[App], Awaitable[T]]) -> T:
        from postroom.app import open_app

        async with open_app(self.settings) as app:
            return await work(app)
