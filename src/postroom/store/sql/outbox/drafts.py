"""Drafts, and cancelling or retrying a sent mail, which changes the draft that it was.

The message of a sent draft is recorded permanently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from postroom.errors import Conflict, NotFound, no_such
from postroom.mail.addresses import canonical_address
from postroom.model.inbox import Visible
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import (
    CANCELLED,
    POSSIBLY_SENT_STATUSES,
    RETRIABLE_STATUSES,
    WAITING,
    EarlierMail,
    StoredDraft,
)
from postroom.model.mail.storage import Cancelled, Gate
from postroom.model.page import Found, Slice
from postroom.store.sql.accounts.pushes import cancel_draft_removal, remove_sent_copy
from postroom.store.sql.credentials import keys_by_id
from postroom.store.sql.messages.message_changes import remove_everywhere
from postroom.store.sql.outbox.holds import known_addresses, pass_gate_again
from postroom.store.sql.outbox.queue import (
    ROW_KEY,
    copy_to_sent,
    insert_outbox_entry,
    requeue,
    set_recipients,
)
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    dumps,
    from_text,
    inbox_number,
    moment,
    moment_or_none,
    seconds,
    seconds_or_none,
    update,
    visible_numbers,
)
from postroom.store.transaction import Row, Transaction

CONTENT_RETENTION = timedelta(days=7)
"""How long the content of a sent draft is kept, so that it can be restored."""

_COLUMNS = """d.number, d.id, i.id, d.arguments, d.send_at, d.created_at, d.updated_at,
    d.message_id, d.revision, d.authors, d.replaces"""
_TABLES = "drafts d JOIN inboxes i ON i.number = d.inbox"
_LISTING = Listing(_COLUMNS, _TABLES, "d.number", is_newest_first=True)
_AT_REVISION = "id = :id AND revision = :revision AND sent_at IS NULL"
CHANGE = f"""
    UPDATE drafts SET inbox = :inbox, arguments = :arguments, send_at = :send_at,
           updated_at = :updated_at, authors = :authors, revision = revision + 1
     WHERE {_AT_REVISION}
"""
ADD = """
    INSERT INTO drafts (id, inbox, arguments, send_at, created_at, updated_at, authors, revision)
    VALUES (:id, :inbox, :arguments, :send_at, :created_at, :updated_at, :authors, 1)
    ON CONFLICT (id) DO NOTHING
"""
CLEAR_CONTENT = """
    UPDATE drafts SET arguments = '{}', replaces = NULL
     WHERE sent_at <= :before AND arguments <> '{}' AND (send_at IS NULL OR send_at <= :before)
"""


def _draft(row: Row) -> StoredDraft:
    number, draft_id, inbox_id, arguments, send_at, created_at, updated_at = row[:7]
    times = (moment_or_none(send_at), moment(created_at), moment(updated_at))
    message_id, revision, authors, replaces = row[7:11]
    return StoredDraft(
        draft_id,
        inbox_id,
        from_text(arguments),
        *times,
        message_id,
        number,
        revision,
        tuple(from_text(authors)),
        earlier_mail_in(replaces),
    )


def earlier_mail_in(text: str | None) -> EarlierMail | None:
    """The mail that a draft was made from, as it is stored with the draft."""
    if text is None:
        return None
    stored = from_text(text)
    lists = {name: tuple(stored[name]) for name in ("recipients", "files")}
    return EarlierMail(**{**stored, **lists})


def save_draft(tx: Transaction, draft: StoredDraft) -> None:
    """Insert a draft, or update one whose revision is unchanged.

    Raises:
        NotFound: its inbox was removed, or it was sent or removed.
        Conflict: it was changed since it was read, or somebody has inserted it meanwhile.
    """
    inbox = inbox_number(tx, draft.inbox_id)
    if not inbox:
        raise NotFound(no_such("inbox", draft.inbox_id))
    tx.run(CLEAR_CONTENT, before=seconds(draft.updated_at - CONTENT_RETENTION))
    values = {
        "id": draft.id,
        "inbox": inbox,
        "arguments": dumps(draft.arguments),
        "send_at": seconds_or_none(draft.send_at),
        "updated_at": seconds(draft.updated_at),
        "authors": dumps(draft.authors),
    }
    if not draft.revision:
        if not tx.run(ADD, **values, created_at=seconds(draft.created_at)):
            raise Conflict(f"the draft {draft.id} was saved meanwhile; read it again")
    elif not tx.run(CHANGE, **values, revision=draft.revision):
        message_id = sent_as(tx, draft.id, draft.revision)
        became = message_id or "a message before an upgrade"
        raise NotFound(f"no draft {draft.id}: it was sent as {became}")


def get_draft(tx: Transaction, draft_id: str, visible: Visible) -> StoredDraft | None:
    """A draft by its id, sent or not."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE d.id = :id", id=draft_id)
    if row is None or not visible.sees(row[2]):
        return None
    return _draft(row)


def list_drafts(
    tx: Transaction, visible: Visible, inbox_id: str | None, page: Slice
) -> Found[StoredDraft]:
    """One page of drafts that are not sent, newest first."""
    where = Conditions()
    where.add("d.sent_at IS NULL")
    where.within("d.inbox", visible_numbers(tx, visible))
    if inbox_id is not None:
        where.add("i.id = :inbox_id", inbox_id=inbox_id)
    return _LISTING.page(tx, where, page, _draft)


def sent_as(tx: Transaction, draft_id: str, revision: int) -> str | None:
    """The message that a draft was sent as.

    Raises:
        NotFound: there is no draft.
        Conflict: it was not sent, and its revision has changed.
    """
    row = tx.one("SELECT message_id, revision FROM drafts WHERE id = :id", id=draft_id)
    if row is None:
        raise NotFound(no_such("draft", draft_id))
    if row[0] is None and row[1] != revision:
        raise Conflict(f"the draft {draft_id} was changed meanwhile; read it again")
    return None if row[0] is None else str(row[0])


def mark_sent(
    tx: Transaction, draft_id: str, revision: int, message_id: str, now: datetime
) -> None:
    """Mark a draft as sent, with its message.

    Raises:
        Conflict: its revision has changed.
    """
    marked = tx.run(
        f"UPDATE drafts SET sent_at = :now, message_id = :message_id WHERE {_AT_REVISION}",
        id=draft_id,
        revision=revision,
        message_id=message_id,
        now=seconds(now),
    )
    if not marked:
        raise Conflict(f"the draft {draft_id} was changed or sent meanwhile; read it again")


def _restore_draft(tx: Transaction, message_id: str) -> str | None:
    """Restore the draft of a message cancelled for everyone; return its id."""
    row = tx.one(
        """SELECT id, revision + 1 FROM drafts
            WHERE message_id = :message_id AND arguments <> '{}'""",
        message_id=message_id,
    )
    if row is None:
        return None
    update(tx, "drafts", {"id": row[0]}, sent_at=None, message_id=None, revision=row[1])
    return str(row[0])


def _mark_sent_again(
    tx: Transaction, draft_id: str, revision: int, message_id: str, now: datetime
) -> None:
    """Mark the draft of a message that an earlier version cancelled as sent again.

    Raises:
        Conflict: the draft was changed or sent since.
    """
    row = tx.one("SELECT message_id, revision FROM drafts WHERE id = :id", id=draft_id)
    if row is None:
        return
    since = f"{message_id} was cancelled, and its draft {draft_id} was"
    if row[0] is not None:
        raise Conflict(f"{since} sent as {row[0]} since; write a new mail to send it once more")
    if row[1] != revision:
        raise Conflict(f"{since} changed since; send_draft sends it as it is now")
    mark_sent(tx, draft_id, revision, message_id, now)


def remove_draft(tx: Transaction, draft_id: str, visible: Visible) -> bool:
    """Remove a draft that was not sent; False if there is none."""
    draft = get_draft(tx, draft_id, visible)
    if draft is None or draft.message_id is not None:
        return False
    return tx.run("DELETE FROM drafts WHERE id = :id AND sent_at IS NULL", id=draft_id) > 0


FIND = """
    SELECT m.number, i.id, m.details, o.state, o.is_scheduled, m.inbox, o.draft_id,
           o.draft_revision, o.unknown, o.queued_at, o.authors
      FROM messages m JOIN inboxes i ON i.number = +m.inbox
      LEFT JOIN outbox o ON +o.inbox = +m.inbox AND o.message = m.number
     WHERE m.id = :id AND m.is_outbound = 1
"""


def retry_mail(
    tx: Transaction,
    message_id: str,
    visible: Visible,
    now: datetime,
    *,
    authors: tuple[str, ...],
    external_recipients: Sequence[str],
    gate: Gate,
    disclosures: tuple[str, ...] = (),
) -> None:
    """Queue the message again for recipients who did not get it, or make waiting ones due now.

    The transport of each recipient is determined again, as for a scheduled mail that is due. It
    passes the gate again, unless a person has approved it.

    Raises:
        Forbidden: a policy denies a recipient.
        NotFound: there is no such sent message.
        Conflict: no recipient is left, it is being submitted, it is scheduled for later, or it was
            cancelled and its draft changed or sent since.
    """
    row = _row(tx, message_id, visible)
    again = [r for r in _recipients(row) if r.status in RETRIABLE_STATUSES]
    if not again:
        raise Conflict(_why_not_again(message_id, {r.status for r in _recipients(row)}))
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being submitted now; list_outbox shows its status")
    if any(r.status == "scheduled" for r in again) and row[9] > seconds(now):
        raise Conflict(
            f"{message_id} is scheduled for {moment(row[9]):%Y-%m-%d %H:%M} UTC; cancel_message "
            "makes it a draft again, which can be sent now without its send_at"
        )
    inbox, number = row[5], row[0]
    if row[6] is not None:
        _mark_sent_again(tx, row[6], row[7], message_id, now)
    leaving = [r.address for r in again if r.address in external_recipients]
    gate_result = pass_gate_again(
        tx, inbox, number, gate, authors, leaving, disclosures=disclosures, now=now
    )
    status = "held" if gate_result.hold else "queued"
    why = "; ".join(gate_result.hold.reasons) if gate_result.hold else None
    changes = {r.address: Recipient(r.address, status, why) for r in again}
    set_recipients(tx, inbox, number, changes, now)
    statuses = {r.status for r in _recipients(row)}
    cancel_draft_removal(tx, inbox, message_id)
    remove_sent_copy(tx, inbox, number, message_id, statuses=statuses)
    tx.run(f"DELETE FROM outbox WHERE {ROW_KEY}", inbox=inbox, message=number)
    everyone = tuple(changes.get(r.address, r) for r in _recipients(row))
    insert_outbox_entry(
        tx, inbox, number, everyone, seconds(now), is_scheduled=True, gate_result=gate_result
    )
    unknown = _former_unknown(row) | {r.address: r.detail for r in again if r.status == "unknown"}
    if unknown:
        update(tx, "outbox", {"inbox": inbox, "message": number}, unknown=dumps(unknown))


def _why_not_again(message_id: str, statuses: set[str]) -> str:
    if "held" in statuses:
        return f"{message_id} waits for a person's approval; cancel_message makes it a draft again"
    if "rejected" in statuses:
        return f"{message_id} was rejected; write another mail instead"
    return f"all recipients have {message_id} already"


def cancel_mail(
    tx: Transaction, message_id: str, visible: Visible, draft: StoredDraft, now: datetime
) -> Cancelled:
    """Cancel a message: it becomes the draft that it was, or this one.

    If somebody has it, it stays as it was sent, and the others get the status `failed`. Recipients
    who may have got an earlier attempt become `unknown` again.

    Raises:
        NotFound: there is no such sent message.
        Conflict: no recipient is waiting, or it is being submitted.
    """
    row = _row(tx, message_id, visible)
    waiting = [r for r in _recipients(row) if r.status in WAITING]
    if not waiting:
        raise Conflict(f"no recipient of {message_id} is waiting; there is nothing to cancel")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being submitted now; list_outbox shows its status")
    unknown = _former_unknown(row)
    cancelled = {r.address: _cancelled(r.address, unknown) for r in waiting}
    set_recipients(tx, row[5], row[0], cancelled, now)
    copy_to_sent(tx, row[5], row[0], now)
    requeue(tx, row[5], row[0], seconds(now))
    if unknown or any(r.status in POSSIBLY_SENT_STATUSES for r in _recipients(row)):
        return Cancelled()
    draft_id = _restore_draft(tx, message_id)
    if draft_id is None:
        save_draft(tx, replace(draft, authors=tuple(from_text(row[10] or "[]"))))
        draft_id = draft.id
    replaces = dumps(draft.replaces) if draft.replaces else None
    update(tx, "drafts", {"id": draft_id}, replaces=replaces)
    return Cancelled(draft_id, remove_everywhere(tx, row[5], row[0], message_id))


def _cancelled(address: str, unknown: Mapping[str, str | None]) -> Recipient:
    if address in unknown:
        return Recipient(address, "unknown", unknown[address])
    return Recipient(address, "failed", CANCELLED)


def _former_unknown(row: Row) -> dict[str, str | None]:
    """The recipients that were `unknown` before a retry, with their details."""
    return dict(from_text(row[8] or "{}"))


def _row(tx: Transaction, message_id: str, visible: Visible) -> Row:
    row = tx.one(FIND, id=message_id)
    if row is None or not visible.sees(row[1]):
        raise NotFound(no_such("sent message", message_id))
    return row


def _recipients(row: Row) -> list[Recipient]:
    return [Recipient(**r) for r in from_text(row[2])["recipients"] or ()]


AUTHORS = """
    SELECT o.authors
      FROM messages m LEFT JOIN outbox o ON o.inbox = m.inbox AND o.message = m.number
     WHERE m.inbox = :inbox AND m.id = :id
"""
REPLACES = "SELECT replaces FROM drafts WHERE message_id = :id"


class HeldMailFacts(NamedTuple):
    """The keys that wrote a mail, with their names; addresses that are new; the mail before it."""

    authors: dict[str, str]
    new_recipients: tuple[str, ...]
    replaces: EarlierMail | None


def held_mail_facts(
    tx: Transaction, message_id: str, inbox_id: str, recipients: Sequence[str]
) -> HeldMailFacts:
    """The authors of a mail, which of these recipients are new, and the mail that it replaces."""
    inbox = inbox_number(tx, inbox_id)
    (authors,) = tx.one(AUTHORS, inbox=inbox, id=message_id) or (None,)
    ids = from_text(authors or "[]")
    names = {key.id: key.name for key in keys_by_id(tx, ids)} if ids else {}
    by_address = {canonical_address(address): address for address in recipients}
    known = known_addresses(tx, inbox, list(by_address)) if by_address else frozenset()
    draft = tx.one(REPLACES, id=message_id)
    return HeldMailFacts(
        {id_: names.get(id_) or id_ for id_ in ids},
        tuple(given for address, given in by_address.items() if address not in known),
        earlier_mail_in(draft[0]) if draft else None,
    )
