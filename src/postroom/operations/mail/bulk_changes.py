"""Changes of many messages: by ids immediately, by a filter with a plan; both can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import (
    READERS,
    Accepts,
    Constraint,
    Id,
    LabelName,
    MailboxName,
    OptionalId,
    Request,
    argument,
    refuse_other_kind,
)
from postroom.errors import Conflict, NotFound, no_such
from postroom.model.inbox import TRASH
from postroom.model.key import Scope
from postroom.model.mail.message import ActionResult, FailedAction
from postroom.model.mail.storage import MessageQuery
from postroom.model.rule import Action, DryRunPlan, Facts, Plan
from postroom.operations.mail.message_selection import MessageSelection
from postroom.operations.rules import (
    ApplyRulePlan,
    GetRulePlan,
    apply_rule_plan,
    get_rule_plan,
    plan_of,
)
from postroom.rules.planning import PlanDraft, apply_actions

Flags = list[Literal["seen", "flagged", "answered"]]
_FLAG_ACTIONS = {
    ("seen", True): "mark_read",
    ("seen", False): "mark_unread",
    ("flagged", True): "flag",
    ("flagged", False): "unflag",
}
_CHANGES = ("add_labels", "remove_labels", "add_flags", "remove_flags", "mailbox", "trash")
_TRIES = 3
_AT_ONCE = 500


_NULL = {"type": "null"}
_NONE = {"maxItems": 0}
_ANY_CHANGE = {"anyOf": [{"required": [name]} for name in _CHANGES]}
_ONE_SELECTION: list[dict[str, Any]] = [
    {
        "required": ["message_ids"],
        "properties": {"message_ids": {"minItems": 1}, "filter": _NULL, "plan_id": _NULL},
        **_ANY_CHANGE,
    },
    {
        "required": ["filter"],
        "properties": {"message_ids": _NONE, "filter": {"type": "object"}, "plan_id": _NULL},
        **_ANY_CHANGE,
    },
    {
        "required": ["plan_id"],
        "properties": {"message_ids": _NONE, "filter": _NULL, "plan_id": {"type": "string"}},
        "not": _ANY_CHANGE,
    },
]
_ONE_PLACE = Constraint(
    "place",
    ("mailbox", "trash"),
    {
        "not": {
            "required": ["mailbox", "trash"],
            "properties": {"mailbox": {"type": "string"}, "trash": {"const": True}},
        }
    },
    "give mailbox or trash, not both",
    lambda request: request.mailbox is not None and request.trash,
)


class MessageChanges(Request):
    """What to change of messages."""

    constraints: ClassVar[tuple[Constraint, ...]] = (_ONE_PLACE,)

    add_labels: Annotated[list[LabelName], argument("Labels to add.", ["Work"], max_length=50)] = []
    remove_labels: Annotated[
        list[LabelName], argument("Labels to remove.", ["Todo"], max_length=50)
    ] = []
    add_flags: Annotated[Flags, argument("Flags to add; seen is read.", ["seen"])] = []
    remove_flags: Annotated[Flags, argument("Flags to remove.", ["flagged"])] = []
    mailbox: Annotated[
        MailboxName | None,
        argument("Move to this mailbox.", "Archive"),
        Accepts({"not": {"const": "*"}}),
    ] = None
    trash: Annotated[bool, argument("Move to Trash.", True)] = False

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.mailbox == "*":
            raise ValueError("mailbox: * means every mailbox; choose one")
        return self

    def actions(self) -> Iterator[Action]:
        """The changes as actions of a rule."""
        for label in self.remove_labels:
            yield Action("remove_label", label)
        for label in self.add_labels:
            yield Action("apply_label", label)
        for flags, is_added in ((self.remove_flags, False), (self.add_flags, True)):
            for flag in flags:
                yield _flag_action(flag, is_added=is_added)
        if self.trash or self.mailbox:
            yield Action("move", TRASH if self.trash else self.mailbox or "")


def _flag_action(flag: str, *, is_added: bool) -> Action:
    named = _FLAG_ACTIONS.get((flag, is_added))
    return Action(named) if named else Action("add_flag" if is_added else "remove_flag", flag)


class UpdateMessages(MessageChanges):
    """Change labels, flags and mailbox of messages.

    With message_ids, the change is made immediately. With filter, the response is a plan; call
    again with plan_id to apply it. The returned undo_id undoes the change.
    """

    constraints: ClassVar[tuple[Constraint, ...]] = (
        _ONE_PLACE,
        Constraint(
            "messages", ("message_ids", "filter", "plan_id", *_CHANGES), {"oneOf": _ONE_SELECTION}
        ),
    )
    message_ids: Annotated[
        list[Id], argument("The messages.", ["msg_4h8t2w"], max_length=1000)
    ] = []
    filter: Annotated[
        MessageSelection | None,
        argument("Or all that match, as in a search.", {"from": "@news.example", "unread": True}),
        Accepts({"minProperties": 1}),
    ] = None
    plan_id: Annotated[OptionalId, argument("Apply this plan.", "pln_5r2x7h")] = None

    @model_validator(mode="after")
    def _one_selection(self) -> Self:
        ways = [bool(self.message_ids), self.filter is not None, self.plan_id is not None]
        if sum(ways) != 1:
            raise ValueError("give one of message_ids, filter and plan_id")
        if self.filter is not None and not self.filter.model_fields_set:
            raise ValueError("filter: give at least one criterion, such as from or mailbox")
        has_change = any(name in self.model_fields_set for name in _CHANGES)
        if has_change == (self.plan_id is not None):
            raise ValueError(
                "plan_id: the plan says what changes; leave the changes out"
                if has_change
                else f"give something to change: {', '.join(_CHANGES)}"
            )
        return self


@operation(Scope.WRITE)
async def update_messages(
    ctx: RequestContext, request: UpdateMessages
) -> ActionResult | DryRunPlan:
    if request.plan_id is not None:
        return _undoable(await apply_rule_plan(ctx, ApplyRulePlan(plan_id=request.plan_id)))
    actions = tuple(request.actions())
    if request.filter is not None:
        return await plan_change(ctx, request.filter.query(ctx), actions)
    return await change_by_ids(ctx, request.message_ids, actions)


async def plan_change(
    ctx: RequestContext, query: MessageQuery, actions: Sequence[Action]
) -> DryRunPlan:
    """What a change of the messages that match a query would do. Raises Forbidden."""
    needs_read(ctx, "a plan shows which mail matches")
    plan = await _plan(ctx, await ctx.store.candidates([query]), actions)
    return await get_rule_plan(ctx, GetRulePlan(plan_id=plan.id))


async def change_by_ids(
    ctx: RequestContext, message_ids: Sequence[str], actions: Sequence[Action]
) -> ActionResult:
    """Change messages immediately. The response has an `undo_id`, and lists unknown ids."""
    for message_id in message_ids:
        refuse_other_kind(message_id, "msg", READERS)
    failed: tuple[FailedAction, ...] = ()
    for tries_left in reversed(range(_TRIES)):
        numbers = await ctx.store.message_numbers(message_ids, ctx.visible)
        failed = tuple(
            FailedAction(message_id, NotFound.code, no_such("message", message_id))
            for message_id in dict.fromkeys(message_ids)
            if message_id not in numbers
        )
        if not numbers:
            break
        plan = await _plan(ctx, list(numbers.values()), actions)
        try:
            done = await apply_rule_plan(ctx, ApplyRulePlan(plan_id=plan.id))
        except Conflict:
            # Somebody changed one of the messages between the plan and its application.
            if not tries_left:
                raise
            continue
        order = {message_id: at for at, message_id in enumerate(message_ids)}
        succeeded = tuple(sorted(done.succeeded, key=order.__getitem__))
        return _undoable(ActionResult.of(succeeded, (*done.failed, *failed), plan.id))
    return ActionResult.of((), failed)


def _undoable(result: ActionResult) -> ActionResult:
    return replace(result, plan_id=None, undo_id=result.plan_id)


async def _plan(ctx: RequestContext, numbers: Sequence[int], actions: Sequence[Action]) -> Plan:
    """Store the plan of a change of these messages."""
    draft = PlanDraft()
    for first in range(0, len(numbers), _AT_ONCE):
        batch = await ctx.store.facts(
            numbers[first : first + _AT_ONCE], with_text=False, with_files=False
        )
        await in_thread(_consider, actions, batch, draft)
    draft.items.sort(key=lambda item: item.date, reverse=True)
    plan = plan_of(ctx, draft, "change", ctx.visible)
    await ctx.store.save_plan(plan, draft.items)
    return plan


def _consider(actions: Sequence[Action], batch: Sequence[Facts], draft: PlanDraft) -> None:
    for facts in batch:
        draft.add(facts, (), apply_actions(actions, facts))
