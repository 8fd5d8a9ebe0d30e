"""Many who use one installation at the same time, and keep count of what they were told."""

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

from tests.faults.drilled import Server
from tests.mails import mail

PATIENCE_S = 120
WRITERS, READERS, RULERS = 8, 3, 2
_PAUSE_S = 0.2

RULE = """
name: count {name}
enabled: false
when: [{{subject: {{contains: drill}}}}, {{not: [{{label: {{equals: {name}}}}}]}}]
then: [{{apply_label: {name}}}]
safety: {{max_messages: 100000}}
"""


@dataclass
class Heard:
    """What one of them was told; `unexplained` are answers that say neither yes nor when."""

    acknowledged: list[str] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    refused: int = 0
    unexplained: list[str] = field(default_factory=list)
    reads: int = 0
    wrong: list[str] = field(default_factory=list)


class Visitor(threading.Thread):
    """Does its round again and again, over connections of its own, until it is told to stop."""

    def __init__(self, services: Server, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.services, self.stopping, self.heard = services, stop, Heard()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.round()

    def round(self) -> None:
        raise NotImplementedError

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, may_conflict: bool = False
    ) -> dict[str, Any] | None:
        """A good answer; None when there was none, or another that says what to do."""
        kind = "message/rfc822" if path.startswith("/v1/inbound") else "application/json"
        login = {"Authorization": f"Bearer {self.services.key}", "Content-Type": kind}
        url = f"http://127.0.0.1:{self.services.port}{path}"
        request = urllib.request.Request(url, data=body, method=method, headers=login)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except urllib.error.HTTPError as error:
            if not (may_conflict and error.code == 409):
                self._refused(error)
        except (OSError, http.client.HTTPException):
            pass
        return None

    def _refused(self, error: urllib.error.HTTPError) -> None:
        self.heard.refused += 1
        if error.code not in (429, 503) or "Retry-After" not in error.headers:
            self.heard.unexplained.append(f"{error.code} {error.read()[:300]!r}")
        self.stopping.wait(float(error.headers.get("Retry-After", 1)))


class Writer(Visitor):
    """Brings mail after mail, each until it is acknowledged; every fourth one sends instead."""

    def __init__(self, services: Server, stop: threading.Event, name: int) -> None:
        super().__init__(services, stop)
        self.prefix, self._number = f"drill w{name}n", 0
        self.is_sending = name % 4 == 3
        self.copies = 2 if self.is_sending else 1
        """A mail between two inboxes of an installation is two messages."""

    def round(self) -> None:
        subject = f"{self.prefix}{self._number}x"
        answer = self._send(subject) if self.is_sending else self._deliver(subject)
        if answer is not None:
            self.heard.acknowledged.append(subject)
            self.heard.acknowledged_at.append(time.monotonic())
            self._number += 1

    def _deliver(self, subject: str) -> dict[str, Any] | None:
        raw = mail(subject, message_id=f"<{subject.replace(' ', '.')}@drill>")
        return self.ask("POST", "/v1/inbound?recipient=bo@postroom.localhost", raw)

    def _send(self, subject: str) -> dict[str, Any] | None:
        outgoing_mail = {"from": "ana@postroom.localhost", "to": ["bo@postroom.localhost"]}
        words = {"subject": subject, "body_text": "x", "idempotency_key": subject}
        return self.ask("POST", "/v1/messages", json.dumps(outgoing_mail | words).encode())


class Reader(Visitor):
    """Looks for what a writer was told is there: it must be, and not more than once."""

    def __init__(self, services: Server, stop: threading.Event, writers: Sequence[Writer]) -> None:
        super().__init__(services, stop)
        self._writers = writers

    def round(self) -> None:
        for writer in self._writers:
            if not writer.heard.acknowledged:
                self.stopping.wait(_PAUSE_S)
                continue
            subject = writer.heard.acknowledged[-1]
            page = self.ask("GET", f"/v1/search/messages?q={subject.replace(' ', '+')}&limit=1")
            if page is None:
                continue
            self.heard.reads += 1
            if page["total"] != writer.copies:
                self.heard.wrong.append(f"{subject}: {page['total']} of {writer.copies}")


class Ruler(Visitor):
    """Plans a rule and applies the plan; what was applied is written down by its plan."""

    def __init__(self, services: Server, stop: threading.Event, name: str) -> None:
        super().__init__(services, stop)
        self.label = name
        body = {"rule_yaml": RULE.format(name=name), "dry_run": False}
        made = services.ask("POST", "/v1/rules", body)
        self.rule_id = str(made["id"])

    def round(self) -> None:
        plan = self.ask("POST", f"/v1/rules/{self.rule_id}/plan", b"{}")
        if plan is not None:
            # Another rule may have changed a message since, or a lost answer may have been a yes.
            path = f"/v1/plans/{plan['plan_id']}/apply"
            done = self.ask("POST", path, b"{}", may_conflict=True)
            if done is not None:
                self.heard.acknowledged.append(str(plan["plan_id"]))
        self.stopping.wait(_PAUSE_S)


@dataclass
class Visitors:
    """All of them together."""

    writers: list[Writer]
    readers: list[Reader]
    rulers: list[Ruler]
    stop: threading.Event

    @classmethod
    def enter(cls, services: Server) -> Visitors:
        """Let them in."""
        stop = threading.Event()
        writers = [Writer(services, stop, number) for number in range(WRITERS)]
        readers = [Reader(services, stop, writers) for _ in range(READERS)]
        rulers = [Ruler(services, stop, f"counted{number}") for number in range(RULERS)]
        visitors = cls(writers, readers, rulers, stop)
        for visitor in visitors.all:
            visitor.start()
        return visitors

    @property
    def all(self) -> list[Visitor]:
        return [*self.writers, *self.readers, *self.rulers]

    def leave(self) -> None:
        """Let each finish its round; then the rules run once more, with nobody beside them."""
        self.stop.set()
        for visitor in self.all:
            visitor.join(PATIENCE_S)
        for ruler in self.rulers:
            ruler.round()

    def first_success(self, since: float) -> float:
        """How long after a moment a mail was acknowledged again."""
        deadline = since + PATIENCE_S
        while time.monotonic() < deadline:
            later = [at for w in self.writers for at in w.heard.acknowledged_at[-3:] if at > since]
            if later:
                return min(later) - since
            time.sleep(0.01)
        return float("inf")
