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

_TESTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mailboxes": ("List the mailboxes", "list_mailboxes", {}),
    "newest": ("Find the newest mail", "find_mail", {"limit": 3}),
    "inboxes": ("List the inboxes", "list_inboxes", {"limit": 5}),
}
"""Calls that change nothing: what is said of each, the tool, and its arguments."""

_SCOPES = (Scope.READ, Scope.WRITE, Scope.SEND)
_MAX_CHARS = 4_000


def _clients(request: PageRequest, key: str) -> tuple[Client, ...]:
    """The clients; only the owner sees the path of the data folder."""
    settings = request.app.settings
    is_in_folder = settings.database_url is None and settings.blobs_url is None
    has_stdio = is_in_folder and request.person.caller.is_owner
    stdio = stdio_server(settings.data_dir) if has_stdio else None
    return clients_of(request.base_url, key, stdio)


async def connect(request: PageRequest, key: str = KEY_PLACEHOLDER) -> Values:
    """The lines of one client, with its key or a placeholder for it."""
    clients = _clients(request, key)
    chosen = request.form.get("client") or request.query.get("client", "")
    client = next((one for one in clients if one.id == chosen), clients[0])
    return {
        "clients": clients,
        "client": client,
        "made": None,
        "toolsets": request.app.settings.toolsets,
        "tests": {name: words for name, (words, _, _) in _TESTS.items()},
        "chosen_test": request.form.get("test", "mailboxes"),
        "answer": None,
        "may_make": request.may(Scope.ADMIN),
        "scopes": [scope for scope in _SCOPES if request.may(scope)],
    }


async def make_key(request: PageRequest) -> FormResult:
    """Make a key for a client and show its lines with it, once."""
    values = await connect(request)
    name = values["client"].title
    made = await request.call(create_key, name=name, scopes=values["scopes"])
    shown = await connect(request, made.key or "")
    return FormResult("connect/connect.html", {**shown, "made": made})


async def test_call(request: PageRequest) -> FormResult:
    """Call a tool as the agent with a key would, and show the result."""
    words, tool, arguments = _TESTS.get(request.form.get("test", ""), ("", "", {}))
    if not tool:
        raise InvalidInput("choose a tool call")
    values = await connect(request)
    try:
        ctx = request.app.context(await _caller(request), "web")
        text = await request.tool_text(ctx, tool, arguments)
        answer = {"text": _indented(text), "is_error": _is_error(text), "tool": tool}
    except MailError as error:
        answer = {"text": str(error), "is_error": True, "tool": tool}
    return FormResult("connect/connect.html", {**values, "answer": {**answer, "words": words}})


async def _caller(request: PageRequest) -> Caller:
    """The caller with the given key; without one, the person themselves."""
    key = request.form.get("key", "").strip()
    if not key:
        return request.person.caller
    if key == KEY_PLACEHOLDER:
        raise InvalidInput(f"{KEY_PLACEHOLDER} stands for your key; paste the key itself")
    return await request.throttle(key, lambda: request.app.authenticate(key))


def _is_error(text: str) -> bool:
    try:
        return "error" in json.loads(text)
    except (ValueError, TypeError):
        return False


def _indented(text: str) -> str:
    """A JSON response in readable form, truncated if it is long."""
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


def _oauth_request(request: PageRequest) -> dict[str, str]:
    """The request of the client, which is in the query also when a form is sent."""
    given = {name: request.query[name] for name in _PARAMETERS if request.query.get(name)}
    if "client_id" not in given:
        raise InvalidInput(
            "client_id: a program opens this page to request access to Postroom; this link names "
            "no program"
        )
    return {"issuer": request.base_url, **given}


def _answer_url(request: PageRequest, redirect_uri: str, **answer: str) -> str:
    """The redirect to the client, with its state and our issuer (RFC 9207)."""
    state = {"state": request.query["state"]} if "state" in request.query else {}
    query = urlencode({**answer, **state, "iss": request.base_url}, quote_via=quote)
    return f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{query}"


def _form_target(redirect_uri: str) -> str:
    """The source expression of a redirect; Chromium follows no other after a form (CSP 3)."""
    url = urlsplit(redirect_uri)
    is_named = url.scheme in ("http", "https") and not url.netloc.startswith("[")
    return f"{url.scheme}://{url.netloc}" if is_named else f"{url.scheme}:"


async def consent(request: PageRequest) -> Values:
    """What a client asks for, with the choices of the person."""
    asked = await request.call(get_access_request, **_oauth_request(request))
    code, problem = asked.error or ("", "")
    allowed = {*asked.scopes} & request.person.caller.scopes
    return {
        "asked": asked,
        "target": _target_words(asked),
        "problem": problem,
        "back": _answer_url(request, asked.redirect_uri, error=code, error_description=problem),
        "query": urlencode(dict(request.query)),
        "kinds": [kind for kind in _KINDS if set(kind.scopes) <= allowed],
        "limit": await inbox_limit(request),
        "approvals": {name: APPROVAL_WORDS[name] for name in _APPROVALS},
        "expiries": EXPIRIES,
        "given": request.form,
        "chosen": {"inbox": set(request.posted.all("inbox"))},
        "form_target": _form_target(asked.redirect_uri),
    }


def _target_words(asked: AccessRequest) -> str:
    """The target of the redirect, in words."""
    url = urlsplit(asked.redirect_uri)
    if url.scheme == "https":
        return asked.host
    if url.scheme == "http":
        return f"a program on this computer ({asked.host})"
    return f"a program on this computer that opens {asked.host} links"


async def decide(request: PageRequest) -> Redirect:
    """Grant the chosen access, or none, and redirect to the client."""
    given = _oauth_request(request)
    asked = await request.call(get_access_request, **given)
    if request.form.get("decision") != "allow":
        refused = {"error": "access_denied", "error_description": "The user denied access."}
        return Redirect(_answer_url(request, asked.redirect_uri, **refused))
    grant = await request.call(grant_access, **given, **_choices(request))
    return Redirect(_answer_url(request, asked.redirect_uri, code=grant.code))


def _choices(request: PageRequest) -> dict[str, Any]:
    form = request.form
    chosen: dict[str, Any] = {"scopes": scopes_of_kind(form.get("kind", ""))}
    chosen |= limited_to(request, "inboxes", "inbox")
    return chosen | {name: form[name] for name in ("approval", "expires_at") if form.get(name)}


AUTHORIZE = Page("/authorize", "authorize.html", consent)

CONSENT_SECTION = Section(
    pages=(AUTHORIZE,),
    forms=(Form("/authorize", decide, AUTHORIZE),),
)
