"""Rules: made, listed, changed, planned, applied and undone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from postroom.errors import Conflict, Forbidden, NotFound
from postroom.model.inbox import Visible
from postroom.model.key import Scope
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.message import ActionResult
from postroom.model.page import Page, Slice
from postroom.model.rule import DryRunPlan, Plan, Rule
from postroom.operations.context import Context
from postroom.operations.inboxes import inbox_of
from postroom.operations.memories import MemoryAdd, check_namespace
from postroom.operations.operation import operation
from postroom.operations.planning import keep_plan, shown_plan
from postroom.operations.request import (
    Id,
    Limit,
    Offset,
    Paged,
    Request,
    Together,
    one_of,
    parse_request,
)
from postroom.pipeline.ruling import definition_of
from postroom.rules.definition import Definition

EXAMPLE = (
    "name: Invoices\n"
    "when:\n  - subject: {contains: invoice}\n"
    "then: [{apply_label: Bookkeeping}, mark_read]\n"
)
LANGUAGE = (
    "The rule in YAML. Conditions: all any none not, and from to cc subject text header.X label "
    "flag mailbox has_attachment attachment.name attachment.type size_bytes age_days list_id auth "
    "with equals contains matches regex in greater_than less_than exists. Actions: apply_label "
    "remove_label move mark_read mark_unread flag unflag archive delete forward reply webhook stop."
)
RuleId = Annotated[Id, Field(description="The rule.", examples=["rul_6c1k8d"])]
PlanId = Annotated[Id, Field(description="The plan.", examples=["pln_5r2x7h"])]

_NEEDS = {"forward": Scope.SEND, "reply": Scope.SEND, "webhook": Scope.ADMIN}
"""What a key must be allowed itself before a rule of its does it."""


class CreateRule(Request):
    """Check a rule and plan it over stored mail: what it would do, to which messages, and why.

    dry_run=false saves it instead, for new mail; apply_rule_plan carries a plan out.
    """

    rule_yaml: Annotated[
        str,
        Field(min_length=1, max_length=65_536, description=LANGUAGE, examples=[EXAMPLE]),
    ]
    dry_run: Annotated[bool, Field(description="Only plan it; save nothing.", examples=[False])] = (
        True
    )


@operation(Scope.WRITE)
async def create_rule(ctx: Context, request: CreateRule) -> Rule | DryRunPlan:
    from postroom.rules.reading import parse_rule

    definition = parse_rule(request.rule_yaml)
    _check_actions(ctx, definition)
    inboxes = await _inboxes(ctx, definition)
    if request.dry_run:
        plan = await keep_plan(ctx, definition, inboxes, None)
        return await _first_page(ctx, plan.id, limit=50, offset=0)
    now = ctx.clock().replace(microsecond=0)
    rule = Rule(
        id=ctx.new_id("rul"),
        name=definition.name,
        description=definition.description,
        enabled=definition.enabled,
        position=0,
        yaml=request.rule_yaml,
        created_at=now,
        updated_at=now,
        inboxes=None if inboxes is None else tuple(sorted(inboxes)),
    )
    return await ctx.store.add_rule(rule)


def _check_actions(ctx: Context, definition: Definition) -> None:
    """Refuse what the caller may not do, and what cannot be done here."""
    _check_scopes(ctx, (action.type for action in definition.then))
    for action in definition.then:
        if action.type == "webhook" and not action.value.startswith("whk_"):
            ctx.poster.check(action.value)
        if action.type == "remember":
            check_namespace(ctx, DEFAULT_NAMESPACE)
            parse_request(MemoryAdd, {"key": action.key, "text": action.value})


def _check_scopes(ctx: Context, types: Iterable[str]) -> None:
    for kind in types:
        needed = _NEEDS.get(kind)
        if needed is not None and needed not in ctx.caller.scopes:
            raise Forbidden(f"a rule with {kind} needs a key with the scope {needed}")


async def _inboxes(ctx: Context, definition: Definition) -> Visible:
    """The inboxes that a rule is for: those it names, else all that the caller may see."""
    if definition.inbox is not None:
        return frozenset({(await inbox_of(ctx, definition.inbox)).id})
    if definition.account is None:
        return ctx.visible
    after, found = 0, set[str]()
    while True:
        page = await ctx.store.inboxes(ctx.visible, Slice(limit=100, offset=after))
        found |= {inbox.id for inbox in page.rows if inbox.account_id == definition.account}
        after += len(page.rows)
        if not page.rows or after >= page.total:
            break
    if not found:
        raise NotFound(f"rule_yaml: there is no account {definition.account}")
    return frozenset(found)


class RunRulePlan(Request):
    """Plan a saved rule over stored mail: what it would do with which messages, and why.

    Nothing is changed; apply_rule_plan carries out exactly this plan.
    """

    rule_id: RuleId
    limit: Limit = 50
    offset: Offset = 0


@operation(Scope.READ)
async def run_rule_plan(ctx: Context, request: RunRulePlan) -> DryRunPlan:
    rule = await ctx.store.rule(request.rule_id, ctx.visible)
    definition = definition_of(rule.yaml)
    if isinstance(definition, str):
        raise Conflict(f"{rule.id}: {definition}")
    inboxes = None if rule.inboxes is None else frozenset(rule.inboxes)
    plan = await keep_plan(ctx, definition, inboxes, rule.id)
    return await _first_page(ctx, plan.id, limit=request.limit, offset=request.offset)


class GetRulePlan(Paged):
    """Read on in a plan: its messages, newest first, each with actions and reasons."""

    plan_id: PlanId


@operation(Scope.READ)
async def get_rule_plan(ctx: Context, request: GetRulePlan) -> DryRunPlan:
    plan, found = await ctx.store.plan_items(
        request.plan_id, ctx.visible, ctx.cursors.slice(request)
    )
    return shown_plan(plan, ctx.cursors.page(request, found))


async def _first_page(ctx: Context, plan_id: str, *, limit: int, offset: int) -> DryRunPlan:
    return await get_rule_plan(ctx, GetRulePlan(plan_id=plan_id, limit=limit, offset=offset))


class ApplyRulePlan(Request):
    """Carry out a plan exactly as it is; if one of its messages changed since, nothing is done."""

    plan_id: PlanId


@operation(Scope.WRITE, destroys=True)
async def apply_rule_plan(ctx: Context, request: ApplyRulePlan) -> ActionResult:
    plan = await _plan(ctx, request.plan_id)
    _check_scopes(ctx, plan.actions_by_type)
    return await ctx.store.apply_plan(
        plan.id, ctx.visible, actor=ctx.caller.key_id, now=ctx.clock()
    )


class UndoRulePlan(Request):
    """Take back an applied plan: labels, flags and places that are still as it left them."""

    plan_id: PlanId


@operation(Scope.WRITE)
async def undo_rule_plan(ctx: Context, request: UndoRulePlan) -> ActionResult:
    return await ctx.store.undo_plan(
        request.plan_id, ctx.visible, actor=ctx.caller.key_id, now=ctx.clock()
    )


async def _plan(ctx: Context, plan_id: str) -> Plan:
    return await ctx.store.plan(plan_id, ctx.visible)


class ListRules(Paged):
    """List the saved rules in the order in which they run."""


@operation(Scope.READ)
async def list_rules(ctx: Context, request: ListRules) -> Page[Rule]:
    found = await ctx.store.rules(ctx.visible, ctx.cursors.slice(request))
    return ctx.cursors.page(request, found)


class GetRule(Request):
    """Show one rule."""

    rule_id: RuleId


@operation(Scope.READ)
async def get_rule(ctx: Context, request: GetRule) -> Rule:
    return await ctx.store.rule(request.rule_id, ctx.visible)


class UpdateRule(Request):
    """Switch a rule on or off, or let it run earlier or later."""

    together: ClassVar[tuple[Together, ...]] = (
        one_of("change", "enabled", "position", may_be_empty=True),
    )
    rule_id: RuleId
    enabled: Annotated[bool | None, Field(description="Whether it runs.", examples=[False])] = None
    position: Annotated[
        int | None, Field(ge=1, le=1000, description="Its place; 1 runs first.", examples=[1])
    ] = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.enabled is None and self.position is None:
            raise ValueError("give enabled or position, or both")
        return self


@operation(Scope.WRITE)
async def update_rule(ctx: Context, request: UpdateRule) -> Rule:
    if request.enabled:
        rule = await ctx.store.rule(request.rule_id, ctx.visible)
        definition = definition_of(rule.yaml)
        if isinstance(definition, Definition):
            _check_scopes(ctx, (action.type for action in definition.then))
    return await ctx.store.change_rule(
        request.rule_id,
        ctx.visible,
        enabled=request.enabled,
        position=request.position,
        now=ctx.clock(),
    )


class DeleteRule(Request):
    """Delete a rule, and show what it was. What it did stays as it is."""

    rule_id: RuleId


@operation(Scope.WRITE, destroys=True)
async def delete_rule(ctx: Context, request: DeleteRule) -> Rule:
    return await ctx.store.remove_rule(request.rule_id, ctx.visible)
