"""The table of pages and forms."""

from __future__ import annotations

from postroom.operations.approvals import approve_message, reject_message
from postroom.operations.attachments import download_attachment
from postroom.operations.outbox import retry_message
from postroom.surfaces.web import outgoing, signing_in
from postroom.surfaces.web.mail import pages as mail
from postroom.surfaces.web.page import Document, File, Form, Page

SIGN_IN = Page("/signin", "signin.html", signing_in.sign_in_page, is_public=True)
SESSIONS = Page("/sessions", "sessions.html", signing_in.sessions)
OUTGOING_MAIL = Page("/outgoing/{message_id}", "outgoing_mail.html", outgoing.outgoing_mail)
DRAFT = Page("/drafts/{draft_id}", "draft.html", outgoing.draft)

PAGES: tuple[Page, ...] = (
    Page("/", "overview.html", outgoing.overview),
    Page("/outgoing", "outgoing.html", outgoing.outgoing),
    OUTGOING_MAIL,
    *mail.PAGES,
    Page("/drafts", "drafts.html", outgoing.drafts),
    DRAFT,
    SESSIONS,
    SIGN_IN,
)

DOCUMENTS: tuple[Document, ...] = mail.DOCUMENTS

FILES: tuple[File, ...] = (
    File("/attachments/{attachment_id}", download_attachment),
    *mail.FILES,
)

FORMS: tuple[Form, ...] = (
    Form(
        "/outgoing/{message_id}/approve",
        approve_message,
        OUTGOING_MAIL,
        fields=("sha256",),
        then="/outgoing",
        says="approved",
    ),
    Form(
        "/outgoing/{message_id}/reject",
        reject_message,
        OUTGOING_MAIL,
        fields=("sha256", "note"),
        then="/outgoing",
        says="rejected",
    ),
    Form("/outgoing/{message_id}/edit", outgoing.edit, OUTGOING_MAIL),
    Form(
        "/outgoing/{message_id}/retry",
        retry_message,
        OUTGOING_MAIL,
        then="/outgoing",
        says="retried",
    ),
    *mail.FORMS,
    Form("/drafts/{draft_id}", outgoing.save_and_send, DRAFT),
    Form("/drafts/{draft_id}/discard", outgoing.discard, DRAFT),
    Form("/signin", signing_in.sign_in, SIGN_IN, is_public=True),
    Form("/signout", signing_in.sign_out, SESSIONS),
    Form("/sessions/end-all", signing_in.end_all_sessions, SESSIONS),
    Form("/sessions/{session_id}/end", signing_in.end_session, SESSIONS),
)

NOTICES = {
    **mail.NOTICES,
    "approved": "Approved. The mail leaves now, or at its time.",
    "rejected": "Rejected. The mail does not leave; its sender is told.",
    "taken back": "Taken back. Change the mail and send it; the policies look at it again.",
    "held again": "Sent, and held again: look at it once more and approve it.",
    "retried": "It is tried again, unless it is held first.",
    "sent": "Sent.",
    "stopped": "Stopped for those who did not have it yet.",
    "discarded": "The draft is gone.",
    "ended": "The session has ended.",
    "signed out": "You are signed out.",
    "signed out everywhere": "Every session has ended.",
}
"""What is said after a form, by its name in the query: nobody else can put words there."""
