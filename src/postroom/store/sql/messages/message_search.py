"""Search and lists of messages: conditions, rows and excerpts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from unicodedata import combining

from postroom.errors import NotFound, no_such
from postroom.mail.message import HiddenText
from postroom.mail.text.fold import IGNORABLE, address_pattern, fold
from postroom.mail.text.invisible import cleaned, merge_hidden_texts
from postroom.model.inbox import DRAFTS, Visible
from postroom.model.mail.message import (
    AddressLine,
    Attachment,
    Direction,
    ListUnsubscribe,
    Message,
    MessageRow,
    Recipient,
    ThreadMessage,
    findings_of,
)
from postroom.model.mail.sending import overall_status, waits_until
from postroom.model.mail.storage import FIELD_BORDER, MessageQuery
from postroom.model.page import Found
from postroom.model.rule import text_sha256
from postroom.model.values import late_pattern
from postroom.model.view import Numbers, only
from postroom.store.search.index import IndexSearcher, SearchQuery
from postroom.store.sql.messages.mailboxes import canonical_mailbox
from postroom.store.sql.messages.thread_choice import NAMED
from postroom.store.sql.statements import (
    any_of,
    caseless,
    flag_names,
    from_text,
    hold_in,
    inbox_number,
    moment,
    moment_or_none,
    scalar,
    seconds_or_none,
    visible_numbers,
    within,
)
from postroom.store.transaction import Row, Transaction

ROW_COLUMNS = """
    m.id, t.id, i.id, m.is_outbound, m.subject, m.from_address, m.from_name, m.addresses, m.date,
    m.snippet, m.labels, m.mailboxes, m.flags, m.has_attachment,
    CASE WHEN m.is_outbound = 1 OR m.is_suspicious = 1 THEN m.details END
"""
ROW_TABLES = """
    messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
      JOIN inboxes i ON i.number = +m.inbox
"""
ATTACHMENT_COLUMNS = "a.id, m.id, a.filename, a.content_type, a.size, a.is_inline, a.sha256"

_SHOWN_RECIPIENTS = 5
_SHOWN_SUBJECT = 250
_SHOWN_NAME = 100


def direction(is_outbound: int) -> Direction:
    """The name of a stored direction."""
    return "outbound" if is_outbound else "inbound"


def message_row(row: Row, excerpt: str | None = None) -> MessageRow:
    """Convert a row to a list entry, with names and recipients truncated."""
    to = [line[2] for line in from_text(row[7]) if line[0] == "to"]
    mailboxes = tuple(from_text(row[11]))
    details = from_text(row[14]) if row[14] is not None else {}
    status, send_at = _progress(details, mailboxes) if row[3] else (None, None)
    return MessageRow(
        id=row[0],
        thread_id=row[1],
        inbox_id=row[2],
        direction=direction(row[3]),
        subject=row[4][:_SHOWN_SUBJECT],
        from_address=row[5],
        from_name=row[6][:_SHOWN_NAME],
        to_addresses=tuple(to[:_SHOWN_RECIPIENTS]),
        to_count=len(to) if len(to) > _SHOWN_RECIPIENTS else None,
        date=moment(row[8]),
        snippet=row[9],
        labels=tuple(from_text(row[10])),
        flags=flag_names(row[12]),
        mailboxes=mailboxes,
        has_attachment=bool(row[13]),
        excerpt=excerpt,
        status=status,
        send_at=send_at,
        findings=() if row[3] else findings_of(details),
    )


def _progress(
    details: dict[str, Any], mailboxes: Sequence[str]
) -> tuple[str | None, datetime | None]:
    """The status of an outbound message, and its time while it waits for that.

    One of a provider has no recorded recipients: it was sent elsewhere, or is a draft there.
    """
    recipients = tuple(Recipient(**r) for r in details["recipients"] or ())
    if not recipients:
        return None if DRAFTS in mailboxes else "sent", None
    send_at = moment_or_none(details.get("send_at"))
    return overall_status(recipients), waits_until(recipients, send_at)


def thread_message(row: Row, text: str, new_text: str | None) -> ThreadMessage:
    """Convert a row to a message of a thread."""
    brief = message_row(row)
    values = {name: getattr(brief, name) for name in MessageRow.__slots__}
    return ThreadMessage(**values, new_text=text if new_text is None else new_text, text=text)


MESSAGE_COLUMNS = f"""{ROW_COLUMNS}, m.received_at, m.internet_id, m.size_bytes, m.raw, m.details,
    b.text, b.new_text"""
MESSAGE_TABLES = f"{ROW_TABLES} JOIN bodies b ON +b.inbox = +m.inbox AND b.message = m.number"


def message(row: Row, attachments: tuple[Attachment, ...]) -> Message:
    """Convert a row to a whole message."""
    lines = tuple(
        AddressLine(role, _line(name), _line(address)) for role, name, address in from_text(row[7])
    )
    details, mailboxes = from_text(row[19]), tuple(from_text(row[11]))
    recipients = details["recipients"] and tuple(Recipient(**r) for r in details["recipients"])
    unsubscribe = details.get("list_unsubscribe")
    status, send_at = _progress(details, mailboxes) if row[3] else (None, None)
    return Message(
        id=row[0],
        thread_id=row[1],
        inbox_id=row[2],
        direction=direction(row[3]),
        subject=_line(row[4]),
        from_address=_line(row[5]),
        from_name=_line(row[6]),
        to_addresses=_bare(lines, "to"),
        cc_addresses=_bare(lines, "cc"),
        bcc_addresses=_bare(lines, "bcc"),
        reply_to_addresses=_bare(lines, "reply_to"),
        addresses=lines,
        date=moment(row[8]),
        received_at=moment(row[15]),
        internet_message_id=row[16],
        in_reply_to=details["in_reply_to"],
        references=tuple(details["references"]),
        snippet=row[9],
        labels=tuple(from_text(row[10])),
        flags=flag_names(row[12]),
        mailboxes=mailboxes,
        has_attachment=bool(row[13]),
        size_bytes=row[17],
        text=row[20],
        attachments=attachments,
        auth=details["auth"],
        security=_without_excerpts(details["security"]),
        defects=tuple(details["defects"]),
        raw=row[18],
        new_text=row[21],
        status=status,
        send_at=send_at,
        recipients=recipients or None,
        list_unsubscribe=ListUnsubscribe(**unsubscribe) if unsubscribe else None,
        hold=hold_in(details),
    )


def _line(text: str) -> str:
    """Remove invisible characters that older versions stored."""
    return cleaned(text, one_line=True)


def _without_excerpts(security: dict[str, Any]) -> dict[str, Any]:
    """Findings without excerpts; older versions stored the beginning of hidden text."""
    if not any("excerpt" in found for found in security.get("hidden_text", ())):
        return security
    hidden, total = merge_hidden_texts(
        HiddenText(
            found["reason"], found.get("sha256") or text_sha256(found["excerpt"]), found["chars"]
        )
        for found in security["hidden_text"]
    )
    of_all = {"hidden_text_total": total} if total else {}
    return {**security, "hidden_text": [asdict(found) for found in hidden], **of_all}


def _bare(lines: tuple[AddressLine, ...], role: str) -> tuple[str, ...]:
    return tuple(line.address for line in lines if line.role == role)


def attachment(row: Row) -> Attachment:
    """Convert a row to an attachment, without its content."""
    filename, content_type = _line(row[2]), _line(row[3])
    return Attachment(row[0], row[1], filename, content_type, row[4], bool(row[5]), row[6])


_MAX_CHARS = 160
_BEFORE = 60
_PIECES = 16_384, 512

_INVISIBLE = late_pattern(f"[{IGNORABLE}]+")
_UNCOMBINED = late_pattern("[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff\uac00-\ud7a3]")
"""Characters that folding never combines with the preceding one."""


def excerpt(searchable: str, q: str, originals: tuple[str, ...]) -> str:
    """At most 160 characters around the first match of a folded *q*.

    *originals* are the fields whose folded forms make up *searchable*, in the same order.
    """
    for original, folded in zip(originals, searchable.split(FIELD_BORDER), strict=False):
        place = folded.find(q)
        if place >= 0:
            text = " ".join(original.split())
            return _window(text, *_origin(text, folded, place, place + len(q)))
    return ""


def _origin(text: str, folded: str, first: int, last: int) -> tuple[int, int]:
    """The range of a text that corresponds to a range of its folded form."""
    begin, end = first, last
    lowered = text[:last].lower()
    if len(lowered) > last or lowered != folded[:last]:
        start, stop, done = _piece_at(text, folded, first, 0, 0)
        begin, _ = _furthest(text[start:stop], folded, done, first)
        begin += start
        start, stop, done = _piece_at(text, folded, last, start, done)
        end, reached = _furthest(text[start:stop], folded, done, last)
        # A sharp s is shown whole, even if the match ends within its folded form.
        end += start + (reached < last)
    while end < len(text) and combining(text[end]):
        end += 1
    return begin, end


def _piece_at(text: str, folded: str, place: int, start: int, done: int) -> tuple[int, int, int]:
    """The piece of a text that contains a folded position, and the folded position of its start.

    The search begins at *start*, whose folded position is *done*.
    """
    stop = len(text)
    for size in _PIECES:
        while start + size < stop and (cut := _UNCOMBINED.search(text, start + size, stop)):
            after = done + _folded_size(text[start : cut.start()], folded, done)
            if after > place:
                stop = cut.start()
                break
            start, done = cut.start(), after
    return start, stop, done


def _furthest(piece: str, folded: str, done: int, place: int) -> tuple[int, int]:
    """The length of a piece whose folded form ends before a position, and where that form ends."""

    def reach(length: int) -> int:
        return done + _folded_size(piece[:length], folded, done)

    length = bisect_right(range(len(piece) + 1), place, key=reach) - 1
    return length, reach(length)


def _folded_size(part: str, folded: str, done: int) -> int:
    """The length of the folded form of a part of a text that begins at a folded position.

    A ligature or a sharp s becomes two characters, an invisible one none.
    """
    lowered = part.lower()
    if folded.startswith(lowered, done):
        return len(lowered)
    own = fold(f"#{part}#")[1:-1]
    is_spaced = done == 0 or folded[done - 1] == " "
    return len(own.lstrip() if is_spaced else own)


def _window(text: str, first: int, last: int) -> str:
    """The text around a match, with the whole match if it is short enough."""
    match = text[first:last]
    if len(match) > _MAX_CHARS:
        match = _INVISIBLE.sub("", match)
    if len(match) > _MAX_CHARS - 2:
        return match if len(match) <= _MAX_CHARS else match[: _MAX_CHARS - 1] + "…"
    start, stop = max(0, first - _MAX_CHARS), last + _MAX_CHARS
    at, line = first - start, text[start:first] + match + text[last:stop]
    left = min(at - _BEFORE, len(line) - _MAX_CHARS)
    left = max(0, left, at + len(match) + 1 - _MAX_CHARS)
    shown = line[left : left + _MAX_CHARS]
    if start + left > 0:
        shown = "…" + shown[1:]
    if stop < len(text) or left + _MAX_CHARS < len(line):
        shown = shown[:-1] + "…"
    return shown


FILENAMES = """
    SELECT message, filename FROM attachments
     WHERE {within} AND message {among} ORDER BY number
"""
BODIES = """
    SELECT b.message, b.text, s.searchable
      FROM bodies b JOIN search_texts s ON +s.inbox = +b.inbox AND s.message = b.message
     WHERE {within} AND b.message {among}
"""


def find_messages(
    tx: Transaction, query: MessageQuery, searcher: IndexSearcher
) -> Found[MessageRow]:
    """One page of the messages that match a query, in its order.

    Raises:
        NotFound: the inbox or thread does not exist for the caller.
    """
    search = search_query_of(tx, query)
    answer = searcher.search(tx, search)
    rows = message_rows(tx, answer.numbers, search.inboxes)
    if query.oldest_first:
        rows.reverse()
    wanted = query.q or next(iter(query.words), None)
    excerpts = _excerpts(tx, rows, wanted) if wanted else {}
    found = tuple(message_row(row, excerpts.get(row[-1])) for row in rows)
    has_more = rows and answer.offset + len(rows) < answer.total
    after = (rows[-1][8], rows[-1][-1]) if has_more else None
    return Found(found, answer.total, answer.offset, after)


def matching_numbers(
    tx: Transaction, query: MessageQuery, searcher: IndexSearcher
) -> tuple[int, ...]:
    """The numbers of one page of the messages that match a query. Raises NotFound."""
    return searcher.search(tx, search_query_of(tx, query)).numbers


def search_query_of(tx: Transaction, query: MessageQuery) -> SearchQuery:
    """The query for the index. Raises NotFound."""
    inboxes = chosen_inboxes(tx, query.visible, query.inbox_id)
    thread = None
    if query.thread_id is not None:
        thread, inbox = thread_number(tx, query.thread_id, query.visible)
        inboxes = inboxes.narrowed_to([inbox])
    after, mailbox = query.page.after, query.mailbox
    if mailbox is not None:
        mailbox = canonical_mailbox(tx, mailbox, inboxes)
    return SearchQuery(
        inboxes=inboxes,
        thread=thread,
        q=query.q,
        words=query.words,
        sender=None if query.sender is None else address_pattern(query.sender),
        sender_words=tuple(map(address_pattern, query.sender_words)),
        recipient=None if query.recipient is None else address_pattern(query.recipient),
        recipient_words=tuple(map(address_pattern, query.recipient_words)),
        subject=query.subject,
        labels=tuple(caseless(label) for label in query.labels),
        flags=query.flags,
        without_flags=query.without_flags,
        mailbox=None if mailbox is None else caseless(mailbox),
        has_attachment=query.has_attachment,
        since=seconds_or_none(query.after),
        before=seconds_or_none(query.before),
        limit=query.page.limit,
        offset=query.page.offset,
        after=None if after is None else (int(after[0]), int(after[1])),
        oldest_first=query.oldest_first,
    )


def chosen_inboxes(tx: Transaction, visible: Visible, inbox_id: str | None) -> Numbers:
    """The named inbox, or all that the caller can see. Raises NotFound."""
    if inbox_id is None:
        return visible_numbers(tx, visible)
    return only(visible_inbox(tx, inbox_id, visible))


def visible_inbox(tx: Transaction, inbox_id: str, visible: Visible) -> int:
    """The number of an inbox. Raises NotFound."""
    number = inbox_number(tx, inbox_id)
    if not number or not visible.sees(inbox_id):
        raise NotFound(f"no inbox {inbox_id}; list_inboxes shows those you may use")
    return number


def thread_number(tx: Transaction, thread_id: str, visible: Visible) -> tuple[int, int]:
    """The numbers of a thread and its inbox. Raises NotFound."""
    row = tx.one(NAMED, id=thread_id)
    owner = row and scalar(tx, "SELECT id FROM inboxes WHERE number = :inbox", inbox=row[1])
    if row is None or not visible.sees(owner or ""):
        raise NotFound(no_such("thread", thread_id))
    return row[0], row[1]


def message_rows(tx: Transaction, numbers: Sequence[int], inboxes: Numbers) -> list[Row]:
    """The rows of some messages, newest first; the last columns are the inbox and the number."""
    among, params = any_of("number", numbers)
    where, scope = within("+m.inbox", inboxes)
    return tx.all(
        f"""SELECT {ROW_COLUMNS}, m.inbox, m.number FROM {ROW_TABLES}
             WHERE {where} AND m.number {among} ORDER BY m.date DESC, m.number DESC""",
        **params,
        **scope,
    )


def _excerpts(tx: Transaction, rows: Sequence[Row], q: str) -> dict[int, str]:
    among, params = any_of("number", [row[-1] for row in rows])
    inboxes, scope = any_of("inbox", sorted({row[-2] for row in rows}))
    files: dict[int, list[str]] = {}
    filenames = FILENAMES.format(within=f"+inbox {inboxes}", among=among)
    for message, filename in tx.all(filenames, **params, **scope):
        files.setdefault(message, []).append(filename)
    texts = BODIES.format(within=f"b.inbox {inboxes}", among=among)
    bodies = {row[0]: row[1:] for row in tx.all(texts, **params, **scope)}
    found = {}
    for row in rows:
        text, folded = bodies[row[-1]]
        fields = _fields(row, text, files.get(row[-1], ()), folded)
        found[row[-1]] = excerpt(folded, q, fields)
    return found


def _fields(row: Row, text: str, files: Sequence[str], folded: str) -> tuple[str, ...]:
    """The fields of a message in the order of the folded ones; some mail has no sender."""
    has_sender = folded.count(FIELD_BORDER) > 1 + len(files)
    return (row[4], text, *(row[5:7] if has_sender else ()), *files)
