"""A small JMAP server with push events (RFC 8620 §7.3), which Cyrus does not have."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Self

from tests.servers.web import HttpRequest, HttpResponse, WebServer

CAPABILITIES = ("urn:ietf:params:jmap:core", "urn:ietf:params:jmap:mail")


class JmapEvents:
    """One account with an Inbox; it pushes an event when mail arrives, and can expire
    its states.
    """

    def __init__(self) -> None:
        self.mails: dict[str, bytes] = {}
        self.log: list[str] = []
        self.forgets = False
        self.account_id = "a1"
        self.listeners: list[queue.Queue[bytes | None]] = []
        self.listening = threading.Event()
        self.web = WebServer(self._answer)

    def __enter__(self) -> Self:
        self.web.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self.listeners:
            listener.put(None)
        self.web.__exit__()

    @property
    def state(self) -> str:
        return f"s{len(self.log)}"

    def deliver(self, raw: bytes) -> None:
        key = f"m{len(self.log)}"
        self.mails[key] = raw
        self.log.append(key)
        change = {"@type": "StateChange", "changed": {self.account_id: {"Email": self.state}}}
        for listener in self.listeners:
            listener.put(f"event: state\ndata: {json.dumps(change)}\n\n".encode())

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/.well-known/jmap":
            return HttpResponse(301, None, {"Location": "/session"})
        if request.path == "/session":
            return HttpResponse(
                body={
                    "capabilities": {name: {} for name in CAPABILITIES},
                    "primaryAccounts": dict.fromkeys(CAPABILITIES, self.account_id),
                    "apiUrl": "/api",
                    "downloadUrl": "/blob/{accountId}/{blobId}/{name}?type={type}",
                    "uploadUrl": "/upload/{accountId}",
                    "eventSourceUrl": "/events?types={types}&closeafter={closeafter}&ping={ping}",
                }
            )
        if request.path == "/events":
            is_asking = request.query["closeafter"] == "state"
            pieces = iter([b": welcome\n\n"]) if is_asking else self._events()
            return HttpResponse(200, headers={"Content-Type": "text/event-stream"}, pieces=pieces)
        if request.path.startswith("/blob/"):
            return HttpResponse(body=self.mails[request.path.split("/")[3]])
        calls = request.json()["methodCalls"]
        return HttpResponse(body={"methodResponses": [self._call(*call) for call in calls]})

    def _events(self) -> Iterator[bytes]:
        listener: queue.Queue[bytes | None] = queue.Queue()
        self.listeners.append(listener)
        yield b": welcome\n\n"
        self.listening.set()
        while (piece := listener.get()) is not None:
            yield piece

    def _call(self, name: str, arguments: dict[str, Any], number: str) -> list[Any]:
        result: dict[str, Any] = {}
        if name == "Mailbox/get":
            result = {"list": [{"id": "b1", "name": "Inbox", "role": "inbox", "parentId": None}]}
        elif name == "Email/get":
            rows = [self._row(key) for key in arguments["ids"] if key in self.mails]
            result = {"state": self.state, "list": rows}
        elif name == "Email/query":
            keys = list(reversed(self.mails))
            if "anchor" in arguments:
                keys = keys[keys.index(arguments["anchor"]) + 1 :]
            result = {"ids": keys[: arguments["limit"]], "total": len(self.mails)}
        elif name == "Email/changes":
            known = [f"s{number}" for number in range(len(self.log) + 1)]
            if self.forgets or arguments["sinceState"] not in known:
                self.forgets = False
                return ["error", {"type": "cannotCalculateChanges"}, number]
            since = int(arguments["sinceState"][1:])
            result = {"newState": self.state, "created": self.log[since:], "hasMoreChanges": False}
        else:
            return ["error", {"type": "unknownMethod"}, number]
        return [name, result, number]

    def _row(self, key: str) -> dict[str, Any]:
        return {
            "id": key,
            "blobId": key,
            "mailboxIds": {"b1": True},
            "keywords": {},
            "receivedAt": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "size": len(self.mails[key]),
        }
