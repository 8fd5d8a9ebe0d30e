"""Events, written in the transaction that causes them and read in order, and counts per day.

Mail is counted in the transaction that stores it, calls in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import NamedTuple

from postroom.errors import NotFound
from postroom.model.event import FIRST, Event, EventQuery, EventType, Webhook
from postroom.model.health import CallCount, Counted, MailCount
from postroom.model.inbox import Visible
from postroom.model.key import OWNER
from postroom.model.mail.message import Recipient
from postroom.model.page import Found, random_id
from postroom.model.values import dataclass
from postroom.model.view import NOTHING, Everything, only
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    dumps,
    exists,
    insert_numbered,
    scalar,
    seconds,
    visible_numbers,
    within,
)
from postroom.store.sql.webhooks import (
    COLUMNS,
    add_webhook,
    find_webhook,
    insert_delivery,
    read_event,
    visible_inboxes,
)
from postroom.store.transaction import Row, Transaction
from postroom.store.webhooks import DERIVED

_COLUMNS = "e.number, e.id, e.type, e.at, i.id, e.thread, e.message, e.data"
_TABLES = "events e JOIN inboxes i ON i.number = e.inbox"
_LISTING = Listing(_COLUMNS, _TABLES, "e.number")
_NEWEST_FIRST = replace(_LISTING, is_newest_first=True)
FAN_OUT = """
    SELECT number FROM webhooks
     WHERE is_enabled = 1 AND (types = '[]' OR replace(types, :type, '') <> types)
       AND (inboxes IS NULL OR replace(
           inboxes, (SELECT '"' || id || '"' FROM inboxes WHERE number = :inbox), '') <> inboxes)
       AND (coalesce(created_by, '') IN ('', 'owner', 'agent')
            OR EXISTS (SELECT 1 FROM keys k WHERE k.id = created_by))
"""
NUMBER_QUERIES = (
    "SELECT min(number) FROM events WHERE {within} AND id = :since",
    "SELECT min(number) FROM events WHERE {within} AND message = :since",
    "SELECT min(number) FROM removed_events WHERE {within} AND id = :since",
)
"""The number of an event, or of the first event of a message, including removed ones."""

INSERT_REMOVED_EVENTS = """
    INSERT INTO removed_events (id, inbox, number)
    SELECT id, inbox, number FROM events WHERE {which}
     UNION ALL
    SELECT message, inbox, min(number) FROM events
     WHERE {which} AND message IS NOT NULL GROUP BY message, inbox
        ON CONFLICT DO NOTHING
"""
"""A message that was removed may have got another event since."""


class MessageRef(NamedTuple):
    """The message that an event is about."""

    inbox: int
    thread_id: str
    message_id: str


def add_event(
    tx: Transaction, event: EventType, at: datetime, about: MessageRef, data: dict[str, object]
) -> int:
    """Insert an event and its webhook deliveries, and return its number."""
    number = insert_numbered(tx, "events", **event_row(event, at, about, data))
    tx.announce("events")
    if not data.get("imported"):
        for webhook in subscribers(tx, event, about.inbox):
            insert_delivery(tx, webhook, number, about.inbox, seconds(at))
    return number


def event_row(
    event: EventType, at: datetime, about: MessageRef, data: dict[str, object]
) -> dict[str, object]:
    """The columns of a new event."""
    return {
        "id": random_id("evt"),
        "type": event,
        "at": seconds(at),
        "inbox": about.inbox,
        "thread": about.thread_id,
        "message": about.message_id,
        "data": dumps(data),
    }


def subscribers(tx: Transaction, event: EventType, inbox: int) -> list[int]:
    """The webhooks that subscribe to an event."""
    return [row[0] for row in tx.all(FAN_OUT, type=f'"{event}"', inbox=inbox)]


def find_events(tx: Transaction, query: EventQuery) -> Found[Event]:
    """One page of events, in the order of the query."""
    listing = _NEWEST_FIRST if query.newest_first else _LISTING
    return listing.page(tx, _conditions(tx, query), query.page, _event)


def _conditions(tx: Transaction, query: EventQuery) -> Conditions:
    where = Conditions()
    inboxes = visible_numbers(tx, query.visible)
    if query.inbox_id is not None:
        inboxes = visible_numbers(tx, query.visible.narrowed_to([query.inbox_id]))
    where.within("e.inbox" if query.message_id is None else "+e.inbox", inboxes)
    if query.message_id is not None:
        where.add("e.message = :message_id", message_id=query.message_id)
    if query.types:
        where.among("e.type", "type", query.types)
    return where


def _event(row: Row) -> Event:
    return read_event(row[1:8], row[0])


def events_after(tx: Transaction, after: int, *, limit: int, visible: Visible) -> list[Event]:
    """The events of some inboxes after the event with this number."""
    where, params = within("e.inbox", visible_numbers(tx, visible))
    rows = tx.all(
        f"""SELECT {_COLUMNS} FROM {_TABLES} WHERE {where} AND e.number > :after
             ORDER BY e.number LIMIT :limit""",
        **params,
        after=after,
        limit=limit,
    )
    return [_event(row) for row in rows]


def newest_event(tx: Transaction, visible: Visible) -> int:
    """The number of the last event in some inboxes; 0 if there is none."""
    where, params = within("inbox", visible_numbers(tx, visible))
    return int(scalar(tx, f"SELECT max(number) FROM events WHERE {where}", **params) or 0)


def last_event_before(tx: Transaction, at: datetime, visible: Visible) -> int:
    """The number of the last event before a time; 0 if there is none.

    The time of an imported mail may be anything, so it is skipped.
    """
    where, params = within("inbox", visible_numbers(tx, visible))
    sql = f"""SELECT number FROM events
               WHERE {where} AND at < :at AND replace(data, '"imported"', '') = data
               ORDER BY number DESC LIMIT 1"""
    return int(scalar(tx, sql, **params, at=seconds(at)) or 0)


def last_event(tx: Transaction, inbox_id: str, until: int) -> str | None:
    """The last event of an inbox up to a number."""
    where, params = within("inbox", visible_numbers(tx, only(inbox_id)))
    sql = f"SELECT id FROM events WHERE {where} AND number <= :until ORDER BY number DESC LIMIT 1"
    found: str | None = scalar(tx, sql, **params, until=until)
    return found


def event_number(tx: Transaction, since: str, visible: Visible) -> int:
    """The number of an event, or of the first event of a message, also if it was removed.

    Raises:
        NotFound: there is none in these inboxes; events elsewhere are not disclosed.
    """
    if since == FIRST:
        return 0
    where, params = within("+inbox", visible_numbers(tx, visible))
    for sql in NUMBER_QUERIES:
        number = scalar(tx, sql.format(within=where), since=since, **params)
        if number is not None:
            return int(number)
    raise NotFound(f"since: there is no {since}; leave it out to begin now")


def remove_events(tx: Transaction, which: str, **params: object) -> None:
    """Remove the events of a message or an inbox; only their numbers stay, as cursors."""
    tx.put(INSERT_REMOVED_EVENTS.format(which=which), **params)
    tx.put(f"DELETE FROM events WHERE {which}", **params)


def add_outcomes(
    tx: Transaction, recipients: Iterable[Recipient], at: datetime, about: MessageRef
) -> None:
    """Insert one event per delivery status of a sent message, with its recipients."""
    by_status: dict[str, list[Recipient]] = {}
    for recipient in recipients:
        by_status.setdefault(recipient.status, []).append(recipient)
    for status, found in by_status.items():
        add_event(tx, _OUTCOMES[status], at, about, {"recipients": _recipient_data(found)})


def _recipient_data(recipients: Sequence[Recipient]) -> list[dict[str, str]]:
    return [
        {"address": r.address, **({"detail": r.detail} if r.detail else {})} for r in recipients
    ]


_OUTCOMES: dict[str, EventType] = {
    "scheduled": "message.scheduled",
    "queued": "message.queued",
    "sent": "message.sent",
    "delivered": "message.delivered",
    "captured": "message.captured",
    "bounced": "message.bounced",
    "failed": "message.failed",
    "unknown": "message.unknown",
    "held": "message.held",
    "rejected": "message.rejected",
}


ALL_INBOXES, ALL_CALLERS = 0, ""
"""The sums are stored as a separate inbox and caller, so that reading them is cheap. What
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


BY_URL = f"SELECT {COLUMNS}, number FROM webhooks WHERE url = :target ORDER BY number"
DELIVERY_EXISTS = """
    SELECT 1 FROM webhook_deliveries
     WHERE inbox = :inbox AND webhook = :webhook AND event = :event
"""


@dataclass(frozen=True, slots=True)
class WebhookAuthority:
    """The key on whose authority a rule calls webhooks, and the inboxes that it sees.

    A rule without a recorded key has the authority "".
    """

    authority: str
    visible: Visible


def insert_rule_delivery(
    tx: Transaction,
    target: str,
    event: int,
    inbox: int,
    webhook_authority: WebhookAuthority,
    now: datetime,
) -> None:
    """Insert a delivery of an event to one webhook, once, unless it is disabled.

    Raises NotFound. A webhook for a URL is created on first use; renewing it shows its secret.
    """
    if target.startswith("whk_"):
        webhook = _webhook_number(tx, target, webhook_authority.visible)
    else:
        webhook = _at_url(tx, target, inbox, webhook_authority, now)
    if not scalar(tx, "SELECT is_enabled FROM webhooks WHERE number = :n", n=webhook):
        return
    if not exists(tx, DELIVERY_EXISTS, inbox=inbox, webhook=webhook, event=event):
        insert_delivery(tx, webhook, event, inbox, seconds(now))


def _webhook_number(tx: Transaction, webhook_id: str, visible: Visible) -> int:
    row = find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(f"webhook: {webhook_id} no longer exists")
    return int(row[-1])


def _at_url(
    tx: Transaction, url: str, inbox: int, webhook_authority: WebhookAuthority, now: datetime
) -> int:
    inbox_id = scalar(tx, "SELECT id FROM inboxes WHERE number = :inbox", inbox=inbox) or ""
    for row in tx.all(BY_URL, target=url):
        if _may_sign(row, inbox_id, webhook_authority):
            return int(row[-1])
    made = Webhook(
        random_id("whk"),
        url,
        ("rule.matched",),
        NOTHING,
        now,
        secret=DERIVED,
        made_by=webhook_authority.authority,
    )
    add_webhook(tx, made, visible_inboxes=webhook_authority.visible)
    return _webhook_number(tx, made.id, webhook_authority.visible)


def _may_sign(row: Row, inbox_id: str, webhook_authority: WebhookAuthority) -> bool:
    """Whether a webhook with the URL may sign for this key.

    The creator of a webhook has its secret, and whoever sees it can renew it. So it must belong to
    the key, or to the owner and be invisible to keys that see less. Whoever sees a webhook sees its
    events, so they must see the inbox.
    """
    known, maker, visible = visible_inboxes(row), row[6], webhook_authority.visible
    if not known.sees(inbox_id) or not visible.covers(known):
        return False
    if isinstance(visible, Everything) and not isinstance(known, Everything):
        return False
    is_owners = maker == OWNER.key_id and webhook_authority.authority and known.covers(visible)
    return maker == webhook_authority.authority or bool(is_owners)
