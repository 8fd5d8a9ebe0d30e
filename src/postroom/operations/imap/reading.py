"""Reading a live message: its header, its text, its files, and its source."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field, model_validator

from postroom.errors import NotFound
from postroom.mail.headers import Fields, decoded_pairs
from postroom.mail.remote import RemotePart, file_parts, remote_part
from postroom.model.imap import ImapDescription, ImapLocator
from postroom.model.key import Scope
from postroom.model.limits import Limits
from postroom.model.live import LiveAttachment, LiveMessage, LiveReading, LiveSource
from postroom.model.message import Header
from postroom.operations.context import Context
from postroom.operations.imap.accounts import account_of
from postroom.operations.imap.bodies import (
    Text,
    TextReader,
    bounded_html,
    fitting,
    written_chars,
)
from postroom.operations.imap.enclosures import (
    MOST_ATTACHMENTS,
    PdfReader,
    attachment,
    parts_to_size,
)
from postroom.operations.imap.fields import OneLiveMessage, gone
from postroom.operations.imap.rows import MOST_FLAGS, header_fields, message_date, shown_field
from postroom.operations.issues import Issues
from postroom.operations.operation import operation
from postroom.ports.imap import ImapSession

MOST_ADDRESS_CHARS = 1_000
MOST_HEADER_CHARS = 12_000
MOST_TEXT_CHARS = 30_000
"""What text and HTML may take of an answer each, written as JSON."""

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
    Long texts are cut, and issues says so."""

    body_max_chars: Annotated[
        int, Field(ge=100, le=20_000, description="Length of the text.", examples=[5000])
    ] = 2_000
    include_headers: Annotated[
        bool, Field(description="Show the headers that matter.", examples=[False])
    ] = True
    include_all_headers: Annotated[
        bool, Field(description="Show every header.", examples=[True])
    ] = False
    include_html: Annotated[
        bool, Field(description="Show the HTML too, made harmless.", examples=[True])
    ] = False
    extract_attachment_text: Annotated[
        bool, Field(description="Show the text of attached PDFs up to 5 MB.", examples=[True])
    ] = False
    attachment_text_max_chars: Annotated[
        int | None,
        Field(
            ge=100,
            le=50_000,
            description="Length of those; only with extract_attachment_text. Default 10000.",
            examples=[10000],
        ),
    ] = None

    @model_validator(mode="after")
    def _extracts_what_it_bounds(self) -> Self:
        if self.attachment_text_max_chars is not None and not self.extract_attachment_text:
            raise ValueError("attachment_text_max_chars needs extract_attachment_text=true")
        return self


@dataclass(slots=True)
class _Reading:
    """What was got of a message so far."""

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
            raise NotFound(gone(self.at))
        request = self.request
        reader = TextReader(
            session, self.at, request.body_max_chars, request.include_html, self.limits
        )
        self.issues.stage = "fetch_body"
        if self.described.structure is None:
            self.text = await reader.read_blindly(self.described.header)
            return
        root = remote_part(self.described.structure)
        self.files = file_parts(root)
        self.text = await reader.read(root, parts_to_size(self.files[:MOST_ATTACHMENTS]))
        self.sizes = reader.sizes
        if request.extract_attachment_text:
            await self._extract(session)

    async def _extract(self, session: ImapSession) -> None:
        chars = self.request.attachment_text_max_chars or 10_000
        reader = PdfReader(session, self.at, chars, self.issues, self.extracted)
        await reader.read(self.files[:MOST_ATTACHMENTS], self.sizes)


@operation(Scope.READ)
async def get_live_message(ctx: Context, request: GetLiveMessage) -> LiveReading:
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
    return LiveMessage(
        str(at),
        at.mailbox,
        at.uidvalidity,
        at.uid,
        date=message_date(fields, described.arrived_at),
        from_=shown_field(fields, "from", MOST_ADDRESS_CHARS),
        to=shown_field(fields, "to", MOST_ADDRESS_CHARS),
        cc=shown_field(fields, "cc", MOST_ADDRESS_CHARS),
        subject=shown_field(fields, "subject", MOST_ADDRESS_CHARS),
        flags=described.flags[:MOST_FLAGS],
        headers=_headers(reading, fields) if _wants_headers(request) else None,
        body_text=_plain(reading),
        body_html=_html(reading) if request.include_html else None,
        attachments=_attachments(reading),
    )


def _wants_headers(request: GetLiveMessage) -> bool:
    return request.include_headers or request.include_all_headers


def _headers(reading: _Reading, fields: Fields) -> tuple[Header, ...]:
    """The headers in order, as far as there is room; what looks like a secret is kept back."""
    if reading.described is not None and reading.described.is_header_cut:
        reading.issues.add("truncated", "the header is cut; some are missing", stage="headers")
    chosen: list[Header] = []
    left = MOST_HEADER_CHARS
    for name, value in decoded_pairs(fields):
        if not reading.request.include_all_headers and name.lower() not in _CURATED:
            continue
        shown = "[redacted]" if name.lower() in _SECRET else value
        left -= written_chars(name) + written_chars(shown)
        if left < 0:
            reading.issues.add("truncated", "there are more headers", stage="headers")
            break
        chosen.append(Header(name, shown))
    return tuple(chosen)


def _plain(reading: _Reading) -> str | None:
    if reading.text is None:
        return None
    most = reading.request.body_max_chars
    shown = fitting(reading.text.plain[:most], MOST_TEXT_CHARS)
    if reading.text.is_cut or len(shown) < len(reading.text.plain):
        message = f"body_text is cut at {len(shown)} characters"
        advice = "body_max_chars may be 20000; imap_get_message_raw shows the source"
        reading.issues.add("truncated", f"{message}; {advice}", stage="body_text")
    return shown


def _html(reading: _Reading) -> str | None:
    if reading.text is None or reading.text.html is None:
        return None
    most = reading.request.body_max_chars
    html, is_cut = bounded_html(reading.text.html, most, MOST_TEXT_CHARS)
    if is_cut or reading.text.is_cut:
        message = f"body_html is cut at {len(html)} characters; body_max_chars may be 20000"
        reading.issues.add("truncated", message, stage="body_html")
    return html


def _attachments(reading: _Reading) -> tuple[LiveAttachment, ...]:
    shown = reading.files[:MOST_ATTACHMENTS]
    if len(reading.files) > len(shown):
        message = f"there are {len(reading.files)} attachments; the first {len(shown)} are shown"
        reading.issues.add("truncated", message, stage="attachments")
    return tuple(
        attachment(part, reading.sizes, reading.extracted.get(part.number)) for part in shown
    )


class GetLiveMessageRaw(OneLiveMessage):
    """Read the source of a message of a live account, as it is, in base64. It stays unread."""

    max_bytes: Annotated[
        int, Field(ge=1024, le=1_000_000, description="Bytes at most.", examples=[50000])
    ] = 200_000


@operation(Scope.READ)
async def get_live_message_raw(ctx: Context, request: GetLiveMessageRaw) -> LiveSource:
    at = request.at
    live, account = account_of(ctx, at.account_id)
    issues = Issues(message_id=str(at), uid=at.uid)
    found: list[tuple[bytes, int]] = []

    async def work(session: ImapSession) -> None:
        issues.stage = "fetch"
        source = await session.source(at, request.max_bytes)
        if source is None:
            raise NotFound(gone(at))
        found.append(source)

    with issues.collect():
        await live.read(account.account_id, work)
    if not found:
        return LiveSource("failed", issues.all, account.account_id, str(at), None, None, None)
    raw, size = found[0]
    if size > len(raw):
        message = f"the source is cut at {len(raw)} of {size} bytes; max_bytes may be 1000000"
        issues.add("truncated", message)
    return LiveSource(
        issues.status(has_result=True),
        issues.all,
        account.account_id,
        str(at),
        size,
        b64encode(raw).decode(),
        "base64",
    )
