"""Rules remember what mail says, as the word of mail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.errors import Forbidden, InvalidInput
from postroom.operations import memories, rules
from postroom.operations.operation import call
from tests.mails import deliver, mail, new_inbox
from tests.operations.ruling import plan_of, rule, saved

REMEMBERS = rule(then='{remember: {key: supplier, text: "They bill in May."}}')


async def test_a_rule_remembers_and_the_memory_says_that_it_is_mails_word(ctx):
    inbox = await new_inbox(ctx)
    await saved(ctx, REMEMBERS)

    message = (await deliver(ctx, inbox, mail("An invoice"))).message_id

    memory = await call(ctx, memories.memory_get, {"key": "supplier"})
    assert ("They bill in May.", "mail") == (memory.text, memory.trust)
    assert [("learnt_from", message)] == [(link.type, link.to) for link in memory.links]


async def test_undoing_a_plan_names_the_memory_that_stays(ctx):
    await deliver(ctx, await new_inbox(ctx), mail("An invoice"))
    plan = await plan_of(ctx, REMEMBERS)
    await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})

    undone = await call(ctx, rules.undo_rule_plan, {"plan_id": plan.plan_id})

    assert ["the memory supplier stays; memory_delete forgets it"] == [
        failure.message for failure in undone.failed
    ]


@pytest.mark.parametrize("key", ["search", "k" * 257])
async def test_a_memory_must_have_a_key_that_memories_can_have(ctx, key):
    text = rule(then=f'{{remember: {{key: "{key}", text: t}}}}')

    with pytest.raises(InvalidInput, match="key"):
        await saved(ctx, text)


async def test_who_may_not_write_a_namespace_saves_no_rule_that_would(ctx):
    limited = replace(ctx, caller=replace(ctx.caller, namespaces=frozenset({"other"})))

    with pytest.raises(Forbidden, match="namespace default"):
        await saved(limited, REMEMBERS)
