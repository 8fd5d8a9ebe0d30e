"""What logs an account in is told to its provider and to nobody else, whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import MailError
from postroom.model.key import OWNER
from postroom.operations import accounts, messages, sending
from postroom.operations.operation import call
from postroom.pipeline.syncing import sync_once
from tests.providers.accounts.test_every_provider import letter
from tests.providers.accounts.worlds import ADDRESS
from tests.servers.graph import Graph
from tests.servers.jmap_events import JmapEvents
from tests.servers.web import Answer, Asked, WebServer

CANARY = "canary-9f3b7d51c2"


class Parrot:
    """A server that can answer with what it was asked, login and all, as some do in errors."""

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.status = 0

    def __call__(self, asked: Asked) -> Answer:
        if not self.status:
            return self.answer(asked)
        said = f"bad request: {asked.headers.get('authorization')} {asked.path}"
        return Answer(self.status, {"error": {"code": said, "message": said}, "detail": said})


async def everything(app: App, parrot: Parrot) -> list[str]:
    """Do all there is to do with an account, with a provider that is well and one that is not."""
    said: list[str] = []

    async def ask(operation: Any, **arguments: Any) -> None:
        try:
            said.append(repr(await call(app.context(OWNER), operation, arguments)))
        except MailError as error:
            said.append("".join(traceback.format_exception(error)) + json.dumps(error.details))

    for status in (0, 400, 401, 403, 404, 500, 0):
        parrot.status = status
        await ask(accounts.list_accounts)
        await ask(accounts.check_account, account_id="work")
        await ask(accounts.get_capabilities)
        await ask(accounts.log_in_account, account_id="work", password=f"{CANARY}-wrong")
        await ask(accounts.log_in_account, account_id="work", access_token=f"{CANARY}-wrong")
        await ask(messages.search_messages, q="hello")
        await ask(sending.send_message, to=["bo@b.org"], subject=str(status), body_text="Hi")
        account = await app.house.store.account("work", None)
        assert account is not None
        try:
            await sync_once(app.house, account)
        except MailError as error:
            said.append("".join(traceback.format_exception(error)) + json.dumps(error.details))
        await ask(accounts.list_accounts)
    return said


@pytest.mark.parametrize("kind", ["outlook", "fastmail"])
async def test_no_login_is_told_logged_or_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.DEBUG)
    server: Any = Graph() if kind == "outlook" else JmapEvents()
    parrot = Parrot(server._answer)
    web = WebServer(parrot)
    if kind == "outlook":
        server.token, server._web = CANARY, web
        login = {"access_token": CANARY, "refresh_token": f"{CANARY}-refresh"}
    else:
        server.web, login = web, {"password": CANARY}
    with server:
        values = {
            "POSTROOM_DATA_DIR": str(tmp_path),
            "POSTROOM_SECRETS": "file",
            "POSTROOM_OUTLOOK_URL": f"{web.url}/v1.0",
            "POSTROOM_OUTLOOK_CLIENT_ID": "cid",
            "POSTROOM_OUTLOOK_LOGIN_URL": web.url,
            "POSTROOM_FASTMAIL_URL": web.url,
        }
        server.deliver(letter("Hello"))
        async with open_app(read_settings(values).settings) as app:
            given = {"account_id": "work", "provider": kind, "address": ADDRESS, **login}
            added = await call(app.context(OWNER), accounts.add_account, given)
            work = asyncio.create_task(app.outbox().run())
            said = [repr(added), *await everything(app, parrot)]
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    logged = caplog.text + "\n".join(repr(vars(r)) for r in caplog.records if is_ours(r))
    written = files_with_it(tmp_path)
    assert CANARY in {a.headers.get("authorization", "").rpartition(" ")[2] for a in web.asked}
    assert [] == [text for text in said if CANARY in text]
    assert CANARY not in logged
    assert [] == written


def files_with_it(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


def is_ours(record: logging.LogRecord) -> bool:
    """The HTTP client of this process logs too, without logins."""
    return not record.name.startswith("httpx2")
