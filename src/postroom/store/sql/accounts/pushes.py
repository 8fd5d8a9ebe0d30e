"""Pushes: local changes for a provider, written with the change and sent later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from postroom.model.account import TRAITS, ProviderName, ProviderTraits, Push, RemoteRef
from postroom.model.mail.sending import PENDING_STATUSES
from postroom.model.values import dataclass
from postroom.store.sql.statements import dumps, from_text, insert, moment_or_none, scalar, seconds
from postroom.store.transaction import Transaction

_PLACES = "SELECT 1 FROM remote_messages r WHERE r.message = p.message"
_HAS_KNOWN_PLACE = f"(EXISTS ({_PLACES} AND r.is_removed = 0) OR NOT EXISTS ({_PLACES}))"
"""Some servers do not report where a moved message is; the next pull finds it."""

DUE = f"""
    SELECT p.number, p.message, p.message_id, p.kind, p.change, p.attempts FROM pushes p
     WHERE p.account = :account AND p.next_at <= :now AND {_HAS_KNOWN_PLACE}
     ORDER BY p.number LIMIT :limit
"""
PLACES = """
    SELECT scope, key, mailboxes FROM remote_messages WHERE message = :message AND is_removed = 0
     ORDER BY scope, key
"""
RAW = "SELECT raw, internet_id, details FROM messages WHERE inbox = :inbox AND number = :n"
_DRAFT_FIELD = "move_to"
"""The field with the Message-ID of a draft.

Older versions read only the names of Delta, and ignore a push without a place.
"""

Places = Sequence[tuple[RemoteRef, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class FeedingAccount:
    """The account that feeds an inbox."""

    account: int
    provider: ProviderName

    @property
    def traits(self) -> ProviderTraits:
        """How the provider of the account treats mail."""
        return TRAITS[self.provider]


def account_feeding(tx: Transaction, inbox: int) -> FeedingAccount | None:
    """The account that feeds an inbox; None if it is local."""
    if (FeedingAccount, inbox) not in tx.known:
        row = tx.one("SELECT number, provider FROM accounts WHERE inbox = :inbox", inbox=inbox)
        tx.known[FeedingAccount, inbox] = FeedingAccount(*row) if row else None
    feeding_account: FeedingAccount | None = tx.known[FeedingAccount, inbox]
    return feeding_account


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference that a change makes, which is pushed to the provider."""

    add_flags: tuple[str, ...] = ()
    remove_flags: tuple[str, ...] = ()
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    move_to: str | None = None


def insert_push(
    tx: Transaction,
    feeding_account: FeedingAccount,
    number: int | None,
    message_id: str,
    delta: Delta,
) -> None:
    """Insert a push for a change, unless it changes nothing."""
    if delta != Delta():
        _insert(tx, feeding_account.account, number, message_id, "change", asdict(delta))


def insert_deletion_push(
    tx: Transaction, feeding_account: FeedingAccount, number: int, message_id: str
) -> None:
    """Insert a push for a deleted message; its places stay known until the push is done."""
    places = [list(row) for row in tx.all(PLACES, message=number)]
    tx.run("DELETE FROM pushes WHERE message = :n", n=number)
    tx.run("UPDATE remote_messages SET message = NULL WHERE message = :n", n=number)
    if places:
        _insert(tx, feeding_account.account, None, message_id, "delete", {"places": places})


def insert_removal_push(tx: Transaction, account: int, message_id: str, places: Places) -> None:
    """Insert a push that removes messages at the provider."""
    rows = [[*ref, dumps(list(mailboxes))] for ref, mailboxes in places]
    _insert(tx, account, None, message_id, "delete", {"places": rows})


def drop_draft(tx: Transaction, inbox: int, number: int, message_id: str) -> None:
    """Remove the draft of an unsent mail at a provider that sends from Drafts."""
    feeding_account = account_feeding(tx, inbox)
    row = tx.one(RAW, inbox=inbox, n=number)
    if feeding_account is None or row is None or row[1] is None:
        return
    if not feeding_account.traits.sends_from_drafts:
        return
    cancel_draft_removal(tx, inbox, message_id)
    _insert(tx, feeding_account.account, None, message_id, "drop_draft", {_DRAFT_FIELD: row[1]})


def cancel_draft_removal(tx: Transaction, inbox: int, message_id: str) -> None:
    """Cancel the removal of a draft, because its mail is sent again."""
    feeding_account = account_feeding(tx, inbox)
    if feeding_account is not None:
        tx.run(
            """DELETE FROM pushes
                WHERE account = :account AND message_id = :id AND kind = 'drop_draft'""",
            account=feeding_account.account,
            id=message_id,
        )


def insert_sent_copy(
    tx: Transaction,
    inbox: int,
    number: int,
    message_id: str,
    *,
    statuses: Collection[str],
    at: int = 0,
) -> None:
    """Insert a push that stores a sent mail in Sent, unless the provider does so itself.

    A provider may list a mail of status `unknown` only later, so that one is checked *at* a later
    time.
    """
    feeding_account = account_feeding(tx, inbox)
    if feeding_account is None or not _needs_sent_copy(feeding_account.traits, statuses):
        return
    known = tx.one(
        """SELECT 1 FROM remote_messages WHERE message = :n
           UNION ALL SELECT 1 FROM pushes WHERE message = :n AND kind = 'save_sent'""",
        n=number,
    )
    if known is None:
        next_at = at if "unknown" in statuses else 0
        _insert(tx, feeding_account.account, number, message_id, "save_sent", {}, next_at=next_at)


def remove_sent_copy(
    tx: Transaction, inbox: int, number: int, message_id: str, *, statuses: Collection[str]
) -> None:
    """Remove the stored copy of a mail that the provider sends again and stores itself.

    Where the provider sends the copy itself, only the pending push is removed.
    """
    feeding_account = account_feeding(tx, inbox)
    if (
        feeding_account is None
        or not feeding_account.traits.copies_to_sent
        or "delivered" not in statuses
    ):
        return
    if feeding_account.traits.sends_sent_copy or "sent" in statuses:
        tx.run("DELETE FROM pushes WHERE message = :n AND kind = 'save_sent'", n=number)
    else:
        insert_deletion_push(tx, feeding_account, number, message_id)


def _needs_sent_copy(traits: ProviderTraits, statuses: Collection[str]) -> bool:
    """Whether Sent has no copy: a provider makes one only when it sends the mail, or never."""
    if not traits.copies_to_sent:
        return "delivered" in statuses or "sent" in statuses
    return "delivered" in statuses and not any(s in statuses for s in ("sent", *PENDING_STATUSES))


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
    insert(
        tx,
        "pushes",
        account=account,
        message=number,
        message_id=message_id,
        kind=kind,
        change=dumps(change),
        attempts=0,
        next_at=next_at,
    )
    tx.announce("accounts")


def due_pushes(tx: Transaction, account_id: str, now: datetime, limit: int) -> list[Push]:
    """The next pushes in the order of their changes.

    Other changes of a mail wait until its copy is stored, because only then it has a place.
    """
    row = tx.one("SELECT number, inbox FROM accounts WHERE id = :id", id=account_id)
    if row is None:
        return []
    rows = tx.all(DUE, account=row[0], now=seconds(now), limit=limit)
    copied = {message: number for number, message, _, kind, *_ in rows if kind == "save_sent"}
    ready = (push for push in rows if push[0] <= copied.get(push[1], push[0]))
    return [_push(tx, row[1], *push) for push in ready]


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
    internet_id = change.pop(_DRAFT_FIELD) if kind == "drop_draft" else None
    if places is None:
        places = tx.all(PLACES, message=message)
    found = tx.one(RAW, inbox=inbox, n=message)
    delta: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in change.items()
    }
    return Push(
        number=number,
        message_id=message_id,
        kind=kind,  # type: ignore[arg-type]
        refs=tuple((RemoteRef(p[0], p[1]), tuple(from_text(p[2]))) for p in places),
        **delta,
        raw=found[0] if found else None,
        internet_message_id=found[1] if found else internet_id,
        recipients=_recipients(found[2]) if found and kind == "save_sent" else (),
        attempts=attempts,
    )


def _recipients(details: str) -> tuple[str, ...]:
    return tuple(recipient["address"] for recipient in from_text(details)["recipients"] or ())


def defer_push(tx: Transaction, push: Push, next_at: datetime) -> None:
    """Retry a push later; later pushes of the same message wait too."""
    tx.run(
        """UPDATE pushes SET attempts = attempts + 1, next_at = :next_at
            WHERE number = :n OR (message_id = :message_id AND number > :n)""",
        next_at=seconds(next_at),
        n=push.number,
        message_id=push.message_id,
    )


def next_push_at(tx: Transaction, account_id: str) -> datetime | None:
    """When the next push is due; None if there is none."""
    sql = f"""
        SELECT min(p.next_at) FROM pushes p JOIN accounts a ON a.number = p.account
         WHERE a.id = :id AND {_HAS_KNOWN_PLACE}
    """
    return moment_or_none(scalar(tx, sql, id=account_id))
