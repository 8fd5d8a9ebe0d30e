"""Keys on the pages: created, shown once, changed and revoked, with isolation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from postroom.calls.authentication import authenticate
from postroom.errors import Unauthenticated
from postroom.model.key import Caller
from tests.hostile_content import NO_ACCOUNT
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

_KEY = re.compile(r"pk_[\w-]{20,}")


async def make(person: WebUser, **form: Any) -> httpx2.Response:
    return await person.post("/keys/new", **{"name": "agent", "kind": "read", **form})


async def caller_of(installation: WebInstallation, page: str) -> Caller:
    return await authenticate(installation.app.services, _KEY.findall(page)[0])


async def test_a_new_key_is_shown_once_and_can_do_what_was_chosen(
    installation: WebInstallation, owner: WebUser
) -> None:
    answer = await make(owner, name="<b>Helper</b>", kind="agent", approval="always",
                        allow="ana@example.com\n@example.org", deny="@evil.example",
                        expires="30d")  # fmt: skip

    assert 200 == answer.status_code
    assert "no-store" == answer.headers["cache-control"]
    made = await caller_of(installation, answer.text)
    assert {"read", "write", "send"} == set(made.scopes)
    assert "always" == made.policy.approval
    assert ("@evil.example",) == made.policy.recipients.deny
    assert made.expires_at is not None
    assert "<b>Helper</b>" not in answer.text
    listed = await owner.read("/keys")
    assert not _KEY.search(listed)
    said = words(listed)
    assert "All messages to other servers are held for approval." in said
    assert "Blocked recipients: @evil.example" in said


async def test_a_key_is_limited_to_the_selected_objects(
    installation: WebInstallation, owner: WebUser
) -> None:
    inbox = await installation.new_inbox("shop")
    await installation.new_inbox("private")

    answer = await make(
        owner, kind="custom", scope=["read", "write"], limit_inboxes="some", inbox=[inbox],
        limit_namespaces="some", more_namespaces="shop\n",
    )  # fmt: skip

    made = await caller_of(installation, answer.text)
    assert made.inboxes.sees(inbox)
    assert not made.inboxes.sees(await installation.new_inbox("other"))
    assert (True, False) == (made.namespaces.sees("shop"), made.namespaces.sees("default"))
    assert "shop@postroom.localhost" in await owner.read("/keys")


@pytest.mark.parametrize(
    ("limits", "access"),
    [
        ({}, "inboxes: all · accounts: all · memories: all"),
        (
            {"limit_inboxes": "some", "more_inboxes": "shop@postroom.localhost"},
            "inboxes: shop@postroom.localhost · accounts: none · memories: none",
        ),
        (
            {"limit_accounts": "some", "more_accounts": "work"},
            "inboxes: none · accounts: work · memories: none",
        ),
    ],
)
async def test_the_access_of_a_key_is_shown(
    installation: WebInstallation, owner: WebUser, limits: dict[str, Any], access: str
) -> None:
    await installation.new_inbox("shop")
    account = replace(NO_ACCOUNT, inbox_id="inb_work")
    await installation.app.services.store.add_account(account, "Work")

    key_id = (await caller_of(installation, (await make(owner, **limits)).text)).key_id

    assert access in words(await owner.read(f"/keys/{key_id}"))


async def test_selecting_nothing_means_none(installation: WebInstallation, owner: WebUser) -> None:
    answer = await make(owner, limit_inboxes="some")

    made = await caller_of(installation, answer.text)
    assert not made.inboxes.sees(await installation.new_inbox("any"))


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"kind": ""}, "choose the permissions of the key"),
        ({"kind": "custom"}, "select at least one scope"),
        ({"kind": "custom", "scope": ["approve", "read"]}, "can have no other scope"),
        ({"kind": "custom", "scope": ["root"]}, "scopes"),
        ({"name": ""}, "name"),
        ({"expires_on": "2001-01-01"}, "is in the past"),
        ({"expires": "soon"}, "Expires: "),
        ({"limit_inboxes": "some", "inbox": ["inb_nobody"]}, "no inbox inb_nobody"),
        ({"kind": "agent", "deny": "not an address"}, "recipients"),
    ],
)
async def test_a_problem_with_a_key_is_explained_and_the_input_kept(
    owner: WebUser, form: dict[str, Any], reason: str
) -> None:
    answer = await make(owner, **{"allow": "ana@example.com", "name": "typed", **form})

    assert answer.status_code in (404, 422)
    assert reason in words(answer.text)
    assert not _KEY.search(answer.text)
    assert "ana@example.com" in answer.text


async def test_a_key_is_changed_and_revoked(installation: WebInstallation, owner: WebUser) -> None:
    secret = await installation.key("read", "send")
    caller = await authenticate(installation.app.services, secret)
    path = f"/keys/{caller.key_id}"
    await owner.post(path, name="renamed", approval="always", allow="", deny="x@y.example")
    changed = words(await owner.read(path))
    asked = words(await owner.read(f"{path}/revoke"))
    done = await owner.post(f"{path}/revoke")

    assert "renamed" in changed
    assert "Blocked recipients: x@y.example" in changed
    assert "Revoke renamed?" in asked
    assert "/keys?notice=key+revoked" == done.headers["location"]
    with pytest.raises(Unauthenticated):
        await authenticate(installation.app.services, secret)
    assert 404 == (await owner.get(path)).status_code


async def test_the_owners_key_cannot_be_revoked(
    owner: WebUser, installation: WebInstallation
) -> None:
    await installation.app.owner_key()

    answer = await owner.post("/keys/owner/revoke")

    assert 403 == answer.status_code
    assert "postroom key reset" in words(answer.text)


async def test_a_session_under_a_policy_cannot_remove_its_policy(
    installation: WebInstallation,
) -> None:
    key = await installation.key("read", "write", "send", "admin", approval="always",
                           recipients={"deny": ["@rival.example"]})  # fmt: skip
    async with installation.new_user() as agent:
        await agent.sign_in(key=key)
        page = await agent.read("/keys/new")
        looser = await make(agent, kind="agent", approval="never")
        same = await make(agent, kind="agent", approval="always")
        approver = await make(agent, kind="custom", scope="approve")

    assert 'value="never"' not in page
    assert "Approver" not in page
    assert (403, 403) == (looser.status_code, approver.status_code)
    policy = (await caller_of(installation, same.text)).policy
    assert ("always", ("@rival.example",)) == (policy.approval, policy.recipients.deny)


async def test_a_session_without_the_right_sees_no_key(installation: WebInstallation) -> None:
    inbox = await installation.new_inbox("shop")
    keys = {
        "reader": await installation.key("read", "write"),
        "limited": await installation.key("read", "admin", inboxes=[inbox]),
    }
    for name, key in keys.items():
        async with installation.new_user() as person:
            await person.sign_in(key=key)
            listed, made = await person.get("/keys"), await make(person)
            menu = await person.read("/sessions")

        assert (name, 403) == (name, listed.status_code)
        assert (name, 403) == (name, made.status_code)
        assert ("limited" == name) == ('href="/keys"' in menu)


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("/keys/new", "admin"),
        ("/webhooks/new", "admin"),
        ("/accounts/new", "admin"),
        ("/memories/new", "write"),
    ],
)
async def test_a_form_that_a_session_may_not_send_is_not_shown(
    installation: WebInstallation, anonymous: WebUser, path: str, scope: str
) -> None:
    await anonymous.sign_in(key=await installation.key("read"))

    response = await anonymous.get(path)

    assert 403 == response.status_code
    assert f"this page requires the scope {scope}" in words(response.text)
    assert "<textarea" not in response.text
