"""Operations: outgoing. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import UNSET, UnsetType

from postroom.client.files import Files
from postroom.client.method import Addresses, operation, pages
from postroom.client.responses import Page
from postroom.client.values.records import Draft, HeldMail, OutboxEntry, OutboxState, Sent


class OutgoingOperations:
    """Mail that has not been sent yet. Outgoing mail and its status."""

    @operation("POST", "/v1/drafts")
    def create_draft(
        self,
        *,
        reply_to: Addresses | None = None,
        headers: Mapping[str, str] | None = None,
        to: Addresses | None = None,
        subject: str | None = None,
        body_text: str | None = None,
        body_html: str | None = None,
        cc: Addresses | None = None,
        bcc: Addresses | None = None,
        in_reply_to: str | None = None,
        attachments: Files | None = None,
        inbox_id: str | None = None,
        from_: str | None = None,
        thread_id: str | None = None,
        send_at: datetime | str | None = None,
    ) -> Draft:
        """Write a mail without sending it; send_draft sends it, at send_at if given.

        With in_reply_to or thread_id, to and subject are optional: they are taken from the
        mail that it answers.

        Args:
            reply_to: Reply-To.
            headers: Headers to add, X-… or List-… only.
            to: Recipients.
            body_text: The text.
            body_html: The HTML version.
            cc: Copies to.
            bcc: Hidden copies to.
            in_reply_to: What this answers: id or Message-ID.
            attachments: Files: content in base64, or attachment_id of one.
            inbox_id: Inbox to send from, if several.
            from_: Address to send from.
            thread_id: Reply in this thread.
            send_at: Time at which send_draft delivers it.
        """

    @pages("GET", "/v1/drafts")
    def list_drafts(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        inbox_id: str | None = None,
    ) -> Page[Draft]:
        """List drafts that have not been sent, newest first.

        Args:
            inbox_id: Only this inbox.
        """

    @operation("GET", "/v1/drafts/{draft_id}")
    def get_draft(self, draft_id: str) -> Draft:
        """Read a draft."""

    @operation("PATCH", "/v1/drafts/{draft_id}")
    def update_draft(
        self,
        draft_id: str,
        *,
        to: Addresses | UnsetType | None = UNSET,
        cc: Addresses | UnsetType | None = UNSET,
        bcc: Addresses | UnsetType | None = UNSET,
        subject: str | UnsetType | None = UNSET,
        body_text: str | UnsetType | None = UNSET,
        body_html: str | UnsetType | None = UNSET,
        attachments: Files | UnsetType | None = UNSET,
        in_reply_to: str | UnsetType | None = UNSET,
        thread_id: str | UnsetType | None = UNSET,
        send_at: datetime | str | UnsetType | None = UNSET,
        reply_to: Addresses | UnsetType | None = UNSET,
        headers: Mapping[str, str] | UnsetType | None = UNSET,
    ) -> Draft:
        """Change a draft; omitted fields stay, and null clears a field.

        Args:
            to: Recipients.
            cc: Copies to.
            bcc: Hidden copies to.
            body_text: The text.
            body_html: The HTML version.
            attachments: All files.
            in_reply_to: What this answers: id or Message-ID.
            thread_id: Reply in this thread.
            send_at: Time at which send_draft delivers it.
            reply_to: Reply-To.
            headers: All extra headers.
        """

    @operation("DELETE", "/v1/drafts/{draft_id}")
    def delete_draft(self, draft_id: str) -> None:
        """Delete a draft."""

    @operation("POST", "/v1/drafts/{draft_id}/send")
    def send_draft(self, draft_id: str, *, idempotency_key: str | None = None) -> Sent:
        """Send a draft, at its send_at if that is in the future.

        A repeated request sends it once.

        Args:
            idempotency_key: One mail per key.
        """

    @pages("GET", "/v1/outbox")
    def list_outbox(
        self,
        *,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        status: Literal[
            "queued",
            "scheduled",
            "held",
            "sent",
            "failed",
            "bounced",
            "rejected",
            "unknown",
            "captured",
        ]
        | None = None,
    ) -> Page[OutboxEntry]:
        """List messages that have not been delivered: held, rejected, queued, scheduled, failed,
        bounced, unknown.

        Args:
            status: Only with this status.
        """

    @operation("POST", "/v1/outbox/pause")
    def pause_outbox(self) -> OutboxState:
        """Pause all outgoing mail until the outbox is resumed."""

    @operation("POST", "/v1/outbox/resume")
    def resume_outbox(self) -> OutboxState:
        """Resume sending after a pause."""

    @operation("GET", "/v1/outbox/{message_id}")
    def get_held_mail(self, message_id: str) -> HeldMail:
        """Read a mail that waits for approval: text, recipients, reasons, sha256."""

    @operation("POST", "/v1/outbox/{message_id}/approve")
    def approve_message(self, message_id: str, sha256: str) -> Sent:
        """Approve a held mail: exactly the mail with this sha256 is sent, once.

        Args:
            sha256: The sha256 of the mail that you have seen.
        """

    @operation("POST", "/v1/outbox/{message_id}/reject")
    def reject_message(self, message_id: str, sha256: str, *, note: str | None = None) -> Sent:
        """Reject a held mail: it is never sent. The note is shown to its sender.

        Args:
            sha256: The sha256 of the mail that you have seen.
            note: The reason, shown to its sender.
        """

    @operation("POST", "/v1/outbox/{message_id}/retry")
    def retry_message(self, message_id: str) -> Sent:
        """Send a message again to recipients who did not get it: failed, bounced, unknown,
        captured or waiting.
        """

    @operation("POST", "/v1/outbox/{message_id}/cancel")
    def cancel_message(self, message_id: str) -> Sent:
        """Stop a message that is queued or scheduled: it becomes a draft again.

        If a recipient already has it, it is stopped for the others only.
        """
