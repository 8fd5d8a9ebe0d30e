"""Log lines of the program: an event and its context, on stderr, without secrets."""

from __future__ import annotations

import logging
import re
import sys

_OURS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET = re.compile(r"key|secret|passw|token|authorization|cookie", re.IGNORECASE)


class _Lines(logging.Formatter):
    """`2026-01-31 09:30:00,000 WARNING postroom.x event name=value …`, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        context = " ".join(
            f"{name}={'********' if _SECRET.search(name) else ' '.join(str(value).split())}"
            for name, value in vars(record).items()
            if name not in _OURS
        )
        return f"{super().format(record)} {context}".rstrip()


def start_logging() -> None:
    """Send what is worth knowing to stderr."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[lines])
