"""What a mail says, as plain values: the result of parsing."""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Literal

from postroom.mail.data import load
from postroom.mail.mime.decoding import decode_words
from postroom.mail.mime.parts import Fields
from postroom.mail.text.fold import as_key
from postroom.model.mail.message import AddressLine
from postroom.model.values import dataclass

Protection = Literal["pgp-signed", "pgp-encrypted", "smime-signed", "smime-encrypted"]
PARSER_VERSION = 4
"""Increased whenever the parser would give another result for the same mail."""


@dataclass(frozen=True, slots=True)
class ParsedAttachment:
    """A file that came with a message, decoded.

    `content_type` is what the sender claims, `detected_type` what the bytes look like.
    """

    filename: str
    content_type: str
    detected_type: str
    content: bytes
    inline: bool = False
    content_id: str | None = None
    charset: str = ""
    """The declared charset; empty if there is none."""

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class HiddenText:
    """Text that a reader of the mail would not see, and why.

    Not the words: they were hidden so that only a machine reads them. `sha256` is theirs, so that
    the same words are known again; `count` is how often they occur.
    """

    reason: str
    sha256: str
    chars: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A link of an HTML mail: where it says it goes, and where it goes."""

    text: str
    url: str
    picture: str = ""
    """The alternative text of its images, if it has no text."""


@dataclass(frozen=True, slots=True)
class Security:
    """Findings about a mail that its reader should know before trusting it."""

    hidden_text: tuple[HiddenText, ...] = ()
    hidden_text_total: int = 0
    """The number of pieces found, if `hidden_text` does not list all of them."""
    remote_images: int = 0
    tracking_pixels: int = 0
    text_differs: bool = False
    lookalike: tuple[str, ...] = ()
    disguised_attachments: tuple[str, ...] = ()
    removed_characters: dict[str, int] = field(default_factory=dict)
    """The number of invisible characters removed, by kind."""


@dataclass(frozen=True, slots=True)
class ReportRecipient:
    """The outcome of a mail for one recipient.

    `hard` means that the address does not exist; a full mailbox is not hard. `original` is
    the address that the sender wrote, if the report says that it was another.
    """

    address: str
    action: str
    status: str
    diagnostic: str
    reason: str
    hard: bool
    original: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A delivery report: a mail that a program wrote about another mail."""

    kind: Literal["delivery", "feedback", "disposition", "auto_reply"]
    recipients: tuple[ReportRecipient, ...] = ()
    original_message_id: str | None = None

    @property
    def hard(self) -> bool:
        """Whether an address is known not to exist."""
        return any(recipient.hard for recipient in self.recipients)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A meeting in a text/calendar part; times as the calendar writes them."""

    method: str
    uid: str
    summary: str
    location: str
    organizer: str
    start: str
    end: str
    attendees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A parsed mail. Deviations from the standards are listed in `defects`."""

    subject: str
    addresses: tuple[AddressLine, ...]
    date: datetime | None
    internet_message_id: str | None
    in_reply_to: str | None
    references: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    text: str
    new_text: str
    quoted_text: str
    signature: str
    snippet: str
    html: str | None
    attachments: tuple[ParsedAttachment, ...]
    defects: tuple[str, ...]
    size_bytes: int
    security: Security = Security()
    auto_submitted: bool = False
    list_id: str | None = None
    list_unsubscribe: tuple[str, ...] = ()
    report: Report | None = None
    invitation: Invitation | None = None
    protection: Protection | None = None
    links: tuple[Link, ...] = ()

    @property
    def sender(self) -> AddressLine | None:
        """The author: the first From address, or the Sender if there is no From with one."""
        lines = [
            line for role in ("from", "sender") for line in self.addresses if line.role == role
        ]
        return next((line for line in lines if "@" in line.address), lines[0] if lines else None)

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


def fingerprint(parsed: ParsedMessage) -> bytes:
    """A hash over from, date, subject, bodies and attachments: what the reader gets.

    Headers that grow on the way (Received, DKIM…) are left out, so that one mail that came
    by two routes has one fingerprint.
    """
    digest = hashlib.sha256()
    sender = [f"{a.name}\0{a.address.lower()}" for a in parsed.addresses if a.role == "from"]
    date = parsed.date.isoformat() if parsed.date else ""
    for piece in (*sender, date, parsed.subject, parsed.text, parsed.html or ""):
        data = piece.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    for attachment in parsed.attachments:
        name = attachment.filename.encode()
        digest.update(b"%d:%d:" % (len(name), attachment.size))
        digest.update(name)
        digest.update(attachment.content)
    return digest.digest()


_BRACKETED = re.compile(r"<([^<>]{1,2000})>")
_SPACE = re.compile(r"\s+")
_MAX_IDS = 1_000


def parse_ids(value: str) -> list[str]:
    """The Message-IDs in a header value, in order, each once."""
    if not value:
        return []
    found = _BRACKETED.findall(value)
    if not found:
        found = [word.strip("<>,;\"'") for word in value.split() if "@" in word]
    ids = (_SPACE.sub("", found_id) if " " in found_id or "\t" in found_id else found_id
           for found_id in found[:_MAX_IDS])  # fmt: skip
    return list(dict.fromkeys(as_key(found_id) for found_id in ids if found_id))


def parse_references(values: list[str], *, bare: bool = True) -> list[str]:
    """The Message-IDs of the first References header that has any.

    Ids without brackets count if there are no others and `bare` says so.
    """
    found = (parse_ids(value) for value in values if bare or "<" in value)
    return next((ids for ids in found if ids), [])


def parse_message_id(value: str) -> str | None:
    """The one Message-ID of a Message-ID header, also if it lacks its brackets or its @."""
    ids = parse_ids(value)
    if ids:
        return ids[0]
    bare = _SPACE.sub("", value.strip("<> \t"))
    return as_key(bare) or None


def parse_in_reply_to(value: str, *, bare: bool = True) -> str | None:
    """The Message-ID answered; old programs put a sentence with an address before it."""
    ids = parse_ids(value) if bare or "<" in value else []
    if not ids:
        return None
    is_sentence = not value.lstrip().startswith("<")
    return ids[-1] if is_sentence else ids[0]


_MONTH_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAY_NAMES = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_MONTHS = {name.lower(): number for number, name in enumerate(_MONTH_NAMES, 1)}
_USUAL = re.compile(
    r"\s*(?:[A-Za-z]{3},)?\s{0,9}(\d{1,2})\s([A-Za-z]{3})\s(\d{4})\s"
    r"(\d\d):(\d\d)(?::(\d\d))?\s([+-])(\d\d):?(\d\d)\b"
)
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)(?:(?:T|[ ]{1,9}(?:[A-Za-z]{3} )?)(\d\d):(\d\d)(?::(\d\d)"
    r"(?:[.,]\d{1,9})?)?)?"
    r"\s{0,9}(?:Z|([+-])(\d\d):?(\d\d))?"
)
_LOOSE = re.compile(
    r"\b(\d{1,2})[\s.-]{1,3}([A-Za-z]{3,9})[\s,.-]{1,3}(\d{4}|\d\d)(?:[\s,]{1,3}(?:at )?"
    r"(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s{0,3}([+-])(\d\d):?(\d\d)\b)?)?"
)
_HALF_DAY = re.compile(r"\b(\d{1,2})(:\d\d(?::\d\d)?)\s?([AaPp])\.?[Mm]\b\.?")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_ZONE = re.compile(r"(?:GMT|UTC)?([+-]\d\d):?(\d\d)\b(?!:)", re.IGNORECASE)
"""Zones that the standard library ignores: with a colon, or after a name."""


def parse_date(value: str) -> datetime | None:
    """The time in UTC, or None if the header cannot be read."""
    if (usual := _USUAL.match(value)) and usual[2].lower() in _MONTHS:
        return _read_usual_date(usual)
    value = _HALF_DAY.sub(_in_24_hours, value.strip()[:200])
    iso = _ISO.match(value)
    found = _read_iso_date(iso) if iso else _read_loose_date(value)
    if found is None and (loose := _LOOSE.search(_LETTERS.sub(_english_month, value))):
        return _read_usual_date(loose)
    return found


def _in_24_hours(match: re.Match[str]) -> str:
    hour = int(match[1])
    is_late = match[3] in "Pp"
    return f"{hour % 12 + 12 * is_late if hour <= 12 else hour:02}{match[2]}"


def _english_month(match: re.Match[str]) -> str:
    """The English name of a month in another language; any other word as it is."""
    months: dict[str, list[str]] = load("headers")["months"]
    word = match[0].lower()
    return next((m for m, starts in months.items() if word.startswith(tuple(starts))), match[0])


def _read_usual_date(match: re.Match[str]) -> datetime | None:
    day, month, year, *time = match.groups()
    number = _MONTHS.get(month[:3].lower())
    if number is None:
        return None
    century = 0 if len(year) > 2 else 2000 if int(year) < 69 else 1900
    date = (int(year) + century, number, int(day))
    return _utc_from_groups(date, time)


def _read_iso_date(match: re.Match[str]) -> datetime | None:
    year, month, day, *time = match.groups()
    return _utc_from_groups((int(year), int(month), int(day)), time)


def _utc_from_groups(date: tuple[int, int, int], time: list[str | None]) -> datetime | None:
    hour, minute, second, sign, hours, minutes = time
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    return _to_utc(date, clock, -offset if sign == "-" else offset)


def _read_loose_date(value: str) -> datetime | None:
    from email.utils import parsedate_tz  # a large import for a rare date

    try:
        parts = parsedate_tz(_ZONE.sub(r"\1\2", value))
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    if parts is None:
        return None
    year, month, day, hour, minute, second = parts[:6]
    offset = timedelta(seconds=parts[9] or 0)
    return _to_utc((year, month, day), (hour, minute, second), offset)


def _to_utc(
    date: tuple[int, int, int], clock: tuple[int, int, int], offset: timedelta
) -> datetime | None:
    year, month, day = date
    year += 0 if year > 999 else 2000 if year < 50 else 1900  # RFC 5322 §4.3
    hour, minute, second = clock
    try:
        local = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
        return local - offset if abs(offset) < timedelta(days=1) else local
    except (ValueError, OverflowError):
        return None


def format_date(date: datetime) -> str:
    """A Date header: RFC 5322 §3.3, in UTC."""
    utc = date.astimezone(UTC)
    day, month = _DAY_NAMES[utc.weekday()], _MONTH_NAMES[utc.month - 1]
    return f"{day}, {utc.day:02} {month} {utc.year:04} {utc:%H:%M:%S} +0000"


_ATTESTED = frozenset(("authentication-results", "arc-authentication-results", "received-spf"))


def decoded_pairs(fields: Fields) -> tuple[tuple[str, str], ...]:
    """Every field, in order, with its encoded words decoded.

    Authentication-Results are not decoded: an encoded word could inject a result.
    """
    if not any("=?" in value for _, value in fields.pairs):
        return tuple(fields.pairs)
    return tuple(
        (name, decode_words(value) if "=?" in value and name.lower() not in _ATTESTED else value)
        for name, value in fields.pairs
    )
