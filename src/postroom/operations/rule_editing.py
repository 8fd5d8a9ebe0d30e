"""Writing a rule: check its text, replace it, compare two texts over stored mail."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Id, Request, argument
from postroom.errors import Conflict, InvalidInput, MailError
from postroom.model.inbox import Visible
from postroom.model.key import OWNER, Scope
from postroom.model.rule import PlanItem, Rule
from postroom.model.values import dataclass
from postroom.model.view import Only
from postroom.operations.rules import (
    EXAMPLE,
    LANGUAGE,
    OneRule,
    RuleYaml,
    check_actions,
    check_values,
    draft_plan_of,
    inboxes_of_rule,
    redact_rule,
    without_hidden,
)
from postroom.pipeline.apply_rules import definition_of
from postroom.rules.definition import Definition, recorded_authority
from postroom.rules.matching import impossible_lines
from postroom.rules.planning import queries_for


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """What is wrong with the text of a rule, and where; line 0 is the whole rule."""

    line: int
    column: int
    message: str
    severity: Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """The problems of a text by line; without an error, the caller could save it as a rule."""

    problems: tuple[RuleProblem, ...]


class CheckRule(Request):
    """Check the text of a rule: every problem with its line, and conditions that never match."""

    rule_yaml: Annotated[str, argument(LANGUAGE, EXAMPLE, max_length=1_000_000)]


@operation(Scope.READ)
async def check_rule(ctx: RequestContext, request: CheckRule) -> RuleCheck:
    from postroom.rules.parser import parse_rule

    try:
        definition = parse_rule(request.rule_yaml)
    except InvalidInput as error:
        found = error.details["problems"]
        assert isinstance(found, list)
        return RuleCheck(tuple(map(_problem, found)))
    problems = [
        RuleProblem(line, 1, text, "warning") for line, text in impossible_lines(definition)
    ]
    try:
        if Scope.WRITE in ctx.caller.scopes:  # others cannot save it anyway
            await check_actions(ctx, definition.then)
            await inboxes_of_rule(ctx, definition)
        check_values(ctx, definition.then)
    except MailError as error:
        problems.append(RuleProblem(0, 1, str(error), "error"))
    return RuleCheck(tuple(problems))


def _problem(detail: dict[str, object]) -> RuleProblem:
    """A problem of the parser, without the place that its words begin with."""
    words = str(detail["problem"]).partition(": ")[2]
    return RuleProblem(int(str(detail["line"])), int(str(detail["column"])), words, "error")


class ReplaceRule(OneRule):
    """Replace the text of a rule, if nobody else has changed it since you read it.

    It stays on or off, unless the new text says otherwise than the old one, and keeps its inboxes,
    unless the new text names others.
    """

    rule_yaml: RuleYaml
    sha256: Annotated[
        str,
        argument("The sha256 of the text that you have read.", "9f86d081" * 8, max_length=64),
    ]


@operation(Scope.WRITE)
async def replace_rule(ctx: RequestContext, request: ReplaceRule) -> Rule:
    from postroom.rules.parser import parse_rule

    definition = parse_rule(request.rule_yaml)
    await check_actions(ctx, definition.then)
    check_values(ctx, definition.then)
    stored = await ctx.store.rule(request.rule_id, ctx.visible)
    if redact_rule(ctx, stored).yaml != stored.yaml:
        raise Conflict(f"{stored.id} has parts that your key may not see, so it cannot change it")
    before = definition_of(stored.yaml)
    inboxes = await _inboxes_after(ctx, stored, definition)
    authority = recorded_authority(ctx.caller)
    changed = replace(
        stored,
        name=definition.name,
        description=definition.description,
        enabled=definition.enabled if _is_switched(before, definition) else stored.enabled,
        yaml=request.rule_yaml,
        updated_at=ctx.clock().replace(microsecond=0),
        inboxes=inboxes,
        made_for=stored.made_for if inboxes == stored.inboxes else None,
        authority=authority,
        # What an agent wrote stays under its policy when the owner corrects it.
        made_by=stored.made_by if authority == OWNER.key_id else authority,
    )
    warnings = tuple(text for _, text in impossible_lines(definition)) or None
    saved = await ctx.store.replace_rule(changed, ctx.visible, sha256=request.sha256)
    return replace(redact_rule(ctx, saved), warnings=warnings)


def _is_switched(before: Definition | str, after: Definition) -> bool:
    return isinstance(before, Definition) and before.enabled != after.enabled


async def _inboxes_after(ctx: RequestContext, rule: Rule, after: Definition) -> Visible:
    """The inboxes of a rule with a new text. Raises NotFound, Forbidden."""
    before = definition_of(rule.yaml)
    has_some = not (isinstance(rule.inboxes, Only) and rule.inboxes.is_empty)
    is_same = isinstance(before, Definition) and _where_it_runs(before) == _where_it_runs(after)
    return rule.inboxes if has_some and is_same else await inboxes_of_rule(ctx, after)


def _where_it_runs(definition: Definition) -> tuple[str | None, str | None]:
    return definition.inbox, definition.account


@dataclass(frozen=True, slots=True)
class Difference:
    """A message for which two versions of a rule differ; None where one does not match."""

    old: PlanItem | None
    new: PlanItem | None

    @property
    def item(self) -> PlanItem:
        found = self.new or self.old
        assert found is not None
        return found


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """Two versions of a rule over the same messages; the differences are cut at a limit."""

    considered: int
    is_cut: bool
    matches_before: int
    matches_after: int
    only_before: int
    only_after: int
    changed: int
    differences: tuple[Difference, ...]


class CompareRules(Request):
    """Compare two versions of a rule over the newest stored mail; nothing is changed or kept.

    The old version is the saved rule, or another text.
    """

    rule_yaml: RuleYaml
    rule_id: Annotated[Id | None, argument("The saved rule.", "rul_6c1k8d")] = None
    against_yaml: Annotated[
        str | None, argument("Or another text.", EXAMPLE, min_length=1, max_length=65_536)
    ] = None
    newest: Annotated[int, argument("How many messages to look at.", 500, ge=1, le=10_000)] = 2_000


_MAX_DIFFERENCES = 200


@operation(Scope.READ)
async def compare_rules(ctx: RequestContext, request: CompareRules) -> RuleComparison:
    from postroom.rules.parser import parse_rule

    new = parse_rule(request.rule_yaml)
    if request.rule_id is not None:
        saved = await ctx.store.rule(request.rule_id, ctx.visible)
        old = definition_of(saved.yaml)
        if isinstance(old, str):
            raise Conflict(f"{saved.id}: {old}")
        places = saved.inboxes, await _inboxes_after(ctx, saved, new)
    else:
        old = parse_rule(request.against_yaml or request.rule_yaml, field="against_yaml")
        places = await inboxes_of_rule(ctx, old), await inboxes_of_rule(ctx, new)
    now = ctx.clock()
    found = [
        await ctx.store.candidates(queries_for(rule, inboxes, now))
        for rule, inboxes in zip((old, new), places, strict=True)
    ]
    newest = sorted({*found[0], *found[1]}, reverse=True)
    least = newest[: request.newest][-1] if newest else 0
    before, after = [
        await draft_plan_of(ctx, rule, [number for number in numbers if number >= least])
        for rule, numbers in zip((old, new), found, strict=True)
    ]
    pairs = _paired(ctx, before.items, after.items)
    return RuleComparison(
        considered=min(len(newest), request.newest),
        is_cut=len(newest) > request.newest,
        matches_before=before.total,
        matches_after=after.total,
        only_before=sum(pair.new is None for pair in pairs),
        only_after=sum(pair.old is None for pair in pairs),
        changed=sum(pair.old is not None and pair.new is not None for pair in pairs),
        differences=tuple(pairs[:_MAX_DIFFERENCES]),
    )


def _paired(ctx: RequestContext, before: list[PlanItem], after: list[PlanItem]) -> list[Difference]:
    """The messages for which two plans differ, newest first."""
    old, new = ({item.message_id: without_hidden(ctx, item) for item in side}
                for side in (before, after))  # fmt: skip
    pairs = [Difference(old.get(one), new.get(one)) for one in {**old, **new}]
    different = [pair for pair in pairs if _actions(pair.old) != _actions(pair.new)]
    return sorted(different, key=lambda pair: (pair.item.date, pair.item.message_id), reverse=True)


def _actions(item: PlanItem | None) -> object:
    return None if item is None else (item.actions, item.after)
