"""Rules run once on arriving mail, and never prevent it from being stored."""

from __future__ import annotations

import pytest

from postroom.calls.operation import call
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations import webhooks
from postroom.operations.rules import apply_rule_plan, create_rule
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.transfer.import_export import import_mail
from postroom.pipeline.transfer.mail_files import SourceMail
from tests.mails import deliver, mail
from tests.operations.rule_helpers import entries, events_of, rule, saved, state_of


async def test_rules_run_on_mail_that_arrives_until_one_says_stop(ctx, inbox):
    first = await saved(ctx, rule(then="{apply_label: A}, flag, stop"))
    await saved(ctx, rule(then="{apply_label: Never}"))
    await saved(ctx, rule("{subject: {contains: other}}", "archive", "enabled: false"))
    await saved(ctx, rule("{subject: {contains: other}}", "delete", "safety: {require_plan: true}"))

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    other = (await deliver(ctx, inbox, mail("Other"))).message_id

    assert (("A",), ("flagged",), ("Inbox",)) == await state_of(ctx, invoice)
    assert ((), (), ("Inbox",)) == await state_of(ctx, other)
    assert [(first.id, "rule_applied", invoice)] == await entries(ctx, actor=first.id)


@pytest.mark.parametrize(
    ("name", "mailbox"), [("Spam", "Junk"), ("deleted items", "Trash"), ("Spam/Old", "Spam/Old")]
)
async def test_a_rule_names_mailboxes_as_other_programs_do(ctx, inbox, name, mailbox):
    await saved(ctx, rule(then=f"{{move: {name}}}"))

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id
    when = f"{{mailbox: {{equals: {name}}}}}"
    plan = await call(ctx, create_rule, {"rule_yaml": rule(when, "flag")})
    back = await call(ctx, create_rule, {"rule_yaml": rule(when, "{move: INBOX}")})
    await call(ctx, apply_rule_plan, {"plan_id": back.plan_id})
    again = await call(ctx, create_rule, {"rule_yaml": rule(then=f"{{move: {name}}}")})
    await call(ctx, apply_rule_plan, {"plan_id": again.plan_id})

    done = await call(ctx, create_rule, {"rule_yaml": rule(when, f"{{move: {name}}}")})

    assert ((), (), (mailbox,)) == await state_of(ctx, invoice)
    assert {} == done.actions_by_type
    assert 1 == plan.total_matches == back.total_matches == again.total_matches


async def test_a_rule_prefers_a_mailbox_of_that_very_name(ctx, inbox):
    added = await receive(ctx, Arrival(mail("Old"), inbox.id, "Archives"))
    await saved(ctx, rule(then="{move: archives}"))

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert ("Archives",) == (await state_of(ctx, added.message_id))[2]
    assert ("Archives",) == (await state_of(ctx, invoice))[2]


async def test_rules_do_not_run_on_imported_mail(ctx, inbox):
    await saved(ctx)

    await import_mail(ctx, [SourceMail("x", mail("Invoice"))], inbox.id)

    (row,) = (await ctx.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))).rows
    assert ((), ("Inbox",)) == (row.labels, row.mailboxes)


async def test_rules_run_once_on_a_duplicate(ctx, inbox):
    kept = await saved(ctx)
    raw = mail("Invoice")

    added = [await deliver(ctx, inbox, raw) for _ in range(2)]

    assert [False, True] == [one.is_duplicate for one in added]
    assert 1 == len(await entries(ctx, actor=kept.id))


async def test_mail_is_stored_even_if_a_rule_fails_and_the_failure_is_an_event(ctx, inbox):
    hook = await call(ctx, webhooks.create_webhook, {"url": "https://example.com/hook"})
    kept = await saved(ctx, rule(then=f"flag, {{webhook: {hook.id}}}"))
    await call(ctx, webhooks.delete_webhook, {"webhook_id": hook.id})

    invoice = (await deliver(ctx, inbox, mail("Invoice"))).message_id

    assert ((), ("flagged",), ("Inbox",)) == await state_of(ctx, invoice)
    (failed,) = await events_of(ctx, "rule.failed")
    assert (kept.id, invoice) == (failed.data["rule_id"], failed.message_id)


async def test_a_match_notifies_a_webhook_and_a_url_gets_its_own_webhook(ctx, inbox):
    named = await call(
        ctx,
        webhooks.create_webhook,
        {"url": "https://example.com/named", "types": ["message.bounced"]},
    )
    await saved(ctx, rule(then=f"{{webhook: {named.id}}}, {{webhook: 'https://example.com/new'}}"))

    for _ in range(2):
        await deliver(ctx, inbox, mail("Invoice"))

    hooks = (await call(ctx, webhooks.list_webhooks, {})).results
    assert ["https://example.com/named", "https://example.com/new"] == [h.url for h in hooks]
    for hook in hooks:
        told = await call(ctx, webhooks.list_deliveries, {"webhook_id": hook.id})
        assert ["rule.matched", "rule.matched"] == [delivery.type for delivery in told.results]
