"""Pages outside the routes table: health, metrics, the OpenAPI document and its viewer."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from msgspec.json import encode, format  # noqa: A004
from starlette.requests import Request
from starlette.responses import Response

from postroom import __version__
from postroom.app import App
from postroom.errors import Forbidden, MailError, Unavailable
from postroom.model.key import Caller, Scope
from postroom.model.view import EVERYTHING
from postroom.pipeline.counters import ALL_COUNTERS
from postroom.pipeline.services import check_ready
from postroom.surfaces.rest import metrics
from postroom.surfaces.rest.access import AccessControl, presented_key
from postroom.surfaces.rest.http_messages import JSON, as_problem
from postroom.surfaces.rest.openapi import document
from postroom.surfaces.rest.surface import Answer

_SCRIPT = "text/javascript; charset=utf-8"
ASSETS = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", _SCRIPT),
    "/docs/page.js": ("page.js", _SCRIPT),
    "/docs/schema.js": ("schema.js", _SCRIPT),
    "/docs/trying.js": ("trying.js", _SCRIPT),
    "/docs/icon.svg": ("icon.svg", "image/svg+xml"),
}
_ASSET_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def pages(app: App, counts: metrics.Metrics, access: AccessControl) -> dict[str, Answer]:
    """Each plain page under its path."""

    @cache
    def written() -> bytes:
        return format(encode(document(app.settings.domains)), indent=2)

    async def openapi(_request: Request, _values: dict[str, str]) -> Response:
        return Response(written(), media_type=JSON)

    assets = {path: _asset(name, kind) for path, (name, kind) in ASSETS.items()}
    return {**pages_of_health(app, counts, access), "/openapi.json": openapi, **assets}


def pages_of_health(app: App, counts: metrics.Metrics, access: AccessControl) -> dict[str, Answer]:
    """Health and metrics. From other machines, metrics and details need a key."""

    cell = {} if app.settings.cell is None else {"cell": app.settings.cell}

    async def healthz(_request: Request, _values: dict[str, str]) -> Response:
        return Response(encode({"status": "ok", **cell}), media_type=JSON)

    readiness = _Readiness(app)

    async def identity(request: Request) -> dict[str, str]:
        """Version and installation, for `postroom doctor`."""
        if not await _may_see_details(request, access):
            return {}
        return {
            "version": __version__,
            "installation": await app.services.store.installation_mark(),
        }

    async def readyz(request: Request, _values: dict[str, str]) -> Response:
        try:
            await readiness.check(request.scope["request_id"])
        except Exception as error:  # noqa: BLE001 - the log says it
            reason = await _reason(error, request, access)
            return as_problem(Unavailable(reason, retry_after=2), request.scope)
        return Response(
            encode({"status": "ready", **cell, **await identity(request)}), media_type=JSON
        )

    async def metrics_page(request: Request, _values: dict[str, str]) -> Response:
        if not access.is_here(request.headers, request.scope):
            _check_sees_all(await access.caller(request.headers, request.scope))
        text = counts.text() + _counted(app) + await _outbox(app)
        return Response(text, headers={"Content-Type": metrics.MEDIA_TYPE})

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics_page}


def _check_sees_all(caller: Caller) -> None:
    """The numbers are those of all inboxes. Raises Forbidden."""
    limits = (caller.inboxes, caller.accounts, caller.namespaces)
    if Scope.READ not in caller.scopes or any(limit != EVERYTHING for limit in limits):
        raise Forbidden("this needs a key with the scope read and without limits")


async def _reason(error: Exception, request: Request, access: AccessControl) -> str:
    """The reason why the server is not ready, for callers on this machine or with a key."""
    is_known = isinstance(error, MailError)
    reason = str(error) if is_known else "the store does not answer; see the log"
    if await _may_see_details(request, access):
        return reason
    return "not ready; the reason is in the log, and in this response if the request has a key"


async def _may_see_details(request: Request, access: AccessControl) -> bool:
    if access.is_here(request.headers, request.scope):
        return True
    if presented_key(request.headers):
        with suppress(Unavailable):
            _check_sees_all(await access.caller(request.headers, request.scope))
            return True
    return False


@dataclass(slots=True)
class _Readiness:
    """Checks readiness at most once a second, because the check writes."""

    app: App
    _checked_at: float = -math.inf
    _problem: Exception | None = None

    async def check(self, request_id: str) -> None:
        """Raise the error that prevents storing mail."""
        if time.monotonic() - self._checked_at >= 1:
            self._checked_at = time.monotonic()
            try:
                await check_ready(self.app.services)
            except Exception as error:
                self._problem = error
                cause = None if isinstance(error, MailError) else error
                about = {"request_id": request_id, "error": str(error)}
                self.app.services.counts.failed("readiness_failed", about, cause=cause)
                raise
            self._problem = None
        if self._problem is not None:
            raise self._problem


def _counted(app: App) -> str:
    """Counters of background work."""
    totals = app.services.counts.totals()
    return "".join(
        f"{metrics.heading(f'{name}_total', 'counter', meaning)}\n"
        f"postroom_{name}_total {totals[name]}\n"
        for name, meaning in ALL_COUNTERS.items()
    )


async def _outbox(app: App) -> str:
    """The length of the outbox; no sample if the store is unavailable."""
    try:
        state = await app.services.store.outbox_state()
    except MailError:
        return ""
    waiting = metrics.heading("outbox_waiting", "gauge", "Messages that wait in the outbox.")
    paused = metrics.heading("outbox_paused", "gauge", "Whether the outbox is paused.")
    return (
        f"{waiting}\npostroom_outbox_waiting {state.waiting}\n"
        f"{paused}\npostroom_outbox_paused {int(state.is_paused)}\n"
    )


def _asset(name: str, media_type: str) -> Answer:
    content = files("postroom.surfaces.rest").joinpath("assets", name).read_bytes()
    headers = {"Content-Type": media_type, "Content-Security-Policy": _ASSET_POLICY}

    async def answer(_request: Request, _values: dict[str, str]) -> Response:
        return Response(content, headers=headers)

    return answer
