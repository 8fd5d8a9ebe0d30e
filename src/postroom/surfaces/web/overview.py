"""The first page: what needs attention, activity (charts), what is slow; and the page Health.

A bar of a chart is a rectangle in a box of 10 units per day by 100, which the page stretches.
Series differ by pattern as well as by colour, and each chart has its numbers in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from postroom.model.account import Account
from postroom.model.health import Activity, DayActivity, Load
from postroom.model.key import Key, Scope
from postroom.operations.accounts import list_accounts
from postroom.operations.health import get_activity, get_health, get_load
from postroom.operations.keys import list_keys
from postroom.operations.outgoing.drafts import list_drafts
from postroom.operations.outgoing.outbox import list_outbox
from postroom.operations.rule_runs import list_stopped_rules
from postroom.operations.webhooks import list_deliveries, list_webhooks
from postroom.surfaces.web.mail.outgoing import STATUSES, count, statuses_of
from postroom.surfaces.web.page import Link, Page, PageRequest, Section, Values

EXPIRES_SOON = timedelta(days=14)
LITTLE_SPACE = 1024**3
LONG_QUEUE = 1_000
_PAGES = 10
_MAX_WEBHOOKS = 20
_DELIVERIES = 20


@dataclass(frozen=True, slots=True)
class Task:
    """A task for the person: what, why, and where to fix it."""

    tone: Literal["warn", "bad"]
    what: str
    why: str
    link: str
    action: str


async def tasks_of(
    request: PageRequest, counts: Mapping[str, int], *, is_paused: bool
) -> list[Task]:
    """The tasks that the person may see and fix; most urgent first."""
    found = [*_of_mail(counts, is_paused=is_paused)]
    if request.may(Scope.READ):
        found += [*_of_accounts((await request.call(list_accounts, limit=100)).results)]
        found += [
            Task("bad", f"The rule “{rule.name}” has stopped", rule.reason, "/rules", "Open rules")
            for rule in await request.call(list_stopped_rules)
        ]
    if request.may(Scope.ADMIN):
        found += await _of_webhooks(request)
    if sees_installation(request):
        found += _of_keys(await _keys(request), request.app.services.clock())
    return found


def sees_installation(request: PageRequest) -> bool:
    """Whether the person may see what concerns the whole installation."""
    sees = request.person.caller.sees_everything
    return sees and request.may(Scope.ADMIN) and request.may(Scope.READ)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _of_mail(counts: Mapping[str, int], *, is_paused: bool) -> Iterator[Task]:
    if held := counts.get("held", 0):
        is_waiting = "is waiting" if held == 1 else "are waiting"
        why = "See what an agent wants to send, then approve or reject it."
        yield Task(
            "warn", f"{_messages(held)} {is_waiting} for your approval", why, "/outgoing", "Review"
        )
    if is_paused:
        why = "Mail is accepted but not sent. Run `postroom outbox resume` to send it."
        yield Task("bad", "The outbox is paused", why, "/outgoing", "View outgoing mail")
    if failed := counts.get("failed", 0):
        why = "The recipient's server rejected it. See why, then send it again if that helps."
        link = "/outgoing?status=failed"
        yield Task("bad", f"{_messages(failed)} could not be delivered", why, link, "See why")
    if unknown := counts.get("unknown", 0):
        why = (
            "The connection broke before the server confirmed. Ask the recipient before you resend."
        )
        link = "/outgoing?status=unknown"
        yield Task("bad", f"{_messages(unknown)} may or may not have been sent", why, link, "View")


def _of_accounts(accounts: tuple[Account, ...]) -> Iterator[Task]:
    for account in accounts:
        if account.state == "needs_reauth":
            what = f"{account.address} needs you to sign in"
            yield Task("bad", what, account.detail, "/accounts", "Sign in")
        elif account.state == "failing":
            what = f"{account.address} is not syncing"
            yield Task("bad", what, account.detail, "/accounts", "Open accounts")


async def _of_webhooks(request: PageRequest) -> list[Task]:
    found = []
    webhooks = (await request.call(list_webhooks, limit=_MAX_WEBHOOKS)).results
    for webhook in webhooks:
        if webhook.stopped:
            what = f"The webhook {webhook.url} has stopped"
            found.append(Task("bad", what, webhook.stopped, "/webhooks", "Open webhooks"))
        elif webhook.enabled and (why := await _failure(request, webhook.id)):
            what = f"The webhook {webhook.url} is failing"
            found.append(Task("warn", what, why, "/webhooks", "Open webhooks"))
    return found


async def _failure(request: PageRequest, webhook_id: str) -> str:
    """Why recent deliveries to a webhook failed; empty if they did not."""
    page = await request.call(list_deliveries, webhook_id=webhook_id, limit=_DELIVERIES)
    failed = [one for one in page.results if one.status != "delivered" and one.attempts]
    if not failed:
        return ""
    deliveries = "1 delivery" if len(failed) == 1 else f"{len(failed)} deliveries"
    return f"{deliveries} of the last {len(page.results)} failed: {failed[0].detail}"


async def _keys(request: PageRequest) -> list[Key]:
    page = await request.call(list_keys, limit=100)
    found = [*page.results]
    for _ in range(_PAGES):
        if page.next_cursor is None:
            break
        page = await request.call(list_keys, limit=100, cursor=page.next_cursor)
        found += page.results
    return found


def _of_keys(keys: list[Key], now: datetime) -> list[Task]:
    soon = [key for key in keys if key.expires_at and now < key.expires_at <= now + EXPIRES_SOON]
    return [
        Task(
            "warn",
            f"The key “{key.name}” expires soon",
            f"It expires on {key.expires_at:%-d %b %Y}. Extend it, or replace it with a new key.",
            "/keys",
            "Open keys",
        )
        for key in sorted(soon, key=lambda key: (key.expires_at, key.id))
    ]


async def load_of(request: PageRequest) -> Load | None:
    """What waits and how much space is left; None for callers who may not see that."""
    if not sees_installation(request):
        return None
    return await request.call(get_load)


DAY_WIDTH, BAR_WIDTH, HEIGHT = 10, 7, 100
_LEAST_HEIGHT = 2
"""A day with anything at all is visible."""


@dataclass(frozen=True, slots=True)
class Series:
    """A number of each day: a field of `DayActivity`, its title, and the pattern of its bars."""

    field: str
    title: str
    pattern: str = "solid"


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle, and what it says."""

    x: int
    y: float
    height: float
    pattern: str
    words: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its numbers: `columns` are those of the table, also of what has no bar."""

    name: str
    title: str
    series: tuple[Series, ...]
    columns: tuple[Series, ...]
    days: tuple[DayActivity, ...]
    bars: tuple[Bar, ...]
    total: int
    most: int
    description: str

    @property
    def width(self) -> int:
        return DAY_WIDTH * len(self.days)

    @property
    def rows(self) -> list[tuple[date, list[int]]]:
        """The table, newest day first."""
        fields = [column.field for column in self.columns]
        return [(day.day, [getattr(day, f) for f in fields]) for day in reversed(self.days)]


def charts_of(activity: Activity) -> list[Chart]:
    """What happened, as charts."""
    return [_chart(activity.days, *row) for row in _CHARTS]


_CHARTS: tuple[tuple[str, str, tuple[Series, ...], tuple[Series, ...]], ...] = (
    ("in", "Mail in", (Series("received", "Received"),), ()),
    (
        "out",
        "Mail out",
        (
            Series("sent_by_agents", "By agents"),
            Series("sent_by_people", "By people", "striped"),
            Series("sent_by_rules", "By rules", "dotted"),
        ),
        (Series("held", "Held first"),),
    ),
    ("tools", "Tool calls", (Series("tool_calls", "Calls"),), (Series("tool_errors", "Errors"),)),
    ("rules", "Rules applied", (Series("rules", "Applied"),), ()),
)
"""The charts: name, title, the series that are drawn, and more columns of the table."""


def _chart(
    days: Sequence[DayActivity],
    name: str,
    title: str,
    series: tuple[Series, ...],
    more: tuple[Series, ...],
) -> Chart:
    sums = [sum(getattr(day, one.field) for one in series) for day in days]
    most = max(sums, default=0)
    busiest = days[sums.index(most)].day if most else None
    told = f"most on {busiest:%-d %b}: {most}" if busiest else "nothing happened"
    described = f"{sum(sums)} in {len(days)} days; {told}."
    bars = tuple(_bars(days, series, most))
    columns = (*series, *more)
    return Chart(name, title, series, columns, tuple(days), bars, sum(sums), most, described)


def _bars(days: Sequence[DayActivity], series: Sequence[Series], most: int) -> Iterator[Bar]:
    for place, day in enumerate(days):
        top = float(HEIGHT)
        for one in series:
            count = getattr(day, one.field)
            if not count:
                continue
            height = max(HEIGHT * count / most, _LEAST_HEIGHT)
            top = max(top - height, 0.0)
            words = f"{day.day:%-d %b}: {count} {one.title.lower()}"
            x = place * DAY_WIDTH + (DAY_WIDTH - BAR_WIDTH) // 2
            yield Bar(x, round(top, 2), round(height, 2), one.pattern, words)


PERIODS = ("14", "30", "90")


async def overview(request: PageRequest) -> Values:
    """Tasks, charts and queues, as far as the person may see them."""
    counts = {status: await count(request, status) for status in statuses_of(request)}
    queue = await request.call(list_outbox, status="held", limit=1)
    days = request.query.get("days", "")
    days = days if days in PERIODS else PERIODS[0]
    values: Values = {
        "counts": counts,
        "statuses": STATUSES,
        "tasks": await tasks_of(request, counts, is_paused=queue.is_paused),
        "days": days,
        "periods": PERIODS,
        "load": (load := await load_of(request)),
        "slow": _slow(load),
        "drafts": 0,
        "charts": [],
        "tools": (),
    }
    if request.may(Scope.READ):
        activity = await request.call(get_activity, days=int(days))
        values |= {"charts": charts_of(activity), "tools": activity.tools}
        values["drafts"] = (await request.call(list_drafts, limit=1)).total
    return values


def _slow(load: Load | None) -> dict[str, bool]:
    """What is slow or full: long queues by name, and `disk`."""
    if load is None:
        return {}
    queues = {queue.name: queue.waiting >= LONG_QUEUE for queue in load.queues}
    is_full = load.free_bytes is not None and load.free_bytes < LITTLE_SPACE
    return {**queues, "disk": is_full}


SECTION = Section(
    links=(Link("Overview", "/", scope=None),),
    pages=(Page("/", "overview.html", overview),),
)


_ORDER = ("problem", "warning", "ok")


async def health(request: PageRequest) -> Values:
    """All findings, problems first."""
    found = await request.call(get_health)
    findings = sorted(found.findings, key=lambda finding: _ORDER.index(finding.status))
    counts = {status: sum(f.status == status for f in findings) for status in _ORDER}
    return {
        "health": found,
        "findings": findings,
        "counts": counts,
        "uptime": _duration(found.started_at, request.app.services.clock()),
    }


def _duration(since: datetime, now: datetime) -> str:
    minutes = max(int((now - since).total_seconds()) // 60, 0)
    days, hours = divmod(minutes // 60, 24)
    parts = ((days, "d"), (hours, "h"), (minutes % 60, "min"))
    return " ".join(f"{value} {unit}" for value, unit in parts if value) or "less than a minute"


HEALTH_SECTION = Section(
    links=(Link("Health", "/health", Scope.ADMIN, menu=True),),
    pages=(Page("/health", "activity/health.html", health),),
)
