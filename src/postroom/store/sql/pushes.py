"""Changes that were made here and belong to a provider: written with the change, done later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from postroom.model.remote import Push, RemoteRef
from postroom.model.sending import OPEN
from postroom.store.sql.values import dumps, from_text, seconds
from postroom.store.transaction import Transaction

INSERT = """
    INSERT INTO pushes (account, message, message_id, kind, change, attempts, next_at)
    VALUES (:account, :message, :message_id, :kind, :change, 0, :next_at)
"""
DUE = """
    SELECT number, message, message_id, kind, change, attempts FROM pushes
     WHERE account = :account AND next_at <= :now ORDER BY number LIMIT :limit
"""
PLACES = """
    SELECT scope, key, mailboxes FROM remotes WHERE message = :message AND is_gone = 0
     ORDER BY scope, key
"""
RAW = "SELECT raw, internet_id, details FROM messages WHERE inbox = :inbox AND number = :n"
_SEND_DRAFTS = ("outlook", "fastmail")
"""Where mail lies in Drafts until it is sent."""

_WHICH_DRAFT = "move_to"
"""Where the Message-ID of a draft is written: a version before this reads only the names of Delta,
and leaves alone what is in no place."""

Places = Sequence[tuple[RemoteRef, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The account that feeds an inbox."""

    account: int
    provider: str


def origin_of(tx: Transaction, inbox: int) -> Origin | None:
    """The account that feeds an inbox; None if it is local."""
    if (Origin, inbox) not in tx.known:
        row = tx.one("SELECT number, provider FROM accounts WHERE inbox = :inbox", inbox=inbox)
        tx.known[Origin, inbox] = Origin(*row) if row else None
    origin: Origin | None = tx.known[Origin, inbox]
    return origin


@dataclass(frozen=True, slots=True)
class Delta:
    """What is different after a change; only this is told to the provider."""

    add_flags: tuple[str, ...] = ()
    remove_flags: tuple[str, ...] = ()
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    move_to: str | None = None


def put_push(
    tx: Transaction, origin: Origin, number: int | None, message_id: str, delta: Delta
) -> None:
    """Let the provider hear of a change, if there is anything to hear."""
    if delta != Delta():
        _insert(tx, origin.account, number, message_id, "change", asdict(delta))


def put_deletion(tx: Transaction, origin: Origin, number: int, message_id: str) -> None:
    """Let the provider remove what was removed here; the places stay known until it has."""
    places = [list(row) for row in tx.all(PLACES, message=number)]
    tx.run("DELETE FROM pushes WHERE message = :n", n=number)
    tx.run("UPDATE remotes SET message = NULL WHERE message = :n", n=number)
    if places:
        _insert(tx, origin.account, None, message_id, "delete", {"places": places})


def put_removal(tx: Transaction, account: int, message_id: str, places: Places) -> None:
    """Let the provider remove what is of no use there any more."""
    rows = [[*ref, dumps(list(mailboxes))] for ref, mailboxes in places]
    _insert(tx, account, None, message_id, "delete", {"places": rows})


def drop_draft(tx: Transaction, inbox: int, number: int, message_id: str) -> None:
    """Have removed what lies in Drafts, where the provider takes mail from, and was not sent."""
    origin = origin_of(tx, inbox)
    row = tx.one(RAW, inbox=inbox, n=number)
    if origin is None or origin.provider not in _SEND_DRAFTS or row is None or row[1] is None:
        return
    keep_draft(tx, inbox, message_id)
    _insert(tx, origin.account, None, message_id, "drop_draft", {_WHICH_DRAFT: row[1]})


def keep_draft(tx: Transaction, inbox: int, message_id: str) -> None:
    """The mail is to be sent after all: what its next attempt puts into Drafts stays."""
    origin = origin_of(tx, inbox)
    if origin is not None:
        tx.run(
            """DELETE FROM pushes
                WHERE account = :account AND message_id = :id AND kind = 'drop_draft'""",
            account=origin.account,
            id=message_id,
        )


def keep_a_copy(
    tx: Transaction,
    inbox: int,
    number: int,
    message_id: str,
    *,
    statuses: Collection[str],
    at: int = 0,
) -> None:
    """Have a sent mail put into Sent once, where the provider does not do so by itself.

    Whether a provider has a mail that is `unknown` it may show only later: we look *at* then.
    """
    origin = origin_of(tx, inbox)
    if origin is None or not _lacks_a_copy(origin.provider, statuses):
        return
    known = tx.one(
        """SELECT 1 FROM remotes WHERE message = :n
           UNION ALL SELECT 1 FROM pushes WHERE message = :n AND kind = 'save_sent'""",
        n=number,
    )
    if known is None:
        next_at = at if "unknown" in statuses else 0
        _insert(tx, origin.account, number, message_id, "save_sent", {}, next_at=next_at)


def take_copy_back(
    tx: Transaction, inbox: int, number: int, message_id: str, *, statuses: Collection[str]
) -> None:
    """Remove the copy of a mail that the provider is asked to send after all: it makes its own.

    With JMAP the copy that is there is the one that is sent.
    """
    origin = origin_of(tx, inbox)
    if origin is None or origin.provider == "imap" or "delivered" not in statuses:
        return
    if origin.provider == "fastmail" or "sent" in statuses:
        tx.run("DELETE FROM pushes WHERE message = :n AND kind = 'save_sent'", n=number)
    else:
        put_deletion(tx, origin, number, message_id)


def _lacks_a_copy(provider: str, statuses: Collection[str]) -> bool:
    """An IMAP server never makes one; the others do when they send the mail, and only then."""
    if provider == "imap":
        return "delivered" in statuses or "sent" in statuses
    return "delivered" in statuses and not any(s in statuses for s in ("sent", *OPEN))


def _insert(
    tx: Transaction,
    account: int,
    number: int | None,
    message_id: str,
    kind: str,
    change: dict[str, object],
    *,
    next_at: int = 0,
) -> None:
    tx.run(
        INSERT,
        account=account,
        message=number,
        message_id=message_id,
        kind=kind,
        change=dumps(change),
        next_at=next_at,
    )
    tx.announce("accounts")


def due_pushes(tx: Transaction, account_id: str, now: datetime, limit: int) -> list[Push]:
    """What is to be told next, in the order in which it was done.

    What was done to a mail whose copy is to be made comes after: only then has it a place.
    """
    row = tx.one("SELECT number, inbox FROM accounts WHERE id = :id", id=account_id)
    if row is None:
        return []
    rows = tx.all(DUE, account=row[0], now=seconds(now), limit=limit)
    copied = {message: number for number, message, _, kind, *_ in rows if kind == "save_sent"}
    told = (push for push in rows if push[0] <= copied.get(push[1], push[0]))
    return [_push(tx, row[1], *push) for push in told]


def _push(
    tx: Transaction,
    inbox: int,
    number: int,
    message: int | None,
    message_id: str,
    kind: str,
    text: str,
    attempts: int,
) -> Push:
    change = from_text(text)
    places = change.pop("places", None)
    internet_id = change.pop(_WHICH_DRAFT) if kind == "drop_draft" else None
    if places is None:
        places = tx.all(PLACES, message=message)
    found = tx.one(RAW, inbox=inbox, n=message)
    delta = Delta(**{name: _fixed(value) for name, value in change.items()})
    return Push(
        number=number,
        message_id=message_id,
        kind=kind,  # type: ignore[arg-type]
        refs=tuple((RemoteRef(p[0], p[1]), tuple(from_text(p[2]))) for p in places),
        add_flags=delta.add_flags,
        remove_flags=delta.remove_flags,
        add_labels=delta.add_labels,
        remove_labels=delta.remove_labels,
        move_to=delta.move_to,
        raw=found[0] if found else None,
        internet_message_id=found[1] if found else internet_id,
        recipients=_recipients(found[2]) if found and kind == "save_sent" else (),
        attempts=attempts,
    )


def _recipients(details: str) -> tuple[str, ...]:
    return tuple(recipient["address"] for recipient in from_text(details)["recipients"] or ())


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def defer_push(tx: Transaction, push: Push, next_at: datetime) -> None:
    """Try a change again later; those after it on the same message wait too."""
    tx.run(
        """UPDATE pushes SET attempts = attempts + 1, next_at = :next_at
            WHERE number = :n OR (message_id = :message_id AND number > :n)""",
        next_at=seconds(next_at),
        n=push.number,
        message_id=push.message_id,
    )


def next_push_at(tx: Transaction, account_id: str) -> int | None:
    """When the next change is due, in seconds; None if there is none."""
    row = tx.one(
        """SELECT min(p.next_at) FROM pushes p JOIN accounts a ON a.number = p.account
            WHERE a.id = :id""",
        id=account_id,
    )
    return row[0] if row else None
