"""Memories: add, read, change and delete them; export and import them as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from postroom.calls import request
from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import operation, require
from postroom.calls.request import (
    Accepts,
    Moment,
    Request,
    argument,
    as_number,
    change_of,
    one_of,
)
from postroom.errors import Forbidden, InvalidInput, NotFound, TooLarge
from postroom.model.key import Scope
from postroom.model.limits import TOO_DEEP, is_shallow
from postroom.model.mail.message import Message, Thread
from postroom.model.memory import (
    DEFAULT_NAMESPACE,
    RESERVED_KEYS,
    Author,
    ForgottenMemory,
    Link,
    Memory,
    MemoryChange,
    RecalledMemory,
    Trust,
)
from postroom.model.page import cut_text

SHOWN_CHARS = 12_000
"""The default length of a text in a result."""

HISTORY_SHOWN = 20
_HISTORY_CHARS = 1_000


def _key(key: str) -> str:
    if key in RESERVED_KEYS:
        raise ValueError(f"{key} is reserved; choose another key")
    return key


NamespaceName = Annotated[str, Field(min_length=1, max_length=128, pattern=request.KEY)]
Namespace = Annotated[NamespaceName, argument("The namespace.", DEFAULT_NAMESPACE)]
Key = Annotated[
    Annotated[str, Field(min_length=1, max_length=256, pattern=request.KEY)],
    argument("Its name in the namespace.", "ana/invoices"),
    AfterValidator(_key),
    Accepts({"not": {"enum": sorted(RESERVED_KEYS)}}),
]
Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=request.NAME)]
LinkTarget = Annotated[str, Field(min_length=1, max_length=320, pattern=request.NAME)]
Tags = Annotated[list[Tag], Field(max_length=20)]
Text = Annotated[str, Field(min_length=1, max_length=1_000_000, pattern=request.NOT_BLANK)]
TEXT = argument("What to remember.", "Ana wants invoices as PDF, before the 5th.")
Summary = Annotated[
    Annotated[str, Field(max_length=200, pattern=request.LINE)] | None,
    argument("One line about it; default: the beginning of the text.", "How Ana wants invoices"),
]


NEVER = datetime.max.replace(tzinfo=UTC)


Expiry = Annotated[
    Moment,
    BeforeValidator(lambda value: NEVER if value == "never" else value),
    Accepts({"anyOf": [{"format": "date-time"}, {"format": "date"}, {"enum": ["", "never"]}]}),
]


class MemoryLink(Request):
    """Where a memory comes from, or what it is about."""

    type: Annotated[str, Field(min_length=1, max_length=64, pattern=request.NAME)]
    to: LinkTarget
    weight: Annotated[
        Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)] | None,
        BeforeValidator(as_number),
    ] = None

    def value(self) -> Link:
        """The link to store."""
        return Link(self.type, self.to, self.weight)


Links = Annotated[
    Annotated[list[MemoryLink], Field(max_length=50)] | None,
    argument(
        "Where it comes from or whom it is about: to is a message, thread, address or memory key.",
        [{"type": "about", "to": "ana@example.com"}],
    ),
]


def check_namespace(ctx: RequestContext, namespace: str) -> None:
    """Refuse to write to a namespace that the caller may not see. Raises Forbidden."""
    if not ctx.caller.namespaces.sees(namespace):
        raise Forbidden(
            f"your key may not write to the namespace {namespace}; use another namespace"
        )


def check_expiry(ctx: RequestContext, expires_at: datetime | None) -> None:
    """Refuse an expiry in the past. Raises InvalidInput."""
    if expires_at is not None and expires_at <= ctx.clock():
        raise InvalidInput.of(("expires_at", "is in the past; give a future time, or never"))


def author_of(ctx: RequestContext) -> Author:
    """The caller as the author of a memory."""
    caller = ctx.caller
    return Author(caller.is_owner, ctx.visible, caller.namespaces, caller.key_id)


class MemoryAdd(Request):
    """Remember something under a key. An existing key gets a new version; omitted fields stay.

    `similar` lists memories with nearly the same text: prefer to update one of these.
    """

    key: Key
    text: Annotated[Text, TEXT]
    summary: Summary = None
    tags: Annotated[Tags | None, argument("Tags.", ["billing"])] = None
    links: Links = None
    expires_at: Annotated[Expiry, argument("When it expires.", "2027-01-31")] = None
    namespace: Namespace = DEFAULT_NAMESPACE


@operation(Scope.WRITE)
async def memory_add(ctx: RequestContext, request: MemoryAdd) -> Memory:
    memory = await _write(ctx, request, is_new_allowed=True)
    if Scope.READ not in ctx.caller.scopes:
        return memory
    similar = await ctx.store.similar_memories(memory, now=ctx.clock())
    return replace(memory, similar=similar)


_CHANGES = ("text", "summary", "tags", "links", "trust")
_CHANGE = change_of(
    (*_CHANGES, "expires_at"),
    "give something to change: text, summary, tags, links or expires_at",
)
_ANY_CHANGE = one_of("change", _CHANGES, may_be_empty=True).schema["anyOf"]
_AN_EXPIRY = one_of("change", ("expires_at",)).schema["anyOf"]


class MemoryUpdate(Request):
    """Change an existing memory; omitted fields stay. The old version is kept."""

    constraints = (replace(_CHANGE, schema={"anyOf": [*_ANY_CHANGE, *_AN_EXPIRY]}),)
    key: Key
    text: Annotated[Text | None, TEXT] = None
    summary: Summary = None
    tags: Annotated[Tags | None, argument("All its tags.", ["billing"])] = None
    links: Links = None
    expires_at: Annotated[Expiry, argument("When it expires, or never.", "never")] = None
    trust: Annotated[
        Literal["user"] | None, argument("Set its trust; only the owner can.", "user")
    ] = None
    namespace: Namespace = DEFAULT_NAMESPACE


@operation(Scope.WRITE)
async def memory_update(ctx: RequestContext, request: MemoryUpdate) -> Memory:
    if request.trust is not None and not ctx.caller.is_owner:
        raise Forbidden("only the owner can set trust; leave it out")
    return await _write(ctx, request, confirms_trust=request.trust is not None)


class EditMemory(MemoryUpdate):
    """Change a memory that nobody has changed since it was read."""

    version: Annotated[int, argument("The version that you read.", 3, ge=1, le=2**53)]


@operation(Scope.WRITE)
async def edit_memory(ctx: RequestContext, request: EditMemory) -> Memory:
    return await _write(ctx, request, of_version=request.version)


async def _write(
    ctx: RequestContext,
    request: MemoryAdd | MemoryUpdate,
    *,
    confirms_trust: bool = False,
    is_new_allowed: bool = False,
    of_version: int | None = None,
) -> Memory:
    check_namespace(ctx, request.namespace)
    size = len((request.text or "").encode())
    if size > ctx.limits.memory_bytes:
        raise TooLarge(f"text: has {size} bytes; the limit is {ctx.limits.memory_bytes}")
    check_expiry(ctx, request.expires_at)
    change = MemoryChange(
        namespace=request.namespace,
        key=request.key,
        text=request.text,
        summary=request.summary,
        tags=None if request.tags is None else tuple(dict.fromkeys(request.tags)),
        links=None if request.links is None else tuple(link.value() for link in request.links),
        expires_at=None if request.expires_at == NEVER else request.expires_at,
        clears_expiry=request.expires_at == NEVER,
        confirms_trust=confirms_trust,
        of_version=of_version,
    )
    memory = await ctx.store.save_memory(
        change, author_of(ctx), now=ctx.clock(), is_new_allowed=is_new_allowed
    )
    found = require(memory, _unknown(request.key, request.namespace))
    return replace(found, **cut_text(found.text, 0, SHOWN_CHARS))


def _unknown(key: str, namespace: str) -> str:
    return f"no memory {key} in the namespace {namespace}; memory_list shows the existing ones"


class MemoryGet(Request):
    """Read a memory. A long text comes in parts."""

    key: Key
    namespace: Namespace = DEFAULT_NAMESPACE
    include_history: Annotated[bool, argument("Add its older versions.", True)] = False
    max_chars: Annotated[int, argument("Cut the text here.", 4000, ge=1, le=100_000)] = SHOWN_CHARS
    text_offset: Annotated[int, argument("Continue from next_offset.", 12000, ge=0, le=2**53)] = 0


@operation(Scope.READ)
async def memory_get(ctx: RequestContext, request: MemoryGet) -> Memory:
    namespace, history = request.namespace, HISTORY_SHOWN if request.include_history else 0
    found = None
    if ctx.caller.namespaces.sees(namespace):
        found = await ctx.store.memory(namespace, request.key, now=ctx.clock(), history=history)
    memory = require(found, _unknown(request.key, namespace))
    if memory.history is not None:
        short = tuple(replace(old, text=old.text[:_HISTORY_CHARS]) for old in memory.history)
        memory = replace(memory, history=short)
    return replace(memory, **cut_text(memory.text, request.text_offset, request.max_chars))


class MemoryDelete(Request):
    """Delete a memory and its older versions permanently."""

    key: Key
    namespace: Namespace = DEFAULT_NAMESPACE


@operation(Scope.WRITE, destroys=True)
async def memory_delete(ctx: RequestContext, request: MemoryDelete) -> ForgottenMemory:
    check_namespace(ctx, request.namespace)
    removed = await ctx.store.remove_memory(
        request.namespace, request.key, now=ctx.clock(), by=ctx.caller.key_id
    )
    if not removed:
        raise NotFound(_unknown(request.key, request.namespace))
    return ForgottenMemory(request.namespace, request.key)


_MAX_RECALLED = 10


async def memories_about(ctx: RequestContext, mail: Message | Thread) -> tuple[RecalledMemory, ...]:
    """Memories about the participants of a message or thread, and memories made from it."""
    if isinstance(mail, Message):
        people, ids = [a.address for a in mail.addresses], [mail.id, mail.thread_id]
    else:
        people, ids = list(mail.participants), [mail.id, *(m.id for m in mail.messages)]
    inbox = await ctx.store.inbox(mail.inbox_id, ctx.visible)
    own = inbox.address.lower() if inbox else ""
    return await ctx.store.memories_about(
        [address for address in people if address.lower() != own],
        ids,
        ctx.caller.namespaces,
        visible=ctx.visible,
        now=ctx.clock(),
        limit=_MAX_RECALLED,
    )


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
    problems: list[str] = []
    memories = _read_lines(ctx, lines, problems)
    stored = created = changed = 0
    while batch := list(islice(memories, _AT_ONCE)):
        new, other = await ctx.store.import_memories(batch, author_of(ctx), now=ctx.clock())
        stored, created, changed = stored + len(batch), created + new, changed + other
    refused, shown = len(problems), tuple(problems[:_MAX_PROBLEMS])
    return ImportedMemories(stored + refused, created, changed, refused, shown)


def _read_lines(
    ctx: RequestContext, lines: Iterable[bytes], problems: list[str]
) -> Iterator[Memory]:
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield read_line(ctx, line)
        except InvalidInput as error:
            problems.append(f"line {number}: {error}")


def read_line(ctx: RequestContext, line: bytes) -> Memory:
    """The memory in a line. Raises InvalidInput."""
    request = parse_request(MemoryLine, _object(line))
    if not ctx.caller.namespaces.sees(request.namespace):
        raise InvalidInput(
            f"namespace: your key may not write to {request.namespace}; use another namespace"
        )
    if (size := len(request.text.encode())) > ctx.limits.memory_bytes:
        raise InvalidInput(f"text: has {size} bytes; the limit is {ctx.limits.memory_bytes}")
    check_expiry(ctx, request.expires_at)
    now = ctx.clock()
    return Memory(
        namespace=request.namespace,
        key=request.key,
        summary=request.summary or "",
        text=request.text,
        tags=tuple(dict.fromkeys(request.tags or ())),
        links=tuple(link.value() for link in request.links or ()),
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
