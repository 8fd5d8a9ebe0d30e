"""Create rules and plans, and read their effects."""

from __future__ import annotations

from postroom.calls.operation import call
from postroom.model.event import EventQuery
from postroom.model.key import ALL_SCOPES
from postroom.model.view import EVERYTHING
from postroom.operations import keys, rules

INVOICES = """
name: Invoices
when: [{subject: {contains: invoice}}]
then: [{apply_label: Bookkeeping}, mark_read, {move: Archive}]
"""


def rule(when: str = "{subject: {contains: invoice}}", then: str = "mark_read", more: str = ""):
    return f"name: r\nwhen: [{when}]\nthen: [{then}]\n{more}"


async def context_of_key(app, ctx, *, scopes=ALL_SCOPES, **limits):
    """The request context of a new key."""
    key = await call(ctx, keys.create_key, {"name": "k", "scopes": sorted(scopes), **limits})
    return app.context(await app.authenticate(key.key))


async def plan_of(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text})


async def saved(ctx, text=INVOICES):
    return await call(ctx, rules.create_rule, {"rule_yaml": text, "dry_run": False})


async def state_of(ctx, message_id):
    message = await ctx.store.message(message_id, EVERYTHING)
    return message and (message.labels, message.flags, message.mailboxes)


async def events_of(ctx, *types):
    return (await ctx.store.events(EventQuery(visible=EVERYTHING, types=types))).rows


async def entries(ctx, **given):
    page = await call(ctx, keys.list_audit, {"limit": 100, **given})
    return [(entry.actor, entry.action, entry.target) for entry in page.results]
