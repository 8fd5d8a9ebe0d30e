"""`import` and `export` of mail and memories; `rule check` and `rule test` of rules in files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import click

from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.model.inbox import INBOX, Inbox
from postroom.model.key import OWNER
from postroom.model.rule import Action, public_action
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import create_inbox
from postroom.pipeline.parse_worker import Parser
from postroom.pipeline.transfer.archives import NO_HEADER, Quoting, Unreadable
from postroom.pipeline.transfer.import_export import (
    BATCH_MAILS,
    ExportResult,
    ImportResult,
    MboxTarget,
    Target,
    back_test,
    export_mail,
    import_mail,
    open_target,
)
from postroom.pipeline.transfer.mail_files import Kind, Source, open_source
from postroom.rules.backtest import BackTest, Outcome, back_test_as_json
from postroom.rules.definition import Definition
from postroom.rules.matching import impossible_conditions
from postroom.rules.parser import parse_rules
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK, PARTIAL
from postroom.surfaces.cli.session import Session, open_private
from postroom.surfaces.cli.terminal import Progress, cell, json_line, write_json
from postroom.surfaces.to_json import came_from_mail, to_json, with_clean_text

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.operations.memories import ImportedMemories


_KINDS = click.Choice(["mbox", "maildir", "eml"])


@click.command(
    help="Import mail from mbox files, Maildirs, .eml files and folders of them, and from .tar and "
    ".zip archives of mail; .xz and .gz are decompressed. Refused files are listed, and the exit "
    "code is 10. It can be interrupted: run it again to continue; duplicates are skipped."
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--inbox", required=True, metavar="ADDRESS|ID", help="The inbox to import into.")
@click.option("--create", is_flag=True, help="Create the inbox if it does not exist.")
@click.option(
    "--mailbox",
    default=INBOX,
    show_default=True,
    help="The mailbox to import into; folders of a Maildir keep their names.",
)
@click.option("--format", "kind", type=_KINDS, help="The format, if it cannot be detected.")
@click.option(
    "--quoting",
    type=click.Choice(["mboxrd", "mboxo"]),
    default="mboxrd",
    show_default=True,
    help="How the mbox quotes lines that begin with From.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=BATCH_MAILS,
    show_default=True,
    help="Number of mails per transaction.",
)
@click.option("--force", is_flag=True, help="Also import files without a mail header.")
@click.option("--verbose", is_flag=True, help="Report each batch that is stored.")
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
    force: bool,
    verbose: bool,
) -> int:
    open_path = partial(
        open_source,
        kind=cast("Kind | None", kind),
        mailbox=mailbox,
        max_bytes=session.settings.limits.message_bytes,
        quoting=cast("Quoting", quoting),
    )
    sources, missing = _opened_sources(paths, open_path)

    async def work(app: App) -> ImportResult:
        target = await find_inbox(app, inbox, create=create)
        with Progress("importing", unit="mails", every_time=verbose) as progress:
            return await import_mail(
                app.services,
                chain(missing, *sources),
                target.id,
                report=lambda outcome: progress.update(outcome.read, _share(sources)),
                batch_mails=batch,
                takes_any=force,
            )

    try:
        outcome = session.run(work, creates=True)
    except KeyboardInterrupt:
        print("interrupted; run it again to continue", file=sys.stderr)
        raise
    session.report(asdict(outcome), lambda: _print_import(outcome))
    if not outcome.refused:
        return OK
    return PARTIAL if outcome.stored or outcome.duplicates else EXIT_CODES["invalid_input"]


def _opened_sources(
    paths: Sequence[str], open_path: Callable[[Path], Source]
) -> tuple[list[Source], list[Unreadable]]:
    """The sources that can be opened, and the others. Raises InvalidInput if none can."""
    sources: list[Source] = []
    missing: list[Unreadable] = []
    for path in paths:
        try:
            sources.append(open_path(Path(path)))
        except InvalidInput as error:
            if len(paths) == 1:
                raise
            missing.append(Unreadable(path, str(error).removeprefix(f"{path}: ")))
    if not sources:
        raise InvalidInput("; ".join(f"{one.place}: {one.problem}" for one in missing[:20]))
    return sources, missing


def _share(sources: list[Source]) -> float | None:
    total = sum(source.total_bytes for source in sources)
    return min(sum(source.done_bytes for source in sources) / total, 1.0) if total else None


def mails(number: int) -> str:
    """A number of mails."""
    return "1 mail" if number == 1 else f"{number} mails"


def _print_import(outcome: ImportResult) -> None:
    for problem in outcome.problems:
        print(f"refused: {cell(problem.place)}: {cell(problem.problem)}", file=sys.stderr)
    untold = outcome.refused - len(outcome.problems)
    if untold:
        print(f"refused: {untold} more", file=sys.stderr)
    if any(problem.problem == NO_HEADER for problem in outcome.problems):
        print("--force also imports files without a mail header", file=sys.stderr)
    print(
        f"{mails(outcome.read)} read: {outcome.stored} stored, {outcome.duplicates} duplicates, "
        f"{outcome.refused} refused"
    )


@click.command(
    help="Export the mail of an inbox, including Trash and Junk, byte for byte as received. "
    "PATH must not exist; - writes an mbox to standard output."
)
@click.argument("path", metavar="PATH")
@click.option("--inbox", required=True, metavar="ADDRESS|ID", help="The inbox.")
@click.option("--format", "kind", type=_KINDS, help="The format.  [default: by the name of PATH]")
@click.pass_obj
def export(session: Session, *, path: str, inbox: str, kind: str | None) -> int:
    is_mbox = path == "-" or Path(path.removesuffix(".xz").removesuffix(".gz")).suffix == ".mbox"
    if not kind and not is_mbox:
        raise InvalidInput(f"{path}: use a name that ends in .mbox, or --format maildir or eml")
    chosen = cast("Kind", kind or "mbox")
    if path == "-" and chosen != "mbox":
        raise InvalidInput("only an mbox can be written to standard output")

    async def work(app: App) -> ExportResult:
        source = await find_inbox(app, inbox)
        with Progress("exporting", unit="mails") as progress, _target(path, chosen) as target:
            return await export_mail(
                app.services,
                source.id,
                target,
                report=lambda outcome: progress.update(outcome.written),
            )

    outcome = session.run(work)
    _print_export(session, outcome, path)
    return EXIT_CODES["internal"] if outcome.problems else OK


def _target(path: str, kind: Kind) -> AbstractContextManager[Target]:
    if path == "-":
        return nullcontext(MboxTarget(sys.stdout.buffer))
    return open_target(Path(path), kind)


def _print_export(session: Session, outcome: ExportResult, path: str) -> None:
    for problem in outcome.problems:
        print(f"missing: {cell(problem.place)}: {cell(problem.problem)}", file=sys.stderr)
    if path == "-":
        sys.stdout.buffer.flush()
    else:
        written = f"{path}: {mails(outcome.written)} written"
        session.report({"path": path, **asdict(outcome)}, lambda: print(written))


async def find_inbox(app: App, name: str, *, create: bool | None = None) -> Inbox:
    """The inbox with this address or id.

    Raises:
        NotFound: there is none, and the command cannot (None) or should not (False) create it.
    """
    store = app.services.store
    found = (await store.inboxes_at([name])).get(name.lower()) or await store.inbox(
        name, EVERYTHING
    )
    if found is not None:
        return found
    if not create:
        how = "" if create is None else "; use --create to create it"
        raise NotFound(f"no inbox {name}{how}; `postroom inbox list` lists inboxes")
    return cast(Inbox, await call(app.context(OWNER), create_inbox, {"address": name}))


@click.command(
    help="Import memories from a file of `memory export`, one JSON object per line. Memories "
    "from mail keep their trust. - is standard input."
)
@click.argument("path", metavar="PATH")
@click.pass_obj
def import_memories(session: Session, *, path: str) -> int:
    from postroom.operations.memories import import_memories

    async def work(app: App) -> ImportedMemories:
        with _opened(path, "rb") as lines:
            return await import_memories(app.context(OWNER), lines)

    outcome = session.run(work)
    session.report(asdict(outcome), lambda: _print_imported_memories(outcome))
    return EXIT_CODES["invalid_input"] if outcome.refused else OK


def _print_imported_memories(outcome: ImportedMemories) -> None:
    for problem in outcome.problems:
        print(f"refused: {cell(problem)}", file=sys.stderr)
    print(
        f"memories read: {outcome.read}; {outcome.created} new, {outcome.changed} changed, "
        f"{outcome.refused} refused"
    )


@contextmanager
def _opened(path: str, mode: Literal["rb", "xb"]) -> Iterator[BinaryIO]:
    """A file to read, or a new file that only its owner can read; - is a standard stream."""
    if path == "-":
        yield sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        file = open(path, mode, opener=open_private)  # noqa: SIM115
    except FileExistsError:
        raise Conflict(f"{path} exists; choose another name") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    with file:
        yield file


@click.command(
    help="Export memories to a new file, one JSON object per line. - is standard output."
)
@click.argument("path", metavar="PATH")
@click.option(
    "--namespace", multiple=True, metavar="NAME", help="Only this namespace.  [default: all]"
)
@click.pass_obj
def export_memories(session: Session, *, path: str, namespace: tuple[str, ...]) -> int:
    from postroom.operations.memories import export_memories

    async def work(app: App) -> int:
        written = 0
        with _opened(path, "xb") as file:
            async for memory in export_memories(app.context(OWNER), namespace or None):
                mark = {"untrusted": True} if came_from_mail(memory) else {}
                file.write(json_line({**mark, **to_json(memory)}))
                written += 1
        return written

    written = session.run(work)
    if path != "-":
        words = f"{path}: {written} memories"
        session.report({"path": path, "memories": written}, lambda: print(words))
    return OK


_MAX_SHOWN = 100


def read_rules(path: str) -> list[Definition]:
    """The rules in a file; - is standard input. Raises InvalidInput with every problem."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = raw.decode()
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not UTF-8 text; convert it to UTF-8") from None
    return parse_rules(text, field=path)


@click.command(
    help="Check rules in files. Problems are listed with line and column; there are warnings "
    "about conditions that never match."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_obj
def check(session: Session, *, files: tuple[str, ...]) -> int:
    found = [
        {"file": path, "name": rule.name, "warnings": [*impossible_conditions(rule)]}
        for path in files
        for rule in read_rules(path)
    ]

    def print_rules() -> None:
        for rule in found:
            title = f"{rule['file']}: {cell(rule['name'])}"
            print(f"{title}: ok")
            for warning in rule["warnings"]:
                print(f"warning: {title}: {cell(warning)}", file=sys.stderr)

    session.report({"rules": found}, print_rules)
    return OK


@click.command(
    help="Test rules on existing mail: show what they would do with each mail of an mbox (or a "
    "Maildir, or .eml files). With --against, show what differs from another version."
)
@click.argument("file", metavar="FILE")
@click.option("--mbox", required=True, metavar="PATH", help="The mail.")
@click.option("--against", metavar="FILE", help="An earlier version of the rules, to compare with.")
@click.pass_obj
def test(session: Session, *, file: str, mbox: str, against: str | None) -> int:
    trial = BackTest(read_rules(file), read_rules(against) if against else None)
    limits = session.limits
    source = open_source(
        Path(mbox), kind=None, mailbox=INBOX, max_bytes=limits.message_bytes, quoting="mboxrd"
    )
    refused = asyncio.run(_try(trial, source, Parser(limits)))
    if session.as_json:
        problems = [{"place": one.place, "problem": one.problem} for one in refused]
        write_json(
            with_clean_text({"untrusted": True, **back_test_as_json(trial), "problems": problems})
        )
    else:
        _print_outcomes(trial, refused)
    return OK


async def _try(trial: BackTest, source: Source, parser: Parser) -> list[Unreadable]:
    try:
        return await back_test(trial, source, parser, datetime.now(UTC))
    finally:
        await parser.close()


def _print_outcomes(trial: BackTest, refused: list[Unreadable]) -> None:
    print(f"{mails(trial.mails)}, {len(trial.outcomes)} of them matched")
    for name, count in trial.matches.most_common():
        print(f"  {cell(name)}: {count}")
    if trial.against is None:
        for outcome in trial.outcomes[:_MAX_SHOWN]:
            print(f"{_title(outcome)}\n    {_action_words(outcome.actions)}")
        _print_rest(len(trial.outcomes))
    else:
        print(f"{mails(len(trial.changed))} with a different outcome")
        for one in trial.changed[:_MAX_SHOWN]:
            print(_title(one.after))
            print(
                f"  - {_action_words(one.before.actions)}\n  + {_action_words(one.after.actions)}"
            )
        _print_rest(len(trial.changed))
    for problem in refused:
        print(f"warning: {cell(problem.place)}: {cell(problem.problem)}", file=sys.stderr)


def _print_rest(count: int) -> None:
    if count > _MAX_SHOWN:
        print(f"… and {count - _MAX_SHOWN} more; -o json shows all of them")


def _title(outcome: Outcome) -> str:
    return f"{cell(outcome.place)}: {cell(outcome.sender)}: {cell(outcome.subject)}"


def _action_words(actions: tuple[Action, ...]) -> str:
    return cell(
        ", ".join(": ".join(public_action(action).values()) for action in actions) or "nothing"
    )
