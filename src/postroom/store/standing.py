"""What the facts say of a house: alive, on its way here, moved away, or a backup of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from postroom.errors import Conflict
from postroom.store.transaction import Transaction

Kind = Literal["PostgreSQL", "folder"]

FACTS = """
    SELECT name, value FROM facts WHERE name IN ('moving', 'moved', 'kept', 'secret', 'seal')
"""
FORGET = "DELETE FROM facts WHERE name IN ('moved', 'kept')"
KEEP = "INSERT INTO facts (name, value) VALUES ('kept', :value)"
LEAVE = "INSERT INTO facts (name, value) VALUES ('moved', :value)"
STAY = "DELETE FROM facts WHERE name = 'moved'"
MOVED = "SELECT name, value FROM facts WHERE name = 'moved'"
IS_HELD = "SELECT 1 FROM facts WHERE name IN ('moved', 'kept')"

HALF_MOVED = (
    "`postroom migrate` has not finished here, so not everything is there; run it again, with the "
    "same --from and --to, or empty this place"
)
_MOVED: Mapping[Kind, str] = {
    "PostgreSQL": "this mail has moved to PostgreSQL: set POSTROOM_DATABASE_URL to its address, "
    "also where an MCP client starts Postroom",
    "folder": "this mail has moved to another folder: name that one with --data, without "
    "POSTROOM_DATABASE_URL, also where an MCP client starts Postroom",
}
_COME_BACK = (
    "To undo it, run `postroom migrate` from there into an empty place; if it is lost, see "
    "docs/operations.md, Moving house"
)
HELD = (
    "nothing is sent from a backup, or from what a move has left behind; bring it back with "
    "`postroom restore` or `postroom migrate` (docs/operations.md)"
)


def facts_of(tx: Transaction) -> dict[str, bytes]:
    """The facts that say how a house stands."""
    return {str(name): bytes(value) for name, value in tx.all(FACTS)}


def refuse_half_moved(facts: Mapping[str, bytes]) -> None:
    """Raise Conflict if only a part of a house is there."""
    if "moving" in facts:
        raise Conflict(HALF_MOVED)


def refuse_moved(facts: Mapping[str, bytes]) -> None:
    """Raise Conflict if a house is elsewhere by now: what happens there must not happen twice."""
    if "moved" in facts:
        to: Kind = "PostgreSQL" if facts["moved"].endswith(b"PostgreSQL") else "folder"
        raise Conflict(f"{_MOVED[to]}. {_COME_BACK}")


def refuse_held(tx: Transaction) -> None:
    """Raise Conflict if nothing may leave from here, whoever asks for it."""
    if tx.one(IS_HELD) is not None:
        raise Conflict(HELD)


def leave(tx: Transaction, facts: Mapping[str, bytes], token: bytes, to: Kind) -> None:
    """Write down that all is elsewhere from now on, if it is not so already.

    Raises:
        Conflict: it went to another place meanwhile.
    """
    if has_left_to(facts, token):
        return
    refuse_moved(facts)
    tx.run(LEAVE, value=token + to.encode())


def stay(tx: Transaction, facts: Mapping[str, bytes], token: bytes) -> None:
    """Take back that all is in the place that has this token."""
    if has_left_to(facts, token):
        tx.run(STAY)


def has_left_to(facts: Mapping[str, bytes], token: bytes) -> bool:
    """Whether a house has moved, to the place that has this token."""
    return "moved" in facts and facts["moved"].startswith(token)


def keep(tx: Transaction) -> int:
    """Make a copy a backup: it sends nothing until it is brought back. No mail is held for it."""
    tx.run(FORGET)
    tx.run(KEEP, value=b"\1")
    return 0
