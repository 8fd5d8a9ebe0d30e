"""What a command needs: the settings it was started with, and the house, opened for the owner."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from postroom.errors import Conflict

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
        """The settings; a folder that was named here and is a house is the one that is meant."""
        settings = self.configuration().settings
        if unmeant := self._elsewhere(settings):
            print(f"note: {self.data} is a house of its own; {unmeant} not used", file=sys.stderr)
            return replace(settings, database_url=None, blobs_url=None)
        return settings

    def sure_settings(self, **given: object) -> Settings:
        """The settings for those who serve others: they must leave no doubt which house is meant.

        Raises:
            Conflict: a folder that was named here is a house, and others are set.
        """
        settings = self.configuration(**given).settings
        if unmeant := self._elsewhere(settings):
            raise Conflict(
                f"--data: {self.data} is a house of its own, and {unmeant} meant by what is set; "
                "leave out one of them (POSTROOM_DATA_DIR names a folder and not its mail)"
            )
        return settings

    def _elsewhere(self, settings: Settings) -> str:
        """What is set besides a folder that was named here and is a house; mostly nothing."""
        names = {"POSTROOM_DATABASE_URL": settings.database_url}
        names["POSTROOM_BLOBS_URL"] = settings.blobs_url
        others = [name for name, value in names.items() if value is not None]
        if self.data is None or not others:
            return ""
        from postroom.parts import is_house

        if not is_house(settings.data_dir):
            return ""
        return " and ".join(others) + (" is" if len(others) == 1 else " are")

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Open the house, do the work in it and close it again."""
        import asyncio

        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[App], Awaitable[T]]) -> T:
        from postroom.app import open_app

        async with open_app(self.settings) as app:
            return await work(app)
