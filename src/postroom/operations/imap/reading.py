"""Reading messages live from an IMAP server."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Self

from pydantic import model_validator

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import argument
from postroom.mail.message import decoded_pairs, parse_date
from postroom.mail.mime.decoding import clean
from postroom.mail.mime.parts import Fields, split_header
from postroom.mail.mime.remote_parts import RemotePart, file_parts, remote_part
from postroom.mail.parse import parse_message
from postroom.model.imap import (
    ImapDescription,
    ImapLocator,
    ImapSummary,
    LiveAttachment,
    LiveMessage,
    LiveReading,
    LiveRow,
    LiveSource,
)
from postroom.model.key import Scope
from postroom.model.limits import Limits
from postroom.model.mail.message import Header
from postroom.operations.imap.accounts import (
    Issues,
    OneLiveMessage,
    account_of,
    missing_message_error,
)
from postroom.operations.imap.attachments import (
    ENCODED,
    MAX_ATTACHMENTS,
    PdfReader,
    Text,
    TextReader,
    attachment,
    bounded_html,
    cut_to_json,
    json_chars,
)
from postroom.pipeline.ingest import effective_date
from postroom.ports.imap import ImapSession

MAX_FIELD_CHARS = 300
MAX_PAGE_CHARS = 80_000
"""The size limit of a page."""

MAX_FLAGS = 50
_LIMITS = Limits()


def live_row(at: ImapLocator, summary: ImapSummary, snippet_chars: int | None) -> LiveRow:
    fields = header_fields(summary.header)
    return LiveRow(
        str(at),
        at.mailbox,
        at.uidvalidity,
        at.uid,
        date=message_date(fields, summary.arrived_at),
        from_=header_line(fields, "from"),
        subject=header_line(fields, "subject"),
        flags=summary.flags[:MAX_FLAGS],
        snippet=_snippet(summary, snippet_chars) if snippet_chars is not None else None,
    )


def header_fields(header: bytes) -> Fields:
    """The fields of a header block."""
    return split_header(header, 0, len(header), limits=_LIMITS).fields


def header_line(fields: Fields, name: str, max_chars: int = MAX_FIELD_CHARS) -> str | None:
    """A header on one line, decoded; None if there is none."""
    if name not in fields:
        return None
    return shortened(" ".join(fields.decoded(name).split()), max_chars)


def message_date(fields: Fields, arrived_at: datetime | None) -> datetime | None:
    """The Date header, or the arrival if there is none or it is more than a day later."""
    stated = parse_date(fields.first("date"))
    return stated if arrived_at is None else effective_date(stated, arrived_at)


def shortened(text: str, max_chars: int) -> str:
    """A text, cut with an ellipsis."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _snippet(summary: ImapSummary, chars: int) -> str:
    text = summary.preview
    if text is None:
        parsed = parse_message(summary.header + (summary.text or b""))
        text = parsed.new_text or parsed.text
    return shortened(clean(" ".join(text.split())), chars)


def rows_that_fit(rows: Sequence[LiveRow]) -> list[LiveRow]:
    """As many rows as fit a page, at least one."""
    cut_to_json: list[LiveRow] = []
    size = 0
    for row in rows:
        size += _size(row)
        if cut_to_json and size > MAX_PAGE_CHARS:
            break
        cut_to_json.append(row)
    return cut_to_json


def _size(row: LiveRow) -> int:
    texts = (row.message_id, row.mailbox, row.from_, row.subject, row.snippet, *(row.flags or ()))
    # Quotation marks and the like take two characters in JSON.
    return 150 + sum(len(text) + text.count('"') + text.count("\\") for text in texts if text)


MAX_ADDRESS_CHARS = 1_000
MAX_HEADER_CHARS = 12_000
MAX_TEXT_CHARS = 30_000
"""The limit of text and of HTML in a result, in JSON."""

_CURATED = frozenset(
    (
        "date", "from", "sender", "reply-to", "to", "cc", "bcc", "subject", "message-id",
        "in-reply-to", "references", "list-id", "list-unsubscribe", "list-unsubscribe-post",
        "auto-submitted", "authentication-results",
    )
)  # fmt: skip
_SECRET = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token")
)


class GetLiveMessage(OneLiveMessage):
    """Read a message of a live account: headers, text, attachments. It stays unread.
    Long texts are truncated, as issues reports."""

    body_max_chars: Annotated[int, argument("Length of the text.", 5000, ge=100, le=20_000)] = 2_000
    include_headers: Annotated[bool, argument("Show the main headers.", False)] = True
    include_all_headers: Annotated[bool, argument("Show every header.", True)] = False
    include_html: Annotated[bool, argument("Show the sanitised HTML.", True)] = False
    extract_attachment_text: Annotated[
        bool, argument("Show the text of attached PDFs up to 5 MB.", True)
    ] = False
    attachment_text_max_chars: Annotated[
        int | None,
        argument(
            "Length of these texts; only with extract_attachment_text. Default 10000.",
            10000,
            ge=100,
            le=50_000,
        ),
    ] = None

    @model_validator(mode="after")
    def _needs_extraction_for_its_limit(self) -> Self:
        if self.attachment_text_max_chars is not None and not self.extract_attachment_text:
            raise ValueError("attachment_text_max_chars needs extract_attachment_text=true")
        return self


@dataclass(slots=True)
class _Reading:
    """What was read of a message so far."""

    request: GetLiveMessage
    at: ImapLocator
    limits: Limits
    issues: Issues
    described: ImapDescription | None = None
    text: Text | None = None
    files: list[RemotePart] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    extracted: dict[str, str] = field(default_factory=dict)

    async def run(self, session: ImapSession) -> None:
        self.issues.stage = "fetch"
        self.described = await session.describe(self.at)
        if self.described is None:
            raise missing_message_error(self.at)
        request = self.request
        reader = TextReader(
            session, self.at, request.body_max_chars, request.include_html, self.limits
        )
        self.issues.stage = "fetch_body"
        if self.described.structure is None:
            self.text = await reader.read_without_structure(self.described.header)
            return
        root = remote_part(self.described.structure)
        self.files = file_parts(root)
        # The server has to compute the decoded size of these.
        encoded = [f.number for f in self.files[:MAX_ATTACHMENTS] if f.encoding in ENCODED]
        self.text = await reader.read(root, encoded)
        self.sizes = reader.sizes
        if request.extract_attachment_text:
            chars = request.attachment_text_max_chars or 10_000
            pdfs = PdfReader(session, self.at, chars, self.issues, self.extracted)
            await pdfs.read(self.files[:MAX_ATTACHMENTS], self.sizes)


@operation(Scope.READ)
async def get_live_message(ctx: RequestContext, request: GetLiveMessage) -> LiveReading:
    at = request.at
    live, account = account_of(ctx, at.account_id)
    issues = Issues(message_id=str(at), uid=at.uid)
    reading = _Reading(request, at, ctx.limits, issues)
    with issues.collect():
        await live.read(account.account_id, reading.run)
    message = _message(reading) if reading.described is not None else None
    status = issues.status(has_result=message is not None)
    return LiveReading(status, issues.all, account.account_id, message)


def _message(reading: _Reading) -> LiveMessage:
    described, request, at = reading.described, reading.request, reading.at
    assert described is not None
    fields = header_fields(described.header)
    wants_headers = request.include_headers or request.include_all_headers
    return LiveMessage(
        str(at),
        at.mailbox,
        at.uidvalidity,
        at.uid,
        date=message_date(fields, described.arrived_at),
        from_=header_line(fields, "from", MAX_ADDRESS_CHARS),
        to=header_line(fields, "to", MAX_ADDRESS_CHARS),
        cc=header_line(fields, "cc", MAX_ADDRESS_CHARS),
        subject=header_line(fields, "subject", MAX_ADDRESS_CHARS),
        flags=described.flags[:MAX_FLAGS],
        headers=_headers(reading, fields) if wants_headers else None,
        body_text=_plain(reading),
        body_html=_html(reading) if request.include_html else None,
        attachments=_attachments(reading),
    )


def _headers(reading: _Reading, fields: Fields) -> tuple[Header, ...]:
    """The headers in order, up to a limit; secrets are redacted."""
    if reading.described is not None and reading.described.is_header_cut:
        reading.issues.add(
            "truncated", "the header is truncated; some fields are missing", stage="headers"
        )
    chosen: list[Header] = []
    left = MAX_HEADER_CHARS
    for name, value in decoded_pairs(fields):
        if not reading.request.include_all_headers and name.lower() not in _CURATED:
            continue
        shown = "[redacted]" if name.lower() in _SECRET else value
        left -= json_chars(name) + json_chars(shown)
        if left < 0:
            reading.issues.add("truncated", "there are more headers", stage="headers")
            break
        chosen.append(Header(name, shown))
    return tuple(chosen)


def _plain(reading: _Reading) -> str | None:
    if reading.text is None:
        return None
    max_chars = reading.request.body_max_chars
    shown = cut_to_json(reading.text.plain[:max_chars], MAX_TEXT_CHARS)
    if reading.text.is_cut or len(shown) < len(reading.text.plain):
        message = f"body_text is truncated at {len(shown)} characters"
        advice = "body_max_chars may be 20000; imap_get_message_raw shows the source"
        reading.issues.add("truncated", f"{message}; {advice}", stage="body_text")
    return shown


def _html(reading: _Reading) -> str | None:
    if reading.text is None or reading.text.html is None:
        return None
    max_chars = reading.request.body_max_chars
    html, is_cut = bounded_html(reading.text.html, max_chars, MAX_TEXT_CHARS)
    if is_cut or reading.text.is_cut:
        message = f"body_html is truncated at {len(html)} characters; body_max_chars may be 20000"
        reading.issues.add("truncated", message, stage="body_html")
    return html


def _attachments(reading: _Reading) -> tuple[LiveAttachment, ...]:
    shown = reading.files[:MAX_ATTACHMENTS]
    if len(reading.files) > len(shown):
        message = f"there are {len(reading.files)} attachments; the first {len(shown)} are shown"
        reading.issues.add("truncated", message, stage="attachments")
    return tuple(
        attachment(part, reading.sizes, reading.extracted.get(part.number)) for part in shown
    )


class GetLiveMessageRaw(OneLiveMessage):
    """Read the source of a message of a live account, unchanged, in base64. It stays unread."""

    max_bytes: Annotated[
        int, argument("Maximum number of bytes.", 50000, ge=1024, le=1_000_000)
    ] = 200_000


@operation(Scope.READ)
async def get_live_message_raw(ctx: RequestContext, request: GetLiveMessageRaw) -> LiveSource:
    at = request.at
    live, account = account_of(ctx, at.account_id)
    issues = Issues(message_id=str(at), uid=at.uid)
    found: list[tuple[bytes, int]] = []

    async def work(session: ImapSession) -> None:
        issues.stage = "fetch"
        source = await session.source(at, request.max_bytes)
        if source is None:
            raise missing_message_error(at)
        found.append(source)

    with issues.collect():
        await live.read(account.account_id, work)
    if not found:
        return LiveSource("failed", issues.all, account.account_id, str(at), None, None, None)
    raw, size = found[0]
    if size > len(raw):
        message = f"the source is truncated at {len(raw)} of {size} bytes; max_bytes may be 1000000"
        issues.add("truncated", message)
    status, encoded = issues.status(has_result=True), b64encode(raw).decode()
    return LiveSource(status, issues.all, account.account_id, str(at), size, encoded, "base64")
