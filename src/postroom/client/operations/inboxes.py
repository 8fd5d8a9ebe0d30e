"""Operations: inboxes. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.files import Download
from postroom.client.method import operation, pages
from postroom.client.responses import Page
from postroom.client.values.inputs import RecipientPatterns, SenderPatterns
from postroom.client.values.mail import (
    Attachment,
    AttachmentContent,
    AttachmentText,
    DownloadLink,
    FoundIds,
    Inbox,
    Label,
    Mailbox,
    Received,
    ReceivedPosting,
    Thread,
    ThreadRow,
)
from postroom.client.values.memories import InboxPolicy, Verdict
from postroom.client.values.records import Identity


class InboxesOperations:
    """Addresses whose mail is stored. Policies of inboxes: approval, recipients and senders.
    Mailboxes of an inbox, with counts. Labels of messages. Addresses to send from.
    Deliver raw mail. Find ids by their first characters. Threads of messages. Files that
    came with mail.
    """

    @operation("POST", "/v1/inboxes")
    def create_inbox(
        self,
        *,
        name: str | None = None,
        username: str | None = None,
        address: str | None = None,
        client_id: str | None = None,
    ) -> Inbox:
        """Create an inbox with its own e-mail address. Without arguments the address is random.

        Args:
            name: The name shown as sender.
            username: The part before the @; the domain is this server's.
            address: The whole address instead, at a domain of this server.
            client_id: Your own id; the same id returns the same inbox.
        """

    @pages("GET", "/v1/inboxes")
    def list_inboxes(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Inbox]:
        """List the inboxes you may use, oldest first."""

    @operation("GET", "/v1/inboxes/{inbox_id}")
    def get_inbox(self, inbox_id: str) -> Inbox:
        """Get one inbox."""

    @operation("PATCH", "/v1/inboxes/{inbox_id}")
    def rename_inbox(self, inbox_id: str, name: str) -> Inbox:
        """Change the name of an inbox; its address stays.

        Args:
            name: The new name.
        """

    @operation("DELETE", "/v1/inboxes/{inbox_id}")
    def delete_inbox(self, inbox_id: str, *, force: bool | None = None) -> None:
        """Delete an inbox permanently. An inbox with mail needs force.

        Args:
            force: Delete its mail with it.
        """

    @operation("GET", "/v1/inboxes/{inbox_id}/policy")
    def get_policy(self, inbox_id: str) -> InboxPolicy:
        """Read the policy of an inbox."""

    @operation("PATCH", "/v1/inboxes/{inbox_id}/policy")
    def set_policy(
        self,
        inbox_id: str,
        *,
        approval: Literal["never", "risky", "always"] | UnsetType | None = UNSET,
        recipients: RecipientPatterns | UnsetType | None = UNSET,
        senders: SenderPatterns | UnsetType | None = UNSET,
    ) -> InboxPolicy:
        """Set the policy of an inbox: approval, recipients and accepted senders.

        Args:
            approval: Which of its mail waits for approval.
            recipients: Recipients to trust or to refuse.
            senders: Which senders it accepts.
        """

    @operation("POST", "/v1/policy/test", raw=True)
    def check_policy(self, raw: bytes, *, key_id: str | None = None) -> Verdict:
        """Say whether a mail would be sent, held for approval or refused, and why.

        Nothing is sent. The policies of this key, or of the caller, apply.

        Args:
            raw: The mail (RFC 5322), with its From, To, Cc and Bcc.
            key_id: Test it as mail of this key.
        """

    @pages("GET", "/v1/mailboxes")
    def list_mailboxes(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
    ) -> Page[Mailbox]:
        """List the mailboxes of an inbox, or of all: messages in total and unread.

        Args:
            inbox_id: Only this inbox.
        """

    @pages("GET", "/v1/labels")
    def list_labels(
        self, *, limit: int | None = None, offset: int | None = None, cursor: str | None = None
    ) -> Page[Label]:
        """List the labels in use, by name."""

    @operation("PATCH", "/v1/labels/{label}")
    def rename_label(self, label: str, name: str) -> Label:
        """Rename a label on all messages you may see; if the new name exists, both are merged.

        Args:
            name: Its new name.
        """

    @operation("DELETE", "/v1/labels/{label}")
    def delete_label(self, label: str) -> None:
        """Remove a label from all messages you may see; the messages stay."""

    @pages("GET", "/v1/identities")
    def list_identities(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
    ) -> Page[Identity]:
        """List the addresses you may send from, oldest first.

        Args:
            inbox_id: Only this inbox.
        """

    @operation("POST", "/v1/identities")
    def create_alias(
        self,
        email: str,
        *,
        name: str | None = None,
        signature: str | None = None,
        inbox_id: str | None = None,
    ) -> Identity:
        """Create another address of an inbox, to send and receive.

        Args:
            email: At a domain of this server, or a plus-address.
            name: The name shown as sender.
            signature: The signature in HTML.
            inbox_id: The inbox, if you have several.
        """

    @operation("PATCH", "/v1/identities/{identity_id}")
    def update_identity(
        self,
        identity_id: str,
        *,
        name: str | UnsetType | None = UNSET,
        signature: str | UnsetType | None = UNSET,
        is_default: bool | UnsetType | None = UNSET,
    ) -> Identity:
        """Change the name or the signature of an identity, or make it its inbox's default.

        Args:
            name: The new name.
            signature: The signature in HTML; empty removes it.
            is_default: Make it the default sender.
        """

    @operation("DELETE", "/v1/identities/{identity_id}")
    def delete_identity(self, identity_id: str) -> None:
        """Remove an alias from its inbox; mail it has received stays there."""

    @operation("POST", "/v1/inbound", raw=True)
    def receive_message(self, recipient: str, raw: bytes) -> Received:
        """Deliver a raw mail (RFC 5322) to the inbox with this address.

        Args:
            recipient: The address of the inbox.
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
        """Receive mail from a provider's webhook.

        The provider posts in its own format and needs no key; its signature is verified.

        Args:
            headers: The headers of the request.
            raw: The body of the request, unchanged.
            format: Mailgun posts whole mails to URLs that end in mime.
        """

    @operation("GET", "/v1/ids/{prefix}")
    def find_ids(self, prefix: str) -> FoundIds:
        """Find the ids of inboxes, messages, threads or attachments that begin with a prefix.

        Args:
            prefix: The kind, such as msg_, and at least three characters.
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
        """List threads, the one with the newest message first.

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
        """Read a thread: its newest messages, oldest first, each with its new text.

        Args:
            limit: How many messages (default 50).
            before: Only messages before this one.
            include_text: Add the whole texts, including quotes.
            include_memories: Add memories about participants.
        """

    @operation("POST", "/v1/threads/merge")
    def merge_threads(self, thread_ids: Sequence[str]) -> Thread:
        """Merge several threads of one inbox into the first of them.

        Args:
            thread_ids: The threads; merged into the first.
        """

    @operation("POST", "/v1/threads/{thread_id}/split")
    def split_thread(self, thread_id: str, message_ids: Sequence[str]) -> Thread:
        """Move messages from a thread into a new one.

        Args:
            message_ids: The messages to move.
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
        """Get the metadata of one attachment."""

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
            format: text: of PDF, Office, HTML, CSV, calendar, mail, plain (default base64).
            offset: First byte or character.
            max_bytes: Bytes to read at most.
            max_chars: Cut the text here; default 12000.
        """

    @operation("GET", "/v1/attachments/{attachment_id}/content")
    def download_attachment(self, attachment_id: str) -> Download:
        """Download the bytes of an attachment."""

    @operation("GET", "/v1/attachments/{attachment_id}/link")
    def link_attachment(self, attachment_id: str, *, lasting_s: int | None = None) -> DownloadLink:
        """Get a temporary URL of an attachment that needs no key.

        Only if mail is stored in a bucket; anyone who has the URL can read the attachment.

        Args:
            lasting_s: Seconds until it expires (default 300).
        """
