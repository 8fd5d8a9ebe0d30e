"""What the commands share: options, settings, an open app, the file with the owner's key."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.cli.logs import start_logging

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Configuration, Settings
    from postroom.model.limits import Limits
    from postroom.surfaces.cli.backends import Backend

T = TypeVar("T")


@dataclass
class Session:
    """One run of the program."""

    data: str | None = None
    output: str = "table"
    wide: bool = False
    url: str | None = None
    key: str | None = None
    key_file: str | None = None
    shows_traceback: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the command by the arguments that they set, for errors."""

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
        """The settings of this machine, overridden by options of the command.

        Raises:
            InvalidInput: commands use a server, which has its own settings.
            ConfigError: a setting is wrong.
        """
        self._refuse_server()
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

    @property
    def limits(self) -> Limits:
        """The limits of what a command reads before it asks for anything."""
        return self.settings.limits if self.server is None else self._own_settings.limits

    @cached_property
    def _own_settings(self) -> Settings:
        from postroom.config import load

        return load().settings

    @cached_property
    def server(self) -> str | None:
        """The URL of the server to use; None for a data folder. Raises InvalidInput."""
        if self.data is not None and self.url is not None:
            raise InvalidInput("--url and --data cannot be combined; drop one")
        if self.url is None and (self.key or self.key_file) and not self._own_settings.url:
            raise InvalidInput("--key and --key-file are for a server; name it with --url")
        return self.url or (None if self.data is not None else self._own_settings.url)

    def _refuse_server(self) -> None:
        """Refuse a command that needs a data folder, if a server is named."""
        if self.server is None:
            return
        import click

        ctx = click.get_current_context(silent=True)
        command = f"`{ctx.command_path}`" if ctx is not None else "this command"
        what_to_do = "drop --url" if self.url else "unset POSTROOM_URL, or give --data"
        raise InvalidInput(
            f"{command} works on the data folder of this machine, not at a server; {what_to_do}, "
            "or run it where the server is"
        )

    def _key_of_server(self) -> str | None:
        if self.key is not None and self.key_file is not None:
            raise InvalidInput("--key and --key-file cannot be combined; drop --key")
        if self.key is not None:
            return self.key
        if self.key_file is not None:
            return read_key_file(self.key_file)
        settings = self._own_settings
        if settings.key is None and settings.key_file is not None:
            return read_key_file(str(settings.key_file))
        return settings.key

    @property
    def is_there(self) -> bool:
        """Whether there is a store to open; opening creates one."""
        settings = self.settings
        return settings.database_url is not None or (settings.data_dir / "postroom.db").exists()

    def perform(self, work: Callable[[Backend], Awaitable[T]], *, creates: bool = False) -> T:
        """Do the work where the operations are. Few commands *create* a store."""
        import asyncio

        from postroom.surfaces.cli.backends import Local

        if self.server is None:
            return self.run(lambda app: work(Local(app)), creates=creates)
        return asyncio.run(self._at_server(self.server, work))

    async def _at_server(self, url: str, work: Callable[[Backend], Awaitable[T]]) -> T:
        from postroom.surfaces.cli.backends import Remote
        from postroom.surfaces.rest.client import connected

        async with connected(url, self._key_of_server()) as client:
            return await work(Remote(client))

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
        key = new_secret(app.settings.cell)
        keep_key(app.settings.data_dir, key)
    with_key = replace(app, settings=replace(app.settings, api_key=key))
    await with_key.owner_key()
    return key
