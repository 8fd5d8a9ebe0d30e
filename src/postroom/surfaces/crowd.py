"""How many may be connected at once: of the files this process may have open, who gets how many.

    of the files    for
    half            HTTP: as many connections as half of that, 4,096 at most
    a quarter       SMTP and LMTP: as many as half of that, 1,000 at most
    a quarter       the store, and the servers that we connect to

A connection may need two: one for itself, and one for what it brings or fetches.
Whoever connects without end cannot take what the others need.
"""

from __future__ import annotations

import resource
from contextlib import suppress

MOST_FILES = 65_536
"""More than this is of no use to one process."""

MOST_HTTP = 4_096
MOST_SMTP = 1_000


def allow_files() -> None:
    """Have as many files open as we may: 1,024 is what a shell gives us, and seldom the limit."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _bounded(most)
    if _bounded(now) < wanted:
        # Some systems allow fewer than they say.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def http_connections() -> int:
    return min(MOST_HTTP, _files() // 4)


def smtp_connections() -> int:
    return min(MOST_SMTP, _files() // 8)


def _files() -> int:
    return _bounded(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _bounded(limit: int) -> int:
    return MOST_FILES if limit == resource.RLIM_INFINITY else min(limit, MOST_FILES)
