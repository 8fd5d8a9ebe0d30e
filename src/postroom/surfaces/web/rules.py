"""Rules: their list in order, the editor, plans and runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from postroom.errors import InvalidInput, NotFound
from postroom.model.key import AGENT, OWNER, Scope
from postroom.model.rule import PlanItem, Rule, text_sha256
from postroom.model.view import EVERYTHING
from postroom.operations.keys import list_keys
from postroom.operations.rule_editing import check_rule, compare_rules, replace_rule
from postroom.operations.rule_runs import get_plan_changes, list_rule_plans, list_rule_states
from postroom.operations.rules import (
    apply_rule_plan,
    create_rule,
    delete_rule,
    get_rule,
    run_rule_plan,
    undo_rule_plan,
    update_rule,
)
from postroom.surfaces.web.keys import VIA_NAMES
from postroom.surfaces.web.page import (
    Form,
    FormResult,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
    Values,
)
from postroom.surfaces.web.rule_templates import TEMPLATES, completion, reference

_ROWS = 50
_OUTGOING = {"forward": "forward to", "reply": "reply", "webhook": "call"}
"""Actions that disclose mail to others, in words."""


class Change(NamedTuple):
    """One change of a message: names before and after, or what is sent."""

    kind: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    leaves: str = ""


def changes_of(item: PlanItem) -> list[Change]:
    """What a plan does with a message; empty if nothing."""
    return [*_state_changes(item), *_other_changes(item)] if item.actions else []


def _state_changes(item: PlanItem) -> Iterator[Change]:
    before, after = item.before, item.after
    pairs = (
        ("mailbox", before.mailboxes, after.mailboxes),
        ("labels", before.labels, after.labels),
        ("flags", before.flags, after.flags),
    )
    for kind, old, new in pairs:
        if old != new:
            yield Change(kind, tuple(old), tuple(new))


def _other_changes(item: PlanItem) -> Iterator[Change]:
    for action in item.actions:
        if action.type in _OUTGOING:
            yield Change("outgoing", leaves=f"{_OUTGOING[action.type]} {action.value[:200]}")
        elif action.type == "remember":
            yield Change("memory", after=(action.key,))


def outcome_of(item: PlanItem | None) -> str:
    """What a version of a rule does with a message, in words."""
    if item is None:
        return "does not match"
    words = [f"{action.type} {action.value[:100]}".strip() for action in item.actions]
    return ", ".join(words) or "matches, and changes nothing"


async def plan(request: PageRequest) -> Values:
    """A plan with its messages, before and after."""
    found = await request.call(
        get_plan_changes, plan_id=request.path["plan_id"], limit=_ROWS, **request.cursor
    )
    return {
        "plan": found.plan,
        "items": found.items,
        "changes_of": changes_of,
        # The text of a rule that is not saved, so that it can be planned again.
        "text": request.form.get("rule_yaml", ""),
        "is_preview": False,
    }


PLAN = Page("/rules/plans/{plan_id}", "rules/plan.html", plan)


async def undo(request: PageRequest) -> Redirect:
    """Undo a plan."""
    plan_id = request.path["plan_id"]
    result = await request.call(undo_rule_plan, plan_id=plan_id)
    notice = "plan undone in part" if result.failed else "plan undone"
    return Redirect(f"/rules/plans/{plan_id}", notice)


_ITEMS = 20
_MIN_LINES, _MAX_LINES = 14, 400
NEWEST = (500, 2_000, 10_000)
"""How many messages a comparison looks at."""


async def editor(request: PageRequest) -> Values:
    """The text of a rule with its problems; what was typed stays after a form."""
    rule = await _saved(request)
    chosen = TEMPLATES.get(request.query.get("template", ""), TEMPLATES["empty"])
    stored = chosen.yaml if rule is None else rule.yaml
    text = request.form.get("rule_yaml", stored)
    version = request.form.get("sha256") or text_sha256(stored)
    check = await request.call(check_rule, rule_yaml=text)
    marked = {problem.line: problem.severity for problem in reversed(check.problems)}
    lines = min(max(text.count("\n") + 3, _MIN_LINES), _MAX_LINES)
    return {
        "rule": rule,
        "text": text,
        "version": version,
        # Somebody else has saved another text since this one was opened.
        "is_outdated": rule is not None and version != text_sha256(stored),
        "saved_version": text_sha256(stored),
        "check": check,
        "lines": [(number, marked.get(number, "")) for number in range(1, lines + 1)],
        "do": request.form.get("do", ""),
        "words": await completion(request),
        "reference": reference(),
        "action": f"/rules/{rule.id}" if rule else "/rules/new",
        "newest": NEWEST,
        "given": request.form,
        "planned": None,
        "compared": None,
        "changes_of": changes_of,
        "outcome_of": outcome_of,
        "is_preview": True,
    }


async def _saved(request: PageRequest) -> Rule | None:
    """The saved rule; None if it is new, or was deleted while its text was typed."""
    if "rule_id" not in request.path:
        return None
    try:
        return await request.call(get_rule, rule_id=request.path["rule_id"])
    except NotFound:
        if not request.form.get("rule_yaml"):
            raise
        return None


NEW = Page("/rules/new", "rules/editor.html", editor)
RULE = Page("/rules/{rule_id}", "rules/editor.html", editor)


async def submit(request: PageRequest) -> Redirect | FormResult:
    """Check, plan, compare or save what was typed."""
    do = request.form.get("do", "")
    if do == "check":
        return await _show_editor(request, {})
    if do == "plan":
        return await _show_editor(request, await _plan(request))
    if do == "compare":
        return await _show_editor(request, await _compare(request))
    if do == "save":
        return await _save(request)
    raise InvalidInput("choose an action: save, plan or compare")


async def _show_editor(request: PageRequest, more: Values) -> FormResult:
    """The editor again, with an answer below the text."""
    return FormResult(NEW.template, {**await editor(request), **more})


async def _plan(request: PageRequest) -> Values:
    """The plan of the typed text, or of the saved rule if it is the same."""
    rule, text = await _saved(request), request.form.get("rule_yaml")
    if rule is not None and text in (None, rule.yaml):
        plan = await request.call(run_rule_plan, rule_id=rule.id, limit=1)
    else:
        made = await request.call(create_rule, rule_yaml=text or "", dry_run=True)
        assert not isinstance(made, Rule)
        plan = made
    planned = await request.call(get_plan_changes, plan_id=plan.plan_id, limit=_ITEMS)
    return {"planned": planned, "plan": planned.plan, "items": planned.items}


async def _compare(request: PageRequest) -> Values:
    form, rule_id = request.form, request.path.get("rule_id")
    newest = form.get("newest", "")
    number = int(newest) if newest.isascii() and newest.isdigit() else NEWEST[1]
    other = form.get("against_yaml", "")
    if not other.strip() and rule_id is None:
        raise InvalidInput("enter a version to compare with; this rule has no saved version yet")
    old = {"against_yaml": other} if other.strip() else {"rule_id": rule_id}
    text = form.get("rule_yaml", "")
    return {"compared": await request.call(compare_rules, rule_yaml=text, newest=number, **old)}


async def _save(request: PageRequest) -> Redirect:
    form, rule_id = request.form, request.path.get("rule_id")
    text = form.get("rule_yaml", "")
    if rule_id is None:
        made = await request.call(create_rule, rule_yaml=text, dry_run=False)
        assert isinstance(made, Rule)
        return Redirect(f"/rules/{made.id}", "rule created")
    version = form.get("replace") or form.get("sha256", "")
    await request.call(replace_rule, rule_id=rule_id, rule_yaml=text, sha256=version)
    return Redirect(f"/rules/{rule_id}", "rule saved")


_RUNS = 25
_DAYS = 30
_PEOPLE = {
    "you": "you",
    OWNER.key_id: "the owner",
    AGENT.key_id: "the agent on stdio",
    "another key": "another key",
    "": "an earlier version",
}


async def names_of_keys(request: PageRequest) -> dict[str, str]:
    """Who made a rule or applied a plan, in words; keys are named to those who may list them."""
    if not request.may(Scope.ADMIN) or request.ctx.visible != EVERYTHING:
        return _PEOPLE
    keys = await request.call(list_keys, limit=100)
    return {key.id: f"the key {key.name}" for key in keys.results} | _PEOPLE


async def rules(request: PageRequest) -> Values:
    """The rules in the order in which they run."""
    page = await request.call(list_rule_states, limit=_ROWS, days=_DAYS, **request.cursor)
    return {
        "page": page,
        "names": await names_of_keys(request),
        "templates": TEMPLATES,
        "days": _DAYS,
    }


async def runs(request: PageRequest) -> Values:
    """Plans that were applied or wait, and what rules did with arriving mail."""
    of_rule = {"rule_id": request.query["rule"]} if request.query.get("rule") else {}
    states = (await request.call(list_rule_states, limit=100, days=_DAYS)).results
    chosen = [s for s in states if request.query.get("rule") in (None, "", s.rule.id)]
    days = [(state.rule, day) for state in chosen for day in state.days]
    return {
        "plans": await request.call(list_rule_plans, limit=_RUNS, **of_rule, **request.cursor),
        "arrivals": sorted(days, key=lambda pair: pair[1].last_at, reverse=True)[:100],
        "states": states,
        "chosen": request.query.get("rule", ""),
        "names": await names_of_keys(request),
        "via_names": VIA_NAMES,
        "days": _DAYS,
    }


async def switch(request: PageRequest) -> Redirect:
    """Enable or disable a rule."""
    on = request.form.get("enabled") == "yes"
    await request.call(update_rule, rule_id=request.path["rule_id"], enabled=on)
    return Redirect(_return_path(request), "rule on" if on else "rule off")


async def move(request: PageRequest) -> Redirect:
    """Change the position of a rule."""
    position = request.form.get("position", "")
    number = int(position) if position.isascii() and position.isdigit() else position
    await request.call(update_rule, rule_id=request.path["rule_id"], position=number)
    return Redirect(_return_path(request), "rule moved")


def _return_path(request: PageRequest) -> str:
    return f"/rules/{request.path['rule_id']}" if request.form.get("from") == "rule" else "/rules"


LIST = Page("/rules", "rules/list.html", rules)
RUNS = Page("/rules/runs", "rules/runs.html", runs)

SECTION = Section(
    links=(Link("Rules", "/rules"),),
    pages=(LIST, RUNS, NEW, RULE, PLAN),
    forms=(
        Form("/rules/new", submit, NEW),
        Form("/rules/{rule_id}", submit, RULE),
        Form("/rules/{rule_id}/switch", switch, LIST),
        Form("/rules/{rule_id}/move", move, LIST),
        Form("/rules/{rule_id}/delete", delete_rule, LIST, notice="rule deleted"),
        Form("/rules/plans/{plan_id}/apply", apply_rule_plan, PLAN, notice="plan applied"),
        Form("/rules/plans/{plan_id}/undo", undo, PLAN),
    ),
    notices={
        "rule on": "Rule turned on. It runs on new messages.",
        "rule off": "Rule turned off.",
        "rule moved": "Order changed.",
        "rule created": "Saved. It runs on new messages; apply a plan for stored ones.",
        "rule saved": "Saved.",
        "rule deleted": "Rule deleted. Its changes are kept.",
        "plan applied": "Applied.",
        "plan undone": "Undone. Every message is as it was before.",
        "plan undone in part": "Undone, except for messages changed since or already sent.",
    },
)
