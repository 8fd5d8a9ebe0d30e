"""A session of an agent with one toolset, and the resulting mailbox."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mcp import Client

from postroom.calls.context import RequestContext
from postroom.model.mail.message import Message
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING
from postroom.providers.embeddings import Vocabulary, weights_folder


class CallFailed(Exception):
    """A tool answered with an error."""


@dataclass(slots=True)
class Session:
    """Calls tools, and counts calls, bytes and tokens of arguments and results."""

    client: Client
    calls: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    tokens: int = 0
    tools: list[str] = field(default_factory=list)

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool. Raises CallFailed."""
        result = await self.client.call_tool(name, arguments)
        [content] = result.content
        given = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
        self.calls += 1
        self.tools.append(name)
        self.sent_bytes += len(given.encode())
        self.received_bytes += len(content.text.encode())
        self.tokens += count_tokens(name) + count_tokens(given) + count_tokens(content.text)
        body: dict[str, Any] = json.loads(content.text)
        if result.is_error:
            raise CallFailed(f"{name}: {body}")
        return body


@cache
def _vocabulary() -> Vocabulary:
    return Vocabulary(weights_folder() / "vocabulary.txt")


def count_tokens(text: str) -> int:
    """The number of WordPiece tokens; models with larger vocabularies need a little fewer."""
    return len(_vocabulary().numbers(text, sys.maxsize)) - 2


@dataclass(frozen=True, slots=True)
class FinalMailbox:
    """The mailbox after a task, as seen by its owner."""

    ctx: RequestContext

    async def messages(self, **criteria: Any) -> list[Message]:
        """All messages that match, newest first, in every mailbox."""
        inbox = criteria.pop("inbox", None)
        if inbox:
            found = await self.ctx.store.inboxes_at([inbox])
            criteria["inbox_id"] = found[inbox].id
        criteria.setdefault("mailbox", "*")
        query = MessageQuery(visible=EVERYTHING, page=Slice(limit=1_000), **criteria)
        rows = (await self.ctx.store.messages(query)).rows
        whole = [await self.ctx.store.message(row.id, EVERYTHING) for row in rows]
        return [message for message in whole if message is not None]

    async def only(self, **criteria: Any) -> Message:
        """The one message that matches."""
        [message] = await self.messages(**criteria)
        return message
