"""The rights that the actions of a rule need.

They are checked when a caller creates, plans, applies, undoes, enables or moves a rule, and for the
key of the rule each time the rule runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from postroom.model.key import AGENT, ALL_SCOPES, OWNER, Caller, Scope
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.rule import Action, Rule
from postroom.model.view import EVERYTHING, NOTHING, View
from postroom.rules.definition import Definition

_SCOPES = {"forward": Scope.SEND, "reply": Scope.SEND, "webhook": Scope.ADMIN, "stop": None}
"""Every other action needs `write`."""

_PASSES_MAIL_ON = frozenset({"forward", "webhook"})
"""Actions that show mail to somebody outside, so that they need `read` as well."""

_NOT_UNDONE = frozenset({"webhook", "remember", "stop"})
"""Actions that undoing a plan does not revert."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What an action needs: a scope, a namespace of memories, a webhook that may be seen.

    What `passes_mail_on` needs the scope `read` as well: otherwise whoever may not read mail would
    have it sent to them.
    """

    scope: Scope | None
    passes_mail_on: bool = False
    namespace: str | None = None
    webhook: str | None = None


def rights_for(action: Action) -> Rights:
    """The rights that an action needs."""
    is_webhook = action.type == "webhook" and action.value.startswith("whk_")
    return Rights(
        scope=_SCOPES.get(action.type, Scope.WRITE),
        passes_mail_on=action.type in _PASSES_MAIL_ON,
        namespace=DEFAULT_NAMESPACE if action.type == "remember" else None,
        webhook=action.value if is_webhook else None,
    )


def rights_to_undo(action: Action) -> Rights:
    """The rights to undo an action: none if it is not reverted."""
    return Rights(None) if action.type in _NOT_UNDONE else rights_for(action)


def lacking(caller: Caller, rights: Rights) -> str:
    """What a caller lacks to do an action; empty if nothing. The store checks the webhook."""
    if rights.scope is not None and rights.scope not in caller.scopes:
        return f"needs a key with the scope {rights.scope}"
    if rights.passes_mail_on and Scope.READ not in caller.scopes:
        return "needs a key with the scope read, because it passes mail on"
    if rights.namespace is not None and not caller.namespaces.sees(rights.namespace):
        return f"needs a key that may write to the namespace {rights.namespace}"
    return ""


def is_unlimited(caller: Caller) -> bool:
    """Whether a caller may do everything everywhere."""
    limits = (caller.inboxes, caller.accounts, caller.namespaces)
    return caller.scopes >= ALL_SCOPES and all(limit == EVERYTHING for limit in limits)


def authority_of(caller: Caller) -> str:
    """The id of the key of a caller's rules: the owner's for an unlimited caller without a key."""
    return OWNER.key_id if caller.secret_hash is None and is_unlimited(caller) else caller.key_id


def recorded_authority(caller: Caller) -> str:
    """The id of the key that is recorded with a rule of this caller.

    The agent without a key has the owner's rights, but its own rate limits.
    """
    return AGENT.key_id if caller.key_id == AGENT.key_id else authority_of(caller)


NO_AUTHORITY = ""
"""The authority of a rule of an older version whose key is not recorded."""


def authority_of_rule(rule: Rule) -> str:
    """The id of the key of a rule."""
    return NO_AUTHORITY if rule.authority is None else rule.authority


def standing_caller(authority: str, inboxes: View, callers: Mapping[str, Caller]) -> Caller | None:
    """The caller of a rule, by the keys that exist; None if its key has ended.

    A rule without a recorded key acts for its own inboxes, and stores no memories.
    """
    if authority == NO_AUTHORITY:
        return Caller(NO_AUTHORITY, inboxes=inboxes, accounts=NOTHING, namespaces=NOTHING)
    return OWNER if authority == OWNER.key_id else callers.get(authority)


def refusal(caller: Caller | None, action: Action, inbox_id: str) -> str:
    """Why a rule may not do an action for this caller in this inbox; empty if it may."""
    if caller is None:
        return "the key of the rule was revoked or has expired"
    if not caller.inboxes.sees(inbox_id):
        return "the key of the rule may not see this inbox"
    what = lacking(caller, rights_for(action))
    return what and f"{action.type}: this {what}, unlike the key of the rule"


def permitted(
    definition: Definition, caller: Caller | None, inbox_id: str
) -> tuple[Definition, tuple[str, ...]]:
    """A rule with the actions that it may do now, and the reasons for the others."""
    if caller is OWNER:
        return definition, ()
    refused = {action: refusal(caller, action, inbox_id) for action in definition.then}
    allowed = tuple(action for action in definition.then if not refused[action])
    return replace(definition, then=allowed), with_advice(refused.values())


def with_advice(refusals: Iterable[str]) -> tuple[str, ...]:
    """Each refusal once, with advice."""
    fix = (
        "enable the rule with a key that has the rights (`postroom rule update ID --enabled`, or "
        "PATCH /v1/rules/ID), and it is a rule of that key"
    )
    return tuple(f"{why}; {fix}" for why in dict.fromkeys(refusals) if why)
