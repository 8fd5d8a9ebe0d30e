"""Changing mail: by ids immediately, by a filter or a rule with a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from postroom.calls.context import RequestContext, parse_request
from postroom.calls.operation import operation, require_scope, thread_of
from postroom.calls.request import OptionalId, Request, argument
from postroom.errors import MailError
from postroom.model.agent import ChangeOutcome, MailLine, NotRead
from postroom.model.key import Scope
from postroom.model.rule import DryRunPlan
from postroom.operations.agent.finding import Ids, MailSelection
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
_FLAGS = {"read": "seen", "starred": "flagged", "important": "flagged"}
_THREAD_MESSAGES = 100


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
        if not isinstance(data, dict):
            return data
        lists = {name: data[name] for name in _LISTS if name in data}
        for name, value in lists.items():
            values = [value] if isinstance(value, str) else value
            if name.endswith("flags") and isinstance(values, list):
                values = [_FLAGS.get(str(flag), flag) for flag in values]
            lists[name] = values
        return {**data, **lists}

    @model_validator(mode="after")
    def _one_selection(self) -> Self:
        if self.unsubscribe and self.model_fields_set != {"ids", "unsubscribe"}:
            raise ValueError("unsubscribe: can only be combined with ids")
        if bool(self.ids) + (self.filter is not None) + (self.plan_id is not None) != 1:
            raise ValueError("give one of ids, filter and plan_id")
        return self


@operation(Scope.WRITE)
async def change_mail(ctx: RequestContext, request: ChangeMail) -> ChangeOutcome:
    if request.unsubscribe:
        return await _unsubscribe(ctx, request.ids)
    changes = request.model_dump(mode="json", by_alias=True, exclude={"ids"}, exclude_unset=True)
    ids = [message_id for id_ in request.ids for message_id in await _messages(ctx, id_)]
    if ids:
        changes["message_ids"] = list(dict.fromkeys(ids))[:1000]
    asked = parse_request(UpdateMessages, changes)
    if request.filter is not None:
        query = request.filter.query(ctx, mode="words")
        return plan_outcome(await plan_change(ctx, query, tuple(asked.actions())))
    result = await update_messages(ctx, asked)
    return plan_outcome(result) if isinstance(result, DryRunPlan) else change_outcome(result)


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


async def _messages(ctx: RequestContext, id_: str) -> list[str]:
    if not id_.startswith("thr_"):
        return [id_]
    thread = await thread_of(ctx, id_, limit=_THREAD_MESSAGES)
    return [message.id for message in thread.messages]


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
