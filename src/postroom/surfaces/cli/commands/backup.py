"""The commands `migrate`, `backup` and `restore`."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.config.readers import BLOBS, DATABASE, Reader
from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session, check_owner, check_writable, prepare_folder
from postroom.surfaces.cli.terminal import Progress, cell

if TYPE_CHECKING:
    from postroom.backup import TransferResult
    from postroom.config import Settings

_PLACE = "FOLDER|postgresql://…"
_BLOBS = "FOLDER|s3://…"
_HOLDS_KEY = (
    "note: this backup has the logins of accounts together with their key; set "
    "POSTROOM_VAULT_KEY_FILE to store the key elsewhere (docs/how-to/operations.md)"
)


@click.command(
    help="Migrate all mail from a data folder to PostgreSQL or back, or between "
    "two data folders or databases. Stop "
    "the servers of the source first; the source cannot be opened afterwards. If it is "
    "interrupted, run it again: it continues where it stopped. At the end every row is compared."
)
@click.option("--from", "source", metavar=_PLACE, required=True, help="The source.")
@click.option("--to", "target", metavar=_PLACE, required=True, help="The target.")
@click.option(
    "--from-blobs", metavar=_BLOBS, help="The data folder or bucket with the blobs of the source."
)
@click.option(
    "--to-blobs", metavar=_BLOBS, help="The data folder or bucket for the blobs of the target."
)
@click.option("--copy", is_flag=True, help="Keep the source active; the target is a backup.")
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
    old, new = _settings_of(settings, source, from_blobs), _settings_of(settings, target, to_blobs)
    is_same_folder = old.data_dir.resolve() == new.data_dir.resolve()
    if old.database_url == new.database_url and is_same_folder:
        raise InvalidInput("to: this is the same location as --from; choose another one")
    if old.database_url is None and not (old.data_dir / "postroom.db").is_file():
        raise InvalidInput(f"from: {old.data_dir} contains no mail")
    for one in (old, new):
        check_owner(one.data_dir)
        check_writable(one.data_dir)
    from postroom.backup import migrate_installation

    with Progress("migrating", unit="blobs") as blobs, Progress("migrating", unit="rows") as rows:

        def update(what: str, count: int, share: float | None) -> None:
            (rows if what == "rows" else blobs).update(count, share)

        result = asyncio.run(migrate_installation(old, new, update, is_copy=copy))
    return _report(session, result, "copied" if copy else "moved")


def _settings_of(settings: Settings, target: str, blobs: str | None) -> Settings:
    """The settings with another database and other blobs."""
    if re.match(r"postgres(ql)?://", target):
        _warn_of_password(target)
        found = replace(settings, database_url=_read(DATABASE, target, "the address of a database"))
    else:
        folder = _folder(target, "postgresql://…")
        found = replace(settings, data_dir=folder, database_url=None, blobs_url=None)
    if blobs is None:
        return found
    if blobs.startswith("s3://"):
        return replace(found, blobs_url=_read(BLOBS, blobs, "blobs:"))
    if found.database_url is None:
        raise InvalidInput("blobs: a data folder has its blobs inside, or in a bucket (s3://…)")
    return replace(found, blobs_url=None, data_dir=_folder(blobs, "s3://…"))


def _warn_of_password(url: str) -> None:
    """Warn that a password on a command line is visible to other users."""
    from urllib.parse import urlsplit

    if ":" in urlsplit(url).netloc.rpartition("@")[0] or "password=" in url:
        print(
            "warning: other users of this machine can read the password in the list of processes; "
            "leave it out, and set PGPASSWORD or use ~/.pgpass",
            file=sys.stderr,
        )


def _read(reader: Reader[str], text: str, what: str) -> str:
    try:
        return reader.read(text)
    except ValueError as error:
        raise InvalidInput(f"{what} {error}") from None


def _folder(text: str, other: str) -> Path:
    """A folder; refuses what looks like a mistyped URL, which may contain a password."""
    if "://" in text or re.search(r"\b(host|port|user|dbname|password)\s*=", text):
        raise InvalidInput(f"this is neither a folder nor a valid URL; give a folder or {other}")
    return Path(text).expanduser().absolute()


@click.command(
    help="Write a backup to a folder while servers are running. The folder is a data folder: "
    "`postroom --data FOLDER verify` checks it. A later backup to the same folder copies only "
    "blobs that are new, or that have a wrong size there."
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.pass_obj
def backup(session: Session, folder: Path) -> int:
    settings = session.settings
    if settings.database_url is not None:
        raise InvalidInput(
            "this mail is in PostgreSQL; back it up with PostgreSQL's tools "
            "(docs/how-to/operations.md), or copy it to a folder with `postroom migrate --copy`"
        )
    prepare_folder(settings, creates=False)
    from postroom.backup import create_backup, holds_key

    with Progress("copying", unit="blobs") as progress:
        result = asyncio.run(create_backup(settings, folder.absolute(), progress.update))
    code = _report(session, result, "backed up")
    if holds_key(folder):
        print(_HOLDS_KEY, file=sys.stderr)
    return code


@click.command(
    help="Restore a backup to an empty data folder, and its blobs to the bucket if one is set. If "
    "it is interrupted, run it again: it continues where it stopped. Mail that was in the outbox "
    "may have been sent since: it becomes `unknown`, and only `postroom outbox retry` sends it."
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.pass_obj
def restore(session: Session, folder: Path) -> int:
    settings = session.settings
    if settings.database_url is not None:
        raise InvalidInput("to restore to PostgreSQL, use `postroom migrate --from FOLDER --to …`")
    if not (folder / "postroom.db").is_file():
        raise InvalidInput(f"folder: there is no backup in {folder}")
    if (settings.data_dir / "postroom.db").exists():
        raise Conflict(f"{settings.data_dir} has mail already; name an empty folder with --data")
    prepare_folder(settings, creates=True)
    from postroom.backup import restore_backup

    with Progress("copying", unit="blobs") as progress:
        result = asyncio.run(restore_backup(folder.absolute(), settings, progress.update))
    return _report(session, result, "restored")


def _report(session: Session, result: TransferResult, verb: str) -> int:
    """Report what was done; the exit code is 1 if there were problems."""
    session.report(result, lambda: _print_result(result, verb))
    return EXIT_CODES["internal"] if result.problems else OK


def _print_result(result: TransferResult, verb: str) -> None:
    for problem in result.problems:
        print(f"problem: {cell(problem)}")
    rows = "rows" if verb in ("moved", "copied") else "messages"
    print(f"{verb}: {result.rows} {rows}, {result.blobs} blobs")
    if result.held:
        print(f"mails that may have been sent since: {result.held}; see: postroom outbox list")
    for account in result.without_login:
        print(f"the login of {account} is missing; run: postroom account login {account}")
