"""`doctor`: check the installation and its environment, and say how to fix each problem."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom import __version__
from postroom.config import ConfigError
from postroom.errors import Conflict, MailError, TooNew, TooOld, Unavailable
from postroom.model.health import CheckResult, ok, problem, warning
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session, check_owner, check_writable, read_key
from postroom.surfaces.cli.terminal import cell
from postroom.wiring import is_new

if TYPE_CHECKING:
    from postroom.config import Settings


@click.command(help="Check the installation and suggest fixes. Exits with 1 if there is a problem.")
@click.pass_obj
def doctor(session: Session) -> int:
    findings = asyncio.run(_examine(session))
    session.report(
        {"checks": [asdict(finding) for finding in findings]}, lambda: _print_checks(findings)
    )
    return EXIT_CODES["internal"] if any(f.status == "problem" for f in findings) else OK


def _print_checks(findings: list[CheckResult]) -> None:
    for finding in findings:
        print(f"{finding.status:8} {finding.check:10} {cell(finding.detail)}")
        if finding.fix:
            print(f"{'':19} fix: {finding.fix}")


async def _examine(session: Session) -> list[CheckResult]:
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
        fix = "correct them; see `postroom config --help` and docs/reference/settings.md"
        return [*findings, problem("settings", str(error), fix)]
    findings.append(ok("settings", "all values are valid"))
    from postroom.checks import check_folder, check_logins, check_memory

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


async def _installation(settings: Settings) -> AsyncIterator[CheckResult]:
    from postroom.app import open_app
    from postroom.checks import INSTALLATION

    try:
        async with open_app(settings) as app:
            for check in INSTALLATION.values():
                yield await check(app.services, settings)
    except (MailError, OSError) as error:
        detail, has_advice, advice = str(error).partition("; check ")
        fix = f"check {advice}" if has_advice else _database_fix(settings, error)
        yield problem("database", detail, fix)


def _database_fix(settings: Settings, error: Exception) -> str:
    if isinstance(error, TooNew):
        return f"install the version that created it, or a newer one; this is {__version__}"
    if isinstance(error, Conflict | TooOld):
        return "do what the message says; no data is damaged"
    if settings.database_url is None:
        return "run `postroom verify`; restore a backup if the file is damaged"
    if isinstance(error, Unavailable):
        return (
            "look at pg_stat_activity on its server: wait_event SyncRep means that a synchronous "
            "standby is away, wait_event_type Lock that something else holds a lock"
        )
    return "check POSTROOM_DATABASE_URL, and that its user owns the database"


_RESPONSE_S = 2.0
_MAX_BYTES = 65_536
_LISTENING = "0A"


async def examine_network(settings: Settings) -> list[CheckResult]:
    """The findings about the server, its ports and the relay."""
    from postroom.checks import check_cell, check_relay_login, is_cell

    return [
        await _http_port(settings),
        await _smtp_port(settings),
        await check_relay_login(settings),
        *([await check_cell(settings)] if is_cell(settings) else []),
    ]


async def _http_port(settings: Settings) -> CheckResult:
    from postroom.surfaces.rest.server import listen

    address = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except Conflict:
        return await _server(settings, address)
    except MailError as error:
        return problem("port", str(error), "choose an address of this machine with --host")
    return ok("port", f"{address} is free; no server is running here")


async def _server(settings: Settings, address: str) -> CheckResult:
    """What answers on the port: this installation, another one, or another program."""
    status, body = await _ask(settings, "/readyz")
    if status is None and (await _ask(settings, "/healthz"))[0] == 200:
        detail = f"Postroom on {address} is not ready: no answer within {_RESPONSE_S:.0f} seconds"
        return problem("port", detail, "see its log, and the check of the database below")
    if status is None:
        fix = "stop it, or choose another port with --port or POSTROOM_PORT"
        return problem("port", f"{address} is used by {program_on_port(settings.port)}", fix)
    if status != 200:
        detail = f"Postroom on {address} is not ready: {body.get('detail', status)}"
        return problem("port", detail, "see its log")
    version, installation = body.get("version"), body.get("installation")
    if installation is None:
        return ok(
            "port", f"Postroom is listening on {address}; it does not disclose its data folder"
        )
    if installation != await _own_installation(settings):
        detail = (
            f"Postroom {version} is listening on {address}, with different data than this folder"
        )
        fix = "choose another port with --port, or name its folder with --data"
        return warning("port", detail, fix)
    if version != __version__:
        detail = f"Postroom {version} is listening on {address}, and this is {__version__}"
        return warning("port", detail, "restart the server")
    return ok("port", f"Postroom {version} is listening on {address}, with this data")


async def _own_installation(settings: Settings) -> str | None:
    """The mark of the installation in the settings, as a server shows it."""
    from postroom.wiring import is_new, open_store

    if is_new(settings):
        return None
    with suppress(MailError, OSError):
        store = await open_store(settings)
        try:
            return await store.installation_mark()
        finally:
            await store.close()
    return None


async def _ask(settings: Settings, path: str) -> tuple[int | None, dict[str, Any]]:
    """Status and body of a response; no status if no Postroom answers."""
    from postroom.config.settings import base_url

    host = base_url(settings.host, settings.port).removeprefix("http://")
    key = settings.api_key or read_key(settings.data_dir)
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close"]
    lines += [f"X-API-Key: {key}"] if key else []
    try:
        async with asyncio.timeout(_RESPONSE_S):
            name = host.rpartition(":")[0].strip("[]")
            reader, writer = await asyncio.open_connection(name, settings.port)
            writer.write("\r\n".join([*lines, "", ""]).encode())
            answer = b""
            while len(answer) < _MAX_BYTES and (more := await reader.read(_MAX_BYTES)):
                answer += more
            writer.close()
    except (OSError, TimeoutError):
        return None, {}
    head, _, body = answer.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    if status is None or b"x-request-id" not in head.lower():
        return None, {}
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    return int(status[1]), found if isinstance(found, dict) else {}


async def _smtp_port(settings: Settings) -> CheckResult:
    if settings.smtp_listen is None:
        return ok("smtp", "mail over SMTP is off (--smtp)")
    host, _, port = settings.smtp_listen.rpartition(":")
    try:
        async with asyncio.timeout(_RESPONSE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            greeting = await reader.readline()
            writer.close()
    except OSError as error:  # includes TimeoutError
        if isinstance(error, ConnectionRefusedError) or not int(port):
            return ok("smtp", f"{settings.smtp_listen} is free; nothing receives mail there now")
        greeting = b""
    if b"Postroom" in greeting:
        return ok("smtp", f"Postroom receives mail on {settings.smtp_listen}")
    fix = "stop it, or choose another address with --smtp or POSTROOM_SMTP_LISTEN"
    return warning("smtp", f"{settings.smtp_listen} is used by {program_on_port(int(port))}", fix)


def program_on_port(port: int) -> str:
    """The program that listens on a port, as far as it can be seen."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(path) in sockets for path in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                return f"{name} (process {process.name})"
    return "a program that is not Postroom"


def _inodes(port: int) -> Iterator[str]:
    """The sockets that listen on a port, in the format of proc(5)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
