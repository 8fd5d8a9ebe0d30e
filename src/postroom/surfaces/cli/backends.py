"""Where a command finds its operations (the data folder or a server), and short ids."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from postroom.calls.operation import Operation, call
from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.model.event import EventStream
from postroom.model.key import OWNER, Scope
from postroom.model.mail.message import Download
from postroom.surfaces.cli.command_table import operation_at
from postroom.surfaces.cli.tables import KINDS, MIXED, is_id
from postroom.surfaces.to_json import response_body, to_json, with_clean_text

if TYPE_CHECKING:
    from postroom.app import App
    from postroom.surfaces.rest.client import Client


Body = dict[str, Any]
Events = AsyncIterator[Body | None]
"""Events as they happen; None keeps a quiet stream alive."""

Answer = Body | Download | Events


class Backend(Protocol):
    """Runs operations, with the same results on each backend."""

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        """Call an operation. Raises MailError."""
        ...

    async def body(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Body:
        """The result of an operation that returns JSON."""
        answered = await self.call(operation, arguments)
        assert isinstance(answered, dict)
        return answered


class Local(Backend):
    """The data folder, with the owner's rights."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        sends = operation.scope in (Scope.SEND, Scope.APPROVE)
        async with self._app.sending() if sends else nullcontext():
            result = await call(self._app.context(OWNER), operation, arguments)
        if isinstance(result, Download):
            return result
        if isinstance(result, EventStream):
            return _bodies(result)
        return with_clean_text(response_body(operation, result))


async def _bodies(stream: EventStream) -> Events:
    async for event in stream.events:
        yield None if event is None else with_clean_text({"untrusted": True, **to_json(event)})


class Remote(Backend):
    """A server, with the rights of a key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, operation: Operation[Any, Any], arguments: Mapping[str, Any]) -> Answer:
        answered = await self._client.call(operation, arguments)
        return with_clean_text(answered) if isinstance(answered, dict) else answered


LISTS = {
    "dlv": "webhooks.list_deliveries",
    "drf": "outgoing.drafts.list_drafts",
    "idn": "outgoing.identities.list_identities",
    "key": "keys.list_keys",
    "rul": "rules.list_rules",
    "whk": "webhooks.list_webhooks",
}
"""Kinds of which there are few; the others are found by `find_ids`."""

_SHORT = re.compile(r"(?:([a-z]{3})_)?([0-9a-z]{3,26})")
_MAX_PAGES = 20


async def with_whole_ids(backend: Backend, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with whole ids in place of short ones.

    What is not known stays as it is, so that the operation says what is wrong.

    Raises:
        InvalidInput: a short id could be one of several.
    """
    whole = dict(arguments)
    for name, value in arguments.items():
        kind = KINDS.get(name)
        if name == "attachments":
            whole[name] = [await _with_attachment(backend, file) for file in value]
        elif isinstance(value, str) and (kind or name in MIXED):
            whole[name] = await _whole_id(backend, kind, value, whole)
        elif isinstance(value, list) and kind:
            whole[name] = [await _whole_id(backend, kind, one, whole) for one in value]
    return whole


async def _with_attachment(backend: Backend, file: dict[str, str]) -> dict[str, str]:
    if "attachment_id" not in file:
        return file
    return {"attachment_id": await _whole_id(backend, "att", file["attachment_id"], {})}


async def _whole_id(
    backend: Backend, kind: str | None, written: str, others: dict[str, Any]
) -> str:
    match = _SHORT.fullmatch(written)
    if match is None or is_id(written) or (kind and match[1] not in (None, kind)):
        return written
    kind = kind or match[1]
    if kind is None:
        return written
    try:
        found = await _ids(backend, f"{kind}_{match[2]}", others)
    except (Forbidden, NotFound):  # without the scope to read, only a whole id works
        return written
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise InvalidInput(f"{written} is ambiguous: {some}; type more characters of it")
    return found[0] if found else written


async def _ids(backend: Backend, prefix: str, others: dict[str, Any]) -> list[str]:
    kind = prefix[:3]
    if kind in ("inb", "msg", "thr", "att"):
        from postroom.operations.inboxes import find_ids

        return list((await backend.body(find_ids, {"prefix": prefix}))["ids"])
    if kind not in LISTS:
        return []
    if kind == "dlv" and "webhook_id" not in others:
        return []
    of = {"webhook_id": others["webhook_id"]} if kind == "dlv" else {}
    return [row["id"] for row in await rows_of(backend, kind, of) if row["id"].startswith(prefix)]


async def rows_of(backend: Backend, kind: str, of: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of a kind that has few."""
    operation = operation_at(LISTS[kind])
    rows: list[dict[str, Any]] = []
    arguments: dict[str, Any] = {**of, "limit": 100}
    for _page in range(_MAX_PAGES):
        body = await backend.body(operation, arguments)
        rows += body["results"]
        if "next_cursor" not in body:
            break
        arguments["cursor"] = body["next_cursor"]
    return rows
