"""The connect page: configurations with the right URL and key, and a test call."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from html import unescape
from pathlib import Path

import pytest

from postroom.calls.authentication import authenticate
from postroom.surfaces.client_settings import KEY_PLACEHOLDER, clients_of, stdio_server
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

CLIENTS = [client.id for client in clients_of("http://h", "k", None)]
_LINES = re.compile(r'<pre class="source" id="lines-\d">(.*?)</pre>', re.DOTALL)


def lines_of(page: str) -> list[str]:
    return [unescape(found) for found in _LINES.findall(page)]


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_configuration_of_a_client_names_this_server(
    installation: WebInstallation, owner: WebUser, client: str
) -> None:
    lines = lines_of(await owner.read(f"/connect?client={client}"))

    assert any(installation.url in text for text in lines)
    assert any(KEY_PLACEHOLDER in text for text in lines) or client in ("chatgpt", "codex")
    for text in lines:
        if text.startswith("{"):
            json.loads(text)
        if text.startswith("[mcp_servers"):
            assert "postroom" in tomllib.loads(text)["mcp_servers"]


async def test_a_new_key_is_shown_once_in_the_configuration(
    installation: WebInstallation, owner: WebUser
) -> None:
    answer = await owner.post("/connect", client="cursor")

    settings = json.loads(lines_of(answer.text)[-1])["mcpServers"]["postroom"]
    secret = settings["headers"]["Authorization"].removeprefix("Bearer ")
    caller = await authenticate(installation.app.services, secret)
    assert ({"read", "write", "send"}, "risky") == (set(caller.scopes), caller.policy.approval)
    assert f"{installation.url}/mcp" == settings["url"]
    assert secret not in await owner.read("/connect?client=cursor")
    assert "Cursor" in words(await owner.read("/keys"))


async def test_only_the_owner_sees_the_data_folder(
    installation: WebInstallation, owner: WebUser
) -> None:
    folder = str(installation.app.settings.data_dir)
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read"))
        page = await person.read("/connect")
        refused = await person.post("/connect", client="cursor")

    assert folder in await owner.read("/connect")
    assert folder not in page
    assert "Create a key" not in page
    assert 403 == refused.status_code


async def test_a_key_of_a_session_under_a_policy_stays_under_it(
    installation: WebInstallation,
) -> None:
    key = await installation.key("read", "admin", "send", approval="always")
    async with installation.new_user() as person:
        await person.sign_in(key=key)
        answer = await person.post("/connect", client="curl")

    secret = re.findall(r"pk_[\w-]{20,}", answer.text)[0]
    caller = await authenticate(installation.app.services, secret)
    assert ({"read", "send"}, "always") == (set(caller.scopes), caller.policy.approval)


async def test_a_call_is_made_with_the_rights_of_the_key(
    installation: WebInstallation, owner: WebUser
) -> None:
    services = installation.app.services
    shop = await new_inbox(services, "shop")
    await deliver(services, shop, mail("An order"))
    await deliver(services, await new_inbox(services, "private"), mail("A canary"))
    key = await installation.key("read", inboxes=[shop.id])

    own = words((await owner.post("/connect/test", test="newest")).text)
    theirs = await owner.post("/connect/test", test="newest", key=key)

    assert "A canary" in own
    said = words(theirs.text)
    assert "The test succeeded: find_mail returned a result." in said
    assert (True, False) == ("An order" in said, "canary" in said)
    assert key not in theirs.text


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("pk_unknown", "key"),
        (KEY_PLACEHOLDER, "stands for your key"),
        ("approver", "scope"),
    ],
)
async def test_a_problem_with_a_key_is_explained(
    installation: WebInstallation, owner: WebUser, key: str, reason: str
) -> None:
    given = await installation.key("approve") if key == "approver" else key

    answer = await owner.post("/connect/test", test="mailboxes", key=given)

    assert "The test failed" in words(answer.text)
    assert reason in words(answer.text)


async def test_guessing_keys_is_slowed_down(installation: WebInstallation, owner: WebUser) -> None:
    token, form = await owner.token(), {"test": "newest"}
    guesses = (
        owner.post("/connect/test", token=token, key=f"pk_{number:040}", **form)
        for number in range(40)
    )
    await asyncio.gather(*guesses)

    answer = await owner.post("/connect/test", token=token, key="pk_" + "9" * 40, **form)

    assert "too many wrong keys" in words(answer.text)


def test_the_command_for_stdio_has_the_toolset_for_agents(tmp_path: Path) -> None:
    server = stdio_server(tmp_path)

    assert ["mcp", "--toolsets", "agent"] == server["args"][-5:-2]
