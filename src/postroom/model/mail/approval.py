"""Approval: who may write to whom without asking, and mail that waits for a person's decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from typing import Literal, NamedTuple

from postroom.model.values import dataclass

Approval = Literal["never", "risky", "always"]
APPROVALS: tuple[Approval, ...] = ("never", "risky", "always")
"""From the loosest to the strictest."""


@dataclass(frozen=True, slots=True)
class RecipientLists:
    """Addresses and `@domains`: those on `deny` are refused; those on `allow` are never new."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SenderLists:
    """The senders that an inbox accepts: addresses and `@domains`.

    Mail from those on `block`, and from any others if `allow` is not empty, goes to Junk; with the
    action `refuse` it is refused over SMTP.
    """

    allow: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    action: Literal["junk", "refuse"] = "junk"


@dataclass(frozen=True, slots=True)
class InboxPolicy:
    """The policy of an inbox: approval, recipients and accepted senders."""

    approval: Approval = "never"
    recipients: RecipientLists = RecipientLists()
    senders: SenderLists = SenderLists()

    @property
    def policy(self) -> Policy:
        """What its mail needs before it leaves."""
        return Policy(self.approval, self.recipients)


@dataclass(frozen=True, slots=True)
class Policy:
    """What outgoing mail needs before it leaves; of a key, of an inbox, or of the agent."""

    approval: Approval = "never"
    recipients: RecipientLists = RecipientLists()

    @property
    def is_open(self) -> bool:
        """Whether every mail may leave."""
        return self == OPEN_POLICY


OPEN_POLICY = Policy()
UNREADABLE_POLICY = Policy("always")
"""The policy of a key that is gone: a person decides."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why an outgoing mail waits for a person, or waited.

    `sha256` covers the composed bytes and the envelope: it names the mail that is approved.
    """

    sha256: str
    reasons: tuple[str, ...]
    held_at: datetime
    expires_at: datetime
    decision: Literal["approved", "rejected"] | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    note: str | None = None


class GateRequest(NamedTuple):
    """A mail that asks to leave, whichever way it was made.

    `inbox` is a row number, `raw` the SHA-256 of its bytes. `external_recipients` are those to whom
    it would leave, `authors` the ids of the keys whose policies hold. A scheduled mail `is_due`
    when it passes again.
    """

    inbox: int
    raw: str
    sender: str
    recipients: Sequence[str]
    external_recipients: Sequence[str]
    authors: Sequence[str]
    attachments: int
    hidden_chars: int
    thread_id: str | None
    disclosures: tuple[str, ...]
    now: datetime
    is_due: bool = False


@dataclass(frozen=True, slots=True)
class SuspiciousMail:
    """A mail with security findings that the caller read, or whose thread is answered.

    `name` is its id if it is in the same inbox, `participants` whom it is from and to.
    """

    name: str
    findings: tuple[str, ...]
    participants: frozenset[str]


@dataclass(frozen=True, slots=True)
class RiskFacts:
    """What is known of a mail that would leave; addresses are canonical.

    `external_recipients` are those that are not here, `known` those of them that the inbox has
    written to or heard from. `hidden_chars` counts the characters that a reader of its HTML does
    not see.
    """

    external_recipients: tuple[str, ...]
    known: frozenset[str] = frozenset()
    attachments: int = 0
    hidden_chars: int = 0
    suspicious: tuple[SuspiciousMail, ...] = ()
    disclosures: tuple[str, ...] = ()
    sent_last_hour: int = 0
    busiest_hour: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision of the policies about a mail: refused, held or sent."""

    verdict: Literal["leaves", "held", "refused", "stays"]
    reasons: tuple[str, ...]
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplyVerdict:
    """What the policies say of a reply by one agent; `author` is the id of its key."""

    author: str
    name: str
    to: tuple[str, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ReplyVerdicts:
    """What the policies say of replies to a message; `more` agents were not asked."""

    results: tuple[ReplyVerdict, ...]
    more: int = 0
    message_id: str = field(default="", metadata={"internal": True})
