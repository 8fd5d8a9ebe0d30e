"""Kill a server that has scheduled mail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

from tests.faults.sending import lost_among, settle, subject_of
from tests.faults.server_under_test import Outcome, ServerUnderTest, count_duplicates, server
from tests.servers.relay import Relay, relaying

MAILS = 5
"""The number of mails that are scheduled before each kill."""
LATEST_S = 6.0
TOO_EARLY_S = 1.0


def killed_while_scheduled(rounds: int, defect: str = "none", seed: int = 5) -> Outcome:
    """Send SIGKILL before or while scheduled mail is sent: each is sent once, none early."""
    return asyncio.run(_killed_while_scheduled(rounds, defect, random.Random(seed)))


async def _killed_while_scheduled(rounds: int, defect: str, chance: random.Random) -> Outcome:
    outcome = Outcome("kill -9 while scheduled mail waits")
    due: dict[str, datetime] = {}
    sent: list[str] = []
    async with relaying() as relay:
        with server(defect, POSTROOM_RELAY_URL=relay.url) as running:
            await asyncio.to_thread(running.ask, "POST", "/v1/inboxes", {"username": "bo"})
            for _ in range(rounds):
                for _ in range(MAILS):
                    at = datetime.now(UTC) + timedelta(seconds=chance.uniform(0, LATEST_S))
                    due[f"drill {len(due)}"] = at
                    sent.append(await asyncio.to_thread(_schedule, running, list(due)[-1], at))
                await asyncio.to_thread(running.kill)
                await asyncio.to_thread(running.start)
                outcome.tried += 1
            await settle(running, sent)
            outcome.acknowledged = len(sent)
            taken = Counter(subject_of(mail.data) for mail in relay.mails)
            outcome.lost = await lost_among(running, sent, taken)
            outcome.doubled = count_duplicates(taken)
            outcome.torn = _early(relay, due)
            outcome.torn += await asyncio.to_thread(running.problems)
    return outcome


def _schedule(running: ServerUnderTest, subject: str, at: datetime) -> str:
    outgoing_mail = {"to": ["ana@example.com"], "subject": subject, "body_text": "x"}
    draft = running.ask("POST", "/v1/drafts", {**outgoing_mail, "send_at": at.isoformat()})
    return str(running.ask("POST", f"/v1/drafts/{draft['id']}/send", {})["message_id"])


def _early(relay: Relay, due: dict[str, datetime]) -> int:
    """The number of mails that were sent before their time."""
    ahead = [due[subject_of(mail.data)] - mail.at for mail in relay.mails]
    return sum(time.total_seconds() > TOO_EARLY_S for time in ahead)
