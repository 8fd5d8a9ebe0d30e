"""Webhooks, their deliveries, and deliveries that rules cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.event import (
    EVERY_WEBHOOK,
    Event,
    Posted,
    Webhook,
    WebhookCapacity,
    WebhookDelivery,
    WebhookJob,
)
from postroom.model.inbox import Visible
from postroom.model.key import OWNER
from postroom.model.page import Found, Slice, random_id
from postroom.model.view import NOTHING, Everything, named_in, view_of
from postroom.store.sql.audit import SEEN_IN
from postroom.store.sql.conditions import Conditions, Listing, page_of
from postroom.store.sql.values import (
    any_of,
    dumps,
    from_text,
    insert,
    moment,
    moment_or_none,
    scalar,
    seconds,
    stored_view,
    view_in,
)
from postroom.store.transaction import Row, Transaction
from postroom.store.webhook_secrets import DERIVED

OLD_SECRET_VALID = timedelta(hours=24)
DELIVERY_RETENTION_S = int(timedelta(days=30).total_seconds())

FAN_OUT = """
    SELECT number FROM webhooks
     WHERE (types = '[]' OR replace(types, :type, '') <> types)
       AND (inboxes IS NULL OR replace(
           inboxes, (SELECT '"' || id || '"' FROM inboxes WHERE number = :inbox), '') <> inboxes)
       AND (coalesce(created_by, '') IN ('', 'owner', 'agent')
            OR EXISTS (SELECT 1 FROM keys k WHERE k.id = created_by))
"""
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
     WHERE d.status = 'pending' AND d.next_at <= :now AND (d.holder IS NULL OR d.until <= :now)
       AND d.webhook NOT {{full}} AND {_OLDEST}
     ORDER BY d.next_at, d.number LIMIT :limit
"""
FREE = """
    SELECT 1 FROM webhook_deliveries d
     WHERE d.inbox = :inbox AND d.number = :n AND d.status = 'pending'
       AND (d.holder IS NULL OR d.until <= :now)
"""
"""Rows are locked one by one, by inbox, because a lock cannot span several machines."""

CLAIM = """
    UPDATE webhook_deliveries SET holder = :holder, until = :until
     WHERE inbox = :inbox AND number = :n
"""
NEXT = f"""
    SELECT min(CASE WHEN d.holder IS NULL THEN d.next_at ELSE d.until END) FROM webhook_deliveries d
     WHERE d.status = 'pending' AND d.webhook NOT {{full}} AND {_OLDEST}
"""
_NO_WEBHOOK = 0
COLUMNS = "id, url, types, inboxes, created_at, visible_inboxes, created_by"


def insert_deliveries(tx: Transaction, event: int, kind: str, inbox: int, now: int) -> None:
    """Insert a delivery for each webhook that subscribes to this event."""
    for (webhook,) in tx.all(FAN_OUT, type=f'"{kind}"', inbox=inbox):
        insert_delivery(tx, webhook, event, inbox, now)


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


def add_webhook(tx: Transaction, webhook: Webhook, seen_in: Visible | None = None) -> None:
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
        visible_inboxes=None if seen_in is None else dumps(named_in(seen_in)),
        created_by=webhook.made_by,
    )


def _webhook(row: Row) -> Webhook:
    types, inboxes = tuple(from_text(row[2])), view_in(row[3])
    return Webhook(row[0], row[1], types, inboxes, moment(row[4]), made_by=row[6])


def is_seen(row: Row, visible: Visible) -> bool:
    """Whether a webhook is visible: the caller must see all inboxes that it was created for."""
    return visible.covers(known_in(row))


def known_in(row: Row) -> Visible:
    """The inboxes that a webhook was created for, or those of the key of its rule.

    Removed inboxes stay included.
    """
    return view_in(row[3] if row[5] is None else row[5])


def list_webhooks(tx: Transaction, visible: Visible, page: Slice) -> Found[Webhook]:
    """One page of webhooks, oldest first."""
    rows = tx.all(f"SELECT {COLUMNS} FROM webhooks ORDER BY number")
    found = [_webhook(row) for row in rows if is_seen(row, visible)]
    return page_of(found, page)


def webhook_number(tx: Transaction, webhook_id: str, visible: Visible) -> int:
    """The number of a visible webhook. Raises NotFound."""
    row = _find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(no_such("webhook", webhook_id))
    return int(row[-1])


def _find_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> Row | None:
    row = tx.one(f"SELECT {COLUMNS}, number FROM webhooks WHERE id = :id", id=webhook_id)
    return row if row is not None and is_seen(row, visible) else None


def has_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> bool:
    return _find_webhook(tx, webhook_id, visible) is not None


def remove_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> None:
    """Remove a webhook and its deliveries. Raises NotFound."""
    number = webhook_number(tx, webhook_id, visible)
    tx.run("DELETE FROM webhook_deliveries WHERE webhook = :number", number=number)
    tx.run("DELETE FROM webhooks WHERE number = :number", number=number)


def get_webhook(tx: Transaction, webhook_id: str, visible: Visible) -> Webhook:
    """One webhook. Raises NotFound."""
    row = _find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(no_such("webhook", webhook_id))
    return _webhook(row)


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
    number = webhook_number(tx, webhook_id, visible)
    tx.run(
        """UPDATE webhooks SET old_secret = secret, secret = :secret, secret_renewed_at = :now
            WHERE number = :number""",
        secret=secret,
        now=seconds(now),
        number=number,
    )
    if made_by is not None:
        tx.run(
            "UPDATE webhooks SET created_by = :key, old_secret = NULL WHERE number = :number",
            key=made_by,
            number=number,
        )
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
            which, webhook = {"inbox": row[15], "n": row[0]}, row[17]
            has_capacity = taken[webhook] < capacity.each
            if has_capacity and tx.claimable(FREE, "d", **which, now=seconds(now)):
                taken[webhook] += 1
                tx.run(CLAIM, **which, holder=holder, until=seconds(until))
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
    seen_in = view_of(data.pop(SEEN_IN, None)) if kind.startswith("rule.") else None
    return Event(event_id, kind, moment(at), inbox_id, thread_id, message_id, data, number, seen_in)


def _full(numbers: Sequence[int]) -> tuple[str, dict[str, object]]:
    """`IN (…)` that is valid for an empty list too; no webhook has the number 0."""
    return any_of("full", [_NO_WEBHOOK, *numbers])


def _job(row: Row, holder: str, now: datetime) -> WebhookJob:
    secrets = [row[2]]
    if row[3] is not None and now - moment(row[4]) < OLD_SECRET_VALID:
        secrets.append(row[3])
    event = None
    if row[7] is not None and row[11] is not None:
        event = read_event(row[8:15], row[7]).shown_to(view_in(row[20] or row[19]))
    fields = (tuple(secrets), event, row[5], moment(row[6]))
    ids = (row[18], row[21])
    return WebhookJob(row[17], row[15], row[0], row[16], row[1], *fields, holder, *ids)


def next_webhook_at(tx: Transaction, capacity: WebhookCapacity = EVERY_WEBHOOK) -> datetime | None:
    """When the next delivery is due, to a webhook that has capacity."""
    among, params = _full(capacity.full)
    return moment_or_none(scalar(tx, NEXT.format(full=among), **params))


def settle_webhook(
    tx: Transaction, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
) -> None:
    """Record the response to a delivery; without a next attempt it ends."""
    status = "delivered" if posted.is_taken else "pending" if next_at else "dead"
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


def list_deliveries(
    tx: Transaction, webhook_id: str, visible: Visible, page: Slice
) -> Found[WebhookDelivery]:
    """The deliveries of a webhook, newest first. Raises NotFound."""
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
    """Deliver an event again, with a new series of attempts. A pending delivery keeps its order.

    Raises:
        NotFound: there is no such delivery.
        Conflict: it is pending and has not been attempted, or an attempt is running.
    """
    number = webhook_number(tx, webhook_id, visible)
    row = tx.one(f"{_DELIVERY} WHERE d.webhook = :n AND d.id = :id", n=number, id=delivery_id)
    if row is None:
        raise NotFound(f"no delivery {delivery_id} of {webhook_id}")
    if row[5] == "pending" and (row[6] == 0 or row[12] > seconds(now)):
        raise Conflict(f"{delivery_id} is pending already")
    tx.run(
        """UPDATE webhook_deliveries
              SET is_redelivery = CASE WHEN status = 'pending' THEN is_redelivery ELSE 1 END,
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


BY_URL = f"SELECT {COLUMNS}, number FROM webhooks WHERE url = :target ORDER BY number"
DELIVERY_EXISTS = """
    SELECT 1 FROM webhook_deliveries
     WHERE inbox = :inbox AND webhook = :webhook AND event = :event
"""


@dataclass(frozen=True, slots=True)
class Signer:
    """The key on whose authority a rule calls webhooks, and the inboxes that it sees.

    A rule without a recorded key has the authority "".
    """

    authority: str
    visible: Visible


def insert_rule_delivery(
    tx: Transaction, target: str, event: int, inbox: int, signer: Signer, now: datetime
) -> None:
    """Insert a delivery of an event to one webhook, once.

    Raises NotFound. A webhook for a URL is created on first use; renewing it shows its secret.
    """
    if target.startswith("whk_"):
        webhook = _named(tx, target, signer.visible)
    else:
        webhook = _at_url(tx, target, inbox, signer, now)
    if tx.one(DELIVERY_EXISTS, inbox=inbox, webhook=webhook, event=event) is None:
        insert_delivery(tx, webhook, event, inbox, seconds(now))


def _named(tx: Transaction, webhook_id: str, visible: Visible) -> int:
    row = _find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(f"webhook: there is no {webhook_id} any more")
    return int(row[-1])


def _at_url(tx: Transaction, url: str, inbox: int, signer: Signer, now: datetime) -> int:
    inbox_id = scalar(tx, "SELECT id FROM inboxes WHERE number = :inbox", inbox=inbox) or ""
    for row in tx.all(BY_URL, target=url):
        if _may_sign(row, inbox_id, signer):
            return int(row[-1])
    made = Webhook(
        random_id("whk"),
        url,
        ("rule.matched",),
        NOTHING,
        now,
        secret=DERIVED,
        made_by=signer.authority,
    )
    add_webhook(tx, made, seen_in=signer.visible)
    return _named(tx, made.id, signer.visible)


def _may_sign(row: Row, inbox_id: str, signer: Signer) -> bool:
    """Whether a webhook with the URL may sign for this key.

    The creator of a webhook has its secret, and whoever sees it can renew it. So it must belong to
    the key, or to the owner and be invisible to keys that see less. Whoever sees a webhook sees its
    events, so they must see the inbox.
    """
    known, maker, visible = known_in(row), row[6], signer.visible
    if not known.sees(inbox_id) or not visible.covers(known):
        return False
    if isinstance(visible, Everything) and not isinstance(known, Everything):
        return False
    is_owners = maker == OWNER.key_id and signer.authority and known.covers(visible)
    return maker == signer.authority or bool(is_owners)
