"""Memories in short: remember, recall, forget."""

from __future__ import annotations

from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Limit, Request, argument
from postroom.errors import InvalidInput
from postroom.model.agent import MemoryLine, MemoryOutcome, RecallResult
from postroom.model.key import Scope
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.operations.mail.messages import fair_max_length
from postroom.operations.memories import (
    TEXT,
    Expiry,
    Key,
    Links,
    MemoryAdd,
    MemoryDelete,
    MemoryGet,
    Namespace,
    Tags,
    Text,
    memory_add,
    memory_delete,
    memory_get,
)
from postroom.operations.memory_search import MemoryList, MemorySearch, memory_list, memory_search


class Remember(Request):
    """Remember something under a key; an existing key gets a new version."""

    key: Key
    text: Annotated[Text, TEXT]
    tags: Annotated[Tags | None, argument("Tags.", ["billing"])] = None
    links: Links = None
    expires_at: Annotated[Expiry, argument("When it expires.", "2027-01-31")] = None
    namespace: Namespace = DEFAULT_NAMESPACE


@operation(Scope.WRITE)
async def remember(ctx: RequestContext, request: Remember) -> MemoryOutcome:
    arguments = {name: getattr(request, name) for name in request.model_fields_set}
    memory = await memory_add(ctx, MemoryAdd(**arguments))
    similar = ", ".join(other.key for other in memory.similar or ())
    note = f"similar memories: {similar}; forget what is outdated" if similar else None
    return MemoryOutcome(memory.key, memory.status, note=note)


class Recall(Request):
    """Recall memories by a question, or by key; without either, the newest."""

    q: Annotated[
        str | None,
        argument("The question.", "how is Ana billed?", min_length=1, max_length=1000),
    ] = None
    key: Annotated[Key | None, argument("Or the key of one.", "ana/invoices")] = None
    limit: Limit = 5
    offset: Annotated[
        int, argument("Continue the text of a key from next_offset.", 12000, ge=0, le=2**53)
    ] = 0
    namespace: Namespace = DEFAULT_NAMESPACE


_CHARS = 30_000
"""The length of all texts of an answer together: 7,500 tokens."""

_CUT = "next_offset: the text goes on; pass it as offset, with the key"


@operation(Scope.READ)
async def recall(ctx: RequestContext, request: Recall) -> RecallResult:
    if request.offset and request.key is None:
        raise InvalidInput("offset: continue one text at a time; give its key")
    namespace, note = request.namespace, None
    if request.key is not None:
        keys = [request.key]
    elif request.q is not None:
        asked = MemorySearch(query=request.q, limit=request.limit, namespace=namespace)
        found = await memory_search(ctx, asked)
        keys, note = [hit.key for hit in found.results], found.hint
    else:
        listed = MemoryList(limit=request.limit, namespace=namespace)
        keys = [row.key for row in (await memory_list(ctx, listed)).results]
    whole = {"namespace": namespace, "max_chars": 100_000}
    read = [await memory_get(ctx, MemoryGet(key=key, **whole)) for key in keys]
    end = request.offset + fair_max_length([len(m.text) - request.offset for m in read], _CHARS)
    lines = [
        MemoryLine(
            m.key,
            m.text[request.offset : end],
            m.updated_at,
            m.trust,
            tags=m.tags or None,
            next_offset=end if end < len(m.text) else None,
        )
        for m in read
    ]
    if any(line.next_offset for line in lines):
        note = f"{note}; {_CUT}" if note else _CUT
    return RecallResult(tuple(lines), note=note)


class Forget(Request):
    """Delete a memory and its older versions permanently."""

    key: Key
    namespace: Namespace = DEFAULT_NAMESPACE


@operation(Scope.WRITE, destroys=True)
async def forget(ctx: RequestContext, request: Forget) -> MemoryOutcome:
    gone = await memory_delete(ctx, MemoryDelete(key=request.key, namespace=request.namespace))
    return MemoryOutcome(gone.key, "forgotten")
