"""A mail that is read from a file, and whether it is one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from postroom.model.inbox import INBOX


@dataclass(frozen=True, slots=True)
class SourceMail:
    """A mail in a file, with the mailbox and flags that its path gives."""

    place: str
    raw: bytes
    mailbox: str = INBOX
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A path without readable mail, and the problem."""

    place: str
    problem: str


NO_HEADER = "not a mail: it has no From, Date, Subject or other header of one"
_HEAD_BYTES = 65_536
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From [^\n]*\n)?[!-9;-~]{1,200}[ \t]*:")
_KNOWN = re.compile(
    rb"^(?:\xef\xbb\xbf)?(?:from|sender|reply-to|to|cc|bcc|subject|date|message-id|in-reply-to"
    rb"|references|received|return-path|delivered-to|mime-version|resent-[a-z-]+)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def has_mail_header(raw: bytes) -> bool:
    """Whether it begins with header fields, one of which is of RFC 5322 or of a mail server."""
    head = raw[:_HEAD_BYTES].lstrip().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    fields = head.partition(b"\n\n")[0]
    return bool(_FIRST_LINE.match(fields) and _KNOWN.search(fields))
