"""docs/reference/api/ is current, and every call in it works: curl, Python and MCP.

A call runs as printed. Only the port, the key and ids are replaced, as a reader would; the ids are
those of objects that were created for this call.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from postroom.errors import MailError
from postroom.surfaces.rest.routes import ROUTES
from tests.mails import mail
from tests.servers.ports import free_port
from tests.servers.postroom import Running, forked_command, running
from tests.servers.web import HttpResponse, WebServer

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "api"
SUPPORT = "support@postroom.localhost"
REFUSED = {
    "link_message": "feature_disabled",
    "link_attachment": "feature_disabled",
    "add_account": "provider_error",
    "remove_account": "not_found",
    "sync_account": "not_found",
    "check_account": "not_found",
    "log_in_account": "not_found",
}
"""Calls that need a bucket or a provider, as in tests/providers, and their responses here."""


@dataclass(frozen=True, slots=True)
class Call:
    """The samples of one operation."""

    operation: str
    curl: str
    python: str
    tool: str

    def __str__(self) -> str:
        return self.operation


def calls() -> list[Any]:
    found = []
    for page in sorted(FOLDER.glob("*.md")):
        for section in page.read_text("utf-8").split("\n## ")[1:]:
            blocks = dict(re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL))
            if "sh" in blocks:
                call = Call(section.split("\n")[0], *map(blocks.get, ("sh", "python", "json")))  # type: ignore[arg-type]
                found.append(pytest.param(call, id=call.operation))
    return found


CALLS = calls()


def test_the_pages_are_current():
    made = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check"]

    assert 0 == subprocess.run(made, check=False).returncode


def test_every_operation_has_a_sample():
    posted = {"receive_posting"}

    assert {r.operation.name for r in ROUTES} - posted == {str(one.values[0]) for one in CALLS}


class ApiFixture:
    """Creates objects over REST when a sample names them."""

    numbers = count(1)

    def __init__(self, server: Running, receiver: WebServer) -> None:
        self.server, self.receiver = server, receiver
        headers = {"Authorization": f"Bearer {server.key}"}
        self.http = httpx2.Client(base_url=server.url, headers=headers, timeout=60)
        self.approver = self._at_the_terminal("key", "create", "approver", "--scope", "approve")[
            "key"
        ]
        policy = {"name": "agent", "scopes": ["read", "write", "send"], "approval": "always"}
        self.agent = self.post("/v1/keys", **policy)["key"]
        self.post("/v1/inboxes", username="support")

    def _at_the_terminal(self, *words: str) -> dict[str, Any]:
        done = subprocess.run(
            forked_command("-o", "json", *words),
            env=self.server.env,
            capture_output=True,
            check=True,
        )
        return dict(json.loads(done.stdout))

    def post(self, path: str, by: str = "", **body: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {by}"} if by else {}
        response = self.http.post(path, json=body, headers=headers)
        assert response.is_success, response.text
        return dict(response.json())

    def receive(self, inbox: dict[str, Any], subject: str, **more: Any) -> dict[str, Any]:
        raw = mail(subject, "Your code is 482913.", to=inbox["address"], date=None, **more)
        answer = self.http.post("/v1/inbound", params={"recipient": inbox["address"]}, content=raw)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def names(self, operation: str, text: str) -> dict[str, str]:
        """The id to use for each example id in a call."""
        number = next(self.numbers)
        inbox = self.post("/v1/inboxes", username=f"box{number}")
        leave = ("List-Unsubscribe", "<mailto:leave@news.example>")
        file = ("invoice.txt", "text/plain", b"Net 30.")
        first = self.receive(
            inbox, "Your code", attachments=[file], message_id=f"<{number}@x.example>"
        )
        second = self.receive(
            inbox, "Re: Your code", in_reply_to=f"<{number}@x.example>", headers=[leave]
        )
        other = self.receive(inbox, "Invoice")
        self.post("/v1/messages/labels", message_ids=[second["message_id"]], label="Work")
        self.post("/v1/memories", key="ana/invoices", text="As PDF.")
        names = {
            "inb_7k2m9q": inbox["id"],
            "msg_4h8t2w": second["message_id"],
            "msg_4h8": second["message_id"][:9],
            "thr_9d3f1x": first["thread_id"],
            "thr_2b5n8c": other["thread_id"],
            "evt_8c1v6d": self.http.get("/v1/events").json()["results"][0]["id"],
            "orders": f"orders{number}",
            "order-1042": f"order-{number}",
            "Hello": f"Hello {number}",
            "https://example.com": self.receiver.url,
        }
        if operation in OUTGOING:
            names |= self._outgoing(operation, inbox, number)
        return {**names, **self._more(text, inbox, first["message_id"], operation)}

    def _outgoing(self, operation: str, inbox: dict[str, Any], number: int) -> dict[str, str]:
        """A mail that has not been sent: held, or waiting for a relay that does not answer."""
        key = "" if operation in ("retry_message", "cancel_message") else self.agent
        words = {"to": [f"s{number}@example.org"], "subject": "Offer", "body_text": "Ten."}
        sent = self.post("/v1/messages", key, inbox_id=inbox["id"], **words)
        names = {"msg_4h8t2w": sent["message_id"]}
        if key:
            held = self.http.get(f"/v1/outbox/{sent['message_id']}").json()
            names["9f86d081" * 8] = held["hold"]["sha256"]
        else:
            self._tried(sent["message_id"])
        return names

    def _tried(self, message_id: str) -> None:
        """Wait until the relay was tried: a mail that is being transmitted cannot be cancelled."""
        deadline = time.monotonic() + 60
        while True:
            waiting = self.http.get("/v1/outbox", params={"limit": 100}).json()["results"]
            [mail] = [one for one in waiting if one["message_id"] == message_id]
            if mail["recipients"][0].get("detail"):
                return
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _more(
        self, text: str, inbox: dict[str, Any], message: str, operation: str
    ) -> dict[str, str]:
        """Objects that only some calls name."""
        made: dict[str, str] = {}
        if "att_6p1r4z" in text:
            files = self.http.get("/v1/attachments", params={"message_id": message}).json()
            made["att_6p1r4z"] = files["results"][0]["id"]
        if "drf_5t2k8n" in text:
            draft = {"to": ["ana@example.com"], "subject": "Hi", "body_text": "Hi"}
            made["drf_5t2k8n"] = self.post("/v1/drafts", inbox_id=inbox["id"], **draft)["id"]
        if "idn_5c1r8v" in text:
            email = f"alias-{inbox['address']}"
            made["idn_5c1r8v"] = self.post("/v1/identities", email=email, inbox_id=inbox["id"])[
                "id"
            ]
        if "key_3s8v5y" in text:
            made["key_3s8v5y"] = self.post("/v1/keys", name="short", scopes=["read"])["id"]
        if "whk_2f7j4s" in text:
            made |= self._webhook(inbox)
        if "rul_6c1k8d" in text or "pln_5r2x7h" in text:
            made |= self._rule(operation)
        return made

    def _webhook(self, inbox: dict[str, Any]) -> dict[str, str]:
        hook = self.post("/v1/webhooks", url=self.receiver.url, inboxes=[inbox["id"]])
        self.receive(inbox, "News")
        return {"whk_2f7j4s": hook["id"], "dlv_9w3b7m": self._delivered(hook["id"])}

    def _delivered(self, webhook_id: str) -> str:
        """The id of the newest delivery, once it is complete; a pending one cannot be repeated."""
        deadline = time.monotonic() + 60
        while True:
            path = f"/v1/webhooks/{webhook_id}/deliveries"
            newest = self.http.get(path).json()["results"][0]
            if newest["status"] == "delivered" or time.monotonic() > deadline:
                return str(newest["id"])
            time.sleep(0.05)

    def _rule(self, operation: str) -> dict[str, str]:
        text = "name: Invoices\nwhen: [{subject: {contains: invoice}}]\nthen: [mark_read]\n"
        rule = self.post("/v1/rules", rule_yaml=text, dry_run=False)
        plan = self.post(f"/v1/rules/{rule['id']}/plan")
        if operation == "undo_rule_plan":
            self.post(f"/v1/plans/{plan['plan_id']}/apply")
        return {"rul_6c1k8d": rule["id"], "pln_5r2x7h": plan["plan_id"]}

    def filled(self, operation: str, text: str) -> str:
        """A sample with ids that exist."""
        text = text.replace("http://127.0.0.1:8700", self.server.url)
        for example, real in sorted(self.names(operation, text).items(), key=lambda n: -len(n[0])):
            text = text.replace(example, real)
        return text


OUTGOING = {"get_held_mail", "approve_message", "reject_message", "retry_message", "cancel_message"}


@pytest.fixture(scope="module")
def fixture(tmp_path_factory) -> Iterator[ApiFixture]:
    """A server whose relay does not answer, so that mail stays on its way out."""
    folder = tmp_path_factory.mktemp("reference")
    settings = {
        "POSTROOM_RELAY_URL": f"smtp://127.0.0.1:{free_port()}",
        "POSTROOM_WEBHOOK_ALLOW": "127.0.0.0/8",
    }
    with (
        WebServer(lambda _: HttpResponse(204)) as receiver,
        running(folder / "data", **settings) as server,
    ):
        yield ApiFixture(server, receiver)


UNTIL_THE_FIRST_EVENT = """%s > events &
for _ in {1..600}; do grep -q '^event: ' events && break; sleep 0.1; done
kill $!; cat events"""


@pytest.mark.parametrize("call", CALLS)
def test_the_call_works_with_curl(call: Call, fixture: ApiFixture, tmp_path: Path):
    (tmp_path / "one.eml").write_bytes(mail("Invoice 7", sender=SUPPORT, to=SUPPORT))
    script = fixture.filled(call.operation, call.curl).replace(
        "curl -s", "curl -w '\\n%{http_code}' -s"
    )
    if call.operation == "stream_events":
        script = UNTIL_THE_FIRST_EVENT % script.strip()
    env = {"KEY": fixture.server.key, "APPROVER_KEY": fixture.approver, "PATH": "/usr/bin:/bin"}

    ran = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    if call.operation == "stream_events":
        assert "event: message.received" in ran.stdout
        return
    body, _, status = ran.stdout.rpartition("\n")
    if call.operation in REFUSED:
        assert REFUSED[call.operation] == json.loads(body)["code"]
    else:
        assert status in ("200", "201", "204"), body


@pytest.mark.parametrize("call", [one for one in CALLS if one.values[0].tool])
async def test_the_call_works_over_mcp(call: Call, fixture: ApiFixture):
    asked = json.loads(fixture.filled(call.operation, call.tool))
    url, headers = f"{fixture.server.url}/mcp", {"Authorization": f"Bearer {fixture.server.key}"}

    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        answer = await client.call_tool(asked["name"], asked["arguments"])

    assert not answer.is_error, answer.content


@pytest.mark.parametrize("call", CALLS)
def test_the_call_works_in_python(call: Call, fixture: ApiFixture, tmp_path: Path, monkeypatch):
    """It is a method of the client; before there is a client, it is at least an operation."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.eml").write_bytes(mail("Invoice 7", sender=SUPPORT, to=SUPPORT))
    source = fixture.filled(call.operation, call.python)
    [named] = re.findall(r"client\.(\w+)\(", source)
    assert call.operation == named

    tree = ast.parse(source)

    if importlib.util.find_spec("postroom.client") is not None:
        from postroom.client import Postroom

        key = fixture.approver if call.operation in ("approve_message", "reject_message") else None
        with Postroom(fixture.server.url, key=key or fixture.server.key) as client:
            _run(call, compile(tree, call.operation, "exec"), client)


def _run(call: Call, code: Any, client: object) -> None:
    with pytest.raises(MailError) if call.operation in REFUSED else nullcontext() as raised:
        exec(code, {"client": client})
    if raised is not None:
        assert REFUSED[call.operation] == raised.value.code
