"""Kinds of errors over HTTP, and the names of operations in errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from postroom.errors import MailError


class Kind(NamedTuple):
    """The HTTP status and title of a kind of error, and when it occurs."""

    status: int
    title: str
    meaning: str


KINDS = {
    "invalid_input": Kind(422, "Invalid input", "An argument is wrong; `errors` names each."),
    "malformed": Kind(400, "Malformed request", "The request cannot be read, such as bad JSON."),
    "unauthenticated": Kind(401, "Key required", "There is no key, or not one of ours."),
    "forbidden": Kind(403, "Forbidden", "The key lacks a scope, or the origin is not ours."),
    "write_disabled": Kind(403, "Writing is off", "A gate that keeps writes out is closed."),
    "not_found": Kind(404, "Not found", "It does not exist, or not for this key."),
    "feature_disabled": Kind(404, "Switched off", "A setting has switched this off."),
    "method_not_allowed": Kind(405, "Method not allowed", "`Allow` lists the methods there are."),
    "too_slow": Kind(408, "Too slow", "The request did not come in time."),
    "conflict": Kind(409, "Conflict", "The request does not fit the current state."),
    "too_large": Kind(413, "Too large", "Too many bytes."),
    "rate_limited": Kind(429, "Too fast", "Try again after `retry_after` seconds."),
    "internal": Kind(500, "Internal error", "A bug of ours; `request_id` finds it in the log."),
    "provider_error": Kind(502, "Provider failed", "A server we depend on failed or refused."),
    "provider_auth": Kind(502, "Provider login failed", "A server refused our login."),
    "unavailable": Kind(503, "Not ready", "The store cannot be read or written now."),
    "provider_timeout": Kind(504, "Provider timed out", "A server did not answer in time."),
    "storage_full": Kind(507, "Storage full", "Nothing was written; free some space."),
}
"""Every kind of `errors.py`, and one that only HTTP knows."""


_NAME = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b")


def operations_named(error: MailError, names: Mapping[str, str]) -> dict[str, str]:
    """The operations that an error advises, and what they are called here."""
    return {name: names[name] for name in _NAME.findall(str(error)) if name in names}


def reword(error: MailError, names: Mapping[str, str]) -> MailError:
    """Replace the names of operations in an error, and return it."""
    said = _NAME.sub(lambda found: names.get(found[0], found[0]), str(error))
    error.args = (said, *error.args[1:])
    return error
