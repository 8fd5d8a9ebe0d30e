"""`doctor`: check the installation and say how to fix each problem."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from postroom import __version__
from postroom.config import ConfigError
from postroom.errors import Conflict, MailError, TooNew, TooOld
from postroom.model.key import Key, Scope
from postroom.model.view import EVERYTHING, Only
from postroom.surfaces.cli.data_folder import check_owner, check_writable
from postroom.surfaces.cli.exit_codes import EXIT_CODES, OK
from postroom.surfaces.cli.findings import Finding, ok, problem, warning
from postroom.surfaces.cli.session import Session
from postroom.surfaces.cli.terminal import cell
from postroom.wiring import is_new, key_of_logins

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.config import Settings
    from postroom.model.inbox import QuestionableAddress

MB = 1024 * 1024
_OLDEST_SQLITE = (3, 51, 3)
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_NAMED = 10
_EVERY = 2**31 - 1


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
    from postroom.surfaces.mcp.server import catalogue_hash

    findings = [
        ok("python", ".".join(map(str, sys.version_info[:3]))),
        _sqlite(),
        ok("tools", f"SHA-256 of the MCP tool list: {catalogue_hash()}"),
    ]
    try:
        settings = session.settings
    except ConfigError as error:
        fix = "correct them; see `postroom config --help` and docs/settings.md"
        return [*findings, problem("settings", str(error), fix)]
    findings.append(ok("settings", "all values are valid"))
    from postroom.surfaces.cli.doctor_network import examine_network

    findings += [_memory(settings), _logins(settings)]
    try:
        check_owner(settings.data_dir)
        check_writable(settings.data_dir)
    except MailError as error:
        says, _, fix = str(error).partition("; ")
        return [*findings, problem("folder", says, fix or "choose another with --data")]
    findings += [*_folder(settings), *await examine_network(settings)]
    if is_new(settings):
        return findings
    return findings + [finding async for finding in _installation(settings)]


def _sqlite() -> Finding:
    import apsw

    found = apsw.sqlite_lib_version()
    if tuple(map(int, found.split("."))) >= _OLDEST_SQLITE:
        return ok("sqlite", found)
    detail = f"sqlite_wal_reset: {found} can corrupt a database with several writers"
    return problem("sqlite", detail, "install apsw 3.51.3 or newer")


def _memory(settings: Settings) -> Finding:
    if not settings.memory_search:
        fix = "set POSTROOM_MEMORY_SEARCH=true to turn it on"
        return warning("memory", "search of memories is off", fix)
    if settings.embeddings == "none":
        fix = "set POSTROOM_EMBEDDINGS=bundled to search by meaning as well"
        return warning("memory", "memories are searched by words only", fix)
    if settings.embeddings == "bundled":
        return ok("memory", "searched by words and by meaning, with the bundled model")
    return ok("memory", f"searched by words and by meaning, with {settings.embeddings}")


def _logins(settings: Settings) -> Finding:
    """Where passwords and tokens of accounts are stored."""
    try:
        key = key_of_logins(settings)
    except (MailError, OSError) as error:
        return problem("logins", str(error), "follow the message; no data is damaged")
    if key is None:
        return ok("logins", "none, or stored in the keyring of the operating system")
    if key.resolve().is_relative_to(settings.data_dir.resolve()):
        detail = "the key that decrypts them is in the data folder, together with them"
        fix = (
            "set POSTROOM_VAULT_KEY_FILE to the absolute path of a file in another folder, "
            "which must exist; the key is moved there on next use"
        )
        return warning("logins", detail, fix)
    if key.stat().st_mode & 0o077:
        detail = f"other users of this machine can read {key}"
        return warning("logins", detail, f"chmod 600 {key}")
    return ok("logins", f"stored in encrypted files; the key is {key}")


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if is_new(settings):
        fix = "check --data; `postroom serve` or `postroom inbox create` makes it"
        yield warning("folder", f"there is no store in {folder.absolute()} yet", fix)
        return
    if folder.stat().st_mode & 0o077:
        detail = f"other users of this machine can read {folder}"
        yield warning("folder", detail, f"chmod 700 {folder}")
    else:
        yield ok("folder", str(folder))
    yield _space(shutil.disk_usage(folder).free)


def _space(free: int) -> Finding:
    detail = f"{free // MB} MB are free"
    if free < 100 * MB:
        fix = "free some space; mail is refused when the disk is full"
        return problem("space", detail, fix)
    if free < 1024 * MB:
        return warning("space", detail, "free some space")
    return ok("space", detail)


async def _installation(settings: Settings) -> AsyncIterator[Finding]:
    from postroom.app import open_app

    try:
        async with open_app(settings) as app:
            for check in (_store, _blobs, _keys, _addresses, _rules, _webhooks, _outbox, _clock):
                yield await check(app)
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


async def _store(app: App) -> Finding:
    await app.services.store.ping()
    return ok("database", "schema is current; reads and writes work")


async def _blobs(app: App) -> Finding:
    blobs, store = app.services.blobs, app.services.store
    content = b"written by postroom doctor"
    try:
        [key] = await blobs.put([content])
        is_whole = await blobs.read(key) == content
        await blobs.discard([key], store.used_blobs)
    except (MailError, OSError) as error:
        fix = f"make {app.settings.data_dir / 'blobs'} writable"
        if url := app.settings.blobs_url:
            fix = f"check that {url} exists and that the AWS_… credentials allow writing"
        return problem("blobs", str(error), fix)
    if not is_whole:
        return problem("blobs", "the bytes read differ from those written", "check the disk")
    return ok("blobs", "reads and writes work")


async def _keys(app: App) -> Finding:
    from postroom.calls.authentication import OWNER_KEY_ID
    from postroom.model.page import Slice

    keys = await app.services.store.keys(Slice(limit=1_000))
    if app.settings.api_key is None and not await app.services.store.has_key(OWNER_KEY_ID):
        return ok("keys", "no owner's key yet; the first `postroom serve` creates it")
    free = [key.id for key in keys.rows if _sends_freely(key)]
    if free:
        named = ", ".join(free[:_MAX_NAMED])
        fix = "hold risky mail of agents: `postroom key update KEY_ID --approval risky`"
        return warning("keys", f"mail of {named} leaves without approval", fix)
    return ok("keys", f"{keys.total}, including the owner's")


def _sends_freely(key: Key) -> bool:
    """Whether a key may send anything to anybody. The owner's is meant to."""
    from postroom.calls.authentication import OWNER_KEY_ID

    return key.id != OWNER_KEY_ID and Scope.SEND in key.scopes and key.policy.is_open


async def _addresses(app: App) -> Finding:
    """Addresses that only the owner may create, and who created them."""
    from postroom.calls.authentication import OWNER_KEY_ID

    served = app.settings.domains
    found = [
        (address, await _maker(app, address))
        for address in await app.services.store.questionable_addresses()
        if address.account_id is None or address.email.rpartition("@")[2] in served
    ]
    doubtful = [(one, by) for one, by in found if one.belongs_to or by != OWNER_KEY_ID]
    if not doubtful:
        names = ", ".join(one.email for one, _ in found)
        kept = f"; reserved names that the owner created: {names}" if names else ""
        return ok("addresses", f"no conflicts{kept}")
    told = "; ".join(_doubt(one, by) for one, by in doubtful[:_MAX_NAMED])
    more = f";{_more(len(doubtful))}" if len(doubtful) > _MAX_NAMED else ""
    fix = "`postroom identity delete ID` removes an alias, `postroom inbox delete ID` an inbox"
    return warning("addresses", f"{told}{more}", f"if this is not intended: {fix}")


def _doubt(address: QuestionableAddress, maker: str) -> str:
    where = f"{address.identity_id} of {address.inbox_id}, created by {maker}"
    if address.belongs_to is None:
        return f"{address.email} ({where}) is a reserved name"
    return f"{address.email} ({where}) is a plus-address of another inbox's {address.belongs_to}"


async def _maker(app: App, address: QuestionableAddress) -> str:
    """Who created it, according to the audit log."""
    from postroom.model.audit import AuditQuery
    from postroom.model.page import Slice

    inbox = await app.services.store.inbox(address.inbox_id, EVERYTHING)
    is_alias = inbox is None or inbox.address != address.email
    query = AuditQuery(
        visible=EVERYTHING,
        namespaces=EVERYTHING,
        action="create_alias" if is_alias else "create_inbox",
        target=address.identity_id if is_alias else address.inbox_id,
        page=Slice(limit=1),
    )
    found = (await app.services.store.audit(query)).rows
    return found[0].actor if found else "an unknown caller"


async def _rules(app: App) -> Finding:
    doubts = [*await _idle(app), *await _without_rights(app)]
    dropped = await _dropped_at_upgrades(app)
    details = [detail for detail, _ in doubts] or [
        "every enabled rule has the rights for its actions"
    ]
    detail = "; ".join([*details, *([dropped] if dropped else [])])
    if not doubts:
        return ok("rules", detail)
    return warning("rules", detail, "; ".join(fix for _, fix in doubts))


async def _outbox(app: App) -> Finding:
    from postroom.model.sending import OutboxQuery

    state = await app.services.store.outbox_state()
    mails = "1 mail is waiting" if state.waiting == 1 else f"{state.waiting} mails are waiting"
    held = await app.services.store.outbox(OutboxQuery(EVERYTHING, status="held"))
    if held.total:
        mails += f"; {held.total} held until a person decides: `postroom outbox list --status held`"
    if state.is_paused:
        fix = "`postroom outbox resume` resumes it"
        return warning("outbox", f"paused; {mails}", fix)
    queued = await app.services.store.outbox(OutboxQuery(EVERYTHING, status="queued"))
    reasons = Counter(r.detail for entry in queued.rows for r in entry.recipients if r.detail)
    if not reasons:
        return ok("outbox", mails)
    why = f"{mails}: {reasons.most_common(1)[0][0]}"
    return warning("outbox", why, "see `postroom outbox list --status queued`")


async def _clock(app: App) -> Finding:
    now = app.services.clock()
    newest = max(
        (path.stat().st_mtime for path in app.settings.data_dir.glob("postroom.db*")), default=0.0
    )
    if now >= _RELEASED and newest <= now.timestamp() + 60:
        return ok("clock", now.strftime("%Y-%m-%d %H:%M:%S UTC"))
    detail = f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is earlier than the last write"
    return problem("clock", detail, "set the clock of this machine")


_WAITED = {"rule_job": "forwards or replies of {}", "delivery": "calls of {}"}
_DROPPED = (
    "an upgrade dropped pending jobs whose caller is unknown or does not have the rights for them: "
)


async def _idle(app: App) -> list[tuple[str, str]]:
    """Rules for no inbox, with a fix."""
    rules = await app.services.store.all_rules()
    idle = [r for r in rules if isinstance(r.inboxes, Only) and r.inboxes.is_empty]
    if not idle:
        return []
    named = ", ".join(f"{rule.id} ({rule.name})" for rule in idle[:_MAX_NAMED])
    detail = f"for no inbox, so they run on nothing: {named}{_more(len(idle))}; who made them "
    fix = "`postroom rule delete ID`; make it anew with a key that may see the inboxes it is for"
    return [(f"{detail}could see none, or their inboxes were removed", fix)]


async def _without_rights(app: App) -> list[tuple[str, str]]:
    """Rules whose owner lacks a right, with a fix."""
    from postroom.pipeline.apply_rules import rules_without_rights

    found = await rules_without_rights(app.services)
    if not found:
        return []
    named = "; ".join(f"{rule.id} ({rule.name}): {why}" for rule, why in found[:_MAX_NAMED])
    fix = f"`postroom rule update {found[0][0].id} --enabled` puts it under the owner; "
    return [(f"{named}{_more(len(found))}", f"{fix}--no-enabled ends it")]


async def _webhooks(app: App) -> Finding:
    """Whether webhooks have stopped because their key lacks a right."""
    from postroom.model.page import Slice
    from postroom.pipeline.key_rights import stopped_webhooks

    webhooks = await app.services.store.webhooks(EVERYTHING, Slice(limit=_EVERY))
    found = await stopped_webhooks(app.services, webhooks.rows)
    if not found:
        return ok("webhooks", f"{webhooks.total} in use")
    named = "; ".join(f"{name}: {why}" for name, why in list(found.items())[:_MAX_NAMED])
    ids = next(iter(found))
    fix = f"`postroom webhook renew {ids}` goes on with it, `postroom webhook delete {ids}` ends it"
    return warning("webhooks", f"{named}{_more(len(found))}", fix)


async def _dropped_at_upgrades(app: App) -> str:
    """What an upgrade dropped, as text; empty if nothing."""
    lost = await app.services.store.upgrade_losses()
    if not lost:
        return ""
    named = [f"{one.lost} {_WAITED[one.kind].format(one.subject)}" for one in lost[:_MAX_NAMED]]
    return f"{_DROPPED}{', '.join(named)}{_more(len(lost))}"


def _more(count: int) -> str:
    return f" and {count - _MAX_NAMED} more" if count > _MAX_NAMED else ""
