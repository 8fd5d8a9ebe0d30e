"""The gate that outgoing mail passes, and the decisions of a person about held mail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from postroom.approval import digest_of, hold_reasons, refuse_denied, refuse_unlisted
from postroom.errors import Conflict, NotFound, no_such
from postroom.mail.addresses import canonical_address
from postroom.mail.text.fold import as_key
from postroom.model.inbox import Visible
from postroom.model.key import AGENT, NOTICES, OWNER
from postroom.model.mail.approval import (
    UNREADABLE_POLICY,
    GateRequest,
    Hold,
    Policy,
    RiskFacts,
    SuspiciousMail,
)
from postroom.model.mail.message import Recipient, findings_of, hidden_chars
from postroom.model.mail.storage import Gate
from postroom.store.sql.credentials import keys_by_id
from postroom.store.sql.events import MessageRef, add_event
from postroom.store.sql.inboxes import inbox_policy
from postroom.store.sql.outbox.queue import ABOUT, ROW_KEY, GateResult, set_recipients
from postroom.store.sql.statements import (
    all_among,
    any_of,
    dumps,
    from_text,
    hold_in,
    inbox_number,
    scalar,
    seconds,
    stored_hold,
    update,
)
from postroom.store.transaction import Row, Transaction

READ_WITHIN = timedelta(minutes=30)
"""How long reading suspicious mail counts."""

MAX_READS = 200
"""How many suspicious messages are remembered for a caller."""

_WITHOUT_POLICY = (OWNER.key_id, "")
"""The owner, and rules of a version that recorded no key."""

_HOUR_S = 3600
_WEEK_S = 7 * 24 * _HOUR_S
_MAX_THREAD = 200


def explain_hold(reasons: Sequence[str]) -> str:
    """What the caller whose mail is held is shown."""
    return (
        f"held until a person approves it: {'; '.join(reasons)}. Continue with other work; wait_s "
        "or waiting for mail returns the outcome, and cancelling it makes it a draft again"
    )


def pass_gate(tx: Transaction, mail: GateRequest, gate: Gate) -> Hold | None:
    """Whether a mail may leave (None), or is held for a person, and why.

    Raises Forbidden if a policy denies a recipient.
    """
    policies = policies_of(tx, mail.authors, mail.inbox, gate.agent)
    refuse_denied(policies, mail.recipients)
    external_recipients = tuple(canonical_address(address) for address in mail.external_recipients)
    refuse_unlisted(policies, external_recipients)
    closed = [p for p in policies if p.approval != "never"]
    if not closed or not external_recipients:
        return None
    leaving = _leaving(
        tx, mail, external_recipients, assess_risks=any(p.approval == "risky" for p in closed)
    )
    reasons = [reason for policy in closed for reason in hold_reasons(policy, leaving, "sender")]
    if not reasons:
        return None
    return Hold(digest_of(mail), tuple(dict.fromkeys(reasons)), mail.now, mail.now + gate.hold_for)


def evaluate_mail(tx: Transaction, mail: GateRequest, inbox_id: str, gate: Gate) -> Hold | None:
    """What the gate would say of a mail from an inbox. Raises Forbidden."""
    return pass_gate(tx, mail._replace(inbox=inbox_number(tx, inbox_id)), gate)


def policies_of(tx: Transaction, authors: Iterable[str], inbox: int, agent: Policy) -> list[Policy]:
    """The policies for mail of these authors from an inbox; that of a lost key is strict."""
    ids = [author for author in dict.fromkeys(authors) if author not in _WITHOUT_POLICY]
    if ids == [NOTICES.key_id]:
        return []
    key_ids = [author for author in ids if author != AGENT.key_id]
    keys = {key.id: key.policy for key in keys_by_id(tx, key_ids)} if key_ids else {}
    known = {AGENT.key_id: agent, **keys}
    found = [known.get(author, UNREADABLE_POLICY) for author in ids]
    return [*found, inbox_policy(tx, inbox).policy]


STORED = """
    SELECT m.details, m.raw, m.from_address, t.id, o.authors,
           (SELECT count(*) FROM attachments a
             WHERE a.inbox = :inbox AND a.message = :number AND a.is_inline = 0)
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
      LEFT JOIN outbox o ON +o.inbox = +m.inbox AND o.message = m.number
     WHERE m.inbox = :inbox AND m.number = :number
"""


def pass_gate_again(
    tx: Transaction,
    inbox: int,
    number: int,
    gate: Gate,
    authors: Iterable[str],
    external_recipients: Sequence[str],
    *,
    disclosures: tuple[str, ...] = (),
    is_due: bool = False,
    now: datetime,
) -> GateResult:
    """Pass a stored mail through the gate, for everyone who had a part in it.

    One that a person has approved passes. A hold is stored with the message. A scheduled mail that
    *is due* was written before, so only what can have changed since is considered: the policies.

    Raises Forbidden if a policy denies a recipient.
    """
    row = tx.one(STORED, inbox=inbox, number=number)
    assert row is not None
    details = from_text(row[0])
    mail = GateRequest(
        inbox=inbox,
        raw=row[1],
        sender=row[2],
        recipients=[r["address"] for r in details["recipients"]],
        external_recipients=external_recipients,
        authors=tuple(dict.fromkeys((*from_text(row[4] or "[]"), *authors))),
        attachments=int(row[5]),
        hidden_chars=hidden_chars(details.get("security", {})),
        thread_id=row[3],
        disclosures=disclosures,
        now=now,
        is_due=is_due,
    )
    digest, hold = digest_of(mail), hold_in(details)
    if hold is not None and hold.decision == "approved" and hold.sha256 == digest:
        return GateResult(digest, tuple(mail.authors))
    held = pass_gate(tx, mail, gate)
    if held is not None:
        set_hold(tx, inbox, number, held)
    return GateResult(digest, tuple(mail.authors), held)


def _leaving(
    tx: Transaction, mail: GateRequest, external_recipients: tuple[str, ...], *, assess_risks: bool
) -> RiskFacts:
    if not assess_risks:
        return RiskFacts(external_recipients)
    since = seconds(mail.now) - _HOUR_S
    facts = RiskFacts(
        external_recipients,
        known=known_addresses(tx, mail.inbox, external_recipients),
        attachments=mail.attachments,
        hidden_chars=mail.hidden_chars,
    )
    if mail.is_due:
        return facts
    return replace(
        facts,
        suspicious=tuple(_suspicious(tx, mail)),
        disclosures=mail.disclosures,
        sent_last_hour=max(
            int(scalar(tx, SENT_SINCE, caller=author, since=since)) for author in mail.authors
        ),
        busiest_hour=min(
            int(scalar(tx, BUSIEST_HOUR, caller=author, week=since - _WEEK_S, since=since) or 0)
            for author in mail.authors
        ),
    )


def known_addresses(tx: Transaction, inbox: int, addresses: Sequence[str]) -> frozenset[str]:
    """Which canonical addresses an inbox has written to or heard from, or are its own."""
    by_key = {as_key(address): address for address in addresses}
    among, params = any_of("address", list(by_key))
    sql = f"""SELECT address FROM contacts WHERE inbox = :inbox AND address {among}
               UNION SELECT email FROM identities WHERE inbox = :inbox AND email {among}"""
    return frozenset(by_key[row[0]] for row in tx.all(sql, inbox=inbox, **params))


SENT_SINCE = "SELECT count(*) FROM sends WHERE caller = :caller AND at > :since"
BUSIEST_HOUR = """
    SELECT max(n) FROM (
        SELECT count(*) AS n FROM sends WHERE caller = :caller AND at > :week AND at <= :since
         GROUP BY at / 3600) AS hours
"""


READS = "SELECT message, findings FROM suspicious_reads WHERE caller {among} AND at > :since"
OF_THREAD = """
    SELECT m.id, m.addresses, m.details FROM messages m
      JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE t.id = :thread AND m.is_outbound = 0 AND m.is_suspicious = 1
     ORDER BY m.number DESC LIMIT :limit
"""
PEOPLE = "SELECT m.addresses, m.inbox FROM messages m WHERE m.id = :id"


def _suspicious(tx: Transaction, mail: GateRequest) -> Iterable[SuspiciousMail]:
    """The suspicious mail that the authors have read lately, and that of the answered thread."""
    among, params = any_of("caller", list(mail.authors))
    since = seconds(mail.now - READ_WITHIN)
    read = {row[0]: row[1] for row in tx.all(READS.format(among=among), **params, since=since)}
    for message_id, findings in read.items():
        addresses, inbox = tx.one(PEOPLE, id=message_id) or ("[]", 0)
        # Who sees this mail may not see the other inbox.
        name = message_id if inbox == mail.inbox else "a mail of another inbox"
        yield SuspiciousMail(name, tuple(from_text(findings)), _people(addresses))
    in_thread = {"thread": mail.thread_id, "limit": _MAX_THREAD}
    for message_id, addresses, details in tx.all(OF_THREAD, **in_thread) if mail.thread_id else ():
        if message_id not in read:
            findings = findings_of(from_text(details))
            yield SuspiciousMail(message_id, findings, _people(addresses))


def _people(addresses: str) -> frozenset[str]:
    """Whom a mail is from and to; a Reply-To is nobody of them.

    Others in its thread do not count: an agent can merge threads, and hand in mail.
    """
    roles = ("from", "to", "cc")
    return frozenset(canonical_address(a[2]) for a in from_text(addresses) if a[0] in roles)


AMONG = "SELECT m.id, m.details FROM messages m WHERE m.id {among} AND m.is_suspicious = 1"
AMONG_THREADS = """
    SELECT m.id, m.details FROM messages m
      JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE t.id {among} AND m.is_suspicious = 1
"""


def suspicious_among(tx: Transaction, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The suspicious messages among these messages and threads, with the findings about them."""
    threads = [id_ for id_ in ids if id_.startswith("thr_")]
    messages = [id_ for id_ in ids if not id_.startswith("thr_")]
    found: dict[str, tuple[str, ...]] = {}
    for sql, named in ((AMONG, messages), (AMONG_THREADS, threads)):
        rows = all_among(tx, sql, named)
        found |= {row[0]: findings_of(from_text(row[1])) for row in rows}
    return found


def record_reads(
    tx: Transaction, caller: str, read: Mapping[str, tuple[str, ...]], now: datetime
) -> None:
    """Remember that a caller has read suspicious messages, with the findings about them."""
    tx.run("DELETE FROM suspicious_reads WHERE at <= :since", since=seconds(now - READ_WITHIN))
    for message_id, findings in read.items():
        tx.run(
            """INSERT INTO suspicious_reads (caller, message, findings, at)
               VALUES (:caller, :message, :findings, :at)
               ON CONFLICT (caller, message) DO UPDATE SET at = excluded.at""",
            caller=caller,
            message=message_id,
            findings=dumps(findings),
            at=seconds(now),
        )
    tx.run(
        """DELETE FROM suspicious_reads WHERE caller = :caller AND message NOT IN
               (SELECT message FROM suspicious_reads WHERE caller = :caller
                 ORDER BY at DESC, message LIMIT :most)""",
        caller=caller,
        most=MAX_READS,
    )


FIND = """
    SELECT o.inbox, o.message, i.id, o.state, o.sha256, o.queued_at, m.details, o.next_at
      FROM outbox o JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
      JOIN inboxes i ON i.number = +m.inbox
     WHERE m.id = :id
"""
RELEASE = f"""
    UPDATE outbox SET state = 'waiting', is_scheduled = 1, next_at = :next_at, sent_by = NULL
     WHERE {ROW_KEY} AND state = 'held' AND sha256 = :sha256
"""
CLOSE = f"UPDATE outbox SET state = 'done' WHERE {ROW_KEY} AND state = 'held'"
EXPIRED = """
    SELECT inbox, message FROM outbox WHERE state = 'held' AND next_at <= :now
     ORDER BY next_at LIMIT 200
"""
NEXT_HOLD = "SELECT min(next_at) FROM outbox WHERE state = 'held'"


class Decision(NamedTuple):
    """What a person decided about a held mail; `sha256` names the mail they have seen."""

    by: str
    sha256: str
    now: datetime
    note: str | None = None


def approve_mail(
    tx: Transaction, message_id: str, visible: Visible, *, by: str, sha256: str, now: datetime
) -> None:
    """Let a held mail leave; repeated for the same mail, it has no further effect.

    Raises:
        NotFound: there is no such mail.
        Conflict: it is another mail than the one that was seen, or no longer held.
    """
    decision = Decision(by, sha256, now)
    row = _held(tx, message_id, visible, decision, "approved")
    if row is None:
        return
    if row[7] <= seconds(decision.now):
        raise Conflict(f"{message_id} was not approved in time; write it again to send it")
    it = {"inbox": row[0], "message": row[1]}
    due = max(row[5], seconds(decision.now))
    if not tx.run(RELEASE, **it, next_at=due, sha256=decision.sha256):
        raise Conflict(
            f"another person decided on {message_id} first; list_outbox shows the decision"
        )
    addresses = _decided(tx, row[0], row[1], decision, "approved")
    status = "scheduled" if row[5] > seconds(decision.now) else "queued"
    set_recipients(tx, row[0], row[1], {a: Recipient(a, status) for a in addresses}, decision.now)
    tx.announce("outbox")


def reject_mail(
    tx: Transaction,
    message_id: str,
    visible: Visible,
    *,
    by: str,
    sha256: str,
    now: datetime,
    note: str | None = None,
) -> None:
    """Reject a held mail permanently; repeated, this has no further effect.

    Raises what `approve_mail` raises.
    """
    decision = Decision(by, sha256, now, note)
    row = _held(tx, message_id, visible, decision, "rejected")
    if row is None:
        return
    why = "rejected by a person" + (f": {decision.note}" if decision.note else "")
    _reject(tx, row[0], row[1], decision, why)


def expire_holds(tx: Transaction, now: datetime) -> int:
    """Reject held mail that nobody approved in time, and return how many."""
    rows = tx.all(EXPIRED, now=seconds(now))
    for inbox, number in rows:
        _reject(tx, inbox, number, Decision("", "", now), "not approved in time")
    return len(rows)


def _reject(tx: Transaction, inbox: int, number: int, decision: Decision, why: str) -> None:
    tx.run(CLOSE, inbox=inbox, message=number)
    addresses = _decided(tx, inbox, number, decision, "rejected")
    changes = {a: Recipient(a, "rejected", why) for a in addresses}
    set_recipients(tx, inbox, number, changes, decision.now)


def _held(
    tx: Transaction,
    message_id: str,
    visible: Visible,
    decision: Decision,
    wanted: Literal["approved", "rejected"],
) -> Row | None:
    """The row of a held mail; None if the same was decided before."""
    row = tx.one(FIND, id=message_id)
    if row is None or not visible.sees(row[2]):
        raise NotFound(no_such("held mail", message_id))
    hold = hold_in(from_text(row[6]))
    if hold is None:
        raise NotFound(f"{message_id} is not held; it needs no approval")
    if hold.sha256 != decision.sha256:
        raise Conflict(f"{message_id} does not have this sha256; read it again and use its sha256")
    if hold.decision == wanted and hold.decided_by:
        return None
    if row[3] != "held" or hold.decision is not None:
        state = "was not approved in time" if hold.decided_by == "" else f"was {hold.decision}"
        raise Conflict(f"{message_id} {state if hold.decision else 'was cancelled'}")
    return row


def set_hold(tx: Transaction, inbox: int, number: int, hold: Hold) -> None:
    """Store a new hold with a message."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is not None:
        details = dumps({**from_text(row[3]), "hold": stored_hold(hold)})
        update(tx, "messages", {"inbox": inbox, "number": number}, details=details)


def _decided(
    tx: Transaction,
    inbox: int,
    number: int,
    decision: Decision,
    verdict: Literal["approved", "rejected"],
) -> list[str]:
    """Record a decision with its message, add the event, and return the held recipients."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    details = from_text(row[3]) if row else {}
    hold = hold_in(details)
    if row is None or hold is None:
        return []
    decided = replace(
        hold,
        decision=verdict,
        decided_by=decision.by,
        decided_at=decision.now.replace(microsecond=0),
        note=decision.note,
    )
    details["hold"] = stored_hold(decided)
    update(tx, "messages", {"inbox": inbox, "number": number}, details=dumps(details))
    if verdict == "approved":
        data: dict[str, object] = {"sha256": hold.sha256, "approved_by": decision.by}
        add_event(tx, "message.approved", decision.now, MessageRef(*row[:3]), data)
    return [r["address"] for r in details["recipients"] if r["status"] == "held"]
