"""The table of the pages of rules."""

from __future__ import annotations

from postroom.surfaces.web.page import Form, Link, Page, Section
from postroom.surfaces.web.rules import editing, listing, planning

LIST = Page("/rules", "rules/list.html", listing.rules)
RUNS = Page("/rules/runs", "rules/runs.html", listing.runs)

SECTION = Section(
    links=(Link("Rules", "/rules"),),
    pages=(LIST, RUNS, editing.NEW, editing.RULE, planning.PLAN),
    forms=(
        Form("/rules/new", editing.submit, editing.NEW),
        Form("/rules/{rule_id}", editing.submit, editing.RULE),
        Form("/rules/{rule_id}/switch", listing.switch, LIST),
        Form("/rules/{rule_id}/move", listing.move, LIST),
        Form("/rules/{rule_id}/delete", listing.delete, LIST),
        Form("/rules/plans/{plan_id}/apply", planning.apply, planning.PLAN),
        Form("/rules/plans/{plan_id}/undo", planning.undo, planning.PLAN),
    ),
    notices={
        "rule on": "The rule runs on new mail.",
        "rule off": "The rule is off.",
        "rule moved": "The order has changed.",
        "rule created": "Saved. It runs on new mail; make a plan to apply it to stored mail.",
        "rule saved": "Saved.",
        "rule deleted": "The rule is deleted. What it did stays.",
        "plan applied": "Applied.",
        "plan undone": "Undone: every message is as it was before.",
        "plan undone in part": "Undone, except what was changed again or had been sent already.",
    },
)
