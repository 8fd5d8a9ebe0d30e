"""The table of the pages of mail, and changes of one mail or of many, with undo."""

from __future__ import annotations

from typing import Any

from postroom.errors import Conflict, InvalidInput
from postroom.model.inbox import ARCHIVE, INBOX
from postroom.operations.mail.attachments import download_message
from postroom.operations.mail.bulk_changes import update_messages
from postroom.operations.rules import undo_rule_plan
from postroom.surfaces.web.mail import listing, reading, writing
from postroom.surfaces.web.mail.listing import mail_url, place_of
from postroom.surfaces.web.page import (
    Document,
    File,
    Form,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
)

_CHANGES: dict[str, dict[str, Any]] = {
    "read": {"add_flags": ["seen"]},
    "unread": {"remove_flags": ["seen"]},
    "flag": {"add_flags": ["flagged"]},
    "unflag": {"remove_flags": ["flagged"]},
    "archive": {"mailbox": ARCHIVE},
    "inbox": {"mailbox": INBOX},
    "trash": {"trash": True},
}
_WITH_A_NAME = {
    "move": ("mailbox", "choose the mailbox to move to"),
    "label": ("add_labels", "type the label to add"),
    "unlabel": ("remove_labels", "type the label to remove"),
}
_NOTICES = {
    "read": "marked as read",
    "unread": "marked as unread",
    "flag": "flagged",
    "unflag": "flag removed",
    "archive": "archived",
    "inbox": "moved to Inbox",
    "trash": "moved to Trash",
    "move": "moved",
    "label": "label added",
    "unlabel": "label removed",
}
NOTICES = {name: f"{name[:1].upper()}{name[1:]}." for name in _NOTICES.values()} | {
    "changed in part": "Changed in part: some of the messages no longer exist.",
    "undone": "Undone.",
}
_LEAVES = ("archive", "trash", "move", "inbox")
"""Changes after which a mail is not in the list any more."""


def _change_of(request: PageRequest, do: str) -> dict[str, Any]:
    """The arguments of a change. Raises InvalidInput."""
    if do in _CHANGES:
        return _CHANGES[do]
    if do not in _WITH_A_NAME:
        raise InvalidInput("choose an action")
    argument, advice = _WITH_A_NAME[do]
    name = request.form.get("mailbox" if do == "move" else "label", "").strip()
    if not name:
        raise InvalidInput(advice)
    return {argument: name if do == "move" else [name]}


async def change(request: PageRequest) -> Redirect:
    """Change the selected mail; the next page offers to undo this."""
    do, place = request.form.get("do", ""), place_of(request)
    ids = request.posted.all("id")
    if not ids:
        raise InvalidInput("select at least one message first")
    result: Any = await request.call(update_messages, message_ids=ids, **_change_of(request, do))
    if result.status == "failed":
        raise Conflict(result.failed[0].message)
    opened = "" if do in _LEAVES else request.path.get("message_id", "")
    undo = {"undo": result.undo_id} if result.undo_id else {}
    notice = _NOTICES[do] if result.status == "ok" else "changed in part"
    return Redirect(mail_url(place, opened, **undo), notice)


async def undo(request: PageRequest) -> Redirect:
    """Undo a change."""
    await request.call(undo_rule_plan, plan_id=request.form.get("undo_id", ""))
    return Redirect(mail_url(place_of(request)), "undone")


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
        Document("/mail/{message_id}/marked", reading.framed_marks),
    ),
    files=(File("/mail/{message_id}/source", download_message),),
    forms=(
        Form("/mail", change, LIST),
        Form("/mail/{message_id}", change, MESSAGE),
        Form("/mail/{message_id}/unsubscribe", reading.unsubscribe_list, MESSAGE),
        Form("/undo", undo, LIST),
        Form("/compose", writing.send, COMPOSE),
    ),
    notices={
        **NOTICES,
        "unsubscribed": "Unsubscribe request sent.",
        "saved": "Draft saved.",
        "held": "Held for approval. It is sent once it is approved.",
        "scheduled": "Scheduled.",
        "queued": "Queued. It is sent with the next attempt.",
        "captured": "Not sent: without a relay, messages to other servers stay here.",
    },
)
