"""Ids that were given for another thing, refused with the name of the tool that takes them."""

from __future__ import annotations

from postroom.errors import InvalidInput

READERS = {
    "thr": "get_thread",
    "att": "get_attachment_content",
    "inb": "list_messages",
    "imap:": "imap_get_message",
}
"""What reads an id that was given for a message's and is another."""

_KINDS = {"inbox_id": "inb", "thread_id": "thr", "message_id": "msg"}
_TOOLS = {
    "inb": "list_messages(inbox_id)",
    "thr": "get_thread",
    "msg": "get_message",
    "att": "get_attachment_content",
}


def check_kinds(**ids: str | None) -> None:
    """Refuse an id that is of another kind than its argument wants. Raises InvalidInput."""
    for name, given in ids.items():
        prefix = (given or "").partition("_")[0]
        if given and prefix != _KINDS[name] and prefix in _TOOLS and "_" in given:
            raise InvalidInput(
                f"{name}: {given} is no {_KINDS[name]}_ id; {_TOOLS[prefix]} is for it"
            )


def refuse_other_kind(given: str, wanted: str, readers: dict[str, str]) -> None:
    """Refuse an id of another kind with the name of the tool that takes it."""
    for prefix, tool in readers.items():
        if given.startswith(prefix if prefix.endswith(":") else f"{prefix}_"):
            raise InvalidInput(f"{given} is not a {wanted}_ id; use {tool} for it")
