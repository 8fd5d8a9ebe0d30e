"""Inboxes: create, find, rename, remove; their policies, and the lists of senders among them."""

from __future__ import annotations

from collections.abc import Collection

from postroom.errors import Conflict
from postroom.model.inbox import OWNERS_RIGHTS, STANDARD_MAILBOXES, AddressRights, Inbox, Visible
from postroom.model.mail.approval import InboxPolicy, SenderLists
from postroom.model.mail.message import BlobKey
from postroom.model.page import Found, Slice
from postroom.store.ranking.index import unindex_mail
from postroom.store.search.index import unindex_inbox
from postroom.store.sql.accounts.identities import add_own_identity, address_exists, refuse_claim
from postroom.store.sql.credentials import recipient_lists
from postroom.store.sql.events import remove_events
from postroom.store.sql.memories.memories import remove_without_mail
from postroom.store.sql.memories.memory_links import memories_from_mail
from postroom.store.sql.messages.message_changes import retain_send_outcomes
from postroom.store.sql.rule_plans import remove_inbox_from_plans
from postroom.store.sql.statements import (
    OF_MESSAGES,
    Conditions,
    Listing,
    all_among,
    caseless,
    dumps,
    from_text,
    inbox_number,
    insert,
    insert_numbered,
    moment,
    remove_inbox_references,
    seconds,
    unused_of,
    update,
)
from postroom.store.transaction import Row, Transaction

_COLUMNS = "id, address, name, account_id, created_at"
_LISTING = Listing(_COLUMNS, "inboxes", "number")


def _inbox(row: Row) -> Inbox:
    return Inbox(row[0], row[1], row[2], row[3], moment(row[4]))


def add_inbox(
    tx: Transaction,
    inbox: Inbox,
    client_id: str | None,
    payload: bytes,
    rights: AddressRights = OWNERS_RIGHTS,
) -> Inbox:
    """Insert an inbox, or return the one that the same client id and payload have created.

    Raises:
        Conflict: the address is taken, or the client id was used with another payload.
        Forbidden: these rights do not include the address.
    """
    if client_id is not None:
        made = tx.one(
            f"SELECT {_COLUMNS}, request_hash FROM inboxes WHERE client_id = :client_id",
            client_id=client_id,
        )
        if made is not None and made[-1] == payload:
            return _inbox(made)
        if made is not None:
            raise Conflict(
                f"client_id {client_id} was used with other arguments; choose another client_id"
            )
    refuse_claim(tx, inbox.address.lower(), None, rights)
    if address_exists(tx, inbox.address):
        raise Conflict(f"the address {inbox.address} is taken; choose another")
    number = insert_numbered(
        tx,
        "inboxes",
        id=inbox.id,
        address=inbox.address,
        name=inbox.name,
        account_id=inbox.account_id,
        client_id=client_id,
        request_hash=payload,
        created_at=seconds(inbox.created_at),
    )
    for name in STANDARD_MAILBOXES:
        insert(tx, "mailboxes", inbox=number, name=name, folded=caseless(name))
    add_own_identity(tx, inbox, number)
    return inbox


def list_inboxes(tx: Transaction, visible: Visible, page: Slice) -> Found[Inbox]:
    """One page of inboxes, oldest first."""
    where = Conditions()
    where.within("id", visible)
    return _LISTING.page(tx, where, page, _inbox)


def get_inbox(tx: Transaction, inbox_id: str, visible: Visible) -> Inbox | None:
    """The inbox, if the caller can see it."""
    if not visible.sees(inbox_id):
        return None
    row = tx.one(f"SELECT {_COLUMNS} FROM inboxes WHERE id = :id", id=inbox_id)
    return _inbox(row) if row else None


def inboxes_at(tx: Transaction, addresses: Collection[str]) -> dict[str, Inbox]:
    """The inboxes that receive mail for these addresses, by lower-case address."""
    sql = """SELECT i.id, i.address, i.name, i.account_id, i.created_at, d.email
               FROM identities d JOIN inboxes i ON i.number = d.inbox WHERE d.email {among}"""
    lowered = [address.lower() for address in addresses]
    return {row[5]: _inbox(row) for row in all_among(tx, sql, lowered)}


def rename_inbox(tx: Transaction, inbox_id: str, name: str, visible: Visible) -> Inbox | None:
    if visible.sees(inbox_id):
        update(tx, "inboxes", {"id": inbox_id}, name=name)
    return get_inbox(tx, inbox_id, visible)


def inbox_policy(tx: Transaction, inbox: int) -> InboxPolicy:
    """The policy of an inbox, for every sender."""
    sql = "SELECT approval, recipients, senders FROM inbox_policies WHERE inbox = :inbox"
    row = tx.one(sql, inbox=inbox)
    if row is None:
        return InboxPolicy()
    return InboxPolicy(row[0], recipient_lists(row[1]), _sender_lists(row[2]))


def _sender_lists(text: str) -> SenderLists:
    stored = from_text(text)
    lists = {name: tuple(stored[name]) for name in ("allow", "block") if name in stored}
    return SenderLists(**{**stored, **lists})


def policy_of_inbox(tx: Transaction, inbox_id: str) -> InboxPolicy:
    """The policy of an inbox by its id."""
    return inbox_policy(tx, inbox_number(tx, inbox_id))


def sender_lists(tx: Transaction, inbox_ids: Collection[str]) -> dict[str, SenderLists]:
    """The lists of senders of those inboxes that have some, by the id of the inbox."""
    sql = """SELECT i.id, p.senders FROM inboxes i JOIN inbox_policies p ON p.inbox = i.number
              WHERE i.id {among} AND p.senders <> '{{}}'"""
    return {row[0]: _sender_lists(row[1]) for row in all_among(tx, sql, inbox_ids)}


def set_inbox_policy(tx: Transaction, inbox_id: str, policy: InboxPolicy) -> None:
    """Replace the policy of an inbox."""
    has_lists = policy.senders.allow or policy.senders.block
    tx.run(
        """INSERT INTO inbox_policies (inbox, approval, recipients, senders)
           VALUES (:inbox, :approval, :recipients, :senders)
           ON CONFLICT (inbox) DO UPDATE SET approval = excluded.approval,
                  recipients = excluded.recipients, senders = excluded.senders""",
        inbox=inbox_number(tx, inbox_id),
        approval=policy.approval,
        recipients=dumps(policy.recipients),
        senders=dumps(policy.senders) if has_lists else "{}",
    )


_OF_INBOX = (
    "messages",
    "threads",
    "thread_ids",
    "labels",
    "mailboxes",
    "contacts",
    "contact_skeletons",
    "inbox_policies",
    "drafts",
    "webhook_deliveries",
    "identities",
    "rule_jobs",
    "automatic_replies",
    "daily_mail",
)
"""The tables of rows that belong to an inbox."""


def remove_inbox(
    tx: Transaction, inbox_id: str, visible: Visible, *, force: bool
) -> tuple[BlobKey, ...] | None:
    """Remove an inbox and everything in it; return the blobs that nothing uses any more.

    Raises:
        Conflict: it has mail, and *force* is false.
    """
    inbox = get_inbox(tx, inbox_id, visible)
    if inbox is None:
        return None
    number = inbox_number(tx, inbox_id)
    if not force and tx.one("SELECT 1 FROM messages WHERE inbox = :inbox LIMIT 1", inbox=number):
        raise Conflict(f"the inbox {inbox_id} holds mail; delete it with force=true")
    keys = tx.all(
        """SELECT raw FROM messages WHERE inbox = :inbox
           UNION SELECT sha256 FROM attachments WHERE inbox = :inbox""",
        inbox=number,
    )
    memories = memories_from_mail(tx, "inbox = :inbox", inbox=number)
    messages = tx.all("SELECT number FROM messages WHERE inbox = :inbox", inbox=number)
    retain_send_outcomes(tx, number)
    # by message number: these tables have no index on the inbox in SQLite
    for table in OF_MESSAGES:
        tx.run(
            f"DELETE FROM {table} WHERE +inbox = :inbox AND message IN "
            "(SELECT number FROM messages WHERE inbox = :inbox)",
            inbox=number,
        )
    tx.run(
        "DELETE FROM thread_aliases WHERE +inbox = :inbox AND thread IN "
        "(SELECT number FROM threads WHERE inbox = :inbox)",
        inbox=number,
    )
    remove_events(tx, "inbox = :inbox", inbox=number)
    for table in _OF_INBOX:
        tx.run(f"DELETE FROM {table} WHERE inbox = :inbox", inbox=number)
    remove_inbox_from_plans(tx, inbox_id)
    for table in ("remote_messages", "pushes"):
        tx.run(
            f"DELETE FROM {table} WHERE account IN "
            "(SELECT number FROM accounts WHERE inbox = :inbox)",
            inbox=number,
        )
    tx.run("DELETE FROM accounts WHERE inbox = :inbox", inbox=number)
    remove_inbox_references(tx, inbox.id, inbox.account_id)
    tx.run("DELETE FROM inboxes WHERE number = :inbox", inbox=number)
    unindex_inbox(tx, number)
    unindex_mail(tx, [row[0] for row in messages])
    remove_without_mail(tx, memories)
    return unused_of(tx, [row[0] for row in keys])
