"""What the commands share: options, settings, an open app, the file with the owner's key."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.cli.logs import start_logging

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

    def report(self, result: Any, tell: Callable[[], None]) -> None:
        """Print the result of a command: as JSON, or in words with *tell*."""
        if not self.as_json:
            tell()
            return
        from postroom.surfaces.cli.terminal import write_json
        from postroom.surfaces.to_json import to_json

        write_json(to_json(result))

    def configuration(self, **given: object) -> Configuration:
        """The settings, overridden by options of the command. Raises ConfigError."""
        from postroom.config import load

        asked = {name: value for name, value in given.items() if value is not None}
        found = load({"data_dir": self.data, **asked} if self.data is not None else asked)
        start_logging(found.settings)
        return found

    @cached_property
    def settings(self) -> Settings:
        """The settings; a data folder given with --data overrides a database and a bucket."""
        settings = self.configuration().settings
        if others := self._elsewhere(settings):
            ignored = " and ".join(others)
            print(f"note: found a data folder at {self.data}; ignoring {ignored}", file=sys.stderr)
            return replace(settings, database_url=None, blobs_url=None)
        return settings

    def sure_settings(self, **given: object) -> Settings:
        """The settings of a server, which must name one installation.

        Raises:
            Conflict: --data names an installation, and the settings another.
        """
        settings = self.configuration(**given).settings
        if others := self._elsewhere(settings):
            verb = "is" if len(others) == 1 else "are"
            raise Conflict(
                f"--data: {self.data} is an installation, but {' and '.join(others)} {verb} set; "
                "drop one of them (POSTROOM_DATA_DIR only names the folder)"
            )
        return settings

    def _elsewhere(self, settings: Settings) -> list[str]:
        """The settings that name another installation than --data does; usually none."""
        names = {"POSTROOM_DATABASE_URL": settings.database_url}
        names["POSTROOM_BLOBS_URL"] = settings.blobs_url
        others = [name for name, value in names.items() if value is not None]
        if self.data is None or not others:
            return []
        from postroom.wiring import is_installation

        return others if is_installation(settings.data_dir) else []

    def run(self, work: Callable[[App], Awaitable[T]], *, creates: bool = False) -> T:
        """Open the installation, do the work and close it. Few commands *create* a store.

        Raises:
            NotFound, Conflict, Forbidden: the data folder cannot be used.
        """
        import asyncio

        from postroom.surfaces.cli.data_folder import prepare_folder

        prepare_folder(self.settings, creates=creates)
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[App], Awaitable[T]]) -> T:
        from postroom.app import open_app

        async with open_app(self.settings) as app:
            return await work(app)


NAME = "owner.key"
_MAX_BYTES = 1_000


def key_file(data_dir: Path) -> Path:
    """The file that may hold the owner's key."""
    return data_dir.absolute() / NAME


def read_key(data_dir: Path) -> str | None:
    """The key in the file, if there is one."""
    try:
        return key_file(data_dir).read_text("ascii").strip() or None
    except FileNotFoundError:
        return None


def read_key_file(path: str) -> str:
    """The key in the file of a client. Raises InvalidInput."""
    try:
        # Opened before it is checked, so that it is the same file; a pipe is not waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InvalidInput(f"--key-file: {path} is not a regular file")
            if found.st_mode & 0o077 or found.st_uid not in (0, os.getuid()):
                raise InvalidInput(
                    f"--key-file: {path} is readable or owned by other users; `chmod 600` it"
                )
            key = file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise InvalidInput(f"--key-file: {path}: {error.strerror}") from None
    if not re.fullmatch(r"[!-~]{1,256}", key):
        raise InvalidInput(f"--key-file: {path} must contain one key and nothing else")
    return key


def keep_key(data_dir: Path, key: str) -> None:
    """Write the key atomically to a file that only the owner can read."""
    part = data_dir / f".{NAME}.{os.getpid()}"
    with open(part, "w", encoding="ascii", opener=private) as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, key_file(data_dir))


def private(path: str, flags: int) -> int:
    """Open a file that only its owner can read."""
    return os.open(path, flags, 0o600)


async def demo_key(app: App) -> str | None:
    """The owner's key of the demo, the same at every start.

    A key that was not created by the demo is kept, and is not known here.
    """
    from postroom.calls.authentication import OWNER_KEY_ID, new_secret

    if app.settings.api_key is not None:
        return await app.owner_key()
    key = read_key(app.settings.data_dir)
    if key is None:
        if await app.services.store.has_key(OWNER_KEY_ID):
            return None
        key = new_secret()
        keep_key(app.settings.data_dir, key)
    with_key = replace(app, settings=replace(app.settings, api_key=key))
    await with_key.owner_key()
    return key
