"""Two houses whose machines answer each other's mail."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.faults.drilled import Server, Tally

ROUNDS = 6
"""How often each machine looks whether there is something to answer."""


def two_machines(rounds: int, defect: str = "none") -> Tally:
    """A person's mail is answered once, and the answer is not."""
    tally = Tally("two machines that answer each other")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        one = Server(folder / "one", defect, POSTROOM_DOMAIN="one.example")
        two = Server(folder / "two", defect, POSTROOM_DOMAIN="two.example")
        for house, other in ((one, two), (two, one)):
            house.set("POSTROOM_RELAY_URL", f"smtp://127.0.0.1:{other.smtp}")
            stack.callback(house.close)
            house.start()
            house.ask("POST", "/v1/inboxes", {"username": "agent"})
        for number in range(rounds):
            _exchange(one, two, f"drill {number}", tally)
        tally.torn += one.problems() + two.problems()
    return tally


def _exchange(one: Server, two: Server, subject: str, tally: Tally) -> None:
    letter = {"to": ["agent@two.example"], "subject": subject, "body_text": "Are you there?"}
    one.ask("POST", "/v1/messages", {**letter, "wait_s": 30})
    answers = 0
    for _ in range(ROUNDS):
        count = _answer_all(two, subject) + _answer_all(one, subject)
        if not count:
            break
        answers += count
    tally.tried += 1
    tally.acknowledged += answers
    tally.lost += answers == 0
    tally.doubled += max(0, answers - 1)


def _answer_all(house: Server, subject: str) -> int:
    """Answer what came and is not answered, as a machine would; how many answers there were."""
    answered = 0
    for row in _received(house, subject):
        if "answered" in row.get("flags", ()):
            continue
        reply = {"body_text": "I am away.", "automatic": True, "wait_s": 30}
        path = f"/v1/messages/{row['id']}/reply"
        status = house.status("POST", path, json.dumps(reply).encode())
        assert status in (201, 409), status
        answered += status == 201
    return answered


def _received(house: Server, subject: str) -> list[dict[str, Any]]:
    """What has arrived; whoever sent it has waited until the other house had it."""
    query = f"q={subject.replace(' ', '+')}&mailbox=Inbox"
    rows = house.ask("GET", f"/v1/search/messages?{query}")["results"]
    assert isinstance(rows, list)
    return rows
