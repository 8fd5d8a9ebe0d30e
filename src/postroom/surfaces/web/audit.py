"""The audit log: who did what, by which way and when; and whether it is whole."""

from __future__ import annotations

from datetime import datetime
from typing import get_args
from urllib.parse import urlencode

from postroom.calls.receipts import IDENTIFIER
from postroom.errors import Conflict, InvalidInput
from postroom.model.event import AuditEntry, Via
from postroom.model.key import Scope
from postroom.operations.health import verify_audit
from postroom.operations.keys import list_audit
from postroom.surfaces.web.attention import sees_installation
from postroom.surfaces.web.page import Form, Link, Page, Redirect, Section, Values, Visit

FILTERS = ("actor", "via", "action", "target", "after_date", "before_date")
WAYS = {
    "rest": "REST",
    "mcp": "MCP",
    "mcp-stdio": "MCP (stdio)",
    "cli": "command line",
    "web": "web pages",
    "smtp": "SMTP",
    "rule": "rule",
    "sync": "sync",
}
_ROWS = 50
_PROBLEMS_SHOWN = 5
_VERIFIED = b"audit verified"
_PAGES_OF = {"msg": "/mail/{}", "drf": "/drafts/{}"}
assert set(WAYS) == set(get_args(Via))


async def audit(visit: Visit) -> Values:
    """One page of the log, newest first."""
    asked = {name: visit.query.get(name, "").strip() for name in FILTERS}
    given = {name: value for name, value in asked.items() if value}
    cursor = visit.query.get("cursor", "")
    page, problem = None, ""
    try:
        place = {"cursor": cursor} if cursor else {}
        page = await visit.call(list_audit, limit=_ROWS, **given, **place)
    except InvalidInput as error:
        problem = str(error)
    return {
        "rows": [(entry, _link(entry)) for entry in page.results] if page else [],
        "page": page,
        "problem": problem,
        "asked": asked,
        "kept": urlencode(given),
        "ways": WAYS,
        "may_verify": sees_installation(visit),
        "verified": _verified(visit),
    }


def _link(entry: AuditEntry) -> str:
    """The page of what an entry is about; empty if it has none."""
    if not IDENTIFIER.fullmatch(entry.target):
        return ""
    return _PAGES_OF.get(entry.target.partition("_")[0], "").format(entry.target)


def _verified(visit: Visit) -> Values | None:
    """What a check found: the address carries it, sealed, so that no link can claim it."""
    try:
        sealed = visit.ctx.cursors.unseal(visit.query.get("verified", ""), _VERIFIED)
        name, entries, at = sealed.decode().split(" ")
    except InvalidInput:
        return None
    return {
        "is_complete": name == "whole",
        "entries": int(entries),
        "at": datetime.fromisoformat(at),
    }


async def verify(visit: Visit) -> Redirect:
    """Verify the log; what is wrong is shown as an error. Raises Forbidden, Conflict."""
    found = await visit.call(verify_audit)
    if found.problems:
        problems = "; ".join(found.problems[:_PROBLEMS_SHOWN])
        raise Conflict(f"The audit log was changed outside Postroom. {problems}")
    now = visit.app.services.clock().replace(microsecond=0)
    text = f"{'whole' if found.is_complete else 'part'} {found.entries} {now.isoformat()}"
    sealed = visit.ctx.cursors.seal(text.encode(), _VERIFIED)
    return Redirect(f"/audit?{urlencode({'verified': sealed})}")


AUDIT = Page("/audit", "activity/audit.html", audit)

SECTION = Section(
    links=(Link("Audit", "/audit", Scope.ADMIN, menu=True),),
    pages=(AUDIT,),
    forms=(Form("/audit/verify", verify, AUDIT),),
)
