"""Keyboard shortcuts: the one table of the help on each page, the script and docs/web.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from postroom.surfaces.web.page import Link


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Keys as a browser names them, what they do, and the name of that in the script.

    Keys with a space between them are pressed one after the other.
    """

    keys: tuple[str, ...]
    words: str
    action: str


SHORTCUTS: dict[str, tuple[Shortcut, ...]] = {
    "In the list": (
        Shortcut(("j", "ArrowDown"), "next message", "next"),
        Shortcut(("k", "ArrowUp"), "previous message", "previous"),
        Shortcut(("Enter",), "open the message", ""),
        Shortcut(("Escape",), "back to the list", "return"),
        Shortcut(("x",), "select the message", "select"),
        Shortcut(("/",), "search", "search"),
    ),
    "With the current or selected messages": (
        Shortcut(("e",), "archive", "archive"),
        Shortcut(("#",), "move to Trash", "trash"),
        Shortcut(("u",), "mark as read or unread", "toggle-read"),
        Shortcut(("s",), "add or remove the flag", "toggle-flag"),
        Shortcut(("r",), "reply", "reply"),
        Shortcut(("a",), "reply to all", "reply-all"),
        Shortcut(("f",), "forward", "forward"),
        Shortcut(("z",), "undo the last change", "undo"),
    ),
    "Anywhere": (
        Shortcut(("c",), "new message", "compose"),
        Shortcut(("?",), "show this help", "help"),
    ),
}

GO_TO = {
    "/": "v",
    "/mail": "i",
    "/outgoing": "o",
    "/drafts": "d",
    "/rules": "r",
    "/memories": "m",
    "/accounts": "a",
    "/keys": "k",
    "/webhooks": "w",
    "/events": "e",
    "/audit": "u",
    "/health": "h",
    "/connect": "c",
    "/sessions": "s",
}
"""The key that opens a page, after `g`."""

SHOWN = {"ArrowDown": "↓", "ArrowUp": "↑", "Escape": "Esc"}
"""Keys that are shown by another name."""


def shortcuts_for(links: Iterable[Link]) -> dict[str, tuple[Shortcut, ...]]:
    """The shortcuts by group, with those to the pages that a person may open."""
    return {**SHORTCUTS, "Go to": tuple(_go_to(links))}


def _go_to(links: Iterable[Link]) -> Iterator[Shortcut]:
    for link in links:
        if key := GO_TO.get(link.path):
            yield Shortcut((f"g {key}",), link.title, link.path)
