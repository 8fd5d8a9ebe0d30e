"""Gmail: the emulator `emulate`, behind a thin server of our own for what it lacks.

The emulator has messages, labels, history, sending and inserting; the profile, the end of a
history, limits, tokens that expire, uploads and the searches for a Message-ID and for large mail
(the emulator's finds none) are ours, from
https://developers.google.com/workspace/gmail/api/reference/rest,
https://developers.google.com/workspace/gmail/api/guides/uploads and, for what one can search for,
https://support.google.com/mail/answer/7190.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64decode, urlsafe_b64encode
from email import message_from_bytes
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from tests.servers.ports import free_port
from tests.servers.web import HttpRequest, HttpResponse, WebServer

ROOT = Path(__file__).parents[2]
ADDRESS = "alice@example.com"
TOKEN = "tok_alice"
_SEED = """
tokens:
  tok_alice: {login: alice@example.com, scopes: ["https://mail.google.com/"]}
google:
  users:
    - {email: alice@example.com, name: Alice, email_verified: true}
  labels:
    - {id: Label_1, user_email: alice@example.com, name: Work}
"""
_ME = "/gmail/v1/users/me"


class Gmail:
    """A mailbox of one user."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.address = ADDRESS
        self.busy: list[tuple[int, int]] = []
        """Status and seconds to refuse with, one pair for each of the next requests."""
        self.forgets_history = False
        self.sent: list[bytes] = []
        self.may_delete = True
        """Whether the token may delete permanently: one with `gmail.modify` may not."""
        self.full = False
        """Whether the mailbox is full."""
        self.web = WebServer(self._answer)

    def __enter__(self) -> Self:
        script = subprocess.run(
            [ROOT / "scripts" / "emulate"], check=True, capture_output=True, text=True, timeout=300
        )
        node, program = script.stdout.split()
        port = free_port()
        self._inner = f"http://127.0.0.1:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="postroom-")
        seed = Path(self._folder.name) / "seed.yaml"
        seed.write_text(_SEED)
        self._log = (Path(self._folder.name) / "log").open("wb")
        self.process = subprocess.Popen(
            [node, program, "start", "-p", str(port), "-s", "google", "--seed", str(seed)],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.web.__enter__()
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.__exit__()
        # Node is a child of the program that we started, and does not end with it.
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(120)
        self._log.close()
        self._folder.cleanup()

    def _wait(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.call("GET", "/labels")
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.__exit__()
        raise RuntimeError("the emulator does not answer")

    @property
    def url(self) -> str:
        return self.web.url

    @property
    def requests(self) -> list[HttpRequest]:
        return self.web.requests

    # Changes by other clients.

    def call(self, method: str, path: str, body: Any = None) -> Any:
        status, data = self._forward(method, _ME + path, "", json.dumps(body or {}).encode())
        if status >= 400:
            raise OSError(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data) if data else None

    def deliver(self, raw: bytes, labels: tuple[str, ...] = ("INBOX", "UNREAD")) -> str:
        body = {"raw": urlsafe_b64encode(raw).decode(), "labelIds": list(labels)}
        return str(self.call("POST", "/messages", body)["id"])

    def _forward(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        request = urllib.request.Request(
            f"{self._inner}{path}{'?' + query if query else ''}",
            data=body if method in ("POST", "PATCH", "PUT") else None,
            method=method,
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    # HTTP.

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return HttpResponse(401, {"error": {"code": 401, "status": "UNAUTHENTICATED"}})
        if self.busy:
            status, wait = self.busy.pop(0)
            reason = {"error": {"code": status, "errors": [{"reason": "rateLimitExceeded"}]}}
            return HttpResponse(status, reason, {"Retry-After": str(wait)})
        if request.path == f"{_ME}/profile":
            return self._profile()
        if request.path == f"{_ME}/history" and self.forgets_history:
            return HttpResponse(404, {"error": {"code": 404, "status": "NOT_FOUND"}})
        if request.path == f"{_ME}/messages" and request.method == "GET":
            self.forgets_history = False
        if "rfc822msgid:" in request.query.get("q", ""):
            return self._found(request)
        if request.query.get("q", "").startswith("larger:"):
            return self._large(int(request.query["q"].removeprefix("larger:")))
        if request.method == "DELETE" and not self.may_delete:
            refusal = {"code": 403, "status": "PERMISSION_DENIED", "message": "Not in the scope."}
            return HttpResponse(403, {"error": refusal})
        path, body = request.path, request.body
        if path.startswith("/upload/"):
            path, body = path.removeprefix("/upload"), json.dumps(_uploaded(request)).encode()
        if path == f"{_ME}/messages" and request.method == "POST" and self.full:
            return HttpResponse(403, {"error": {"code": 403, "message": "The mailbox is full."}})
        if path == f"{_ME}/messages/send":
            self.sent.append(urlsafe_b64decode(json.loads(body)["raw"] + "=="))
        status, data = self._forward(request.method, path, urlencode(request.query), body)
        return HttpResponse(status, data)

    def _found(self, request: HttpRequest) -> HttpResponse:
        """The messages with a label and a Message-ID."""
        wanted = request.query["q"].removeprefix("rfc822msgid:")
        listed = self.call("GET", f"/messages?maxResults=500&labelIds={request.query['labelIds']}")
        rows = [row for row in listed.get("messages", []) if wanted == self._message_id(row["id"])]
        return HttpResponse(body={"messages": rows, "resultSizeEstimate": len(rows)})

    def _large(self, above: int) -> HttpResponse:
        """The messages above a size, all on one page."""
        listed = self.call("GET", "/messages?maxResults=500&includeSpamTrash=true")
        rows = [row for row in listed.get("messages", []) if self._size(row["id"]) > above]
        return HttpResponse(body={"messages": rows, "resultSizeEstimate": len(rows)})

    def _size(self, key: str) -> int:
        return int(self.call("GET", f"/messages/{key}?format=minimal")["sizeEstimate"])

    def _message_id(self, key: str) -> str:
        row = self.call("GET", f"/messages/{key}?format=full")
        headers = {h["name"].lower(): h["value"] for h in row["payload"]["headers"]}
        return str(headers.get("message-id", "")).strip("<>")

    def _profile(self) -> HttpResponse:
        _, data = self._forward("GET", f"{_ME}/history", "startHistoryId=1", b"")
        history = json.loads(data)
        listed = self.call("GET", "/messages?maxResults=500&includeSpamTrash=true")
        body = {
            "emailAddress": self.address,
            "messagesTotal": len(listed.get("messages", [])),
            "historyId": history.get("historyId", "1"),
        }
        return HttpResponse(body=body)


def _uploaded(request: HttpRequest) -> dict[str, Any]:
    """What the JSON address would have been asked: of a message alone, or of two parts."""
    if request.query["uploadType"] == "media":
        return {"raw": urlsafe_b64encode(request.body).decode()}
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    boundary = str(message_from_bytes(head).get_boundary()).encode()
    _, about, message, _ = request.body.split(b"--" + boundary)
    said = json.loads(about.partition(b"\r\n\r\n")[2])
    raw = message.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
    return {**said, "raw": urlsafe_b64encode(raw).decode()}
