"""The store of inboxes, messages and threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.inbox import OWNERS_RIGHTS, AddressRights, Inbox, Label, Visible
from postroom.model.message import (
    ActionResult,
    Attachment,
    BlobKey,
    Message,
    MessageRow,
    Thread,
    ThreadRow,
)
from postroom.model.page import Found, Slice
from postroom.model.sending import Sent
from postroom.model.storage import (
    Added,
    AttachmentQuery,
    Change,
    MessageQuery,
    NewMessage,
    NewSend,
    Outdated,
    RawMessage,
    ReplyLimit,
    SearchTexts,
    ThreadQuery,
)


class InboxStore(Protocol):
    """Addresses whose mail is stored."""

    async def add_inbox(
        self,
        inbox: Inbox,
        *,
        client_id: str | None,
        payload: bytes,
        rights: AddressRights = OWNERS_RIGHTS,
    ) -> Inbox:
        """Add an inbox, or return the one that the same client id and payload have created.

        Raises:
            Conflict: the address is taken, or the client id was used with another payload.
            Forbidden: these rights do not include the address.
        """

    async def inboxes(self, visible: Visible, page: Slice) -> Found[Inbox]: ...
    async def inbox(self, inbox_id: str, visible: Visible) -> Inbox | None: ...
    async def inboxes_at(self, addresses: Collection[str]) -> dict[str, Inbox]:
        """The inboxes that receive for these addresses, by the address in lower case."""

    async def rename_inbox(self, inbox_id: str, name: str, visible: Visible) -> Inbox | None: ...
    async def remove_inbox(
        self, inbox_id: str, visible: Visible, *, force: bool
    ) -> tuple[BlobKey, ...] | None:
        """Remove an inbox with its mail; return the blobs that are no longer used.

        Raises:
            Conflict: it has mail, and *force* is false.
        """


class MessageStore(Protocol):
    """Messages, their attachments and labels."""

    async def add_messages(self, messages: Sequence[NewMessage]) -> list[Added]:
        """Add messages, each to its thread; a duplicate is recognized and not added.

        Raises:
            NotFound: an inbox was removed.
        """

    async def record_send(self, send: NewSend) -> Sent:
        """Store a sent message and its local deliveries in one transaction, exactly once.

        Raises:
            Conflict: the idempotency key was used with another payload, or the mail is an automatic
                answer to an address that got one in this thread within a day.
            RateLimited: the caller has reached its limit for this hour.
        """

    async def refuse_second_answer(
        self, thread_id: str, answered: Collection[str], now: datetime
    ) -> None:
        """Raise Conflict if one of these addresses got an automatic answer there within a day."""

    async def refuse_many_replies(
        self, inbox_id: str, addresses: Collection[str], limit: ReplyLimit, now: datetime
    ) -> None:
        """Raise Conflict if one of these addresses got the maximum of rule replies in a day."""

    async def forwards_since(self, caller: str, thread_id: str, since: datetime) -> int:
        """The number of mails that a rule has sent in a thread."""

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
        """The result of an earlier send that was the same. Raises Conflict."""

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        """Raises NotFound if the inbox or thread of the query does not exist."""

    async def message(self, message_id: str, visible: Visible) -> Message | None: ...
    async def search_texts(self, message_id: str) -> SearchTexts | None:
        """The texts of a message that filters compare."""

    async def message_by_internet_id(
        self, inbox_id: str, internet_message_id: str
    ) -> Message | None: ...
    async def newest_message(self, thread_id: str, visible: Visible) -> Message | None:
        """The newest inbound message of a thread; if there is none, the newest."""

    async def change_messages(
        self, message_ids: Sequence[str], change: Change, visible: Visible
    ) -> ActionResult: ...
    async def remove_message(self, message_id: str, visible: Visible) -> tuple[BlobKey, ...] | None:
        """Remove a message permanently; return the blobs that are no longer used.

        Raises:
            Conflict: it is being sent.
        """

    async def attachments(self, query: AttachmentQuery) -> Found[Attachment]:
        """Raises NotFound if the message, thread or inbox of the query does not exist."""

    async def attachment(self, attachment_id: str, visible: Visible) -> Attachment | None: ...
    async def labels(self, visible: Visible, page: Slice) -> Found[Label]: ...
    async def count_outdated(self, version: int) -> int:
        """The number of messages that an earlier version of the parser has read."""

    async def outdated(self, version: int, after: int, limit: int) -> list[Outdated]:
        """The next of these messages after a number, in order of arrival."""

    async def reparse_messages(self, messages: Sequence[NewMessage]) -> None:
        """Replace what was parsed; the messages keep their ids."""

    def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        """Every message of an inbox, in order of arrival, including Trash and Junk."""


class ThreadStore(Protocol):
    """Threads."""

    async def threads(self, query: ThreadQuery) -> Found[ThreadRow]: ...
    async def thread(
        self, thread_id: str, visible: Visible, *, limit: int, before: str | None
    ) -> Thread | None:
        """A thread with its newest messages, or with those before the message *before*."""

    async def merge_threads(self, thread_ids: Sequence[str], visible: Visible) -> str:
        """Move all messages to the first thread.

        Raises:
            NotFound: a thread does not exist.
            InvalidInput: they are in different inboxes.
        """

    async def split_thread(
        self, thread_id: str, message_ids: Sequence[str], new_thread_id: str, visible: Visible
    ) -> None:
        """Move these messages of a thread to a new one.

        Raises:
            NotFound: the thread does not exist, or a message is not in it.
            InvalidInput: the old thread would be empty.
        """
