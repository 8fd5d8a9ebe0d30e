"""Ingest: a mail that arrived is parsed and stored.

The steps are functions, in this order:

    parse_arrivals     check the size, parse the bytes
    write_blobs        write raw bytes and attachments to the blob store
    arrived_messages   build the messages, run the rules on them
    (the store)        one transaction: messages, threads, index, events, rule jobs
    restore_blobs      write blobs again that were removed before the transaction

`receive_many` runs them for one caller, `BatchIngest` for many connections at once. A sent copy is
not an arrival: `postroom.sending.submission` makes it from a `ParsedMail` with `build_message`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any

from postroom.approval import is_blocked
from postroom.blocking import in_thread
from postroom.errors import InvalidInput, TooLarge, Unavailable
from postroom.mail.message import (
    PARSER_VERSION,
    ParsedMessage,
    ReportRecipient,
    Security,
    fingerprint,
)
from postroom.mail.senders import Auth, authenticate
from postroom.mail.text.fold import folded_fields
from postroom.mail.threads import subject_key
from postroom.mail.unsubscribe import unsubscribe_options
from postroom.model.inbox import INBOX, JUNK
from postroom.model.mail.approval import SenderLists
from postroom.model.mail.message import BlobKey, Direction
from postroom.model.mail.storage import (
    Added,
    DeliveryReport,
    NewAttachment,
    NewMessage,
    RecipientStatus,
)
from postroom.pipeline.apply_rules import run_rules
from postroom.pipeline.parse_worker import PARSE_FAILED
from postroom.pipeline.services import Services

CLOCK_SKEW = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The bytes of a received mail and the inbox it is for.

    Mail of an account or a file may be in other mailboxes too, carry labels, and have arrived
    earlier. `envelope_sender` is None if there was no envelope, and empty for the null sender.
    `adds_contact` and `submitted_by` are those of `NewMessage`.
    """

    raw: bytes
    inbox_id: str
    mailbox: str = INBOX
    direction: Direction = "inbound"
    flags: tuple[str, ...] = ()
    is_imported: bool = False
    other_mailboxes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    arrived_at: datetime | None = None
    envelope_sender: str | None = None
    adds_contact: bool = True
    submitted_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMail:
    """A mail, received or sent, and what was read from it.

    `blobs` are the keys of the raw bytes and of each attachment, once they are written.
    """

    raw: bytes
    parsed: ParsedMessage
    blobs: tuple[BlobKey, ...] = ()

    @property
    def contents(self) -> tuple[bytes, ...]:
        """What is written to the blob store: the raw bytes, then each attachment."""
        return (self.raw, *(attachment.content for attachment in self.parsed.attachments))


async def receive(services: Services, arrival: Arrival) -> Added:
    """Store one mail; it is on disk when this returns.

    Raises:
        InvalidInput: there are no bytes.
        TooLarge: it is over the limit for a message.
        NotFound: the inbox was removed.
    """
    return (await receive_many(services, [arrival]))[0]


async def receive_many(services: Services, arrivals: Sequence[Arrival]) -> list[Added]:
    """Store several mails in one transaction."""
    mails = await write_blobs(services, await parse_arrivals(services, arrivals))
    return await _store(services, arrivals, mails)


async def _store(
    services: Services, arrivals: Sequence[Arrival], mails: Sequence[ParsedMail]
) -> list[Added]:
    added = await services.store.add_messages(await arrived_messages(services, arrivals, mails))
    await restore_blobs(services, mails)
    return added


async def parse_arrivals(services: Services, arrivals: Sequence[Arrival]) -> list[ParsedMail]:
    """Check the size of each mail and parse it. Raises InvalidInput, TooLarge."""
    for arrival in arrivals:
        check_size(arrival.raw, services.limits.message_bytes)
    mails = await parse_mails(services, [arrival.raw for arrival in arrivals])
    for raw, parsed in {mail.raw: mail.parsed for mail in mails}.items():
        if any(defect.startswith(PARSE_FAILED) for defect in parsed.defects):
            services.counts.failed("parsing_failed", {"bytes": len(raw)})
    return mails


def check_size(raw: bytes, max_bytes: int) -> None:
    """Refuse a message that is empty or over the limit."""
    if not raw:
        raise InvalidInput("the message is empty; send the whole mail, headers first")
    if len(raw) > max_bytes:
        raise TooLarge(f"the message has {len(raw)} bytes; the limit is {max_bytes}")


async def parse_mails(services: Services, raws: Sequence[bytes]) -> list[ParsedMail]:
    """Parse mails; copies of one mail are parsed once."""
    distinct = list(dict.fromkeys(raws))
    parsed = dict(zip(distinct, await services.parser.parse(distinct), strict=True))
    return [ParsedMail(raw, parsed[raw]) for raw in raws]


async def write_blobs(services: Services, mails: Sequence[ParsedMail]) -> list[ParsedMail]:
    """Write raw bytes and attachments to the blob store; the mails with the keys."""
    keys = iter(await services.blobs.put([c for mail in mails for c in mail.contents]))
    return [
        ParsedMail(mail.raw, mail.parsed, tuple(islice(keys, 1 + len(mail.parsed.attachments))))
        for mail in mails
    ]


async def restore_blobs(services: Services, mails: Sequence[ParsedMail]) -> None:
    """Write blobs again that are missing after the transaction.

    Removing the last message with the same bytes, just before ours was committed, removes them.
    """
    if await services.blobs.missing([key for mail in mails for key in mail.blobs]):
        await write_blobs(services, mails)


async def arrived_messages(
    services: Services, arrivals: Sequence[Arrival], mails: Sequence[ParsedMail]
) -> list[NewMessage]:
    """The messages to store, after the rules ran on those that arrive in a mailbox."""
    now = services.clock()
    auths = await authenticate_mails(services, mails)
    lists = await services.store.sender_lists({arrival.inbox_id for arrival in arrivals})
    messages = [
        _arrived_message(services, _junk_if_blocked(arrival, mail, lists), mail, auth, now)
        for arrival, mail, auth in zip(arrivals, mails, auths, strict=True)
    ]
    return await run_rules(services, messages, [mail.parsed for mail in mails])


def _junk_if_blocked(
    arrival: Arrival, mail: ParsedMail, lists: Mapping[str, SenderLists]
) -> Arrival:
    """The arrival, in Junk if its inbox does not take mail of the sender."""
    of_inbox = lists.get(arrival.inbox_id)
    if of_inbox is None or arrival.mailbox != INBOX or arrival.is_imported:
        return arrival
    author = mail.parsed.sender.address if mail.parsed.sender else ""
    if not is_blocked(of_inbox, (author, arrival.envelope_sender or "")):
        return arrival
    return replace(arrival, mailbox=JUNK)


async def authenticate_mails(services: Services, mails: Iterable[ParsedMail]) -> list[Auth]:
    """SPF, DKIM and DMARC results of each mail; only DKIM signatures need a thread."""

    def authenticate_all() -> list[Auth]:
        return [authenticate(mail.raw, mail.parsed, services.trust) for mail in mails]

    return await in_thread(authenticate_all) if services.trust.keys else authenticate_all()


def _arrived_message(
    services: Services, arrival: Arrival, mail: ParsedMail, auth: Auth, now: datetime
) -> NewMessage:
    return build_message(
        services,
        mail,
        arrival.inbox_id,
        auth=auth,
        received_at=min(arrival.arrived_at or now, now),
        direction=arrival.direction,
        mailboxes=(arrival.mailbox, *arrival.other_mailboxes),
        labels=arrival.labels,
        flags=arrival.flags,
        is_imported=arrival.is_imported,
        adds_contact=arrival.adds_contact,
        submitted_by=arrival.submitted_by,
        report=_delivery_report(arrival, mail.parsed),
    )


def build_message(
    services: Services,
    mail: ParsedMail,
    inbox_id: str,
    *,
    auth: Auth,
    received_at: datetime,
    direction: Direction = "inbound",
    **others: Any,
) -> NewMessage:
    """A message of an inbox with the content of a mail whose blobs are written.

    *Others* are fields of the message that do not come from the mail.
    """
    parsed, (raw, *files) = mail.parsed, mail.blobs
    received_at = received_at.replace(microsecond=0)
    return NewMessage(
        id=services.new_id("msg"),
        inbox_id=inbox_id,
        direction=direction,
        subject=parsed.subject,
        addresses=parsed.addresses,
        date=effective_date(parsed.date, received_at),
        received_at=received_at,
        internet_message_id=parsed.internet_message_id,
        in_reply_to=parsed.in_reply_to,
        references=parsed.references,
        base_subject=_subject_key(parsed.subject),
        text=parsed.text,
        new_text=parsed.new_text if len(parsed.new_text) < len(parsed.text.rstrip()) else None,
        snippet=parsed.snippet,
        searchable=searchable(parsed),
        size_bytes=parsed.size_bytes,
        raw=raw,
        fingerprint=fingerprint(parsed),
        parser_version=PARSER_VERSION,
        attachments=tuple(
            NewAttachment(
                id=services.new_id("att"),
                filename=attachment.filename,
                content_type=attachment.content_type,
                size=len(attachment.content),
                is_inline=attachment.inline,
                sha256=key,
            )
            for attachment, key in zip(parsed.attachments, files, strict=True)
        ),
        defects=parsed.defects,
        auth={name: getattr(auth, name) for name in _AUTH_RESULTS},
        security=_findings(parsed.security),
        list_unsubscribe=unsubscribe_options(parsed).public_form
        if parsed.list_unsubscribe
        else None,
        **others,
    )


_subject_key = lru_cache(4096)(subject_key)
"""`subject_key`, for the replies of a thread."""

_AUTH_RESULTS = tuple(result.name for result in fields(Auth))
_NO_FINDINGS = Security()


def _findings(security: Security) -> dict[str, object]:
    """The findings about a mail; an ordinary one has none."""
    if security == _NO_FINDINGS:
        return {}
    return {name: value for name, value in asdict(security).items() if value}


def effective_date(stated: datetime | None, received_at: datetime) -> datetime:
    """The Date header, or the arrival if there is none or it is more than a day later."""
    if stated is None or stated > received_at + CLOCK_SKEW:
        return received_at
    return stated.replace(microsecond=0)


def searchable(parsed: ParsedMessage) -> str:
    """Fold each field that a search reads; a match lies within one of them."""
    sender = parsed.sender
    texts = [parsed.subject, parsed.text]
    if sender is not None:
        texts += [sender.address, sender.name]
    texts += [a.filename for a in parsed.attachments]
    return folded_fields(texts)


_REPORTED_STATUS = {"failed": "bounced", "delivered": "delivered"}


def _delivery_report(arrival: Arrival, parsed: ParsedMessage) -> DeliveryReport | None:
    """The outcomes that a delivery report states; a delay is not an outcome.

    A report has an empty envelope sender (RFC 3464 §2); one that has a sender could be forged.
    """
    report = parsed.report
    if report is None or report.kind != "delivery" or report.original_message_id is None:
        return None
    if _envelope_sender(arrival, parsed):
        return None
    reported = tuple(
        _recipient_status(r) for r in report.recipients if r.action in _REPORTED_STATUS
    )
    return DeliveryReport(report.original_message_id, reported) if reported else None


def _envelope_sender(arrival: Arrival, parsed: ParsedMessage) -> str:
    """The envelope sender, or what Return-Path says; empty if neither names one."""
    if arrival.envelope_sender is not None:
        return arrival.envelope_sender
    path = next((value for name, value in parsed.headers if name.lower() == "return-path"), "")
    return path.strip().strip("<>")


def _recipient_status(recipient: ReportRecipient) -> RecipientStatus:
    addresses = tuple(filter(None, (recipient.original, recipient.address)))
    if recipient.action == "delivered":
        return RecipientStatus(addresses, "delivered")
    detail = " ".join((recipient.diagnostic or recipient.reason).split())[:500]
    return RecipientStatus(addresses, _REPORTED_STATUS[recipient.action], detail)


_BATCH_MAILS = 64
_BATCH_BYTES = 64 * 2**20

IngestResult = Added | Exception
"""What became of one mail: it is stored, or the error that prevented it."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A mail whose blobs are written, and the future that its connection waits for."""

    arrival: Arrival
    mail: ParsedMail
    done: asyncio.Future[IngestResult]

    def finish(self, result: IngestResult) -> None:
        if not self.done.done():
            self.done.set_result(result)


@dataclass(eq=False)
class BatchIngest:
    """Stores the mail of several connections in shared transactions.

    Each mail is parsed and its blobs are written on their own, so that a large mail delays no
    other. One transaction runs at a time; mail that arrives meanwhile is the next batch.
    """

    services: Services
    _pending: list[_Pending] = field(default_factory=list)
    _storing: asyncio.Task[None] | None = None

    async def receive(self, arrivals: Sequence[Arrival]) -> list[IngestResult]:
        """Store copies of one mail and return the result of each; what is stored is on disk.

        Raises InvalidInput, TooLarge, and StorageFull when its blobs cannot be written.
        """
        mails = await parse_arrivals(self.services, arrivals)
        mails = await write_blobs(self.services, mails)
        new_future = asyncio.get_running_loop().create_future
        added = [_Pending(*pair, new_future()) for pair in zip(arrivals, mails, strict=True)]
        self._pending += added
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        return [await pending.done for pending in added]

    async def _store_all(self) -> None:
        while self._pending:
            await self._store(self._next_batch())
        self._storing = None

    def _next_batch(self) -> list[_Pending]:
        batch: list[_Pending] = []
        size = 0
        while self._pending and len(batch) < _BATCH_MAILS and size < _BATCH_BYTES:
            batch.append(self._pending.pop(0))
            size += len(batch[-1].mail.raw)
        return batch

    async def _store(self, batch: list[_Pending]) -> None:
        """Store a batch; if that fails, each mail on its own, so that one does not fail others."""
        try:
            arrivals, mails = [p.arrival for p in batch], [p.mail for p in batch]
            results = await _store(self.services, arrivals, mails)
        except Exception as error:  # noqa: BLE001 - the connection that waits raises it
            for pending in batch:
                if len(batch) == 1 or isinstance(error, Unavailable):
                    pending.finish(error)
                else:
                    await self._store([pending])
            return
        for pending, added in zip(batch, results, strict=True):
            pending.finish(added)
