"""What rules have done and would do: their plans, their runs on arriving mail, their state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Id, Paged, Request, argument
from postroom.model.key import AGENT, OWNER, Scope
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.page import Found, Page, Slice
from postroom.model.rule import PlanChanges, PlanState, Rule, RuleDay, RulePlan, StoppedRule
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING, Everything, Only
from postroom.operations.rules import PlanId, redact_rule, without_hidden
from postroom.pipeline.apply_rules import definition_of, missing_rights, rules_without_rights
from postroom.rules.definition import Definition, authority_of_rule
from postroom.rules.matching import impossible_conditions

State = Annotated[
    PlanState | None, argument("Only open plans, or those applied or undone.", "applied")
]


class ListRulePlans(Paged):
    """List the plans of rules, newest first: open ones, and what was applied or undone."""

    rule_id: Annotated[Id | None, argument("Only of this rule.", "rul_6c1k8d")] = None
    state: State = None


@operation(Scope.READ)
async def list_rule_plans(ctx: RequestContext, request: ListRulePlans) -> Page[RulePlan]:
    found = await ctx.store.rule_plans(
        ctx.visible,
        ctx.cursors.slice(request),
        now=ctx.clock(),
        rule_id=request.rule_id,
        state=request.state,
    )
    rows = tuple(_redacted_plan(ctx, plan) for plan in found.rows)
    return ctx.cursors.page(request, replace(found, rows=rows))


def _redacted_plan(ctx: RequestContext, plan: RulePlan) -> RulePlan:
    """A plan without what the caller may not see: memories, and the keys of others."""
    counts = dict(plan.actions_by_type)
    if not ctx.caller.namespaces.sees(DEFAULT_NAMESPACE):
        counts.pop("remember", None)
    by = None if plan.applied_by is None else _author(ctx, plan.applied_by)
    return replace(plan, actions_by_type=counts, applied_by=by)


def _author(ctx: RequestContext, key_id: str) -> str:
    """Who a key is to the caller; other keys are named only to those who may list them."""
    if key_id in (OWNER.key_id, AGENT.key_id, ctx.caller.key_id):
        return "you" if key_id == ctx.caller.key_id else key_id
    if Scope.ADMIN in ctx.caller.scopes and ctx.visible == EVERYTHING:
        return key_id
    return "another key"


class GetPlanChanges(Paged):
    """Read a plan of a rule: each message before and after it, with the reasons."""

    plan_id: PlanId


@operation(Scope.READ)
async def get_plan_changes(ctx: RequestContext, request: GetPlanChanges) -> PlanChanges:
    plan = await ctx.store.rule_plan(request.plan_id, ctx.visible)
    _, found = await ctx.store.plan_items(request.plan_id, ctx.visible, ctx.cursors.slice(request))
    rows = tuple(without_hidden(ctx, item) for item in found.rows)
    page = ctx.cursors.page(request, replace(found, rows=rows))
    return PlanChanges(_redacted_plan(ctx, plan), page)


@dataclass(frozen=True, slots=True)
class RuleState:
    """A rule, who made it, what is wrong with it, and what it did lately.

    `author` is `you`, `owner`, `agent`, the id of a key, or `another key`.
    """

    rule: Rule
    author: str
    inboxes: tuple[str, ...] | None
    """The addresses that it runs on; None for all."""
    warnings: tuple[str, ...]
    runs_on_arrival: bool
    days: tuple[RuleDay, ...]
    """What it did with arriving mail, newest day first."""
    last_plan: RulePlan | None
    """The newest plan of it that was applied and not undone."""

    @property
    def messages(self) -> int:
        """How many messages it has changed as they arrived."""
        return sum(day.messages for day in self.days)

    @property
    def last_at(self) -> datetime | None:
        moments = [day.last_at for day in self.days[:1]]
        if self.last_plan and self.last_plan.applied_at:
            moments.append(self.last_plan.applied_at)
        return max(moments, default=None)


class ListRuleStates(Paged):
    """List saved rules in their order, with what they did in the last days and what is wrong."""

    days: Annotated[int, argument("How many days to look back.", 7, ge=1, le=90)] = 30


_PLANS = Slice(limit=100)


@operation(Scope.READ)
async def list_rule_states(ctx: RequestContext, request: ListRuleStates) -> Page[RuleState]:
    found = await ctx.store.rules(ctx.visible, ctx.cursors.slice(request))
    since = ctx.clock() - timedelta(days=request.days)
    days = await ctx.store.rule_days([rule.id for rule in found.rows], ctx.visible, since)
    applied = await ctx.store.rule_plans(ctx.visible, _PLANS, now=ctx.clock(), state="applied")
    plans = {plan.rule_id: plan for plan in reversed(applied.rows)}
    missing_right = await missing_rights(ctx, found.rows)
    rows = [
        RuleState(
            rule=redact_rule(ctx, rule),
            author=_author(ctx, rule.made_by or authority_of_rule(rule)),
            inboxes=await _addresses(ctx, rule),
            warnings=tuple(_warnings(rule, missing_right.get(rule.id, ""))),
            runs_on_arrival=rule.enabled and not _needs_plan(rule),
            days=tuple(day for day in days if day.rule_id == rule.id),
            last_plan=plans.get(rule.id),
        )
        for rule in found.rows
    ]
    return ctx.cursors.page(request, Found(tuple(rows), found.total, found.offset, found.next))


_MAX_ADDRESSES = 5


async def _addresses(ctx: RequestContext, rule: Rule) -> tuple[str, ...] | None:
    """The first addresses of the inboxes of a rule; ids of those that cannot be read."""
    if isinstance(rule.inboxes, Everything):
        return None
    named = rule.inboxes.named
    found = [await ctx.store.inbox(one, ctx.visible) for one in named[:_MAX_ADDRESSES]]
    more = (f"{len(named) - _MAX_ADDRESSES} more",) if len(named) > _MAX_ADDRESSES else ()
    pairs = zip(found, named, strict=False)
    return (*(inbox.address if inbox else name for inbox, name in pairs), *more)


def _needs_plan(rule: Rule) -> bool:
    definition = definition_of(rule.yaml)
    return isinstance(definition, Definition) and definition.safety.require_plan


def _warnings(rule: Rule, missing_right: str) -> Iterator[str]:
    """Why a rule does less than its text says."""
    definition = definition_of(rule.yaml)
    if isinstance(definition, str):
        yield definition
        return
    if isinstance(rule.inboxes, Only) and rule.inboxes.is_empty:
        yield "its inboxes were deleted, so it does not run"
    if missing_right:
        yield missing_right
    yield from impossible_conditions(definition)


class ListStoppedRules(Request):
    """List the enabled rules whose key may no longer do all of their actions, and what it lacks."""


@operation(Scope.READ)
async def list_stopped_rules(
    ctx: RequestContext, request: ListStoppedRules
) -> tuple[StoppedRule, ...]:
    found = await rules_without_rights(ctx)
    return tuple(
        StoppedRule(rule.id, rule.name, reason)
        for rule, reason in found
        if ctx.visible.covers(rule.visible_inboxes)
    )
