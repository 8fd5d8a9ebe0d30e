"""The table of the pages of rules, their list in order with switches, and what rules have done."""

from __future__ import annotations

from postroom.model.key import AGENT, OWNER, Scope
from postroom.model.view import EVERYTHING
from postroom.operations.keys import list_keys
from postroom.operations.rule_runs import list_rule_plans, list_rule_states
from postroom.operations.rules import delete_rule, update_rule
from postroom.surfaces.web.page import Form, Link, Page, Redirect, Section, Values, Visit
from postroom.surfaces.web.rules import editing, planning
from postroom.surfaces.web.rules.templates import TEMPLATES

_ROWS = 50
_RUNS = 25
_DAYS = 30
_PEOPLE = {
    "you": "you",
    OWNER.key_id: "the owner",
    AGENT.key_id: "the agent on stdio",
    "another key": "another key",
    "": "an earlier version",
}


async def names_of_keys(visit: Visit) -> dict[str, str]:
    """Who made a rule or applied a plan, in words; keys are named to those who may list them."""
    if not visit.may(Scope.ADMIN) or visit.ctx.visible != EVERYTHING:
        return _PEOPLE
    keys = await visit.call(list_keys, limit=100)
    return {key.id: f"the key {key.name}" for key in keys.results} | _PEOPLE


async def rules(visit: Visit) -> Values:
    """The rules in the order in which they run."""
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    page = await visit.call(list_rule_states, limit=_ROWS, days=_DAYS, **cursor)
    return {
        "page": page,
        "names": await names_of_keys(visit),
        "templates": TEMPLATES,
        "days": _DAYS,
        "now": visit.app.services.clock(),
    }


async def runs(visit: Visit) -> Values:
    """Plans that were applied or wait, and what rules did with arriving mail."""
    of_rule = {"rule_id": visit.query["rule"]} if visit.query.get("rule") else {}
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    states = (await visit.call(list_rule_states, limit=100, days=_DAYS)).results
    chosen = [s for s in states if visit.query.get("rule") in (None, "", s.rule.id)]
    days = [(state.rule, day) for state in chosen for day in state.days]
    return {
        "plans": await visit.call(list_rule_plans, limit=_RUNS, **of_rule, **cursor),
        "arrivals": sorted(days, key=lambda pair: pair[1].last_at, reverse=True)[:100],
        "states": states,
        "chosen": visit.query.get("rule", ""),
        "names": await names_of_keys(visit),
        "days": _DAYS,
    }


async def switch(visit: Visit) -> Redirect:
    """Switch a rule on or off."""
    on = visit.form.get("enabled") == "yes"
    await visit.call(update_rule, rule_id=visit.path["rule_id"], enabled=on)
    return Redirect(_place(visit), "rule on" if on else "rule off")


async def move(visit: Visit) -> Redirect:
    """Let a rule run earlier or later."""
    position = visit.form.get("position", "")
    number = int(position) if position.isascii() and position.isdigit() else position
    await visit.call(update_rule, rule_id=visit.path["rule_id"], position=number)
    return Redirect(_place(visit), "rule moved")


def _place(visit: Visit) -> str:
    return f"/rules/{visit.path['rule_id']}" if visit.form.get("from") == "rule" else "/rules"


async def delete(visit: Visit) -> Redirect:
    """Delete a rule; what it did stays."""
    await visit.call(delete_rule, rule_id=visit.path["rule_id"])
    return Redirect("/rules", "rule deleted")


LIST = Page("/rules", "rules/list.html", rules)
RUNS = Page("/rules/runs", "rules/runs.html", runs)

SECTION = Section(
    links=(Link("Rules", "/rules"),),
    pages=(LIST, RUNS, editing.NEW, editing.RULE, planning.PLAN),
    forms=(
        Form("/rules/new", editing.submit, editing.NEW),
        Form("/rules/{rule_id}", editing.submit, editing.RULE),
        Form("/rules/{rule_id}/switch", switch, LIST),
        Form("/rules/{rule_id}/move", move, LIST),
        Form("/rules/{rule_id}/delete", delete, LIST),
        Form("/rules/plans/{plan_id}/apply", planning.apply, planning.PLAN),
        Form("/rules/plans/{plan_id}/undo", planning.undo, planning.PLAN),
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
