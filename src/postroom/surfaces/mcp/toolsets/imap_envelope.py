"""The envelope of contract 002: summary, data and meta; or error and meta."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from postroom.errors import MailError, RateLimited
from postroom.surfaces.mcp.tool import Body
from postroom.surfaces.shapes import moment, to_json

Summarise = Callable[[Body], str]
Follow = Callable[[Body], Body | None]

CODES = {
    "invalid_input": "invalid_input",
    "malformed": "invalid_input",
    "unauthenticated": "auth_failed",
    "forbidden": "invalid_input",
    "write_disabled": "invalid_input",
    "not_found": "not_found",
    "feature_disabled": "not_found",
    "conflict": "conflict",
    "too_large": "invalid_input",
    "too_slow": "invalid_input",
    "rate_limited": "internal",
    "provider_error": "internal",
    "provider_auth": "auth_failed",
    "provider_timeout": "timeout",
    "storage_full": "internal",
    "unavailable": "internal",
    "internal": "internal",
}
"""From our kinds to the codes of contract 002."""


def present(summarise: Summarise, follow: Follow, body: Body) -> Body:
    """An answer in its envelope, with a sentence about it and what to do next."""
    data = {name: value for name, value in body.items() if name != "untrusted"}
    if "issues" in data:
        data["issues"] = [_issue(issue) for issue in data["issues"]]
    step = follow(data)
    if step is not None:
        data["next_action"] = step
    mark = {"untrusted": True} if "untrusted" in body else {}
    return {**mark, "summary": summarise(data), "data": data}


def _issue(issue: Body) -> Body:
    return {**issue, "code": CODES.get(issue["code"], issue["code"])}


def explain_error(error: MailError) -> Body:
    """The body of a failed call."""
    details: dict[str, Any] = {"kind": error.code, **to_json(error.details)}
    if isinstance(error, RateLimited):
        details["retry_after"] = error.retry_after
    return {"error": {"code": CODES[error.code], "message": str(error), "details": details}}


def stamp(body: Body, seconds: float) -> Body:
    """Every answer and every error says when it was made and how long that took."""
    return {
        **body,
        "meta": {"now_utc": moment(datetime.now(UTC)), "duration_ms": round(seconds * 1000)},
    }


def outline(schema: Body) -> Body:
    """The schema of an answer in its envelope."""
    data = {name: shape for name, shape in schema["properties"].items() if name != "untrusted"}
    data["next_action"] = {"type": "object"}
    return {
        "type": "object",
        "properties": {
            "summary": {"type": "string"},
            "data": {"type": "object", "properties": data},
            "meta": {"type": "object"},
        },
    }
