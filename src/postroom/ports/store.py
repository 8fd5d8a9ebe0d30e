"""The door to everything we remember. One suite of tests holds every store to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from postroom.model.account import Account, AccountState, Identity
from postroom.model.attachment import Attachment, BlobKey
from postroom.model.audit import AuditCheck, AuditEntry, AuditQuery, Deed
from postroom.model.draft import StoredDraft
from postroom.model.event import Event, EventQuery
from postroom.model.facts import Facts
from postroom.model.inbox import Inbox, Label, Visible
from postroom.model.key import Key
from postroom.model.message import ActionResult, Message, MessageRow, Recipient
from postroom.model.outbox import Claimed, OutboxEntry, OutboxJob, OutboxQuery, OutboxState
from postroom.model.page import Found, Slice
from postroom.model.remote import (
    Checkpoint,
    Push,
    Pushed,
    Refusal,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
)
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
from postroom.ports.memories import RecallsMemories, StoresMemories


class StoresInboxes(Protocol):
    """Addresses whose mail we keep."""

    async def add_inbox(self, inbox: Inbox, *, client_id: str | None, payload: bytes) -> Inbox:
        """Keep a new inbox, or return the one that the same client id and payload made before.

        Raises:
            Conflict: the address is taken, or the client id was used with another payload.
        """

    async def inboxes(self, visible: Visible, page: Slice) -> Found[Inbox]: ...
    async def inbox(self, inbox_id: str, visible: Visible) -> Inbox | None: ...
    async def inboxes_at(self, addresses: Iterable[str]) -> dict[str, Inbox]:
        """Find the inboxes that receive for these addresses, compared without case."""

    async def rename_inbox(self, inbox_id: str, name: str, visible: Visible) -> Inbox | None: ...
    async def remove_inbox(
        self, inbox_id: str, visible: Visible, *, force: bool
    ) -> tuple[BlobKey, ...] | None:
        """Remove an inbox with its mail and return the blobs that nothing uses any more.

        Raises:
            Conflict: there is mail in it and *force* was not given.
        """


class StoresMessages(Protocol):
    """Mail, and what is found in it."""

    async def add_messages(self, messages: Sequence[NewMessage]) -> list[Added]:
        """Keep messages, each in its thread; what is a duplicate is only recognised.

        Raises:
            NotFound: an inbox is gone.
        """

    async def record_send(self, send: NewSend) -> Sent:
        """Keep a sent message and its local deliveries in one transaction, exactly once.

        Raises:
            Conflict: the idempotency key was used for another payload, or it is an automatic
                answer to someone who got one in the thread within a day.
            RateLimited: the caller has sent its share of this hour.
        """

    async def refuse_second_answer(
        self, thread_id: str, answered: Collection[str], now: datetime
    ) -> None:
        """Raises Conflict when one of these got an automatic answer there within a day."""

    async def is_own_mail(self, inbox_id: str, internet_message_id: str) -> bool:
        """Whether an inbox has sent the mail with this Message-ID."""

    async def earlier_send(
        self,
        caller: str,
        payload: bytes,
        *,
        idempotency_key: str | None,
        allow_duplicate: bool,
        now: datetime,
    ) -> Sent | None:
        """The answer that the same send got before, if it did. Raises Conflict."""

    async def messages(self, query: MessageQuery) -> Found[MessageRow]:
        """Raises NotFound when the inbox or the thread that is named does not exist."""

    async def message(self, message_id: str, visible: Visible) -> Message | None: ...
    async def message_by_internet_id(
        self, inbox_id: str, internet_message_id: str
    ) -> Message | None: ...
    async def newest_message(self, thread_id: str, visible: Visible) -> Message | None:
        """The newest inbound message of a thread; if there is none, the newest."""

    async def change_messages(
        self, message_ids: Sequence[str], change: Change, visible: Visible
    ) -> ActionResult: ...
    async def remove_message(self, message_id: str, visible: Visible) -> tuple[BlobKey, ...] | None:
        """Remove a message for good and return the blobs that nothing uses any more."""

    async def attachments(self, query: AttachmentQuery) -> Found[Attachment]:
        """Raises NotFound when the message, thread or inbox that is named does not exist."""

    async def attachment(self, attachment_id: str, visible: Visible) -> Attachment | None: ...
    async def labels(self, visible: Visible, page: Slice) -> Found[Label]: ...
    async def count_outdated(self, version: int) -> int:
        """How many messages a parser before this version has read."""

    async def outdated(self, version: int, after: int, limit: int) -> list[Outdated]:
        """The next of them after a number, in order of arrival."""

    async def reread(self, messages: Sequence[NewMessage]) -> None:
        """Write what the parser reads now under the ids that the messages have."""

    def raw_messages(self, inbox_id: str, visible: Visible) -> AsyncIterator[RawMessage]:
        """Every message of an inbox in order of arrival, Trash and Junk included."""


class StoresThreads(Protocol):
    """Conversations."""

    async def threads(self, query: ThreadQuery) -> Found[ThreadRow]: ...
    async def thread(
        self, thread_id: str, visible: Visible, *, limit: int, before: str | None
    ) -> Thread | None:
        """Return a thread with its newest messages; *before* is the id of one of its messages."""

    async def merge_threads(self, thread_ids: Sequence[str], visible: Visible) -> str:
        """Put all messages into the first thread.

        Raises:
            NotFound: one of them does not exist.
            InvalidInput: they are not of one inbox.
        """

    async def split_thread(
        self, thread_id: str, message_ids: Sequence[str], new_thread_id: str, visible: Visible
    ) -> None:
        """Move these messages of a thread into a new one.

        Raises:
            NotFound: the thread does not exist, or one of the messages is not in it.
            InvalidInput: nothing would be left behind.
        """


class StoresKeys(Protocol):
    """Callers."""

    async def add_key(self, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
        """Keep a key; one with the same id is replaced, or stays. Tell whether it is kept."""

    async def has_key(self, key_id: str) -> bool: ...
    async def keys(self, page: Slice) -> Found[Key]: ...
    async def key_of(self, secret_hash: bytes, now: datetime) -> Key | None:
        """Find the key with this hash; its `last_used_at` follows within a minute."""

    async def remove_key(self, key_id: str) -> bool: ...


class GrantsLeases(Protocol):
    """Who does the work that happens by itself, when several processes could."""

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        """Take or renew a lease; False while somebody else has it."""

    async def release(self, name: str, holder: str) -> None:
        """Give a lease back before it ends."""

    async def forget_leases(self, now: datetime) -> None:
        """Forget those that have run out; they are nobody's anyway."""

    async def attend(self, role: str, holder: str, *, now: datetime, lasting: timedelta) -> None:
        """Be counted among those who do a work, which many may, until *lasting* is over."""

    async def leave(self, role: str, holder: str) -> None: ...
    async def is_attended(self, role: str, now: datetime) -> bool:
        """Whether anybody does a work now."""


class KeepsAccounts(Protocol):
    """Logins at providers, what is where over there, and what they have yet to be told."""

    async def add_account(self, account: Account, name: str) -> None:
        """Keep an account together with its inbox. Raises Conflict."""

    async def accounts(self, visible: Visible, page: Slice) -> Found[Account]: ...
    async def account(self, account_id: str, visible: Visible) -> Account | None: ...
    async def inboxes_of_accounts(self, account_ids: Collection[str]) -> frozenset[str]: ...
    async def change_account(self, account_id: str, options: dict[str, Any]) -> None:
        """Let an account be asked anew, after another sign-in."""

    async def set_account_state(
        self,
        account_id: str,
        state: AccountState,
        detail: str = "",
        *,
        synced_at: datetime | None = None,
    ) -> None: ...
    async def set_capabilities(self, account_id: str, capabilities: dict[str, Any]) -> None: ...
    async def capabilities_of(self, account_id: str) -> dict[str, Any] | None: ...
    async def ask_for_sync(self, account_id: str, now: datetime) -> None:
        """Have an account looked at now, by whoever does that. Raises NotFound."""

    async def asked_at(self, account_id: str) -> int: ...
    async def checkpoint_of(self, account_id: str) -> Checkpoint | None: ...
    async def unknown_refs(
        self,
        account_id: str,
        refs: Sequence[RemoteRef],
        *,
        untrashed: Collection[RemoteRef] = (),
    ) -> set[RemoteRef]:
        """Places that we know nothing of, or let go to Trash and find back."""

    async def remote_scopes(self, account_id: str) -> frozenset[str]: ...
    async def remote_keys(self, account_id: str, scope: str) -> frozenset[str]: ...
    async def remote_labels(self, account_id: str) -> frozenset[str]: ...
    async def add_remote(
        self, account_id: str, arrivals: Sequence[tuple[NewMessage, RemoteMessage]]
    ) -> list[Added]:
        """Keep mail from a provider; what came by another way before is the same message."""

    async def apply_changes(self, account_id: str, changes: RemoteChanges) -> None:
        """Follow what a provider says of mail we have, and write down how far we have read."""

    async def sweep_gone(self, account_id: str, limit: int) -> tuple[int, tuple[BlobKey, ...]]:
        """Remove some messages that are nowhere at the provider; call it after a whole pass."""

    async def due_pushes(self, account_id: str, now: datetime, limit: int) -> list[Push]: ...
    async def settle_push(self, account_id: str, push: Push, pushed: Pushed) -> None: ...
    async def defer_push(self, push: Push, next_at: datetime) -> None: ...
    async def give_up_push(self, account_id: str, push: Push, refusal: Refusal) -> None: ...
    async def next_push_at(self, account_id: str) -> datetime | None: ...


class KeepsIdentities(Protocol):
    """Addresses that one may send from."""

    async def add_identity(self, identity: Identity) -> Identity:
        """Raises Conflict when the address is taken."""

    async def keep_identities(self, inbox_id: str, identities: Sequence[Identity]) -> None:
        """Add those that we do not have yet."""

    async def identities(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[Identity]: ...
    async def default_identity(self, inbox_id: str) -> Identity | None: ...
    async def identity_at(self, email: str) -> Identity | None: ...
    async def change_identity(
        self,
        identity_id: str,
        visible: Visible,
        *,
        name: str | None,
        signature: str | None,
        is_default: bool | None,
    ) -> Identity | None: ...


class KeepsDrafts(Protocol):
    """Mail that is not sent yet."""

    async def save_draft(self, draft: StoredDraft) -> None:
        """Keep a draft: a new one, or the change of one that still is at its revision.

        Raises:
            NotFound: its inbox is gone, or it was sent or thrown away.
            Conflict: it was changed since it was read.
        """

    async def draft(self, draft_id: str, visible: Visible) -> StoredDraft | None:
        """A draft; one that was sent names the message that it has become."""

    async def drafts(
        self, visible: Visible, inbox_id: str | None, page: Slice
    ) -> Found[StoredDraft]: ...
    async def remove_draft(self, draft_id: str, visible: Visible) -> bool: ...


class KeepsOutbox(Protocol):
    """Mail on its way out, handed over by one worker at a time."""

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
        """Take what is due and keep what is *active*; what nobody hands over any more is lost.

        Mail to a domain that has had its share of the hour waits for the next. Who does not relay
        gets only what needs no relay.
        """

    async def next_mail_at(
        self, *, relays: bool = True, only_relays: bool = False
    ) -> datetime | None:
        """When there is something to do next for a worker that relays, or for one that does not."""

    async def renew_mail(self, jobs: Sequence[OutboxJob], until: datetime) -> None: ...
    async def begin_handing_over(self, job: OutboxJob, accepted: Sequence[str]) -> bool:
        """Write down that the mail itself goes out now; False if the claim was lost."""

    async def release_mail(self, job: OutboxJob, next_at: datetime | None = None) -> None:
        """Give a claim back before anything was handed over, as if it had not been taken."""

    async def settle_mail(
        self,
        job: OutboxJob,
        recipients: Mapping[str, Recipient],
        *,
        now: datetime,
        next_at: datetime,
    ) -> None:
        """Write down what became of each recipient; who is still queued waits until *next_at*."""

    async def deliver_scheduled(
        self,
        job: OutboxJob,
        copies: Sequence[NewMessage],
        recipients: Mapping[str, Recipient],
        now: datetime,
    ) -> bool:
        """Let the local copies of a scheduled mail arrive, and the rest wait for the relay.

        False if the claim was lost.
        """

    async def outbox(self, query: OutboxQuery) -> Found[OutboxEntry]: ...
    async def outbox_state(self) -> OutboxState: ...
    async def pause_outbox(self, *, paused: bool) -> OutboxState: ...
    async def retry_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Queue again whoever did not get a message. Raises NotFound, Conflict."""

    async def cancel_mail(self, message_id: str, visible: Visible, now: datetime) -> None:
        """Keep a message from those who have not got it. Raises NotFound, Conflict."""


class KeepsWebhooks(Protocol):
    """Programs that want to be told, each delivery made by one worker at a time."""

    async def add_webhook(self, webhook: Webhook) -> None: ...
    async def webhooks(self, visible: Visible, page: Slice) -> Found[Webhook]: ...
    async def remove_webhook(self, webhook_id: str, visible: Visible) -> None:
        """Raises NotFound."""

    async def renew_webhook(
        self, webhook_id: str, secret: str, visible: Visible, now: datetime
    ) -> Webhook:
        """Give it a new secret; the old one is kept for a day. Raises NotFound."""

    async def claim_webhooks(
        self,
        holder: str,
        *,
        now: datetime,
        until: datetime,
        limit: int,
        room: WebhookRoom = EVERY_WEBHOOK,
    ) -> list[WebhookJob]:
        """Take what is due and there is room for; of one webhook and inbox only the oldest."""

    async def next_webhook_at(self, room: WebhookRoom = EVERY_WEBHOOK) -> datetime | None: ...
    async def settle_webhook(
        self, job: WebhookJob, posted: Posted, *, now: datetime, next_at: datetime | None
    ) -> None: ...
    async def webhook_deliveries(
        self, webhook_id: str, visible: Visible, page: Slice
    ) -> Found[WebhookDelivery]:
        """Raises NotFound."""

    async def redeliver(
        self, webhook_id: str, delivery_id: str, visible: Visible, now: datetime
    ) -> WebhookDelivery:
        """Raises NotFound, Conflict."""


class TellsOfEvents(Protocol):
    """What happened, and a bell that rings when more did."""

    @property
    def bell(self) -> Bell: ...
    async def events(self, query: EventQuery) -> Found[Event]: ...
    async def events_after(self, after: int, *, limit: int, visible: Visible = None) -> list[Event]:
        """The next events of some inboxes after the one with this number."""

    async def newest_event(self, visible: Visible = None) -> int:
        """The number of the last event of some inboxes; 0 if there is none."""

    async def last_event(self, inbox_id: str, until: int) -> str | None:
        """The id of the last event of an inbox up to a number."""

    async def event_number(self, since: str) -> int:
        """The number of an event, or of the first event of a message. Raises NotFound."""


class KnowsItsState(Protocol):
    """What verify, doctor and the blob sweep ask."""

    async def secret(self) -> bytes:
        """A random secret of this store, the same for every process that opens it."""

    async def used_blobs(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        """Return those of the keys that some message or attachment needs."""

    def every_blob(self) -> AsyncIterator[tuple[BlobKey, int]]:
        """Every blob that must exist, with its size."""

    async def problems(self) -> tuple[str, ...]:
        """Check that all rows and the search index agree; a sentence for each thing amiss."""

    async def readings(self, version: int, after: int, limit: int) -> list[Reading]:
        """What a version of the parser made of the next messages after a number."""

    async def tidy(self) -> bool:
        """Do one piece of the work that keeps searches fast; say whether there is more.

        Any number of processes may call this at any time: one works, the others do nothing.
        """

    async def purge(self) -> None:
        """Leave no word of removed messages in the search index; by itself it takes a while."""

    async def repair(self) -> int:
        """Make the search index anew if it is wrong; say in how many things it was."""

    async def ping(self) -> None:
        """Return if reads and writes would work now; raise what stands in the way."""

    async def close(self) -> None: ...


class StoresRules(Protocol):
    """Rules, plans, what they do later, and the log of what everybody did."""

    def by(self, deed: Deed) -> Store:
        """The same store; what is written through it is put down to somebody in the audit log."""

    async def put_down(self) -> None:
        """Write down that somebody did what changed nothing here."""

    async def add_rule(self, rule: Rule) -> Rule:
        """Keep a new rule as the last one. Raises Conflict when there are too many."""

    async def rules(self, visible: Visible, page: Slice) -> Found[Rule]: ...
    async def every_rule(self) -> list[Rule]:
        """All rules, in the order in which they run."""

    async def rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def change_rule(
        self,
        rule_id: str,
        visible: Visible,
        *,
        enabled: bool | None,
        position: int | None,
        now: datetime,
    ) -> Rule:
        """Raises NotFound."""

    async def remove_rule(self, rule_id: str, visible: Visible) -> Rule:
        """Raises NotFound."""

    async def candidates(self, queries: Sequence[MessageQuery]) -> list[int]:
        """The numbers of all messages that answer one of the questions, latest first."""

    async def facts(
        self, numbers: Sequence[int], *, with_text: bool, with_files: bool
    ) -> list[Facts]:
        """What rules see of some messages; of those that are gone, nothing."""

    async def save_plan(self, plan: Plan, items: Sequence[PlanItem]) -> None: ...
    async def plan(self, plan_id: str, visible: Visible) -> Plan:
        """Raises NotFound."""

    async def plan_items(
        self, plan_id: str, visible: Visible, page: Slice
    ) -> tuple[Plan, Found[PlanItem]]:
        """Raises NotFound."""

    async def apply_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        """Do exactly what a plan says, or nothing. Raises NotFound, Conflict."""

    async def undo_plan(
        self, plan_id: str, visible: Visible, *, actor: str, now: datetime
    ) -> ActionResult:
        """Put back what is still as the plan left it. Raises NotFound, Conflict."""

    async def claim_errands(
        self, holder: str, *, now: datetime, until: datetime, limit: int
    ) -> list[Errand]: ...
    async def next_errand_at(self) -> datetime | None: ...
    async def settle_errand(
        self, errand: Errand, *, now: datetime, failed: str | None, next_at: datetime | None
    ) -> None:
        """Write down that it is done, is to be tried again, or has failed for good."""

    async def audit(self, query: AuditQuery) -> Found[AuditEntry]: ...
    async def check_audit(self) -> AuditCheck:
        """Read the whole log and tell what does not fit."""


class Store(
    StoresInboxes,
    StoresMessages,
    StoresThreads,
    StoresKeys,
    StoresMemories,
    RecallsMemories,
    GrantsLeases,
    KeepsAccounts,
    KeepsIdentities,
    KeepsDrafts,
    KeepsOutbox,
    KeepsWebhooks,
    TellsOfEvents,
    StoresRules,
    KnowsItsState,
    Protocol,
):
    """All of it."""
