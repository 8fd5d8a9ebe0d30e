"""What became of telling webhooks: looked at, and told once more."""

from __future__ import annotations

from datetime import datetime

from postroom.errors import Conflict, NotFound
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.webhook import WebhookDelivery
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.pages import Listing
from postroom.store.sql.values import moment, seconds
from postroom.store.sql.webhooks import webhook_number
from postroom.store.transaction import Row, Transaction

_COLUMNS = """d.number, d.id, w.id, coalesce(e.id, ''), coalesce(e.type, ''), d.status, d.attempts,
    d.code, d.detail, d.created_at, d.next_at, d.inbox, coalesce(d.until, 0)"""
_TABLES = """webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
    LEFT JOIN events e ON +e.inbox = +d.inbox AND e.number = d.event"""
_LISTING = Listing(
    _COLUMNS, _TABLES, "d.number", is_newest_first=True, counted="webhook_deliveries d"
)
_DELIVERY = f"SELECT {_COLUMNS} FROM {_TABLES}"


def list_deliveries(
    tx: Transaction, webhook_id: str, visible: Visible, page: Slice
) -> Found[WebhookDelivery]:
    """The log of a webhook, newest first. Raises NotFound."""
    where = Conditions()
    where.add("d.webhook = :n", n=webhook_number(tx, webhook_id, visible))
    return _LISTING.page(tx, where, page, _delivery)


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
    """Tell it once more, as if for the first time. What still has its turn in the order keeps it.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it is about to be told anyway.
    """
    number = webhook_number(tx, webhook_id, visible)
    row = tx.one(f"{_DELIVERY} WHERE d.webhook = :n AND d.id = :id", n=number, id=delivery_id)
    if row is None:
        raise NotFound(f"no delivery {delivery_id} of {webhook_id}")
    if row[5] == "pending" and (row[6] == 0 or row[12] > seconds(now)):
        raise Conflict(f"{delivery_id} is on its way already")
    tx.run(
        """UPDATE webhook_deliveries
              SET is_again = CASE WHEN status = 'pending' THEN is_again ELSE 1 END,
                  status = 'pending', attempts = 0, first_at = :now, next_at = :now
            WHERE inbox = :inbox AND number = :n""",
        now=seconds(now),
        inbox=row[11],
        n=row[0],
    )
    tx.announce("webhooks")
    which = "d.inbox = :inbox AND d.number = :n"
    again = tx.one(f"{_DELIVERY} WHERE {which}", inbox=row[11], n=row[0])
    assert again is not None
    return _delivery(again)
