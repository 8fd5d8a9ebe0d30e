"""What commands share: options, settings, an open app; the data folder, its owner and its key."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound
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
    """The options of the command by the arguments that they set."""
    unchanged: Mapping[str, str] = field(default_factory=dict)
    """Names that the user has written."""

    @property
    def words(self) -> Mapping[str, str]:
        """The words of errors: options for arguments, and the user's own names unchanged."""
        return {**self.options, **self.unchanged}

    @property
    def as_json(self) -> bool:
        return self.output == "json"

    def report(self, result: Any, print_words: Callable[[], None]) -> None:
        """Print the result of a command: as JSON, or in words with *print_words*."""
        if not self.as_json:
            print_words()
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
        if others := self._conflicting_settings(settings):
            ignored = " and ".join(others)
            print(f"note: found a data folder at {self.data}; ignoring {ignored}", file=sys.stderr)
            return replace(settings, database_url=None, blobs_url=None)
        return settings

    def unambiguous_settings(self, **given: object) -> Settings:
        """The settings of a server, which must name one installation.

        Raises:
            Conflict: --data names an installation, and the settings another.
        """
        settings = self.configuration(**given).settings
        if others := self._conflicting_settings(settings):
            verb = "is" if len(others) == 1 else "are"
            raise Conflict(
                f"--data: {self.data} is an installation, but {' and '.join(others)} {verb} set; "
                "drop one of them (POSTROOM_DATA_DIR only names the folder)"
            )
        return settings

    def _conflicting_settings(self, settings: Settings) -> list[str]:
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
            raise InvalidInput("--key and --key-file need a server; add --url")
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
            f"{command} works on a local data folder, not on a server; {what_to_do}, "
            "or run it on the server's machine"
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
        """Run the work on the backend of the operations. Few commands *create* a store."""
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

        prepare_folder(self.settings, creates=creates)
        return asyncio.run(self._run(work))

    async def _run(self, work: Callable[[App], Awaitable[T]]) -> T:
        from postroom.app import open_app

        async with open_app(self.settings) as app:
            return await work(app)


_KEY_FILE = "owner.key"
_MAX_BYTES = 1_000


def key_file(data_dir: Path) -> Path:
    """The file that may hold the owner's key."""
    return data_dir.absolute() / _KEY_FILE


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
    part = data_dir / f".{_KEY_FILE}.{os.getpid()}"
    with open(part, "w", encoding="ascii", opener=open_private) as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, key_file(data_dir))


def open_private(path: str, flags: int) -> int:
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


DATABASE = "postroom.db"
_ROOT = 0


def prepare_folder(settings: Settings, *, creates: bool) -> None:
    """Check the data folder before it is opened; a command that *creates* a store reports it.

    Raises:
        NotFound: there is no store, and the command creates none.
        Conflict: the folder cannot be written to.
        Forbidden: it belongs to another user.
    """
    check_owner(settings.data_dir)
    check_writable(settings.data_dir)
    from postroom.wiring import is_new

    if not is_new(settings):
        return
    if any((settings.data_dir / "blobs").glob("*")):
        return  # its database is elsewhere or lost: opening it says so
    if not creates:
        raise NotFound(missing_store_advice(settings.data_dir))
    print(f"note: creating a new store in {settings.data_dir.absolute()}", file=sys.stderr)


def missing_store_advice(folder: Path) -> str:
    """Advice on a folder without a store."""
    what = "has no Postroom data" if folder.exists() else "does not exist"
    return (
        f"{folder.absolute()} {what}; check --data and POSTROOM_DATA_DIR. To create it, run "
        f"`postroom serve --data {shlex.quote(str(folder))}`, or inbox create, import, restore or "
        "mcp with this --data"
    )


def check_owner(folder: Path) -> None:
    """Refuse to use the folder of another user, who could not use the files left in it.

    A folder that root made for us is ours as long as it holds no store. Raises Forbidden.
    """
    me = os.geteuid()
    owner, database_owner = _uid(folder), _uid(folder / DATABASE)
    if database_owner not in (None, me):
        path, other = folder / DATABASE, database_owner
    elif owner not in (None, me) and (me == _ROOT or (database_owner is None and owner != _ROOT)):
        path, other = folder, owner
    else:
        return
    assert other is not None
    raise Forbidden(
        _another_user(path, other, me, owns_folder=owner == me, left=database_owner == me)
    )


def _another_user(path: Path, other: int, me: int, *, owns_folder: bool, left: bool) -> str:
    """Advice on the folder of another user, in which we may have *left* files."""
    says = f"{path.absolute()} belongs to {_user(other)}, but this runs as {_user(me)}"
    folder = path if path.is_dir() else path.parent
    if owns_folder and me != _ROOT:
        fix = f"`sudo chown -R {_user(me)} {shlex.quote(str(folder.absolute()))}` makes it yours"
    else:
        fix = f"run `{_as_user(other)}`"
        if left:
            fix = f"`chown -R {other} {shlex.quote(str(folder.absolute()))}`, then {fix}"
    return f"{says}; {fix}, or choose another folder with --data"


def _as_user(uid: int) -> str:
    """This command as another user runs it."""
    name = f"'#{uid}'" if _user(uid).startswith("uid ") else _user(uid)
    return " ".join(["sudo -u", name, "postroom", *map(_shown_word, sys.argv[1:])])


_SECRET_OPTIONS = ("--key", "--password", "--token")


def _shown_word(word: str) -> str:
    """A word of the command line for display: never a secret, and not a whole text."""
    if word.startswith(("pk_", "po_", *_SECRET_OPTIONS)) or len(word) > 100:
        return "…"
    return shlex.quote(word)


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing can be written, with what to do. Raises Conflict."""
    if not _exists(folder):
        parent = next(path for path in folder.absolute().parents if path.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise Conflict(_not_writable(folder, parent, "cannot be created"))
        return
    if not folder.is_dir():
        raise Conflict(f"{folder.absolute()} is a file; choose a folder with --data")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise Conflict(_not_writable(folder, folder, "cannot be written to"))
    database = folder / DATABASE
    if database.exists() and not os.access(database, os.R_OK | os.W_OK):
        raise Conflict(_not_writable(database, database, "cannot be written to"))


def _exists(folder: Path) -> bool:
    try:
        return folder.exists()
    except PermissionError:
        raise Conflict(
            f"{folder.absolute()} is in a folder that you may not enter; choose another with --data"
        ) from None


def _not_writable(named: Path, closed: Path, problem: str) -> str:
    says = f"{named.absolute()} {problem}"
    if os.statvfs(closed).f_flag & os.ST_RDONLY:
        return (
            f"{says}: its file system is read-only; mount it read-write, or choose another folder "
            "with --data"
        )
    place = shlex.quote(str(closed.absolute()))
    owner = _uid(closed)
    if owner is not None and owner != os.geteuid():
        fix = f"run `{_as_user(owner)}`, or choose another folder with --data"
        return f"{says}: {place} belongs to {_user(owner)}; {fix}"
    rights = "u+rwx" if closed.is_dir() else "u+rw"
    return f"{says}; `chmod {rights} {place}`, or choose another folder with --data"


def _uid(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
