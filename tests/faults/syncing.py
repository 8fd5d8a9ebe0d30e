"""Kill a server during the first sync of an account."""

from __future__ import annotations

import imaplib
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

from tests.faults.server_under_test import (
    TIMEOUT_S,
    Outcome,
    ServerUnderTest,
    count_duplicates,
    server,
)
from tests.mails import mail
from tests.servers.dovecot import PASSWORD, Dovecot

MAILS = 12
"""The number of new mails in each round."""

TOLD = 0.3
"""In this many rounds mail arrives during IDLE; in the others before the start."""

ROUNDS_OF_AN_INSTALLATION = 250
LOOK_S = 0.002
SETTINGS = {"POSTROOM_SECRETS": "file", "POSTROOM_ACCOUNT_ALLOW": "127.0.0.0/8"}
STORED = "SELECT subject FROM messages"
SYNCED = "SELECT synced_at FROM accounts"
RECEIVED = "SELECT message FROM events WHERE type LIKE '%received'"


def killed_while_syncing(rounds: int, defect: str = "none", seed: int = 6, **extra: str) -> Outcome:
    """Send SIGKILL after a random number of new mails; the next start must find the rest."""
    outcome, chance = Outcome("kill -9 while syncing (IMAP)"), random.Random(seed)
    while outcome.tried < rounds:
        with Dovecot() as dovecot, server(defect, **extra, **SETTINGS) as services:
            _drill(
                services,
                dovecot,
                outcome,
                chance,
                min(rounds - outcome.tried, ROUNDS_OF_AN_INSTALLATION),
            )
    return outcome


def _drill(
    services: ServerUnderTest,
    dovecot: Dovecot,
    outcome: Outcome,
    chance: random.Random,
    rounds: int,
) -> None:
    services.ask("POST", "/v1/accounts", _account(dovecot))
    services.kill()
    brought: list[str] = []
    with _client(dovecot) as client:
        for _ in range(rounds):
            subjects = [f"drill {len(brought) + number}" for number in range(MAILS)]
            brought += subjects
            if chance.random() < TOLD:
                services.start()
                _append(client, subjects, ["INBOX"])
            else:
                _append(client, subjects, ["INBOX", "Archive"])
                services.start()
            seen = _until(services, set(subjects), chance.randint(1, MAILS))
            services.kill()
            outcome.lost += len(seen - _subjects(services))
            outcome.tried += 1
    _read_all(services)
    _count(services, outcome, brought)


def _account(dovecot: Dovecot) -> dict[str, object]:
    return {
        "account_id": "drill",
        "provider": "imap",
        "address": "alice@example.com",
        "user": "alice",
        "password": PASSWORD,
        "host": "127.0.0.1",
        "port": dovecot.imaps,
        "ca_file": str(dovecot.certificate),
    }


@contextmanager
def _client(dovecot: Dovecot) -> Iterator[imaplib.IMAP4]:
    client = imaplib.IMAP4("127.0.0.1", dovecot.imap)
    client.login("alice", PASSWORD)
    try:
        yield client
    finally:
        client.logout()


def _append(client: imaplib.IMAP4, subjects: Sequence[str], mailboxes: Sequence[str]) -> None:
    now = imaplib.Time2Internaldate(time.time())
    for subject, mailbox in zip(subjects, cycle(mailboxes), strict=False):
        client.append(mailbox, "", now, mail(subject).replace(b"\n", b"\r\n"))


def _until(services: ServerUnderTest, wanted: set[str], count: int) -> set[str]:
    """Wait until so many of these subjects are stored; returns those that are."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(found := wanted & _subjects(services)) < count and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


def _read_all(services: ServerUnderTest) -> None:
    """Start the server, and return when it has completed a sync pass of the account."""
    before = services.rows(SYNCED)
    services.start()
    deadline = time.monotonic() + TIMEOUT_S
    while services.rows(SYNCED) == before and time.monotonic() < deadline:
        services.ask("POST", "/v1/accounts/drill/sync")
        time.sleep(0.5)


def _subjects(services: ServerUnderTest) -> set[str]:
    return {str(row[0]) for row in services.rows(STORED)}


def _count(services: ServerUnderTest, outcome: Outcome, brought: Sequence[str]) -> None:
    stored = Counter(row[0] for row in services.rows(STORED))
    outcome.acknowledged += len(brought)
    outcome.lost += len(set(brought) - set(stored))
    outcome.doubled += count_duplicates(stored) + count_duplicates(
        Counter(row[0] for row in services.rows(RECEIVED))
    )
    outcome.torn += services.problems()
