"""A delivery reads the rules of its inbox, whatever was changed before, and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.model.inbox import Visible
from postroom.model.rule import Rule, text_sha256
from postroom.model.view import EVERYTHING, NOTHING, only
from postroom.pipeline.services import Services
from postroom.store.store import Store
from tests.mails import new_inbox
from tests.stores.conftest import OpenAgain
from tests.stores.memories import NOW

A, B = "inb_a", "inb_b"


async def add(store: Store, name: str, inboxes: Visible) -> Rule:
    rule = Rule(f"rul_{name}", name, "", True, 0, "", NOW, NOW, inboxes=inboxes)
    return await store.add_rule(rule, EVERYTHING)


async def names_for(store: Store, *inbox_ids: str) -> list[str]:
    found = await store.rules_for(inbox_ids)
    every = await store.all_rules()
    assert found == [rule for rule in every if rule in found]  # their order, and nothing old
    assert {r.id for r in every if any(map(r.inboxes.sees, inbox_ids))} <= {r.id for r in found}
    return [rule.name for rule in found]


async def test_rules_are_those_of_the_inboxes_and_those_for_all(store: Store) -> None:
    for name, inboxes in {"b": only(B), "all": EVERYTHING, "a": only(A), "ab": only(A, B)}.items():
        await add(store, name, inboxes)
    await add(store, "none", NOTHING)

    assert ["all", "a", "ab"] == await names_for(store, A)
    assert ["b", "all", "ab"] == await names_for(store, B)
    assert ["b", "all", "a", "ab"] == await names_for(store, B, A)
    assert ["all"] == await names_for(store, "inb_c")


async def test_a_change_of_any_process_counts_at_once(store: Store, open_again: OpenAgain) -> None:
    assert [] == await names_for(store, A)
    other = await open_again()
    try:
        first = await add(other, "first", only(B))
        await add(other, "second", only(A))
        assert ["second"] == await names_for(store, A)

        await other.replace_rule(
            replace(first, inboxes=only(A, B)), EVERYTHING, sha256=text_sha256(first.yaml)
        )
        assert ["first", "second"] == await names_for(store, A)

        await other.change_rule(first.id, EVERYTHING, enabled=False, position=2, now=NOW)
        assert ["second", "first"] == await names_for(store, A)
        assert [True, False] == [rule.enabled for rule in await store.rules_for([A])]

        await other.remove_rule(first.id, EVERYTHING)
        assert ["second"] == await names_for(store, A)
    finally:
        await other.close()


@pytest.mark.parametrize("inboxes", [1, 2])
async def test_a_rule_ends_with_its_only_inbox(
    services: Services, store: Store, inboxes: int
) -> None:
    made = [await new_inbox(services, f"bo{number}") for number in range(inboxes)]
    await add(store, "own", only(*(inbox.id for inbox in made)))
    assert ["own"] == await names_for(store, made[0].id)

    await store.remove_inbox(made[0].id, EVERYTHING, force=True)

    (rule,) = await store.all_rules()
    assert [] == [r for r in await store.rules_for([made[0].id]) if r.inboxes.sees(made[0].id)]
    assert inboxes - 1 == len(rule.inboxes.named)  # type: ignore[union-attr]


async def test_a_write_that_is_rolled_back_leaves_nothing_behind(store: Store) -> None:
    await add(store, "first", only(A))
    assert ["first"] == await names_for(store, A)

    with pytest.raises(Exception, match=r"UNIQUE|unique|rejected"):
        await add(store, "first", only(A))

    assert ["first"] == await names_for(store, A)
