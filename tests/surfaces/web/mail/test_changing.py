"""Changing mail: one or many, with an undo on the next page."""

from __future__ import annotations

import re

import pytest

from postroom.model.mail.message import Message
from tests.surfaces.web.conftest import WebInstallation, WebUser, words
from tests.surfaces.web.mail.conftest import IncomingMail


async def undo(person: WebUser, location: str) -> None:
    """Press the undo button of a page."""
    page = await person.read(location)
    (path,) = re.findall(r'action="(/undo[^"]*)"', page)
    (undo_id,) = re.findall(r'name="undo_id" value="([^"]+)"', page)
    response = await person.post(path.replace("&amp;", "&"), undo_id=undo_id)
    assert "notice=undone" in response.headers["location"]


def state(message: Message) -> tuple[set[str], set[str], tuple[str, ...]]:
    return set(message.flags), set(message.labels), message.mailboxes


@pytest.mark.parametrize(
    ("form", "after"),
    [
        ({"do": "read"}, ({"seen"}, set(), ("Inbox",))),
        ({"do": "flag"}, ({"flagged"}, set(), ("Inbox",))),
        ({"do": "archive"}, (set(), set(), ("Archive",))),
        ({"do": "trash"}, (set(), set(), ("Trash",))),
        ({"do": "move", "mailbox": "Projects & <more>"}, (set(), set(), ("Projects & <more>",))),
        ({"do": "label", "label": "Food"}, (set(), {"Food"}, ("Inbox",))),
    ],
    ids=lambda value: value.get("do") if isinstance(value, dict) else "",
)
async def test_a_change_is_made_and_undone(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser, form: dict[str, str],
    after: tuple[set[str], set[str], tuple[str, ...]],
) -> None:  # fmt: skip
    message_id = await incoming.arrive("Soup")
    before = state(await installation.message(message_id))

    response = await owner.post(f"/mail/{message_id}?inbox=me%40postroom.localhost",
                                id=message_id, **form)  # fmt: skip

    assert 303 == response.status_code, response.text
    assert after == state(await installation.message(message_id))
    location = response.headers["location"]
    assert "inbox=me%40postroom.localhost" in location
    await undo(owner, location)
    assert before == state(await installation.message(message_id))


@pytest.mark.parametrize(
    ("first", "second"),
    [("read", "unread"), ("flag", "unflag"), ("archive", "inbox"), ("label", "unlabel")],
)
async def test_a_change_has_an_opposite(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser, first: str, second: str
) -> None:
    message_id = await incoming.arrive("Soup")
    before = state(await installation.message(message_id))

    for do in (first, second):
        await owner.post(f"/mail/{message_id}", id=message_id, do=do, label="Food")

    assert before == state(await installation.message(message_id))


async def test_many_mails_are_changed_at_once_and_undone(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    ids = [await incoming.arrive(f"Soup {number}") for number in range(4)]

    response = await owner.http.post(
        "/mail", data={"csrf": await owner.token(), "do": "archive", "id": ids[:3]}
    )

    places = [(await installation.message(one)).mailboxes for one in ids]
    assert [("Archive",)] * 3 + [("Inbox",)] == places
    assert "Archived." in words(await owner.read(response.headers["location"]))
    await undo(owner, response.headers["location"])
    assert {("Inbox",)} == {(await installation.message(one)).mailboxes for one in ids}


async def test_all_mails_of_a_page_can_be_selected_without_a_script(
    incoming: IncomingMail, owner: WebUser
) -> None:
    for number in range(3):
        await incoming.arrive(f"Soup {number}")

    page = await owner.read("/mail")
    (select_all,) = re.findall(r'href="([^"]+)">Select all', page)

    assert 0 == page.count("checked>")
    assert 3 == (await owner.read(select_all)).count("checked>")


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"do": "read"}, "select at least one message"),
        ({"do": "explode", "id": "msg_1"}, "choose an action"),
        ({"do": "move", "id": "msg_1", "mailbox": " "}, "choose the mailbox"),
        ({"do": "label", "id": "msg_1"}, "type the label"),
        ({"do": "move", "id": "msg_1", "mailbox": "*"}, "every mailbox"),
        ({"do": "read", "id": "thr_1"}, "thr_1"),
        ({"do": "read", "id": "msg_none"}, "no message msg_none"),
    ],
)
async def test_a_failed_change_is_reported_above_the_list(
    incoming: IncomingMail, owner: WebUser, form: dict[str, str], reason: str
) -> None:
    await incoming.arrive("Soup")

    response = await owner.post("/mail?q=soup", **form)

    assert 400 <= response.status_code < 500
    assert reason in words(response.text.partition('role="alert"')[2])
    assert "Soup" in response.text


async def test_a_form_needs_the_token_of_the_session(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    message_id = await incoming.arrive("Soup")

    for path, form in (
        ("/mail", {"do": "trash", "id": message_id}),
        (f"/mail/{message_id}", {"do": "trash", "id": message_id}),
        ("/undo", {"undo_id": "pln_1"}),
        ("/compose", {"to": "a@example.com", "body_text": "x"}),
    ):
        assert 403 == (await owner.post(path, token="0" * 64, **form)).status_code
    assert ("Inbox",) == (await installation.message(message_id)).mailboxes


async def test_who_may_only_read_has_no_buttons_and_changes_nothing(
    installation: WebInstallation, incoming: IncomingMail, reader: WebUser
) -> None:
    message_id = await incoming.arrive("Soup")

    for path in ("/mail", f"/mail/{message_id}"):
        assert 'name="do"' not in await reader.read(path)
    refused = await reader.post("/mail", do="trash", id=message_id)

    assert 403 == refused.status_code
    assert ("Inbox",) == (await installation.message(message_id)).mailboxes


async def test_viewing_the_list_changes_nothing(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    message_id = await incoming.arrive("Soup")

    await owner.read(f"/mail/{message_id}?undo=pln_1&do=trash")

    assert () == (await installation.message(message_id)).flags


async def test_a_forged_undo_is_ignored(owner: WebUser) -> None:
    page = await owner.read('/mail?notice=archived&undo="><script>alert(1)</script>')

    assert "<script>" not in page
    assert "/undo" not in page
