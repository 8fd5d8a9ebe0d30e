"""The door to mail: inboxes, messages and conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from typing import Protocol

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


class StoresInboxes(Protocol):
    """Addresses whose mail we keep."""

    async def add_inbox(self, inbox: Inbox, *, client_id: str | None, payload: bytes) -> Inbox:
        """Keep a new inbox, or return the one that the same client id and payload made before.

        Raises:
            Conflict: the address is taken, or the client id was used with another payload.
        """

    async def inboxes(self, visible: Visible, page: Slice) -> Found[Inbox]: ...
    async def inbox(self, inbox_id: str, visible: Visible) -> Inbox | None: ...
    async def inboxes_at(self, addresses: Iterable[str]) -> dict[str, Inbox]:
        """Find the inboxes that receive for these addresses, compared without case."""

    async def rename_inbox(self, inbox_id: str, name: str, visible: Visible) -> Inbox | None: ...
    async def remove_inbox(
        self, inbox_id: str, visible: Visible, *, force: bool
    ) -> tuple[BlobKey, ...] | None:
        """Remove an inbox with its mail and return the blobs that nothing uses any more.

        Raises:
            Conflict: there is mail in it and *force* was not given.
        """


class StoresMessages(Protocol):
    """Mail, and what is found in it."""

    async def add_messages(self, messages: Sequence[NewMessage]) -> list[Added]:
        """Keep messages, each in its thread; what is a duplicate is only recognised.

        Raises:
            NotFound: an inbox is gone.
        """

    async def record_send(self, send: NewSend) -> Sent:
        """Keep a sent message and its local deliveries in one transaction, exactly once.

        Raises:
            Conflict: the idempotency key was used for another payload, or it is an automatic
                answer to someone who got one in the thread within a day.
            RateLimited: the caller has sent its share of this hour.
        """

    async def refuse_second_answer(
        self, thread_id: str, answered: Collection[str], now: datetime
    ) -> None:
        """Raises Conflict when one of these got an automatic answer there within a day."""

    async def is_own_mail(self, inbox_id: str, internet_message_id: str) -> bool:
        """Whether an inbox has sent the mail with this Message-ID."""

    async def earlier_send(
        self,
        caller: str,
        payload: bytes,
        *,
        idempotency_key: str | None,
        allow_duplicate: bool,
        now: datetime,
    ) -> Sent | None:
        """The answer that the same send got before, if it did. Raises Conflict."""

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        """Raises NotFound when the inbox or the thread that is named does not exist."""

    async def message(self, message_id: str, visible: Visible) -> Message | None: ...
    async def message_by_internet_id(
        self, inbox_id: str, internet_message_id: str
    ) -> Message | None: ...
    async def newest_message(self, thread_id: str, visible: Visible) -> Message | None:
        """The newest inbound message of a thread; if there is none, the newest."""

    async def change_messages(
        self, message_ids: Sequence[str], change: Change, visible: Visible
    ) -> ActionResult: ...
    async def remove_message(self, message_id: str, visible: Visible) -> tuple[BlobKey, ...] | None:
        """Remove a message for good and return the blobs that nothing uses any more.

        Raises:
            Conflict: it is on its way out.
        """

    async def attachments(self, query: AttachmentQuery) -> Found[Attachment]:
        """Raises NotFound when the message, thread or inbox that is named does not exist."""

    async def attachment(self, attachment_id: str, visible: Visible) -> Attachment | None: ...
    async def labels(self, visible: Visible, page: Slice) -> Found[Label]: ...
    async def count_outdated(self, version: int) -> int:
        """How many messages a parser before this version has read."""

    async def outdated(self, version: int, after: int, limit: int) -> list[Outdated]:
        """The next of them after a number, in order of arrival."""

    async def reread(self, messages: Sequence[NewMessage]) -> None:
        """Write what the parser reads now under the ids that the messages have."""

    def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        """Every message of an inbox in order of arrival, Trash and Junk included."""


class StoresThreads(Protocol):
    """Conversations."""

    async def threads(self, query: ThreadQuery) -> Found[ThreadRow]: ...
    async def thread(
        self, thread_id: str, visible: Visible, *, limit: int, before: str | None
    ) -> Thread | None:
        """Return a thread with its newest messages; *before* is the id of one of its messages."""

    async def merge_threads(self, thread_ids: Sequence[str], visible: Visible) -> str:
        """Put all messages into the first thread.

        Raises:
            NotFound: one of them does not exist.
            InvalidInput: they are not of one inbox.
        """

    async def split_thread(
        self, thread_id: str, message_ids: Sequence[str], new_thread_id: str, visible: Visible
    ) -> None:
        """Move these messages of a thread into a new one.

        Raises:
            NotFound: the thread does not exist, or one of the messages is not in it.
            InvalidInput: nothing would be left behind.
        """
