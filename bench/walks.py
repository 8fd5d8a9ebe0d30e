"""The number of files that a reader opens to follow each walk of the architecture page.

A file counts if one of its functions is called in the walk. The values of `model/`, the protocols
of `ports/` and the engines of the databases are excluded. Each walk runs twice; the second run is
counted, because the first loads modules and fills caches. A send is counted up to its response; the
outbox afterwards is `hand-over`, which has no limit of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import imaplib
import smtplib
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import postroom
from bench.sync import add, settings
from postroom.app import App, open_app
from postroom.calls.operation import Operation, call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations.inboxes import create_inbox
from postroom.operations.memories import memory_add
from postroom.operations.memory_search import memory_search
from postroom.operations.outgoing.sending import send_message
from postroom.operations.rules import apply_rule_plan, create_rule, run_rule_plan
from postroom.pipeline.sync import sync_once
from postroom.surfaces.mcp.call_tool import call_tool
from postroom.surfaces.mcp.toolsets import choose_tools
from postroom.surfaces.smtp.server import listening
from tests.servers.dovecot import PASSWORD, Dovecot
from tests.servers.relay import relaying

AT_MOST = {
    "SMTP in": 35,
    "search over MCP": 18,
    "send": 45,
    "rule plan": 28,
    "memory search": 16,
    "sync": 25,
}
CONTINUES = {"hand-over": "send", "sync": "SMTP in"}
"""Walks that begin or end in another one, whose files are not counted twice."""

SOURCE = str(Path(postroom.__file__).parent) + "/"
LEFT_OUT = (
    "model/",
    "ports/",
    "store/sqlite/",
    "store/postgres/",
    "store/thread_pool.py",
    "store/transaction.py",
)
RULE = """
name: Invoices
when: [{subject: {contains: report}}]
then: [{apply_label: Reports}]
"""

Step = Callable[[], Awaitable[None]]
Walk = tuple[Step, Step]
"""The preparation of a walk, and its counted part."""


async def nothing() -> None:
    """Most walks need no preparation."""


Called = dict[str, set[str]]
"""The functions that were called, by file."""


class Recorder:
    """Records the files whose functions are called, in every thread, while it is on."""

    def __init__(self) -> None:
        self._called: Called | None = None
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self._called is not None and event == "call" and code.co_name != "<module>":
            self._called[code.co_filename].add(code.co_qualname)

    @contextmanager
    def on(self) -> Iterator[Called]:
        called: Called = defaultdict(set)
        self._called = called
        yield called
        self._called = None


def own(called: Called) -> dict[str, set[str]]:
    """The counted files of the source, with the called functions."""
    ours = {name.removeprefix(SOURCE): called[name] for name in called if name.startswith(SOURCE)}
    return {name: ours[name] for name in sorted(ours) if not name.startswith(LEFT_OUT)}


def report(subject: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "ana@example.com", "bo@postroom.localhost", subject
    mail.set_content(f"This is {subject}.")
    return mail


@asynccontextmanager
async def walks(folder: Path, dovecot: Dovecot) -> AsyncIterator[dict[str, Walk]]:
    """The walks, on an installation with two inboxes, a memory, a rule and an account."""
    async with relaying() as relay:
        given = {"POSTROOM_RELAY_URL": relay.url, "POSTROOM_SMTP_LISTEN": "127.0.0.1:0"}
        chosen = read_settings({**settings(folder), **given}).settings
        async with open_app(chosen) as app, listening(app) as listener:
            assert listener is not None
            steps = Steps(app, listener.port, dovecot)
            await steps.prepare()
            yield {
                "SMTP in": (nothing, steps.smtp),
                "search over MCP": (nothing, steps.search),
                "send": (nothing, steps.send),
                "hand-over": (steps.send, steps.hand_over),
                "memory search": (nothing, steps.memory),
                "sync": (steps.deliver, steps.sync),
                # Last, because a rule changes the handling of arriving mail.
                "rule plan": (steps.add_rule, steps.plan),
            }


@dataclass
class Steps:
    """The actions of the walks."""

    app: App
    smtp_port: int
    dovecot: Dovecot
    numbers: Iterator[int] = field(default_factory=count)
    account_id: str = ""
    rule_id: str = ""

    def __post_init__(self) -> None:
        self.ctx = self.app.context(OWNER)
        self.tools = {tool.name: tool for tool in choose_tools(["inbox"])}

    async def do(self, operation: Operation[Any, Any], **arguments: Any) -> Any:
        return await call(self.ctx, operation, arguments)

    async def prepare(self) -> None:
        await self.do(create_inbox, username="bo")
        await self.do(create_inbox, username="me")
        await self.do(memory_add, key="report", text="The report is due on Friday.")
        self.account_id = await add(self.app, self.dovecot)

    def subject(self) -> str:
        return f"report {next(self.numbers)}"

    async def smtp(self) -> None:
        await asyncio.to_thread(self._smtp)

    def _smtp(self) -> None:
        with smtplib.SMTP("127.0.0.1", self.smtp_port) as client:
            client.send_message(report(self.subject()))

    async def search(self) -> None:
        answer = await call_tool(self.ctx, self.tools["search_messages"], {"q": "report"})
        assert "report 0" in str(answer)

    async def send(self) -> None:
        to, subject = ["bo@postroom.localhost", "eve@example.org"], self.subject()
        mail = {"to": to, "subject": subject, "body_text": "Here it is."}
        await self.do(send_message, inbox_id="me@postroom.localhost", **mail)

    async def hand_over(self) -> None:
        async with self.app.sending():
            pass

    async def add_rule(self) -> None:
        await self.smtp()  # before there is a rule, which would be applied to this mail at once
        if not self.rule_id:
            rule = await self.do(create_rule, rule_yaml=RULE, dry_run=False)
            self.rule_id = rule.id

    async def plan(self) -> None:
        made = await self.do(run_rule_plan, rule_id=self.rule_id)
        assert made.total_matches
        await self.do(apply_rule_plan, plan_id=made.plan_id)

    async def memory(self) -> None:
        found = await self.do(memory_search, query=f"When is {self.subject()} due?")
        assert found.results

    async def deliver(self) -> None:
        await asyncio.to_thread(self._deliver)

    def _deliver(self) -> None:
        with imaplib.IMAP4("127.0.0.1", self.dovecot.imap) as client:
            client.login("alice", PASSWORD)
            client.append("INBOX", "", "", report(self.subject()).as_bytes())

    async def sync(self) -> None:
        account = await self.app.services.store.account(self.account_id, EVERYTHING)
        assert account is not None
        await sync_once(self.app.services, account)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files and their functions")
    wants_list = parser.parse_args().list
    recorder, over, found = Recorder(), 0, dict[str, Called]()
    with tempfile.TemporaryDirectory() as folder, Dovecot() as dovecot:
        async with walks(Path(folder), dovecot) as all_walks:
            for name, (prepare, walk) in all_walks.items():
                await prepare()
                await walk()
                await prepare()
                with recorder.on() as called:
                    await walk()
                found[name] = own(called)
    for name in CONTINUES:
        found[name] = {k: v for k, v in found[name].items() if k not in found[CONTINUES[name]]}
    for name, files in found.items():
        most = AT_MOST.get(name)
        is_over = most is not None and len(files) > most
        over += is_over
        limit = f" (at most {most}: {'too many' if is_over else 'ok'})" if most else ""
        print(f"{name}: {len(files)} files{limit}")
        if wants_list:
            print(*(f"    {file}: {', '.join(sorted(files[file]))}" for file in files), sep="\n")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
