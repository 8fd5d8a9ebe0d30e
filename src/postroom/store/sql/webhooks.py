"""Webhooks and their deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.event import (
    EVERY_WEBHOOK,
    Event,
    Webhook,
    WebhookCapacity,
    WebhookChange,
    WebhookDelivery,
    WebhookJob,
    WebhookResponse,
)
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice, random_id
from postroom.model.view import view_names, view_of
from postroom.store.sql.audit import VISIBILITY_KEY
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    any_of,
    dumps,
    from_text,
    insert,
    moment,
    moment_or_none,
    page_of,
    scalar,
    seconds,
    stored_view,
    update,
    view_in,
)
from postroom.store.transaction import Row, Transaction

OLD_SECRET_VALID = timedelta(hours=24)
DELIVERY_RETENTION_S = int(timedelta(days=30).total_seconds())

_OLDEST = """
    (d.is_redelivery = 1 OR NOT EXISTS (
           SELECT 1 FROM webhook_deliveries b
            WHERE b.status = 'pending' AND b.webhook = d.webhook AND b.inbox = d.inbox
              AND b.number < d.number AND b.is_redelivery = 0))
"""
"""A manual redelivery is outside the order: it neither waits nor is waited for."""

DUE = f"""
    SELECT d.number, w.url, w.secret, w.old_secret, w.secret_renewed_at, d.attempts, d.first_at,
           e.number, e.id, e.type, e.at, i.id, e.thread, e.message, e.data,
           d.inbox, d.id, d.webhook, w.id, w.inboxes, w.visible_inboxes,
           w.created_by
      FROM webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
      LEFT JOIN events e ON +e.inbox = +d.inbox AND e.number = d.event
      LEFT JOIN inboxes i ON i.number = +e.inbox
     WHERE d.status = 'pending' AND w.is_enabled = 1
       AND d.next_at <= :now AND (d.holder IS NULL OR d.until <= :now)
       AND d.webhook NOT {{full}} AND {_OLDEST}
     ORDER BY d.next_at, d.number LIMIT :limit
"""
FREE = """
    SELECT 1 FROM webhook_deliveries d
     WHERE d.inbox = :inbox AND d.number = :number AND d.status = 'pending'
       AND (d.holder IS NULL OR d.until <= :now)
"""
"""Rows are locked one by one, by inbox, because a lock cannot span several machines."""

NEXT = f"""
    SELECT min(CASE WHEN d.holder IS NULL THEN d.next_at ELSE d.until END) FROM webhook_deliveries d
     WHERE d.status = 'pending' AND d.webhook NOT {{full}} AND {_OLDEST}
       AND d.webhook IN (SELECT number FROM webhooks WHERE is_enabled = 1)
"""
_NO_WEBHOOK = 0
COLUMNS = "id, url, types, inboxes, created_at, visible_inboxes, created_by, is_enabled"


def insert_delivery(tx: Transaction, webhook: int, event: int, inbox: int, now: int) -> None:
    insert(
        tx,
        "webhook_deliveries",
        id=random_id("dlv"),
        webhook=webhook,
        inbox=inbox,
        event=event,
        status="pending",
        attempts=0,
        created_at=now,
        first_at=now,
        next_at=now,
        detail="",
    )
    tx.announce("webhooks")


def add_webhook(tx: Transaction, webhook: Webhook, visible_inboxes: Visible | None = None) -> None:
    """Insert a webhook with its secret; one of a rule is visible with these inboxes."""
    insert(
        tx,
        "webhooks",
        id=webhook.id,
        url=webhook.url,
        secret=webhook.secret,
        types=dumps(webhook.types),
        inboxes=stored_view(webhook.inboxes),
        created_at=seconds(webhook.created_at),
        visible_inboxes=None if visible_inboxes is None else dumps(view_names(visible_inboxes)),
        created_by=webhook.made_by,
        is_enabled=int(webhook.enabled),
    )


def _webhook(row: Row) -> Webhook:
    types, view, created_at = tuple(from_text(row[2])), view_in(row[3]), moment(row[4])
    enabled = bool(row[7])
    return Webhook(row[0], row[1], types, view, created_at, enabled, made_by=row[6])


def visible_inboxes(row: Row) -> Visible:
    """The inboxes that a webhook was created for, or those of the key of its rule.

    Removed inboxes stay included. A caller must see all of them to see the webhook.
    """
    return view_in(row[3] if row[5] is None else row[5])


def list_webhooks(tx: Transaction, visible: Visible, page: Slice) -> Found[Webhook]:
    """One page of webhooks, oldest first."""
    rows = tx.all(f"SELECT {COLUMNS} FROM webhooks ORDER BY number")
    found = [_webhook(row) for row in rows if visible.covers(visible_inboxes(row))]
    return page_of(found, page)


def _row(tx: Transaction, webhook_id: str, visible: Visible) -> Row:
    """A visible webhook; the last column is its number. Raises NotFound."""
    row = find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(no_such("webhook", webhook_id))
    return row


def find_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> Row | None:
    row = tx.one(f"SELECT {COLUMNS}, number FROM webhooks WHERE id = :id", id=webhook_id)
    return row if row is not None and visible.covers(visible_inboxes(row)) else None


def has_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> bool:
    return find_webhook(tx, webhook_id, visible) is not None


def remove_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> None:
    """Remove a webhook and its deliveries. Raises NotFound."""
    number = _row(tx, webhook_id, visible)[-1]
    tx.run("DELETE FROM webhook_deliveries WHERE webhook = :number", number=number)
    tx.run("DELETE FROM webhooks WHERE number = :number", number=number)


def update_webhook(
    tx: Transaction, webhook_id: str, change: WebhookChange, visible: Visible
) -> Webhook:
    """Change a webhook. While it is disabled, pending deliveries wait and new ones are not made.

    Raises NotFound.
    """
    number = _row(tx, webhook_id, visible)[-1]
    tx.run(
        """UPDATE webhooks SET url = coalesce(:url, url), types = coalesce(:types, types),
                  is_enabled = coalesce(:enabled, is_enabled),
                  created_by = coalesce(:made_by, created_by)
            WHERE number = :number""",
        url=change.url,
        made_by=change.made_by,
        types=None if change.types is None else dumps(change.types),
        enabled=None if change.enabled is None else int(change.enabled),
        number=number,
    )
    tx.announce("webhooks")
    return get_webhook(tx, webhook_id, visible)


def webhook_target(
    tx: Transaction, webhook_id: str, visible: Visible, now: datetime
) -> tuple[str, tuple[str, ...]]:
    """The URL of a webhook and the encrypted secrets that sign now. Raises NotFound."""
    number = _row(tx, webhook_id, visible)[-1]
    row = tx.one(
        "SELECT url, secret, old_secret, secret_renewed_at FROM webhooks WHERE number = :number",
        number=number,
    )
    assert row is not None
    return row[0], _signing_secrets(row[1:], now)


def _signing_secrets(row: Row, now: datetime) -> tuple[str, ...]:
    """The secret, and the one before it for a day."""
    secret, old_secret, renewed_at = row
    is_old_valid = old_secret is not None and now - moment(renewed_at) < OLD_SECRET_VALID
    return (secret, old_secret) if is_old_valid else (secret,)


def get_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> Webhook:
    """One webhook. Raises NotFound."""
    return _webhook(_row(tx, webhook_id, visible))


def renew_webhook(
    tx: Transaction,
    webhook_id: str,
    secret: str,
    visible: Visible,
    now: datetime,
    *,
    made_by: str | None = None,
) -> Webhook:
    """Replace the encrypted secret of a webhook; the old one also signs for 24 hours.

    With *made_by* it becomes a webhook of that key, and the old secret signs nothing more.

    Raises NotFound.
    """
    number = _row(tx, webhook_id, visible)[-1]
    tx.run(
        """UPDATE webhooks SET old_secret = secret, secret = :secret, secret_renewed_at = :now
            WHERE number = :number""",
        secret=secret,
        now=seconds(now),
        number=number,
    )
    if made_by is not None:
        update(tx, "webhooks", {"number": number}, created_by=made_by, old_secret=None)
    return get_webhook(tx, webhook_id, visible)


def claim_webhooks(
    tx: Transaction,
    holder: str,
    *,
    now: datetime,
    until: datetime,
    limit: int,
    capacity: WebhookCapacity = EVERY_WEBHOOK,
) -> list[WebhookJob]:
    """Claim due deliveries; per inbox only the oldest, so that events are delivered in order.

    A webhook that has reached its limit does not use up the limit of the others.
    """
    jobs: list[WebhookJob] = []
    taken = Counter(capacity.under_way)
    while len(jobs) < limit:
        among, params = _full(replace(capacity, under_way=taken).full)
        sql = DUE.format(full=among)
        due = tx.all(sql, **params, now=seconds(now), limit=limit - len(jobs))
        claimed = []
        for row in due:
            row_key, webhook = {"inbox": row[15], "number": row[0]}, row[17]
            has_capacity = taken[webhook] < capacity.each
            if has_capacity and tx.claimable(FREE, "d", **row_key, now=seconds(now)):
                taken[webhook] += 1
                update(tx, "webhook_deliveries", row_key, holder=holder, until=seconds(until))
                claimed.append(_job(row, holder, now))
        jobs += claimed
        if not claimed or len(claimed) == len(due):
            break
    return jobs


def read_event(row: Row, number: int) -> Event:
    """An event from its columns. One about a rule says to whom the rule is known.

    Those of older versions do not, and are shown in full only to callers who see everything.
    """
    event_id, kind, at, inbox_id, thread_id, message_id, text = row
    data = from_text(text)
    visible_inboxes = view_of(data.pop(VISIBILITY_KEY, None)) if kind.startswith("rule.") else None
    return Event(
        event_id, kind, moment(at), inbox_id, thread_id, message_id, data, number, visible_inboxes
    )


def _full(numbers: Sequence[int]) -> tuple[str, dict[str, object]]:
    """`IN (…)` that is valid for an empty list too; no webhook has the number 0."""
    return any_of("full", [_NO_WEBHOOK, *numbers])


def _job(row: Row, holder: str, now: datetime) -> WebhookJob:
    secrets = _signing_secrets(row[2:5], now)
    event = None
    if row[7] is not None and row[11] is not None:
        event = read_event(row[8:15], row[7]).visible_to(view_in(row[20] or row[19]))
    fields = (secrets, event, row[5], moment(row[6]))
    ids = (row[18], row[21])
    return WebhookJob(row[17], row[15], row[0], row[16], row[1], *fields, holder, *ids)


def next_webhook_at(tx: Transaction, capacity: WebhookCapacity = EVERY_WEBHOOK) -> datetime | None:
    """When the next delivery is due, to a webhook that has capacity."""
    among, params = _full(capacity.full)
    return moment_or_none(scalar(tx, NEXT.format(full=among), **params))


def settle_webhook(
    tx: Transaction,
    job: WebhookJob,
    posted: WebhookResponse,
    *,
    now: datetime,
    next_at: datetime | None,
) -> None:
    """Record the response to a delivery; without a next attempt it ends."""
    status = "delivered" if posted.is_success else "pending" if next_at else "dead"
    tx.run(
        """UPDATE webhook_deliveries
              SET status = :status, attempts = attempts + 1, status_code = :code, detail = :detail,
                  next_at = :next_at, holder = NULL, until = NULL
            WHERE inbox = :inbox AND number = :n AND holder = :holder""",
        status=status,
        code=posted.code,
        detail=posted.detail,
        next_at=seconds(next_at or now),
        inbox=job.inbox,
        n=job.number,
        holder=job.holder,
    )
    tx.run(
        "DELETE FROM webhook_deliveries WHERE status = 'delivered' AND created_at <= :before",
        before=seconds(now) - DELIVERY_RETENTION_S,
    )
    tx.announce("webhooks")


_COLUMNS = """d.number, d.id, w.id, coalesce(e.id, ''), coalesce(e.type, ''), d.status, d.attempts,
    d.status_code, d.detail, d.created_at, d.next_at, d.inbox, coalesce(d.until, 0)"""
_TABLES = """webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
    LEFT JOIN events e ON +e.inbox = +d.inbox AND e.number = d.event"""
_LISTING = Listing(
    _COLUMNS, _TABLES, "d.number", is_newest_first=True, counted="webhook_deliveries d"
)
_DELIVERY = f"SELECT {_COLUMNS} FROM {_TABLES}"
_WITH_EVENT = f"""
    SELECT {_COLUMNS}, e.number, e.id, e.type, e.at, i.id, e.thread, e.message, e.data
      FROM {_TABLES} LEFT JOIN inboxes i ON i.number = +e.inbox
     WHERE d.webhook = :n AND d.id = :id
"""


def list_deliveries(
    tx: Transaction, webhook_id: str, visible: Visible, page: Slice
) -> Found[WebhookDelivery]:
    """The deliveries of a webhook, newest first. Raises NotFound."""
    where = Conditions()
    where.add("d.webhook = :n", n=_row(tx, webhook_id, visible)[-1])
    return _LISTING.page(tx, where, page, _delivery)


def get_delivery(
    tx: Transaction, webhook_id: str, delivery_id: str, visible: Visible
) -> tuple[WebhookDelivery, Event | None]:
    """A delivery and its event as it is sent to the webhook. Raises NotFound."""
    webhook = _row(tx, webhook_id, visible)
    row = tx.one(_WITH_EVENT, n=webhook[-1], id=delivery_id)
    if row is None:
        raise NotFound(no_delivery(webhook_id, delivery_id))
    event = None
    if row[13] is not None and row[17] is not None:
        event = read_event(row[14:21], row[13]).visible_to(visible_inboxes(webhook))
    return _delivery(row), event


def no_delivery(webhook_id: str, delivery_id: str) -> str:
    return f"no delivery {delivery_id} of {webhook_id}"


def _delivery(row: Row) -> WebhookDelivery:
    next_at = moment(row[10]) if row[5] == "pending" else None
    return WebhookDelivery(
        id=row[1],
        webhook_id=row[2],
        event_id=row[3],
        type=row[4],
        status=row[5],
        attempts=row[6],
        code=row[7],
        detail=row[8],
        created_at=moment(row[9]),
        next_attempt_at=next_at,
    )


def redeliver(
    tx: Transaction, webhook_id: str, delivery_id: str, visible: Visible, now: datetime
) -> WebhookDelivery:
    """Deliver an event again, with a new series of attempts. A pending delivery keeps its order.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it is pending and has not been attempted, an attempt is running, or the webhook
            is disabled.
    """
    webhook = _row(tx, webhook_id, visible)
    if not webhook[7]:
        raise Conflict(f"{webhook_id} is disabled; enable it with update_webhook first")
    row = tx.one(f"{_DELIVERY} WHERE d.webhook = :n AND d.id = :id", n=webhook[-1], id=delivery_id)
    if row is None:
        raise NotFound(no_delivery(webhook_id, delivery_id))
    if row[5] == "pending" and (row[6] == 0 or row[12] > seconds(now)):
        raise Conflict(
            f"{delivery_id} is pending already; list_deliveries shows when it is attempted"
        )
    row_key = {"inbox": row[11], "n": row[0]}
    tx.run(
        """UPDATE webhook_deliveries
              SET is_redelivery = CASE WHEN status = 'pending' THEN is_redelivery ELSE 1 END,
                  status = 'pending', attempts = 0, first_at = :now, next_at = :now
            WHERE inbox = :inbox AND number = :n""",
        **row_key,
        now=seconds(now),
    )
    tx.announce("webhooks")
    again = tx.one(f"{_DELIVERY} WHERE d.inbox = :inbox AND d.number = :n", **row_key)
    assert again is not None
    return _delivery(again)
