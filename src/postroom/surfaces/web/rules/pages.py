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
