"""A Postroom with held mail on a real port, and users of its web pages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.app import App, open_app
from postroom.calls.authentication import authenticate, new_sign_in_link
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.model.mail.message import Message
from postroom.model.view import EVERYTHING
from postroom.operations.keys import create_key
from postroom.operations.outgoing.sending import send_message
from postroom.surfaces.mcp.server import http_app, tool_text
from postroom.surfaces.oauth import oauth_mounts
from postroom.surfaces.rest.server import AccessControl, build
from postroom.surfaces.web.server import web_mounts
from tests.mails import new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.conftest import clock
from tests.surfaces.rest.conftest import serving
from tests.surfaces.web.chromium import shared_browser

__all__ = ["clock", "serving", "shared_browser"]

STRANGER = "mallory@evil.example"
_TOKEN = re.compile(r'name="csrf" value="([0-9a-f]+)"')
_SHA256 = re.compile(r'name="sha256" value="([0-9a-f]+)"')


@dataclass
class WebUser:
    """A user whose browser keeps cookies and sends the Origin header."""

    http: httpx2.AsyncClient
    installation: WebInstallation

    async def get(self, path: str, **more: Any) -> httpx2.Response:
        return await self.http.get(path, **more)

    async def read(self, path: str) -> str:
        """The HTML of a page."""
        response = await self.get(path)
        assert 200 == response.status_code, response.text
        return response.text

    async def post(self, path: str, *, token: str | None = None, **form: str) -> httpx2.Response:
        """Send a form, by default with the CSRF token of this session."""
        if token is None and "/signin" != path:
            token = await self.token()
        fields = form if token is None else {**form, "csrf": token}
        return await self.http.post(path, data=fields)

    async def token(self) -> str:
        return _TOKEN.findall(await self.read("/sessions"))[0]

    async def sign_in(self, **form: str) -> httpx2.Response:
        response = await self.post("/signin", **form)
        assert 303 == response.status_code, response.text
        return response

    async def seen(self, message_id: str) -> str:
        """The hash of a held mail, as shown by its page."""
        return _SHA256.findall(await self.read(f"/outgoing/{message_id}"))[0]

    @property
    def cookie(self) -> str:
        return self.http.cookies.get("postroom") or ""

    def use_cookie(self, cookie: str) -> None:
        """Use this session in the browser."""
        self.http.cookies.set("postroom", cookie, domain="127.0.0.1")


@dataclass
class WebInstallation:
    """The installation, its server, and helpers that create objects."""

    app: App
    url: str = ""

    @property
    def owner(self) -> RequestContext:
        return self.app.context(OWNER)

    async def key(self, *scopes: str, **more: Any) -> str:
        made = await call(self.owner, create_key, {"name": "k", "scopes": scopes, **more})
        return made.key or ""

    async def agent(self, *scopes: str, **more: Any) -> RequestContext:
        """The context of a new key."""
        key = await self.key(*scopes, **more)
        return self.app.context(await authenticate(self.app.services, key), "mcp")

    async def new_inbox(self, username: str) -> str:
        return (await new_inbox(self.app.services, username)).id

    async def link(self) -> str:
        """The secret of a sign-in link."""
        return await new_sign_in_link(self.app.services)

    async def hold(self, **mail: Any) -> str:
        """The id of a held mail of an agent."""
        agent = await self.agent("read", "write", "send", approval="always")
        usual = {"to": [STRANGER], "subject": "Offer", "body_text": "Ten per cent."}
        sent = await call(agent, send_message, {**usual, **mail})
        assert "held" == sent.status
        return sent.message_id

    async def hold_with_hash(self) -> tuple[str, str]:
        """The id of a held mail, and the hash that its approval names."""
        message_id = await self.hold()
        hold = (await self.message(message_id)).hold
        assert hold is not None
        return message_id, hold.sha256

    async def message(self, message_id: str) -> Message:
        found = await self.app.services.store.message(message_id, EVERYTHING)
        assert found is not None
        return found

    @asynccontextmanager
    async def new_user(self, **headers: str) -> AsyncIterator[WebUser]:
        """A user who is not signed in."""
        sent = {"Origin": self.url, "User-Agent": "Firefox/140", **headers}
        async with httpx2.AsyncClient(base_url=self.url, headers=sent, timeout=60) as http:
            yield WebUser(http, self)


@pytest.fixture
async def installation(
    tmp_path: Path,
    clock: Clock,
    serving: Callable[..., AbstractAsyncContextManager[int]],
    settings: dict[str, str],
) -> AsyncIterator[WebInstallation]:
    """A Postroom with an inbox and an unreachable relay."""
    given = {"POSTROOM_DATA_DIR": str(tmp_path / "data"), **settings}
    async with open_app(read_settings(given).settings) as opened:
        app = replace(opened, services=replace(opened.services, clock=clock))
        await new_inbox(app.services, "me")
        access = AccessControl.of(app, no_auth=False)
        mcp = http_app(app, access)
        mounts = {"/mcp": mcp, **oauth_mounts(app), **web_mounts(app, access, tool_text)}
        asgi = build(app, mounts=mounts, lifespans=[mcp.lifespan])
        async with serving(asgi, app.begin_shutdown) as port:
            yield WebInstallation(app, f"http://127.0.0.1:{port}")


@pytest.fixture
def settings() -> dict[str, str]:
    return {"POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}


@pytest.fixture
async def anonymous(installation: WebInstallation) -> AsyncIterator[WebUser]:
    async with installation.new_user() as person:
        yield person


@pytest.fixture
async def owner(installation: WebInstallation) -> AsyncIterator[WebUser]:
    """The owner, signed in by a link from the terminal."""
    async with installation.new_user() as person:
        await person.sign_in(link=await installation.link())
        yield person


def words(html: str) -> str:
    """The text of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())
