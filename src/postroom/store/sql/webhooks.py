"""Webhooks: each event is put on its way in the transaction that writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.errors import NotFound, no_such
from postroom.model.event import Event
from postroom.model.ids import random_id
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.webhook import (
    EVERY_WEBHOOK,
    Posted,
    Webhook,
    WebhookJob,
    WebhookRoom,
    new_webhook_secret,
)
from postroom.store.sql.values import any_of, dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

OLD_SECRET_KEPT = timedelta(hours=24)
SEVERAL_DAYS_S = int(timedelta(days=30).total_seconds())

FAN_OUT = """
    SELECT number FROM webhooks
     WHERE (types = '[]' OR replace(types, :type, '') <> types)
       AND (inboxes IS NULL OR replace(
           inboxes, (SELECT '"' || id || '"' FROM inboxes WHERE number = :inbox), '') <> inboxes)
"""
INSERT_DELIVERY = """
    INSERT INTO webhook_deliveries
        (id, webhook, inbox, event, status, attempts, created_at, first_at, next_at, detail)
    VALUES (:id, :webhook, :inbox, :event, 'pending', 0, :now, :now, :now, '')
"""
_OLDEST = """
    (d.is_again = 1 OR NOT EXISTS (
           SELECT 1 FROM webhook_deliveries b
            WHERE b.status = 'pending' AND b.webhook = d.webhook AND b.inbox = d.inbox
              AND b.number < d.number AND b.is_again = 0))
"""
"""What is told once more by hand is out of the order anyway: it neither waits nor is waited for."""

DUE = f"""
    SELECT d.number, w.url, w.secret, w.old_secret, w.renewed_at, d.attempts, d.first_at,
           e.number, e.id, e.type, e.at, i.id, e.thread, e.message, e.data, d.inbox, d.id, d.webhook
      FROM webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
      LEFT JOIN events e ON +e.inbox = +d.inbox AND e.number = d.event
      LEFT JOIN inboxes i ON i.number = +e.inbox
     WHERE d.status = 'pending' AND d.next_at <= :now AND (d.holder IS NULL OR d.until <= :now)
       AND d.webhook NOT {{full}} AND {_OLDEST}
     ORDER BY d.next_at, d.number LIMIT :limit
"""
FREE = """
    SELECT 1 FROM webhook_deliveries d
     WHERE d.inbox = :inbox AND d.number = :n AND d.status = 'pending'
       AND (d.holder IS NULL OR d.until <= :now)
"""
"""Locked one by one, each in its own inbox: over several machines no lock reaches all rows."""

NEXT = f"""
    SELECT min(CASE WHEN d.holder IS NULL THEN d.next_at ELSE d.until END) FROM webhook_deliveries d
     WHERE d.status = 'pending' AND d.webhook NOT {{full}} AND {_OLDEST}
"""
_NO_WEBHOOK = 0


def put_on_its_way(tx: Transaction, event: int, kind: str, inbox: int, now: int) -> None:
    """Let every webhook that wants this event be told of it."""
    rows = tx.all(FAN_OUT, type=f'"{kind}"', inbox=inbox)
    for (webhook,) in rows:
        tx.run(
            INSERT_DELIVERY,
            id=random_id("dlv"),
            webhook=webhook,
            inbox=inbox,
            event=event,
            now=now,
        )
    if rows:
        tx.announce("webhooks")


def tell(tx: Transaction, target: str, event: int, inbox: int, now: datetime) -> None:
    """Let one webhook be told of an event, whatever else it is told. Raises NotFound.

    A URL gets a webhook of its own when it is first used; renewing that one shows its secret.
    """
    is_url = not target.startswith("whk_")
    row = tx.one(
        f"SELECT number FROM webhooks WHERE {'url' if is_url else 'id'} = :target ORDER BY number",
        target=target,
    )
    if row is None and not is_url:
        raise NotFound(f"webhook: there is no {target} any more")
    if row is None:
        add_webhook(tx, _webhook_for(target, now))
        row = tx.one("SELECT number FROM webhooks WHERE url = :url", url=target)
    assert row is not None
    told = tx.one(
        """SELECT 1 FROM webhook_deliveries
            WHERE inbox = :inbox AND webhook = :webhook AND event = :event""",
        inbox=inbox,
        webhook=row[0],
        event=event,
    )
    if told is None:
        tx.run(
            INSERT_DELIVERY,
            id=random_id("dlv"),
            webhook=row[0],
            inbox=inbox,
            event=event,
            now=seconds(now),
        )
        tx.announce("webhooks")


def _webhook_for(url: str, now: datetime) -> Webhook:
    secret = new_webhook_secret()
    return Webhook(random_id("whk"), url, ("rule.matched",), (), now, secret=secret)


def add_webhook(tx: Transaction, webhook: Webhook) -> None:
    """Keep a new webhook with its secret."""
    tx.run(
        """INSERT INTO webhooks (id, url, secret, types, inboxes, created_at)
           VALUES (:id, :url, :secret, :types, :inboxes, :created_at)""",
        id=webhook.id,
        url=webhook.url,
        secret=webhook.secret,
        types=dumps(webhook.types),
        inboxes=None if webhook.inboxes is None else dumps(webhook.inboxes),
        created_at=seconds(webhook.created_at),
    )


def _webhook(row: Row) -> Webhook:
    inboxes = None if row[3] is None else tuple(from_text(row[3]))
    return Webhook(row[0], row[1], tuple(from_text(row[2])), inboxes, moment(row[4]))


def _is_seen(webhook: Webhook, visible: Visible) -> bool:
    return visible is None or (bool(webhook.inboxes) and visible.issuperset(webhook.inboxes or ()))


def list_webhooks(tx: Transaction, visible: Visible, page: Slice) -> Found[Webhook]:
    """Oldest first."""
    rows = tx.all("SELECT id, url, types, inboxes, created_at FROM webhooks ORDER BY number")
    found = [webhook for row in rows if _is_seen(webhook := _webhook(row), visible)]
    start = int(page.after[0]) if page.after else page.offset
    shown = found[start : start + page.limit]
    end = start + len(shown)
    return Found(tuple(shown), len(found), start, (end,) if shown and end < len(found) else None)


def webhook_number(tx: Transaction, webhook_id: str, visible: Visible) -> int:
    """The number of a webhook that is there and may be seen. Raises NotFound."""
    row = tx.one(
        "SELECT id, url, types, inboxes, created_at, number FROM webhooks WHERE id = :id",
        id=webhook_id,
    )
    if row is None or not _is_seen(_webhook(row[:5]), visible):
        raise NotFound(no_such("webhook", webhook_id))
    return int(row[5])


def remove_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> None:
    """Tell it nothing more. Raises NotFound."""
    number = webhook_number(tx, webhook_id, visible)
    tx.run("DELETE FROM webhook_deliveries WHERE webhook = :number", number=number)
    tx.run("DELETE FROM webhooks WHERE number = :number", number=number)


def renew_webhook(
    tx: Transaction, webhook_id: str, secret: str, visible: Visible, now: datetime
) -> Webhook:
    """Give a webhook a new secret; the old one signs as well for a day. Raises NotFound."""
    number = webhook_number(tx, webhook_id, visible)
    tx.run(
        """UPDATE webhooks SET old_secret = secret, secret = :secret, renewed_at = :now
            WHERE number = :number""",
        secret=secret,
        now=seconds(now),
        number=number,
    )
    row = tx.one(
        "SELECT id, url, types, inboxes, created_at FROM webhooks WHERE number = :n", n=number
    )
    assert row is not None
    return _webhook(row)


def claim_webhooks(
    tx: Transaction,
    holder: str,
    *,
    now: datetime,
    until: datetime,
    limit: int,
    room: WebhookRoom = EVERY_WEBHOOK,
) -> list[WebhookJob]:
    """Take what is due; of one inbox only the oldest, so that events come in their order.

    A webhook that has as much as there is room for leaves the rest of the places to others.
    """
    jobs: list[WebhookJob] = []
    taken = Counter(room.under_way)
    while len(jobs) < limit:
        among, params = _full(replace(room, under_way=taken).full)
        sql = DUE.format(full=among)
        due = tx.all(sql, **params, now=seconds(now), limit=limit - len(jobs))
        claimed = [row for row in due if _is_claimed(tx, row, holder, now, until, taken, room.each)]
        jobs += (_job(row, holder, now) for row in claimed)
        if not claimed or len(claimed) == len(due):
            break
    return jobs


def _full(numbers: Sequence[int]) -> tuple[str, dict[str, object]]:
    """`IN (…)` that also holds for nothing, as long as no webhook has the number 0."""
    return any_of("full", [_NO_WEBHOOK, *numbers])


def _is_claimed(
    tx: Transaction,
    row: Row,
    holder: str,
    now: datetime,
    until: datetime,
    taken: Counter[int],
    each: int,
) -> bool:
    """Take one delivery, if there is room for it and nobody else has it."""
    number, inbox, webhook = row[0], row[15], row[17]
    if taken[webhook] >= each:
        return False
    if not tx.claimable(FREE, "d", inbox=inbox, n=number, now=seconds(now)):
        return False
    taken[webhook] += 1
    tx.run(
        """UPDATE webhook_deliveries SET holder = :holder, until = :until
            WHERE inbox = :inbox AND number = :n""",
        holder=holder,
        until=seconds(until),
        inbox=inbox,
        n=number,
    )
    return True


def _job(row: Row, holder: str, now: datetime) -> WebhookJob:
    secrets = [row[2]]
    if row[3] is not None and now - moment(row[4]) < OLD_SECRET_KEPT:
        secrets.append(row[3])
    event = None
    if row[7] is not None and row[11] is not None:
        event = Event(
            row[8], row[9], moment(row[10]), row[11], row[12], row[13], from_text(row[14]), row[7]
        )
    told = (tuple(secrets), event, row[5], moment(row[6]))
    return WebhookJob(row[17], row[15], row[0], row[16], row[1], *told, holder)


def next_webhook_at(tx: Transaction, room: WebhookRoom = EVERY_WEBHOOK) -> datetime | None:
    """When there is something to tell next, to a webhook that there is room for."""
    among, params = _full(room.full)
    row = tx.one(NEXT.format(full=among), **params)
    return moment(row[0]) if row and row[0] is not None else None


def settle_webhook(
    tx: Transaction, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
) -> None:
    """Write down what the other side said; without a next time it is over."""
    status = "delivered" if posted.is_taken else "pending" if next_at else "dead"
    tx.run(
        """UPDATE webhook_deliveries
              SET status = :status, attempts = attempts + 1, code = :code, detail = :detail,
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
        before=seconds(now) - SEVERAL_DAYS_S,
    )
    tx.announce("webhooks")
