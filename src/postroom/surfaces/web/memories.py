"""Memories: namespaces, lists and searches, one memory with its versions, changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from postroom.errors import Conflict, FeatureDisabled, InvalidInput, NotFound
from postroom.model.key import Scope
from postroom.model.memory import DEFAULT_NAMESPACE, Memory, MemoryHit, MemoryRow, summary_of
from postroom.model.memory import Link as MemoryLink
from postroom.model.page import Page as Rows
from postroom.operations.keys import list_audit
from postroom.operations.memories import (
    edit_memory,
    memory_add,
    memory_delete,
    memory_get,
    memory_update,
)
from postroom.operations.memory_search import (
    list_namespaces,
    memory_fulltext_search,
    memory_list,
    memory_search,
)
from postroom.surfaces.web.keys import VIA_NAMES
from postroom.surfaces.web.mail.writing import lines_of
from postroom.surfaces.web.page import Form, Link, Page, PageRequest, Redirect, Section, Values

_ROWS = 50
_NAMESPACES = 100
_MAX_CHARS = 100_000
_WRITES = 10
TRUST = {
    "user": ("yours", "You confirmed it. Agents can rely on it."),
    "agent": ("by an agent", "Written by an agent, not confirmed by you."),
    "mail": ("from mail", "It repeats what a message says and is not confirmed."),
}
"""What is said of a memory by its trust."""

_WRITING = ("memory_add", "memory_update", "edit_memory", "remember")


def memory_url(namespace: str, key: str, page: str = "read") -> str:
    """The page of a memory; its key may have any characters."""
    query = urlencode({"namespace": namespace, "key": key}, quote_via=quote, safe="")
    return f"/memories/{page}?{query}"


def _namespace(request: PageRequest) -> str:
    given = request.form.get("namespace") or request.query.get("namespace") or ""
    return given.strip() or DEFAULT_NAMESPACE


async def memories(request: PageRequest) -> Values:
    """The memories of a namespace, or those that a search finds."""
    namespace = _namespace(request)
    spaces = (await request.call(list_namespaces, limit=_NAMESPACES)).results
    if "namespace" not in request.query and spaces:
        names = [space.name for space in spaces]
        namespace = namespace if namespace in names else names[0]
    filters = {
        name: request.query[name].strip()
        for name in ("q", "how", "tag", "linked_to")
        if request.query.get(name, "").strip()
    }
    return {
        **await _found(request, namespace, filters),
        "namespace": namespace,
        "spaces": spaces,
        "filters": filters,
        "place": {"namespace": namespace, **filters},
        "trust": TRUST,
        "memory_url": memory_url,
        "list_url": list_url,
    }


def list_url(place: Mapping[str, str], **more: str) -> str:
    """The page of a list or a search."""
    given = {name: value for name, value in {**place, **more}.items() if value}
    return "/memories?" + urlencode(given, quote_via=quote, safe="")


async def _found(request: PageRequest, namespace: str, filters: Mapping[str, str]) -> Values:
    """A page of memories; what is wrong with a search is said above it."""
    given: dict[str, Any] = {"namespace": namespace, "limit": _ROWS}
    given |= {"tags": [filters["tag"]]} if "tag" in filters else {}
    given |= {"linked_to": filters["linked_to"]} if "linked_to" in filters else {}
    given |= request.cursor
    try:
        return {"page": await _search(request, filters, given)}
    except (InvalidInput, FeatureDisabled) as error:
        nothing: Rows[MemoryRow] = Rows((), 0, _ROWS, 0)
        return {"page": nothing, "error": str(error)}


async def _search(
    request: PageRequest, filters: Mapping[str, str], given: dict[str, Any]
) -> Rows[MemoryRow] | Rows[MemoryHit]:
    if "q" not in filters:
        return await request.call(memory_list, **given)
    if filters.get("how") == "words":
        return await request.call(
            memory_fulltext_search, keywords=filters["q"], operator="AND", **given
        )
    return await request.call(memory_search, query=filters["q"], **given)


async def _memory(request: PageRequest) -> Memory:
    """The memory of the query, or of the form that was sent."""
    key = request.form.get("key") or request.query.get("key") or ""
    return await request.call(
        memory_get,
        namespace=_namespace(request),
        key=key,
        include_history=True,
        max_chars=_MAX_CHARS,
    )


async def read(request: PageRequest) -> Values:
    """A memory, its older versions, and who wrote it."""
    memory = await _memory(request)
    return {
        "memory": memory,
        "trust": TRUST,
        "targets": [(link, _target_url(memory.namespace, link)) for link in memory.links],
        "writes": await _writes(request, memory),
        "via_names": VIA_NAMES,
        "memory_url": memory_url,
        "list_url": list_url,
        "may_confirm": request.person.caller.is_owner and memory.trust != "user",
    }


def _target_url(namespace: str, link: MemoryLink) -> str:
    """The page of what a memory is linked to."""
    to = quote(link.to, safe="")
    if link.is_message:
        return f"/mail/{to}"
    if link.is_mail:
        return f"/mail?mailbox=*&thread={to}"
    if link.is_address:
        return f"/mail?mailbox=*&from={to}"
    return memory_url(namespace, link.to)


async def _writes(request: PageRequest, memory: Memory) -> list[Values]:
    """The authors of a memory, newest first, from the audit log; empty without access to it."""
    if not request.may(Scope.ADMIN):
        return []
    page = await request.call(list_audit, target=memory.key, limit=_WRITES)
    return [
        {"actor": entry.actor, "via": entry.via, "at": entry.at}
        for entry in page.results
        if entry.action in _WRITING and entry.details.get("namespace") == memory.namespace
    ]


def _fields(form: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a memory in a form, as arguments of the operations."""
    return {
        "key": form.get("key", "").strip(),
        "namespace": form.get("namespace", "").strip() or DEFAULT_NAMESPACE,
        "text": form.get("text", ""),
        "summary": form.get("summary", "").strip(),
        "tags": [tag.strip() for tag in form.get("tags", "").split(",") if tag.strip()],
        "links": [_link(line) for line in lines_of(form.get("links", ""))],
        "expires_at": form.get("expires_at", "").strip() or "never",
    }


def _link(line: str) -> dict[str, Any]:
    """A link from a line such as `about ana@example.com`. Raises InvalidInput."""
    kind, _, to = line.strip().partition(" ")
    if not to.strip():
        raise InvalidInput(f"links: write a kind and a target in each line, as in: about {kind}")
    return {"type": kind, "to": to.strip()}


async def new(request: PageRequest) -> Values:
    """A form for a new memory."""
    given = {"namespace": _namespace(request), "key": request.query.get("key", ""), **request.form}
    return {"given": given}


async def add(request: PageRequest) -> Redirect:
    """Add a memory, unless there is one under its key."""
    fields = _fields(request.form)
    if fields["expires_at"] == "never":
        fields.pop("expires_at")  # one that comes from mail then expires automatically
    with suppress(NotFound):
        await request.call(memory_get, namespace=fields["namespace"], key=fields["key"])
        raise Conflict(f"the memory {fields['key']} already exists; open it to change it")
    added = await request.call(memory_add, **fields)
    return Redirect(memory_url(added.namespace, added.key), "remembered")


async def edit(request: PageRequest) -> Values:
    """A form for a memory. After a conflict it has what was typed, beside what is stored now."""
    memory = await _memory(request)
    stored = {
        "text": memory.text,
        "summary": "" if memory.summary == summary_of(memory.text) else memory.summary,
        "tags": ", ".join(memory.tags),
        "links": "\n".join(f"{link.type} {link.to}" for link in memory.links),
        "expires_at": f"{memory.expires_at:%Y-%m-%d}" if memory.expires_at else "",
    }
    has_changed = request.form.get("version", str(memory.version)) != str(memory.version)
    return {
        "memory": memory,
        "given": {**stored, **request.form},
        "has_changed": has_changed,
        "memory_url": memory_url,
    }


async def save(request: PageRequest) -> Redirect:
    """Save a memory if nobody has changed it since the form was made."""
    before, fields = await _memory(request), _fields(request.form)
    if fields["links"] == [{"type": link.type, "to": link.to} for link in before.links]:
        fields.pop("links")  # weights stay as they are
    if before.expires_at and fields["expires_at"] == f"{before.expires_at:%Y-%m-%d}":
        fields.pop("expires_at")
    saved = await request.call(edit_memory, version=request.form.get("version", "0"), **fields)
    return Redirect(memory_url(saved.namespace, saved.key), "memory saved")


async def confirm(request: PageRequest) -> Redirect:
    """Confirm a memory."""
    namespace, key = _namespace(request), request.form.get("key", "")
    await request.call(memory_update, namespace=namespace, key=key, trust="user")
    return Redirect(memory_url(namespace, key), "confirmed")


async def delete(request: PageRequest) -> Redirect:
    """Delete a memory with its older versions."""
    namespace = _namespace(request)
    await request.call(memory_delete, namespace=namespace, key=request.form.get("key", ""))
    return Redirect(list_url({"namespace": namespace}), "forgotten")


LIST = Page("/memories", "memories/list.html", memories)
READ = Page("/memories/read", "memories/memory.html", read)
NEW = Page("/memories/new", "memories/new.html", new, scope=Scope.WRITE)
EDIT = Page("/memories/edit", "memories/edit.html", edit, scope=Scope.WRITE)
DELETE = Page("/memories/delete", "memories/delete.html", read, scope=Scope.WRITE)

SECTION = Section(
    links=(Link("Memories", "/memories"),),
    pages=(LIST, READ, NEW, EDIT, DELETE),
    forms=(
        Form("/memories/new", add, NEW),
        Form("/memories/edit", save, EDIT),
        Form("/memories/confirm", confirm, READ),
        Form("/memories/delete", delete, DELETE),
    ),
    notices={
        "remembered": "Saved. Agents with access to this namespace can find it.",
        "memory saved": "Saved. The previous version is kept.",
        "confirmed": "Confirmed.",
        "forgotten": "Memory deleted, with its older versions.",
    },
)
