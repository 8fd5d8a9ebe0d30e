"""Two installations whose machines answer each other's mail."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.drilled import Outcome, Server

ROUNDS = 6
"""How often each machine looks whether there is something to answer."""


def two_machines(rounds: int, defect: str = "none") -> Outcome:
    """A person's mail is answered once, and the answer is not."""
    outcome = Outcome("two machines that answer each other")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # The same two write to each other all day.
        often = {"POSTROOM_LIMIT_AUTOMATIC_REPLIES_PER_DAY": str(max(5, rounds))}
        one = Server(folder / "one", defect, POSTROOM_DOMAIN="one.example", **often)
        two = Server(folder / "two", defect, POSTROOM_DOMAIN="two.example", **often)
        for services, other in ((one, two), (two, one)):
            services.set("POSTROOM_RELAY_URL", f"smtp://127.0.0.1:{other.smtp}")
            stack.callback(services.close)
            services.start()
            services.ask("POST", "/v1/inboxes", {"username": "agent"})
        for number in range(rounds):
            _exchange(one, two, f"drill {number}", outcome)
        outcome.torn += one.problems() + two.problems()
    return outcome


def _exchange(one: Server, two: Server, subject: str, outcome: Outcome) -> None:
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


def _answer_all(services: Server, subject: str) -> int:
    """Answer what came and is not answered, as a machine would; how many answers there were."""
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


def _received(services: Server, subject: str) -> list[dict[str, Any]]:
    """What has arrived; whoever sent it has waited until the other installation had it."""
    query = f"q={subject.replace(' ', '+')}&mailbox=Inbox"
    rows = services.ask("GET", f"/v1/search/messages?{query}")["results"]
    assert isinstance(rows, list)
    return rows
