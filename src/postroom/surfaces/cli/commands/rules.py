"""`rule check` and `rule test`: rules in files, before they are saved."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from postroom.errors import InvalidInput
from postroom.model.inbox import INBOX
from postroom.model.rule import Action, shown_action
from postroom.pipeline.parser import Parser
from postroom.pipeline.transfer.archives import Unreadable
from postroom.pipeline.transfer.import_export import back_test
from postroom.pipeline.transfer.mail_files import Source, open_source
from postroom.rules.backtest import BackTest, Outcome, shown_test
from postroom.rules.definition import Definition
from postroom.rules.matching import impossible_conditions
from postroom.rules.parser import parse_rules
from postroom.surfaces.cli.exit_codes import OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import cell, write_json
from postroom.surfaces.to_json import presented

_MAX_SHOWN = 100


def read_rules(path: str) -> list[Definition]:
    """The rules in a file; - is standard input. Raises InvalidInput with every problem."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: not UTF-8 text") from None
    return parse_rules(text, field=path)


@click.command(
    help="Check rules in files. Problems are listed with line and column; conditions that never "
    "match are warned about."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.pass_obj
def check(session: Session, *, files: tuple[str, ...]) -> int:
    found = [
        {"file": path, "name": rule.name, "warnings": [*impossible_conditions(rule)]}
        for path in files
        for rule in read_rules(path)
    ]

    def tell() -> None:
        for rule in found:
            title = f"{rule['file']}: {cell(rule['name'])}"
            print(f"{title}: ok")
            for warning in rule["warnings"]:
                print(f"warning: {title}: {cell(warning)}", file=sys.stderr)

    session.report({"rules": found}, tell)
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
        Path(mbox), kind=None, mailbox=INBOX, most_bytes=limits.message_bytes, quoting="mboxrd"
    )
    refused = asyncio.run(_try(trial, source, Parser(limits)))
    if session.as_json:
        problems = [{"place": one.place, "problem": one.problem} for one in refused]
        write_json(presented({"untrusted": True, **shown_test(trial), "problems": problems}))
    else:
        _tell(trial, refused)
    return OK


async def _try(trial: BackTest, source: Source, parser: Parser) -> list[Unreadable]:
    try:
        return await back_test(trial, source, parser, datetime.now(UTC))
    finally:
        await parser.close()


def _tell(trial: BackTest, refused: list[Unreadable]) -> None:
    print(f"{trial.mails} mails, {len(trial.outcomes)} of them matched")
    for name, count in trial.matches.most_common():
        print(f"  {cell(name)}: {count}")
    if trial.against is None:
        for outcome in trial.outcomes[:_MAX_SHOWN]:
            print(f"{_title(outcome)}\n    {_acts(outcome.actions)}")
        _tell_rest(len(trial.outcomes))
    else:
        print(f"{len(trial.changed)} mails have a different outcome")
        for one in trial.changed[:_MAX_SHOWN]:
            print(_title(one.after))
            print(f"  - {_acts(one.before.actions)}\n  + {_acts(one.after.actions)}")
        _tell_rest(len(trial.changed))
    for problem in refused:
        print(f"warning: {cell(problem.place)}: {cell(problem.problem)}", file=sys.stderr)


def _tell_rest(count: int) -> None:
    if count > _MAX_SHOWN:
        print(f"… and {count - _MAX_SHOWN} more; -o json shows all of them")


def _title(outcome: Outcome) -> str:
    return f"{cell(outcome.place)}: {cell(outcome.sender)}: {cell(outcome.subject)}"


def _acts(actions: tuple[Action, ...]) -> str:
    return cell(", ".join(": ".join(shown_action(act).values()) for act in actions) or "nothing")
