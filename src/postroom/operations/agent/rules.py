"""A rule for new mail, and its plan for the mail that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.model.agent import ChangeReceipt
from postroom.model.key import Scope
from postroom.model.rule import DryRunPlan
from postroom.operations.agent.changing import plan_receipt
from postroom.operations.rules import (
    EXAMPLE,
    LANGUAGE,
    CreateRule,
    RunRulePlan,
    create_rule,
    run_rule_plan,
)


class MakeRule(Request):
    """Save a rule for new mail. change_mail with plan_id applies it to stored mail too."""

    yaml: Annotated[str, argument(LANGUAGE, EXAMPLE, min_length=1, max_length=65_536)]
    dry_run: Annotated[bool, argument("Only plan it; save nothing.", True)] = False


@operation(Scope.WRITE)
async def make_rule(ctx: RequestContext, request: MakeRule) -> ChangeReceipt:
    made = await create_rule(ctx, CreateRule(rule_yaml=request.yaml, dry_run=request.dry_run))
    if isinstance(made, DryRunPlan):
        return plan_receipt(made)
    plan = await run_rule_plan(ctx, RunRulePlan(rule_id=made.id, limit=5))
    planned = plan_receipt(plan, note="saved for new mail; change_mail with plan_id does this too")
    return replace(planned, status="saved", rule_id=made.id)
