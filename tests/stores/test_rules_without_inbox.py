"""Rules created for no inbox once ran on all: an upgrade disables them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from postroom.store.sql.rules import all_rules
from postroom.store.transaction import Transaction
from tests.stores.old_stores import OLDEST, OldStore

RULE = """
    INSERT INTO rules (id, name, description, enabled, position, yaml, created_at, updated_at,
                       inboxes)
    VALUES (:id, :id, '', :enabled, 1, '', 0, 0, :inboxes)
"""
RULES = {
    "of a key that sees nothing": (1, "[]"),
    "off already": (0, "[]"),
    "of everything": (1, None),
    "of one inbox": (1, '["inb_1"]'),
    "of one, and off": (0, '["inb_1"]'),
}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_an_upgrade_disables_rules_for_no_inbox(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    url = request.getfixturevalue("database_url") if database == "postgres" else ""
    old = OldStore(OLDEST, tmp_path, url, rows=False)
    for name, (enabled, inboxes) in RULES.items():
        old.write(partial(_add, name=name, enabled=enabled, inboxes=inboxes))

    new = old.open()
    rules = await new.read(all_rules)
    await new.close()

    enabled = {rule.name: rule.enabled for rule in rules}
    off = {"of a key that sees nothing", "off already", "of one, and off"}
    assert {name: name not in off for name in RULES} == enabled


def _add(tx: Transaction, *, name: str, enabled: int, inboxes: str | None) -> None:
    tx.run(RULE, id=name, enabled=enabled, inboxes=inboxes)
