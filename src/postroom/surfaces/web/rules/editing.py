"""The editor of a rule: check as you type, plan, compare with another version, save."""

from __future__ import annotations

from postroom.errors import InvalidInput, NotFound
from postroom.model.rule import Rule, text_sha256
from postroom.operations.rule_editing import check_rule, compare_rules, replace_rule
from postroom.operations.rule_runs import get_plan_changes
from postroom.operations.rules import create_rule, get_rule, run_rule_plan
from postroom.surfaces.web.page import Page, Redirect, Shown, Values, Visit
from postroom.surfaces.web.rules.planning import changes_of, outcome_of
from postroom.surfaces.web.rules.templates import TEMPLATES, completion, reference

_ROWS = 20
_MIN_LINES, _MAX_LINES = 14, 400
NEWEST = (500, 2_000, 10_000)
"""How many messages a comparison looks at."""


async def editor(visit: Visit) -> Values:
    """The text of a rule with its problems; what was typed stays after a form."""
    rule = await _saved(visit)
    chosen = TEMPLATES.get(visit.query.get("template", ""), TEMPLATES["empty"])
    stored = chosen.yaml if rule is None else rule.yaml
    text = visit.form.get("rule_yaml", stored)
    version = visit.form.get("sha256") or text_sha256(stored)
    check = await visit.call(check_rule, rule_yaml=text)
    marked = {problem.line: problem.severity for problem in reversed(check.problems)}
    lines = min(max(text.count("\n") + 3, _MIN_LINES), _MAX_LINES)
    return {
        "rule": rule,
        "text": text,
        "version": version,
        # Somebody else has saved another text since this one was opened.
        "is_outdated": rule is not None and version != text_sha256(stored),
        "saved_version": text_sha256(stored),
        "is_changed": rule is None or text != stored,
        "check": check,
        "lines": [(number, marked.get(number, "")) for number in range(1, lines + 1)],
        "do": visit.form.get("do", ""),
        "words": await completion(visit),
        "reference": reference(),
        "action": f"/rules/{rule.id}" if rule else "/rules/new",
        "newest": NEWEST,
        "given": visit.form,
        "planned": None,
        "compared": None,
        "changes_of": changes_of,
        "outcome_of": outcome_of,
        "is_preview": True,
    }


async def _saved(visit: Visit) -> Rule | None:
    """The saved rule; None if it is new, or was deleted while its text was typed."""
    if "rule_id" not in visit.path:
        return None
    try:
        return await visit.call(get_rule, rule_id=visit.path["rule_id"])
    except NotFound:
        if not visit.form.get("rule_yaml"):
            raise
        return None


NEW = Page("/rules/new", "rules/editor.html", editor)
RULE = Page("/rules/{rule_id}", "rules/editor.html", editor)


async def submit(visit: Visit) -> Redirect | Shown:
    """Check, plan, compare or save what was typed."""
    do = visit.form.get("do", "")
    if do == "check":
        return await _shown(visit, {})
    if do == "plan":
        return await _shown(visit, await _plan(visit))
    if do == "compare":
        return await _shown(visit, await _compare(visit))
    if do == "save":
        return await _save(visit)
    raise InvalidInput("choose an action: save, plan or compare")


async def _shown(visit: Visit, more: Values) -> Shown:
    """The editor again, with an answer below the text."""
    return Shown(NEW.template, {**await editor(visit), **more})


async def _plan(visit: Visit) -> Values:
    """The plan of the typed text, or of the saved rule if it is the same."""
    rule, text = await _saved(visit), visit.form.get("rule_yaml")
    if rule is not None and text in (None, rule.yaml):
        plan = await visit.call(run_rule_plan, rule_id=rule.id, limit=1)
    else:
        made = await visit.call(create_rule, rule_yaml=text or "", dry_run=True)
        assert not isinstance(made, Rule)
        plan = made
    planned = await visit.call(get_plan_changes, plan_id=plan.plan_id, limit=_ROWS)
    return {"planned": planned, "plan": planned.plan, "items": planned.items}


async def _compare(visit: Visit) -> Values:
    form, rule_id = visit.form, visit.path.get("rule_id")
    newest = form.get("newest", "")
    number = int(newest) if newest.isascii() and newest.isdigit() else NEWEST[1]
    other = form.get("against_yaml", "")
    if not other.strip() and rule_id is None:
        raise InvalidInput("enter a version to compare with; this rule has no saved version yet")
    old = {"against_yaml": other} if other.strip() else {"rule_id": rule_id}
    text = form.get("rule_yaml", "")
    return {"compared": await visit.call(compare_rules, rule_yaml=text, newest=number, **old)}


async def _save(visit: Visit) -> Redirect:
    form, rule_id = visit.form, visit.path.get("rule_id")
    text = form.get("rule_yaml", "")
    if rule_id is None:
        made = await visit.call(create_rule, rule_yaml=text, dry_run=False)
        assert isinstance(made, Rule)
        return Redirect(f"/rules/{made.id}", "rule created")
    version = form.get("replace") or form.get("sha256", "")
    await visit.call(replace_rule, rule_id=rule_id, rule_yaml=text, sha256=version)
    return Redirect(f"/rules/{rule_id}", "rule saved")
