"""Export and import of memories as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from postroom.calls.context import RequestContext
from postroom.calls.request import Moment, parse_request
from postroom.errors import InvalidInput
from postroom.model.limits import TOO_DEEP, is_shallow
from postroom.model.memory import Link, Memory, Trust
from postroom.operations.memories import NEVER, MemoryAdd, author_of, check_expiry, sees

_AT_ONCE = 500
_MAX_PROBLEMS = 20


class MemoryLine(MemoryAdd):
    """A line of an export. Its author is not imported, and its version starts at 1.

    `untrusted` is information for a reader of the file; `trust` decides.
    """

    trust: Trust = "user"
    version: Annotated[int, Field(ge=1)] = 1
    created_at: Moment = None
    updated_at: Moment = None
    stale: bool = False
    untrusted: bool = False


@dataclass(frozen=True, slots=True)
class ImportedMemories:
    """The result of an import."""

    read: int
    created: int
    changed: int
    refused: int
    problems: tuple[str, ...]


async def export_memories(
    ctx: RequestContext, namespaces: tuple[str, ...] | None
) -> AsyncIterator[Memory]:
    """Every memory of some namespaces, or of all that the caller may see."""
    seen = ctx.caller.namespaces
    selected = seen if namespaces is None else seen.narrowed_to(namespaces)
    async for memory in ctx.store.all_memories(selected, now=ctx.clock()):
        yield memory


async def import_memories(ctx: RequestContext, lines: Iterable[bytes]) -> ImportedMemories:
    """Import lines; a line that cannot be read is reported and skipped."""
    read = created = changed = 0
    problems: list[str] = []
    batch: list[Memory] = []

    async def store_batch() -> tuple[int, int]:
        author = author_of(ctx)
        counts = await ctx.store.import_memories(batch, author, now=ctx.clock())
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
            new, other = await store_batch()
            created, changed = created + new, changed + other
    new, other = await store_batch()
    shown = tuple(problems[:_MAX_PROBLEMS])
    return ImportedMemories(read, created + new, changed + other, len(problems), shown)


def read_line(ctx: RequestContext, line: bytes) -> Memory:
    """The memory in a line. Raises InvalidInput."""
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
    except RecursionError:
        raise InvalidInput(TOO_DEEP) from None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("not a JSON object")
    if not is_shallow(value):
        raise InvalidInput(TOO_DEEP)
    return value
