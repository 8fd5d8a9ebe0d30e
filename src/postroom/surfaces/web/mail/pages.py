"""The table of the pages of mail."""

from __future__ import annotations

from postroom.operations.attachments import download_message
from postroom.surfaces.web.mail import changing, listing, reading, writing
from postroom.surfaces.web.page import Document, File, Form, Page

LIST = Page("/mail", "mail/list.html", listing.panes)
MESSAGE = Page("/mail/{message_id}", "mail/message.html", reading.message)
COMPOSE = Page("/compose", "mail/compose.html", writing.compose)

PAGES: tuple[Page, ...] = (LIST, MESSAGE, COMPOSE)

DOCUMENTS: tuple[Document, ...] = (Document("/mail/{message_id}/html", reading.framed_html),)

FILES: tuple[File, ...] = (File("/mail/{message_id}/source", download_message),)

FORMS: tuple[Form, ...] = (
    Form("/mail", changing.change, LIST),
    Form("/mail/{message_id}", changing.change, MESSAGE),
    Form("/undo", changing.undo, LIST),
    Form("/compose", writing.send, COMPOSE),
)

NOTICES = {
    "changed": "Changed.",
    "changed in part": "Changed, but not all of it: some of the mail is gone.",
    "undone": "Taken back.",
    "saved": "Saved as a draft.",
    "held": "Held: it leaves when it is approved.",
    "scheduled": "It leaves at its time.",
    "queued": "It leaves with the next attempt.",
    "captured": "Kept here: without a relay, mail to other servers does not leave.",
}
