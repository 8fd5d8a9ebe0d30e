"""Maintenance: background tasks that every server runs; leases keep two from doing the same.

Embedding is one of them: memories and mail without a vector get one, the newest first.
Reparse runs on request: stored mail is parsed again after a change of the parser, or compared with
its bytes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from hashlib import sha256

from postroom.errors import MailError, NotFound, ProviderError
from postroom.mail.message import PARSER_VERSION, ParsedMessage
from postroom.mail.senders import Auth
from postroom.model.event import AuditRecord
from postroom.model.health import KEPT_DAYS
from postroom.model.mail.message import AddressLine, BlobKey
from postroom.model.mail.storage import (
    MessageQuery,
    NewMessage,
    OutdatedMessage,
    ParsedValues,
    StoredParse,
)
from postroom.model.memory import CollectionName, Unembedded
from postroom.pipeline.blobs import sweep_blobs
from postroom.pipeline.ingest import (
    ParsedMail,
    authenticate_mails,
    build_message,
    parse_mails,
    restore_blobs,
    searchable,
    write_blobs,
)
from postroom.pipeline.services import Services
from postroom.ports.provider import Embedder

EMBED_LIMIT = 256
"""A search embeds up to so many texts first, which takes some seconds, once."""

_EMBED_LIMIT_MAIL = 32

_EMBEDDED_AT_ONCE = 16
_EXPIRED_AT_ONCE = 200
_EXTRACTED_AT_ONCE = 200
_MAIL_AT_ONCE = 200
_MAIL_BEFORE_SEARCH = 2_000
_PAUSE_S = 30.0
_LEASE = timedelta(seconds=60)
_HOLDER = f"proc_{secrets.token_hex(8)}"
_EMBEDDING = "learn"
"""The name of the lease for embedding texts."""


async def finish_embedding(services: Services, collection: CollectionName) -> None:
    """Embed the rest of a collection before a search, if it is little."""
    if services.embedder is None:
        return
    model, max_count = services.embedder.model, EMBED_LIMIT + 1
    count = await services.store.count_unembedded(collection, model=model, max_count=max_count)
    if not 0 < count < max_count:
        return
    # One at a time: the others find it done.
    async with services.embedding_lock:
        while await _embed_some(services, collection):
            pass
        while found := await services.store.embedded_by_others(
            collection, model=model, limit=_EMBEDDED_AT_ONCE
        ):
            await _embed(services, services.embedder, found)


async def embed_mail(services: Services, query: MessageQuery) -> None:
    """Index the mail of a query for ranking, and embed the newest of it.

    The rest is embedded in the background; until then it is found by its words.
    """
    numbers = await services.store.unindexed_mail(query, limit=_MAIL_BEFORE_SEARCH)
    for first in range(0, len(numbers), _MAIL_AT_ONCE):
        await services.store.index_messages(numbers[first : first + _MAIL_AT_ONCE])
    if services.embedder is not None:
        async with services.embedding_lock:
            model = services.embedder.model
            found = await services.store.unembedded_mail(
                query, model=model, limit=_EMBED_LIMIT_MAIL
            )
            await _embed(services, services.embedder, found)


async def _embed_some(services: Services, collection: CollectionName | None) -> bool:
    """Embed a few texts; whether there were any."""
    if services.embedder is None:
        return False
    found = await services.store.unembedded(collection, limit=_EMBEDDED_AT_ONCE)
    await _embed(services, services.embedder, found)
    return bool(found)


async def _embed(services: Services, embedder: Embedder, found: list[Unembedded]) -> None:
    if found:
        vectors = await embedder.embed([document.text for document in found])
        await services.store.store_vectors(embedder.model, list(zip(found, vectors, strict=True)))


async def embed_pending(services: Services) -> bool:
    """Embed a batch and remove expired memories; whether there is more to do at once."""
    now = services.clock()
    if not await services.store.has_ranking_work(now=now, can_embed=services.embedder is not None):
        return False
    if not await services.store.claim(_EMBEDDING, _HOLDER, now=now, lifetime=_LEASE):
        return False
    removed = await services.store.remove_expired(now=now, limit=_EXPIRED_AT_ONCE)
    extracted = await services.store.store_missing_mail_digests(limit=_EXTRACTED_AT_ONCE)
    indexed = await services.store.index_mail(limit=_MAIL_AT_ONCE, starts=False)
    try:
        async with services.embedding_lock:
            return await _embed_some(services, None) or removed + extracted + indexed > 0
    except ProviderError:
        await asyncio.sleep(_PAUSE_S)
        raise


async def remove_vectors_of_other_models(services: Services) -> None:
    """Remove the vectors of other models, so that their texts are embedded again."""
    if services.embedder is not None:
        await services.store.remove_vectors_of_other_models(services.embedder.model)


log = logging.getLogger(__name__)

SWEEP_EVERY = timedelta(hours=6)
SWEEP_FIRST = timedelta(minutes=10)
SWEEP_OLDER_THAN = timedelta(hours=24)
COMPACT_EVERY = timedelta(seconds=3)
EMBED_EVERY = timedelta(seconds=2)
CLEANUP_EVERY = timedelta(hours=1)
COMPACT_STEPS = 6
"""Steps after a batch of 200 mails; enough to keep up with them."""


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A task that runs periodically; `work` may return whether there is more to do at once."""

    name: str
    first: timedelta
    every: timedelta
    work: Callable[[], Awaitable[bool | None]]


def background_tasks(services: Services) -> tuple[BackgroundTask, ...]:
    """All tasks."""
    compact = services.store.compact_index
    return (
        BackgroundTask("compact", COMPACT_EVERY, COMPACT_EVERY, compact),
        # a second one, which indexes new mail while the first merges for a minute
        BackgroundTask("compact beside", COMPACT_EVERY, COMPACT_EVERY, compact),
        BackgroundTask("embed", EMBED_EVERY, EMBED_EVERY, lambda: embed_pending(services)),
        BackgroundTask(
            "vectors", EMBED_EVERY, CLEANUP_EVERY, lambda: remove_vectors_of_other_models(services)
        ),
        BackgroundTask(
            "leases", CLEANUP_EVERY, CLEANUP_EVERY, lambda: remove_expired_leases(services)
        ),
        BackgroundTask("counts", CLEANUP_EVERY, CLEANUP_EVERY, lambda: remove_old_counts(services)),
        BackgroundTask("tokens", CLEANUP_EVERY, CLEANUP_EVERY, lambda: remove_old_tokens(services)),
        BackgroundTask("sweep", SWEEP_FIRST, SWEEP_EVERY, lambda: sweep(services)),
    )


async def remove_expired_leases(services: Services) -> None:
    """Remove expired leases; some are claimed only once."""
    await services.store.remove_expired_leases(services.clock())


async def remove_old_counts(services: Services) -> None:
    """Remove the counts of days that nobody can ask for any more."""
    await services.store.remove_counts((services.clock() - timedelta(days=KEPT_DAYS)).date())


async def remove_old_tokens(services: Services) -> None:
    """Remove OAuth tokens that have expired, and grants whose client never came for its tokens."""
    now = services.clock()
    for key_id in await services.store.unfinished_grants(now):
        record = AuditRecord(key_id, "remove_unfinished_grant", now, (key_id,))
        await services.store.by(record).remove_key(key_id)
    await services.store.remove_expired_tokens(now)


async def sweep(services: Services) -> None:
    """Remove unused blobs, in one process at a time."""
    holder = services.new_id("proc")
    if await services.store.claim("sweep", holder, now=services.clock(), lifetime=SWEEP_EVERY):
        removed = await sweep_blobs(services, older_than=SWEEP_OLDER_THAN)
        log.info("blobs.swept", extra={"removed": removed})


async def run_maintenance(background_tasks: Sequence[BackgroundTask]) -> None:
    """Run the tasks until cancelled; one that fails is logged and runs again."""
    async with asyncio.TaskGroup() as group:
        for task in background_tasks:
            group.create_task(_repeat(task))


async def _repeat(task: BackgroundTask) -> None:
    wait = task.first
    while True:
        await asyncio.sleep(wait.total_seconds())
        more: bool | None = False
        try:
            more = await task.work()
        except MailError as error:
            log.warning("task.failed", extra={"task": task.name, "error": str(error)})
        except Exception:
            log.exception("task.failed", extra={"task": task.name})
        wait = timedelta(0) if more else task.every


async def compact_some(services: Services, *, in_bulk: bool = False) -> None:
    """Compact the search index after a batch of mail, where perhaps no server runs.

    If it is *in bulk* and no server runs, more messages are indexed at once: this takes half as
    long, but a search meanwhile has more texts to scan.
    """
    in_bulk = in_bulk and not await services.store.has_heartbeat("serving", services.clock())
    for _ in range(COMPACT_STEPS):
        if not await services.store.compact_index(in_bulk=in_bulk):
            break


async def compact_all(services: Services) -> None:
    """Compact the search index until nothing is left to do."""
    while await services.store.compact_index():
        pass


_PARSED_AT_ONCE = 100


async def reparse(services: Services, *, version: int = PARSER_VERSION) -> AsyncIterator[int]:
    """Parse messages again that an older parser has parsed; yields the size of each batch.

    Each batch is one transaction, so it can be stopped at any time and continues where it was.
    """
    after = 0
    while batch := await services.store.outdated(version, after, _PARSED_AT_ONCE):
        raws = [await services.blobs.read(message.raw) for message in batch]
        mails = await write_blobs(services, await parse_mails(services, raws))
        auths = await authenticate_mails(services, mails)
        await services.store.reparse_messages(
            [_reparsed(services, *each) for each in zip(batch, mails, auths, strict=True)]
        )
        await restore_blobs(services, mails)
        after = batch[-1].number
        yield len(batch)


def _reparsed(
    services: Services, stored: OutdatedMessage, mail: ParsedMail, auth: Auth
) -> NewMessage:
    """The new content under the old id, with the bcc addresses that are not in the bytes."""
    message = build_message(
        services, mail, stored.inbox_id, auth=auth, received_at=stored.received_at
    )
    is_ours = stored.direction == "outbound"
    hidden = tuple(AddressLine("bcc", "", address) for address in stored.bcc if is_ours)
    return replace(
        message,
        id=stored.id,
        direction=stored.direction,
        addresses=message.addresses + hidden,
        thread_id=None if message.internet_message_id else stored.thread_id,
    )


async def parse_differences(
    services: Services, *, damaged: Collection[BlobKey]
) -> AsyncIterator[tuple[int, list[str]]]:
    """Compare stored messages with their bytes; yields the size of each batch and its problems."""
    after = 0
    while batch := await services.store.stored_parses(PARSER_VERSION, after, _PARSED_AT_ONCE):
        whole = [stored_parse for stored_parse in batch if stored_parse.raw not in damaged]
        yield len(batch), await _differences(services, whole)
        after = batch[-1].number


async def _differences(services: Services, stored_parses: Sequence[StoredParse]) -> list[str]:
    readable, raws = list[StoredParse](), list[bytes]()
    for stored_parse in stored_parses:
        with suppress(NotFound):  # removed meanwhile, or reported as missing before
            raws.append(await services.blobs.read(stored_parse.raw))
            readable.append(stored_parse)
    parsed = await services.parser.parse(raws)
    return [
        f"message {stored.id}: its {name} differs from its bytes (run `postroom reparse --all`)"
        for stored, mail in zip(readable, parsed, strict=True)
        for name in _differing_fields(stored.values, _content_of(mail))
    ]


def _differing_fields(stored: ParsedValues, read: ParsedValues) -> list[str]:
    """The names of the fields that differ."""
    names = [field.name for field in fields(ParsedValues)]
    return [n.replace("_", " ") for n in names if getattr(stored, n) != getattr(read, n)]


def _content_of(parsed: ParsedMessage) -> ParsedValues:
    return ParsedValues(
        subject=parsed.subject,
        sender=parsed.sender.address if parsed.sender else "",
        internet_message_id=parsed.internet_message_id,
        snippet=parsed.snippet,
        text=parsed.text,
        searchable=searchable(parsed),
        attachments=tuple(sha256(a.content).hexdigest() for a in parsed.attachments),
    )
