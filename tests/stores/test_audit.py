"""Actions are in the audit log, and each caller sees the entries of its own objects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postroom.calls.operation import call
from postroom.errors import InvalidInput, NotFound
from postroom.model.event import AuditQuery, AuditRecord
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING, NOTHING, only
from postroom.operations import inboxes, keys, memories, rules
from postroom.operations.mail import message_changes, messages
from postroom.operations.mail.inbound import receive_message
from postroom.operations.outgoing import drafts, sending
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox


async def test_a_retried_transaction_has_one_audit_entry(app, ctx, monkeypatch):
    inbox = await new_inbox(ctx)
    engine = app.services.store.engine
    write = engine.write

    async def again(work):
        def interrupted(tx):
            work(tx)
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await write(interrupted)
        return await write(work)

    monkeypatch.setattr(engine, "write", again)
    for number in range(3):
        await call(ctx, inboxes.rename_inbox, {"inbox_id": inbox.id, "name": f"N{number}"})

    assert () == (await app.services.store.check_audit()).problems


async def done(ctx, **filters):
    page = await call(ctx, keys.list_audit, {"limit": 100, **filters})
    return [(e.actor, e.action, e.target, e.details) for e in page.results]


async def test_every_action_of_a_key_is_in_the_log(app, ctx):
    inbox = await new_inbox(ctx)
    added = await deliver(ctx, inbox, mail())
    agent = app.context(a_caller("key_7"))
    acts = [
        (
            message_changes.apply_label,
            {"message_ids": [added.message_id, "msg_no"], "label": "Work"},
        ),
        (message_changes.move_message, {"message_id": added.message_id, "destination": "Archive"}),
        (message_changes.update_message, {"message_id": added.message_id, "flags": ["seen"]}),
        (
            sending.send_message,
            {"to": ["x@y.example"], "subject": "S", "body_text": "secret words"},
        ),
        (drafts.create_draft, {"to": ["x@y.example"], "subject": "S", "body_text": "B"}),
        (keys.create_key, {"name": "k"}),
        (inboxes.rename_inbox, {"inbox_id": inbox.id, "name": "Bo"}),
        (receive_message, {"recipient": inbox.address, "raw": mail("Third")}),
        (message_changes.delete_message, {"message_id": added.message_id, "permanent": True}),
    ]
    for operation, arguments in acts:
        await call(agent, operation, arguments)

    entries = (await done(ctx))[::-1]
    assert [operation.name for operation, _ in acts] == [action for _, action, _, _ in entries]
    assert {"key_7"} == {actor for actor, *_ in entries}
    assert ("key_7", "apply_label", added.message_id, {"label": "Work"}) == entries[0]
    assert {"destination": "Archive"} == entries[1][3]
    assert "secret" not in str(entries)
    assert all(target for _, _, target, _ in entries)


async def test_an_entry_says_how_it_was_asked_for(app, ctx):
    inbox = await new_inbox(ctx)
    ways = ("rest", "mcp", "mcp-stdio", "cli")
    for way in ways:
        asked = app.context(OWNER, way)
        await call(asked, inboxes.rename_inbox, {"inbox_id": inbox.id, "name": way})

    page = await call(ctx, keys.list_audit, {})
    only_mcp = await call(ctx, keys.list_audit, {"via": "mcp"})

    assert [*ways][::-1] == [entry.via for entry in page.results]
    assert ["mcp"] == [entry.via for entry in only_mcp.results]
    with pytest.raises(InvalidInput, match="via"):
        await call(ctx, keys.list_audit, {"via": "telepathy"})


async def test_entries_that_a_write_adds_itself_say_how_it_was_asked_for(app, ctx):
    inbox = await new_inbox(ctx)
    added = await deliver(ctx, inbox, mail())
    rule = "name: Flag\nwhen: {subject: Hello}\nthen: [{apply_label: Seen}]\n"
    asked = app.context(OWNER, "mcp")
    made = await call(asked, rules.create_rule, {"rule_yaml": rule, "dry_run": False})
    plan = await call(asked, rules.run_rule_plan, {"rule_id": made.id})
    await call(asked, rules.apply_rule_plan, {"plan_id": plan.plan_id})
    await call(app.context(OWNER, "rest"), rules.undo_rule_plan, {"plan_id": plan.plan_id})
    arriving = {"recipient": inbox.address, "raw": mail()}
    await call(ctx, receive_message, arriving)

    entries = (await call(ctx, keys.list_audit, {})).results
    ways = {entry.action: entry.via for entry in entries}

    assert ("mcp", "rest") == (ways["apply_rule_plan"], ways["undo_rule_plan"])
    assert "rule" == ways["rule_applied"]
    assert added.message_id in {entry.target for entry in entries}
    assert () == (await app.services.store.check_audit()).problems


async def test_reads_and_refusals_are_not_in_the_log(ctx):
    inbox = await new_inbox(ctx)
    added = await deliver(ctx, inbox, mail())

    await call(ctx, messages.get_message, {"message_id": added.message_id})
    await call(
        ctx, message_changes.move_message, {"message_id": "msg_no", "destination": "Archive"}
    )
    await call(ctx, message_changes.delete_message, {"message_id": "msg_no", "permanent": True})
    with pytest.raises(NotFound):
        await call(ctx, keys.delete_key, {"key_id": "key_no"})

    assert [] == await done(ctx)


async def test_a_key_sees_entries_of_its_inboxes(app, ctx):
    own, other = await new_inbox(ctx, "own"), await new_inbox(ctx, "other")
    for inbox in (own, other):
        added = await deliver(ctx, inbox, mail())
        for text in ("a", "b"):
            label = {"message_ids": [added.message_id], "label": text}
            await call(ctx, message_changes.apply_label, label)
        await call(
            ctx, message_changes.delete_message, {"message_id": added.message_id, "permanent": True}
        )
    await call(ctx, keys.create_key, {"name": "k"})
    limited = app.context(a_caller("key_1", inboxes=only(own.id)))

    page = await call(limited, keys.list_audit, {"limit": 2})
    rest = await call(limited, keys.list_audit, {"limit": 2, "cursor": page.next_cursor})

    assert (3, 3) == (page.total, rest.total)
    seen = [entry.action for entry in (*page.results, *rest.results)]
    assert ["delete_message", "apply_label", "apply_label"] == seen
    assert 7 == (await call(ctx, keys.list_audit, {})).total


async def test_a_key_sees_entries_of_its_namespaces(app, ctx):
    inbox = await new_inbox(ctx)
    await call(ctx, inboxes.rename_inbox, {"inbox_id": inbox.id, "name": "Bo"})
    for name in ("team", "hr"):
        memory = {"namespace": name, "key": f"{name}/pay"}
        await call(ctx, memories.memory_add, {**memory, "text": "T.", "tags": [name]})
        await call(ctx, memories.memory_update, {**memory, "text": "U."})
        await call(ctx, memories.memory_delete, memory)
    limited = app.context(a_caller("key_1", namespaces=only("team")))

    page = await call(limited, keys.list_audit, {"limit": 3})
    rest = await call(limited, keys.list_audit, {"limit": 3, "cursor": page.next_cursor})

    assert (4, 4) == (page.total, rest.total)
    seen = [(entry.target, entry.action) for entry in (*page.results, *rest.results)]
    entries = ("memory_delete", "memory_update", "memory_add")
    assert [*(("team/pay", record) for record in entries), (inbox.id, "rename_inbox")] == seen
    assert [] == await done(limited, target="hr/pay")
    assert {"namespace": "hr", "tags": ["hr"]} == (await done(ctx, target="hr/pay"))[-1][3]


async def test_an_entry_of_an_unknown_namespace_is_for_unlimited_callers(store):
    now = datetime(2026, 5, 1, tzinfo=UTC)
    for action in ("memory_add", "rename_inbox"):
        await store.by(AuditRecord("key_1", action, now, ("x",))).record_audit()
    await store.by(AuditRecord("key_1", "memory_add", now, ("x",), namespace="team")).record_audit()

    async def seen(namespaces):
        found = await store.audit(AuditQuery(visible=EVERYTHING, namespaces=namespaces))
        assert found.total == len(found.rows)
        return [entry.action for entry in found.rows]

    assert ["memory_add", "rename_inbox", "memory_add"] == await seen(EVERYTHING)
    assert ["memory_add", "rename_inbox"] == await seen(only("team", "other"))
    assert ["rename_inbox"] == await seen(only("other"))
    assert ["rename_inbox"] == await seen(NOTHING)
    assert (await store.check_audit()).is_whole


async def test_only_successful_actions_have_an_entry(app, ctx):
    store = ctx.store.by(AuditRecord("key_1", "test", ctx.clock()))

    def fail(tx):
        tx.run("INSERT INTO metadata (name, value) VALUES ('x', x'00')")
        raise NotFound("x")

    with pytest.raises(NotFound):
        await store.write(fail)

    assert [] == await done(ctx)
    assert None is await app.services.store.engine.read(
        lambda tx: tx.one("SELECT 1 FROM metadata WHERE name = 'x'")
    )
