"""Read stored mail again, after an upgrade of the parser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from postroom.surfaces.cli.progress import Progress
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json
from postroom.surfaces.shapes import to_json

if TYPE_CHECKING:
    from postroom.app import App


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many messages were read again."""

    reparsed: int


@click.command(
    help="Read stored mail again with the parser of today: text, threads and the search index "
    "follow from the raw bytes. Does only what an older parser has read, and goes on where it "
    "was when it is interrupted."
)
@click.option("--all", "everything", is_flag=True, help="Also what this parser has read.")
@click.pass_obj
def reparse(session: Session, *, everything: bool) -> None:
    outcome = session.run(lambda app: read_again(app, everything=everything))
    if session.as_json:
        write_json(to_json(outcome))
    else:
        print(f"{outcome.reparsed} messages read again")


async def read_again(app: App, *, everything: bool) -> Outcome:
    """Go through all that is outdated."""
    from postroom.mail.message import PARSER_VERSION
    from postroom.pipeline.reparsing import reparse as batches

    version = PARSER_VERSION + everything
    total = await app.house.store.count_outdated(version)
    done = 0
    with Progress("reading again", unit="messages") as progress:
        async for count in batches(app.house, version=version):
            done += count
            progress.tell(done, share=min(done / total, 1.0) if total else None)
    return Outcome(done)
