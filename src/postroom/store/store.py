"""The store: each of its methods with the function that does it.

A method that only runs one function in a transaction is declared, see `methods`; what it promises
is written at the function. The others are written out.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic

from postroom.errors import MailError
from postroom.model.event import AuditCheck
from postroom.model.health import StorageSizes
from postroom.model.inbox import Label, Mailbox, Visible
from postroom.model.key import Key, WebSession
from postroom.model.mail.message import BlobKey, MessageRow
from postroom.model.mail.sending import StoredDraft
from postroom.model.mail.storage import MessageQuery, RawMessage
from postroom.model.page import Found, Slice
from postroom.model.rule import Rule
from postroom.store.audited_store import AuditHmac, is_found, never, reads, writes, writes_unaudited
from postroom.store.maintenance import lifecycle
from postroom.store.memories import MemoryStore
from postroom.store.search.index import (
    BULK_POLICY,
    DEFAULT_POLICY,
    compact,
    find_problems,
    purge,
    rebuild,
)
from postroom.store.sql import audit as sql_audit
from postroom.store.sql import credentials as sql_credentials
from postroom.store.sql import events as sql_events
from postroom.store.sql import inboxes as sql_inboxes
from postroom.store.sql import installation as sql_installation
from postroom.store.sql import rule_jobs, statements
from postroom.store.sql import rule_plans as sql_plans
from postroom.store.sql import rules as sql_rules
from postroom.store.sql.accounts import accounts as sql_accounts
from postroom.store.sql.accounts import identities as sql_identities
from postroom.store.sql.accounts import pushes, remotes
from postroom.store.sql.messages import mailboxes as sql_mailboxes
from postroom.store.sql.messages import (
    message_changes,
    message_insert,
    message_reads,
    message_reparse,
    message_search,
)
from postroom.store.sql.messages import thread_choice as sql_contacts
from postroom.store.sql.messages import threads as sql_threads
from postroom.store.sql.outbox import claims, holds, queue, sends
from postroom.store.sql.outbox import drafts as sql_drafts
from postroom.store.transaction import Engine, Notifier, Transaction
from postroom.store.webhooks import WebhookStore

_AT_ONCE = 500
_USE_NOTED_EVERY = timedelta(minutes=1)


def _id_of(value: Key | StoredDraft, *_: object, **__: object) -> str:
    return value.id


class Store(MemoryStore, WebhookStore):
    """The store, on SQLite or PostgreSQL."""

    def __init__(self, engine: Engine, audit_hmac: AuditHmac) -> None:
        super().__init__(engine, audit_hmac)
        # Shared with the copies that `by` makes.
        self._label_names = sql_mailboxes.LabelNames()
        self._rules_by_inbox = sql_rules.RulesByInbox()

    # Inboxes
    add_inbox = writes(sql_inboxes.add_inbox)
    inboxes = reads(sql_inboxes.list_inboxes)
    inbox = reads(sql_inboxes.get_inbox)
    inboxes_at = reads(sql_inboxes.inboxes_at)
    rename_inbox = writes(sql_inboxes.rename_inbox, audit_if=is_found)
    remove_inbox = writes(sql_inboxes.remove_inbox, audit_if=is_found)
    inbox_policy = reads(sql_inboxes.policy_of_inbox)
    set_inbox_policy = writes(sql_inboxes.set_inbox_policy)
    sender_lists = reads(sql_inboxes.sender_lists)

    # Messages
    add_messages = writes(message_insert.add_messages)
    message = reads(message_reads.get_message)
    messages_by_id = reads(message_reads.messages_by_id)
    message_numbers = reads(message_reads.message_numbers)
    message_row = reads(message_reads.get_message_row)
    search_texts = reads(message_reads.search_texts)
    message_by_internet_id = reads(message_reads.message_by_internet_id)
    newest_message = reads(message_reads.newest_message)
    change_messages = writes(message_changes.change_messages)
    remove_message = writes(message_changes.remove_message, audit_if=is_found)
    attachments = reads(message_reads.find_attachments)
    attachment = reads(message_reads.get_attachment)
    ids_from = reads(message_reads.ids_from)
    count_outdated = reads(message_reparse.count_outdated)
    outdated = reads(message_reparse.outdated)
    reparse_messages = writes(message_reparse.reparse_messages)

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        """One page of the matching messages. Raises NotFound."""
        return await self.engine.read(
            lambda tx: message_search.find_messages(tx, query, self._searcher)
        )

    async def mailboxes(
        self, visible: Visible, page: Slice, inbox_id: str | None = None
    ) -> Found[Mailbox]:
        """One page of mailboxes with counts. Raises NotFound."""

        def read(tx: Transaction) -> Found[Mailbox]:
            inboxes = message_search.chosen_inboxes(tx, visible, inbox_id)
            return sql_mailboxes.list_mailboxes(tx, inboxes, page, self._searcher)

        return await self.engine.read(read)

    async def labels(self, visible: Visible, page: Slice) -> Found[Label]:
        """One page of labels with counts."""
        names = self._label_names

        def read(tx: Transaction) -> Found[Label]:
            inboxes = message_search.chosen_inboxes(tx, visible, None)
            return sql_mailboxes.list_labels(tx, inboxes, page, self._searcher, names)

        return await self.engine.read(read)

    async def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        """Every message of an inbox, in order of arrival, including Trash and Junk."""
        read, after = partial(message_reads.raw_after, inbox_id=inbox_id, visible=visible), 0
        while found := await self.engine.read(partial(read, after=after, limit=_AT_ONCE)):
            for message in found:
                yield message
            after = found[-1].number

    # Threads
    threads = reads(sql_threads.find_threads)
    thread = reads(sql_threads.get_thread)
    merge_threads = writes(sql_threads.merge_threads)
    split_thread = writes(sql_threads.split_thread)

    # Sending
    record_send = writes(sends.record_send)
    earlier_send = reads(sends.earlier_send)
    refuse_second_answer = reads(sends.refuse_second_answer)
    refuse_many_replies = reads(sends.refuse_many_replies)
    forwards_since = reads(sends.forwards_since)
    replies_today = reads(sends.replies_today)
    is_own_mail = reads(sends.is_own_mail)

    # Drafts
    contacts = reads(sql_contacts.find_contacts)
    draft = reads(sql_drafts.get_draft)
    drafts = reads(sql_drafts.list_drafts)
    remove_draft = writes(sql_drafts.remove_draft, audit_if=bool)
    save_draft = writes(sql_drafts.save_draft, target=_id_of)

    # Outbox
    claim_mail = writes(claims.claim_mail)
    next_mail_at = reads(claims.next_mail_at)
    renew_mail = writes(claims.renew_mail)
    begin_transmission = writes(claims.begin_transmission)
    release_mail = writes(claims.release_mail)
    defer_mail = writes(claims.defer_mail)
    defer_unrelayed = writes(claims.defer_unrelayed)
    settle_mail = writes(claims.settle_mail)
    settle_part = writes(claims.settle_part)
    deliver_scheduled = writes(claims.deliver_scheduled)
    outbox = reads(queue.find_outbox)
    outbox_state = reads(queue.outbox_state)
    pause_outbox = writes(queue.pause_outbox)
    retry_mail = writes(sql_drafts.retry_mail)
    approve_mail = writes(holds.approve_mail)
    reject_mail = writes(holds.reject_mail)
    evaluate_mail = reads(holds.evaluate_mail)
    held_mail_facts = reads(sql_drafts.held_mail_facts)
    suspicious_among = reads(holds.suspicious_among)
    record_reads = writes_unaudited(holds.record_reads)
    cancel_mail = writes(sql_drafts.cancel_mail)

    # Events and webhooks
    events = reads(sql_events.find_events)
    events_after = reads(sql_events.events_after)
    newest_event = reads(sql_events.newest_event)
    last_event = reads(sql_events.last_event)
    last_event_before = reads(sql_events.last_event_before)
    event_number = reads(sql_events.event_number)

    @property
    def notifier(self) -> Notifier:
        return self.engine.notifier

    # Rules
    add_rule = writes(sql_rules.add_rule)
    rules = reads(sql_rules.list_rules)
    all_rules = reads(sql_rules.all_rules)

    async def rules_for(self, inbox_ids: Collection[str]) -> list[Rule]:
        """The rules that may apply to some inboxes, in the order in which they run."""
        return await self.engine.read(lambda tx: self._rules_by_inbox.rules_for(tx, inbox_ids))

    upgrade_losses = reads(sql_rules.upgrade_losses)
    rule = reads(sql_rules.get_rule)
    change_rule = writes(sql_rules.change_rule)
    replace_rule = writes(sql_rules.replace_rule)
    remove_rule = writes(sql_rules.remove_rule)
    rule_days = reads(rule_jobs.rule_days)
    rule_plans = reads(rule_jobs.list_plans)
    rule_plan = reads(rule_jobs.get_plan)
    facts = reads(sql_rules.read_facts)
    save_plan = writes_unaudited(sql_plans.save_plan)  # planning changes nothing
    plan_items = reads(sql_plans.plan_items)
    plan_actions = reads(sql_plans.plan_actions)
    apply_plan = writes(sql_plans.apply_plan, audit_if=never)
    undo_plan = writes(sql_plans.undo_plan, audit_if=never)
    claim_rule_jobs = writes(rule_jobs.claim_rule_jobs)
    next_rule_job_at = reads(rule_jobs.next_rule_job_at)
    settle_rule_job = writes(rule_jobs.settle_rule_job)

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        """The numbers of all messages that match one of the queries, newest first."""
        return await self.engine.read(lambda tx: sql_rules.candidates(tx, queries, self._searcher))

    # Accounts
    add_account = writes(sql_accounts.add_account)
    accounts = reads(sql_accounts.list_accounts)
    account = reads(sql_accounts.get_account)
    inboxes_of_accounts = reads(sql_accounts.inboxes_of)
    change_account = writes(sql_accounts.change_account)
    set_account_state = writes_unaudited(sql_accounts.set_account_state)
    set_capabilities = writes_unaudited(sql_accounts.set_capabilities)
    capabilities_of = reads(sql_accounts.capabilities_of)
    request_sync = writes(sql_accounts.request_sync)
    sync_requested_at = reads(sql_accounts.sync_requested_at)
    checkpoint_of = reads(sql_accounts.checkpoint_of)
    unfetched = reads(sql_accounts.unfetched_of)
    set_unfetched = writes_unaudited(sql_accounts.set_unfetched)
    unknown_refs = reads(remotes.unknown_refs)
    remote_scopes = reads(remotes.scopes)
    remote_labels = reads(remotes.labels)
    remote_keys = reads(remotes.keys)
    add_remote = writes_unaudited(remotes.add_remote)
    apply_changes = writes_unaudited(remotes.apply_changes)
    remove_remotely_deleted = writes_unaudited(remotes.remove_remotely_deleted)
    due_pushes = reads(pushes.due_pushes)
    settle_push = writes_unaudited(remotes.settle_push)
    defer_push = writes_unaudited(pushes.defer_push)
    abandon_push = writes_unaudited(remotes.abandon_push)
    next_push_at = reads(pushes.next_push_at)

    # Identities
    questionable_addresses = reads(sql_identities.questionable_addresses)
    add_identity = writes(sql_identities.add_identity)
    replace_identities = writes_unaudited(sql_identities.replace_identities)
    identities = reads(sql_identities.list_identities)
    default_identity = reads(sql_identities.default_identity)
    identity_at = reads(sql_identities.identity_at)
    remove_identity = writes(sql_identities.remove_identity, audit_if=bool)
    change_identity = writes(sql_identities.change_identity, audit_if=is_found)
    check_alias = reads(sql_identities.check_alias)

    # Keys
    add_key = writes(sql_credentials.add_key, audit_if=bool, target=_id_of)
    has_key = reads(sql_credentials.has_key)
    keys = reads(sql_credentials.list_keys)
    keys_by_id = reads(sql_credentials.keys_by_id)
    update_key = writes(sql_credentials.update_key, audit_if=is_found)
    remove_key = writes(sql_credentials.remove_key, audit_if=bool)

    async def key_by_hash(self, secret_hash: bytes, now: datetime) -> Key | None:
        """The key with this hash, or the grant whose access token has it; its `last_used_at` is
        updated at most once a minute, until it expires."""

        def read(tx: Transaction) -> Key | None:
            found = sql_credentials.key_by_hash(tx, secret_hash)
            return found or sql_credentials.key_by_access_token(tx, secret_hash, now)

        key = await self.engine.read(read)
        if key is None or key.has_expired(now):
            return key
        if key.last_used_at is None or now - key.last_used_at > _USE_NOTED_EVERY:
            key_id = key.id
            with suppress(MailError):  # a read must succeed even if the database cannot be written
                await self.write(lambda tx: sql_credentials.mark_key_used(tx, key_id, now))
        return key

    # OAuth
    add_grant = writes(sql_credentials.add_grant, target=_id_of)
    add_oauth_client = writes(sql_credentials.add_oauth_client)
    oauth_client = reads(sql_credentials.oauth_client)
    oauth_token = reads(sql_credentials.oauth_token)
    exchange_token = writes(sql_credentials.exchange_token, audit_if=lambda key: key is None)
    remove_token = writes(sql_credentials.remove_token, audit_if=bool)
    unfinished_grants = reads(sql_credentials.unfinished_grants)
    signed_in_grants = reads(sql_credentials.signed_in_grants)
    remove_expired_tokens = writes_unaudited(sql_credentials.remove_expired_tokens)

    # Sessions of the web pages
    add_sign_in_link = writes(sql_credentials.add_sign_in_link)
    add_web_session = writes(sql_credentials.add_web_session, audit_if=bool)
    web_sessions = reads(sql_credentials.list_web_sessions)
    remove_web_sessions = writes(sql_credentials.remove_web_sessions, audit_if=bool)

    async def web_session(self, secret_hash: bytes, now: datetime) -> WebSession | None:
        """The session with this hash; its `last_used_at` is updated at most once a minute."""
        session = await self.engine.read(
            lambda tx: sql_credentials.web_session(tx, secret_hash, now)
        )
        if session is not None and now - session.last_used_at > _USE_NOTED_EVERY:
            session_id = session.id
            with suppress(MailError):  # as for keys
                await self.engine.write(
                    lambda tx: sql_credentials.mark_session_used(tx, session_id, now)
                )
        return session

    # Leases and heartbeats
    claim = writes(sql_installation.claim)
    release = writes(sql_installation.release)
    remove_expired_leases = writes(sql_installation.remove_expired_leases)
    add_heartbeat = writes(sql_installation.add_heartbeat)
    end_heartbeat = writes(sql_installation.end_heartbeat)
    has_heartbeat = reads(sql_installation.has_heartbeat)

    # Health
    queue_lengths = reads(sql_installation.queue_lengths)
    leases = reads(sql_installation.leases)

    async def sizes(self) -> StorageSizes:
        """How large the database and the search index are, and how many messages there are."""
        return await self.engine.read(lambda tx: sql_installation.sizes(tx, self.engine))

    # Counts per day
    count_calls = writes_unaudited(sql_events.count_calls)
    mail_counts = reads(sql_events.mail_counts)
    call_counts = reads(sql_events.call_counts)
    remove_counts = writes_unaudited(sql_events.remove_counts)

    # Audit log
    audit = reads(sql_audit.find_entries)

    async def check_audit(self, limit_s: float = math.inf) -> AuditCheck:
        """Verify the chain of the whole audit log, or what can be read of it in a time."""
        check, end = lifecycle.AuditVerification(self._audit_hmac), monotonic() + limit_s
        while (is_more := await self.engine.read(check.read)) and monotonic() < end:
            pass
        return AuditCheck(check.number, tuple(check.problems), is_complete=not is_more)

    # The installation
    secret = reads(sql_installation.installation_secret)
    installation_id = reads(sql_installation.installation_id)
    replace_installation_id = writes_unaudited(sql_installation.replace_installation_id)
    count_messages = reads(message_reads.count_messages)
    used_blobs = reads(statements.used_blobs)
    stored_parses = reads(lifecycle.stored_parses)
    ping = writes_unaudited(sql_installation.ping)

    async def installation_mark(self) -> str:
        """A hash that identifies the installation without revealing the id that marks its blobs."""
        name = await self.ensure_installation_id()
        return hashlib.sha256(f"installation {name}".encode()).hexdigest()[:16]

    async def ensure_installation_id(self) -> str:
        """The id of this installation, created if there is none yet."""
        if found := await self.installation_id():
            return found
        return await self.engine.write(
            partial(sql_installation.set_installation_id, new=secrets.token_hex(16))
        )

    async def all_blobs(self) -> AsyncIterator[tuple[BlobKey, int]]:
        """Every blob that must exist, with its size in bytes."""
        after = ""
        while found := await self.engine.read(
            partial(statements.blobs_after, after=after, limit=_AT_ONCE)
        ):
            for key, size in found:
                yield key, size
            after = found[-1][0]

    async def problems(self) -> tuple[str, ...]:
        """Check rows, search index and audit log; one sentence for each problem."""
        found = await self.engine.read(lambda tx: self.engine.check(tx) + lifecycle.problems(tx))
        if of_index := await find_problems(self.engine):
            found += (*of_index, "`postroom verify --repair` rebuilds the search index")
        return found + (await self.check_audit()).problems

    async def compact_index(self, *, in_bulk: bool = False) -> bool:
        """Do one step of compacting the search index; True if there is more to do.

        Any number of processes may call this at the same time: a step is done by one of them.
        While much mail is stored *in bulk*, more of it is indexed at once.
        """
        return await compact(self.engine, BULK_POLICY if in_bulk else DEFAULT_POLICY)

    async def purge(self) -> None:
        """Remove the text of removed messages from the search index immediately."""
        await purge(self.engine)

    async def repair(self) -> int:
        """Rebuild the search index if it has problems; return how many it had."""
        if found := await find_problems(self.engine):
            await rebuild(self.engine)
        return len(found)

    def begin_shutdown(self) -> None:
        """Stop waiting for a database that does not answer; `close` follows."""
        self.engine.begin_shutdown()

    async def close(self) -> None:
        await self.engine.close()
