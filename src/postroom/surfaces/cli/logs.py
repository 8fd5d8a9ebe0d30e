"""Log lines on stderr: as text or as JSON, with secrets masked and control characters escaped."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.config import Settings

ACCESS = "postroom.access"
"""The logger of requests."""

_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
_SECRET_NAME = re.compile(r"key|secret|passw|token|authorization|cookie", re.IGNORECASE)
_SECRET = re.compile(r"\bp[ko]_[\w-]{16,}|(?<=://)[^\s/@]+:[^\s/@]+(?=@)|(?<=Bearer )[!-~]{8,}")
_MASK = "********"
_VALUE_CHARS = 2_000
_HEAD_LINES, _TAIL_LINES, _LINE_CHARS = 15, 45, 500
"""How much of a traceback is logged: first lines, last lines, characters per line."""


class _Formatter(logging.Formatter):
    """What both formats share: the context of an event without secrets, and short tracebacks."""

    def context(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        """The fields of an event besides its name."""
        for name, value in vars(record).items():
            if name not in _STANDARD_ATTRIBUTES:
                yield name, _MASK if _SECRET_NAME.search(name) else _short(value)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        """A traceback, without its middle if it is long."""
        lines = [line[:_LINE_CHARS] for line in super().formatException(ei).splitlines()]
        left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
        if left_out > 0:
            lines[_HEAD_LINES:-_TAIL_LINES] = [f"  ... {left_out} lines left out ..."]
        return "\n".join(lines)


class Lines(_Formatter):
    """`2026-01-31 09:30:00,000 WARNING postroom.x event name=value …`, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        context = " ".join(f"{name}={value}" for name, value in self.context(record))
        return _visible(_masked(f"{super().format(record)} {context}".rstrip()))


class JsonLines(_Formatter):
    """`{"at": …, "level": …, "logger": …, "event": …, …}`, one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **dict(self.context(record)),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        shown = {name: _masked(v) if isinstance(v, str) else v for name, v in line.items()}
        return json.dumps(shown)


def _masked(text: str) -> str:
    """Text without keys and passwords that a message quotes."""
    return _SECRET.sub(_MASK, text)


def _visible(text: str) -> str:
    """Text with control characters escaped: logs are read on terminals and quote other servers."""
    from postroom.mail.text.invisible import invisible_pattern  # late, for a quick start

    return invisible_pattern().sub(
        lambda found: found[0].encode("unicode_escape").decode("ascii"), text
    )


def _short(value: object) -> Any:
    if isinstance(value, (bool, int, float)):
        return value
    return " ".join(str(value).split())[:_VALUE_CHARS]


def start_logging(settings: Settings | None = None) -> None:
    """Log to stderr as the settings say; without them, warnings and errors as text."""
    handler = logging.StreamHandler(sys.stderr)
    is_json = settings is not None and settings.log_format == "json"
    text = "%(asctime)s %(levelname)s %(name)s %(message)s"
    handler.setFormatter(JsonLines() if is_json else Lines(text))
    level = "warning" if settings is None else settings.log_level
    root = logging.getLogger()
    for earlier in [one for one in root.handlers if isinstance(one.formatter, _Formatter)]:
        root.removeHandler(earlier)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logs_access = settings is not None and settings.access_log
    logging.getLogger(ACCESS).setLevel(logging.INFO if logs_access else logging.CRITICAL)
    if level == "debug":
        # Libraries log what they send and receive at this level, with passwords.
        logging.getLogger().setLevel(logging.INFO)
        logging.getLogger("postroom").setLevel(logging.DEBUG)
