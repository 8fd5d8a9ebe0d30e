"""Health: what `postroom doctor` says, queues, sizes, versions and background work."""

from __future__ import annotations

from datetime import datetime

from postroom.model.key import Scope
from postroom.operations.health import get_health
from postroom.surfaces.web.page import Link, Page, Section, Values, Visit

_ORDER = ("problem", "warning", "ok")


async def health(visit: Visit) -> Values:
    """All findings, problems first."""
    found = await visit.call(get_health)
    findings = sorted(found.findings, key=lambda finding: _ORDER.index(finding.status))
    now = visit.app.services.clock()
    counts = {status: sum(f.status == status for f in findings) for status in _ORDER}
    return {
        "health": found,
        "findings": findings,
        "counts": counts,
        "uptime": _duration(found.started_at, now),
        "now": now,
    }


def _duration(since: datetime, now: datetime) -> str:
    minutes = max(int((now - since).total_seconds()) // 60, 0)
    days, hours = divmod(minutes // 60, 24)
    parts = ((days, "d"), (hours, "h"), (minutes % 60, "min"))
    return " ".join(f"{value} {unit}" for value, unit in parts if value) or "less than a minute"


SECTION = Section(
    links=(Link("Health", "/health", Scope.ADMIN, menu=True),),
    pages=(Page("/health", "activity/health.html", health),),
)
