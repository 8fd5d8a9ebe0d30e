"""Rules store memories from mail, with the trust of mail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from postroom.calls.operation import call
from postroom.errors import Forbidden, InvalidInput
from postroom.model.view import NOTHING, only
from postroom.operations import keys, memories, rules
from postroom.operations.memories import export_memories, import_memories
from tests.mails import deliver, mail, new_inbox
from tests.operations.rule_helpers import plan_of, rule, saved

REMEMBERS = rule(then='{remember: {key: supplier, text: "They bill in May."}}')


async def test_a_memory_of_a_rule_has_the_trust_of_mail(ctx):
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

    assert ["the memory supplier stays; memory_delete removes it"] == [
        failure.message for failure in undone.failed
    ]


@pytest.mark.parametrize("key", ["search", "k" * 257])
async def test_a_memory_must_have_a_key_that_memories_can_have(ctx, key):
    text = rule(then=f'{{remember: {{key: "{key}", text: t}}}}')

    with pytest.raises(InvalidInput, match="key"):
        await saved(ctx, text)


async def test_a_rule_needs_the_right_to_write_its_namespace(ctx):
    limited = replace(ctx, caller=replace(ctx.caller, namespaces=only("other")))

    with pytest.raises(Forbidden, match="namespace default"):
        await saved(limited, REMEMBERS)


@pytest.mark.parametrize("is_plan", [True, False])
async def test_audit_entries_are_hidden_with_their_namespace(ctx, is_plan):
    inbox = await new_inbox(ctx)
    both = rule(then='mark_read, {remember: {key: supplier, text: "They bill in May."}}')
    if is_plan:
        await deliver(ctx, inbox, mail("An invoice"))
        plan = await plan_of(ctx, both)
        await call(ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    else:
        await saved(ctx, both)
        await deliver(ctx, inbox, mail("An invoice"))

    async def told(**limits):
        limited = replace(ctx, caller=replace(ctx.caller, **limits))
        page = await call(limited, keys.list_audit, {})
        return [act for entry in page.results for act in entry.details.get("actions", ())]

    remembered = {"type": "remember", "key": "supplier", "text": "They bill in May."}
    everything = await told()
    assert remembered in everything
    assert {"type": "mark_read"} in everything
    others = [act for act in everything if act != remembered]
    assert others == await told(namespaces=only("other"))
    assert others == await told(namespaces=NOTHING, inboxes=only(inbox.id))
    assert everything == await told(namespaces=only("default"))


@pytest.mark.parametrize("namespaces", [NOTHING, only("other")])
async def test_hidden_namespaces_are_neither_exported_nor_imported(ctx, namespaces):
    limited = replace(ctx, caller=replace(ctx.caller, namespaces=namespaces))
    await call(ctx, memories.memory_add, {"key": "k", "text": "Ana likes tea."})

    exported = [memory async for memory in export_memories(limited, None)]
    named = [memory async for memory in export_memories(limited, ("default",))]
    taken = await import_memories(limited, [b'{"key": "k", "text": "New."}'])

    assert [] == [*exported, *named]
    assert (0, 1) == (taken.created + taken.changed, taken.refused)
