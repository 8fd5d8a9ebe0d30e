"""Mail of a copy: what may have left the original since is not sent again by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from postroom.model.message import Recipient
from postroom.model.sending import OPEN
from postroom.store.sql.outbox import copy_to_sent, wait_again
from postroom.store.sql.outcomes import ABOUT, set_outcomes
from postroom.store.sql.values import from_text, seconds
from postroom.store.standing import FORGET
from postroom.store.transaction import Transaction

MAY_HAVE_LEFT = (
    "it was on its way when this backup was made, and may have left since; ask the recipient, "
    "then retry it or leave it"
)
_SEEN_AFTER = timedelta(minutes=1)
"""So long a provider may take to show what it has."""

ON_ITS_WAY = """
    SELECT inbox, message FROM outbox
     WHERE state IN ('waiting', 'claimed', 'handing_over')
       AND (is_scheduled = 0 OR queued_at <= :now)
     ORDER BY inbox, message
"""


def bring_back(tx: Transaction) -> int:
    """Let mail leave again from what was a backup; return of how many it may have left already."""
    tx.run(FORGET)
    return hold_mail(tx, datetime.now(UTC))


def hold_mail(tx: Transaction, now: datetime) -> int:
    """Call `unknown` whoever would be sent a mail whose time has come, and return how many mails.

    What is dated for later waits on: nobody else has sent it.
    """
    rows = tx.all(ON_ITS_WAY, now=seconds(now))
    for inbox, number in rows:
        about = tx.one(ABOUT, inbox=inbox, number=number)
        recipients = from_text(about[3])["recipients"] if about else ()
        waiting = [r["address"] for r in recipients if r["status"] in OPEN]
        unknown = {address: Recipient(address, "unknown", MAY_HAVE_LEFT) for address in waiting}
        set_outcomes(tx, inbox, number, unknown, now)
        copy_to_sent(tx, inbox, number, now + _SEEN_AFTER)
        wait_again(tx, inbox, number, seconds(now))
    return len(rows)
