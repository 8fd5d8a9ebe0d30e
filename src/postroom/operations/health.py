"""Health: checks, queues, the audit log, and what happened per day."""

from __future__ import annotations

import platform
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from typing import Annotated

from postroom import __version__
from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import Request, argument
from postroom.errors import Forbidden
from postroom.model.event import AuditCheck
from postroom.model.health import (
    KEPT_DAYS,
    Activity,
    CallCount,
    DayActivity,
    FailureCount,
    Health,
    Load,
    MailCount,
    StorageSizes,
    ToolUse,
)
from postroom.model.key import Scope
from postroom.pipeline.counters import FAILURE_COUNTERS
from postroom.ports.blobs import EstimatesSize

VERIFY_S = 10.0
"""How long a verification of the audit log takes at most."""


def refuse_partial_view(ctx: RequestContext) -> None:
    """Refuse a caller who does not see the whole installation. Raises Forbidden."""
    if not ctx.caller.sees_everything:
        raise Forbidden("this shows the whole installation; use a key without limits")
    needs_read(ctx, "checks name addresses and rules")


class GetLoad(Request):
    """Show what waits, what has failed since the start, and how much space is left."""


@operation(Scope.ADMIN)
async def get_load(ctx: RequestContext, request: GetLoad) -> Load:
    refuse_partial_view(ctx)
    totals = ctx.counts.totals()
    failures = [FailureCount(name, totals[name], says) for name, says in FAILURE_COUNTERS.items()]
    free = None
    if ctx.data_dir is not None:
        free = (await in_thread(shutil.disk_usage, ctx.data_dir)).free
    queues = await ctx.store.queue_lengths()
    return Load(tuple(queues), tuple(one for one in failures if one.count), free)


class GetHealth(Request):
    """Run the checks of `postroom doctor`, and show sizes, queues and processes."""


@operation(Scope.ADMIN)
async def get_health(ctx: RequestContext, request: GetHealth) -> Health:
    refuse_partial_view(ctx)
    return Health(
        version=__version__,
        python=platform.python_version(),
        started_at=ctx.started_at,
        findings=tuple(await ctx.checks(ctx)),
        sizes=await _sizes(ctx),
        load=await get_load(ctx, GetLoad()),
        leases=tuple(await ctx.store.leases(ctx.clock())),
    )


async def _sizes(ctx: RequestContext) -> StorageSizes:
    sizes, blobs = await ctx.store.sizes(), ctx.blobs
    estimated = await blobs.estimated_bytes() if isinstance(blobs, EstimatesSize) else None
    return replace(sizes, blob_bytes=estimated, blob_place=blobs.mark.place)


class VerifyAudit(Request):
    """Verify the chain of the audit log: whether entries were changed, moved or removed."""


@operation(Scope.ADMIN)
async def verify_audit(ctx: RequestContext, request: VerifyAudit) -> AuditCheck:
    refuse_partial_view(ctx)
    return await ctx.store.check_audit(VERIFY_S)


MAX_DAYS = KEPT_DAYS - 2
_MAX_TOOLS = 20
_BY_PEOPLE = ("web", "cli")


class GetActivity(Request):
    """Count the activity per day, in UTC: mail received and sent, rules, tool calls."""

    days: Annotated[int, argument("How many days, including today.", 14, ge=1, le=MAX_DAYS)] = 14


@operation(Scope.READ)
async def get_activity(ctx: RequestContext, request: GetActivity) -> Activity:
    today = ctx.clock().date()
    since = today - timedelta(days=request.days - 1)
    days = [since + timedelta(days=n) for n in range(request.days)]
    counts = _fields(await ctx.store.mail_counts(since, ctx.visible))
    calls = [call for call in await _calls(ctx, since) if call.day <= today]
    for call in calls:
        counts[call.day]["tool_calls"] += call.calls
        counts[call.day]["tool_errors"] += call.errors
    return Activity(tuple(DayActivity(day, **counts[day]) for day in days), _tools(calls))


async def _calls(ctx: RequestContext, since: date) -> list[CallCount]:
    """Calls of tools, also those that are not written yet; a limited caller sees its own."""
    pending = ctx.calls.pending()
    if ctx.caller.sees_everything:
        return [*await ctx.store.call_counts(since), *pending]
    own = ctx.caller.key_id
    return [*await ctx.store.call_counts(since, own), *(c for c in pending if c.caller == own)]


def _fields(counts: Iterable[MailCount]) -> defaultdict[date, Counter[str]]:
    """The fields of each day."""
    found: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for count in counts:
        found[count.day][_field(count)] += count.number
    return found


def _field(count: MailCount) -> str:
    if count.name != "sent":
        return count.name
    if count.via == "rule":
        return "sent_by_rules"
    return "sent_by_people" if count.via in _BY_PEOPLE else "sent_by_agents"


def _tools(calls: Iterable[CallCount]) -> tuple[ToolUse, ...]:
    used, errors = Counter[str](), Counter[str]()
    for call in calls:
        used[call.tool] += call.calls
        errors[call.tool] += call.errors
    order = sorted(used, key=lambda tool: (-used[tool], tool))[:_MAX_TOOLS]
    return tuple(ToolUse(tool, used[tool], errors[tool]) for tool in order)
