"""Connect: lines to copy for each known client, a key for it, and a call to test a key."""

from __future__ import annotations

import json
from typing import Any

from postroom.errors import InvalidInput, MailError
from postroom.model.key import Caller, Scope
from postroom.operations.keys import create_key
from postroom.surfaces.client_settings import KEY_PLACEHOLDER, Client, clients_of, stdio_server
from postroom.surfaces.web.page import Form, Link, Page, Section, Shown, Values, Visit

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
