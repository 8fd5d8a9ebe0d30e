"""The outbox: mail that waits, and how far it is.

A row says how far its message is: `waiting`; `claimed`, while a relay is being asked;
`handing_over`, when the mail itself may already be there; `done`.
"""

from __future__ import annotations

from datetime import datetime

from postroom.model.message import Recipient
from postroom.model.outbox import OutboxJob, OutboxState
from postroom.model.sending import NOT_OUT, OPEN, overall_status
from postroom.store.sql.outcomes import ABOUT
from postroom.store.sql.pushes import drop_draft, keep_a_copy
from postroom.store.sql.values import from_text, seconds
from postroom.store.standing import refuse_held
from postroom.store.transaction import Transaction

INSERT = """
    INSERT INTO outbox (message, inbox, state, status, attempts, queued_at, next_at, is_scheduled)
    VALUES (:message, :inbox, :state, :status, 0, :start, :start, :is_scheduled)
"""
PAUSE = """
    INSERT INTO facts (name, value) VALUES ('outbox_paused', :value) ON CONFLICT (name) DO NOTHING
"""
IS_PAUSED = "SELECT 1 FROM facts WHERE name IN ('outbox_paused', 'moved', 'kept')"
"""Also by those who had a house open when it moved, and in a backup: another one sends its mail."""

ON_ITS_WAY = """
    SELECT count(*) FROM outbox WHERE state IN ('waiting', 'claimed', 'handing_over')
"""
_NOT_SENT = {"failed", "bounced"}
_MAY_BE_SENT = {"unknown", *OPEN}
IT = "inbox = :inbox AND message = :message"
"""Which row is meant; `row_of` has its parameters."""


def put_in_outbox(
    tx: Transaction,
    inbox: int,
    number: int,
    recipients: tuple[Recipient, ...],
    start: int,
    *,
    is_scheduled: bool,
) -> None:
    """Let a message that was just stored wait for a worker, or be seen if it is not to leave."""
    statuses = {recipient.status for recipient in recipients}
    if statuses.isdisjoint((*NOT_OUT, "captured")):
        return
    tx.run(
        INSERT,
        inbox=inbox,
        message=number,
        state="done" if statuses.isdisjoint(OPEN) else "waiting",
        status=overall_status(recipients),
        start=start,
        is_scheduled=int(is_scheduled),
    )
    tx.announce("outbox")


def row_of(job: OutboxJob) -> dict[str, object]:
    """What names the row of a job."""
    return {"inbox": job.inbox, "message": job.number}


def is_claimed(tx: Transaction, job: OutboxJob) -> bool:
    """Whether its worker still has the claim, and nothing was handed over."""
    row = tx.one(
        f"SELECT 1 FROM outbox WHERE {IT} AND holder = :h AND state = 'claimed'",
        **row_of(job),
        h=job.holder,
    )
    return row is not None


def copy_to_sent(tx: Transaction, inbox: int, number: int, at: datetime) -> None:
    """Have the copy in Sent made that nobody else makes, as far as that is certain by now.

    A draft of what will not be sent goes.
    """
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is not None:
        statuses = {r["status"] for r in from_text(row[3])["recipients"]}
        keep_a_copy(tx, inbox, number, row[2], statuses=statuses, at=seconds(at))
        if statuses & _NOT_SENT and statuses.isdisjoint(_MAY_BE_SENT):
            drop_draft(tx, inbox, number, row[2])


def wait_again(tx: Transaction, inbox: int, number: int, next_at: int) -> None:
    """Let a message wait until *next_at*, or be done if nobody is left to send it to."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    recipients = from_text(row[3])["recipients"] if row else []
    is_open = any(recipient["status"] in OPEN for recipient in recipients)
    tx.run(
        f"""UPDATE outbox SET state = :state, next_at = :next_at, holder = NULL, until = NULL,
                  pending = NULL WHERE {IT}""",
        state="waiting" if is_open else "done",
        next_at=next_at,
        inbox=inbox,
        message=number,
    )
    if is_open:
        tx.announce("outbox")


def is_paused(tx: Transaction) -> bool:
    """Whether nothing is to be handed over for now."""
    return tx.one(IS_PAUSED) is not None


def pause_outbox(tx: Transaction, *, paused: bool) -> OutboxState:
    """Hold all mail back, or let it go again. Raises Conflict if none may leave from here."""
    if paused:
        tx.run(PAUSE, value=b"\1")
    else:
        refuse_held(tx)
        tx.run("DELETE FROM facts WHERE name = 'outbox_paused'")
    tx.announce("outbox")
    return outbox_state(tx)


def outbox_state(tx: Transaction) -> OutboxState:
    """Whether the outbox is paused, and how many messages wait in it."""
    row = tx.one(ON_ITS_WAY)
    return OutboxState(is_paused(tx), int(row[0]) if row else 0)
