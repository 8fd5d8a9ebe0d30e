"""Webhook deliveries that rules cause."""

from __future__ import annotations

from datetime import datetime

from postroom.errors import NotFound
from postroom.model.event import Webhook
from postroom.model.inbox import Visible
from postroom.model.key import OWNER
from postroom.model.page import random_id
from postroom.model.values import dataclass
from postroom.model.view import NOTHING, Everything
from postroom.store.sql.events.webhooks import (
    COLUMNS,
    add_webhook,
    find_webhook,
    insert_delivery,
    known_in,
)
from postroom.store.sql.values import scalar, seconds
from postroom.store.transaction import Row, Transaction
from postroom.store.webhooks import DERIVED

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
    """Insert a delivery of an event to one webhook, once, unless it is disabled.

    Raises NotFound. A webhook for a URL is created on first use; renewing it shows its secret.
    """
    if target.startswith("whk_"):
        webhook = _named(tx, target, signer.visible)
    else:
        webhook = _at_url(tx, target, inbox, signer, now)
    is_enabled = scalar(tx, "SELECT is_enabled FROM webhooks WHERE number = :n", n=webhook)
    if not is_enabled:
        return
    if tx.one(DELIVERY_EXISTS, inbox=inbox, webhook=webhook, event=event) is None:
        insert_delivery(tx, webhook, event, inbox, seconds(now))


def _named(tx: Transaction, webhook_id: str, visible: Visible) -> int:
    row = find_webhook(tx, webhook_id, visible)
    if row is None:
        raise NotFound(f"webhook: {webhook_id} no longer exists")
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
