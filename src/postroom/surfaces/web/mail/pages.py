"""The table of the pages of mail."""

from __future__ import annotations

from postroom.operations.mail.attachments import download_message
from postroom.surfaces.web.mail import agent_view, changing, listing, reading, writing
from postroom.surfaces.web.page import Document, File, Form, Link, Page, Section

LIST = Page("/mail", "mail/list.html", listing.panes)
MESSAGE = Page("/mail/{message_id}", "mail/message.html", reading.message)
COMPOSE = Page("/compose", "mail/compose.html", writing.compose)

INBOXES = Page("/inboxes", "mail/places.html", listing.all_inboxes)
LABELS = Page("/labels", "mail/places.html", listing.all_labels)

SECTION = Section(
    links=(Link("Mail", "/mail"),),
    pages=(LIST, MESSAGE, COMPOSE, INBOXES, LABELS),
    documents=(
        Document("/mail/{message_id}/html", reading.framed_html),
        Document("/mail/{message_id}/marked", agent_view.framed_marks),
    ),
    files=(File("/mail/{message_id}/source", download_message),),
    forms=(
        Form("/mail", changing.change, LIST),
        Form("/mail/{message_id}", changing.change, MESSAGE),
        Form("/mail/{message_id}/unsubscribe", reading.leave_list, MESSAGE),
        Form("/undo", changing.undo, LIST),
        Form("/compose", writing.send, COMPOSE),
    ),
    notices={
        **changing.NOTICES,
        "unsubscribed": "Unsubscribe request sent.",
        "saved": "Draft saved.",
        "held": "Held for approval. It is sent once it is approved.",
        "scheduled": "Scheduled.",
        "queued": "Queued. It is sent with the next attempt.",
        "captured": "Not sent: without a relay, messages to other servers stay here.",
    },
)
