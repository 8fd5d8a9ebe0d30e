"""Exit codes, one per kind of error, and error messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postroom.errors import MailError, RateLimited, Unavailable
from postroom.surfaces.cli.rendering.wording import Options, field_in_our_words, in_our_words
from postroom.surfaces.cli.terminal import inert, write_json

if TYPE_CHECKING:
    from postroom.model.message import FailedAction
    from postroom.surfaces.cli.session import Session

OK = 0
PARTIAL = 10
"""Some of it was done, and the rest is named."""

TIMED_OUT = 124
"""As `timeout` of the GNU core utilities."""

INTERRUPTED = 130
BROKEN_PIPE = 141
EXIT_CODES = {
    "internal": 1,
    "invalid_input": 2,
    "malformed": 2,
    "not_found": 3,
    "feature_disabled": 3,
    "unauthenticated": 4,
    "forbidden": 4,
    "write_disabled": 4,
    "conflict": 5,
    "too_large": 6,
    "too_slow": 7,
    "rate_limited": 7,
    "provider_error": 8,
    "provider_auth": 8,
    "provider_timeout": 8,
    "unavailable": 7,
    "storage_full": 9,
}
"""From error codes to exit codes. They are stable: scripts rely on them."""


def explain(error: MailError, *, as_json: bool, options: Options | None = None) -> int:
    """Print an error on stderr, in the words of these options, and return its exit code."""
    if as_json:
        _write_json(error)
    else:
        _write(_lines(error, options or {}))
    return EXIT_CODES[error.code]


def explain_failures(failed: Sequence[FailedAction], session: Session) -> int:
    """Print the failures of an action; the first one decides the exit code."""
    if session.as_json:
        from postroom.surfaces.to_json import presented

        body: dict[str, Any] = {"error": {"code": failed[0].code, "message": failed[0].message}}
        is_untrusted = failed[0].code.startswith("provider")
        write_json(presented({"untrusted": True, **body}) if is_untrusted else body, sys.stderr)
    else:
        _write([in_our_words(failure.message, session.options) for failure in failed])
    return EXIT_CODES[failed[0].code]


def _write(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"error: {inert(line)}", file=sys.stderr)


def _lines(error: MailError, options: Options) -> list[str]:
    problems = error.details.get("problems")
    if not isinstance(problems, list):
        return [in_our_words(str(error), options)]
    return [_problem_line(problem, options) for problem in problems]


def _problem_line(problem: Mapping[str, Any], options: Options) -> str:
    """One problem as a line; problems in a document keep the words of that document."""
    field, words = problem["field"], str(problem["problem"])
    if "line" in problem:
        return f"{field}: {words}" if field else words
    words = in_our_words(words, options)
    return f"{field_in_our_words(field, options)}: {words}" if field else words


def _write_json(error: MailError) -> None:
    from postroom.surfaces.to_json import marked, to_json

    body: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.details:
        body["details"] = to_json(error.details)
    if isinstance(error, (RateLimited, Unavailable)):
        body["retry_after"] = error.retry_after
    write_json(marked(error, {"error": body}), sys.stderr)
