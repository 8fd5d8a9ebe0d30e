"""The login of an account is sent to its provider only, and appears in no error or log."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import MailError
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations import accounts
from postroom.operations.mail import messages
from postroom.operations.outgoing import sending
from postroom.pipeline.sync import sync_once
from tests.providers.accounts.remote_mailboxes import ADDRESS, GREETING
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.servers.gmail import Gmail
from tests.servers.graph import Graph
from tests.servers.imap_script import ImapCommand, scripted
from tests.servers.jmap_events import JmapEvents
from tests.servers.relay import relaying
from tests.servers.web import HttpRequest, HttpResponse, WebServer

CANARY = "canary-9f3b7d51c2"


class EchoingServer:
    """A server that can repeat the request and its login in errors, as some do."""

    def __init__(self, answer: Callable[[HttpRequest], HttpResponse]) -> None:
        self.answer = answer
        self.status = 0

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not self.status:
            return self.answer(request)
        said = f"bad request: {request.headers.get('authorization')} {request.path}"
        return HttpResponse(self.status, {"error": {"code": said, "message": said}, "detail": said})


class EchoingImapServer:
    """An IMAP server that repeats the last login in the text of its refusals."""

    _SAID = {
        400: b"{tag} BAD [CLIENTBUG] %s\r\n",
        401: b"{tag} NO [AUTHENTICATIONFAILED] %s\r\n",
        403: b"{tag} NO [NOPERM] %s\r\n",
        404: b"{tag} NO [NONEXISTENT] %s\r\n",
        500: b"* BYE %s\r\n{tag} NO [SERVERBUG] bye\r\n",
    }
    _COMMANDS = ("LIST", "STATUS", "EXAMINE", "SELECT", "UID SEARCH", "UID FETCH")

    def __init__(self) -> None:
        self.status = 0
        self.logins: list[bytes] = []
        self.replies: dict[str, Any] = dict.fromkeys(self._COMMANDS, self._refuse)
        self.replies["LOGIN"] = self._login

    def _login(self, command: ImapCommand) -> bytes | None:
        self.logins.append(command.rest)
        return self._refuse(command) if self.status in (401, 500) else None

    def _refuse(self, _: ImapCommand) -> bytes | None:
        said = b"you said LOGIN " + self.logins[-1]
        return self._SAID[self.status] % said if self.status else None


async def everything(app: App, echo: EchoingServer | EchoingImapServer) -> list[str]:
    """Use all operations on an account, with a working and a failing provider."""
    said: list[str] = []

    async def ask(operation: Any, **arguments: Any) -> None:
        try:
            said.append(repr(await call(app.context(OWNER), operation, arguments)))
        except MailError as error:
            said.append("".join(traceback.format_exception(error)) + json.dumps(error.details))

    for status in (0, 400, 401, 403, 404, 500, 0):
        echo.status = status
        await ask(accounts.list_accounts)
        await ask(accounts.check_account, account_id="work")
        await ask(accounts.get_capabilities)
        await ask(accounts.log_in_account, account_id="work", password=f"{CANARY}-wrong")
        await ask(accounts.log_in_account, account_id="work", access_token=f"{CANARY}-wrong")
        await ask(messages.search_messages, q="hello")
        await ask(sending.send_message, to=["bo@b.org"], subject=str(status), body_text="Hi")
        account = await app.services.store.account("work", EVERYTHING)
        assert account is not None
        try:
            await sync_once(app.services, account)
        except MailError as error:
            said.append("".join(traceback.format_exception(error)) + json.dumps(error.details))
        await ask(accounts.list_accounts)
    return said


@dataclass
class EchoingProvider:
    """A provider that repeats requests in errors, and a login for it that must stay secret."""

    settings: dict[str, str]
    login: dict[str, Any]
    echo: EchoingServer | EchoingImapServer
    has_login: Callable[[], bool]


@asynccontextmanager
async def open_provider(kind: str) -> AsyncIterator[EchoingProvider]:
    if kind == "imap":
        async with imap_provider() as provider:
            yield provider
        return
    server: Any = {"outlook": Graph, "gmail": Gmail, "fastmail": JmapEvents}[kind]()
    echo = EchoingServer(server._answer)
    web = WebServer(echo)
    login = {"access_token": CANARY, "refresh_token": f"{CANARY}-refresh"}
    if kind == "fastmail":
        server.web, login = web, {"password": CANARY}
    else:
        server.token, server.web = CANARY, web
    settings = {
        "POSTROOM_OUTLOOK_URL": f"{web.url}/v1.0",
        "POSTROOM_OUTLOOK_CLIENT_ID": "cid",
        "POSTROOM_OUTLOOK_LOGIN_URL": web.url,
        "POSTROOM_GMAIL_URL": web.url,
        "POSTROOM_GMAIL_CLIENT_ID": "cid",
        "POSTROOM_GMAIL_LOGIN_URL": web.url,
        "POSTROOM_FASTMAIL_URL": web.url,
    }
    with server:
        server.deliver(outgoing_mail("Hello"))
        has_login = lambda: any(  # noqa: E731
            CANARY == request.headers.get("authorization", "").rpartition(" ")[2]
            for request in web.requests
        )
        yield EchoingProvider(settings, {"provider": kind, **login}, echo, has_login)


@asynccontextmanager
async def imap_provider() -> AsyncIterator[EchoingProvider]:
    echo = EchoingImapServer()

    def log_in(line: str) -> bytes:
        said = b64decode(line.rsplit(maxsplit=1)[-1]).replace(b"\0", b" ")
        return b"535 5.7.8 not with " + said if echo.status else b"235 2.7.0 welcome"

    async with (
        scripted(replies=echo.replies, capabilities="IMAP4rev1 UIDPLUS IDLE") as server,
        relaying({"EHLO": GREETING, "AUTH": log_in}) as relay,
    ):
        login = {
            "provider": "imap",
            "password": CANARY,
            "host": "127.0.0.1",
            "port": server.port,
            "security": "none",
            "smtp_host": "127.0.0.1",
            "smtp_port": relay.port,
            "smtp_security": "none",
            "insecure": True,
        }
        packed = b64encode(f"\0{ADDRESS}\0{CANARY}".encode()).decode()
        has_login = lambda: (  # noqa: E731
            any(CANARY.encode() in line for line in echo.logins)
            and any(packed in line for line in relay.lines)
        )
        yield EchoingProvider({}, login, echo, has_login)


@pytest.mark.parametrize("kind", ["imap", "gmail", "outlook", "fastmail"])
async def test_no_login_is_shown_logged_or_stored_unencrypted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    async with open_provider(kind) as provider:
        async with open_app(read_settings({**values, **provider.settings}).settings) as app:
            given = {"account_id": "work", "address": ADDRESS, **provider.login}
            added = await call(app.context(OWNER), accounts.add_account, given)
            work = asyncio.create_task(app.outbox().run())
            said = [repr(added), *await everything(app, provider.echo)]
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        logged = caplog.text + "\n".join(repr(vars(r)) for r in caplog.records if is_ours(r))
        has_login = provider.has_login()

    assert has_login
    assert [] == [text for text in said if CANARY in text]
    assert CANARY not in logged
    assert [] == files_with_it(tmp_path)


def files_with_it(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


def is_ours(record: logging.LogRecord) -> bool:
    """The HTTP client of this process logs too, without logins."""
    return not record.name.startswith("httpx2")
