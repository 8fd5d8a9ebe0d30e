"""Operations: threads, attachments, inbound, ids. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from postroom.client.files import Download
from postroom.client.method import operation, pages
from postroom.client.pages import Page
from postroom.client.values.mail import (
    Attachment,
    AttachmentContent,
    AttachmentText,
    DownloadLink,
    FoundIds,
    Received,
    ReceivedPosting,
    Thread,
    ThreadRow,
)


class ThreadsOperations:
    """Conversations. Files that came with mail. Mail handed to us whole. Ids by their first
    characters.
    """

    @pages("GET", "/v1/threads")
    def list_threads(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
        label: str | None = None,
    ) -> Page[ThreadRow]:
        """List conversations, the one with the newest message first.

        Args:
            inbox_id: Only this inbox.
            label: With this label.
        """

    @operation("GET", "/v1/threads/{thread_id}")
    def get_thread(
        self,
        thread_id: str,
        *,
        limit: int | None = None,
        before: str | None = None,
        include_text: bool | None = None,
        include_memories: bool | None = None,
    ) -> Thread:
        """Read a conversation: its newest messages, oldest first, each with what it adds.

        Args:
            thread_id: The thread.
            limit: How many messages (default 50).
            before: Only messages before this one.
            include_text: Add the whole texts, quotes included.
            include_memories: Add memories of its people.
        """

    @operation("POST", "/v1/threads/merge")
    def merge_threads(self, thread_ids: Sequence[str]) -> Thread:
        """Put several threads of one inbox together into the first of them.

        Args:
            thread_ids: The threads; the first one stays.
        """

    @operation("POST", "/v1/threads/{thread_id}/split")
    def split_thread(self, thread_id: str, message_ids: Sequence[str]) -> Thread:
        """Take messages out of a thread into a new one of their own.

        Args:
            thread_id: The thread.
            message_ids: The messages to take out.
        """

    @pages("GET", "/v1/attachments")
    def list_attachments(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        message_id: str | None = None,
        thread_id: str | None = None,
        inbox_id: str | None = None,
    ) -> Page[Attachment]:
        """List the attachments (metadata) of a message, a thread or an inbox, newest first.

        Args:
            message_id: Only this message.
            thread_id: All messages of this thread.
            inbox_id: All messages of this inbox.
        """

    @operation("GET", "/v1/attachments/{attachment_id}")
    def get_attachment(self, attachment_id: str) -> Attachment:
        """Get the metadata of one attachment.

        Args:
            attachment_id: The attachment.
        """

    @operation("GET", "/v1/attachments/{attachment_id}/content")
    def get_attachment_content(
        self,
        attachment_id: str,
        *,
        format: Literal["base64", "text"] = "base64",
        offset: int | None = None,
        max_bytes: int | None = None,
        max_chars: int | None = None,
    ) -> AttachmentContent | AttachmentText:
        """Get the content of an attachment as base64 (over 1 MB in parts), or as readable text.

        Args:
            attachment_id: The attachment.
            format: text: of PDF, Office, HTML, CSV, calendar, mail, plain (default base64).
            offset: First byte or character.
            max_bytes: Bytes to read at most.
            max_chars: Cut the text here; default 12000.
        """

    @operation("GET", "/v1/attachments/{attachment_id}/content")
    def download_attachment(self, attachment_id: str) -> Download:
        """Download an attachment as it is.

        Args:
            attachment_id: The attachment.
        """

    @operation("GET", "/v1/attachments/{attachment_id}/link")
    def link_attachment(self, attachment_id: str, *, lasting_s: int | None = None) -> DownloadLink:
        """Get an address from which an attachment can be fetched for a while, without a key.

        Only where mail is kept in a bucket; whoever has the address can read the attachment.

        Args:
            attachment_id: The attachment.
            lasting_s: Seconds until it expires (default 300).
        """

    @operation("POST", "/v1/inbound", raw=True)
    def receive_message(self, recipient: str, raw: bytes) -> Received:
        """Deliver a raw mail (RFC 5322) to the inbox with this address.

        Args:
            recipient: Whose inbox.
            raw: The mail, headers first.
        """

    @operation("POST", "/v1/inbound/{provider}", raw=True)
    def receive_posting(
        self,
        provider: Literal["mailgun", "sendgrid", "resend", "ses", "postmark"],
        headers: Mapping[str, str],
        *,
        raw: bytes,
        format: Literal["mime"] | None = None,
    ) -> ReceivedPosting:
        """Take in mail that a provider received for us.

        It posts in its own form and needs no key: its own signature is checked.

        Args:
            provider: Who posts.
            headers: The headers of the posting.
            raw: What the provider posts, as it is.
            format: Mailgun sends whole mails to URLs that end so.
        """

    @operation("GET", "/v1/ids/{prefix}")
    def find_ids(self, prefix: str) -> FoundIds:
        """Find the ids of inboxes, messages, threads or attachments that begin so.

        Args:
            prefix: The kind and at least three characters.
        """
