"""The limit of rules counts only the rules that a key sees."""

from __future__ import annotations

import pytest

from postroom.errors import Conflict
from postroom.model.inbox import Visible
from postroom.model.rule import Rule
from postroom.model.view import EVERYTHING, only
from postroom.store.sql import rules
from postroom.store.store import Store
from tests.stores.memories import NOW

MOST, OF_ALL = 3, 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_RULES", MOST)
    monkeypatch.setattr(rules, "MAX_RULES_TOTAL", OF_ALL)


async def add(store: Store, name: str, inboxes: Visible, visible: Visible | None = None) -> Rule:
    rule = Rule(f"rul_{name}", name, "", True, 0, "", NOW, NOW, inboxes=inboxes)
    return await store.add_rule(rule, inboxes if visible is None else visible)


async def added_until_refused(store: Store, name: str, inboxes: Visible, visible: Visible) -> int:
    for number in range(99):
        try:
            await add(store, f"{name}{number}", inboxes, visible)
        except Conflict:
            return number
    return 99


async def test_hidden_rules_do_not_count(store: Store) -> None:
    for number in range(5):
        await add(store, f"all{number}", EVERYTHING)
    for number in range(2):
        await add(store, f"shared{number}", only("inb_b", "inb_c"), EVERYTHING)
    a, b, bc = only("inb_a"), only("inb_b"), only("inb_b", "inb_c")

    assert MOST == await added_until_refused(store, "a", a, a)
    assert MOST == await added_until_refused(store, "b", b, b)
    assert 0 == await added_until_refused(store, "bc", bc, bc)


async def test_the_error_names_visible_rules_and_a_remedy(store: Store) -> None:
    for number in range(5):
        await add(store, f"b{number}", only("inb_b"), EVERYTHING)
    a = only("inb_a")
    await added_until_refused(store, "a", a, a)

    with pytest.raises(Conflict, match=f"there are {MOST} rules already.*delete_rule removes"):
        await add(store, "more", a)
    await store.remove_rule("rul_a0", a)

    assert MOST == (await add(store, "more", a)).position


async def test_unlimited_callers_have_a_higher_limit(store: Store) -> None:
    for name in ("inb_a", "inb_b"):
        await added_until_refused(store, name, only(name), only(name))

    assert OF_ALL - 2 * MOST == await added_until_refused(store, "all", EVERYTHING, EVERYTHING)
