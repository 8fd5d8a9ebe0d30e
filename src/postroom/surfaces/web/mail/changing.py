"""Changes of one mail or of many that are ticked, and taking them back."""

from __future__ import annotations

from typing import Any

from postroom.errors import Conflict, InvalidInput
from postroom.model.inbox import ARCHIVE, INBOX
from postroom.operations.mail.bulk_changes import update_messages
from postroom.operations.rules import undo_rule_plan
from postroom.surfaces.web.mail.listing import mail_url, place_of
from postroom.surfaces.web.page import Redirect, Visit

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


def _change_of(visit: Visit, do: str) -> dict[str, Any]:
    """The arguments of a change. Raises InvalidInput."""
    if do in _CHANGES:
        return _CHANGES[do]
    if do not in _WITH_A_NAME:
        raise InvalidInput("choose an action")
    argument, advice = _WITH_A_NAME[do]
    name = visit.form.get("mailbox" if do == "move" else "label", "").strip()
    if not name:
        raise InvalidInput(advice)
    return {argument: name if do == "move" else [name]}


async def change(visit: Visit) -> Redirect:
    """Change the ticked mail; the next page offers to take it back."""
    do, place = visit.form.get("do", ""), place_of(visit.query)
    ids = visit.posted.all("id")
    if not ids:
        raise InvalidInput("select at least one message first")
    result: Any = await visit.call(update_messages, message_ids=ids, **_change_of(visit, do))
    if result.status == "failed":
        raise Conflict(result.failed[0].message)
    opened = "" if do in _LEAVES else visit.path.get("message_id", "")
    undo = {"undo": result.undo_id} if result.undo_id else {}
    notice = _NOTICES[do] if result.status == "ok" else "changed in part"
    return Redirect(mail_url(place, opened, **undo), notice)


async def undo(visit: Visit) -> Redirect:
    """Take a change back."""
    await visit.call(undo_rule_plan, plan_id=visit.form.get("undo_id", ""))
    return Redirect(mail_url(place_of(visit.query)), "undone")
