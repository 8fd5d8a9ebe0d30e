"""The store: each method is one function of `store.sql`, run in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from postroom.model.attachment import Attachment, BlobKey
from postroom.model.audit import AuditCheck, AuditEntry, AuditQuery
from postroom.model.draft import StoredDraft
from postroom.model.event import Event, EventQuery
from postroom.model.facts import Facts
from postroom.model.inbox import Inbox, Label, Visible
from postroom.model.key import Key
from postroom.model.message import ActionResult, Message, MessageRow, Recipient
from postroom.model.outbox import Claimed, OutboxEntry, OutboxJob, OutboxQuery, OutboxState
from postroom.model.page import Found, Slice
from postroom.model.rule import Errand, Plan, PlanItem, Rule
from postroom.model.sending import Sent
from postroom.model.stored import (
    Added,
    AttachmentQuery,
    Change,
    MessageQuery,
    NewMessage,
    NewSend,
    Outdated,
    RawMessage,
    Reading,
    ThreadQuery,
)
from postroom.model.thread import Thread, ThreadRow
from postroom.model.webhook import (
    EVERY_WEBHOOK,
    Posted,
    Webhook,
    WebhookDelivery,
    WebhookJob,
    WebhookRoom,
)
from postroom.ports.bell import Bell
from postroom.store.accounts import SqlAccounts
from postroom.store.audited import told_itself, was_found
from postroom.store.memories import SqlMemories
from postroom.store.seal import Seal
from postroom.store.search import checking as index_checking
from postroom.store.search.find import Finder
from postroom.store.search.jobs import rebuild
from postroom.store.search.merging import merge_once, purge
from postroom.store.sql import (
    adding,
    answers,
    applying,
    audit,
    blobs,
    changing,
    checking,
    drafts,
    errands,
    events,
    facts,
    finding,
    inboxes,
    keys,
    leases,
    names,
    outbox,
    outbox_claims,
    outbox_listing,
    outbox_retries,
    outbox_settling,
    plans,
    reading,
    rereading,
    rules,
    sends,
    threads,
    undoing,
    webhooks,
)
from postroom.store.transaction import Engine, Transaction

_AT_ONCE = 500
_USE_NOTED_EVERY = timedelta(minutes=1)


class ClosableEngine(Engine, Protocol):
    """An engine that also knows how it is, and rings a bell."""

    @property
    def bell(self) -> Bell: ...

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Let the database check itself."""

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number that each table has given."""

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Let each table go on after a number."""

    async def close(self) -> None: ...


class SqlStore(SqlMemories, SqlAccounts):
    """A store on any engine that speaks SQL. See `ports.store` for what each method promises."""

    _engine: ClosableEngine

    def __init__(self, engine: ClosableEngine, seal: Seal) -> None:
        super().__init__(engine, seal)
        self._finder = Finder()

    @property
    def engine(self) -> ClosableEngine:
        """The database below."""
        return self._engine

    async def add_inbox(self, inbox: Inbox, *, client_id: str | None, payload: bytes) -> Inbox:
        return await self._write(lambda tx: inboxes.add_inbox(tx, inbox, client_id, payload))

    async def inboxes(self, visible: Visible, page: Slice) -> Found[Inbox]:
        return await self._engine.read(lambda tx: inboxes.list_inboxes(tx, visible, page))

    async def inbox(self, inbox_id: str, visible: Visible) -> Inbox | None:
        return await self._engine.read(lambda tx: inboxes.get_inbox(tx, inbox_id, visible))

    async def inboxes_at(self, addresses: Iterable[str]) -> dict[str, Inbox]:
        wanted = list(addresses)
        return await self._engine.read(lambda tx: inboxes.inboxes_at(tx, wanted))

    async def rename_inbox(self, inbox_id: str, name: str, visible: Visible) -> Inbox | None:
        return await self._write(
            lambda tx: inboxes.rename_inbox(tx, inbox_id, name, visible), is_act=was_found
        )

    async def remove_inbox(
        self, inbox_id: str, visible: Visible, *, force: bool
    ) -> tuple[BlobKey, ...] | None:
        return await self._write(
            lambda tx: inboxes.remove_inbox(tx, inbox_id, visible, force=force), is_act=was_found
        )

    async def add_messages(self, messages: Sequence[NewMessage]) -> list[Added]:
        return await self._write(lambda tx: adding.add_messages(tx, messages))

    async def record_send(self, send: NewSend) -> Sent:
        return await self._write(lambda tx: sends.record_send(tx, send))

    async def refuse_second_answer(
        self, thread_id: str, answered: Collection[str], now: datetime
    ) -> None:
        await self._engine.read(
            lambda tx: answers.refuse_second_answer(tx, thread_id, answered, now)
        )

    async def is_own_mail(self, inbox_id: str, internet_message_id: str) -> bool:
        return await self._engine.read(
            lambda tx: answers.is_own_mail(tx, inbox_id, internet_message_id)
        )

    async def earlier_send(
        self,
        caller: str,
        payload: bytes,
        *,
        idempotency_key: str | None,
        allow_duplicate: bool,
        now: datetime,
    ) -> Sent | None:
        return await self._engine.read(
            lambda tx: sends.earlier_send(
                tx,
                caller,
                payload,
                idempotency_key=idempotency_key,
                allow_duplicate=allow_duplicate,
                now=now,
            )
        )

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        return await self._engine.read(lambda tx: finding.find_messages(tx, query, self._finder))

    async def message(self, message_id: str, visible: Visible) -> Message | None:
        return await self._engine.read(lambda tx: reading.get_message(tx, message_id, visible))

    async def message_by_internet_id(
        self, inbox_id: str, internet_message_id: str
    ) -> Message | None:
        return await self._engine.read(
            lambda tx: reading.message_by_internet_id(tx, inbox_id, internet_message_id)
        )

    async def newest_message(self, thread_id: str, visible: Visible) -> Message | None:
        return await self._engine.read(lambda tx: reading.newest_message(tx, thread_id, visible))

    async def change_messages(
        self, message_ids: Sequence[str], change: Change, visible: Visible
    ) -> ActionResult:
        return await self._write(
            lambda tx: changing.change_messages(tx, message_ids, change, visible)
        )

    async def remove_message(self, message_id: str, visible: Visible) -> tuple[BlobKey, ...] | None:
        return await self._write(
            lambda tx: changing.remove_message(tx, message_id, visible), is_act=was_found
        )

    async def attachments(self, query: AttachmentQuery) -> Found[Attachment]:
        return await self._engine.read(lambda tx: reading.find_attachments(tx, query))

    async def attachment(self, attachment_id: str, visible: Visible) -> Attachment | None:
        return await self._engine.read(
            lambda tx: reading.get_attachment(tx, attachment_id, visible)
        )

    async def labels(self, visible: Visible, page: Slice) -> Found[Label]:
        return await self._engine.read(lambda tx: names.list_labels(tx, visible, page))

    async def count_outdated(self, version: int) -> int:
        return await self._engine.read(lambda tx: rereading.count_outdated(tx, version))

    async def outdated(self, version: int, after: int, limit: int) -> list[Outdated]:
        return await self._engine.read(lambda tx: rereading.outdated(tx, version, after, limit))

    async def reread(self, messages: Sequence[NewMessage]) -> None:
        await self._write(lambda tx: rereading.reread(tx, messages))

    async def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        after = 0
        while True:
            work = partial(
                reading.raw_after,
                inbox_id=inbox_id,
                visible=visible,
                after=after,
                limit=_AT_ONCE,
            )
            found = await self._engine.read(work)
            for message in found:
                yield message
            if len(found) < _AT_ONCE:
                return
            after = found[-1].number

    async def threads(self, query: ThreadQuery) -> Found[ThreadRow]:
        return await self._engine.read(lambda tx: threads.find_threads(tx, query))

    async def thread(
        self, thread_id: str, visible: Visible, *, limit: int, before: str | None
    ) -> Thread | None:
        return await self._engine.read(
            lambda tx: threads.get_thread(tx, thread_id, visible, limit=limit, before=before)
        )

    async def merge_threads(self, thread_ids: Sequence[str], visible: Visible) -> str:
        return await self._write(lambda tx: threads.merge_threads(tx, thread_ids, visible))

    async def split_thread(
        self, thread_id: str, message_ids: Sequence[str], new_thread_id: str, visible: Visible
    ) -> None:
        await self._write(
            lambda tx: threads.split_thread(tx, thread_id, message_ids, new_thread_id, visible)
        )

    async def add_key(self, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
        return await self._write(
            lambda tx: keys.add_key(tx, key, secret_hash, replaces=replaces),
            is_act=bool,
            about=key.id,
        )

    async def has_key(self, key_id: str) -> bool:
        return await self._engine.read(lambda tx: keys.has_key(tx, key_id))

    async def keys(self, page: Slice) -> Found[Key]:
        return await self._engine.read(lambda tx: keys.list_keys(tx, page))

    async def key_of(self, secret_hash: bytes, now: datetime) -> Key | None:
        key = await self._engine.read(lambda tx: keys.key_of(tx, secret_hash))
        if key is not None and (
            key.last_used_at is None or now - key.last_used_at > _USE_NOTED_EVERY
        ):
            key_id = key.id
            await self._write(lambda tx: keys.mark_used(tx, key_id, now))
        return key

    async def remove_key(self, key_id: str) -> bool:
        return await self._write(lambda tx: keys.remove_key(tx, key_id), is_act=bool)

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        return await self._write(
            lambda tx: leases.claim(tx, name, holder, now=now, lasting=lasting)
        )

    async def release(self, name: str, holder: str) -> None:
        await self._write(lambda tx: leases.release(tx, name, holder))

    async def forget_leases(self, now: datetime) -> None:
        await self._write(lambda tx: leases.forget_past(tx, now))

    async def attend(self, role: str, holder: str, *, now: datetime, lasting: timedelta) -> None:
        await self._write(lambda tx: leases.attend(tx, role, holder, now=now, lasting=lasting))

    async def leave(self, role: str, holder: str) -> None:
        await self._write(lambda tx: leases.leave(tx, role, holder))

    async def is_attended(self, role: str, now: datetime) -> bool:
        return await self._engine.read(lambda tx: leases.is_attended(tx, role, now))

    async def save_draft(self, draft: StoredDraft) -> None:
        await self._write(lambda tx: drafts.save_draft(tx, draft), about=draft.id)

    async def draft(self, draft_id: str, visible: Visible) -> StoredDraft | None:
        return await self._engine.read(lambda tx: drafts.get_draft(tx, draft_id, visible))

    async def drafts(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[StoredDraft]:
        return await self._engine.read(lambda tx: drafts.list_drafts(tx, visible, inbox_id, page))

    async def remove_draft(self, draft_id: str, visible: Visible) -> bool:
        return await self._write(lambda tx: drafts.remove_draft(tx, draft_id, visible), is_act=bool)

    async def claim_mail(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        most_per_domain: int,
        relays: bool = True,
        only_relays: bool = False,
        active: Sequence[OutboxJob] = (),
    ) -> Claimed:
        return await self._write(
            lambda tx: outbox_claims.claim_mail(
                tx,
                holder,
                now=now,
                until=until,
                limit=limit,
                most_per_domain=most_per_domain,
                relays=relays,
                only_relays=only_relays,
                active=active,
            )
        )

    async def next_mail_at(
        self, *, relays: bool = True, only_relays: bool = False
    ) -> datetime | None:
        return await self._engine.read(
            lambda tx: outbox_claims.next_mail_at(tx, relays=relays, only_relays=only_relays)
        )

    async def renew_mail(self, jobs: Sequence[OutboxJob], until: datetime) -> None:
        await self._write(lambda tx: outbox_claims.renew_mail(tx, jobs, until))

    async def begin_handing_over(self, job: OutboxJob, accepted: Sequence[str]) -> bool:
        return await self._write(lambda tx: outbox_claims.begin_handing_over(tx, job, accepted))

    async def release_mail(self, job: OutboxJob, next_at: datetime | None = None) -> None:
        await self._write(lambda tx: outbox_claims.release_mail(tx, job, next_at))

    async def settle_mail(
        self,
        job: OutboxJob,
        recipients: Mapping[str, Recipient],
        *,
        now: datetime,
        next_at: datetime,
    ) -> None:
        await self._write(
            lambda tx: outbox_settling.settle_mail(tx, job, recipients, now=now, next_at=next_at)
        )

    async def deliver_scheduled(
        self,
        job: OutboxJob,
        copies: Sequence[NewMessage],
        recipients: Mapping[str, Recipient],
        now: datetime,
    ) -> bool:
        return await self._write(
            lambda tx: outbox_settling.deliver_scheduled(tx, job, copies, recipients, now)
        )

    async def outbox(self, query: OutboxQuery) -> Found[OutboxEntry]:
        return await self._engine.read(lambda tx: outbox_listing.find_outbox(tx, query))

    async def outbox_state(self) -> OutboxState:
        return await self._engine.read(outbox.outbox_state)

    async def pause_outbox(self, *, paused: bool) -> OutboxState:
        return await self._write(lambda tx: outbox.pause_outbox(tx, paused=paused))

    async def retry_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        await self._write(lambda tx: outbox_retries.retry_mail(tx, message_id, visible, now))

    async def cancel_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        await self._write(lambda tx: outbox_retries.cancel_mail(tx, message_id, visible, now))

    async def add_webhook(self, webhook: Webhook) -> None:
        await self._write(lambda tx: webhooks.add_webhook(tx, webhook), about=webhook.id)

    async def webhooks(self, visible: Visible, page: Slice) -> Found[Webhook]:
        return await self._engine.read(lambda tx: webhooks.list_webhooks(tx, visible, page))

    async def remove_webhook(self, webhook_id: str, visible: Visible) -> None:
        await self._write(lambda tx: webhooks.remove_webhook(tx, webhook_id, visible))

    async def renew_webhook(
        self, webhook_id: str, secret: str, visible: Visible, now: datetime
    ) -> Webhook:
        return await self._write(
            lambda tx: webhooks.renew_webhook(tx, webhook_id, secret, visible, now)
        )

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        room: WebhookRoom = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        return await self._write(
            lambda tx: webhooks.claim_webhooks(
                tx, holder, now=now, until=until, limit=limit, room=room
            )
        )

    async def next_webhook_at(self, room: WebhookRoom = EVERY_WEBHOOK) -> datetime | None:
        return await self._engine.read(lambda tx: webhooks.next_webhook_at(tx, room))

    async def settle_webhook(
        self, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
    ) -> None:
        await self._write(
            lambda tx: webhooks.settle_webhook(tx, job, posted, now=now, next_at=next_at)
        )

    async def webhook_deliveries(
        self, webhook_id: str, visible: Visible, page: Slice
    ) -> Found[WebhookDelivery]:
        return await self._engine.read(
            lambda tx: webhooks.list_deliveries(tx, webhook_id, visible, page)
        )

    async def redeliver(
        self, webhook_id: str, delivery_id: str, visible: Visible, now: datetime
    ) -> WebhookDelivery:
        return await self._write(
            lambda tx: webhooks.redeliver(tx, webhook_id, delivery_id, visible, now)
        )

    @property
    def bell(self) -> Bell:
        return self._engine.bell

    async def events(self, query: EventQuery) -> Found[Event]:
        return await self._engine.read(lambda tx: events.find_events(tx, query))

    async def events_after(self, after: int, *, limit: int, visible: Visible = None) -> list[Event]:
        return await self._engine.read(
            lambda tx: events.events_after(tx, after, limit=limit, visible=visible)
        )

    async def newest_event(self, visible: Visible = None) -> int:
        return await self._engine.read(lambda tx: events.newest_event(tx, visible))

    async def last_event(self, inbox_id: str, until: int) -> str | None:
        return await self._engine.read(lambda tx: events.last_event(tx, inbox_id, until))

    async def event_number(self, since: str) -> int:
        return await self._engine.read(lambda tx: events.event_number(tx, since))

    async def secret(self) -> bytes:
        row = await self._engine.read(
            lambda tx: tx.one("SELECT value FROM facts WHERE name = 'secret'")
        )
        return bytes(row[0]) if row else b""

    async def used_blobs(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        return await self._engine.read(lambda tx: blobs.used_blobs(tx, keys))

    async def every_blob(self) -> AsyncIterator[tuple[BlobKey, int]]:
        after = ""
        while True:
            work: Callable[[Transaction], list[tuple[BlobKey, int]]] = partial(
                blobs.blobs_after, after=after, limit=_AT_ONCE
            )
            found = await self._engine.read(work)
            for key, size in found:
                yield key, size
            if len(found) < _AT_ONCE:
                return
            after = found[-1][0]

    async def add_rule(self, rule: Rule) -> Rule:
        return await self._write(lambda tx: rules.add_rule(tx, rule))

    async def rules(self, visible: Visible, page: Slice) -> Found[Rule]:
        return await self._engine.read(lambda tx: rules.list_rules(tx, visible, page))

    async def every_rule(self) -> list[Rule]:
        return await self._engine.read(rules.every_rule)

    async def rule(self, rule_id: str, visible: Visible) -> Rule:
        return await self._engine.read(lambda tx: rules.get_rule(tx, rule_id, visible))

    async def change_rule(
        self,
        rule_id: str,
        visible: Visible,
        *,
        enabled: bool | None,
        position: int | None,
        now: datetime,
    ) -> Rule:
        return await self._write(
            lambda tx: rules.change_rule(
                tx, rule_id, visible, enabled=enabled, position=position, now=now
            )
        )

    async def remove_rule(self, rule_id: str, visible: Visible) -> Rule:
        return await self._write(lambda tx: rules.remove_rule(tx, rule_id, visible))

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        return await self._engine.read(lambda tx: facts.candidates(tx, queries, self._finder))

    async def facts(
        self, numbers: Sequence[int], *, with_text: bool, with_files: bool
    ) -> list[Facts]:
        return await self._engine.read(
            lambda tx: facts.read_facts(tx, numbers, with_text=with_text, with_files=with_files)
        )

    async def save_plan(self, plan: Plan, items: Sequence[PlanItem]) -> None:
        # Planning is no act: nothing of what it looks at is changed.
        await self._engine.write(lambda tx: plans.save_plan(tx, plan, items))

    async def plan(self, plan_id: str, visible: Visible) -> Plan:
        return await self._engine.read(lambda tx: plans.get_plan(tx, plan_id, visible))

    async def plan_items(
        self, plan_id: str, visible: Visible, page: Slice
    ) -> tuple[Plan, Found[PlanItem]]:
        return await self._engine.read(lambda tx: plans.plan_items(tx, plan_id, visible, page))

    async def apply_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        return await self._write(
            lambda tx: applying.apply_plan(tx, plan_id, visible, actor=actor, now=now),
            is_act=told_itself,
        )

    async def undo_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        return await self._write(
            lambda tx: undoing.undo_plan(tx, plan_id, visible, actor=actor, now=now),
            is_act=told_itself,
        )

    async def claim_errands(
        self, holder: str, *, now: datetime, until: datetime, limit: int
    ) -> list[Errand]:
        return await self._write(
            lambda tx: errands.claim_errands(tx, holder, now=now, until=until, limit=limit)
        )

    async def next_errand_at(self) -> datetime | None:
        return await self._engine.read(errands.next_errand_at)

    async def settle_errand(
        self, errand: Errand, *, now: datetime, failed: str | None, next_at: datetime | None
    ) -> None:
        await self._write(
            lambda tx: errands.settle_errand(tx, errand, now=now, failed=failed, next_at=next_at)
        )

    async def audit(self, query: AuditQuery) -> Found[AuditEntry]:
        return await self._engine.read(lambda tx: audit.find_entries(tx, query))

    async def check_audit(self) -> AuditCheck:
        examination = audit.Examination(self._seal)
        while await self._engine.read(examination.read):
            pass
        return AuditCheck(examination.number, tuple(examination.problems))

    async def problems(self) -> tuple[str, ...]:
        found = await self._engine.read(
            lambda tx: (
                *self._engine.check(tx),
                *checking.problems(tx),
            )
        )
        if of_index := await self._index_problems():
            found += (*of_index, "`postroom verify --repair` makes the search index anew")
        return found + (await self.check_audit()).problems

    async def _index_problems(self) -> tuple[str, ...]:
        found = await self._engine.read(index_checking.check_membership)
        for segment in await self._engine.read(index_checking.live_numbers):
            found += await self._engine.read(partial(index_checking.check_segment, segment=segment))
        return found

    async def readings(self, version: int, after: int, limit: int) -> list[Reading]:
        return await self._engine.read(lambda tx: checking.readings(tx, version, after, limit))

    async def tidy(self) -> bool:
        return await merge_once(self._engine)

    async def purge(self) -> None:
        await purge(self._engine)

    async def repair(self) -> int:
        if found := await self._index_problems():
            await self._engine.write(rebuild)
            while await merge_once(self._engine):
                pass
        return len(found)

    async def ping(self) -> None:
        await self._engine.write(_leave_a_mark)

    async def count_messages(self) -> int:
        """How many messages there are."""
        row = await self._engine.read(lambda tx: tx.one("SELECT count(*) FROM messages"))
        return int(row[0]) if row else 0

    async def close(self) -> None:
        await self._engine.close()


def _leave_a_mark(tx: Transaction) -> None:
    """Write something: a store that can only be read is not ready."""
    tx.run("DELETE FROM facts WHERE name = 'mark'")
    tx.run("INSERT INTO facts (name, value) VALUES ('mark', :value)", value=b"\x01")
