"""Reading the audit log, as far as a caller may see it."""

from __future__ import annotations

from dataclasses import replace

from postroom.model.event import AuditEntry, AuditQuery
from postroom.model.page import Found
from postroom.model.view import EVERYTHING, Everything, Only, View, view_of
from postroom.store.audited_store import AUDIT_COLUMNS
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    any_of,
    from_text,
    moment,
    seconds,
    view_in,
)
from postroom.store.transaction import Row, Transaction

_LISTING = Listing(AUDIT_COLUMNS, "audit", "number", is_newest_first=True)

ARRIVED = "rule_applied"
"""The action of a rule that is applied to an arriving message; the rule is the actor."""

_OF_PLANS = ("apply_rule_plan", "undo_rule_plan")
_OF_KEYS = ("create_key", "update_key", "delete_key", "reset_key")
_RULE_IDS = ("rul_", "pln_")
ANY_RULE = "rule"
"""The actor of an entry whose rule does not exist for the reader."""

SIDE_EFFECTS = frozenset({"webhook", "forward", "reply", "remember"})
"""The actions that do not change the message."""

VISIBILITY_KEY = "seen_in"
"""In what is stored about an effect of a rule: the inboxes with which the rule is known."""

_NOT_OF_MEMORY = "(namespace IS NULL AND substr(action, 1, 7) <> 'memory_')"
"""Entries on memories without a namespace are shown only to callers who may see all."""


def find_entries(tx: Transaction, query: AuditQuery) -> Found[AuditEntry]:
    """One page of the log, newest first."""
    found = _LISTING.page(tx, _conditions(tx, query), query.page, _entry)
    return replace(found, rows=tuple(_shown_to(tx, query.visible, e) for e in found.rows))


def _shown_to(tx: Transaction, visible: View, entry: AuditEntry) -> AuditEntry:
    """The entry for a caller: a rule or plan that does not exist for them is not named.

    What it changed in a message is shown, because they see the message.
    """
    details = dict(entry.details)
    is_recorded = VISIBILITY_KEY in details
    visible_inboxes = view_of(details.pop(VISIBILITY_KEY, None))
    is_actor = entry.actor.startswith(_RULE_IDS)
    if isinstance(visible, Everything) or not (
        is_recorded or is_actor or entry.action in _OF_PLANS
    ):
        return replace(entry, details=details)
    if visible.covers(visible_inboxes) or (not is_recorded and _is_known(tx, entry.actor, visible)):
        return replace(entry, details=details)
    changes = [
        action for action in details.get("actions", ()) if action["type"] not in SIDE_EFFECTS
    ]
    shown = {"actions": changes} if changes else {}
    return replace(entry, actor=ANY_RULE if is_actor else entry.actor, details=shown)


def _conditions(tx: Transaction, query: AuditQuery) -> Conditions:
    where = Conditions()
    where.within("inbox", query.visible)
    actor = query.actor or ""
    if actor.startswith(_RULE_IDS) and not _is_known(tx, actor, query.visible):
        where.add("1 = 0")
    if isinstance(query.namespaces, Only):
        among, params = any_of("namespace", query.namespaces.named)
        where.add(f"(namespace {among} OR {_NOT_OF_MEMORY})", **params)
        # Callers who cannot manage keys do not see them: their names and limits reveal namespaces.
        actions, params = any_of("managed", _OF_KEYS)
        where.add(f"action NOT {actions}", **params)
    for column in ("actor", "action", "target", "via"):
        value = getattr(query, column)
        if value is not None:
            where.add(f"{column} = :{column}", **{column: value})
    if query.after_date is not None:
        where.add("at >= :after_date", after_date=seconds(query.after_date))
    if query.before_date is not None:
        where.add("at < :before_date", before_date=seconds(query.before_date))
    return where


def _is_known(tx: Transaction, rule_id: str, visible: View) -> bool:
    """Whether a rule, or a plan without one, exists for a caller."""
    return visible.covers(rule_visible_inboxes(tx, rule_id))


def rule_visible_inboxes(tx: Transaction, rule_id: str) -> View:
    """The inboxes with which a rule, or a plan without one, is known; once removed, all."""
    for table in ("rules", "plans"):
        sql = f"SELECT inboxes, visible_inboxes FROM {table} WHERE id = :id"
        row = tx.one(sql, id=rule_id)
        if row is not None:
            return view_in(row[0] if row[1] is None else row[1])
    return EVERYTHING


def _entry(row: Row) -> AuditEntry:
    _, entry_id, at, actor, action, target, _, details, _, via, link, *_ = row
    return AuditEntry(
        entry_id, moment(at), actor, via, action, target, from_text(details), bytes(link).hex()
    )
