"""Receipts for callers without the scope `read`, and the record of suspicious mail that was read.

Scopes do not include each other. A caller that may write, send or administer, but not read, gets
ids, statuses, counts and what it sent itself, but no stored content. A field is omitted unless it
is named here, so that a class that is added later discloses nothing by mistake.

If a caller has read mail with security findings, this counts when it sends mail. A row of a list
does not count as reading: it has only the subject and the beginning of the text, and otherwise a
caller that lists an inbox would be affected by each mail in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from postroom.calls.context import RequestContext
from postroom.calls.request import Request
from postroom.errors import Forbidden, MailError
from postroom.model.account import Capabilities
from postroom.model.agent import FileText, MailLine
from postroom.model.event import AuditEntry, Webhook, WebhookDelivery
from postroom.model.imap import Issue, LiveCopy, LiveDeletion, LiveMove
from postroom.model.inbox import Inbox
from postroom.model.key import Key, Scope
from postroom.model.mail.message import (
    ActionResult,
    AttachmentContent,
    AttachmentText,
    Download,
    DownloadLink,
    FailedAction,
    MarkedMessage,
    Message,
    MessageHtml,
    Received,
    Recipient,
    ThreadMessage,
    findings_in,
)
from postroom.model.mail.sending import PAUSED, HeldMail, ReplyPreview, Sent
from postroom.model.page import Page, Receipt

IDENTIFIER = re.compile(r"[a-z]{3}_[0-9a-z]+|owner|agent")
_KEPT = re.compile(
    r"id|\w+_ids?|status|state|code|count|\w+_count|deduplicated|enabled|position|version"
    r"|created|deleted|created_at|updated_at|is_default|is_paused|waiting|synced|total"
    r"|succeeded|failed|attempts|steps_\w+|applied_\w+|has_more"
)
"""Fields that are an id, a status or a count, whatever they belong to."""

_ALSO: Mapping[type, frozenset[str]] = {
    Inbox: frozenset({"address"}),
    Received: frozenset({"hint"}),
    AuditEntry: frozenset({"at", "actor", "via", "action", "hash"}),
    Capabilities: frozenset(f.name for f in fields(Capabilities)) - {"address", "last_refusal"},
    LiveCopy: frozenset({"source_mailbox", "destination_mailbox"}),
    LiveMove: frozenset({"source_mailbox", "destination_mailbox"}),
    LiveDeletion: frozenset({"mailbox"}),
}
"""Additional fields shown, by result type: names that serve as ids, and mailboxes that an IMAP
message id already contains."""

_ADMINISTRATIVE = (Key, Webhook, WebhookDelivery)
"""What the scope `admin` is for; there is no other scope to see it with."""

_SENT_AS = {"yaml": ("rule_yaml",)}
"""Fields that have another name as an argument."""

_TO = ("to", "cc", "bcc", "recipient")
_WITHHELD = "the response is shown only to a key with the scope read"


def needs_read(ctx: RequestContext, why: str) -> None:
    """Refuse a caller without the scope `read` what depends on stored content. Raises Forbidden."""
    if Scope.READ not in ctx.caller.scopes:
        raise Forbidden(f"{why}, so the key also needs the scope read")


def receipt(result: Any, request: Request) -> Any:
    """The part of a result that a caller without the scope `read` may see."""
    return _part(result, request.model_dump(by_alias=True))


def withheld(error: MailError) -> MailError:
    """The error without the words of mail or of another server."""
    if not error.is_untrusted:
        return error
    short = copy(error)
    short.args, short.details = (f"this failed ({error.code}); {_WITHHELD}",), {}
    short.is_untrusted = False
    return short


def _part(value: Any, given: Mapping[str, Any]) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_part(item, given) for item in value)
    if isinstance(value, Page):
        return replace(value, results=tuple(_part(row, given) for row in value.results))
    if isinstance(value, ActionResult):
        return replace(value, failed=tuple(map(_failure, value.failed)))
    if isinstance(value, Issue):
        return replace(value, message=f"{value.code} at {value.stage}; {_WITHHELD}")
    if isinstance(value, _ADMINISTRATIVE) or not is_dataclass(value):
        return value
    return _receipt(value, given)


def _receipt(value: Any, given: Mapping[str, Any]) -> Receipt:
    shown: dict[str, Any] = {}
    for name in (f.name for f in fields(value) if not f.metadata.get("internal")):
        part = getattr(value, name)
        if part is None or not _may_show(value, name, part, given):
            continue
        shorter = _part(part, given)
        if not _is_empty(shorter):
            shown[name] = shorter
    return Receipt(shown, getattr(value, "status", None))


def _may_show(value: Any, name: str, part: Any, given: Mapping[str, Any]) -> bool:
    if _KEPT.fullmatch(name) or name in _ALSO.get(type(value), ()):
        return True
    if _holds_shapes(part):
        return True
    if isinstance(value, AuditEntry) and name == "target":
        return IDENTIFIER.fullmatch(part) is not None
    if isinstance(value, Recipient):
        return _was_given(value.address, given)
    if isinstance(value, Sent) and name == "warnings":
        return bool(part == (PAUSED,))
    names = (name, *_SENT_AS.get(name, ()))
    return any(n in given and given[n] == _plain(part) for n in names)


def _holds_shapes(part: Any) -> bool:
    """Whether its own fields decide what is shown of it."""
    items = part if isinstance(part, (tuple, list)) else (part,)
    return bool(items) and all(is_dataclass(item) for item in items)


def _is_empty(part: Any) -> bool:
    """Whether nothing is left of shapes."""
    items = part if isinstance(part, tuple) else (part,)
    return bool(items) and all(isinstance(item, Receipt) and not item.shown for item in items)


def _was_given(address: str, given: Mapping[str, Any]) -> bool:
    texts = (str(given.get(name, "")).lower() for name in _TO)
    return any(address.lower() in text for text in texts)


def _plain(part: Any) -> Any:
    return list(part) if isinstance(part, tuple) else part


def _failure(failure: FailedAction) -> FailedAction:
    if not failure.code.startswith("provider"):
        return failure
    return replace(failure, message=f"the provider refused it; {_WITHHELD}")


_MAX_DEPTH = 4
_OF_MESSAGES = (
    AttachmentContent,
    AttachmentText,
    Download,
    DownloadLink,
    FileText,
    HeldMail,
    MarkedMessage,
    MessageHtml,
    ReplyPreview,
)
"""Results that show a part of a message, or what a held mail answers."""


async def note_suspicious(ctx: RequestContext, result: Any) -> None:
    """Remember the suspicious mail that a result shows, for as long as it counts."""
    found: dict[str, tuple[str, ...]] = {}
    named: set[str] = set()
    for id_, findings in _messages_in(result, _MAX_DEPTH):
        if findings is None:
            named.add(id_)
        elif findings:
            found[id_] = findings
    if named:
        found |= await ctx.store.suspicious_among(sorted(named))
    if found:
        await ctx.store.record_reads(ctx.caller.key_id, found, ctx.clock())


def _messages_in(value: Any, depth: int) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Each message whose text a result shows, and its findings; None if only its id is known."""
    if isinstance(value, (Message, ThreadMessage)) or (isinstance(value, MailLine) and value.text):
        yield value.id, value.findings
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _messages_in(item, depth)
    elif isinstance(value, _OF_MESSAGES):
        if about := getattr(value, "answers", None) or getattr(value, "message_id", None):
            yield about, None
            yield about, findings_in(getattr(value, "security", None) or {}, is_list=False)
    elif depth and is_dataclass(value):
        for field in fields(value):
            yield from _messages_in(getattr(value, field.name), depth - 1)
