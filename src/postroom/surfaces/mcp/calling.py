"""A call of a tool: arguments in, an answer or an explained error out."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from msgspec.json import decode

from postroom.errors import MailError
from postroom.operations.context import Context
from postroom.operations.operation import call
from postroom.surfaces.mcp.explaining import explain_error
from postroom.surfaces.mcp.fitting import as_text, fit
from postroom.surfaces.mcp.tool import Body, Tool
from postroom.surfaces.shapes import answer

MOST_ERROR_CHARS = 10_000


async def call_tool(ctx: Context, tool: Tool, given: Mapping[str, Any]) -> dict[str, Any]:
    """Run a tool and shape its result for the protocol; it fails only in the answer."""
    started = perf_counter()
    try:
        result = await call(ctx, tool.operation, tool.arguments(given))
        body, is_error = tool.present(answer(tool.operation, result)), False
    except MailError as error:
        body, is_error = _failure(tool, error), True
    except Exception as error:  # noqa: BLE001 - the caller hears that it failed, the log why
        ctx.counts.failed("tools_failed", {"tool": tool.name}, cause=error)
        fault = MailError("something went wrong on our side; our log says what")
        body, is_error = _failure(tool, fault), True
    if not (tool.whole or is_error):
        body = fit(body, tool.go_on)
    return _result(tool.stamp(body, perf_counter() - started), is_error=is_error)


def failed_call(tool: Tool | None, error: MailError) -> dict[str, Any]:
    """The answer to a call that came to nothing before its arguments were known."""
    if tool is None:
        return _result(explain_error(error), is_error=True)
    return _result(tool.stamp(_failure(tool, error), 0), is_error=True)


def _failure(tool: Tool, error: MailError) -> Body:
    """An error that repeats what was wrong, but not all of it if that was long."""
    explained = tool.explain(error)
    short = fit(explained, tool.go_on, MOST_ERROR_CHARS)
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
