"""Calling a tool: arguments in, a result that fits or an explained error out."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
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
from postroom.surfaces.http import reword, reword_text
from postroom.surfaces.mcp.tool import Body, Tool, explain_error
from postroom.surfaces.to_json import mark_untrusted, response_body, with_clean_text

MAX_CHARS = 100_000
"""25,000 tokens of 4 characters: clients refuse more."""

_NOTES_CHARS = 4_000
"""What the notes on what was cut take at most."""

_LEAST = 64
"""No part is cut below this, so that ids stay whole."""

_HALF = re.compile("(?:</?m?a?r?k?|&[a-z0-9#]{0,6})$")
"""The beginning of a mark, or of a character that is escaped."""

_MAX_NOTES = 20
_ROWS = ("messages", "matched_messages", "results")
"""Lists that are cut by whole rows."""


def as_text(value: Any) -> str:
    """Compact JSON; unpaired surrogates, which UTF-8 cannot encode, are replaced."""
    try:
        return encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fit(body: Body, next_step: str, most_chars: int = MAX_CHARS) -> Body:
    """Truncate the largest parts of a response until it fits; small parts stay complete.

    Then `truncated` is true, `cut` names what was cut, and `go_on` holds `next_step`:
    how to read the rest.
    """
    if len(as_text(body)) <= most_chars:
        return body
    budget = most_chars - _NOTES_CHARS
    shortener = _Shortener(_largest_share(body, budget))
    short: Body = shortener.shorten(body, "")
    shortener.notes |= _drop_rows(short, budget)
    _repair_offset(body, short)
    cut = [f"{path}: {what}" for path, what in shortener.notes.items()]
    rest = len(cut) - _MAX_NOTES
    cut = [*cut[:_MAX_NOTES], f"and {rest} more"] if rest > 0 else cut
    return {**short, "truncated": True, "cut": cut, "go_on": next_step}


def _largest_share(body: Body, budget: int) -> int:
    """The maximum length of each part so that all of them fit, to a few per cent."""
    low, high = _LEAST, budget
    while high - low > low // 32:
        middle = (low + high + 1) // 2
        if len(as_text(_Shortener(middle).shorten(body, ""))) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(slots=True)
class _Shortener:
    """Shortens every text and every list to one share, and records this."""

    share: int
    notes: dict[str, str] = field(default_factory=dict)

    def shorten(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, list):
            return self._list(value, path)
        if isinstance(value, dict):
            return self._object(value, path)
        return value

    def _text(self, text: str, path: str) -> str:
        if len(text) <= self.share:
            return text
        self.notes[path] = f"{self.share} characters of {len(text)}"
        short = text[: self.share]
        return _repair_html(short) if path.endswith("excerpt") else short

    def _list(self, items: list[Any], path: str) -> list[Any]:
        short = [self.shorten(item, f"{path}[]") for item in items]
        if path in _ROWS:
            return short
        size = 0
        for number, item in enumerate(short):
            size += len(as_text(item)) + 1
            if size > self.share and number:
                self.notes[path] = f"{number} of {len(items)}"
                return short[:number]
        return short

    def _object(self, fields: Body, path: str) -> Body:
        short: Body = {}
        for name, value in fields.items():
            inner = f"{path}.{name}" if path else name
            # Half of a base64 file is useless.
            if name == "content" and isinstance(value, str) and len(value) > self.share:
                self.notes[inner] = "left out"
                short["content_omitted"] = True
            else:
                short[name] = self.shorten(value, inner)
        return short


def _repair_html(short: str) -> str:
    """An excerpt that may be HTML, without a partial tag or character at its end, and closed."""
    whole = _HALF.sub("", short)
    return whole + "</mark>" if whole.count("<mark>") > whole.count("</mark>") else whole


def _drop_rows(short: Body, budget: int) -> dict[str, str]:
    """Drop rows if even short ones are too many: the last of a page, the oldest of a thread."""
    name = next((name for name in _ROWS if name in short), "results")
    rows = short.get(name) or []
    over = len(as_text(short)) - budget
    kept = list(rows)
    while over > 0 and kept:
        over -= len(as_text(kept.pop(0 if name == "messages" else -1))) + 1
    if len(kept) == len(rows):
        return {}
    short |= {name: kept, "has_more": True}
    if name != "messages":
        short["count"] = len(kept)
        # A cursor would skip the rows that were left out; an offset does not.
        short.pop("next_cursor", None)
    return {name: f"{len(kept)} of {len(rows)}"}


def _repair_offset(body: Body, short: Body) -> None:
    """Set `next_offset` to the new end of the text of a message."""
    whole, part = body.get("text"), short.get("text")
    if not isinstance(whole, str) or not isinstance(part, str) or whole == part:
        return
    end = body.get("next_offset") or body.get("total_chars") or len(whole)
    short["total_chars"] = body.get("total_chars", len(whole))
    short["next_offset"] = end - (len(whole) - len(part))


MAX_ERROR_CHARS = 10_000


async def call_tool(ctx: RequestContext, tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a tool and return its result; errors are returned, not raised."""
    started = perf_counter()
    try:
        result = await call(ctx, tool.operation, tool.arguments(given))
        body, is_error = _shaped(tool, result, given), False
    except MailError as error:
        body, is_error = _failure(tool, error, given), True
    except Exception as error:  # noqa: BLE001 - the caller hears that it failed, the log why
        ctx.counts.failed("tools_failed", {"tool": tool.name}, cause=error)
        fault = MailError("internal error; the log of the server has the details")
        body, is_error = _failure(tool, fault, given), True
    return _result(tool.add_meta(body, perf_counter() - started), is_error=is_error)


def _shaped(tool: Tool, result: Any, given: Mapping[str, Any]) -> Body:
    """The result in the shape of its tool and the words of its toolset, truncated to fit."""
    body = tool.shape_result(response_body(tool.operation, result))
    for item in (*body.get("results", ()), *body.get("failed", ())) if tool.words else ():
        for name in {"error", "note"}.intersection(item) if isinstance(item, dict) else ():
            item[name] = reword_text(item[name], tool.words, given)
    text = as_text(body)
    if "untrusted" in body and not is_inert(text.encode()):
        body = with_clean_text(body)
        text = as_text(body)
    # Base64 and sources have separate limits.
    is_whole = tool.never_truncated and tool.cut not in body
    return body if is_whole or len(text) <= MAX_CHARS else fit(body, tool.next_step)


def failed_call(tool: Tool | None, error: MailError) -> dict[str, Any]:
    """The result of a call that failed before its arguments were read."""
    if tool is None:
        return _result(mark_untrusted(error, explain_error(error)), is_error=True)
    return _result(tool.add_meta(_failure(tool, error, {}), 0), is_error=True)


def _failure(tool: Tool, error: MailError, given: Mapping[str, Any]) -> Body:
    """An error in the words of the toolset, truncated if it quotes a long value."""
    explained = mark_untrusted(error, tool.explain(reword(error, tool.words, given)))
    short = fit(explained, tool.next_step, MAX_ERROR_CHARS)
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
        """Pass the chunks on, and keep the first and last bytes."""
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
    """The response to a call whose body could not be stored, because the disk is full.

    A tool error if id and method could be read, because a model sees only those; otherwise HTTP
    507 with a JSON-RPC error whose id may be null, which clients return to the caller.
    """
    call = ends.members()
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": call.get("id")}
    if call.get("method") == "tools/call" and reply["id"] is not None:
        reply["result"] = failed_call(ends.tool(tools), error)
        return Response(encode(reply), media_type="application/json")
    data = explain_error(error)["error"]
    reply["error"] = {"code": types.INTERNAL_ERROR, "message": str(error), "data": data}
    return Response(encode(reply), 507, media_type="application/json")
