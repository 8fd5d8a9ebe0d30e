"""The first page: what needs the person, what happened (charts), what is slow or full.

A bar of a chart is a rectangle in a box of 10 units per day by 100, which the page stretches.
Series differ by pattern as well as by colour, and each chart has its numbers in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from postroom.model.health import Activity, DayActivity, Load
from postroom.model.key import Scope
from postroom.operations.health import get_activity
from postroom.operations.outgoing.drafts import list_drafts
from postroom.operations.outgoing.outbox import list_outbox
from postroom.surfaces.web.attention import LITTLE_SPACE, LONG_QUEUE, load_of, needs_of
from postroom.surfaces.web.outgoing import STATUSES, count, statuses_of
from postroom.surfaces.web.page import Link, Page, Section, Values, Visit

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


async def overview(visit: Visit) -> Values:
    """Needs, charts and queues, as far as the person may see them."""
    counts = {status: await count(visit, status) for status in statuses_of(visit)}
    queue = await visit.call(list_outbox, status="held", limit=1)
    days = visit.query.get("days", "")
    days = days if days in PERIODS else PERIODS[0]
    values: Values = {
        "counts": counts,
        "statuses": STATUSES,
        "needs": await needs_of(visit, counts, is_paused=queue.is_paused),
        "days": days,
        "periods": PERIODS,
        "load": (load := await load_of(visit)),
        "slow": _slow(load),
        "drafts": 0,
        "charts": [],
        "tools": (),
    }
    if visit.may(Scope.READ):
        activity = await visit.call(get_activity, days=int(days))
        values |= {"charts": charts_of(activity), "tools": activity.tools}
        values["drafts"] = (await visit.call(list_drafts, limit=1)).total
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
