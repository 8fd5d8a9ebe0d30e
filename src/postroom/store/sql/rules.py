"""Rules, the facts about messages that they match, and the jobs that they cause."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from postroom.errors import Conflict, MailError, NotFound
from postroom.model.event import AuditRecord
from postroom.model.inbox import Visible
from postroom.model.key import AGENT, OWNER
from postroom.model.mail.message import MessageState, NamedAddress
from postroom.model.mail.storage import FIELD_BORDER, MessageQuery
from postroom.model.memory import DEFAULT_NAMESPACE, Author, Link, MemoryChange
from postroom.model.page import Found, Slice, random_id
from postroom.model.rule import Action, Facts, Loss, Rule, RuleEffect, text_sha256
from postroom.model.view import EVERYTHING, Everything, view_names
from postroom.store.audited_store import add_action_entries
from postroom.store.search.index import IndexSearcher
from postroom.store.sql.audit import ARRIVED, VISIBILITY_KEY
from postroom.store.sql.events import (
    MessageRef,
    WebhookAuthority,
    add_event,
    count_mail,
    insert_rule_delivery,
)
from postroom.store.sql.memories.memory_writes import save_memory
from postroom.store.sql.messages.message_search import direction, search_query_of
from postroom.store.sql.statements import (
    all_among,
    any_of,
    dumps,
    flag_names,
    from_text,
    insert,
    moment,
    page_of,
    scalar,
    seconds,
    stored_view,
    update,
    view_in,
)
from postroom.store.transaction import Row, Transaction

MAX_RULES = 1_000
"""The limit for callers who see only some inboxes; rules that they do not see do not count."""

MAX_RULES_TOTAL = 20_000
"""The limit for callers who see all rules."""

_COLUMNS = """id, name, description, enabled, position, yaml, created_at, updated_at, inboxes,
    authority, visible_inboxes, made_by"""


def add_rule(tx: Transaction, rule: Rule, visible: Visible) -> Rule:
    """Insert a rule after all others. Raises Conflict when the caller sees too many."""
    count = len(visible_rules(tx, visible))
    if count >= (MAX_RULES_TOTAL if isinstance(visible, Everything) else MAX_RULES):
        raise Conflict(
            f"there are {count} rules already, which is the limit; delete_rule removes an unused"
            " one, and one rule can have several conditions"
        )
    last = scalar(tx, "SELECT coalesce(max(position), 0) FROM rules")
    insert(
        tx,
        "rules",
        id=rule.id,
        name=rule.name,
        description=rule.description,
        enabled=int(rule.enabled),
        position=last + 1,
        yaml=rule.yaml,
        created_at=seconds(rule.created_at),
        updated_at=seconds(rule.updated_at),
        inboxes=stored_view(rule.inboxes),
        authority=rule.authority,
        made_by=rule.authority,
    )
    _note_inboxes(tx)
    return get_rule(tx, rule.id, visible)


def _rule(row: Row) -> Rule:
    return Rule(
        id=row[0],
        name=row[1],
        description=row[2],
        enabled=bool(row[3]),
        position=row[4],
        yaml=row[5],
        created_at=moment(row[6]),
        updated_at=moment(row[7]),
        inboxes=view_in(row[8]),
        authority=row[9],
        made_for=None if row[10] is None else view_in(row[10]),
        made_by=row[11],
    )


def all_rules(tx: Transaction) -> list[Rule]:
    """All rules, in the order in which they run."""
    return [_rule(row) for row in tx.all(f"SELECT {_COLUMNS} FROM rules ORDER BY position, id")]


class RulesByInbox:
    """The rules of inboxes. Which rules name one is read again after a rule was added or replaced.

    Other changes only take inboxes from a rule, and the rules themselves are always read.
    """

    def __init__(self) -> None:
        self._read: tuple[object, dict[str | None, list[str]], int] = (self, {}, 0)

    def rules_for(self, tx: Transaction, inbox_ids: Iterable[str]) -> list[Rule]:
        """The rules that may apply to some inboxes, in the order in which they run."""
        state = scalar(tx, "SELECT value FROM metadata WHERE name = 'rules'")
        read = self._read
        if read[0] != state:
            count = int(scalar(tx, "SELECT count(*) FROM rules") or 0)
            read = self._read = state, _ids_by_inbox(tx), count
        ids = dict.fromkeys(one for inbox in (None, *inbox_ids) for one in read[1].get(inbox, ()))
        if 2 * len(ids) > read[2]:  # one pass is faster than a look at most of them
            return [rule for rule in all_rules(tx) if rule.id in ids]
        rows = all_among(tx, f"SELECT {_COLUMNS} FROM rules WHERE id {{among}}", ids)
        return sorted(map(_rule, rows), key=lambda rule: (rule.position, rule.id))


def _ids_by_inbox(tx: Transaction) -> dict[str | None, list[str]]:
    """The ids of the rules that name each inbox; those of rules for all inboxes under None."""
    found: dict[str | None, list[str]] = {}
    for rule_id, inboxes in tx.all("SELECT id, inboxes FROM rules"):
        view = view_in(inboxes)
        for inbox in (None,) if isinstance(view, Everything) else view.named:
            found.setdefault(inbox, []).append(rule_id)
    return found


def _note_inboxes(tx: Transaction) -> None:
    """Make `RulesByInbox` read again, in every process."""
    tx.run("DELETE FROM metadata WHERE name = 'rules'")
    insert(tx, "metadata", name="rules", value=secrets.token_bytes(8))


def upgrade_losses(tx: Transaction) -> list[Loss]:
    """The data that upgrades have dropped."""
    rows = tx.all("SELECT kind, subject, lost FROM upgrade_losses ORDER BY number")
    return [Loss(*row) for row in rows]


def visible_rules(tx: Transaction, visible: Visible) -> list[Rule]:
    """The rules that a caller sees, with positions counted among them from 1."""
    rules = all_rules(tx)
    if isinstance(visible, Everything):
        return rules
    seen = (rule for rule in rules if visible.covers(rule.visible_inboxes))
    return [replace(rule, position=place) for place, rule in enumerate(seen, 1)]


def list_rules(tx: Transaction, visible: Visible, page: Slice) -> Found[Rule]:
    """One page of rules, in the order in which they run."""
    return page_of(visible_rules(tx, visible), page)


def get_rule(tx: Transaction, rule_id: str, visible: Visible) -> Rule:
    """One rule. Raises NotFound."""
    if isinstance(visible, Everything):
        row = tx.one(f"SELECT {_COLUMNS} FROM rules WHERE id = :id", id=rule_id)
        found = None if row is None else _rule(row)
    else:
        found = next((rule for rule in visible_rules(tx, visible) if rule.id == rule_id), None)
    if found is None:
        raise NotFound(f"no rule {rule_id}; list_rules shows the existing rules")
    return found


def change_rule(
    tx: Transaction,
    rule_id: str,
    visible: Visible,
    *,
    enabled: bool | None,
    position: int | None,
    authority: str | None = None,
    now: datetime,
) -> Rule:
    """Enable, disable or move a rule, or replace the key on whose authority it runs.

    Raises NotFound.
    """
    rule = get_rule(tx, rule_id, visible)
    if enabled is not None:
        update(tx, "rules", {"id": rule_id}, enabled=int(enabled))
    if position is not None:
        _move_rule(tx, rule, position, visible)
    if authority is not None:
        update(tx, "rules", {"id": rule_id}, authority=authority)
    update(tx, "rules", {"id": rule_id}, updated_at=seconds(now))
    return get_rule(tx, rule_id, visible)


def replace_rule(tx: Transaction, rule: Rule, visible: Visible, *, sha256: str) -> Rule:
    """Replace the text of a rule and what follows from it.

    Raises:
        NotFound: there is no such rule for the caller.
        Conflict: its text is another one than the caller has seen.
    """
    if text_sha256(get_rule(tx, rule.id, visible).yaml) != sha256:
        raise Conflict(
            f"{rule.id} was changed by somebody else since you opened it; nothing was saved"
        )
    update(
        tx,
        "rules",
        {"id": rule.id},
        name=rule.name,
        description=rule.description,
        enabled=int(rule.enabled),
        yaml=rule.yaml,
        inboxes=stored_view(rule.inboxes),
        visible_inboxes=None if rule.made_for is None else stored_view(rule.made_for),
        authority=rule.authority,
        made_by=rule.made_by,
        updated_at=seconds(rule.updated_at),
    )
    _note_inboxes(tx)
    return get_rule(tx, rule.id, visible)


def _move_rule(tx: Transaction, rule: Rule, position: int, visible: Visible) -> None:
    """Move a rule to a position among the visible rules, counted from 1."""
    order = [other for other in all_rules(tx) if other.id != rule.id]
    seen = [place for place, other in enumerate(order) if visible.covers(other.visible_inboxes)]
    before = seen[position - 1] if position <= len(seen) else seen[-1] + 1 if seen else 0
    order.insert(before, rule)
    for place, other in enumerate(order, 1):
        update(tx, "rules", {"id": other.id}, position=place)


def remove_rule(tx: Transaction, rule_id: str, visible: Visible) -> Rule:
    """Remove a rule; its plans can be undone, but no longer applied. Raises NotFound."""
    rule = get_rule(tx, rule_id, visible)
    tx.run("DELETE FROM rules WHERE id = :id", id=rule_id)
    return rule


ALL = Slice(limit=2**31 - 1)
FACTS = """
    SELECT m.number, m.id, i.id, t.id, m.is_outbound, m.subject, m.addresses, m.date, m.size_bytes,
           m.labels, m.flags, m.mailboxes, m.has_attachment, m.details, m.raw, s.searchable, m.inbox
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
      JOIN inboxes i ON i.number = +m.inbox
      JOIN search_texts s ON +s.inbox = +m.inbox AND s.message = m.number
     WHERE m.number {among} ORDER BY m.date DESC, m.number DESC
"""
FILES = """
    SELECT message, filename, content_type FROM attachments
     WHERE +inbox {inboxes} AND message {among} ORDER BY number
"""
TEXTS = "SELECT message, text FROM bodies WHERE inbox {inboxes} AND message {among}"


def candidates(
    tx: Transaction, queries: Sequence[MessageQuery], searcher: IndexSearcher
) -> list[int]:
    """The numbers of all messages that match one of the queries."""
    found: set[int] = set()
    for query in queries:
        found.update(searcher.search(tx, search_query_of(tx, replace(query, page=ALL))).numbers)
    return sorted(found, reverse=True)


def read_facts(
    tx: Transaction, numbers: Sequence[int], *, with_text: bool, with_files: bool
) -> list[Facts]:
    """The facts about messages; texts and files only on request."""
    among, params = any_of("number", numbers)
    rows = tx.all(FACTS.format(among=among), **params)
    inboxes, scope = any_of("inbox", sorted({row[16] for row in rows}))
    files: dict[int, list[tuple[str, str]]] = {}
    if with_files:
        sql = FILES.format(inboxes=inboxes, among=among)
        for number, filename, kind in tx.all(sql, **params, **scope):
            files.setdefault(number, []).append((filename, kind))
    texts: dict[int, str] = {}
    if with_text:
        sql = TEXTS.format(inboxes=inboxes, among=among)
        texts.update((row[0], row[1]) for row in tx.all(sql, **params, **scope))
    return [_facts(row, texts.get(row[0], ""), files.get(row[0], ())) for row in rows]


def _facts(row: Row, text: str, files: Sequence[tuple[str, str]]) -> Facts:
    lines = from_text(row[6])
    folded = row[15].split(FIELD_BORDER, 2)
    auth = from_text(row[13])["auth"]
    return Facts(
        message_id=row[1],
        inbox_id=row[2],
        thread_id=row[3],
        direction=direction(row[4]),
        subject=row[5],
        folded_subject=folded[0],
        senders=_people(lines, "from"),
        to=_people(lines, "to"),
        cc=_people(lines, "cc"),
        date=moment(row[7]),
        size_bytes=row[8],
        state=MessageState(
            labels=tuple(from_text(row[9])),
            flags=flag_names(row[10]),
            mailboxes=tuple(from_text(row[11])),
        ),
        text=text,
        folded_text=folded[1] if text else "",
        files=tuple(files),
        has_attachment=bool(row[12]),
        auth=tuple(f"{name}={verdict}".lower() for name, verdict in auth.items()),
        raw=row[14],
        number=row[0],
        reply_to=tuple(person.address for person in _people(lines, "reply_to")),
    )


def _people(lines: Sequence[Sequence[str]], role: str) -> tuple[NamedAddress, ...]:
    return tuple(NamedAddress(name, address) for kind, name, address in lines if kind == role)


ABOUT = """
    SELECT m.inbox, t.id, m.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.id = :id
"""


def run_side_effects(
    tx: Transaction,
    effect: RuleEffect,
    about: MessageRef,
    now: datetime,
    *,
    plan_id: str | None = None,
) -> list[str]:
    """Run the actions that do not change the message, and return descriptions of the failures."""
    failed = list(effect.problems)
    for action in effect.actions:
        try:
            _run_side_effect(tx, effect, action, about, now, plan_id)
        except MailError as error:
            failed.append(str(error))
    for problem in failed:
        add_event(tx, "rule.failed", now, about, {**_event_data(effect), "detail": problem[:500]})
    return failed


def _event_data(effect: RuleEffect) -> dict[str, object]:
    known = visibility_detail(effect.visible_inboxes)
    return {"rule_id": effect.rule_id, "rule": effect.rule_name, **known}


def visibility_detail(view: Visible) -> dict[str, object]:
    return {VISIBILITY_KEY: view_names(view)}


def _run_side_effect(
    tx: Transaction,
    effect: RuleEffect,
    action: Action,
    about: MessageRef,
    now: datetime,
    plan_id: str | None,
) -> None:
    if action.type == "webhook":
        event = add_event(tx, "rule.matched", now, about, _event_data(effect))
        # An agent without a key acts for the owner, also for a URL that both use.
        authority = OWNER.key_id if effect.authority == AGENT.key_id else effect.authority
        webhook_authority = WebhookAuthority(authority, effect.caller.inboxes)
        insert_rule_delivery(tx, action.value, event, about.inbox, webhook_authority, now)
    elif action.type in ("forward", "reply"):
        insert(
            tx,
            "rule_jobs",
            id=random_id("ern"),
            rule=effect.rule_id,
            name=effect.rule_name,
            plan=plan_id,
            message=about.message_id,
            inbox=about.inbox,
            action=dumps(action),
            state="waiting",
            attempts=0,
            next_at=seconds(now),
            authority=effect.authority,
            authors=dumps(list(dict.fromkeys((effect.authority, *effect.authors)))),
        )
        tx.announce("rule_jobs")
    elif action.type == "remember":
        _store_memory(tx, action, about, now)


def _store_memory(tx: Transaction, action: Action, about: MessageRef, now: datetime) -> None:
    """Store a memory with trust `mail` and a link to its message."""
    change = MemoryChange(
        DEFAULT_NAMESPACE,
        action.key,
        text=action.value,
        links=(Link("learnt_from", about.message_id),),
        max_trust="mail",
    )
    author = Author(is_owner=False, visible=EVERYTHING, namespaces=EVERYTHING)
    save_memory(tx, change, author, now, is_new_allowed=True)


def apply_rule_effects(
    tx: Transaction, effects: Sequence[RuleEffect], about: MessageRef, inbox_id: str, now: datetime
) -> None:
    """Run and audit the effects of rules on a message that was just stored."""
    for effect in effects:
        failed = run_side_effects(tx, effect, about, now)
        count_mail(tx, "rules", about.inbox, now)
        details = {"rule": effect.rule_name, **visibility_detail(effect.visible_inboxes)}
        record = AuditRecord(effect.rule_id, ARRIVED, now, (about.message_id,), details, via="rule")
        add_action_entries(tx, record, effect.actions, inbox_id=inbox_id, failed=failed)


def cancel_rule_jobs(tx: Transaction, plan_id: str, message_id: str) -> list[Action]:
    """Delete the rule jobs of a message that no worker has claimed, and return their actions."""
    rows = tx.all(
        """DELETE FROM rule_jobs WHERE plan = :plan AND message = :message AND state = 'waiting'
              AND holder IS NULL RETURNING action""",
        plan=plan_id,
        message=message_id,
    )
    return [Action(*from_text(row[0])) for row in rows]
