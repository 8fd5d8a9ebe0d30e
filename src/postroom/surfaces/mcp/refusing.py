"""A call that there was no space to take in: still answered as a call, not as a broken connection.

Its bytes are gone, but for the first and the last of them; there, every client writes what it is:

    {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"send_email", …
    {"method":"tools/call","params":{"name":"send_email", … },"jsonrpc":"2.0","id":7}
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from msgspec import DecodeError
from msgspec.json import decode, encode
from starlette.responses import Response

from postroom.errors import StorageFull
from postroom.surfaces.mcp.calling import failed_call
from postroom.surfaces.mcp.explaining import explain_error
from postroom.surfaces.mcp.tool import Tool

END_BYTES = 1_024

_MEMBER = rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*'
_FIRST = re.compile(rb"\s*[{,]\s*" + _MEMBER + rb"(?=[,}])")
_LAST = re.compile(rb"[{,]\s*" + _MEMBER + rb"\Z")
_CLOSED = re.compile(rb"\}\s*\Z")
_NAME = re.compile(rb'"name"\s*:\s*"(\w+)"')


@dataclass(slots=True)
class Ends:
    """The first and the last bytes of what passes."""

    first: bytes = b""
    last: bytes = b""

    async def of(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Everything as it comes."""
        async for chunk in chunks:
            self.first += chunk[: END_BYTES - len(self.first)]
            self.last = (self.last + chunk[-END_BYTES:])[-END_BYTES:]
            yield chunk

    def members(self) -> dict[str, Any]:
        """What the outermost object is known to say: words and numbers at its ends."""
        found: dict[bytes, bytes] = {}
        at = 0
        while member := _FIRST.match(self.first, at):
            found[member[1]], at = member[2], member.end()
        rest = _CLOSED.sub(b"", self.last)
        while rest != self.last and (member := _LAST.search(rest)):
            found[member[1]], rest = member[2], rest[: member.start()]
        return {name.decode(): _scalar(value) for name, value in found.items()}

    def tool(self, tools: Mapping[str, Tool]) -> Tool | None:
        """The tool that is called, if it is one of ours."""
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
