"""Calling a tool: arguments in, a result or an explained error out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import mcp_types as types
from msgspec import DecodeError
from msgspec.json import decode, encode
from starlette.responses import Response

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import MailError, StorageFull
from postroom.mail.text.display import is_inert
from postroom.surfaces.mcp.result_size import MAX_CHARS, as_text, fit
from postroom.surfaces.mcp.tool import Body, Tool, explain_error
from postroom.surfaces.to_json import answer, marked, presented

MAX_ERROR_CHARS = 10_000


async def call_tool(ctx: RequestContext, tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a tool and return its result; errors are returned, not raised."""
    started = perf_counter()
    try:
        result = await call(ctx, tool.operation, tool.arguments(given))
        body, is_error = _shaped(tool, result), False
    except MailError as error:
        body, is_error = _failure(tool, error), True
    except Exception as error:  # noqa: BLE001 - the caller hears that it failed, the log why
        ctx.counts.failed("tools_failed", {"tool": tool.name}, cause=error)
        fault = MailError("internal error; the log of the server has the details")
        body, is_error = _failure(tool, fault), True
    return _result(tool.stamp(body, perf_counter() - started), is_error=is_error)


def _shaped(tool: Tool, result: Any) -> Body:
    """The result in the shape of its tool, truncated to fit."""
    body = tool.present(answer(tool.operation, result))
    text = as_text(body)
    if "untrusted" in body and not is_inert(text.encode()):
        body = presented(body)
        text = as_text(body)
    return body if tool.whole or len(text) <= MAX_CHARS else fit(body, tool.go_on)


def failed_call(tool: Tool | None, error: MailError) -> dict[str, Any]:
    """The result of a call that failed before its arguments were read."""
    if tool is None:
        return _result(marked(error, explain_error(error)), is_error=True)
    return _result(tool.stamp(_failure(tool, error), 0), is_error=True)


def _failure(tool: Tool, error: MailError) -> Body:
    """An error, truncated if it quotes a long value."""
    explained = marked(error, tool.explain(error))
    short = fit(explained, tool.go_on, MAX_ERROR_CHARS)
    return {name: short[name] for name in explained}


def _result(body: Body, *, is_error: bool) -> dict[str, Any]:
    text = as_text(body)
    return {
        "content": [{"type": "text", "text": text}],
        # Read again, so that the two are equal whatever the text could not say.
        "structuredContent": decode(text),
        "isError": is_error,
        "resultType": "complete",
    }


END_BYTES = 1_024

_MEMBER = rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*'
_FIRST = re.compile(rb"\s*[{,]\s*" + _MEMBER + rb"(?=[,}])")
_LAST = re.compile(rb"[{,]\s*" + _MEMBER + rb"\Z")
_CLOSED = re.compile(rb"\}\s*\Z")
_NAME = re.compile(rb'"name"\s*:\s*"(\w+)"')


@dataclass(slots=True)
class Ends:
    """The first and last bytes of a stream."""

    first: bytes = b""
    last: bytes = b""

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Everything as it comes."""
        async for chunk in chunks:
            self.first += chunk[: END_BYTES - len(self.first)]
            self.last = (self.last + chunk[-END_BYTES:])[-END_BYTES:]
            yield chunk

    def members(self) -> dict[str, Any]:
        """Members of the outermost object: strings and numbers at its ends."""
        found: dict[bytes, bytes] = {}
        at = 0
        while member := _FIRST.match(self.first, at):
            found[member[1]], at = member[2], member.end()
        rest = _CLOSED.sub(b"", self.last)
        while rest != self.last and (member := _LAST.search(rest)):
            found[member[1]], rest = member[2], rest[: member.start()]
        return {name.decode(): _scalar(value) for name, value in found.items()}

    def tool(self, tools: Mapping[str, Tool]) -> Tool | None:
        """The tool that is called, if it exists."""
        named = _NAME.search(self.first) or _NAME.search(self.last)
        return tools.get(named[1].decode()) if named else None


def _scalar(value: bytes) -> str | int | None:
    try:
        return decode(value, type=str | int)
    except (DecodeError, UnicodeDecodeError):
        return None


def refusal(error: StorageFull, ends: Ends, tools: Mapping[str, Tool]) -> Response:
    """The answer to a call that was not taken in.

    A model sees the error of a tool, and none of its client's connection. If we do not know whose
    answer it is, the error is the one of HTTP, and says itself in JSON-RPC without an id: clients
    give that to whoever waits for this request.
    """
    call = ends.members()
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": call.get("id")}
    if call.get("method") == "tools/call" and reply["id"] is not None:
        reply["result"] = failed_call(ends.tool(tools), error)
        return Response(encode(reply), media_type="application/json")
    data = explain_error(error)["error"]
    reply["error"] = {"code": types.INTERNAL_ERROR, "message": str(error), "data": data}
    return Response(encode(reply), 507, media_type="application/json")
