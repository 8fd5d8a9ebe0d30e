"""What happened per day: mail in and out, rules, and calls of tools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Annotated

from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.request import Request, argument
from postroom.model.activity import (
    KEPT_DAYS,
    Activity,
    CallCount,
    DayActivity,
    MailCount,
    ToolUse,
)
from postroom.model.key import Scope

MAX_DAYS = KEPT_DAYS - 2
_MAX_TOOLS = 20
_BY_PEOPLE = ("web", "cli")


class GetActivity(Request):
    """Count what happened per day, in UTC: mail in and out, rules and calls of tools."""

    days: Annotated[int, argument("How many days, today included.", 14, ge=1, le=MAX_DAYS)] = 14


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
