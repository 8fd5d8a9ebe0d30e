"""Charts: bars per day, computed here and drawn by the template as SVG.

A bar is a rectangle in a box of 10 units per day by 100, which the page stretches. Series are told
apart by pattern as well as by colour, and each chart has its numbers in a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from postroom.model.health import Activity, DayActivity

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
