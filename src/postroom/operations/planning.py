"""Planning over stored mail: candidates from the search index, then each one looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from postroom.blocking import in_thread
from postroom.mail.heads import read_head
from postroom.model.facts import Facts
from postroom.model.inbox import Visible
from postroom.model.page import Page
from postroom.model.rule import DryRunPlan, Plan, PlanItem, shown_act
from postroom.operations.context import Context
from postroom.rules.definition import Definition
from postroom.rules.narrowing import queries_for
from postroom.rules.planning import PlanDraft, consider

KEPT_FOR = timedelta(hours=24)
_AT_ONCE = 500
_AT_ONCE_WITH_TEXT = 100
_HEAD_BYTES = 65_536


async def draft_plan(ctx: Context, rule: Definition, inboxes: Visible) -> PlanDraft:
    """What a rule would do with the mail of these inboxes."""
    now, draft = ctx.clock(), PlanDraft()
    fields = {test.field for test in rule.tests()}
    with_text = "text" in fields
    with_files = bool(fields & {"attachment.name", "attachment.type"})
    numbers = await ctx.store.candidates(queries_for(rule, inboxes, now))
    step = _AT_ONCE_WITH_TEXT if with_text else _AT_ONCE
    for first in range(0, len(numbers), step):
        batch = await ctx.store.facts(
            numbers[first : first + step], with_text=with_text, with_files=with_files
        )
        unread = await in_thread(consider, rule, batch, now, draft)
        if unread:
            await in_thread(consider, rule, await _with_heads(ctx, unread), now, draft)
    draft.items.sort(key=lambda item: item.date, reverse=True)
    return draft


async def _with_heads(ctx: Context, messages: Sequence[Facts]) -> list[Facts]:
    raws = await asyncio.gather(*(ctx.blobs.read(m.raw, size=_HEAD_BYTES) for m in messages))
    heads = await in_thread(lambda: [read_head(raw, ctx.limits) for raw in raws])
    return [replace(m, head=head) for m, head in zip(messages, heads, strict=True)]


async def keep_plan(ctx: Context, rule: Definition, inboxes: Visible, rule_id: str | None) -> Plan:
    """Make a plan and keep it until its time is over."""
    draft = await draft_plan(ctx, rule, inboxes)
    now = ctx.clock().replace(microsecond=0)
    plan = Plan(
        id=ctx.new_id("pln"),
        rule_id=rule_id,
        name=rule.name,
        created_at=now,
        expires_at=now + KEPT_FOR,
        state="open",
        total=draft.total,
        kept=len(draft.items),
        actions_by_type=dict(sorted(draft.counts.items())),
        warnings=tuple(draft.warnings(rule)),
        max_messages=rule.safety.max_messages,
        can_undo=rule.safety.undo,
        inboxes=None if inboxes is None else tuple(sorted(inboxes)),
    )
    await ctx.store.save_plan(plan, draft.items)
    return plan


def shown_plan(plan: Plan, page: Page[PlanItem]) -> DryRunPlan:
    """A plan as callers see it, with one page of its messages."""
    return DryRunPlan(
        plan_id=plan.id,
        rule_id=plan.rule_id,
        created_at=plan.created_at,
        expires_at=plan.expires_at,
        total_matches=plan.total,
        actions_by_type=plan.actions_by_type,
        warnings=plan.warnings,
        matched_messages=tuple(_shown_item(item) for item in page.results),
        count=len(page.results),
        total=page.total,
        total_count=page.total,
        limit=page.limit,
        offset=page.offset,
        has_more=page.has_more,
        next_cursor=page.next_cursor,
    )


_SHOWN_SUBJECT = 250
_SHOWN_WHY = 10


def _shown_item(item: PlanItem) -> dict[str, object]:
    return {
        "message_id": item.message_id,
        "subject": item.subject[:_SHOWN_SUBJECT],
        "from": item.sender,
        "date": item.date,
        "actions": [shown_act(act) for act in item.actions],
        "why": list(item.why[:_SHOWN_WHY]),
    }
