"""`import` and `export`: mail between files and an inbox."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from postroom.errors import InvalidInput, NotFound
from postroom.model.inbox import INBOX, Inbox
from postroom.model.key import OWNER
from postroom.operations.inboxes import create_inbox
from postroom.operations.operation import call
from postroom.pipeline.exporting import ExportTally, MboxTarget, Target, export_mail, open_target
from postroom.pipeline.importing import BATCH_MAILS, ImportTally, import_mail
from postroom.pipeline.mbox import Quoting
from postroom.pipeline.sources import Kind, Source, open_source
from postroom.surfaces.cli.exits import EXIT_CODES, OK
from postroom.surfaces.cli.progress import Progress
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json
from postroom.surfaces.cli.tables import cell

if TYPE_CHECKING:
    from postroom.app import App

_KINDS = click.Choice(["mbox", "maildir", "eml"])


@click.command(
    help="Take in mail from mbox files (also .xz and .gz), Maildirs, .eml files and folders of "
    "them. It can be stopped at any time: run it again, and it goes on without doubling anything."
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--inbox", required=True, metavar="ADDRESS|ID", help="The inbox it goes to.")
@click.option("--create", is_flag=True, help="Make the inbox if there is none.")
@click.option(
    "--mailbox",
    default=INBOX,
    show_default=True,
    help="The mailbox it goes to; folders of a Maildir keep their own names.",
)
@click.option("--format", "kind", type=_KINDS, help="What it is, if it cannot be told.")
@click.option(
    "--quoting",
    type=click.Choice(["mboxrd", "mboxo"]),
    default="mboxrd",
    show_default=True,
    help="How an mbox hides lines that begin with From.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=BATCH_MAILS,
    show_default=True,
    help="How many mails are stored at once.",
)
@click.option("--verbose", is_flag=True, help="Say after each batch what is on disk.")
@click.pass_obj
def import_(
    session: Session,
    *,
    paths: tuple[str, ...],
    inbox: str,
    create: bool,
    mailbox: str,
    kind: str | None,
    quoting: str,
    batch: int,
    verbose: bool,
) -> int:
    sources = [
        open_source(
            Path(path),
            kind=cast("Kind | None", kind),
            mailbox=mailbox,
            most_bytes=session.settings.limits.message_bytes,
            quoting=cast("Quoting", quoting),
        )
        for path in paths
    ]

    async def work(app: App) -> ImportTally:
        target = await find_inbox(app, inbox, create=create)
        with Progress("importing", unit="mails", every_time=verbose) as progress:
            return await import_mail(
                app.house,
                (mail for source in sources for mail in source),
                target.id,
                report=lambda tally: progress.tell(tally.read, _share(sources)),
                batch_mails=batch,
            )

    try:
        tally = session.run(work)
    except KeyboardInterrupt:
        print("stopped; what was told is stored, run it again to go on", file=sys.stderr)
        raise
    _tell_import(session, tally)
    return OK


def _share(sources: list[Source]) -> float | None:
    total = sum(source.total_bytes for source in sources)
    return min(sum(source.done_bytes for source in sources) / total, 1.0) if total else None


def _tell_import(session: Session, tally: ImportTally) -> None:
    if session.as_json:
        write_json(asdict(tally))
        return
    for problem in tally.problems:
        print(f"refused: {cell(problem.place)}: {cell(problem.problem)}", file=sys.stderr)
    untold = tally.refused - len(tally.problems)
    if untold:
        print(f"refused: {untold} more", file=sys.stderr)
    print(
        f"{tally.read} mails read: {tally.stored} stored, {tally.duplicates} duplicates, "
        f"{tally.refused} refused"
    )


@click.command(
    help="Write the mail of an inbox to files, byte for byte as it came, Trash and Junk included. "
    "PATH must not exist yet; - writes an mbox to standard output."
)
@click.argument("path", metavar="PATH")
@click.option("--inbox", required=True, metavar="ADDRESS|ID", help="The inbox.")
@click.option("--format", "kind", type=_KINDS, help="What to write.  [default: by the name]")
@click.pass_obj
def export(session: Session, *, path: str, inbox: str, kind: str | None) -> int:
    chosen = cast("Kind", kind) if kind else _kind_for(path)
    if path == "-" and chosen != "mbox":
        raise InvalidInput("only an mbox can be written to standard output")

    async def work(app: App) -> ExportTally:
        source = await find_inbox(app, inbox, create=False)
        with Progress("exporting", unit="mails") as progress, _target(path, chosen) as target:
            return await export_mail(
                app.house,
                source.id,
                target,
                report=lambda tally: progress.tell(tally.written),
            )

    tally = session.run(work)
    _tell_export(session, tally, path)
    return EXIT_CODES["internal"] if tally.problems else OK


def _kind_for(path: str) -> Kind:
    if path == "-" or Path(path.removesuffix(".xz").removesuffix(".gz")).suffix == ".mbox":
        return "mbox"
    raise InvalidInput(f"{path}: name a file that ends in .mbox, or say --format maildir or eml")


def _target(path: str, kind: Kind) -> AbstractContextManager[Target]:
    if path == "-":
        return nullcontext(MboxTarget(sys.stdout.buffer))
    return open_target(Path(path), kind)


def _tell_export(session: Session, tally: ExportTally, path: str) -> None:
    for problem in tally.problems:
        print(f"missing: {problem.place}: {problem.problem}", file=sys.stderr)
    if path == "-":
        sys.stdout.buffer.flush()
    elif session.as_json:
        write_json({"path": path, **asdict(tally)})
    else:
        print(f"{path}: {tally.written} mails written")


async def find_inbox(app: App, name: str, *, create: bool) -> Inbox:
    """The inbox with this address or id. Raises NotFound, unless it may be made."""
    store = app.house.store
    found = (await store.inboxes_at([name])).get(name.lower()) or await store.inbox(name, None)
    if found is not None:
        return found
    if not create:
        raise NotFound(f"no inbox {name}; --create makes it, `postroom inbox list` shows all")
    made: Inbox = await call(app.context(OWNER), create_inbox, {"address": name})
    return made
