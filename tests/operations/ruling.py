"""Rules that tests keep, and how they see what these have done."""

from __future__ import annotations

from postroom.model.event import EventQuery
from postroom.operations import audit, rules
from postroom.operations.operation import call

INVOICES = """
name: Invoices
when: [{subject: {contains: invoice}}]
then: [{apply_label: Bookkeeping}, mark_read, {move: Archive}]
"""


def rule(when: str = "{subject: {contains: invoice}}", then: str = "mark_read", more: str = ""):
    return f"name: r\nwhen: [{when}]\nthen: [{then}]\n{more}"


async def plan_of(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text})


async def saved(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text, "dry_run": False})


async def state_of(ctx, message_id):
    message = await ctx.store.message(message_id, None)
    return message and (message.labels, message.flags, message.mailboxes)


async def events_of(ctx, *types):
    return (await ctx.store.events(EventQuery(types=types))).rows


async def entries(ctx, **given):
    page = await call(ctx, audit.list_audit, {"limit": 100, **given})
    return [(entry.actor, entry.action, entry.target) for entry in page.results]
