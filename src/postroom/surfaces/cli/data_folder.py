"""The data folder of a command: whether it holds a store, and whether this user may use it."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from postroom.config import Settings

DATABASE = "postroom.db"
_ROOT = 0


def prepare_folder(settings: Settings, *, creates: bool) -> None:
    """Check the data folder before it is opened; a command that *creates* a store says so.

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
        raise NotFound(no_store(settings.data_dir))
    print(f"note: creating a new store in {settings.data_dir.absolute()}", file=sys.stderr)


def no_store(folder: Path) -> str:
    """What to do about a folder without a store."""
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
    """What to do about the folder of another user, in which we may have *left* our files."""
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
    """A word of the command line as it is repeated: never a secret, and not a whole text."""
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
        raise Conflict(f"{folder.absolute()} is a file; name a folder with --data")
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
