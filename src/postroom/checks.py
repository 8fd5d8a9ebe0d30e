"""The checks of an installation: each finds that something works, or says how to fix it.

`postroom doctor` and the page Health show them. Those of the host need no open store.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from postroom.calls.authentication import OWNER_KEY_ID
from postroom.errors import MailError
from postroom.extras import is_installed, missing
from postroom.model.event import AuditQuery
from postroom.model.health import CheckResult, ok, problem, warning
from postroom.model.key import Key, Scope
from postroom.model.mail.sending import OutboxQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, Only
from postroom.pipeline.apply_rules import rules_without_rights, stopped_webhooks
from postroom.wiring import check_cell_relays, check_relay, is_new, key_of_logins, lacks_model

if TYPE_CHECKING:
    from postroom.config import Settings
    from postroom.model.inbox import QuestionableAddress
    from postroom.pipeline.services import Services

MB = 1024 * 1024
MAX_CHECK_S = 5.0
"""A check of a running server that takes longer is a problem."""

MANY_MESSAGES = 20_000
"""Searching more messages without an index takes longer than a caller would like to wait."""

_OLDEST_SQLITE = (3, 51, 3)
_RELEASED = datetime(2026, 1, 1, tzinfo=UTC)
_MAX_NAMED = 10
_EVERY = 2**31 - 1


async def check_all(settings: Settings, services: Services) -> list[CheckResult]:
    """Run all checks at the same time; each has a limit of time."""
    host = [check_sqlite(), check_memory(settings), check_logins(settings), *check_folder(settings)]
    waiting = {
        "relay": check_relay_login(settings),
        **({"cell": check_cell(settings)} if is_cell(settings) else {}),
        **{name: check(services, settings) for name, check in INSTALLATION.items()},
    }
    found = [_in_time(name, check) for name, check in waiting.items()]
    return [*host, *await asyncio.gather(*found)]


async def _in_time(name: str, check: Awaitable[CheckResult]) -> CheckResult:
    try:
        async with asyncio.timeout(MAX_CHECK_S):
            return await check
    except TimeoutError:
        detail = f"no answer within {MAX_CHECK_S:.0f} seconds"
        return problem(name, detail, "see the log, and `postroom doctor` on the server")
    except (MailError, OSError) as error:
        return problem(name, str(error), "see the log, and `postroom doctor` on the server")


def check_sqlite() -> CheckResult:
    import apsw

    found = apsw.sqlite_lib_version()
    if tuple(map(int, found.split("."))) >= _OLDEST_SQLITE:
        return ok("sqlite", found)
    detail = f"{found} has the WAL-reset bug, which can corrupt a database"
    return problem("sqlite", detail, "install apsw 3.51.3 or newer")


def check_memory(settings: Settings) -> CheckResult:
    if not settings.memory_search:
        fix = "set POSTROOM_MEMORY_SEARCH=true to turn it on"
        return warning("memory", "search of memories is off", fix)
    if settings.embeddings == "none":
        fix = "set POSTROOM_EMBEDDINGS=bundled to search by meaning as well"
        return warning("memory", "memories are searched by words only", fix)
    if lacks_model(settings):
        return warning("memory", "memories are searched by words only", missing("embeddings"))
    if settings.embeddings == "bundled":
        return ok("memory", "searched by words and by meaning, with the bundled model")
    return ok("memory", f"searched by words and by meaning, with {settings.embeddings}")


def check_logins(settings: Settings) -> CheckResult:
    """Where passwords and tokens of accounts are stored."""
    try:
        key = key_of_logins(settings)
    except (MailError, OSError) as error:
        return problem("logins", str(error), "do what the message says; no data is damaged")
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


def check_folder(settings: Settings) -> Iterator[CheckResult]:
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


def _space(free: int) -> CheckResult:
    detail = f"{free // MB} MB are free"
    if free < 100 * MB:
        fix = "free some space; mail is refused when the disk is full"
        return problem("space", detail, fix)
    if free < 1024 * MB:
        return warning("space", detail, "free some space")
    return ok("space", detail)


async def check_relay_login(settings: Settings) -> CheckResult:
    """Connect to the relay and log in, without sending anything."""
    if settings.relay_url is None:
        return ok("relay", "none: mail to other servers is stored as captured (POSTROOM_RELAY_URL)")
    try:
        return ok("relay", await check_relay(settings))
    except MailError as error:
        fix = "check POSTROOM_RELAY_URL: host, port, smtp:// or smtps://, user and password"
        return problem("relay", str(error), fix)


def is_cell(settings: Settings) -> bool:
    """Whether this is one of several cells."""
    return settings.cell is not None or bool(settings.cell_relays)


async def check_cell(settings: Settings) -> CheckResult:
    """The name of this cell, and whether the others receive mail from it."""
    name = settings.cell or "this cell has no name, so new keys contain none (POSTROOM_CELL)"
    if not settings.cell_relays:
        return ok("cell", name)
    try:
        return ok("cell", f"{name}; mail to {await check_cell_relays(settings)}")
    except MailError as error:
        fix = "check POSTROOM_CELL_RELAYS, and that the other cell runs; mail for it waits"
        return problem("cell", f"{name}; {error}", fix)


async def _store(services: Services, _settings: Settings) -> CheckResult:
    await services.store.ping()
    return ok("database", "schema is current; reads and writes work")


async def check_index(services: Services, _settings: Settings) -> CheckResult:
    """Whether large mailboxes are searched with an index."""
    if is_installed("index"):
        return ok("index", "large mailboxes are searched with an index")
    count = await services.store.count_messages()
    detail = f"{count} messages are searched without an index"
    if count > MANY_MESSAGES:
        return warning("index", f"{detail}, which takes longer", missing("index"))
    return ok("index", f"{detail}, which is fast up to {MANY_MESSAGES}")


async def _blobs(services: Services, settings: Settings) -> CheckResult:
    blobs, store = services.blobs, services.store
    content = b"written by postroom doctor"
    try:
        [key] = await blobs.put([content])
        is_whole = await blobs.read(key) == content
        await blobs.discard([key], store.used_blobs)
    except (MailError, OSError) as error:
        fix = f"make {settings.data_dir / 'blobs'} writable"
        if url := settings.blobs_url:
            fix = f"check that {url} exists and that the AWS_… credentials allow writing"
        return problem("blobs", str(error), fix)
    if not is_whole:
        return problem("blobs", "the bytes read differ from those written", "check the disk")
    return ok("blobs", "reads and writes work")


async def _keys(services: Services, settings: Settings) -> CheckResult:
    keys = await services.store.keys(Slice(limit=1_000))
    if settings.api_key is None and not await services.store.has_key(OWNER_KEY_ID):
        return ok("keys", "no owner's key yet; the first `postroom serve` creates it")
    free = [key.id for key in keys.rows if _sends_unapproved(key)]
    if free:
        named = ", ".join(free[:_MAX_NAMED])
        fix = "hold risky mail of agents: `postroom key update KEY_ID --approval risky`"
        return warning("keys", f"mail of {named} is sent without approval", fix)
    return ok("keys", f"{keys.total}, including the owner's")


def _sends_unapproved(key: Key) -> bool:
    """Whether a key may send anything to anybody. The owner's is meant to."""
    return key.id != OWNER_KEY_ID and Scope.SEND in key.scopes and key.policy.is_open


async def _addresses(services: Services, _settings: Settings) -> CheckResult:
    """Addresses that only the owner may create, and who created them."""
    served = services.domains
    found = [
        (address, await _maker(services, address))
        for address in await services.store.questionable_addresses()
        if address.account_id is None or address.email.rpartition("@")[2] in served
    ]
    questionable = [(one, by) for one, by in found if one.belongs_to or by != OWNER_KEY_ID]
    if not questionable:
        names = ", ".join(one.email for one, _ in found)
        kept = f"; reserved names that the owner created: {names}" if names else ""
        return ok("addresses", f"no conflicts{kept}")
    described = "; ".join(_describe(one, by) for one, by in questionable[:_MAX_NAMED])
    more = f";{_more(len(questionable))}" if len(questionable) > _MAX_NAMED else ""
    fix = "`postroom identity delete ID` removes an alias, `postroom inbox delete ID` an inbox"
    return warning("addresses", f"{described}{more}", f"if this is not intended: {fix}")


def _describe(address: QuestionableAddress, maker: str) -> str:
    where = f"{address.identity_id} of {address.inbox_id}, created by {maker}"
    if address.belongs_to is None:
        return f"{address.email} ({where}) is a reserved name"
    return f"{address.email} ({where}) is a plus-address of another inbox's {address.belongs_to}"


async def _maker(services: Services, address: QuestionableAddress) -> str:
    """Who created it, according to the audit log."""
    inbox = await services.store.inbox(address.inbox_id, EVERYTHING)
    is_alias = inbox is None or inbox.address != address.email
    query = AuditQuery(
        visible=EVERYTHING,
        namespaces=EVERYTHING,
        action="create_alias" if is_alias else "create_inbox",
        target=address.identity_id if is_alias else address.inbox_id,
        page=Slice(limit=1),
    )
    found = (await services.store.audit(query)).rows
    return found[0].actor if found else "an unknown caller"


async def _rules(services: Services, _settings: Settings) -> CheckResult:
    problems = [*await _idle(services), *await _without_rights(services)]
    dropped = await _dropped_at_upgrades(services)
    details = [detail for detail, _ in problems] or [
        "every enabled rule has the rights for its actions"
    ]
    detail = "; ".join([*details, *([dropped] if dropped else [])])
    if not problems:
        return ok("rules", detail)
    return warning("rules", detail, "; ".join(fix for _, fix in problems))


async def _outbox(services: Services, _settings: Settings) -> CheckResult:
    state = await services.store.outbox_state()
    mails = "1 mail is waiting" if state.waiting == 1 else f"{state.waiting} mails are waiting"
    held = await services.store.outbox(OutboxQuery(EVERYTHING, status="held"))
    if held.total:
        mails += f"; {held.total} held until a person decides: `postroom outbox list --status held`"
    if state.is_paused:
        fix = "`postroom outbox resume` resumes it"
        return warning("outbox", f"paused; {mails}", fix)
    queued = await services.store.outbox(OutboxQuery(EVERYTHING, status="queued"))
    reasons = Counter(r.detail for entry in queued.rows for r in entry.recipients if r.detail)
    if not reasons:
        return ok("outbox", mails)
    why = f"{mails}: {reasons.most_common(1)[0][0]}"
    return warning("outbox", why, "see `postroom outbox list --status queued`")


async def _clock(services: Services, settings: Settings) -> CheckResult:
    now = services.clock()
    newest = max(
        (path.stat().st_mtime for path in settings.data_dir.glob("postroom.db*")), default=0.0
    )
    if now >= _RELEASED and newest <= now.timestamp() + 60:
        return ok("clock", now.strftime("%Y-%m-%d %H:%M:%S UTC"))
    detail = f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is earlier than the last write"
    return problem("clock", detail, "set the clock of this machine")


_WAITED = {"rule_job": "forwards or replies of {}", "delivery": "calls of {}"}
_DROPPED = (
    "an upgrade dropped pending jobs whose caller is unknown or does not have the rights for them: "
)


async def _idle(services: Services) -> list[tuple[str, str]]:
    """Rules for no inbox, with a fix."""
    rules = await services.store.all_rules()
    idle = [r for r in rules if isinstance(r.inboxes, Only) and r.inboxes.is_empty]
    if not idle:
        return []
    named = ", ".join(f"{rule.id} ({rule.name})" for rule in idle[:_MAX_NAMED])
    why = "their author could see no inbox, or their inboxes were removed"
    detail = f"these rules have no inbox and do not run: {named}{_more(len(idle))} ({why})"
    fix = "`postroom rule delete ID`; create it again with a key that may see its inboxes"
    return [(detail, fix)]


async def _without_rights(services: Services) -> list[tuple[str, str]]:
    """Rules whose owner lacks a right, with a fix."""
    found = await rules_without_rights(services)
    if not found:
        return []
    named = "; ".join(f"{rule.id} ({rule.name}): {why}" for rule, why in found[:_MAX_NAMED])
    fix = f"`postroom rule update {found[0][0].id} --enabled` assigns it to the owner; "
    return [(f"{named}{_more(len(found))}", f"{fix}--no-enabled disables it")]


async def _webhooks(services: Services, _settings: Settings) -> CheckResult:
    """Whether webhooks have stopped because their key lacks a right."""
    webhooks = await services.store.webhooks(EVERYTHING, Slice(limit=_EVERY))
    found = await stopped_webhooks(services, webhooks.rows)
    if not found:
        return ok("webhooks", f"{webhooks.total} in use")
    named = "; ".join(f"{name}: {why}" for name, why in list(found.items())[:_MAX_NAMED])
    ids = next(iter(found))
    fix = f"`postroom webhook renew {ids}` resumes it, `postroom webhook delete {ids}` deletes it"
    return warning("webhooks", f"{named}{_more(len(found))}", fix)


async def _dropped_at_upgrades(services: Services) -> str:
    """What an upgrade dropped, as text; empty if nothing."""
    lost = await services.store.upgrade_losses()
    if not lost:
        return ""
    named = [f"{one.lost} {_WAITED[one.kind].format(one.subject)}" for one in lost[:_MAX_NAMED]]
    return f"{_DROPPED}{', '.join(named)}{_more(len(lost))}"


def _more(count: int) -> str:
    return f" and {count - _MAX_NAMED} more" if count > _MAX_NAMED else ""


Check = Callable[["Services", "Settings"], Awaitable[CheckResult]]
INSTALLATION: dict[str, Check] = {
    "database": _store,
    "index": check_index,
    "blobs": _blobs,
    "keys": _keys,
    "addresses": _addresses,
    "rules": _rules,
    "webhooks": _webhooks,
    "outbox": _outbox,
    "clock": _clock,
}
"""The checks of an open installation, in the order in which they are shown."""
