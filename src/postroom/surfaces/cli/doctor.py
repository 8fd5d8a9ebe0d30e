"""`doctor`: look at everything that can go wrong, and name the fix of what did."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import click

from postroom import __version__
from postroom.config import ConfigError
from postroom.errors import Conflict, MailError, TooNew
from postroom.surfaces.cli.exits import EXIT_CODES, OK
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.streams import write_json

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Settings

MB = 1024 * 1024
_OLDEST_SQLITE = (3, 51, 3)
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. What is not ok has a fix."""

    check: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    fix: str = ""


def _ok(check: str, detail: str) -> Finding:
    return Finding(check, "ok", detail)


@click.command(help="Look for problems and name the fix of each. Ends with 1 if there is one.")
@click.pass_obj
def doctor(session: Session) -> int:
    findings = asyncio.run(_examine(session))
    if session.as_json:
        write_json({"checks": [asdict(finding) for finding in findings]})
    else:
        _tell(findings)
    return EXIT_CODES["internal"] if any(f.status == "problem" for f in findings) else OK


def _tell(findings: list[Finding]) -> None:
    from postroom.surfaces.cli.tables import cell

    for finding in findings:
        print(f"{finding.status:8} {finding.check:9} {cell(finding.detail)}")
        if finding.fix:
            print(f"{'':18} fix: {finding.fix}")


async def _examine(session: Session) -> list[Finding]:
    findings = [_python(), _sqlite(), _tools()]
    try:
        settings = session.settings
    except ConfigError as error:
        fix = "correct them; `postroom config --help` lists the names, docs/settings.md the values"
        return [*findings, Finding("settings", "problem", str(error), fix)]
    findings.append(_ok("settings", "all of them can be read"))
    findings.append(_memory(settings))
    findings += [*_folder(settings), await _port(settings)]
    if not settings.data_dir.exists():
        return findings
    return findings + [finding async for finding in _house(settings)]


def _python() -> Finding:
    """An older one than 3.11 could not even have read this file."""
    return _ok("python", ".".join(map(str, sys.version_info[:3])))


def _sqlite() -> Finding:
    import apsw

    found = apsw.sqlite_lib_version()
    if tuple(map(int, found.split("."))) >= _OLDEST_SQLITE:
        return _ok("sqlite", found)
    detail = f"sqlite_wal_reset: {found} can corrupt a database that several programs write"
    return Finding("sqlite", "problem", detail, "install apsw 3.51.3 or newer")


def _tools() -> Finding:
    from postroom.surfaces.mcp.server import catalogue_hash

    return _ok("tools", f"the catalogue of MCP tools is {catalogue_hash()}")


def _memory(settings: Settings) -> Finding:
    if not settings.memory_search:
        fix = "set POSTROOM_MEMORY_SEARCH=true if agents shall search their memories"
        return Finding("memory", "warning", "the search of memories is switched off", fix)
    if settings.embeddings == "none":
        fix = "set POSTROOM_EMBEDDINGS=bundled to find them by meaning too"
        return Finding("memory", "warning", "memories are found by their words only", fix)
    if settings.embeddings == "bundled":
        return _ok("memory", "found by words and by meaning, with the bundled model")
    return _ok("memory", f"found by words and by meaning, with {settings.embeddings}")


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if not folder.exists():
        parent = next(path for path in folder.parents if path.exists())
        yield (
            _may_be_made(settings)
            if os.access(parent, os.W_OK)
            else Finding(
                "folder",
                "problem",
                f"{folder} cannot be made",
                f"make {parent} writable, or use --data",
            )
        )
        return
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("folder", "problem", f"{folder} cannot be used", f"chmod u+rwx {folder}")
        return
    if folder.stat().st_mode & 0o077:
        detail = f"others on this machine can look into {folder}"
        yield Finding("folder", "warning", detail, f"chmod 700 {folder}")
    else:
        yield _ok("folder", str(folder))
    yield _space(shutil.disk_usage(folder).free)


def _may_be_made(settings: Settings) -> Finding:
    return _ok("folder", f"{settings.data_dir} is not there yet; the first command makes it")


def _space(free: int) -> Finding:
    detail = f"{free // MB} MB are free"
    if free < 100 * MB:
        return Finding(
            "space", "problem", detail, "free some space: mail is refused when it is out"
        )
    if free < 1024 * MB:
        return Finding("space", "warning", detail, "free some space before it runs out")
    return _ok("space", detail)


async def _port(settings: Settings) -> Finding:
    from postroom.surfaces.rest.server import listen

    place = f"{settings.host}:{settings.port}"
    try:
        listen(settings.host, settings.port).close()
    except Conflict:
        if await _answers(settings):
            return _ok("port", f"our server answers at {place}")
        fix = "stop the other program, or choose another port with --port or POSTROOM_PORT"
        return Finding("port", "problem", f"another program has {place}", fix)
    except MailError as error:
        return Finding("port", "problem", str(error), "choose an address of this machine: --host")
    return _ok("port", f"{place} is free for `postroom serve`")


async def _answers(settings: Settings) -> bool:
    """Whether it is us who listens there."""
    from postroom.surfaces.cli.banner import base_url

    host = base_url(settings.host, settings.port).removeprefix("http://")
    name = host.rpartition(":")[0].strip("[]")
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection(name, settings.port)
            writer.write(
                f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            answer = await reader.read(4096)
            writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"HTTP/1.1 200") and b"x-request-id" in answer.lower()


async def _house(settings: Settings) -> AsyncIterator[Finding]:
    from postroom.app import open_app

    try:
        async with open_app(settings) as app:
            for check in (_store, _blobs, _keys, _outbox, _clock):
                yield await check(app)
    except (MailError, OSError) as error:
        yield Finding("database", "problem", str(error), _mend_database(settings, error))


def _mend_database(settings: Settings, error: Exception) -> str:
    if isinstance(error, TooNew):
        return f"install the Postroom that made it, or a newer one; this is {__version__}"
    if isinstance(error, Conflict):
        return "do what it says; nothing is damaged"
    if settings.database_url is None:
        return "`postroom verify` says more; restore a backup if the file is damaged"
    return "see that POSTROOM_DATABASE_URL leads to it and that its user owns the database"


async def _store(app: App) -> Finding:
    await app.house.store.ping()
    return _ok("database", "opens, with the schema of this version; reads and writes work")


async def _blobs(app: App) -> Finding:
    blobs, store = app.house.blobs, app.house.store
    content = b"written by postroom doctor"
    try:
        [key] = await blobs.put([content])
        is_whole = await blobs.read(key) == content
        await blobs.discard([key], store.used_blobs)
    except (MailError, OSError) as error:
        return Finding("blobs", "problem", str(error), _mend_blobs(app.settings))
    if not is_whole:
        return Finding("blobs", "problem", "what is read is not what was written", "check the disk")
    return _ok("blobs", "can be written and read")


def _mend_blobs(settings: Settings) -> str:
    if settings.blobs_url is None:
        return f"make {settings.data_dir / 'blobs'} writable for you"
    return f"see that {settings.blobs_url} is there, that AWS_… lead to it, and that we may write"


async def _keys(app: App) -> Finding:
    from postroom.model.page import Slice
    from postroom.operations.keys import OWNER_KEY_ID

    total = (await app.house.store.keys(Slice(limit=1))).total
    if app.settings.api_key is None and not await app.house.store.has_key(OWNER_KEY_ID):
        return _ok("keys", "no owner's key yet; the first `postroom serve` makes it")
    return _ok("keys", f"{total} in all; the owner's is there")


async def _outbox(app: App) -> Finding:
    from postroom.model.outbox import OutboxQuery

    state = await app.house.store.outbox_state()
    mails = "1 mail waits" if state.waiting == 1 else f"{state.waiting} mails wait"
    if state.is_paused:
        fix = "`postroom outbox resume` lets mail go again"
        return Finding("outbox", "warning", f"it is paused, and {mails}", fix)
    queued = await app.house.store.outbox(OutboxQuery(status="queued"))
    reasons = Counter(r.detail for entry in queued.rows for r in entry.recipients if r.detail)
    if not reasons:
        return _ok("outbox", mails)
    why = f"{mails}: {reasons.most_common(1)[0][0]}"
    return Finding("outbox", "warning", why, "see `postroom outbox list --status queued`")


async def _clock(app: App) -> Finding:
    now = app.house.clock()
    newest = max(
        (path.stat().st_mtime for path in app.settings.data_dir.glob("postroom.db*")), default=0.0
    )
    if now >= _RELEASED and newest <= now.timestamp() + 60:
        return _ok("clock", now.strftime("%Y-%m-%d %H:%M:%S UTC"))
    detail = f"it is {now:%Y-%m-%d %H:%M} UTC here, which is before what was written already"
    return Finding("clock", "problem", detail, "set the clock of this machine")
