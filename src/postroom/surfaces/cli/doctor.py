"""`doctor`: check the installation and say how to fix each problem."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from postroom import __version__
from postroom.config import ConfigError
from postroom.errors import Conflict, MailError, TooNew, TooOld
from postroom.model.health import Finding, ok, problem
from postroom.surfaces.cli.data_folder import check_owner, check_writable
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import cell
from postroom.wiring import is_new

if TYPE_CHECKING:
    from postroom.config import Settings


@click.command(help="Check the installation and suggest fixes. Exits with 1 if there is a problem.")
@click.pass_obj
def doctor(session: Session) -> int:
    findings = asyncio.run(_examine(session))
    session.report({"checks": [asdict(finding) for finding in findings]}, lambda: _tell(findings))
    return EXIT_CODES["internal"] if any(f.status == "problem" for f in findings) else OK


def _tell(findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{finding.status:8} {finding.check:9} {cell(finding.detail)}")
        if finding.fix:
            print(f"{'':18} fix: {finding.fix}")


async def _examine(session: Session) -> list[Finding]:
    # Older versions of Python than 3.11 cannot run this file.
    from postroom.checks import check_sqlite
    from postroom.surfaces.mcp.server import catalogue_hash

    findings = [
        ok("python", ".".join(map(str, sys.version_info[:3]))),
        check_sqlite(),
        ok("tools", f"SHA-256 of the MCP tool list: {catalogue_hash()}"),
    ]
    try:
        settings = session.settings
    except ConfigError as error:
        fix = "correct them; see `postroom config --help` and docs/settings.md"
        return [*findings, problem("settings", str(error), fix)]
    findings.append(ok("settings", "all values are valid"))
    from postroom.checks import check_folder, check_logins, check_memory
    from postroom.surfaces.cli.doctor_network import examine_network

    findings += [check_memory(settings), check_logins(settings)]
    try:
        check_owner(settings.data_dir)
        check_writable(settings.data_dir)
    except MailError as error:
        says, _, fix = str(error).partition("; ")
        return [*findings, problem("folder", says, fix or "choose another with --data")]
    findings += [*check_folder(settings), *await examine_network(settings)]
    if is_new(settings):
        return findings
    return findings + [finding async for finding in _installation(settings)]


async def _installation(settings: Settings) -> AsyncIterator[Finding]:
    from postroom.app import open_app
    from postroom.checks import INSTALLATION

    try:
        async with open_app(settings) as app:
            for check in INSTALLATION.values():
                yield await check(app.services, settings)
    except (MailError, OSError) as error:
        yield problem("database", str(error), _database_fix(settings, error))


def _database_fix(settings: Settings, error: Exception) -> str:
    if isinstance(error, TooNew):
        return f"install the version that created it, or a newer one; this is {__version__}"
    if isinstance(error, Conflict | TooOld):
        return "follow the message; no data is damaged"
    if settings.database_url is None:
        return "run `postroom verify`; restore a backup if the file is damaged"
    return "check POSTROOM_DATABASE_URL, and that its user owns the database"
