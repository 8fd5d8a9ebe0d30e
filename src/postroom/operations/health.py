"""Health: what the checks find, what waits, and whether the audit log is whole."""

from __future__ import annotations

import platform
import shutil
from dataclasses import replace

from postroom import __version__
from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import Request
from postroom.errors import Forbidden
from postroom.model.audit import AuditCheck
from postroom.model.health import FailureCount, Health, Load, StorageSizes
from postroom.model.key import Scope
from postroom.pipeline.counters import FAILED
from postroom.ports.blobs import EstimatesSize

VERIFY_S = 10.0
"""How long a verification of the audit log takes at most."""


def refuse_partial_view(ctx: RequestContext) -> None:
    """Refuse a caller who does not see the whole installation. Raises Forbidden."""
    if not ctx.caller.sees_everything:
        raise Forbidden("this shows the whole installation; use a key that is limited to nothing")
    needs_read(ctx, "checks name addresses and rules")


class GetLoad(Request):
    """Tell what waits, what has failed since the start, and how much space is left."""


@operation(Scope.ADMIN)
async def get_load(ctx: RequestContext, request: GetLoad) -> Load:
    refuse_partial_view(ctx)
    totals = ctx.counts.totals()
    failures = [FailureCount(name, totals[name], says) for name, says in FAILED.items()]
    free = None
    if ctx.data_dir is not None:
        free = (await in_thread(shutil.disk_usage, ctx.data_dir)).free
    queues = await ctx.store.queue_lengths()
    return Load(tuple(queues), tuple(one for one in failures if one.count), free)


class GetHealth(Request):
    """Run the checks of `postroom doctor`, and tell sizes, queues and processes."""


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
