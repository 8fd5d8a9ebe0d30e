"""Two installations that answer each other's mail automatically."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.server_under_test import Outcome, ServerUnderTest

ROUNDS = 6
"""How often each machine checks for mail to answer."""


def two_machines(rounds: int, defect: str = "none") -> Outcome:
    """A mail from a person is answered once; the automatic reply is not answered."""
    outcome = Outcome("two machines that answer each other")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # Both addresses exchange several mails on the same day.
        often = {"POSTROOM_LIMIT_AUTOMATIC_REPLIES_PER_DAY": str(max(5, rounds))}
        one = ServerUnderTest(folder / "one", defect, POSTROOM_DOMAIN="one.example", **often)
        two = ServerUnderTest(folder / "two", defect, POSTROOM_DOMAIN="two.example", **often)
        for services, other in ((one, two), (two, one)):
            services.set("POSTROOM_RELAY_URL", f"smtp://127.0.0.1:{other.smtp}")
            stack.callback(services.close)
            services.start()
            services.ask("POST", "/v1/inboxes", {"username": "agent"})
        for number in range(rounds):
            _exchange(one, two, f"drill {number}", outcome)
        outcome.torn += one.problems() + two.problems()
    return outcome


def _exchange(one: ServerUnderTest, two: ServerUnderTest, subject: str, outcome: Outcome) -> None:
    outgoing_mail = {"to": ["agent@two.example"], "subject": subject, "body_text": "Are you there?"}
    one.ask("POST", "/v1/messages", {**outgoing_mail, "wait_s": 30})
    answers = 0
    for _ in range(ROUNDS):
        count = _answer_all(two, subject) + _answer_all(one, subject)
        if not count:
            break
        answers += count
    outcome.tried += 1
    outcome.acknowledged += answers
    outcome.lost += answers == 0
    outcome.doubled += max(0, answers - 1)


def _answer_all(services: ServerUnderTest, subject: str) -> int:
    """Answer every unanswered mail automatically; return the number of replies."""
    answered = 0
    for row in _received(services, subject):
        if "answered" in row.get("flags", ()):
            continue
        reply = {"body_text": "I am away.", "automatic": True, "wait_s": 30}
        path = f"/v1/messages/{row['id']}/reply"
        status = services.status("POST", path, json.dumps(reply).encode())
        assert status in (201, 409), status
        answered += status == 201
    return answered


def _received(services: ServerUnderTest, subject: str) -> list[dict[str, Any]]:
    """The mails that have arrived; the sender has waited until the other side stored them."""
    query = f"q={subject.replace(' ', '+')}&mailbox=Inbox"
    rows = services.ask("GET", f"/v1/search/messages?{query}")["results"]
    assert isinstance(rows, list)
    return rows
