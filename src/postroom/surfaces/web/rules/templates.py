"""Rules to start from."""

from __future__ import annotations

from typing import NamedTuple


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
