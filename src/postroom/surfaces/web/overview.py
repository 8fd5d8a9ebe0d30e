"""The first page: what needs the person, what happened, what is slow or full."""

from __future__ import annotations

from postroom.model.health import Load
from postroom.model.key import Scope
from postroom.operations.health import get_activity
from postroom.operations.outgoing.drafts import list_drafts
from postroom.operations.outgoing.outbox import list_outbox
from postroom.surfaces.web.attention import LITTLE_SPACE, LONG_QUEUE, load_of, needs_of
from postroom.surfaces.web.charts import charts_of
from postroom.surfaces.web.outgoing import STATUSES, count, statuses_of
from postroom.surfaces.web.page import Link, Page, Section, Values, Visit

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
