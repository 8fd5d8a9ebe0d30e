"""Drills on sending: kills, relays with arbitrary replies, and fifty concurrent callers."""

from __future__ import annotations

import asyncio
import time
import urllib.error
from collections import Counter
from contextlib import suppress

from tests.faults.defects import LEASE_S
from tests.faults.server_under_test import (
    TIMEOUT_S,
    Outcome,
    ServerUnderTest,
    count_duplicates,
    server,
)
from tests.servers.relay import CUT, Part, Relay, Reply, relaying

STAGES = ("MAIL", "RCPT", "DATA", "DOT", "after")


def killed_while_sending(rounds: int, defect: str = "none", **extra: str) -> Outcome:
    """Send SIGKILL at each stage of a transmission; callers repeat with the same key."""
    return asyncio.run(_killed_while_sending(rounds, defect, **extra))


async def _killed_while_sending(rounds: int, defect: str, **extra: str) -> Outcome:
    outcome = Outcome("kill -9 while sending, same key again")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url, **extra) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            sent: list[str] = []
            for number in range(rounds):
                sent.append(await _one_send(running, relay, number, STAGES[number % len(STAGES)]))
                outcome.tried += 1
            await settle(running, sent)
            taken = Counter(subject_of(m.data) for m in relay.mails)
            outcome.acknowledged = len(sent)
            outcome.doubled = count_duplicates(taken)
            outcome.doubled += len(sent) - len(set(sent))
            outcome.lost = await lost_among(running, sent, taken)
            outcome.torn = await asyncio.to_thread(running.problems)
    return outcome


def subject_of(data: bytes) -> str:
    return data.partition(b"Subject: ")[2].partition(b"\r\n")[0].decode()


async def _one_send(running: ServerUnderTest, relay: Relay, number: int, stage: str) -> str:
    """Send, and kill the server when the relay reaches a stage; then repeat with the same key."""
    dead = asyncio.Event()

    def at_stage(_line: str) -> bytes:
        if not dead.is_set():
            dead.set()
            running.kill()
        return b"250 2.0.0 ok" if stage != "DATA" else b"354 go ahead"

    relay.script = {} if stage == "after" else {stage: at_stage}
    outgoing_mail = {
        "to": ["ana@example.com"],
        "subject": f"drill {number}",
        "body_text": "x",
        "idempotency_key": f"key {number}",
    }
    answer: dict[str, object] = {}
    with suppress(OSError, urllib.error.URLError):
        answer = await asyncio.to_thread(running.ask, "POST", "/v1/messages", outgoing_mail)
    if stage == "after":
        await asyncio.sleep(0.05)
        running.kill()
    else:
        with suppress(TimeoutError):
            await asyncio.wait_for(dead.wait(), 10)
    relay.script = {}
    running.kill()
    await asyncio.to_thread(running.start)
    again = await asyncio.to_thread(running.ask, "POST", "/v1/messages", outgoing_mail)
    assert not answer or answer["message_id"] == again["message_id"]
    return str(again["message_id"])


async def lost_among(running: ServerUnderTest, sent: list[str], taken: Counter[str]) -> int:
    """The number of mails that are neither sent nor `unknown`; `drill n` is the n-th mail."""
    statuses = [await asyncio.to_thread(_status, running, one) for one in sent]
    return sum(
        status not in ("sent", "unknown") or (status == "sent" and not taken[f"drill {number}"])
        for number, status in enumerate(statuses)
    )


async def settle(running: ServerUnderTest, sent: list[str]) -> None:
    """Wait until the leases of killed processes have expired and no mail is in progress."""
    deadline = time.monotonic() + LEASE_S + TIMEOUT_S
    while time.monotonic() < deadline:
        statuses = {await asyncio.to_thread(_status, running, one) for one in sent}
        if statuses <= {"sent", "unknown", "failed", "bounced"}:
            return
        await asyncio.sleep(0.5)


def _status(running: ServerUnderTest, message_id: str) -> str:
    return str(running.ask("GET", f"/v1/messages/{message_id}")["status"])


CODES = (b"199", b"220", b"250", b"354", b"421", b"450", b"452", b"500", b"552", b"554", b"999")


def _peers(most: int) -> list[tuple[str, Reply]]:
    """What relays reply at each stage: every code, nothing, and every reply cut at every byte."""
    usual = {"DATA": b"354 go ahead\r\n"}
    peers: list[tuple[str, Reply]] = []
    for stage in ("GREETING", "EHLO", "MAIL", "RCPT", "DATA", "DOT"):
        whole = usual.get(stage, b"250 2.0.0 ok\r\n")
        peers += [(stage, CUT), (stage, b"what?")]
        peers += [(stage, code + b" so it is") for code in CODES]
        peers += [(stage, Part(whole[:place])) for place in range(1, len(whole) - 1)]
    step = max(1, len(peers) // most)
    return peers[::step]


def strange_relays(most: int, defect: str = "none", **extra: str) -> Outcome:
    """A relay replies anything at any stage, then recovers: each mail is sent once or reported."""
    return asyncio.run(_strange_relays(most, defect, **extra))


async def _strange_relays(most: int, defect: str, **extra: str) -> Outcome:
    outcome = Outcome("relays that say anything, cut anywhere")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url, **extra) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            for number, (stage, reply) in enumerate(_peers(most)):
                relay.script = {stage: reply}
                relay.hang_up()
                await _one_mail(running, relay, f"drill {number}", outcome)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome


async def _one_mail(running: ServerUnderTest, relay: Relay, subject: str, outcome: Outcome) -> None:
    outgoing_mail = {"to": ["ana@example.com"], "subject": subject, "body_text": "x"}
    sent = await asyncio.to_thread(running.ask, "POST", "/v1/messages", outgoing_mail)
    message_id, said = str(sent["message_id"]), await _said(running, str(sent["message_id"]))
    relay.script = {}
    if said == "queued":
        await asyncio.to_thread(running.ask, "POST", f"/v1/outbox/{message_id}/retry")
        await settle(running, [message_id])
        said = await asyncio.to_thread(_status, running, message_id)
    # A mail that the relay received but refused or did not acknowledge is not delivered.
    copies = sum(1 for m in relay.mails if subject_of(m.data) == subject and m.is_taken)
    outcome.tried += 1
    outcome.acknowledged += 1
    outcome.lost += said == "queued" or (said == "sent" and not copies)
    outcome.doubled += max(0, copies - 1) + (said == "failed" and copies)


LOST: tuple[Reply, ...] = (CUT, Part(b"2"), Part(b"250"), Part(b"250 2.0.0 queued as"))
"""The part of the reply to a mail that arrives before the connection is closed."""


def lost_answers(rounds: int, defect: str = "none", **extra: str) -> Outcome:
    """The relay accepts a mail and its reply is lost: the status is unknown, the mail sent once.

    This holds after the next mail, after a restart, and when the same call is repeated without a
    key.
    """
    return asyncio.run(_lost_answers(rounds, defect, **extra))


async def _lost_answers(rounds: int, defect: str, **extra: str) -> Outcome:
    outcome = Outcome("the answer of the relay is lost")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url, **extra) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            for number in range(rounds):
                relay.script = {"DOT": LOST[number % len(LOST)]}
                await _one_lost(running, f"drill {number}", outcome)
                relay.script = {}
                if number % 25 == 3:
                    await asyncio.to_thread(running.kill)
                    await asyncio.to_thread(running.start)
            last = {"to": ["ana@example.com"], "subject": "last", "body_text": "x", "wait_s": 30}
            await asyncio.to_thread(running.ask, "POST", "/v1/messages", last)
            taken = Counter(subject_of(m.data) for m in relay.mails)
            outcome.lost += sum(1 for number in range(rounds) if not taken[f"drill {number}"])
            outcome.doubled += count_duplicates(taken)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome


async def _one_lost(running: ServerUnderTest, subject: str, outcome: Outcome) -> None:
    outgoing_mail = {"to": ["ana@example.com"], "subject": subject, "body_text": "x"}
    sent = await asyncio.to_thread(
        running.ask, "POST", "/v1/messages", outgoing_mail | {"wait_s": 10}
    )
    again = await asyncio.to_thread(running.ask, "POST", "/v1/messages", outgoing_mail)
    outcome.tried += 1
    outcome.acknowledged += 1
    outcome.torn += (sent["status"] != "unknown") + (again["message_id"] != sent["message_id"])


async def _said(running: ServerUnderTest, message_id: str) -> str:
    """The status of a mail once the relay was asked, whatever the outcome of the attempt."""
    path = f"/v1/events?message_id={message_id}"
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        page = await asyncio.to_thread(running.ask, "GET", path)
        if page["total"] != 1:
            break
        await asyncio.sleep(0.05)
    return await asyncio.to_thread(_status, running, message_id)


def one_key(rounds: int, defect: str = "none", **extra: str) -> Outcome:
    """Fifty concurrent callers send with one idempotency key."""
    return asyncio.run(_one_key(rounds, defect, **extra))


async def _one_key(rounds: int, defect: str, **extra: str) -> Outcome:
    outcome = Outcome("50 callers with one key")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url, **extra) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            for number in range(rounds):
                outgoing_mail = {
                    "to": ["ana@example.com"],
                    "subject": f"drill {number}",
                    "wait_s": 10,
                }
                outgoing_mail |= {"body_text": "x", "idempotency_key": f"key {number}"}
                answers = await asyncio.gather(
                    *(
                        asyncio.to_thread(running.ask, "POST", "/v1/messages", outgoing_mail)
                        for _ in range(50)
                    )
                )
                outcome.tried += 50
                outcome.acknowledged += len(answers)
                outcome.doubled += len({str(answer["message_id"]) for answer in answers}) - 1
            taken = Counter(subject_of(m.data) for m in relay.mails)
            outcome.lost += sum(1 for number in range(rounds) if not taken[f"drill {number}"])
            outcome.doubled += count_duplicates(taken)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome
