"""The part of the store that keeps inboxes, messages and threads; see `ports.mail`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from functools import partial

from postroom.model.attachment import Attachment, BlobKey
from postroom.model.inbox import Inbox, Label, Visible
from postroom.model.message import ActionResult, Message, MessageRow
from postroom.model.page import Found, Slice
from postroom.model.sending import Sent
from postroom.model.stored import (
    Added,
    AttachmentQuery,
    Change,
    MessageQuery,
    NewMessage,
    NewSend,
    Outdated,
    RawMessage,
    ThreadQuery,
)
from postroom.model.thread import Thread, ThreadRow
from postroom.store.audited import Audited, was_found
from postroom.store.search.find import Finder
from postroom.store.sql import (
    adding,
    answers,
    changing,
    finding,
    inboxes,
    names,
    reading,
    rereading,
    sends,
    threads,
)

_AT_ONCE = 500


class SqlMail(Audited):
    """Each method is one function of `store.sql`, run in one transaction."""

    _finder: Finder

    async def add_inbox(self, inbox: Inbox, *, client_id: str | None, payload: bytes) -> Inbox:
        return await self._write(lambda tx: inboxes.add_inbox(tx, inbox, client_id, payload))

    async def inboxes(self, visible: Visible, page: Slice) -> Found[Inbox]:
        return await self._engine.read(lambda tx: inboxes.list_inboxes(tx, visible, page))

    async def inbox(self, inbox_id: str, visible: Visible) -> Inbox | None:
        return await self._engine.read(lambda tx: inboxes.get_inbox(tx, inbox_id, visible))

    async def inboxes_at(self, addresses: Iterable[str]) -> dict[str, Inbox]:
        wanted = list(addresses)
        return await self._engine.read(lambda tx: inboxes.inboxes_at(tx, wanted))

    async def rename_inbox(self, inbox_id: str, name: str, visible: Visible) -> Inbox | None:
        return await self._write(
            lambda tx: inboxes.rename_inbox(tx, inbox_id, name, visible), is_act=was_found
        )

    async def remove_inbox(
        self, inbox_id: str, visible: Visible, *, force: bool
    ) -> tuple[BlobKey, ...] | None:
        return await self._write(
            lambda tx: inboxes.remove_inbox(tx, inbox_id, visible, force=force), is_act=was_found
        )

    async def add_messages(self, messages: Sequence[NewMessage]) -> list[Added]:
        return await self._write(lambda tx: adding.add_messages(tx, messages))

    async def record_send(self, send: NewSend) -> Sent:
        return await self._write(lambda tx: sends.record_send(tx, send))

    async def refuse_second_answer(
        self, thread_id: str, answered: Collection[str], now: datetime
    ) -> None:
        await self._engine.read(
            lambda tx: answers.refuse_second_answer(tx, thread_id, answered, now)
        )

    async def is_own_mail(self, inbox_id: str, internet_message_id: str) -> bool:
        return await self._engine.read(
            lambda tx: answers.is_own_mail(tx, inbox_id, internet_message_id)
        )

    async def earlier_send(
        self,
        caller: str,
        payload: bytes,
        *,
        idempotency_key: str | None,
        allow_duplicate: bool,
        now: datetime,
    ) -> Sent | None:
        return await self._engine.read(
            lambda tx: sends.earlier_send(
                tx,
                caller,
                payload,
                idempotency_key=idempotency_key,
                allow_duplicate=allow_duplicate,
                now=now,
            )
        )

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        return await self._engine.read(lambda tx: finding.find_messages(tx, query, self._finder))

    async def message(self, message_id: str, visible: Visible) -> Message | None:
        return await self._engine.read(lambda tx: reading.get_message(tx, message_id, visible))

    async def message_by_internet_id(
        self, inbox_id: str, internet_message_id: str
    ) -> Message | None:
        return await self._engine.read(
            lambda tx: reading.message_by_internet_id(tx, inbox_id, internet_message_id)
        )

    async def newest_message(self, thread_id: str, visible: Visible) -> Message | None:
        return await self._engine.read(lambda tx: reading.newest_message(tx, thread_id, visible))

    async def change_messages(
        self, message_ids: Sequence[str], change: Change, visible: Visible
    ) -> ActionResult:
        return await self._write(
            lambda tx: changing.change_messages(tx, message_ids, change, visible)
        )

    async def remove_message(self, message_id: str, visible: Visible) -> tuple[BlobKey, ...] | None:
        return await self._write(
            lambda tx: changing.remove_message(tx, message_id, visible), is_act=was_found
        )

    async def attachments(self, query: AttachmentQuery) -> Found[Attachment]:
        return await self._engine.read(lambda tx: reading.find_attachments(tx, query))

    async def attachment(self, attachment_id: str, visible: Visible) -> Attachment | None:
        return await self._engine.read(
            lambda tx: reading.get_attachment(tx, attachment_id, visible)
        )

    async def labels(self, visible: Visible, page: Slice) -> Found[Label]:
        return await self._engine.read(lambda tx: names.list_labels(tx, visible, page))

    async def count_outdated(self, version: int) -> int:
        return await self._engine.read(lambda tx: rereading.count_outdated(tx, version))

    async def outdated(self, version: int, after: int, limit: int) -> list[Outdated]:
        return await self._engine.read(lambda tx: rereading.outdated(tx, version, after, limit))

    async def reread(self, messages: Sequence[NewMessage]) -> None:
        await self._write(lambda tx: rereading.reread(tx, messages))

    async def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        after = 0
        while True:
            work = partial(
                reading.raw_after,
                inbox_id=inbox_id,
                visible=visible,
                after=after,
                limit=_AT_ONCE,
            )
            found = await self._engine.read(work)
            for message in found:
                yield message
            if len(found) < _AT_ONCE:
                return
            after = found[-1].number

    async def threads(self, query: ThreadQuery) -> Found[ThreadRow]:
        return await self._engine.read(lambda tx: threads.find_threads(tx, query))

    async def thread(
        self, thread_id: str, visible: Visible, *, limit: int, before: str | None
    ) -> Thread | None:
        return await self._engine.read(
            lambda tx: threads.get_thread(tx, thread_id, visible, limit=limit, before=before)
        )

    async def merge_threads(self, thread_ids: Sequence[str], visible: Visible) -> str:
        return await self._write(lambda tx: threads.merge_threads(tx, thread_ids, visible))

    async def split_thread(
        self, thread_id: str, message_ids: Sequence[str], new_thread_id: str, visible: Visible
    ) -> None:
        await self._write(
            lambda tx: threads.split_thread(tx, thread_id, message_ids, new_thread_id, visible)
        )
