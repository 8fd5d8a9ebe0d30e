"""`audit verify`: is the log of who did what whole?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.surfaces.cli.exits import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json
from postroom.surfaces.shapes import to_json

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.model.audit import AuditCheck


@click.command(
    help="Read the whole audit log and check that nothing in it was altered, removed, put "
    "elsewhere or cut off. Ends with 1 if anything is wrong, and says what."
)
@click.pass_obj
def verify(session: Session) -> int:
    found = session.run(_check)
    if session.as_json:
        write_json(to_json(found))
    else:
        for problem in found.problems:
            print(f"problem: {problem}")
        verdict = "all is well" if found.is_whole else f"{len(found.problems)} problems"
        print(f"{found.entries} entries checked: {verdict}")
    return OK if found.is_whole else EXIT_CODES["internal"]


async def _check(app: App) -> AuditCheck:
    return await app.house.store.check_audit()
