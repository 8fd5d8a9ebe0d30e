"""Changing mail: by ids immediately, by a filter or a rule with a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import operation, require_scope
from postroom.calls.request import OptionalId, Request, argument
from postroom.errors import MailError, NotFound
from postroom.model.agent import ChangeOutcome, MailLine, NotRead
from postroom.model.key import Scope
from postroom.model.page import Slice
from postroom.model.rule import DryRunPlan
from postroom.operations.agent.finding import Ids, MailSelection, find_in_thread, with_lists
from postroom.operations.agent.writing import change_outcome
from postroom.operations.mail.bulk_changes import (
    MessageChanges,
    UpdateMessages,
    plan_change,
    update_messages,
)
from postroom.operations.mail.unsubscribing import Unsubscribe, unsubscribe
from postroom.operations.rules import (
    CreateRule,
    RuleYaml,
    RunRulePlan,
    create_rule,
    run_rule_plan,
)

_SHOWN = 5
_LISTS = ("add_labels", "remove_labels", "add_flags", "remove_flags")
_MAX_MESSAGES = 1000


def _as_filter(value: object) -> object:
    """Accept a bare q."""
    return {"q": value} if isinstance(value, str) else value


class ChangeMail(MessageChanges):
    """Change labels, flags or mailbox.

    ids: immediately. filter: returns a plan; then pass plan_id.
    """

    ids: Annotated[Ids, argument("Messages or threads.", ["msg_4h8t2w"], max_length=1000)] = []
    filter: Annotated[
        MailSelection | None,
        BeforeValidator(_as_filter),
        argument("Or all that match, as in find_mail.", {"from": "@news.example"}),
    ] = None
    plan_id: Annotated[OptionalId, argument("Apply this plan.", "pln_5r2x7h")] = None
    unsubscribe: Annotated[bool, argument("Leave the mailing lists of ids.", True)] = False

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: Any) -> Any:
        """Accept a single label or flag, and the names that other programs have for flags."""
        return with_lists(data, _LISTS) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _one_selection(self) -> Self:
        given = self.model_dump(exclude_defaults=True)
        if self.unsubscribe and given.keys() != {"ids", "unsubscribe"}:
            raise ValueError("unsubscribe: can only be combined with ids")
        if bool(self.ids) + (self.filter is not None) + (self.plan_id is not None) != 1:
            raise ValueError("give one of ids, filter and plan_id")
        return self


@operation(Scope.WRITE)
async def change_mail(ctx: RequestContext, request: ChangeMail) -> ChangeOutcome:
    if request.unsubscribe:
        return await _unsubscribe(ctx, request.ids)
    omitted = {"ids", "unsubscribe"}
    changes = request.model_dump(mode="json", by_alias=True, exclude=omitted, exclude_defaults=True)
    ids, missing = await _messages(ctx, request.ids)
    if request.ids:
        changes["message_ids"] = ids or request.ids
    asked = parse_request(UpdateMessages, changes)
    if missing and not ids:
        return ChangeOutcome("failed", 0, failed=missing)
    if request.filter is not None:
        query = request.filter.query(ctx, mode="words")
        return plan_outcome(await plan_change(ctx, query, tuple(asked.actions())))
    result = await update_messages(ctx, asked)
    if isinstance(result, DryRunPlan):
        return plan_outcome(result)
    done = change_outcome(result)
    if not missing:
        return done
    status = "partial" if done.changed else "failed"
    return replace(done, status=status, failed=(*(done.failed or ()), *missing))


async def _unsubscribe(ctx: RequestContext, ids: list[str]) -> ChangeOutcome:
    require_scope(ctx, Scope.SEND)
    failed: list[NotRead] = []
    for id_ in dict.fromkeys(ids):
        try:
            await unsubscribe(ctx, Unsubscribe(message_id=id_))
        except MailError as error:
            failed.append(NotRead(id_, str(error)))
    done = len(set(ids)) - len(failed)
    status = "partial" if done and failed else "failed" if failed else "unsubscribed"
    return ChangeOutcome(status, done, failed=tuple(failed) or None)


async def _messages(
    ctx: RequestContext, ids: Sequence[str]
) -> tuple[list[str], tuple[NotRead, ...]]:
    """The messages with these ids and those of these threads, and the threads that do not exist."""
    found: list[str] = []
    missing: list[NotRead] = []
    for id_ in ids:
        try:
            if id_.startswith("thr_"):
                rows = (await find_in_thread(ctx, id_, Slice(limit=_MAX_MESSAGES + 1))).rows
                found += [row.id for row in rows]
            else:
                found.append(id_)
        except NotFound as error:
            missing.append(NotRead(id_, str(error)))
    return list(dict.fromkeys(found)), tuple(missing)


def plan_outcome(plan: DryRunPlan, *, note: str | None = None) -> ChangeOutcome:
    """What a plan would do: how many messages, and the first of them."""
    first = tuple(
        MailLine(item["message_id"], item["from"], item["subject"], item["date"])
        for item in plan.matched_messages[:_SHOWN]
    )
    if not plan.total_matches and note is None:
        return ChangeOutcome("planned", 0, note="; ".join([*plan.warnings, "no message matches"]))
    words = [*plan.warnings, note or "nothing is changed yet; change_mail with plan_id applies it"]
    return ChangeOutcome(
        "planned",
        plan.total_matches,
        plan_id=plan.plan_id,
        first=first or None,
        note="; ".join(words),
    )


class MakeRule(Request):
    """Save a rule for new mail. change_mail with plan_id applies it to stored mail too."""

    yaml: RuleYaml
    dry_run: Annotated[bool, argument("Only plan it; save nothing.", True)] = False


@operation(Scope.WRITE)
async def make_rule(ctx: RequestContext, request: MakeRule) -> ChangeOutcome:
    made = await create_rule(ctx, CreateRule(rule_yaml=request.yaml, dry_run=request.dry_run))
    if isinstance(made, DryRunPlan):
        return plan_outcome(made)
    plan = await run_rule_plan(ctx, RunRulePlan(rule_id=made.id, limit=5))
    planned = plan_outcome(
        plan, note="saved for new mail; change_mail with plan_id applies this plan"
    )
    return replace(planned, status="saved", rule_id=made.id)
