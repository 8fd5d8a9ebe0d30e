"""Rules: create, list, change, plan, apply and undo them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import inbox_of, operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import (
    Id,
    Limit,
    Offset,
    Paged,
    Request,
    argument,
    change_of,
)
from postroom.errors import Conflict, Forbidden, NotFound, no_such
from postroom.mail.reports import read_header_facts
from postroom.model.inbox import Inbox, Visible
from postroom.model.key import Scope
from postroom.model.mail.message import ActionResult
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.page import Page, Slice
from postroom.model.rule import (
    Action,
    DryRunPlan,
    Facts,
    Plan,
    PlanItem,
    Rule,
    public_action,
)
from postroom.model.view import Everything, Only, only
from postroom.operations.memories import MemoryAdd
from postroom.pipeline.apply_rules import definition_of
from postroom.rules.definition import (
    MAX_PLANNED,
    Definition,
    Rights,
    missing_right,
    recorded_authority,
    rights_for,
    rights_to_undo,
)
from postroom.rules.matching import impossible_conditions
from postroom.rules.planning import PlanDraft, add_matches, queries_for

PLAN_LIFETIME = timedelta(hours=24)
_AT_ONCE = 500
_AT_ONCE_WITH_TEXT = 100
_HEAD_BYTES = 65_536
_FILE_FIELDS = ("attachment.name", "attachment.type")


async def draft_plan(ctx: RequestContext, rule: Definition, inboxes: Visible) -> PlanDraft:
    """Plan a rule over the mail of these inboxes."""
    numbers = await ctx.store.candidates(queries_for(rule, inboxes, ctx.clock()))
    return await draft_plan_of(ctx, rule, numbers)


async def draft_plan_of(ctx: RequestContext, rule: Definition, numbers: Sequence[int]) -> PlanDraft:
    """Plan a rule over these messages, by their row numbers."""
    now = ctx.clock()
    draft = PlanDraft(replies_per_inbox=ctx.limits.automatic_replies_per_inbox)
    if rule.uses("reply"):
        draft.replies.update(await ctx.store.replies_today(now))
    fields = {test.field for test in rule.tests()}
    with_text, with_files = "text" in fields, not fields.isdisjoint(_FILE_FIELDS)
    step = _AT_ONCE_WITH_TEXT if with_text else _AT_ONCE
    for first in range(0, len(numbers), step):
        batch = await ctx.store.facts(
            numbers[first : first + step], with_text=with_text, with_files=with_files
        )
        unread = await in_thread(add_matches, rule, batch, now, draft)
        if unread:
            await in_thread(add_matches, rule, await _with_heads(ctx, unread), now, draft)
    draft.items.sort(key=lambda item: item.date, reverse=True)
    return draft


async def _with_heads(ctx: RequestContext, messages: Sequence[Facts]) -> list[Facts]:
    raws = await asyncio.gather(*(ctx.blobs.read(m.raw, size=_HEAD_BYTES) for m in messages))
    heads = await in_thread(
        lambda: [read_header_facts(raw, ctx.limits, ctx.rule_key) for raw in raws]
    )
    return [replace(m, header_facts=head) for m, head in zip(messages, heads, strict=True)]


async def create_plan(
    ctx: RequestContext, rule: Definition, inboxes: Visible, rule_id: str | None
) -> Plan:
    """Plan a rule and store the plan for 24 hours."""
    draft = await draft_plan(ctx, rule, inboxes)
    plan = replace(
        plan_of(ctx, draft, rule.name, inboxes),
        rule_id=rule_id,
        warnings=tuple(draft.warnings(rule)),
        max_messages=rule.safety.max_messages,
        can_undo=rule.safety.undo,
        authors=(recorded_authority(ctx.caller),),
    )
    await ctx.store.save_plan(plan, draft.items)
    return plan


def plan_of(ctx: RequestContext, draft: PlanDraft, name: str, inboxes: Visible) -> Plan:
    """The plan of a draft for the next 24 hours, without a rule and its limits."""
    now = ctx.clock().replace(microsecond=0)
    return Plan(
        id=ctx.new_id("pln"),
        rule_id=None,
        name=name,
        created_at=now,
        expires_at=now + PLAN_LIFETIME,
        state="open",
        total=draft.total,
        kept=len(draft.items),
        actions_by_type=dict(sorted(draft.counts.items())),
        warnings=tuple(draft.limitations()),
        max_messages=MAX_PLANNED,
        can_undo=True,
        inboxes=inboxes,
    )


def public_plan(plan: Plan, page: Page[PlanItem]) -> DryRunPlan:
    """A plan with one page of its messages."""
    return DryRunPlan(
        plan_id=plan.id,
        rule_id=plan.rule_id,
        created_at=plan.created_at,
        expires_at=plan.expires_at,
        total_matches=plan.total,
        actions_by_type=plan.actions_by_type,
        warnings=plan.warnings,
        matched_messages=tuple(_public_item(item) for item in page.results),
        count=len(page.results),
        total=page.total,
        total_count=page.total,
        limit=page.limit,
        offset=page.offset,
        has_more=page.has_more,
        next_cursor=page.next_cursor,
    )


_SHOWN_SUBJECT = 250
_MAX_REASONS = 10


def _public_item(item: PlanItem) -> dict[str, object]:
    return {
        "message_id": item.message_id,
        "subject": item.subject[:_SHOWN_SUBJECT],
        "from": item.sender,
        "date": item.date,
        "actions": [public_action(action) for action in item.actions],
        "why": list(item.why[:_MAX_REASONS]),
    }


async def check_actions(
    ctx: RequestContext,
    actions: Iterable[Action],
    needed: Callable[[Action], Rights] = rights_for,
) -> None:
    """Check that the caller may do these actions.

    Raises:
        Forbidden: the caller lacks a scope or a namespace.
        NotFound: a webhook does not exist for the caller.
    """
    for action in actions:
        rights = needed(action)
        if missing := missing_right(ctx.caller, rights):
            raise Forbidden(f"a rule with {action.type} {missing}")
        if rights.webhook and not await ctx.store.has_webhook(rights.webhook, ctx.visible):
            raise NotFound(f"webhook: {no_such('webhook', rights.webhook)}")


def check_values(ctx: RequestContext, actions: Iterable[Action]) -> None:
    """Check the values of actions. Raises InvalidInput."""
    for action in actions:
        if action.type == "webhook" and not action.value.startswith("whk_"):
            ctx.webhook_client.check(action.value)
        if action.type == "remember":
            parse_request(MemoryAdd, {"key": action.key, "text": action.value})


EXAMPLE = (
    "name: Invoices\n"
    "when:\n  - subject: {contains: invoice}\n"
    "then: [{apply_label: Bookkeeping}, mark_read]\n"
)
LANGUAGE = (
    "The rule in YAML. Conditions: all any none not, and from to cc subject text header.X label "
    "flag mailbox has_attachment attachment.name attachment.type size_bytes age_days date list_id "
    "auth with equals contains matches regex in greater_than less_than after before exists. "
    "Actions: apply_label remove_label move mark_read mark_unread flag unflag archive delete "
    "forward reply webhook stop."
)
RuleYaml = Annotated[str, argument(LANGUAGE, EXAMPLE, min_length=1, max_length=65_536)]
PlanId = Annotated[Id, argument("The plan.", "pln_5r2x7h")]


class OneRule(Request):
    """A request about one saved rule."""

    rule_id: Annotated[Id, argument("The rule.", "rul_6c1k8d")]


class CreateRule(Request):
    """Plan a rule over stored mail: what it would do, and why. apply_rule_plan applies it.

    dry_run=false saves the rule for new mail instead.
    """

    rule_yaml: RuleYaml
    dry_run: Annotated[bool, argument("Plan only.", False)] = True


@operation(Scope.WRITE)
async def create_rule(ctx: RequestContext, request: CreateRule) -> Rule | DryRunPlan:
    from postroom.rules.parser import parse_rule

    if request.dry_run:
        needs_read(ctx, "a plan shows which mail matches")
    definition = parse_rule(request.rule_yaml)
    await check_actions(ctx, definition.then)
    check_values(ctx, definition.then)
    inboxes = await inboxes_of_rule(ctx, definition)
    if request.dry_run:
        plan = await create_plan(ctx, definition, inboxes, None)
        return await get_rule_plan(ctx, GetRulePlan(plan_id=plan.id))
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
        inboxes=inboxes,
        authority=recorded_authority(ctx.caller),
    )
    warnings = tuple(impossible_conditions(definition)) or None
    return replace(await ctx.store.add_rule(rule, ctx.visible), warnings=warnings)


async def inboxes_of_rule(ctx: RequestContext, definition: Definition) -> Visible:
    """The inboxes of a rule: those it names, or all that the caller may see."""
    if definition.inbox is not None:
        return only((await inbox_of(ctx, definition.inbox)).id)
    account = definition.account
    if account is None and not ctx.is_limited:
        return ctx.visible
    found = [i.id for i in await _every_inbox(ctx) if account in (None, i.account_id)]
    if not found and account is not None:
        raise NotFound(f"rule_yaml: there is no account {account}")
    if not found:
        raise Forbidden(
            "this key may see no inbox, so the rule would match nothing; create the rule with a "
            "key that may see its inboxes"
        )
    return Only(tuple(sorted(found)))


async def _every_inbox(ctx: RequestContext) -> list[Inbox]:
    found: list[Inbox] = []
    while True:
        page = await ctx.store.inboxes(ctx.visible, Slice(limit=100, offset=len(found)))
        found += page.rows
        if not page.rows or len(found) >= page.total:
            return found


class RunRulePlan(OneRule):
    """Plan a saved rule over stored mail; apply_rule_plan applies it."""

    limit: Limit = 50
    offset: Offset = 0


@operation(Scope.READ)
async def run_rule_plan(ctx: RequestContext, request: RunRulePlan) -> DryRunPlan:
    rule = await ctx.store.rule(request.rule_id, ctx.visible)
    definition = definition_of(rule.yaml)
    if isinstance(definition, str):
        raise Conflict(f"{rule.id}: {definition}")
    await check_actions(ctx, definition.then)
    plan = await create_plan(ctx, definition, rule.inboxes, rule.id)
    page = GetRulePlan(plan_id=plan.id, limit=request.limit, offset=request.offset)
    return await get_rule_plan(ctx, page)


class GetRulePlan(Paged):
    """Read further pages of a plan: its messages, newest first, with actions and reasons."""

    plan_id: PlanId


@operation(Scope.READ)
async def get_rule_plan(ctx: RequestContext, request: GetRulePlan) -> DryRunPlan:
    plan, found = await ctx.store.plan_items(
        request.plan_id, ctx.visible, ctx.cursors.slice(request)
    )
    rows = tuple(without_hidden(ctx, item) for item in found.rows)
    counts = dict(plan.actions_by_type)
    if not ctx.caller.namespaces.sees(DEFAULT_NAMESPACE):
        counts.pop("remember", None)
    shown = replace(plan, actions_by_type=counts)
    return public_plan(shown, ctx.cursors.page(request, replace(found, rows=rows)))


def without_hidden(ctx: RequestContext, item: PlanItem) -> PlanItem:
    """A message of a plan without the memories that the caller may not see."""
    return replace(item, actions=tuple(a for a in item.actions if not _is_hidden(ctx, a)))


class ApplyRulePlan(Request):
    """Apply a plan exactly as it is; if one of its messages changed since, nothing is done."""

    plan_id: PlanId


@operation(Scope.WRITE, destroys=True)
async def apply_rule_plan(ctx: RequestContext, request: ApplyRulePlan) -> ActionResult:
    await check_actions(ctx, await ctx.store.plan_actions(request.plan_id, ctx.visible))
    return await ctx.store.apply_plan(
        request.plan_id, ctx.caller, authority=recorded_authority(ctx.caller), now=ctx.clock()
    )


class UndoRulePlan(Request):
    """Undo an applied plan, except what was changed again since."""

    plan_id: PlanId


@operation(Scope.WRITE)
async def undo_rule_plan(ctx: RequestContext, request: UndoRulePlan) -> ActionResult:
    actions = await ctx.store.plan_actions(request.plan_id, ctx.visible)
    await check_actions(ctx, actions, rights_to_undo)
    return await ctx.store.undo_plan(
        request.plan_id, ctx.visible, actor=ctx.caller.key_id, now=ctx.clock()
    )


class ListRules(Paged):
    """List saved rules in the order in which they run."""


@operation(Scope.READ)
async def list_rules(ctx: RequestContext, request: ListRules) -> Page[Rule]:
    found = await ctx.store.rules(ctx.visible, ctx.cursors.slice(request))
    rows = tuple(redact_rule(ctx, rule) for rule in found.rows)
    return ctx.cursors.page(request, replace(found, rows=rows))


class GetRule(OneRule):
    """Show one rule."""


@operation(Scope.READ)
async def get_rule(ctx: RequestContext, request: GetRule) -> Rule:
    return redact_rule(ctx, await ctx.store.rule(request.rule_id, ctx.visible))


_HIDDEN_YAML = "# not shown: this rule stores memories in a namespace that your key may not see\n"


def redact_rule(ctx: RequestContext, rule: Rule) -> Rule:
    """A rule without the text of memories that the caller may not see."""
    if isinstance(ctx.caller.namespaces, Everything):
        return rule
    definition = definition_of(rule.yaml)
    if isinstance(definition, str):
        is_hidden = "remember" in rule.yaml
    else:
        is_hidden = any(_is_hidden(ctx, action) for action in definition.then)
    return replace(rule, yaml=_HIDDEN_YAML) if is_hidden else rule


def _is_hidden(ctx: RequestContext, action: Action) -> bool:
    namespace = rights_for(action).namespace
    return namespace is not None and not ctx.caller.namespaces.sees(namespace)


class UpdateRule(OneRule):
    """Enable or disable a rule, or change its position."""

    constraints = (change_of(("enabled", "position"), "give enabled or position, or both"),)
    enabled: Annotated[bool | None, argument("Whether it runs.", False)] = None
    position: Annotated[int | None, argument("Its position; 1 runs first.", 1, ge=1, le=1000)] = (
        None
    )


@operation(Scope.WRITE)
async def update_rule(ctx: RequestContext, request: UpdateRule) -> Rule:
    is_only_switched_off = request.enabled is False and request.position is None
    if not is_only_switched_off:
        rule = await ctx.store.rule(request.rule_id, ctx.visible)
        if isinstance(rule.inboxes, Only) and rule.inboxes.is_empty:
            raise Conflict(
                f"{rule.id} has no inbox, so it would match nothing; delete it, and create it "
                "again with a key that may see its inboxes"
            )
        definition = definition_of(rule.yaml)
        if isinstance(definition, Definition):
            await check_actions(ctx, definition.then)
    changed = await ctx.store.change_rule(
        request.rule_id,
        ctx.visible,
        enabled=request.enabled,
        position=request.position,
        authority=None if is_only_switched_off else recorded_authority(ctx.caller),
        now=ctx.clock(),
    )
    return redact_rule(ctx, changed)


class DeleteRule(OneRule):
    """Delete a rule, and return it. Its changes stay."""


@operation(Scope.WRITE, destroys=True)
async def delete_rule(ctx: RequestContext, request: DeleteRule) -> Rule:
    return redact_rule(ctx, await ctx.store.remove_rule(request.rule_id, ctx.visible))
