"""The words of the language: fields, operators and actions, as tables."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Sort = Literal["text", "names", "number", "truth"]

FIELDS: dict[str, Sort] = {
    "from": "text",
    "to": "text",
    "cc": "text",
    "subject": "text",
    "text": "text",
    "header.X": "text",
    "label": "names",
    "flag": "names",
    "mailbox": "names",
    "has_attachment": "truth",
    "attachment.name": "text",
    "attachment.type": "text",
    "size_bytes": "number",
    "age_days": "number",
    "list_id": "text",
    "auth": "text",
}
"""What a condition can look at. `header.X` is any header, such as `header.X-Priority`."""

OPERATORS: dict[Sort, tuple[str, ...]] = {
    "text": ("equals", "contains", "matches", "regex", "in", "exists"),
    "names": ("equals", "contains", "matches", "regex", "in", "exists"),
    "number": ("equals", "greater_than", "less_than", "in", "exists"),
    "truth": ("equals", "exists"),
}
"""How each sort of field can be compared; `not` goes in front of any of them."""

GROUPS = ("all", "any", "none", "not")


@dataclass(frozen=True, slots=True)
class Deed:
    """An action: what it takes, under which names the flat form gives it, and what it does."""

    takes: str
    names: tuple[str, ...]
    does: str


ACTIONS: dict[str, Deed] = {
    "apply_label": Deed("a label", ("label",), "puts a label on the message"),
    "remove_label": Deed("a label", ("label",), "takes a label off"),
    "move": Deed("a mailbox", ("mailbox", "destination", "to"), "moves it to a mailbox"),
    "mark_read": Deed("", (), "sets the flag `seen`"),
    "mark_unread": Deed("", (), "takes the flag `seen` away"),
    "flag": Deed("", (), "sets the flag `flagged`"),
    "unflag": Deed("", (), "takes the flag `flagged` away"),
    "archive": Deed("", (), "moves it to Archive"),
    "delete": Deed("", (), "moves it to Trash"),
    "forward": Deed("an address", ("to", "address"), "sends it on, with its attachments"),
    "reply": Deed("a text", ("text", "body"), "answers the sender, if a person wrote it"),
    "webhook": Deed("whk_… or a URL", ("webhook", "url"), "tells a webhook of it"),
    "remember": Deed("{key, text}", ("key", "text"), "keeps a memory"),
    "stop": Deed("", (), "ends the chain: no later rule sees the message"),
}
"""What a rule can do."""


def closest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant; empty if none is near."""
    found = difflib.get_close_matches(word.lower()[:64], list(known), n=1)
    return found[0] if found else ""
