"""The web pages: the table of pages, requests to them, and where an HTTP server mounts them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.admission.spool import keyed_client, keyless_client
from postroom.app import App
from postroom.blocking import in_thread
from postroom.calls.authentication import SignedIn, new_sign_in_link, signed_in
from postroom.errors import Forbidden, MailError, Malformed, NotFound, RateLimited, Unavailable
from postroom.mail.mime.forms import FormFile, read_form
from postroom.surfaces.http import KINDS, Paths, download_response, segments_of, server_url
from postroom.surfaces.web import (
    accounts,
    connect,
    keys,
    memories,
    overview,
    rules,
    signing_in,
    webhooks,
)
from postroom.surfaces.web.guide import INDEX, PREFIX, Guide
from postroom.surfaces.web.mail import outgoing
from postroom.surfaces.web.mail import pages as mail
from postroom.surfaces.web.mail.outgoing import count
from postroom.surfaces.web.page import (
    Document,
    File,
    Form,
    FormData,
    FormResult,
    Page,
    PageRequest,
    Section,
    ToolText,
    with_labels,
)
from postroom.surfaces.web.rendering import (
    ASSETS,
    asset_response,
    compress,
    compressed_asset,
    render,
)
from postroom.surfaces.web.signing_in import (
    form_token,
    is_form_token,
    session_cookie,
    session_secret,
)
from postroom.surfaces.web.webhooks import PATH as LIVE
from postroom.surfaces.web.webhooks import live_response

SECTIONS: tuple[Section, ...] = (
    overview.SECTION,
    mail.SECTION,
    outgoing.SECTION,
    rules.SECTION,
    memories.SECTION,
    accounts.SECTION,
    keys.SECTION,
    webhooks.SECTION,
    connect.SECTION,
    webhooks.EVENTS_SECTION,
    keys.AUDIT_SECTION,
    overview.HEALTH_SECTION,
    connect.CONSENT_SECTION,
    signing_in.SECTION,
)

NOTICES = {name: words for section in SECTIONS for name, words in section.notices.items()}
LINKS = tuple(link for section in SECTIONS for link in section.links)


T = TypeVar("T")
Row = Page | Document | File | Form
HTML = "text/html; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    # With `no-referrer`, a browser says `Origin: null` of our own forms (Fetch Standard, "append
    # a request Origin header"). This policy also discloses nothing to other hosts.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_FRAMED = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FORM, _FORM_WITH_FILES = "application/x-www-form-urlencoded", "multipart/form-data"
_MAX_FIELDS = 200
_OPENED_BY_CLIENTS = ("/authorize", "/signin")
"""Pages that an OAuth client may open in a pop-up.

They keep the link to the opening page, which notices when the pop-up closes.
"""
_OTHER_SITES = ("cross-site", "same-site")
_SIGNED_OUT = {"signed_in": None, "held": 0, "error": "", "notice": ""}
_SIGN_IN_BYTES = 16_384


class AccessControl(Protocol):
    """Access control, provided by the HTTP server for all of its surfaces."""

    def check_form(self, headers: Headers, scope: Scope) -> None:
        """Refuse a form that no page of ours sent. Raises Forbidden."""

    async def sign_in(self, secret: str, scope: Scope, look_up: Callable[[], Awaitable[T]]) -> T:
        """Look up what a person signs in with. Raises Unauthenticated, RateLimited."""


class WebSurface:
    """An ASGI application over the table of pages."""

    def __init__(self, app: App, access: AccessControl, tool_text: ToolText) -> None:
        self._app, self._access, self._tool_text = app, access, tool_text
        self._is_https = (app.settings.public_url or "").startswith("https://")
        self._rows: Paths[dict[str, Row]] = Paths()
        for path, rows in _by_path().items():
            self._rows.put(path, rows)
        for name in ASSETS:
            compressed_asset(name)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Where a server has to mount it."""
        firsts = (path.split("/")[1] for path in _by_path())
        return tuple(dict.fromkeys(f"/{first}" for first in (*firsts, "assets", LIVE)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._respond(request)
        if scope["path"] in _OPENED_BY_CLIENTS:
            response.headers["Cross-Origin-Opener-Policy"] = "unsafe-none"
        if response.media_type == HTML:
            compress(response, request.headers.get("accept-encoding", ""))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        segments = segments_of(request.scope)
        asked = self._page_request(request)
        try:
            if segments[0] == "assets":
                return _asset(segments[1:], request)
            with self._app.concurrency_limit.slot():
                person = await signed_in(self._app.services, asked.secret)
            asked = replace(asked, signed_in=person)
            if segments == [LIVE] and request.method in ("GET", "HEAD"):
                if person is None:
                    return Response(status_code=401, headers=HEADERS)
                return await live_response(request, asked)
            rows, path = self._rows.find(segments)
            if rows is None:
                raise NotFound("there is no page at this address")
            row = rows.get("GET" if request.method == "HEAD" else request.method)
            if row is None:
                return Response(status_code=405, headers={"Allow": ", ".join(rows)})
            return await self._answer(request, row, replace(asked, path=path))
        except MailError as error:
            # Without a session, the page shows nothing but the reason.
            return await _page(_ERROR, asked, error)

    def _page_request(self, request: Request) -> PageRequest:
        """The request of a person who is not known yet."""

        async def throttle(secret: str, look_up: Callable[[], Awaitable[T]]) -> T:
            return await self._access.sign_in(secret, request.scope, look_up)

        return PageRequest(
            self._app,
            None,
            throttle,
            request.headers.get("user-agent", ""),
            self._tool_text,
            secret=session_secret(request.cookies, is_secure=self._is_secure(request)) or "",
            query=dict(request.query_params),
            base_url=server_url(self._app.settings.public_url, request.scope),
        )

    def _is_secure(self, request: Request) -> bool:
        return self._is_https or request.url.scheme == "https"

    async def _answer(self, request: Request, row: Row, asked: PageRequest) -> Response:
        if isinstance(row, Form):
            self._access.check_form(request.headers, request.scope)
        is_public = isinstance(row, (Page, Form)) and row.is_public
        if asked.signed_in is None and not is_public:
            return _to_sign_in(request)
        if isinstance(row, Form):
            return await self._submit(request, row, asked)
        if isinstance(row, Page) and row.scope is not None and not asked.may(row.scope):
            raise Forbidden(f"this page requires the scope {row.scope}, which you do not have")
        with self._app.concurrency_limit.slot():
            if isinstance(row, Page):
                return await _page(row, asked)
            if isinstance(row, File):
                found = await asked.call(row.operation, **asked.path)
                return await download_response(found, is_head=request.method == "HEAD")
            framed = await row.content(asked)
        headers = {**_FRAMED, "Content-Security-Policy": framed.policy}
        return Response(framed.html, headers=headers, media_type=HTML)

    async def _submit(self, request: Request, form: Form, asked: PageRequest) -> Response:
        posted = await self._posted(request, asked.signed_in)
        if not form.is_public and not is_form_token("".join(posted.all("csrf")), asked.secret):
            raise Forbidden("this form belongs to another session; reload the page")
        asked = replace(asked, posted=posted)
        try:
            with self._app.concurrency_limit.slot():
                redirect = await form.submit(asked)
                if isinstance(redirect, FormResult):
                    return await _page(_answer_of(form, redirect), asked)
        except MailError as error:
            with self._app.concurrency_limit.slot():
                error.args = (with_labels(str(error)), *error.args[1:])
                return await _page(form.error_page, asked, error)
        response = _redirect(redirect.to, redirect.notice)
        if redirect.session is not None:
            cookie = session_cookie(redirect.session, is_secure=self._is_secure(request))
            response.headers["Set-Cookie"] = cookie
        return response

    async def _posted(self, request: Request, person: SignedIn | None) -> FormData:
        """What a form sent, with line ends as we write them. Raises Malformed, TooLarge."""
        kind = request.headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() not in (_FORM, _FORM_WITH_FILES):
            raise Malformed(f"send the form as {_FORM} or {_FORM_WITH_FILES}")
        sender, most = keyless_client(request.client.host if request.client else ""), _SIGN_IN_BYTES
        if person is not None:
            sender = keyed_client(person.caller.key_id)
            most = self._app.settings.limits.request_bytes
        stated = request.headers.get("content-length", "")
        bodies = self._app.request_bodies
        async with bodies.body(aiter(request.stream()), sender, most, stated) as body:
            return await in_thread(_read_form, kind, body)


def _read_form(kind: str, body: bytes) -> FormData:
    """The fields and files of a form. Raises Malformed."""
    files: Sequence[FormFile] = ()
    try:
        if kind.lower().startswith(_FORM_WITH_FILES):
            form = read_form(kind, body)
            pairs = [(name, value.decode()) for name, value in form.fields.items()]
            files = tuple(file for file in form.files if file.filename)
        else:
            pairs = parse_qsl(
                body.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MAX_FIELDS,
            )
    except ValueError:
        raise Malformed("the form cannot be read; reload the page") from None
    return FormData([(name, value.replace("\r\n", "\n")) for name, value in pairs], files)


def _answer_of(form: Form, shown: FormResult) -> Page:
    """The page that answers a form; it is in the navigation where the form is."""

    async def values(_asked: PageRequest) -> dict[str, Any]:
        return shown.values

    return Page(form.error_page.path, shown.template, values)


_ERROR = Page("", "error.html", is_public=True)


async def _page(page: Page, asked: PageRequest, error: MailError | None = None) -> Response:
    """A page as HTML; with an error, its status and its words."""
    values, person = await page.values(asked), asked.signed_in
    status = KINDS[error.code].status if error is not None else 200
    common = {
        "csrf": form_token(asked.secret) if person else "",
        "signed_in": person,
        "may": {str(scope) for scope in person.caller.scopes} if person else (),
        "held": 0 if page.is_public else await count(asked, "held"),
        "notice": NOTICES.get(asked.query.get("notice", ""), ""),
        "error": str(error) if error is not None else "",
        "title": KINDS[error.code].title if error is not None else "",
        "here": page.path,
        "links": [link for link in LINKS if link.scope is None or asked.may(link.scope)],
    }
    headers = dict(HEADERS)
    if target := values.get("form_target"):
        policy = POLICY.replace("form-action 'self'", f"form-action 'self' {target}")
        headers["Content-Security-Policy"] = policy
    if isinstance(error, (RateLimited, Unavailable)):
        headers["Retry-After"] = str(error.retry_after)
    return Response(render(page.template, **{**common, **values}), status, headers, HTML)


def _redirect(to: str, notice: str = "") -> Response:
    mark = "&" if "?" in to else "?"
    location = f"{to}{mark}{urlencode({'notice': notice})}" if notice else to
    return Response(status_code=303, headers={**HEADERS, "Location": location})


def _to_sign_in(request: Request) -> Response:
    """Redirect to the sign-in page; a script that asked for a part of a page leaves the page for
    it.

    After a link on another site, a browser keeps back the cookie of the session, which is
    `SameSite=Strict`; a page of this server that redirects to the same URL gets it.
    """
    if request.method == "GET" and request.headers.get("sec-fetch-site") in _OTHER_SITES:
        page = render("again.html", again=_path_of(str(request.url)), **_SIGNED_OUT)
        return Response(page, headers=HEADERS, media_type=HTML)
    if request.headers.get("hx-request") == "true":
        to = _sign_in_path(request.headers.get("hx-current-url", ""))
        return Response(status_code=401, headers={**HEADERS, "HX-Redirect": to})
    return _redirect("/signin" if request.method == "POST" else _sign_in_path(str(request.url)))


def _sign_in_path(wanted: str) -> str:
    """The sign-in page, which leads on to the path of a URL."""
    path = _path_of(wanted)
    return "/signin" if path in ("", "/") else f"/signin?next={quote(path, safe='/')}"


def _path_of(wanted: str) -> str:
    """The path and query of a URL; empty if it is not a URL."""
    try:
        url = urlsplit(wanted)
    except ValueError:
        return ""
    return url.path + (f"?{url.query}" if url.query else "")


def _asset(segments: list[str], request: Request) -> Response:
    name = "/".join(segments)
    if name not in ASSETS:
        raise NotFound("there is no page at this address")
    return asset_response(name, HEADERS, request.headers.get("accept-encoding", ""))


def _by_path() -> dict[str, dict[str, Row]]:
    """The rows of all sections by path and method."""
    table: dict[str, dict[str, Row]] = {}
    for section in SECTIONS:
        shown: tuple[Row, ...] = (*section.pages, *section.documents, *section.files)
        for row in shown:
            table.setdefault(row.path, {})["GET"] = row
        for form in section.forms:
            table.setdefault(form.path, {})["POST"] = form
    return table


def web_mounts(app: App, access: AccessControl, tool_text: ToolText) -> dict[str, ASGIApp]:
    """The pages and the guide, under each path where an HTTP server has to mount them."""
    surface, guide = WebSurface(app, access, tool_text), Guide()
    return {**dict.fromkeys(surface.prefixes, surface), PREFIX: guide, f"/{INDEX}": guide}


async def sign_in_link(app: App, base_url: str) -> str:
    """A link that signs the owner in, once, within 10 minutes. It is for their terminal only."""
    return f"{base_url.rstrip('/')}/signin?link={await new_sign_in_link(app.services)}"
