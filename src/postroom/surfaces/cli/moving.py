"""Moving house, backups, and the way back."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.cli.exits import EXIT_CODES, OK
from postroom.surfaces.cli.progress import Progress
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json
from postroom.surfaces.shapes import to_json

if TYPE_CHECKING:
    from postroom.config import Settings
    from postroom.removals import Moved

_PLACE = "FOLDER|postgresql://…"
_BLOBS = "FOLDER|s3://…"


@click.command(
    help="Move all mail from one place to another: from a data folder to PostgreSQL, back, or "
    "between two of a kind. Stop the servers of the source first; it cannot be opened any more "
    "afterwards. Run it again if it was interrupted: it goes on where it was. In the end every "
    "row is compared."
)
@click.option("--from", "source", metavar=_PLACE, required=True, help="Where the mail is.")
@click.option("--to", "target", metavar=_PLACE, required=True, help="Where it goes.")
@click.option("--from-blobs", metavar=_BLOBS, help="The data folder or bucket of its blobs.")
@click.option("--to-blobs", metavar=_BLOBS, help="The data folder or bucket they go to.")
@click.option("--copy", is_flag=True, help="Leave the source in use: the target is a backup.")
@click.pass_obj
def migrate(
    session: Session,
    *,
    source: str,
    target: str,
    from_blobs: str | None,
    to_blobs: str | None,
    copy: bool,
) -> int:
    settings = session.configuration().settings
    old, new = _place(settings, source, from_blobs), _place(settings, target, to_blobs)
    if old.database_url == new.database_url and _is_same(old.data_dir, new.data_dir):
        raise InvalidInput("to: the same place as --from; name another one")
    if old.database_url is None and not (old.data_dir / "postroom.db").is_file():
        raise InvalidInput(f"from: there is no mail in {old.data_dir}")
    return _tell(session, asyncio.run(_move(old, new, is_copy=copy)), "copied" if copy else "moved")


async def _move(old: Settings, new: Settings, *, is_copy: bool) -> Moved:
    from postroom.removals import move_house

    with Progress("moving", unit="blobs") as blobs, Progress("moving", unit="rows") as rows:

        def tell(what: str, count: int, share: float | None) -> None:
            (rows if what == "rows" else blobs).tell(count, share)

        return await move_house(old, new, tell, is_copy=is_copy)


def _place(settings: Settings, place: str, blobs: str | None) -> Settings:
    """The settings with another place for mail, and for its blobs."""
    if re.match(r"postgres(ql)?://", place):
        found = replace(settings, database_url=_database(place))
    else:
        folder = _folder(place, "postgresql://…")
        found = replace(settings, data_dir=folder, database_url=None, blobs_url=None)
    if blobs is None:
        return found
    if blobs.startswith("s3://"):
        return replace(found, blobs_url=_bucket(blobs))
    if found.database_url is None:
        raise InvalidInput("blobs: those of a folder are inside it, or in a bucket: s3://…")
    return replace(found, blobs_url=None, data_dir=_folder(blobs, "s3://…"))


def _bucket(url: str) -> str:
    from postroom.config.readers import read_blobs

    try:
        return read_blobs(url)
    except ValueError as error:
        raise InvalidInput(f"blobs: {error}") from None


def _database(url: str) -> str:
    from postroom.config.readers import read_database

    try:
        return read_database(url)
    except ValueError as error:
        raise InvalidInput(f"the address of a database {error}") from None


def _folder(text: str, other: str) -> Path:
    """A folder; an address with a typing error is none, and may hold a password."""
    if "://" in text or re.search(r"\b(host|port|user|dbname|password)\s*=", text):
        raise InvalidInput(f"this looks like an address and is none: give a folder or {other}")
    return Path(text).expanduser().absolute()


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


@click.command(
    help="Write a backup into a folder while everything runs. The folder is a data folder: "
    "`postroom --data FOLDER verify` checks it. Into the same folder again, only blobs are copied "
    "that are new or of a wrong size there."
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def backup(session: Session, folder: Path) -> int:
    settings = session.settings
    if settings.database_url is not None:
        raise InvalidInput(
            "this mail is in PostgreSQL; back it up with its own tools (docs/operations.md), or "
            "copy it into a folder with `postroom migrate --copy`"
        )
    if not (settings.data_dir / "postroom.db").is_file():
        raise InvalidInput(f"data: there is no mail in {settings.data_dir}")
    return _tell(session, asyncio.run(_back_up(settings, folder.absolute())), "backed up")


async def _back_up(settings: Settings, folder: Path) -> Moved:
    from postroom.removals import back_up

    with Progress("copying", unit="blobs") as progress:
        return await back_up(settings, folder, progress.tell)


@click.command(
    help="Bring a backup back into an empty data folder, and into the bucket of its blobs if one "
    "is set. Run it again if it was interrupted: it goes on where it was. Mail that was on its way "
    "may have left since: it is `unknown`, and sent again only by `postroom outbox retry`."
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.pass_obj
def restore(session: Session, folder: Path) -> int:
    settings = session.settings
    if settings.database_url is not None:
        raise InvalidInput("bring it into PostgreSQL with `postroom migrate --from FOLDER --to …`")
    if not (folder / "postroom.db").is_file():
        raise InvalidInput(f"folder: there is no backup in {folder}")
    if (settings.data_dir / "postroom.db").exists():
        raise Conflict(f"{settings.data_dir} has mail already; name an empty folder with --data")
    return _tell(session, asyncio.run(_bring_back(folder.absolute(), settings)), "restored")


async def _bring_back(folder: Path, settings: Settings) -> Moved:
    from postroom.removals import bring_back

    with Progress("copying", unit="blobs") as progress:
        return await bring_back(folder, settings, progress.tell)


def _tell(session: Session, moved: Moved, verb: str) -> int:
    """Say what was done, and end with 1 if a part of it could not be."""
    if session.as_json:
        write_json(to_json(moved))
    else:
        for problem in moved.problems:
            print(f"problem: {problem}")
        rows = "rows" if verb in ("moved", "copied") else "messages"
        print(f"{verb}: {moved.rows} {rows}, {moved.blobs} blobs")
        if moved.held:
            print(f"mails that may have left since: {moved.held}; see: postroom outbox list")
        for account in moved.without_login:
            print(f"the login of {account} is not here; run: postroom account login {account}")
    return EXIT_CODES["internal"] if moved.problems else OK
