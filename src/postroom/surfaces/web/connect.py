"""Connecting clients: lines to copy, a key and a test of it; the consent page of the OAuth server.

Nothing leads to the client before the person has pressed a button or followed a link on the consent
page, also if the request is wrong: otherwise a link to this server would be one to any page
(RFC 9700 §4.11).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from postroom.errors import InvalidInput, MailError
from postroom.model.key import Caller, Scope
from postroom.operations.keys import create_key
from postroom.operations.oauth_grants import AccessRequest, get_access_request, grant_access
from postroom.surfaces.client_settings import KEY_PLACEHOLDER, Client, clients_of, stdio_server
from postroom.surfaces.web.keys import (
    APPROVAL_WORDS,
    EXPIRIES,
    KINDS,
    inbox_limit,
    limited_to,
    scopes_of_kind,
)
from postroom.surfaces.web.page import Form, Link, Page, Redirect, Section, Shown, Values, Visit

_TESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mailboxes": ("List the mailboxes", "list_mailboxes", {}),
    "newest": ("Find the newest mail", "find_mail", {"limit": 3}),
    "inboxes": ("List the inboxes", "list_inboxes", {"limit": 5}),
}
"""Calls that change nothing: what is said of each, the tool, and its arguments."""

_SCOPES = (Scope.READ, Scope.WRITE, Scope.SEND)
_MAX_CHARS = 4_000


def _clients(visit: Visit, key: str) -> tuple[Client, ...]:
    """The clients; only the owner is told where the data are."""
    settings = visit.app.settings
    is_in_folder = settings.database_url is None and settings.blobs_url is None
    has_stdio = is_in_folder and visit.person.caller.is_owner
    stdio = stdio_server(settings.data_dir) if has_stdio else None
    return clients_of(visit.base_url, key, stdio)


async def connect(visit: Visit) -> Values:
    """The lines of one client, with a placeholder for the key."""
    return _values(visit, KEY_PLACEHOLDER)


def _values(visit: Visit, key: str) -> Values:
    clients = _clients(visit, key)
    chosen = visit.form.get("client") or visit.query.get("client", "")
    client = next((one for one in clients if one.id == chosen), clients[0])
    return {
        "clients": clients,
        "client": client,
        "made": None,
        "url": visit.base_url,
        "toolsets": visit.app.settings.toolsets,
        "tests": {name: words for name, (words, _, _) in _TESTS.items()},
        "chosen_test": visit.form.get("test", "mailboxes"),
        "answer": None,
        "may_make": visit.may(Scope.ADMIN),
        "scopes": [scope for scope in _SCOPES if visit.may(scope)],
    }


async def make_key(visit: Visit) -> Shown:
    """Make a key for a client and show its lines with it, once."""
    values = _values(visit, KEY_PLACEHOLDER)
    name = values["client"].title
    made = await visit.call(create_key, name=name, scopes=values["scopes"])
    return Shown("connect/connect.html", {**_values(visit, made.key or ""), "made": made})


async def test_call(visit: Visit) -> Shown:
    """Call a tool as the agent with a key would, and show what it answers."""
    words, tool, arguments = _TESTS.get(visit.form.get("test", ""), ("", "", {}))
    if not tool:
        raise InvalidInput("choose a tool call")
    values = _values(visit, KEY_PLACEHOLDER)
    try:
        ctx = visit.app.context(await _caller(visit), "web")
        text = await visit.tool_text(ctx, tool, arguments)
        answer = {"text": _indented(text), "is_error": _is_error(text), "tool": tool}
    except MailError as error:
        answer = {"text": str(error), "is_error": True, "tool": tool}
    return Shown("connect/connect.html", {**values, "answer": {**answer, "words": words}})


async def _caller(visit: Visit) -> Caller:
    """The caller with the given key; without one, the person themselves."""
    key = visit.form.get("key", "").strip()
    if not key:
        return visit.person.caller
    if key == KEY_PLACEHOLDER:
        raise InvalidInput(f"{KEY_PLACEHOLDER} stands for your key; paste the key itself")
    return await visit.guard(key, lambda: visit.app.authenticate(key))


def _is_error(text: str) -> bool:
    try:
        return "error" in json.loads(text)
    except (ValueError, TypeError):
        return False


def _indented(text: str) -> str:
    """A JSON answer for people to read; a long one is cut."""
    try:
        shown = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except ValueError:
        shown = text
    return shown if len(shown) <= _MAX_CHARS else f"{shown[:_MAX_CHARS]}\n…"


CONNECT = Page("/connect", "connect/connect.html", connect)

SECTION = Section(
    links=(Link("Connect", "/connect", menu=True),),
    pages=(CONNECT,),
    forms=(
        Form("/connect", make_key, CONNECT),
        Form("/connect/test", test_call, CONNECT),
    ),
)


_PARAMETERS = (
    *("client_id", "redirect_uri", "response_type", "code_challenge", "code_challenge_method"),
    *("resource", "scope"),
)
_APPROVALS = ("always", "risky")
_KINDS = tuple(
    kind
    if Scope.SEND not in kind.scopes
    else replace(
        kind,
        title="Read, organise and send with approval",
        words="Also sends. Messages to other servers are held until you approve them.",
    )
    for kind in KINDS
)


def _request(visit: Visit) -> dict[str, str]:
    """The request of the client, which is in the query also when a form is sent."""
    given = {name: visit.query[name] for name in _PARAMETERS if visit.query.get(name)}
    if "client_id" not in given:
        raise InvalidInput(
            "client_id: a program leads you here when it asks for access to this Postroom; this "
            "link names none"
        )
    return {"issuer": visit.base_url, **given}


def _answer_url(visit: Visit, redirect_uri: str, **answer: str) -> str:
    """Where the client gets its answer, with its state and our name (RFC 9207)."""
    state = {"state": visit.query["state"]} if "state" in visit.query else {}
    query = urlencode({**answer, **state, "iss": visit.base_url}, quote_via=quote)
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{query}"


def _form_target(redirect_uri: str) -> str:
    """The source expression of a redirect; Chromium follows no other after a form (CSP 3)."""
    url = urlsplit(redirect_uri)
    is_named = url.scheme in ("http", "https") and not url.netloc.startswith("[")
    return f"{url.scheme}://{url.netloc}" if is_named else f"{url.scheme}:"


async def consent(visit: Visit) -> Values:
    """What a client asks for, with the choices of the person."""
    asked = await visit.call(get_access_request, **_request(visit))
    code, problem = asked.error or ("", "")
    allowed = {*asked.scopes} & visit.person.caller.scopes
    return {
        "asked": asked,
        "place": _place(asked),
        "problem": problem,
        "back": _answer_url(visit, asked.redirect_uri, error=code, error_description=problem),
        "query": urlencode(dict(visit.query)),
        "kinds": [kind for kind in _KINDS if set(kind.scopes) <= allowed],
        "limit": await inbox_limit(visit),
        "approvals": {name: APPROVAL_WORDS[name] for name in _APPROVALS},
        "expiries": EXPIRIES,
        "given": visit.form,
        "chosen": {"inbox": set(visit.posted.all("inbox"))},
        "form_target": _form_target(asked.redirect_uri),
    }


def _place(asked: AccessRequest) -> str:
    """Where the answer goes, in words."""
    url = urlsplit(asked.redirect_uri)
    if url.scheme == "https":
        return asked.host
    if url.scheme == "http":
        return f"a program on this computer ({asked.host})"
    return f"a program on this computer that opens {asked.host} links"


async def decide(visit: Visit) -> Redirect:
    """Give the client what was chosen, or nothing, and lead back to it."""
    given = _request(visit)
    asked = await visit.call(get_access_request, **given)
    if visit.form.get("decision") != "allow":
        refused = {"error": "access_denied", "error_description": "The person said no."}
        return Redirect(_answer_url(visit, asked.redirect_uri, **refused))
    grant = await visit.call(grant_access, **given, **_choices(visit))
    return Redirect(_answer_url(visit, asked.redirect_uri, code=grant.code))


def _choices(visit: Visit) -> dict[str, Any]:
    form = visit.form
    chosen: dict[str, Any] = {"scopes": scopes_of_kind(form.get("kind", ""))}
    chosen |= limited_to(visit, "inboxes", "inbox")
    return chosen | {name: form[name] for name in ("approval", "expires_at") if form.get(name)}


AUTHORIZE = Page("/authorize", "authorize.html", consent)

CONSENT_SECTION = Section(
    pages=(AUTHORIZE,),
    forms=(Form("/authorize", decide, AUTHORIZE),),
)
