"""Rules, webhooks and jobs of a version without recorded keys get them from the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from postroom.model.rule import Loss
from postroom.model.view import EVERYTHING, only
from postroom.rules.definition import authority_of_rule
from postroom.store.audited_store import AuditHmac
from postroom.store.sql.events import WebhookAuthority, insert_rule_delivery
from postroom.store.store import Store
from postroom.store.transaction import Transaction
from tests.stores.old_stores import OLDEST, OldStore

ANA, BOB = '["inb_a"]', '["inb_b"]'


def put(tx: Transaction, table: str, **row: Any) -> None:
    columns = ", ".join(row)
    tx.run(f"INSERT INTO {table} ({columns}) VALUES ({', '.join(f':{c}' for c in row)})", **row)


class OldRows:
    """Writes rows as the earlier version did."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.entries = 0
        for name in ("a", "b"):
            row = {"id": f"inb_{name}", "address": f"{name}@x", "name": name, "created_at": 0}
            put(tx, "inboxes", number=len(name) + (name == "b"), payload=b"", **row)

    def rule(self, rule_id: str, inboxes: str | None, actor: str | None = None) -> None:
        row = {"id": rule_id, "name": "r", "description": "", "enabled": 1, "position": 1}
        times = {"created_at": 0, "updated_at": 0}
        put(self.tx, "rules", **row, **times, yaml="name: r", inboxes=inboxes)
        if actor is not None:
            self.log(actor, "create_rule", rule_id)

    def log(self, actor: str, action: str, target: str, **details: object) -> None:
        self.entries += 1
        text = json.dumps(details, separators=(",", ":"))
        row = {"actor": actor, "action": action, "target": target, "details": text, "at": 0}
        put(self.tx, "audit", number=self.entries, id=f"aud_{self.entries}", hash=b"", **row)

    def job(self, name: str, rule: str, plan: str | None = None) -> None:
        row = {"id": name, "rule": rule, "name": "r", "plan": plan, "message": f"msg_{name}"}
        act = '["forward","x@y.org",""]'
        put(self.tx, "errands", **row, inbox=1, act=act, state="waiting", attempts=0, next_at=0)

    def hook(self, hook_id: str, inboxes: str | None, actor: str | None, **more: str) -> int:
        row = {"id": hook_id, "url": f"https://x.org/{hook_id}", "types": '["message.bounced"]'}
        put(self.tx, "webhooks", **{**row, **more}, secret="s", inboxes=inboxes, created_at=0)
        if actor is not None:
            self.log(actor, "create_webhook", hook_id)
        found = self.tx.one("SELECT number FROM webhooks WHERE id = :id", id=hook_id)
        assert found is not None
        return int(found[0])

    def delivery(self, name: str, hook: int, rule: str, status: str = "pending") -> None:
        """A rule queues a delivery of this webhook for a mail in Ana's inbox."""
        self.entries += 1
        data = json.dumps({"rule_id": rule, "rule": "r"}, separators=(",", ":"))
        event = {"number": self.entries, "id": f"evt_{name}", "message": f"msg_{name}"}
        put(self.tx, "events", **event, type="rule.matched", at=0, inbox=1, data=data)
        times = {"created_at": 0, "first_at": 0, "next_at": 0}
        row = {"id": name, "webhook": hook, "inbox": 1, "event": self.entries, "detail": ""}
        put(self.tx, "webhook_deliveries", **row, **times, status=status, attempts=0)


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldStore:
    """A database of a version that did not record keys."""
    url = request.getfixturevalue("database_url") if request.param == "postgres" else ""
    return OldStore(OLDEST, tmp_path, url, rows=False)


def upgraded(old: OldStore, write: Callable[[OldRows], None]) -> Store:
    old.write(lambda tx: write(OldRows(tx)))
    return Store(old.open(), AuditHmac(b""))


async def test_a_rule_gets_the_key_of_its_audit_entry(old: OldStore) -> None:
    def write(rows: OldRows) -> None:
        rows.rule("rul_owners", ANA, "owner")
        rows.rule("rul_agents", None, "agent")
        rows.rule("rul_limited", ANA, "key_a")
        rows.rule("rul_for_all", None, "key_all")
        rows.rule("rul_enabled", ANA, "key_a")
        rows.log("owner", "update_rule", "rul_enabled", enabled=True)
        rows.rule("rul_moved", ANA, "owner")
        rows.log("key_b", "update_rule", "rul_moved", position=1)
        rows.rule("rul_off", ANA, "owner")
        rows.log("key_b", "update_rule", "rul_off")
        rows.rule("rul_unknown", ANA)
        rows.rule("rul_unknown_for_all", None)

    store = upgraded(old, write)
    rules = {rule.id: authority_of_rule(rule) for rule in await store.all_rules()}
    await store.close()

    assert {
        "rul_owners": "owner",
        "rul_agents": "owner",
        "rul_limited": "key_a",
        "rul_for_all": "key_all",
        "rul_enabled": "owner",
        "rul_moved": "key_b",
        "rul_off": "owner",
        "rul_unknown": "",
        "rul_unknown_for_all": "",
    } == rules


async def test_a_pending_job_runs_with_its_key_or_not_at_all(old: OldStore) -> None:
    def write(rows: OldRows) -> None:
        rows.rule("rul_owners", None, "owner")
        rows.rule("rul_limited", ANA, "key_a")
        rows.rule("rul_nothing", "[]", "key_none")
        rows.rule("rul_unknown", ANA)
        for name in ("owners", "limited", "nothing", "unknown", "gone"):
            rows.job(name, f"rul_{name}")
        rows.job("nothing_too", "rul_nothing")
        rows.job("planned", "pln_1", "pln_1")
        rows.log("key_a", "apply_rule_plan", "msg_planned", plan_id="pln_1", rule_id=None)
        rows.job("ruled_plan", "rul_nothing", "pln_2")
        rows.log("owner", "apply_rule_plan", "msg_ruled_plan", plan_id="pln_2", rule_id="r")
        rows.job("unplanned", "pln_3", "pln_3")
        rows.log("owner", "apply_rule_plan", "msg_unplanned", plan_id="pln_4", rule_id=None)

    store = upgraded(old, write)
    rows = await store.engine.read(lambda tx: tx.all("SELECT id, authority FROM rule_jobs"))
    lost = await store.upgrade_losses()
    await store.close()

    left = {"owners": "owner", "limited": "key_a", "unknown": ""}
    assert left | {"planned": "key_a", "ruled_plan": "owner"} == dict(rows)
    assert {
        Loss("rule_job", "rul_nothing", 2),
        Loss("rule_job", "rul_gone", 1),
        Loss("rule_job", "pln_3", 1),
    } == set(lost)


async def test_a_webhook_gets_only_permitted_deliveries_of_rules(old: OldStore) -> None:
    def write(rows: OldRows) -> None:
        rows.rule("rul_owners", ANA, "owner")
        rows.rule("rul_a", ANA, "key_a")
        rows.rule("rul_nothing", "[]", "key_none")
        owners = rows.hook("whk_owners", None, "owner")
        wants = rows.hook("whk_wants", None, "owner", types="[]")
        ana = rows.hook("whk_ana", ANA, "owner")
        mine = rows.hook("whk_mine", '["inb_b","inb_a"]', "key_a")
        both = rows.hook("whk_both", '["inb_a","inb_b"]', "key_ab")
        bob = rows.hook("whk_bob", BOB, "key_b")
        none = rows.hook("whk_none", "[]", "key_none")
        made = rows.hook("whk_made", "[]", None, types='["rule.matched"]')
        for name, hook in {"owners": owners, "bob": bob, "made": made, "none": none}.items():
            rows.delivery(f"kept_{name}", hook, "rul_owners")
        for name, hook in {"wants": wants, "ana": ana, "mine": mine}.items():
            rows.delivery(f"kept_{name}", hook, "rul_a")
        for name, hook in {"owners": owners, "bob": bob, "both": both, "made": made}.items():
            rows.delivery(f"lost_{name}", hook, "rul_a")
        for name, hook in {"bob": bob, "none": none, "made": made}.items():
            rows.delivery(f"lost_nothing_{name}", hook, "rul_nothing")
        rows.delivery("lost_log", bob, "rul_a", "dead")
        rows.delivery("kept_log", owners, "rul_a", "delivered")

    store = upgraded(old, write)
    rows = await store.engine.read(lambda tx: tx.all("SELECT id FROM webhook_deliveries"))
    lost = await store.upgrade_losses()
    await store.close()

    names = "owners bob made none wants ana mine log"
    assert {f"kept_{name}" for name in names.split()} == {row[0] for row in rows}
    counted = {"whk_owners": 1, "whk_bob": 2, "whk_both": 1, "whk_made": 2, "whk_none": 1}
    assert counted == {one.subject: one.lost for one in lost}
    assert {"delivery"} == {one.kind for one in lost}


@pytest.mark.parametrize("actor", [None, "owner", "key_none", "key_all"])
@pytest.mark.parametrize("inboxes", [None, "[]"])
async def test_the_owner_signs_only_with_secrets_of_the_owner(
    old: OldStore, actor: str | None, inboxes: str | None
) -> None:
    is_of_a_rule = actor is None and inboxes == "[]"

    def write(rows: OldRows) -> None:
        types = '["rule.matched"]' if is_of_a_rule else "[]"
        rows.hook("whk_1", inboxes, actor, url="https://x.org/u", types=types)

    store = upgraded(old, write)
    signers = {
        "owner": WebhookAuthority("owner", EVERYTHING),
        "a": WebhookAuthority("key_a", only("inb_a")),
    }
    told = {}
    for event, (name, webhook_authority) in enumerate(signers.items(), 1):
        await store.engine.write(partial(_tell, event=event, webhook_authority=webhook_authority))
        told[name] = await store.engine.read(partial(_told_by, event=event))
    seen = [await store.has_webhook("whk_1", visible) for visible in (EVERYTHING, only("inb_a"))]
    await store.close()

    is_owners = is_of_a_rule or (actor == "owner" and inboxes is None)
    assert (is_owners, False) == (told["owner"] == "whk_1", told["a"] == "whk_1")
    assert [True, False] == seen


def _tell(tx: Transaction, event: int, webhook_authority: WebhookAuthority) -> None:
    insert_rule_delivery(
        tx, "https://x.org/u", event, 1, webhook_authority, datetime(2026, 6, 1, tzinfo=UTC)
    )


def _told_by(tx: Transaction, event: int) -> str:
    row = tx.one(
        """SELECT w.id FROM webhook_deliveries d JOIN webhooks w ON w.number = d.webhook
            WHERE d.inbox = 1 AND d.event = :event""",
        event=event,
    )
    assert row is not None
    return str(row[0])
