"""Rules that are enabled and do nothing, because their key lacks a right."""

from __future__ import annotations

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request
from postroom.model.key import Scope
from postroom.model.rule import StoppedRule
from postroom.pipeline.apply_rules import rules_without_rights


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
        if ctx.visible.covers(rule.known_in)
    )
