"""The list of mail: mailboxes, filters, pages, and its visibility for each key."""

from __future__ import annotations

import re

import pytest

from tests.surfaces.web.conftest import WebInstallation, WebUser, words
from tests.surfaces.web.mail.conftest import IncomingMail

_LINK = re.compile(r'href="(/mail/msg_[^"]+)"')


async def test_the_list_shows_sender_subject_and_date(
    incoming: IncomingMail, owner: WebUser
) -> None:
    message_id = await incoming.arrive(
        "Lunch?", "Where do we meet?", attachments=[("menu.txt", "text/plain", b"soup")]
    )

    page = await owner.read("/mail")

    said = words(page)
    for part in ("Ana Lee", "Lunch?", "Where do we meet?", "Unread:", "attachment", "1 message ("):
        assert part in said
    assert f'href="/mail/{message_id}"' in page
    assert "me@postroom.localhost" in said
    assert re.search(r"Inbox 1 unread", said)


async def test_without_mail_the_page_says_so(owner: WebUser) -> None:
    assert "No messages here." in words(await owner.read("/mail"))


async def test_older_mail_follows_page_by_page(incoming: IncomingMail, owner: WebUser) -> None:
    made = {await incoming.arrive(f"Mail {number}") for number in range(53)}

    first = await owner.read("/mail?inbox=me%40postroom.localhost")
    (older,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = await owner.read(older.replace("&amp;", "&"))

    seen = [
        {m.rpartition("/")[2].partition("?")[0] for m in _LINK.findall(p)} for p in (first, second)
    ]
    assert (50, 3) == tuple(map(len, seen))
    assert made == seen[0] | seen[1]
    assert "53 messages" in words(second)
    opened = await owner.read(_LINK.findall(second)[-1].replace("&amp;", "&"))
    assert seen[1] == {
        m.rpartition("/")[2].partition("?")[0]
        for m in _LINK.findall(
            opened.partition('<ul class="mails" id="mails">')[2].partition("</ul>")[0]
        )
    }
    assert "rel=next" not in second.replace('"', "")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=soup", {"Soup"}),
        ("q=soup%20today&mode=words", {"Soup"}),
        ("from=bo%40example.com", {"Cake"}),
        ("subject=cake", {"Cake"}),
        ("label=Food", {"Soup"}),
        ("unread=true", {"Cake", "Plain"}),
        ("unread=false", {"Soup"}),
        ("flags=flagged", {"Plain"}),
        ("has_attachment=true", {"Cake"}),
        ("mailbox=Archive", set()),
        ("mailbox=%2A", {"Soup", "Cake", "Plain"}),
        ("after_date=2026-03-01&before_date=2026-03-02", {"Soup", "Cake", "Plain"}),
        ("after_date=2026-03-02", set()),
    ],
)  # fmt: skip
async def test_filters_are_those_of_the_search(
    incoming: IncomingMail, owner: WebUser, query: str, found: set[str]
) -> None:
    soup = await incoming.arrive("Soup", "The soup of today.")
    await incoming.arrive("Cake", "No cake.", sender="bo@example.com",
                         attachments=[("a.txt", "text/plain", b"x")])  # fmt: skip
    plain = await incoming.arrive("Plain", "Nothing.")
    await owner.post("/mail", do="label", label="Food", id=soup)
    await owner.post("/mail", do="read", id=soup)
    await owner.post("/mail", do="flag", id=plain)

    page = await owner.read(f"/mail?{query}")

    rows = page.partition('<ul class="mails" id="mails">')[2]
    assert found == {name for name in ("Soup", "Cake", "Plain") if f">{name}<" in rows}
    for part in query.split("&"):
        name = part.partition("=")[0]
        assert re.search(rf'class="chip" href="[^"]*">{name}: ', page)


async def test_a_filter_chip_removes_its_filter(incoming: IncomingMail, owner: WebUser) -> None:
    await incoming.arrive("Soup")

    page = await owner.read("/mail?q=nothing&unread=true")

    assert "No messages match these filters." in words(page)
    links = re.findall(r'class="chip" href="([^"]*)"', page)
    assert ["/mail?unread=true", "/mail?q=nothing"] == links


async def test_a_search_that_finds_nothing_says_what_to_try(
    incoming: IncomingMail, owner: WebUser
) -> None:
    await incoming.arrive("Soup")

    assert "mode=words" in words(await owner.read("/mail?q=no+such+words"))


@pytest.mark.parametrize(
    "query", ["unread=perhaps", "after_date=soon", "mode=magic", "inbox=thr_x"]
)
async def test_a_wrong_filter_is_explained_above_the_list(owner: WebUser, query: str) -> None:
    page = await owner.read(f"/mail?{query}")

    assert 'role="alert"' in page
    assert query.partition("=")[0] in words(page.partition('role="alert"')[2])


async def test_a_key_of_one_inbox_sees_nothing_of_others(
    installation: WebInstallation, incoming: IncomingMail
) -> None:
    other = await installation.new_inbox("other")
    secret = await incoming.arrive("Secret plan", "hidden words", username="me")
    own = await incoming.arrive("Own mail", username="other")
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "write", inboxes=[other]))

        for path in ("/mail", "/mail?mailbox=%2A", "/mail?q=hidden", "/mail?q=plan",
                     f"/mail/{own}", f"/mail/{own}?tab=agent"):  # fmt: skip
            page = words(await person.read(path))
            assert "Secret" not in page
            assert "me@postroom.localhost" not in page
        for path in (f"/mail/{secret}", f"/mail/{secret}/html", f"/mail/{secret}/source",
                     f"/compose?reply={secret}", f"/compose?forward={secret}"):  # fmt: skip
            response = await person.get(path)
            assert 404 == response.status_code
            assert "Secret" not in response.text
        refused = await person.post("/mail", do="trash", id=secret)
        assert 409 == refused.status_code
    assert ("Inbox",) == (await installation.message(secret)).mailboxes


async def test_a_key_that_only_approves_sees_no_mail(
    installation: WebInstallation, incoming: IncomingMail
) -> None:
    message_id = await incoming.arrive("Secret plan")
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("approve"))

        for path in ("/mail", f"/mail/{message_id}", f"/mail/{message_id}/html",
                     f"/mail/{message_id}/source", "/compose"):  # fmt: skip
            response = await person.get(path)
            assert 403 == response.status_code
            assert "Secret" not in response.text
        assert 'href="/mail"' not in await person.read("/")


async def test_mail_is_visible_only_after_signing_in(
    incoming: IncomingMail, anonymous: WebUser
) -> None:
    message_id = await incoming.arrive("Secret plan")

    for path in ("/mail", f"/mail/{message_id}", f"/mail/{message_id}/html",
                 f"/mail/{message_id}/source", "/compose"):  # fmt: skip
        response = await anonymous.get(path)
        assert 303 == response.status_code
        assert response.headers["location"].startswith("/signin")


async def test_labels_have_unread_counts_and_many_are_collapsed(
    incoming: IncomingMail, owner: WebUser
) -> None:
    first = await incoming.arrive("Soup")
    for number in range(30):
        await owner.post("/mail", do="label", label=f"Label {number:03}", id=first)
    second = await incoming.arrive("Cake")
    await owner.post("/mail", do="label", label="Label 007", id=second)
    await owner.post("/mail", do="read", id=first)

    page = await owner.read("/mail?label=Label%20020")

    places = words(page.partition('id="places"')[2].partition("</nav>")[0])
    assert re.search(r"Label 006 Label 007 1 unread Label 008", places)
    assert "All 30 labels" in places
    assert '<details class="all" id="all-labels" open>' in page
    assert "Label 029" in places
    listed = words(await owner.read("/labels"))
    assert "Label 007 2 mails, 1 unread Label 008 1 mail Label 009" in listed


async def test_many_inboxes_are_collapsed_and_listed_page_by_page(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    ids = [await installation.new_inbox(f"agent{number:03}") for number in range(104)]
    await incoming.arrive("Soup", username="agent103")

    page = await owner.read("/mail")

    said = words(page)
    assert "All inboxes 1 unread" in said
    assert "All 105 inboxes" in said
    assert 'href="/inboxes"' in page
    first = await owner.read("/inboxes")
    (more,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = words(await owner.read(more.replace("&amp;", "&")))
    assert "agent103@postroom.localhost" in second
    chosen = words(await owner.read(f"/mail?inbox={ids[0]}"))
    assert "agent000@postroom.localhost Inbox Sent" in chosen


async def test_an_invalid_cursor_of_the_inbox_list_is_explained(owner: WebUser) -> None:
    for path in ("/inboxes", "/labels"):
        response = await owner.get(f"{path}?cursor=nonsense")
        assert 422 == response.status_code
        assert "cursor" in words(response.text)
