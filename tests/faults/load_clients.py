"""Concurrent clients of one installation that record which requests were acknowledged."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.server_under_test import ServerUnderTest
from tests.mails import mail

TIMEOUT_S = 120
WRITERS, READERS, PLANNERS = 8, 3, 2
_PAUSE_S = 0.2

RULE = """
name: count {name}
enabled: false
when: [{{subject: {{contains: drill}}}}, {{not: [{{label: {{equals: {name}}}}}]}}]
then: [{{apply_label: {name}}}]
safety: {{max_messages: 100000}}
"""


@dataclass
class ClientRecord:
    """What one client was answered; `unexplained` are errors that do not say when to retry."""

    acknowledged: list[str] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    refused: int = 0
    unexplained: list[str] = field(default_factory=list)
    reads: int = 0
    wrong: list[str] = field(default_factory=list)


class LoadClient(threading.Thread):
    """Repeats its round over connections of its own until it is stopped."""

    def __init__(self, services: ServerUnderTest, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.services, self.stopping, self.record = services, stop, ClientRecord()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.round()

    def round(self) -> None:
        raise NotImplementedError

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, may_conflict: bool = False
    ) -> dict[str, Any] | None:
        """The body of a successful response; None if there was none, or an error that says to
        retry.
        """
        kind = "message/rfc822" if path.startswith("/v1/inbound") else "application/json"
        login = {"Authorization": f"Bearer {self.services.key}", "Content-Type": kind}
        url = f"http://127.0.0.1:{self.services.port}{path}"
        request = urllib.request.Request(url, data=body, method=method, headers=login)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            if not (may_conflict and error.code == 409):
                self._refused(error)
        except (OSError, http.client.HTTPException):
            pass
        return None

    def _refused(self, error: urllib.error.HTTPError) -> None:
        self.record.refused += 1
        if error.code not in (429, 503) or "Retry-After" not in error.headers:
            self.record.unexplained.append(f"{error.code} {error.read()[:300]!r}")
        self.stopping.wait(float(error.headers.get("Retry-After", 1)))


class MailWriter(LoadClient):
    """Delivers mails, each until it is acknowledged; every fourth client sends them instead."""

    def __init__(self, services: ServerUnderTest, stop: threading.Event, name: int) -> None:
        super().__init__(services, stop)
        self.prefix, self._number = f"drill w{name}n", 0
        self.is_sending = name % 4 == 3
        self.copies = 2 if self.is_sending else 1
        """A mail between two inboxes of an installation is two messages."""

    def round(self) -> None:
        subject = f"{self.prefix}{self._number}x"
        answer = self._send(subject) if self.is_sending else self._deliver(subject)
        if answer is not None:
            self.record.acknowledged.append(subject)
            self.record.acknowledged_at.append(time.monotonic())
            self._number += 1

    def _deliver(self, subject: str) -> dict[str, Any] | None:
        raw = mail(subject, message_id=f"<{subject.replace(' ', '.')}@drill>")
        return self.ask("POST", "/v1/inbound?recipient=bo@postroom.localhost", raw)

    def _send(self, subject: str) -> dict[str, Any] | None:
        outgoing_mail = {"from": "ana@postroom.localhost", "to": ["bo@postroom.localhost"]}
        words = {"subject": subject, "body_text": "x", "idempotency_key": subject}
        return self.ask("POST", "/v1/messages", json.dumps(outgoing_mail | words).encode())


class MessageReader(LoadClient):
    """Searches for acknowledged mail, which must be found exactly once."""

    def __init__(
        self, services: ServerUnderTest, stop: threading.Event, writers: Sequence[MailWriter]
    ) -> None:
        super().__init__(services, stop)
        self._writers = writers

    def round(self) -> None:
        for writer in self._writers:
            if not writer.record.acknowledged:
                self.stopping.wait(_PAUSE_S)
                continue
            subject = writer.record.acknowledged[-1]
            page = self.ask("GET", f"/v1/search/messages?q={subject.replace(' ', '+')}&limit=1")
            if page is None:
                continue
            self.record.reads += 1
            if page["total"] != writer.copies:
                self.record.wrong.append(f"{subject}: {page['total']} of {writer.copies}")


class RulePlanner(LoadClient):
    """Plans a rule and applies the plan; records the plans that were applied."""

    def __init__(self, services: ServerUnderTest, stop: threading.Event, name: str) -> None:
        super().__init__(services, stop)
        self.label = name
        body = {"rule_yaml": RULE.format(name=name), "dry_run": False}
        made = services.ask("POST", "/v1/rules", body)
        self.rule_id = str(made["id"])

    def round(self) -> None:
        plan = self.ask("POST", f"/v1/rules/{self.rule_id}/plan", b"{}")
        if plan is not None:
            # 409: another rule has changed a message since, or the response of a retry was lost.
            path = f"/v1/plans/{plan['plan_id']}/apply"
            done = self.ask("POST", path, b"{}", may_conflict=True)
            if done is not None:
                self.record.acknowledged.append(str(plan["plan_id"]))
        self.stopping.wait(_PAUSE_S)


@dataclass
class LoadClients:
    """All load clients of a drill."""

    writers: list[MailWriter]
    readers: list[MessageReader]
    planners: list[RulePlanner]
    stop: threading.Event

    @classmethod
    def start_all(cls, services: ServerUnderTest) -> LoadClients:
        """Create the clients and start their threads."""
        stop = threading.Event()
        writers = [MailWriter(services, stop, number) for number in range(WRITERS)]
        readers = [MessageReader(services, stop, writers) for _ in range(READERS)]
        planners = [RulePlanner(services, stop, f"counted{number}") for number in range(PLANNERS)]
        clients = cls(writers, readers, planners, stop)
        for client in clients.all:
            client.start()
        return clients

    @property
    def all(self) -> list[LoadClient]:
        return [*self.writers, *self.readers, *self.planners]

    def stop_all(self) -> None:
        """Let each client finish its round; then apply each rule once more, without load."""
        self.stop.set()
        for client in self.all:
            client.join(TIMEOUT_S)
        for planner in self.planners:
            planner.round()

    def first_success(self, since: float) -> float:
        """The time from a moment until a mail is acknowledged again."""
        deadline = since + TIMEOUT_S
        while time.monotonic() < deadline:
            later = [at for w in self.writers for at in w.record.acknowledged_at[-3:] if at > since]
            if later:
                return min(later) - since
            time.sleep(0.01)
        return float("inf")
