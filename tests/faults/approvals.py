"""Kill a server while held mail is approved: each approved mail is sent once, and no other mail."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress

from tests.faults.sending import lost_among, settle, subject_of
from tests.faults.server_under_test import (
    TIMEOUT_S,
    Outcome,
    ServerUnderTest,
    count_duplicates,
    server,
)
from tests.servers.relay import relaying

INBOX = "bo@postroom.localhost"


def killed_while_approving(rounds: int, defect: str = "none", **extra: str) -> Outcome:
    """Send SIGKILL around each decision; then repeat the decision."""
    return asyncio.run(_killed_while_approving(rounds, defect, **extra))


async def _killed_while_approving(rounds: int, defect: str, **extra: str) -> Outcome:
    outcome = Outcome("kill -9 while a person decides")
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url, **extra) as running:
            decider = await asyncio.to_thread(_prepare, running)
            approved: list[str] = []
            for number in range(rounds):
                approved.append(await asyncio.to_thread(_one, running, decider, number))
                outcome.tried += 2
            await settle(running, approved)
            taken = Counter(subject_of(mail.data) for mail in relay.mails)
            outcome.acknowledged = len(approved)
            outcome.lost = await lost_among(running, approved, taken)
            outcome.doubled = count_duplicates(taken) + sum(s.startswith("not") for s in taken)
            outcome.torn = await asyncio.to_thread(running.problems)
    return outcome


def _prepare(running: ServerUnderTest) -> str:
    """Create an inbox whose mail needs approval, and, as at the terminal, a key that approves."""
    running.ask("POST", "/v1/inboxes", {"username": "bo"})
    running.ask("PATCH", f"/v1/inboxes/{INBOX}/policy", {"approval": "always"})
    words = ["-o", "json", "key", "create", "decider", "--scope", "approve"]
    command = [sys.executable, "-m", "postroom", *words]
    made = subprocess.run(command, env=running.env, capture_output=True, text=True, check=True)
    return str(json.loads(made.stdout)["key"])


def _one(running: ServerUnderTest, decider: str, number: int) -> str:
    """Approve one mail and leave another one held; kill the server around the decision."""
    mails = [_held(running, f"{kind} {number}") for kind in ("drill", "not")]
    verdicts = (("approve", mails[0]), ("reject", mails[1]))[: 1 + number % 2]
    for verdict, (message_id, sha256) in verdicts:
        if not sha256:
            continue  # not held; counted when it is sent
        path = f"/v1/outbox/{message_id}/{verdict}"
        killing = threading.Timer(random.uniform(0, 0.03), running.kill)
        killing.start()
        with suppress(OSError, urllib.error.URLError):
            _decide(running, decider, path, sha256)
        killing.join()
        running.kill()
        running.start()
        _decide(running, decider, path, sha256)
    return mails[0][0]


def _held(running: ServerUnderTest, subject: str) -> tuple[str, str]:
    mail = {"to": ["ana@example.com"], "subject": subject, "body_text": "x"}
    message_id = str(running.ask("POST", "/v1/messages", mail)["message_id"])
    hold = running.ask("GET", f"/v1/messages/{message_id}").get("hold") or {}
    assert isinstance(hold, dict)
    return message_id, str(hold.get("sha256", ""))


def _decide(running: ServerUnderTest, decider: str, path: str, sha256: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.port}{path}",
        method="POST",
        data=json.dumps({"sha256": sha256}).encode(),
        headers={"Authorization": f"Bearer {decider}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S):
        pass
