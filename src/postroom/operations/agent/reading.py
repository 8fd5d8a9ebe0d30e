"""Reading messages, threads and attachments, several at once; waiting for mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, TypeVar

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import attachment_of, message_of, only_inbox, operation, thread_of
from postroom.calls.request import (
    Constraint,
    OptionalId,
    OptionalInboxName,
    Request,
    argument,
    refuse_other_kind,
)
from postroom.errors import InvalidInput, MailError
from postroom.mail.html.html import html_to_text
from postroom.model.agent import (
    AgentWaitResult,
    FileLine,
    FileText,
    Mailboxes,
    MailboxLine,
    MailLine,
    NotRead,
    ReadResult,
    ThreadText,
)
from postroom.model.inbox import Mailbox
from postroom.model.key import Scope
from postroom.model.mail.message import Message
from postroom.model.mail.sending import DraftFile, Sent
from postroom.model.page import Slice
from postroom.operations.agent.finding import (
    Ids,
    find_in_thread,
    inbox_addresses,
    line_of,
    text_of,
)
from postroom.operations.agent.writing import draft_line
from postroom.operations.mail.attachments import attachment_text
from postroom.operations.mail.message_changes import ListMailboxes as ListAll
from postroom.operations.mail.message_changes import list_mailboxes as list_all
from postroom.operations.mail.messages import WaitForMessage, fair_max_length, wait_for_message
from postroom.operations.outgoing.drafts import GetDraft, get_draft
from postroom.operations.outgoing.outbox import sent_of
from postroom.sending.submission import is_pending, outcome

_CHARS = 36_000
"""The length of all texts of an answer together: 9,000 tokens."""

_WAITED_CHARS = 12_000
"""The length of the text of a mail that was waited for; read_mail reads on."""

_THREAD_MESSAGES = 20
_MAX_LINES = 100
_MAX_ADDRESSES = 20

Read = MailLine | ThreadText | FileText | NotRead
T = TypeVar("T", MailLine, FileText)


class ReadMail(Request):
    """Read messages, threads, drafts and the text of attachments in full, without quoted mail."""

    ids: Annotated[
        Ids,
        argument("What to read.", ["msg_4h8t2w", "att_6p1r4z"], min_length=1, max_length=20),
    ]
    max_chars: Annotated[int, argument("Cut each text here.", 2000, ge=1, le=36_000)] = 12_000
    offset: Annotated[
        int, argument("Continue one text or thread from next_offset.", 12000, ge=0, le=2**53)
    ] = 0
    quoted: Annotated[bool, argument("Include quoted mail.", True)] = False
    thread: Annotated[bool, argument("Read their whole threads.", True)] = False


@operation(Scope.READ)
async def read_mail(ctx: RequestContext, request: ReadMail) -> ReadResult:
    if request.offset and len(request.ids) > 1:
        raise InvalidInput("offset: continue one text at a time; give one id")
    addresses = await inbox_addresses(ctx)
    ids = list(dict.fromkeys(request.ids))
    found = [await _read(ctx, request, id_, addresses, is_only=len(ids) == 1) for id_ in ids]
    read = list({item.id: item for item in found}.values())
    cut = min(
        request.max_chars, fair_max_length([n for item in read for n in _lengths(item)], _CHARS)
    )
    return ReadResult(tuple(_cut(item, cut, request.offset) for item in read))


_TOOLS = {"pln": "change_mail"}
"""The tool for kinds of ids that this toolset gives and read_mail does not take."""


async def _read(
    ctx: RequestContext, request: ReadMail, id_: str, addresses: dict[str, str], *, is_only: bool
) -> Read:
    """One of the ids; what cannot be read does not hide the others."""
    try:
        if id_.startswith("thr_"):
            return await _thread(ctx, request, id_, addresses)
        if id_.startswith("att_"):
            attachment = await attachment_of(ctx, id_)
            found = await attachment_text(ctx, attachment)
            return FileText(
                id_,
                attachment.filename,
                found.text,
                warnings=found.warnings or None,
                message_id=found.message_id,
                security=found.security,
            )
        if id_.startswith("drf_"):
            return await _draft(ctx, id_)
        refuse_other_kind(id_, "msg", _TOOLS)
        message = await message_of(ctx, id_)
        if request.thread:
            return await _thread(ctx, request, message.thread_id, addresses)
        line = _line(message, addresses, quoted=request.quoted)
        return replace(
            line,
            thread_id=message.thread_id,
            to=message.to_addresses[:_MAX_ADDRESSES] or None,
            cc=message.cc_addresses[:_MAX_ADDRESSES] or None,
            bcc=message.bcc_addresses[:_MAX_ADDRESSES] or None,
        )
    except MailError as error:
        if is_only:
            raise
        return NotRead(id_, str(error))


async def _draft(ctx: RequestContext, draft_id: str) -> MailLine:
    """A draft with its text and its files. Raises NotFound."""
    draft = await get_draft(ctx, GetDraft(draft_id=draft_id))
    text = draft.body_text
    if text is None:
        text = (await in_thread(html_to_text, draft.body_html or "")).text
    files = tuple([await _file_line(ctx, file) for file in draft.attachments])
    cc, bcc = draft.cc[:_MAX_ADDRESSES] or None, draft.bcc[:_MAX_ADDRESSES] or None
    return draft_line(draft, cc=cc, bcc=bcc, text=text, attachments=files or None)


async def _file_line(ctx: RequestContext, file: DraftFile) -> FileLine:
    """A file of a draft; a stored one has the name that the mail it came with gave it."""
    stored = file.attachment_id and await ctx.store.attachment(file.attachment_id, ctx.visible)
    if stored:
        return FileLine(stored.id, file.filename or stored.filename, stored.size)
    return FileLine(file.attachment_id, file.filename or "", file.size)


async def _thread(
    ctx: RequestContext, request: ReadMail, thread_id: str, addresses: dict[str, str]
) -> ThreadText:
    """The newest messages of a thread; the offset counts those that were read before."""
    thread = await thread_of(ctx, thread_id)
    page = Slice(limit=_THREAD_MESSAGES, offset=request.offset)
    found = await find_in_thread(ctx, thread_id, page)
    whole = await ctx.store.messages_by_id([row.id for row in found.rows], ctx.visible)
    lines = tuple(
        _line(whole[row.id], addresses, quoted=request.quoted)
        for row in reversed(found.rows)
        if row.id in whole
    )
    end = request.offset + len(found.rows)
    earlier = max(found.total - end, 0) or None
    return ThreadText(thread.id, thread.subject, lines, earlier, end if earlier else None)


def _line(message: Message, addresses: dict[str, str], *, quoted: bool) -> MailLine:
    return line_of(message, addresses, **text_of(message, quoted=quoted))


def _lengths(item: Read) -> list[int]:
    if isinstance(item, ThreadText):
        return [len(line.text or "") for line in item.messages]
    return [] if isinstance(item, NotRead) else [len(item.text or "")]


def _cut(item: Read, cut: int, offset: int) -> Read:
    if isinstance(item, NotRead):
        return item
    if isinstance(item, ThreadText):
        return replace(item, messages=tuple(_cut_text(line, cut, 0) for line in item.messages))
    return _cut_text(item, cut, offset)  # type: ignore[type-var]


def _cut_text(item: T, cut: int, offset: int) -> T:
    text = item.text or ""
    end = offset + cut
    return replace(item, text=text[offset:end], next_offset=end if end < len(text) else None)


class WaitForMail(WaitForMessage):
    """Wait for a mail. After a time-out, wait again with the returned since."""

    constraints: ClassVar[tuple[Constraint, ...]] = ()
    splits_names: ClassVar[bool] = True
    message_id: Annotated[
        OptionalId, argument("Or wait for the decision on this held mail.", "msg_4h8t2w")
    ] = None


@operation(Scope.READ, waits=True)
async def wait_for_mail(ctx: RequestContext, request: WaitForMail) -> AgentWaitResult:
    if request.message_id is not None:
        return await _outcome_of(ctx, request.message_id, request.timeout_s)
    arguments = {name: getattr(request, name) for name in request.model_fields_set}
    if not (request.inbox_id or request.thread_id):
        arguments["inbox_id"] = (await only_inbox(ctx)).id
    waited = await wait_for_message(ctx, WaitForMail.model_construct(**arguments))
    if waited.message is None:
        return AgentWaitResult(None, timed_out=True, since=waited.since)
    message = await message_of(ctx, waited.message.id)
    if waited.extracted:
        line = line_of(message, {}, snippet=message.snippet)
    else:
        line = _cut_text(_line(message, {}, quoted=False), _WAITED_CHARS, 0)
    return AgentWaitResult(line, timed_out=False, extracted=waited.extracted)


async def _outcome_of(ctx: RequestContext, message_id: str, timeout_s: int) -> AgentWaitResult:
    """Wait until a person has decided about a held mail, or the relay has answered."""
    message = await message_of(ctx, message_id)
    if message.hold is not None and message.hold.decision is not None:
        return AgentWaitResult(line_of(message, {}), timed_out=False)
    sent = sent_of(message)
    waits = _is_held if _is_held(sent) else is_pending
    sent = await outcome(ctx, sent, timeout_s, waits)
    line = line_of(await message_of(ctx, message_id), {})
    return AgentWaitResult(line, timed_out=waits(sent))


def _is_held(sent: Sent) -> bool:
    return sent.status == "held"


class ListMailboxes(Request):
    """List mailboxes and labels with counts."""

    inbox_id: Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")] = None


@operation(Scope.READ)
async def list_mailboxes(ctx: RequestContext, request: ListMailboxes) -> Mailboxes:
    addresses = await inbox_addresses(ctx)
    boxes, has_more = await _used_mailboxes(ctx, request.inbox_id)
    visible = ctx.visible.narrowed_to([request.inbox_id]) if request.inbox_id else ctx.visible
    labels = await ctx.store.labels(visible, Slice(limit=_MAX_LINES))
    inboxes = await ctx.store.inboxes(visible, Slice(limit=_MAX_LINES))
    is_cut = has_more or max(labels.total, inboxes.total) > _MAX_LINES
    return Mailboxes(
        tuple(
            MailboxLine(
                box.name, box.total, unread=box.unread or None, inbox=addresses.get(box.inbox_id)
            )
            for box in boxes
        ),
        tuple(MailboxLine(label.name, label.message_count) for label in labels.rows) or None,
        inboxes=tuple(inbox.address for inbox in inboxes.rows),
        hint=f"only the first {_MAX_LINES} of a kind; inbox_id shows one inbox" if is_cut else None,
    )


async def _used_mailboxes(
    ctx: RequestContext, inbox_id: str | None
) -> tuple[Sequence[Mailbox], bool]:
    """The first mailboxes with mail in them, and whether there are more."""
    found: list[Mailbox] = []
    seen, has_more = 0, True
    while has_more and len(found) <= _MAX_LINES:
        page = await list_all(ctx, ListAll(inbox_id=inbox_id, limit=_MAX_LINES, offset=seen))
        found += [box for box in page.results if box.total]
        seen, has_more = seen + len(page.results), page.has_more
    return found[:_MAX_LINES], len(found) > _MAX_LINES
