"""Memories as lines of JSON, out and in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from postroom.errors import InvalidInput
from postroom.model.memory import Author, Link, Memory, Trust
from postroom.operations.context import Context
from postroom.operations.memories import NEVER, MemoryAdd, check_expiry, sees
from postroom.operations.request import Moment, parse_request

_AT_ONCE = 500
_PROBLEMS_TOLD = 20


class MemoryLine(MemoryAdd):
    """A line of an export. Who wrote it counts no more than it says; its version starts anew."""

    trust: Trust = "user"
    version: Annotated[int, Field(ge=1)] = 1
    created_at: Moment = None
    updated_at: Moment = None
    stale: bool = False


@dataclass(frozen=True, slots=True)
class ImportedMemories:
    """What became of the lines of an import."""

    read: int
    created: int
    changed: int
    refused: int
    problems: tuple[str, ...]


async def export_memories(
    ctx: Context, namespaces: tuple[str, ...] | None
) -> AsyncIterator[Memory]:
    """Every memory of some namespaces, or of all that the caller may see."""
    seen = ctx.caller.namespaces
    if seen is not None:
        namespaces = tuple(seen if namespaces is None else seen.intersection(namespaces))
    async for memory in ctx.store.every_memory(namespaces, now=ctx.clock()):
        yield memory


async def import_memories(ctx: Context, lines: Iterable[bytes]) -> ImportedMemories:
    """Take in an export; a line that cannot be read is told and passed over."""
    read = created = changed = 0
    problems: list[str] = []
    batch: list[Memory] = []

    async def keep() -> tuple[int, int]:
        author = Author(ctx.caller.is_owner, ctx.visible)
        counts = await ctx.store.put_memories(batch, author, now=ctx.clock())
        batch.clear()
        return counts

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        read += 1
        try:
            batch.append(read_line(ctx, line))
        except InvalidInput as error:
            problems.append(f"line {number}: {error}")
        if len(batch) == _AT_ONCE:
            new, other = await keep()
            created, changed = created + new, changed + other
    new, other = await keep()
    told = tuple(problems[:_PROBLEMS_TOLD])
    return ImportedMemories(read, created + new, changed + other, len(problems), told)


def read_line(ctx: Context, line: bytes) -> Memory:
    """The memory that a line holds. Raises InvalidInput."""
    request = parse_request(MemoryLine, _object(line))
    if not sees(ctx, request.namespace):
        raise InvalidInput(f"namespace: your key may not write to {request.namespace}")
    if len(request.text.encode()) > ctx.limits.memory_bytes:
        raise InvalidInput(f"text: the limit is {ctx.limits.memory_bytes} bytes")
    check_expiry(ctx, request.expires_at)
    now = ctx.clock()
    return Memory(
        namespace=request.namespace,
        key=request.key,
        summary=request.summary or "",
        text=request.text,
        tags=tuple(dict.fromkeys(request.tags or ())),
        links=tuple(Link(link.type, link.to, link.weight) for link in request.links or ()),
        trust=request.trust,
        version=1,
        expires_at=None if request.expires_at == NEVER else request.expires_at,
        created_at=now,
        updated_at=now,
        stale=request.stale or None,
    )


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("not a JSON object")
    return value
