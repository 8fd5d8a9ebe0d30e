"""Operations: messages. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.files import Download, Files
from postroom.client.method import Addresses, operation, pages
from postroom.client.responses import Page
from postroom.client.values.inputs import MessageSelection
from postroom.client.values.mail import ActionResult, DownloadLink, Message, MessageRow
from postroom.client.values.records import DryRunPlan, Sent, Unsubscribed, Waited


class MessagesOperations:
    """Search mail across inboxes. Find, read, organise and send mail."""

    @pages("GET", "/v1/search/messages")
    def search_messages(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
        thread_id: str | None = None,
        q: str | None = None,
        labels: Sequence[str] | None = None,
        from_: str | None = None,
        to: str | None = None,
        subject: str | None = None,
        unread: bool | None = None,
        flags: Sequence[Literal["seen", "flagged", "answered", "draft"]] | None = None,
        has_attachment: bool | None = None,
        after_date: datetime | str | None = None,
        before_date: datetime | str | None = None,
        mailbox: str | None = None,
        mode: Literal["exact", "words", "hybrid"] | None = None,
        sort: Literal["newest", "oldest"] | None = None,
    ) -> Page[MessageRow]:
        """Search messages by text and filters, everywhere or in an inbox or thread.

        Args:
            inbox_id: Only this inbox.
            thread_id: Only this thread.
            q: Text in subject, body, sender or file name.
            labels: With all these labels.
            from_: Address, @domain, or part of address or name.
            to: The same for to, cc and bcc.
            subject: Text in the subject.
            unread: Only unread; false: only read.
            flags: With all these flags.
            has_attachment: With or without attachments.
            after_date: From this time on.
            before_date: Before this time.
            mailbox: Default: all but Trash, Junk; * is all.
            mode: q literally; each word or "phrase"; by meaning (default exact).
            sort: Sort order (default newest).
        """

    @pages("GET", "/v1/messages")
    def list_messages(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
        thread_id: str | None = None,
        q: str | None = None,
        labels: Sequence[str] | None = None,
        from_: str | None = None,
        to: str | None = None,
        subject: str | None = None,
        unread: bool | None = None,
        flags: Sequence[Literal["seen", "flagged", "answered", "draft"]] | None = None,
        has_attachment: bool | None = None,
        after_date: datetime | str | None = None,
        before_date: datetime | str | None = None,
        mailbox: str | None = None,
        mode: Literal["exact", "words", "hybrid"] | None = None,
        sort: Literal["newest", "oldest"] | None = None,
    ) -> Page[MessageRow]:
        """List messages of an inbox or a thread (give one), newest first; q and filters narrow
        it.

        Args:
            inbox_id: Only this inbox.
            thread_id: Only this thread.
            q: Text in subject, body, sender or file name.
            labels: With all these labels.
            from_: Address, @domain, or part of address or name.
            to: The same for to, cc and bcc.
            subject: Text in the subject.
            unread: Only unread; false: only read.
            flags: With all these flags.
            has_attachment: With or without attachments.
            after_date: From this time on.
            before_date: Before this time.
            mailbox: Default: all but Trash, Junk; * is all.
            mode: q literally; each word or "phrase"; by meaning (default exact).
            sort: Sort order (default newest).
        """

    @operation("POST", "/v1/messages")
    def send_message(
        self,
        to: Addresses,
        subject: str,
        *,
        reply_to: Addresses | None = None,
        headers: Mapping[str, str] | None = None,
        send_at: datetime | str | None = None,
        idempotency_key: str | None = None,
        allow_duplicate: bool | None = None,
        wait_s: int | None = None,
        body_text: str | None = None,
        body_html: str | None = None,
        cc: Addresses | None = None,
        bcc: Addresses | None = None,
        in_reply_to: str | None = None,
        attachments: Files | None = None,
        inbox_id: str | None = None,
        from_: str | None = None,
        thread_id: str | None = None,
    ) -> Sent:
        """Send a mail, or a reply with in_reply_to; text, HTML or both.

        Args:
            to: Recipients.
            reply_to: Reply-To.
            headers: Headers to add, X-… or List-… only.
            send_at: When to send it.
            idempotency_key: One mail per key.
            allow_duplicate: Send it even if sent minutes ago.
            wait_s: Seconds to wait for the relay.
            body_text: The text.
            body_html: The HTML version.
            cc: Copies to.
            bcc: Hidden copies to.
            in_reply_to: What this answers: id or Message-ID.
            attachments: Files: content in base64, or attachment_id of one.
            inbox_id: Inbox to send from, if several.
            from_: Address to send from.
            thread_id: Reply in this thread.
        """

    @operation("GET", "/v1/messages/wait")
    def wait_for_message(
        self,
        *,
        inbox_id: str | None = None,
        thread_id: str | None = None,
        from_: str | None = None,
        subject: str | None = None,
        q: str | None = None,
        since: str | None = None,
        timeout_s: int | None = None,
        extract: Literal["code", "link"] | None = None,
    ) -> Waited:
        """Wait until a mail arrives in an inbox or a thread, and return it.

        After a time-out, wait again with the returned `since`: nothing is missed.

        Args:
            inbox_id: Wait in this inbox.
            thread_id: Or in this thread.
            from_: Only from this address, @domain or name.
            subject: Text in the subject.
            q: Only with this text.
            since: Start after an id, a time, or seconds ago (-120).
            timeout_s: How long, in seconds (default 60).
            extract: Extract a one-time code or a link; skip other mail.
        """

    @operation("GET", "/v1/messages/{message_id}")
    def get_message(
        self,
        message_id: str,
        *,
        include_attachments: bool | None = None,
        include_html: bool | None = None,
        include_headers: bool | None = None,
        include_quoted: bool | None = None,
        include_memories: bool | None = None,
        max_chars: int | None = None,
        text_offset: int | None = None,
    ) -> Message:
        """Read a message and list its attachments. A long text comes in parts.

        Args:
            include_attachments: Add contents as base64, if small.
            include_html: Add the sanitised HTML.
            include_headers: Add all headers in order.
            include_quoted: Add quoted text and signature separately.
            include_memories: Add memories about participants.
            max_chars: Cut each text here (default 12000).
            text_offset: Continue the text from next_offset.
        """

    @operation("PATCH", "/v1/messages/{message_id}")
    def update_message(
        self,
        message_id: str,
        *,
        flags: Sequence[Literal["seen", "flagged", "answered", "draft"]] | UnsetType | None = UNSET,
        labels: Sequence[str] | UnsetType | None = UNSET,
        add_flags: Sequence[Literal["seen", "flagged", "answered", "draft"]]
        | UnsetType
        | None = UNSET,
        remove_flags: Sequence[Literal["seen", "flagged", "answered", "draft"]]
        | UnsetType
        | None = UNSET,
        add_labels: Sequence[str] | UnsetType | None = UNSET,
        remove_labels: Sequence[str] | UnsetType | None = UNSET,
    ) -> ActionResult:
        """Set the flags or the labels of a message; each list replaces the current one.

        Lists to add and to remove change only what they name.

        Args:
            flags: The new list of flags.
            labels: The new list of labels.
            add_flags: Flags to add.
            remove_flags: Flags to remove.
            add_labels: Labels to add.
            remove_labels: Labels to remove.
        """

    @operation("DELETE", "/v1/messages/{message_id}")
    def delete_message(self, message_id: str, *, permanent: bool | None = None) -> ActionResult:
        """Move a message to Trash; permanent=true deletes it.

        Args:
            permanent: Delete it permanently.
        """

    @operation("GET", "/v1/messages/{message_id}/raw")
    def download_message(self, message_id: str) -> Download:
        """Download the source of a message, byte for byte."""

    @operation("GET", "/v1/messages/{message_id}/link")
    def link_message(self, message_id: str, *, lasting_s: int | None = None) -> DownloadLink:
        """Get a temporary URL of the source of a message that needs no key.

        Only if mail is stored in a bucket; anyone who has the URL can read the message.

        Args:
            lasting_s: Seconds until it expires (default 300).
        """

    @operation("POST", "/v1/messages/labels")
    def apply_label(
        self, message_ids: Sequence[str], label: str, *, remove: bool | None = None
    ) -> ActionResult:
        """Add a label to messages, created on first use, or remove it.

        Args:
            remove: Remove it instead.
        """

    @operation("POST", "/v1/messages/update")
    def update_messages(
        self,
        *,
        add_labels: Sequence[str] | None = None,
        remove_labels: Sequence[str] | None = None,
        add_flags: Sequence[Literal["seen", "flagged", "answered"]] | None = None,
        remove_flags: Sequence[Literal["seen", "flagged", "answered"]] | None = None,
        mailbox: str | None = None,
        trash: bool | None = None,
        message_ids: Sequence[str] | None = None,
        filter: MessageSelection | None = None,
        plan_id: str | None = None,
    ) -> ActionResult | DryRunPlan:
        """Change labels, flags and mailbox of messages.

        With message_ids, the change is made immediately. With filter, the response is a plan;
        call again with plan_id to apply it. The returned undo_id undoes the change.

        Args:
            add_labels: Labels to add.
            remove_labels: Labels to remove.
            add_flags: Flags to add; seen is read.
            remove_flags: Flags to remove.
            mailbox: Move to this mailbox.
            trash: Move to Trash.
            filter: Or all that match, as in a search.
            plan_id: Apply this plan.
        """

    @operation("POST", "/v1/messages/{message_id}/move")
    def move_message(self, message_id: str, destination: str) -> ActionResult:
        """Move a message to another mailbox, such as Archive or Trash; a missing mailbox is
        created.

        Args:
            destination: The mailbox.
        """

    @operation("POST", "/v1/messages/{message_id}/reply")
    def reply_to_message(
        self,
        message_id: str,
        body_text: str,
        *,
        reply_to: Addresses | None = None,
        headers: Mapping[str, str] | None = None,
        send_at: datetime | str | None = None,
        idempotency_key: str | None = None,
        allow_duplicate: bool | None = None,
        wait_s: int | None = None,
        body_html: str | None = None,
        reply_all: bool | None = None,
        attachments: Files | None = None,
        automatic: bool | None = None,
    ) -> Sent:
        """Reply to a message: recipients, subject and thread are taken from it.

        Args:
            body_text: The text.
            reply_to: Reply-To.
            headers: Headers to add, X-… or List-… only.
            send_at: When to send it.
            idempotency_key: One mail per key.
            allow_duplicate: Send it even if sent minutes ago.
            wait_s: Seconds to wait for the relay.
            body_html: The HTML version.
            reply_all: Reply to all its recipients.
            attachments: Files: content in base64, or attachment_id of one.
            automatic: An automatic reply; refused if it answers automatic mail.
        """

    @operation("POST", "/v1/messages/{message_id}/forward")
    def forward_message(
        self,
        message_id: str,
        to: Addresses,
        *,
        reply_to: Addresses | None = None,
        headers: Mapping[str, str] | None = None,
        send_at: datetime | str | None = None,
        idempotency_key: str | None = None,
        allow_duplicate: bool | None = None,
        wait_s: int | None = None,
        body_text: str | None = None,
        body_html: str | None = None,
        cc: Addresses | None = None,
        bcc: Addresses | None = None,
        attachments: Files | None = None,
    ) -> Sent:
        """Forward a message with its attachments to someone else.

        Args:
            to: Recipients.
            reply_to: Reply-To.
            headers: Headers to add, X-… or List-… only.
            send_at: When to send it.
            idempotency_key: One mail per key.
            allow_duplicate: Send it even if sent minutes ago.
            wait_s: Seconds to wait for the relay.
            body_text: The text above it.
            body_html: Or in HTML.
            cc: Copies to.
            bcc: Hidden copies to.
            attachments: More files to send.
        """

    @operation("POST", "/v1/messages/{message_id}/unsubscribe")
    def unsubscribe(self, message_id: str) -> Unsubscribed:
        """Unsubscribe from the mailing list that sent a message, by one click or by mail.

        A list that offers only a web page is refused, because a person must open it.
        """
