"""Counts per day: of mail, in the transaction that stores it, and of calls, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from postroom.model.activity import CallCount, Counted, MailCount
from postroom.model.inbox import Visible
from postroom.model.view import Everything
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.values import seconds, visible_numbers
from postroom.store.transaction import Transaction

ALL_INBOXES, ALL_CALLERS = 0, ""
"""The sums are stored like an inbox and a caller of their own, so that reading them is cheap. What
happened in an inbox that is removed later stays in the sums."""

_DAY_S = 86_400
COUNT_MAIL = """
    INSERT INTO daily_mail (inbox, day, name, via, count)
    VALUES (:inbox, :day, :name, :via, :count)
    ON CONFLICT (inbox, day, name, via) DO UPDATE SET count = daily_mail.count + excluded.count
"""
COUNT_CALLS = """
    INSERT INTO daily_calls (caller, day, via, tool, calls, errors)
    VALUES (:caller, :day, :via, :tool, :calls, :errors)
    ON CONFLICT (caller, day, via, tool) DO UPDATE
       SET calls = daily_calls.calls + excluded.calls, errors = daily_calls.errors + excluded.errors
"""


def count_mail(
    tx: Transaction, name: Counted, inbox: int, at: datetime, *, via: str = "", count: int = 1
) -> None:
    """Count something that this transaction does in an inbox."""
    day = seconds(at) // _DAY_S
    for place in (inbox, ALL_INBOXES):
        tx.put(COUNT_MAIL, inbox=place, day=day, name=name, via=via, count=count)


def count_send(tx: Transaction, inbox: int, at: datetime, *, via: str, is_held: bool) -> None:
    """Count a mail that was sent; without `via` it is our own, which is not counted."""
    if via:
        count_mail(tx, "sent", inbox, at, via=via)
    if via and is_held:
        count_mail(tx, "held", inbox, at, via=via)


def count_calls(tx: Transaction, calls: Sequence[CallCount]) -> None:
    """Add calls of tools to those of their days."""
    sums = [call._replace(caller=ALL_CALLERS) for call in calls]
    rows = [{**call._asdict(), "day": _number(call.day)} for call in (*calls, *sums)]
    tx.many(COUNT_CALLS, rows)


def mail_counts(tx: Transaction, since: date, visible: Visible) -> list[MailCount]:
    """What happened in some inboxes since a day."""
    where = Conditions()
    where.add("day >= :since", since=_number(since))
    if isinstance(visible, Everything):
        where.add("inbox = :all", all=ALL_INBOXES)
    else:
        where.within("inbox", visible_numbers(tx, visible))
    rows = tx.all(
        f"""SELECT day, name, via, sum(count) FROM daily_mail WHERE {where.sql}
             GROUP BY day, name, via ORDER BY day, name, via""",
        **where.params,
    )
    return [MailCount(_date(day), name, via, int(count)) for day, name, via, count in rows]


def call_counts(tx: Transaction, since: date, caller: str = ALL_CALLERS) -> list[CallCount]:
    """Calls of tools since a day, by everybody or by one caller."""
    rows = tx.all(
        """SELECT day, caller, via, tool, calls, errors FROM daily_calls
            WHERE caller = :caller AND day >= :since ORDER BY day, via, tool""",
        caller=caller,
        since=_number(since),
    )
    return [CallCount(_date(row[0]), *row[1:]) for row in rows]


def remove_counts(tx: Transaction, before: date) -> None:
    """Remove the counts of the days before one."""
    for table in ("daily_mail", "daily_calls"):
        tx.run(f"DELETE FROM {table} WHERE day < :before", before=_number(before))


def _number(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def _date(number: int) -> date:
    return datetime.fromtimestamp(number * _DAY_S, UTC).date()
