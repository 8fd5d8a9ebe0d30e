"""Rules to start from, and the words that the editor completes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from postroom.model.key import Scope
from postroom.model.mail.message import FLAGS
from postroom.operations.inboxes import list_inboxes
from postroom.operations.mail.message_changes import list_labels, list_mailboxes
from postroom.operations.mail.messages import search_messages
from postroom.operations.webhooks import list_webhooks
from postroom.rules.definition import ACTIONS, FIELDS, GROUPS, KEYS, OPERATORS, SAFETY_KEYS
from postroom.surfaces.web.page import PageRequest, Values


class Template(NamedTuple):
    """A rule to start from: its title, what it does, its text."""

    title: str
    does: str
    yaml: str


TEMPLATES: dict[str, Template] = {
    "empty": Template(
        "Empty rule",
        "one condition and one action",
        """\
name: New rule
when:
  - subject: {contains: example}
then: [mark_read]
""",
    ),
    "newsletters": Template(
        "Label newsletters",
        "label messages from mailing lists",
        """\
name: Newsletters
when:
  - list_id: {exists: true}
then: [{apply_label: Newsletters}]
""",
    ),
    "receipts": Template(
        "Archive receipts",
        "label receipts and invoices, mark them as read and archive them",
        """\
name: Receipts
when:
  any:
    - subject: {contains: receipt}
    - subject: {contains: invoice}
then: [{apply_label: Receipts}, mark_read, archive]
""",
    ),
    "important": Template(
        "Flag a sender",
        "flag authenticated messages from a domain",
        """\
name: Mail of the team
when:
  - from: {equals: "@team.example"}
  - auth: {equals: dmarc=pass}
then: [flag]
""",
    ),
    "clean": Template(
        "Clear out old mail",
        "move old newsletters to Trash when you apply a plan",
        """\
name: Old newsletters
when:
  - label: {equals: Newsletters}
  - age_days: {greater_than: 60}
  - not: {flag: {equals: flagged}}
then: [delete]
safety: {require_plan: true}
""",
    ),
    "notify": Template(
        "Notify a program",
        "call a webhook for urgent messages",
        """\
name: Urgent mail
when:
  - subject: {contains: urgent}
then: [{webhook: "https://hooks.example.com/urgent"}]
""",
    ),
    "forward": Template(
        "Forward to a colleague",
        "forward messages about a subject, with attachments",
        """\
name: Applications to Ana
when:
  - subject: {contains: application}
  - has_attachment: true
then: [{forward: ana@example.com}, {apply_label: Forwarded}]
""",
    ),
}


_MOST = 100
_BOOLEAN = ["true", "false"]
_LISTS_OF = {"a label": "label", "a mailbox": "mailbox", "an address": "to"}
"""The field whose values an action takes, by what it takes."""


async def completion(request: PageRequest) -> dict[str, Any]:
    """Names by their place in a rule, and the values that fields and actions may have."""
    values = await _values(request)
    for name, action in ACTIONS.items():
        values.setdefault(name, values.get(_LISTS_OF.get(action.takes, ""), []))
    return {
        "keys": KEYS,
        "safety": SAFETY_KEYS,
        "groups": GROUPS,
        "fields": FIELDS,
        "operators": OPERATORS,
        "actions": {name: action.takes for name, action in ACTIONS.items()},
        "values": values,
    }


async def _values(request: PageRequest) -> dict[str, list[str]]:
    inboxes = (await request.call(list_inboxes, limit=_MOST)).results
    mailboxes = (await request.call(list_mailboxes, limit=_MOST)).results
    labels = (await request.call(list_labels, limit=_MOST)).results
    own = [inbox.address for inbox in inboxes]
    hooks = (
        (await request.call(list_webhooks, limit=_MOST)).results if request.may(Scope.ADMIN) else ()
    )
    values = {
        "from": await _senders(request),
        "to": own,
        "cc": own,
        "inbox": own,
        "account": _unique(inbox.account_id or "" for inbox in inboxes),
        "label": [label.name for label in labels],
        "mailbox": _unique(box.name for box in mailboxes),
        "flag": list(FLAGS),
        "webhook": [hook.id for hook in hooks],
    }
    flags = [name for name, field_type in FIELDS.items() if field_type == "boolean"]
    flags += ["enabled", "require_plan", "undo", "exists"]
    return values | dict.fromkeys(flags, _BOOLEAN)


async def _senders(request: PageRequest) -> list[str]:
    """The addresses of recent senders, and their domains.

    Only for the owner: mail that a key has seen is taken into account when it sends (`approval`).
    """
    if not request.person.caller.is_owner:
        return []
    rows = (await request.call(search_messages, mailbox="*", limit=_MOST)).results
    addresses = _unique(row.from_address for row in rows)
    domains = _unique(f"@{address.rpartition('@')[2]}" for address in addresses)
    return [*domains, *addresses]


def _unique(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]


def reference() -> Values:
    """The language in short: fields with their operators, and actions."""
    sorts: dict[str, list[str]] = {}
    for name, sort in FIELDS.items():
        sorts.setdefault(", ".join(OPERATORS[sort]), []).append(name)
    return {"fields": sorts, "groups": GROUPS, "actions": ACTIONS}
