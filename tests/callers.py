"""Callers for tests: a key without limits, except where a test sets one."""

from __future__ import annotations

from postroom.model.key import ALL_SCOPES, Caller, Scope
from postroom.model.view import EVERYTHING, NOTHING, View


def a_caller(
    key_id: str,
    scopes: frozenset[Scope] = ALL_SCOPES,
    *,
    inboxes: View = EVERYTHING,
    namespaces: View = EVERYTHING,
) -> Caller:
    """A caller with such a key; one that is limited to inboxes sees no live account."""
    accounts = EVERYTHING if inboxes == EVERYTHING else NOTHING
    return Caller(key_id, scopes, inboxes=inboxes, accounts=accounts, namespaces=namespaces)
