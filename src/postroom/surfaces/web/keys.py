"""Keys: list, make, change and revoke them; the audit log of what they did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from urllib.parse import urlencode

from postroom.calls.authentication import OWNER_KEY_ID
from postroom.calls.receipts import IDENTIFIER
from postroom.errors import Conflict, InvalidInput
from postroom.model.event import AuditEntry, Via
from postroom.model.inbox import Inbox
from postroom.model.key import ALL_SCOPES, Key, Scope
from postroom.model.mail.approval import APPROVALS
from postroom.model.page import Page as Rows
from postroom.model.view import EVERYTHING, NOTHING, Everything, View
from postroom.operations.accounts import list_accounts
from postroom.operations.health import verify_audit
from postroom.operations.inboxes import list_inboxes
from postroom.operations.keys import (
    create_key,
    delete_key,
    get_key,
    list_audit,
    list_keys,
    update_key,
)
from postroom.operations.memory_search import list_namespaces
from postroom.surfaces.web.mail.writing import lines_of
from postroom.surfaces.web.overview import sees_installation
from postroom.surfaces.web.page import (
    Form,
    FormResult,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
    Values,
)

_ROWS = 100


@dataclass(frozen=True, slots=True)
class Kind:
    """A preset for a key: its scopes, and what it can do in words."""

    id: str
    title: str
    words: str
    scopes: tuple[Scope, ...]


KINDS = (
    Kind("read", "Read only", "Searches and reads mail. Changes nothing.", (Scope.READ,)),
    Kind(
        "organise",
        "Read and organise",
        "Also labels, moves, flags and deletes mail, writes drafts and memories. Sends nothing.",
        (Scope.READ, Scope.WRITE),
    ),
    Kind(
        "agent",
        "Agent that sends with approval",
        "Also sends. Risky messages are held in Outgoing until you approve them.",
        (Scope.READ, Scope.WRITE, Scope.SEND),
    ),
    Kind(
        "approve",
        "Approver",
        "Approves and rejects held mail, and can do nothing else. For a person, never an agent.",
        (Scope.APPROVE,),
    ),
)
CUSTOM = "custom"
SCOPES = {
    Scope.READ: "search and read mail and memories",
    Scope.WRITE: "change mail, drafts, rules and memories",
    Scope.SEND: "send mail",
    Scope.ADMIN: "manage keys, accounts, webhooks and the audit log",
}
APPROVAL_WORDS = {
    "never": "Its messages are sent without approval.",
    "risky": "Risky messages are held for approval: a new recipient, attachments, many "
    "external recipients, or after reading suspicious mail.",
    "always": "All messages to other servers are held for approval.",
}
EXPIRIES = {
    "": "Never",
    "7d": "In 7 days",
    "30d": "In 30 days",
    "90d": "In 90 days",
    "52w": "In a year",
}


def may_do(key: Key) -> str:
    """What a key may do, in a few words."""
    scopes = set(key.scopes)
    for kind in KINDS:
        if scopes == set(kind.scopes):
            return kind.title if kind.id != "agent" else "Reads, organises and sends"
    return "Everything except approving mail" if scopes == ALL_SCOPES else ""


def _names(view: View, names: Mapping[str, str]) -> str:
    """The limits of a key, by readable names."""
    if isinstance(view, Everything):
        return "all"
    return ", ".join(names.get(one, one) for one in view.named) or "none"


async def _inboxes(request: PageRequest) -> Rows[Inbox]:
    if not request.may(Scope.READ):
        return Rows((), 0, _ROWS, 0)
    return await request.call(list_inboxes, limit=_ROWS)


async def keys(request: PageRequest) -> Values:
    """Every key, with what it may do and see."""
    page = await request.call(list_keys, limit=_ROWS, **request.cursor)
    now = request.app.services.clock()
    inboxes = {inbox.id: inbox.address for inbox in (await _inboxes(request)).results}
    rows = [(key, _facts(key, inboxes), key.has_expired(now)) for key in page.results]
    has_others = any(key.id != OWNER_KEY_ID for key in page.results)
    return {"page": page, "rows": rows, "has_others": has_others}


def _facts(key: Key, inboxes: Mapping[str, str]) -> Values:
    return {
        "may": may_do(key),
        "inboxes": _names(_seen_beside(key.inboxes, key.accounts), inboxes),
        "accounts": _names(_seen_beside(key.accounts, key.inboxes), {}),
        "namespaces": _names(key.namespaces, {}),
        "sends": Scope.SEND in key.scopes,
        "policy": APPROVAL_WORDS[key.approval],
    }


def _seen_beside(view: View, other: View) -> View:
    """The inboxes or accounts of a key: one that is limited to some of these sees none of those."""
    return NOTHING if view == EVERYTHING != other else view


@dataclass(frozen=True, slots=True)
class Limit:
    """Something to which a key can be limited: the ones that are known, by value and name."""

    name: str
    title: str
    field: str
    rows: tuple[tuple[str, str], ...]
    hint: str = ""


async def inbox_limit(request: PageRequest) -> Limit:
    """The inboxes to which a key can be limited."""
    rows = tuple((inbox.id, inbox.address) for inbox in (await _inboxes(request)).results)
    return Limit("inboxes", "Inboxes", "inbox", rows, "and no others")


async def _limits(request: PageRequest) -> tuple[Limit, ...]:
    """To what a new key can be limited."""
    accounts: tuple[tuple[str, str], ...] = ()
    namespaces: tuple[tuple[str, str], ...] = ()
    if request.may(Scope.READ):
        found = (await request.call(list_accounts, limit=_ROWS)).results
        accounts = tuple((one.id, f"{one.id} ({one.address})") for one in found)
        rows = (await request.call(list_namespaces, limit=_ROWS)).results
        namespaces = tuple((row.name, row.name) for row in rows)
    return (
        await inbox_limit(request),
        Limit("accounts", "Accounts", "account", accounts, "with their inboxes"),
        Limit("namespaces", "Namespaces of memories", "namespace", namespaces),
    )


async def new_key(request: PageRequest) -> Values:
    """A form for a new key; what was chosen stays if it was refused."""
    limits = await _limits(request)
    return {
        **_choices(request),
        "limits": limits,
        "is_limited": any(request.form.get(f"limit_{limit.name}") for limit in limits),
        "given": request.form,
        "chosen": {
            n: set(request.posted.all(n)) for n in ("scope", "inbox", "account", "namespace")
        },
    }


def _choices(request: PageRequest) -> Values:
    """What the person can grant: no more than they have."""
    own = request.person.caller
    kinds = [kind for kind in KINDS if set(kind.scopes) <= own.scopes]
    strictest = APPROVALS.index(own.policy.approval)
    return {
        "kinds": kinds,
        "scopes": {scope: words for scope, words in SCOPES.items() if scope in own.scopes},
        "approvals": {name: APPROVAL_WORDS[name] for name in APPROVALS[strictest:]},
        "expiries": EXPIRIES,
        "custom": CUSTOM,
    }


async def make_key(request: PageRequest) -> FormResult:
    """Make a key and show it, once."""
    made = await request.call(create_key, **_arguments(request))
    return FormResult("keys/made.html", {"key": made, "facts": _facts(made, {})})


def _arguments(request: PageRequest) -> dict[str, Any]:
    """The arguments of create_key. Raises InvalidInput."""
    form = request.form
    given: dict[str, Any] = {"name": form.get("name", "").strip(), "scopes": _scopes(request)}
    for limit, field in _LIMITS.items():
        given |= limited_to(request, limit, field)
    if Scope.SEND in given["scopes"]:
        given |= _policy(form)
    if expires_at := form.get("expires_on", "").strip() or form.get("expires", ""):
        given["expires_at"] = expires_at
    return given


_LIMITS = {"inboxes": "inbox", "accounts": "account", "namespaces": "namespace"}
"""To what a key can be limited, and the field of a form that has one of them."""


def limited_to(request: PageRequest, limit: str, field: str) -> dict[str, list[str]]:
    """The limit that a form names as an argument; empty if it names none.

    If some are ticked, *Only these* is implied.
    """
    named = [*request.posted.all(field), *lines_of(request.form.get(f"more_{limit}", ""))]
    return {limit: named} if named or request.form.get(f"limit_{limit}") == "some" else {}


def _scopes(request: PageRequest) -> list[str]:
    chosen = request.form.get("kind", "")
    if chosen != CUSTOM:
        return scopes_of_kind(chosen)
    scopes = request.posted.all("scope")
    if not scopes:
        raise InvalidInput("select at least one scope, or choose another set of permissions")
    return scopes


def scopes_of_kind(chosen: str) -> list[str]:
    """The scopes of a preset. Raises InvalidInput."""
    for kind in KINDS:
        if kind.id == chosen:
            return list(kind.scopes)
    raise InvalidInput("choose the permissions of the key")


def _policy(form: Mapping[str, str]) -> dict[str, Any]:
    """The approval and the lists of recipients, if the form has them."""
    given: dict[str, Any] = {"approval": form["approval"]} if form.get("approval") else {}
    allow, deny = lines_of(form.get("allow", "")), lines_of(form.get("deny", ""))
    return given | ({"recipients": {"allow": allow, "deny": deny}} if allow or deny else {})


async def one_key(request: PageRequest) -> Values:
    """A key, with a form for what can be changed."""
    key = await request.call(get_key, key_id=request.path["key_id"])
    inboxes = {inbox.id: inbox.address for inbox in (await _inboxes(request)).results}
    stored = {
        "name": key.name,
        "approval": key.approval,
        "allow": "\n".join(key.recipients.allow),
        "deny": "\n".join(key.recipients.deny),
    }
    return {
        **_choices(request),
        "key": key,
        "facts": _facts(key, inboxes),
        "given": {**stored, **request.form},
        "is_owners": key.id == OWNER_KEY_ID,
        "has_expired": key.has_expired(request.app.services.clock()),
    }


async def change_key(request: PageRequest) -> Redirect:
    """Rename a key, or change its expiry and its policy."""
    form, key_id = request.form, request.path["key_id"]
    given: dict[str, Any] = {"name": form["name"].strip()} if form.get("name", "").strip() else {}
    if form.get("approval"):
        given["approval"] = form["approval"]
        given["recipients"] = {name: lines_of(form.get(name, "")) for name in ("allow", "deny")}
    if expires_at := form.get("expires_on", "").strip() or form.get("expires", ""):
        given["expires_at"] = expires_at
    await request.call(update_key, key_id=key_id, **given)
    return Redirect(f"/keys/{key_id}", "key changed")


KEYS = Page("/keys", "keys/list.html", keys)
NEW = Page("/keys/new", "keys/new.html", new_key, scope=Scope.ADMIN)
KEY = Page("/keys/{key_id}", "keys/key.html", one_key)
REVOKE = Page("/keys/{key_id}/revoke", "keys/revoke.html", one_key)

SECTION = Section(
    links=(Link("Keys", "/keys", Scope.ADMIN, menu=True),),
    pages=(KEYS, NEW, KEY, REVOKE),
    forms=(
        Form("/keys/new", make_key, NEW),
        Form("/keys/{key_id}", change_key, KEY),
        Form(
            "/keys/{key_id}/revoke", delete_key, REVOKE, redirect_to="/keys", notice="key revoked"
        ),
    ),
    notices={
        "key changed": "Saved.",
        "key revoked": "Key revoked.",
    },
)


FILTERS = ("actor", "via", "action", "target", "after_date", "before_date")
VIA_NAMES = {
    "rest": "REST",
    "mcp": "MCP",
    "mcp-stdio": "MCP (stdio)",
    "cli": "command line",
    "web": "web pages",
    "smtp": "SMTP",
    "rule": "rule",
    "sync": "sync",
}
_ENTRIES = 50
_PROBLEMS_SHOWN = 5
_VERIFIED = b"audit verified"
_PAGES_OF = {"msg": "/mail/{}", "drf": "/drafts/{}"}
assert set(VIA_NAMES) == set(get_args(Via))


async def audit(request: PageRequest) -> Values:
    """One page of the log, newest first."""
    asked = {name: request.query.get(name, "").strip() for name in FILTERS}
    given = {name: value for name, value in asked.items() if value}
    page, problem = None, ""
    try:
        page = await request.call(list_audit, limit=_ENTRIES, **given, **request.cursor)
    except InvalidInput as error:
        problem = str(error)
    return {
        "rows": [(entry, _link(entry)) for entry in page.results] if page else [],
        "page": page,
        "problem": problem,
        "asked": asked,
        "kept": urlencode(given),
        "via_names": VIA_NAMES,
        "may_verify": sees_installation(request),
        "verified": _verified(request),
    }


def _link(entry: AuditEntry) -> str:
    """The page of what an entry is about; empty if it has none."""
    if not IDENTIFIER.fullmatch(entry.target):
        return ""
    return _PAGES_OF.get(entry.target.partition("_")[0], "").format(entry.target)


def _verified(request: PageRequest) -> Values | None:
    """The result of a check: it is encrypted in the URL, so that no link can forge it."""
    try:
        sealed = request.ctx.cursors.unseal(request.query.get("verified", ""), _VERIFIED)
        name, entries, at = sealed.decode().split(" ")
    except InvalidInput:
        return None
    return {
        "is_complete": name == "whole",
        "entries": int(entries),
        "at": datetime.fromisoformat(at),
    }


async def verify(request: PageRequest) -> Redirect:
    """Verify the log; what is wrong is shown as an error. Raises Forbidden, Conflict."""
    found = await request.call(verify_audit)
    if found.problems:
        problems = "; ".join(found.problems[:_PROBLEMS_SHOWN])
        raise Conflict(f"The audit log was changed outside Postroom. {problems}")
    now = request.app.services.clock().replace(microsecond=0)
    text = f"{'whole' if found.is_complete else 'part'} {found.entries} {now.isoformat()}"
    sealed = request.ctx.cursors.seal(text.encode(), _VERIFIED)
    return Redirect(f"/audit?{urlencode({'verified': sealed})}")


AUDIT = Page("/audit", "activity/audit.html", audit)

AUDIT_SECTION = Section(
    links=(Link("Audit", "/audit", Scope.ADMIN, menu=True),),
    pages=(AUDIT,),
    forms=(Form("/audit/verify", verify, AUDIT),),
)
