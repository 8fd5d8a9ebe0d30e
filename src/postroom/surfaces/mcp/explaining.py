"""Errors in the words of contract 001."""

from __future__ import annotations

from typing import Any

from postroom.errors import MailError, ProviderError, RateLimited, Unavailable
from postroom.surfaces.shapes import to_json

CODES = {
    "invalid_input": "INVALID_REQUEST",
    "malformed": "INVALID_REQUEST",
    "unauthenticated": "PERMISSION_DENIED",
    "forbidden": "PERMISSION_DENIED",
    "write_disabled": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "feature_disabled": "NOT_FOUND",
    "conflict": "INVALID_REQUEST",
    "too_large": "INVALID_REQUEST",
    "too_slow": "INVALID_REQUEST",
    "rate_limited": "RATE_LIMIT_EXCEEDED",
    "provider_error": "PROVIDER_ERROR",
    "provider_auth": "PROVIDER_ERROR",
    "provider_timeout": "PROVIDER_ERROR",
    "unavailable": "INTERNAL_ERROR",
    "storage_full": "INTERNAL_ERROR",
    "internal": "INTERNAL_ERROR",
}
"""From our kinds to the codes of contract 001."""


def explain_error(error: MailError) -> dict[str, Any]:
    """The body of a failed call: what is wrong, in a form that a program can read too."""
    details: dict[str, Any] = {"kind": error.code, **to_json(error.details)}
    if error.retryable:
        details["retryable"] = True
    body: dict[str, Any] = {"code": CODES[error.code], "message": str(error), "details": details}
    if isinstance(error, ProviderError):
        body["provider_error"] = to_json(error.details)
    if isinstance(error, (RateLimited, Unavailable)):
        body["retry_after"] = error.retry_after
    return {"error": body}
