"""Sync of IMAP accounts: the port `Provider`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.errors import Conflict, NotFound, ProviderError, untrusted
from postroom.model.account import (
    Capabilities,
    Checkpoint,
    Push,
    Pushed,
    RateLimits,
    RemoteIdentity,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.model.inbox import INBOX, SENT
from postroom.ports.provider import StoredRefs
from postroom.providers.imap.changes import ImapReader, Parts, ref_of
from postroom.providers.imap.client import Client
from postroom.providers.imap.errors import Refused, imap_errors
from postroom.providers.imap.mailboxes import (
    ImapMailboxes,
    RemoteMailbox,
    scope_of,
)
from postroom.providers.imap.pool import IdleListener
from postroom.providers.imap.responses import Row
from postroom.providers.imap.syntax import mailbox_name, name_encodings, quoted
from postroom.providers.server_text import SYSTEM, keyword_of, longer_keywords_of
from postroom.providers.web_sender import with_bcc

POLL_S = 30.0
ATTACHMENT_MB = 25
"""The limit if the server does not announce one; most servers accept this."""

_EXISTS = re.compile(r"\b(?:already|exists)\b", re.IGNORECASE)
"""In a refusal to create a mailbox that is there; `nonexistent` says something else."""

_RATES = RateLimits(requests_per_second=50, burst=100)


@dataclass(eq=False)
class ImapProvider:
    """One account over IMAP: a connection for commands, and another for IDLE."""

    account: ImapAccount
    address: str
    can_send: bool
    message_bytes: int
    attachment_mb: int = ATTACHMENT_MB
    mail_bytes: int | None = None
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)

    def __post_init__(self) -> None:
        self._mailboxes = ImapMailboxes(self.account, self.timeouts)
        self._listener = IdleListener(self.account, self.timeouts)
        self._reader = ImapReader(self._mailboxes, self._listener)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            provider="imap",
            has_threading=True,
            has_server_side_rules=False,
            max_attachment_size_mb=self.attachment_mb,
            rate_limits=_RATES,
            has_labels=self._reader.takes_keywords,
            has_push=self._mailboxes.has_idle,
            can_send=self.can_send,
            can_create_alias=False,
            mail_bytes=self.mail_bytes,
        )

    async def check(self) -> None:
        with imap_errors(self.account):
            await self._mailboxes.load()
            inbox = await self._mailboxes.open(self._mailboxes.get(INBOX), writing=True)
            self._reader.takes_keywords = inbox.takes_keywords

    async def identities(self) -> list[RemoteIdentity]:
        return [RemoteIdentity(self.address)]

    async def close(self) -> None:
        await self._mailboxes.close()
        await self._listener.close()

    def changes(self, since: Checkpoint | None, known: StoredRefs) -> Parts:
        return self._reader.changes(since, known)

    async def read_states(self, refs: Sequence[RemoteRef]) -> tuple[RemoteMessage, ...]:
        found: list[RemoteMessage] = []
        for ref in refs:
            with imap_errors(self.account), suppress(NotFound, Conflict):
                found += await self._reader.read_states(ref)
        return tuple(found)

    # Content of messages.

    async def fetch(self, refs: Sequence[RemoteRef]) -> AsyncIterator[tuple[RemoteRef, bytes]]:
        by_scope: dict[str, list[int]] = {}
        for ref in refs:
            by_scope.setdefault(ref.scope, []).append(int(ref.key))
        for scope, uids in by_scope.items():
            found: list[Row] = []
            with imap_errors(self.account):
                client = await self._mailboxes.select(scope)
                items = b"UID RFC822.SIZE BODY.PEEK[]"
                await client.fetch(uids, items, found.append, literal_bytes=self.message_bytes)
            requested = set(uids)
            for row in found:
                # QUIRK: some servers send NIL or nothing for a message that they cannot read now.
                raw = row.data(b"BODY[]")
                if row.uid in requested and (raw or row.items.get(b"RFC822.SIZE") == 0):
                    yield ref_of(scope, row.uid), raw

    # Changes made here.

    async def push(self, push: Push) -> Pushed:
        left: list[RemoteRef] = []
        entered: list[tuple[RemoteRef, tuple[str, ...]]] = []
        with imap_errors(self.account):
            to = push.move_to
            # The target of a move may have a copy already.
            there = [ref for ref, mailboxes in push.refs if to and _is_in(to, mailboxes)]
            has_copy = bool(await self.read_states(there))
            for ref, mailboxes in push.refs:
                client = await self._mailboxes.select(ref.scope, writing=True)
                uid = int(ref.key)
                if push.kind == "delete":
                    await self._expunge(client, uid)
                    left.append(ref)
                    continue
                await self._flag(client, uid, push)
                if to and not _is_in(to, mailboxes):
                    left.append(ref)
                    if has_copy:
                        await self._expunge(client, uid)
                    else:
                        place = await self._move(client, uid, to)
                        entered += [place] if place else []
                        has_copy = True
        return Pushed(tuple(left), tuple(entered))

    async def _flag(self, client: Client, uid: int, push: Push) -> None:
        self._reader.labels.add(push.add_labels)
        for sign, flags, labels in (
            ("+", push.add_flags, push.add_labels),
            ("-", push.remove_flags, push.remove_labels),
        ):
            keywords = labels if self._reader.takes_keywords else ()
            changed = [SYSTEM[flag] for flag in flags] + [keyword_of(label) for label in keywords]
            if changed:
                await client.store(uid, sign, changed)
        for label in push.remove_labels if self._reader.takes_keywords else ():
            for keyword in longer_keywords_of(label):
                with suppress(Refused):
                    await client.store(uid, "-", [keyword])

    async def _move(
        self, client: Client, uid: int, name: str
    ) -> tuple[RemoteRef, tuple[str, ...]] | None:
        mailbox = await self._ensure_mailbox(client, name)
        place = await client.copy(uid, mailbox.wire, removes=client.can("MOVE"))
        if not client.can("MOVE"):
            await self._expunge(client, uid)
        if place is None:
            return None
        return ref_of(scope_of(mailbox, place[0]), place[1]), (mailbox.name,)

    async def _ensure_mailbox(self, client: Client, name: str) -> RemoteMailbox:
        with suppress(NotFound):
            return self._mailboxes.get(name)
        delimiter = self._mailboxes.all[0].delimiter if self._mailboxes.all else "/"
        if delimiter != "/" and delimiter in name:
            message = f"a mailbox name on this server cannot contain {delimiter}: {name}"
            raise untrusted(Conflict(message))
        wire = name_encodings(name.replace("/", delimiter), is_utf8=client.has_utf8_names)[0]
        try:
            await self._create(client, wire)
        except Refused as refusal:
            # QUIRK: on some servers all mailboxes are inside of INBOX (RFC 2342).
            wire = b"INBOX" + delimiter.encode() + wire
            try:
                await self._create(client, wire)
            except Refused:
                raise refusal from None
        mailbox = RemoteMailbox(wire, name, delimiter)
        self._mailboxes.all.append(mailbox)
        return mailbox

    async def _create(self, client: Client, wire: bytes) -> None:
        """Create a mailbox, unless it exists."""
        try:
            await client.connection.run("CREATE", mailbox_name(wire), literals=client.literals)
        except Refused as refusal:
            exists = refusal.code == "ALREADYEXISTS" or _EXISTS.search(refusal.text)
            if not exists:
                raise

    async def _expunge(self, client: Client, uid: int) -> None:
        """Expunge one message; without UIDPLUS it stays, flagged as deleted."""
        await client.store(uid, "+", [r"\Deleted"])
        if client.can("UIDPLUS"):
            await client.expunge(uid)

    async def save_sent(self, push: Push, raw: bytes) -> Pushed:
        with imap_errors(self.account):
            mailbox = await self._ensure_mailbox(await self._mailboxes.client(), SENT)
            status = await self._mailboxes.open(mailbox, writing=True)
            client = await self._mailboxes.client()
            scope = scope_of(mailbox, status.uidvalidity)
            message_id = (push.internet_message_id or "none").encode("ascii", "ignore")
            found = await client.search([b"HEADER", b"MESSAGE-ID", quoted(message_id)])
            uid = next(iter(found.newest(1)), None)
            if uid is None:
                copy = await in_thread(with_bcc, raw, push.recipients)
                place = await client.append(mailbox.wire, copy, [r"\Seen"], None)
                if place is None:
                    return Pushed()
                scope, uid = scope_of(mailbox, place[0]), place[1]
        return Pushed(added_refs=((ref_of(scope, uid), (mailbox.name,)),))

    # Notifications.

    async def wait(self) -> None:
        """Return when Inbox changed, or after a while.

        A lost connection is renewed, at most once per POLL_S.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        with suppress(ProviderError), imap_errors(self.account):
            await self._listener.wait_for_change(self._reader.has_changed)
            if self._listener.has_idle:
                return
        await asyncio.sleep(max(0.0, POLL_S - (clock() - began)))


def _is_in(name: str, mailboxes: Sequence[str]) -> bool:
    return name.casefold() in map(str.casefold, mailboxes)
