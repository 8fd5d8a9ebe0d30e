"""Random rules on a random mailbox, compared with a simple model of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import Change
from postroom.model.view import EVERYTHING
from postroom.operations import rules
from tests.mails import deliver, mail

WORDS = ("invoice", "Report", "STRASSE", "lunch", "50%", "a_b")
SENDERS = ("ana@supplier.example", "bo@b.example", "cy@supplier.example")
LABELS = ("Work", "work", "Paid", "Later")
BOXES = ("Inbox", "Archive", "Junk", "Trash", "Projects")
FLAGS = ("seen", "flagged")
HIDDEN = {"junk", "trash"}
FILE = ("Bill.pdf", "application/pdf", b"%PDF")


@dataclass
class ModelMessage:
    """A message in the model."""

    id: str
    subject: str
    sender: str
    has_file: bool
    labels: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    box: str = "Inbox"

    def state(self) -> tuple[list[str], list[str], str]:
        return sorted(name.lower() for name in self.labels), sorted(self.flags), self.box.lower()


def random_condition(source: random.Random, depth: int = 0) -> dict[str, Any]:
    """A condition that some messages meet."""
    if depth < 3 and source.random() < 0.35:
        kind = source.choice(("all", "any", "none", "not"))
        count = source.randint(1, 3)
        return {kind: [random_condition(source, depth + 1) for _ in range(count)]}
    return source.choice(
        (
            {"subject": {"contains": source.choice(WORDS).lower()}},
            {"subject": {"matches": f"*{source.choice(WORDS)}*"}},
            {"from": {"equals": source.choice((*SENDERS, "@supplier.example"))}},
            {"from": {"contains": source.choice(("supplier", "ana", "b.example"))}},
            {"label": {"equals": source.choice(LABELS).upper()}},
            {"label": {"in": [source.choice(LABELS), source.choice(LABELS)]}},
            {"label": {"exists": source.random() < 0.5}},
            {"flag": {"equals": source.choice(FLAGS)}},
            {"mailbox": {"equals": source.choice(BOXES)}},
            {"has_attachment": source.random() < 0.5},
            {"attachment.name": {"matches": "*.PDF"}},
        )
    )


def random_actions(source: random.Random) -> list[Any]:
    plain = ("mark_read", "mark_unread", "flag", "unflag", "archive", "delete")
    found: list[Any] = []
    for _ in range(source.randint(1, 4)):
        kind = source.random()
        if kind < 0.3:
            found.append({"apply_label": source.choice(LABELS)})
        elif kind < 0.5:
            found.append({"remove_label": source.choice(LABELS)})
        elif kind < 0.65:
            found.append({"move": source.choice(BOXES)})
        else:
            found.append(source.choice(plain))
    return found


def meets(condition: dict[str, Any], message: ModelMessage) -> bool:
    ((name, test),) = condition.items()
    if name == "any":
        return any(meets(part, message) for part in test)
    if name == "none":
        return not any(meets(part, message) for part in test)
    if name in ("all", "not"):
        return all(meets(part, message) for part in test) == (name == "all")
    if name == "has_attachment":
        return message.has_file == test
    ((operator, wanted),) = test.items()
    if name == "attachment.name":
        return message.has_file
    if operator == "exists":
        return bool(message.labels) == wanted
    held = {
        "subject": [message.subject],
        "from": [message.sender],
        "label": message.labels,
        "flag": sorted(message.flags),
        "mailbox": [message.box],
    }[name]
    wanted = [w.lower().strip("*") for w in (wanted if isinstance(wanted, list) else [wanted])]
    for value in (v.lower() for v in held):
        if operator in ("contains", "matches") and wanted[0] in value:
            return True
        if operator in ("equals", "in") and value in wanted:
            return True
        if name == "from" and wanted[0].startswith("@") and value.endswith(wanted[0]):
            return True
    return False


def named_boxes(condition: dict[str, Any]) -> set[str]:
    ((name, test),) = condition.items()
    if name in ("all", "any"):
        return set().union(*(named_boxes(part) for part in test))
    return {test["equals"].lower()} & HIDDEN if name == "mailbox" else set()


def act(actions: list[Any], message: ModelMessage) -> None:
    for action in actions:
        name, value = (action, "") if isinstance(action, str) else next(iter(action.items()))
        rest = [label for label in message.labels if label.lower() != value.lower()]
        if name == "apply_label" and len(rest) == len(message.labels):
            message.labels.append(value)
        elif name == "remove_label":
            message.labels = rest
        elif name in ("move", "archive", "delete"):
            message.box = {"archive": "Archive", "delete": "Trash"}.get(name, value)
        elif name in ("mark_read", "flag"):
            message.flags.add("seen" if name == "mark_read" else "flagged")
        elif name in ("mark_unread", "unflag"):
            message.flags.discard("seen" if name == "mark_unread" else "flagged")


@dataclass
class ModelledMailbox:
    """A mailbox, its model, and the differences that were found."""

    ctx: RequestContext
    inbox: Inbox
    source: random.Random
    messages: dict[str, ModelMessage] = field(default_factory=dict)
    planned: int = 0
    stale: int = 0
    undone: int = 0

    async def fill(self, count: int) -> None:
        for _ in range(count):
            words = " ".join(self.source.sample(WORDS, 2))
            sender, has_file = self.source.choice(SENDERS), self.source.random() < 0.3
            raw = mail(words, sender=sender, attachments=[FILE] if has_file else [])
            added = await deliver(self.ctx, self.inbox, raw)
            self.messages[added.message_id] = ModelMessage(
                added.message_id, words, sender, has_file
            )

    async def differences(self) -> list[str]:
        """The differences between the store and the model."""
        found = []
        for message in self.messages.values():
            stored = await self.ctx.store.message(message.id, EVERYTHING)
            assert stored is not None
            state = (
                sorted(name.lower() for name in stored.labels),
                sorted(stored.flags),
                stored.mailboxes[0].lower(),
            )
            if state != message.state():
                found.append(f"{message.id}: {message.state()} in the model, {state} in the store")
        return found

    async def touch(self, message: ModelMessage) -> None:
        """Change a message as a user would."""
        kind = self.source.randrange(3)
        if kind == 0:
            message.flags ^= {"flagged"}
            change = Change(flags=tuple(message.flags))
        elif kind == 1:
            message.box = self.source.choice([b for b in BOXES if b != message.box])
            change = Change(move_to=message.box)
        else:
            message.labels = [] if message.labels else ["Touched"]
            change = Change(labels=tuple(message.labels))
        await self.ctx.store.change_messages([message.id], change, EVERYTHING)

    async def empty_trash_and_junk(self) -> None:
        """Move everything out of Trash and Junk, where all messages would end up otherwise."""
        lost = [m for m in self.messages.values() if m.box.lower() in HIDDEN]
        if len(lost) < 6:
            return
        for message in lost:
            message.box = "Inbox"
        ids = [message.id for message in lost]
        await self.ctx.store.change_messages(ids, Change(move_to="Inbox"), EVERYTHING)

    async def run(self) -> None:
        """Plan a random rule, then apply it or find it stale, and perhaps undo it."""
        await self.empty_trash_and_junk()
        condition, actions = random_condition(self.source), random_actions(self.source)
        text = yaml.safe_dump({"name": "r", "when": [condition], "then": actions})
        plan = await call(self.ctx, rules.create_rule, {"rule_yaml": text})
        named = named_boxes(condition)
        matching = {
            message.id: message
            for message in self.messages.values()
            if meets(condition, message) and message.box.lower() not in HIDDEN - named
        }
        planned = {row["message_id"]: row["actions"] for row in plan.matched_messages}
        assert set(matching) == set(planned), (text, set(matching) ^ set(planned))
        self.planned += 1
        before = {m.id: (list(m.labels), set(m.flags), m.box) for m in self.messages.values()}
        if matching and self.source.random() < 0.25:
            await self._find_stale(plan.plan_id, self.source.choice(list(matching.values())))
            return
        for message in matching.values():
            _check_plan(planned[message.id], message)
            act(actions, message)
        result = await call(self.ctx, rules.apply_rule_plan, {"plan_id": plan.plan_id})
        assert set(matching) == set(result.succeeded)
        if self.source.random() < 0.4:
            await self._undo(plan.plan_id, before)
        if matching:
            assert [] == await self.differences(), text

    async def _find_stale(self, plan_id: str, message: ModelMessage) -> None:
        await self.touch(message)
        with pytest.raises(Conflict, match=message.id):
            await call(self.ctx, rules.apply_rule_plan, {"plan_id": plan_id})
        self.stale += 1
        assert [] == await self.differences()

    async def _undo(self, plan_id: str, before: dict[str, Any]) -> None:
        result = await call(self.ctx, rules.undo_rule_plan, {"plan_id": plan_id})
        assert "ok" == result.status
        for message in self.messages.values():
            labels, flags, box = before[message.id]
            message.labels, message.flags, message.box = list(labels), set(flags), box
            stored = await self.ctx.store.message(message.id, EVERYTHING)
            assert stored is not None
            assert [name.lower() for name in labels] == [name.lower() for name in stored.labels]
        self.undone += 1


def _check_plan(planned: list[dict[str, str]], message: ModelMessage) -> None:
    """Applying the plan to a copy has the effect of the whole rule; each action has an effect.

    The plan leaves out what changes nothing.
    """
    copy = ModelMessage(
        message.id, message.subject, message.sender, message.has_file,
        list(message.labels), set(message.flags), message.box,
    )  # fmt: skip
    for action in planned:
        state = copy.state()
        value = action.get("label") or action.get("mailbox")
        act([{action["type"]: value} if value else action["type"]], copy)
        assert state != copy.state(), action


async def many_runs(ctx: RequestContext, inbox: Inbox, *, runs: int, seed: int) -> ModelledMailbox:
    """Plan, apply and undo this many random rules; returns the mailbox."""
    mailbox = ModelledMailbox(ctx, inbox, random.Random(seed))
    await mailbox.fill(12)
    for _ in range(runs):
        await mailbox.run()
    return mailbox
