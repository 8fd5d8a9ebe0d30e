"""Writing mail: new, reply, forward; with files, as a draft, or for later."""

from __future__ import annotations

import asyncio
import re

import pytest

from postroom.calls.operation import call
from postroom.operations.mail.attachments import get_attachment_content
from postroom.operations.mail.messages import search_messages
from postroom.operations.outgoing.drafts import get_draft, list_drafts
from tests.surfaces.web.conftest import WebInstallation, WebUser, words
from tests.surfaces.web.forms import Editor, write
from tests.surfaces.web.mail.conftest import IncomingMail


def id_in(location: str) -> str:
    return location.partition("?")[0].rpartition("/")[2]


async def test_a_mail_is_sent_with_its_files(installation: WebInstallation, owner: WebUser) -> None:
    await installation.new_inbox("other")
    files = (("a b.txt", b"first"), ("ü.csv", b"\x00second"))

    location = await write(
        owner, to="Other <other@postroom.localhost>\r\n", cc="", bcc="", subject="Hello",
        body_text="One.\r\nTwo.", files=files, **{"from": "me@postroom.localhost"},
    )  # fmt: skip

    message = await installation.message(id_in(location))
    assert ("delivered", "Hello") == (message.status, message.subject)
    assert "One.\nTwo." == message.text.strip()
    assert ["a b.txt", "ü.csv"] == [file.filename for file in message.attachments]
    found = await call(installation.owner, get_attachment_content,
                       {"attachment_id": message.attachments[1].id})  # fmt: skip
    assert "AHNlY29uZA==" == found.content
    assert "Sent." in words(await owner.read(location))


async def test_a_reply_goes_to_the_sender_and_stays_in_the_thread(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    asked = await incoming.arrive("Lunch?", "Where?", cc="cy@example.com")

    page = await owner.read(f"/compose?reply={asked}")
    assert "Ana Lee &lt;ana@example.com&gt;" in page
    assert "cy@example.com" not in page.partition('name="bcc"')[0]
    assert 'value="Re: Lunch?"' in page
    to_all = await owner.read(f"/compose?reply={asked}&all=yes")
    assert "cy@example.com" in to_all.partition('name="bcc"')[0]
    location = await write(
        owner,
        f"/compose?reply={asked}",
        to="ana@example.com",
        subject="Re: Lunch?",
        body_text="Here.",
    )

    message, original = (
        await installation.message(id_in(location)),
        await installation.message(asked),
    )
    assert original.thread_id == message.thread_id
    assert original.internet_message_id == message.in_reply_to


async def test_a_forward_takes_the_attachments_along(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    original = await incoming.arrive(
        "Menu", "See it.", attachments=[("m.txt", "text/plain", b"soup")]
    )

    page = words(await owner.read(f"/compose?forward={original}"))
    assert "m.txt 4 bytes" in page
    location = await write(
        owner,
        f"/compose?forward={original}",
        to="a@example.com",
        body_text="FYI\n\n"
        + Editor(await owner.read(f"/compose?forward={original}")).fields["body_text"],
        files=(("more.txt", b"x"),),
    )

    message = await installation.message(id_in(location))
    assert "Fwd: Menu" == message.subject
    assert {"m.txt", "more.txt"} == {file.filename for file in message.attachments}
    assert message.text.startswith("FYI")
    assert "See it." in message.text


@pytest.mark.parametrize("kind", ["new", "reply", "forward"])
async def test_a_mail_can_be_kept_as_a_draft_and_changed(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser, kind: str
) -> None:
    original = await incoming.arrive("Menu", "See it.")
    path = {"new": "/compose"}.get(kind, f"/compose?{kind}={original}")

    location = await write(
        owner, path, to="a@example.com", subject="S", body_text="Words", do="draft"
    )

    draft = await call(installation.owner, get_draft, {"draft_id": id_in(location)})
    assert ("a@example.com",) == draft.to
    assert "Words" in (draft.body_text or "")
    assert "Draft saved." in words(await owner.read(location))
    saved = await owner.post(
        f"/drafts/{draft.id}", to="b@example.com", subject="T", body_text="New", do="draft"
    )
    assert f"/drafts/{draft.id}?notice=saved" == saved.headers["location"]
    changed = await call(installation.owner, get_draft, {"draft_id": draft.id})
    assert (("b@example.com",), "T", "New") == (changed.to, changed.subject, changed.body_text)


async def test_a_scheduled_mail_waits_for_its_time(
    installation: WebInstallation, owner: WebUser
) -> None:
    location = await write(owner, to="a@example.com", subject="S", body_text="x",
                          send_at="2027-01-31T09:30")  # fmt: skip

    message = await installation.message(id_in(location))
    assert "scheduled" == message.status
    assert "2027-01-31T09:30:00+00:00" == (message.send_at and message.send_at.isoformat())
    assert location.startswith("/outgoing/")
    assert "Scheduled." in words(await owner.read(location))


async def test_a_held_mail_says_so_and_links_to_its_approval(
    installation: WebInstallation,
) -> None:
    async with installation.new_user() as person:
        key = await installation.key("read", "write", "send", approval="always")
        await person.sign_in(key=key)

        location = await write(person, to="a@example.com", subject="S", body_text="x")

        assert location.startswith("/outgoing/")
        assert "Held for approval." in words(await person.read(location))
        page = await person.read(f"/mail/{id_in(location)}")
        assert f'href="/outgoing/{id_in(location)}"' in page
    assert "held" == (await installation.message(id_in(location))).status


async def test_the_input_is_kept_when_a_mail_is_refused(owner: WebUser) -> None:
    response = await owner.http.post(
        "/compose",
        data={
            "csrf": await owner.token(),
            "to": "no address",
            "subject": "A & B",
            "body_text": "W",
        },
        files=[("files", ("lost.txt", b"x", "text/plain"))],
    )

    assert 422 == response.status_code
    assert 'value="A &amp; B"' in response.text
    assert "no address" in response.text
    assert "Choose the files again: lost.txt" in words(response.text)


async def test_too_many_or_too_large_files_are_refused(owner: WebUser) -> None:
    fields = {"csrf": await owner.token(), "to": "a@example.com", "subject": "S", "body_text": "W"}

    many = [("files", (f"{number}.txt", b"x", "text/plain")) for number in range(21)]
    refused = await owner.http.post("/compose", data=fields, files=many)
    assert (422, True) == (refused.status_code, "at most 20 files" in refused.text)
    large = [("files", ("l.bin", b"x" * 41 * 1024 * 1024, "application/x"))]
    assert 413 == (await owner.http.post("/compose", data=fields, files=large)).status_code


@pytest.mark.parametrize("body", [b"", b"--b", b"--b\r\n\r\n", b"\xff" * 100, b"--b\r\n" * 600])
async def test_a_broken_form_is_refused(owner: WebUser, body: bytes) -> None:
    response = await owner.http.post(
        "/compose", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
    )

    assert 400 <= response.status_code < 500


async def test_a_user_without_send_gets_no_button(
    incoming: IncomingMail, installation: WebInstallation, reader: WebUser
) -> None:
    message_id = await incoming.arrive("Soup")

    for path in ("/mail", f"/mail/{message_id}"):
        assert "/compose" not in re.sub(r"aria-\w+", "", await reader.read(path))
    refused = await reader.post("/compose", to="a@example.com", subject="S", body_text="x")
    assert 403 == refused.status_code


async def test_the_same_form_sent_twice_at_once_is_one_mail(
    installation: WebInstallation, owner: WebUser
) -> None:
    await installation.new_inbox("other")
    editor = Editor(await owner.read("/compose"))
    form = {**editor.fields, "to": "other@postroom.localhost", "subject": "Once", "body_text": "x"}

    answers = await asyncio.gather(
        *(owner.http.post(editor.action, data={**form, "do": "send"}) for _ in range(3))
    )
    late = await owner.http.post(editor.action, data={**form, "do": "send"})

    assert {303, 409} >= {answer.status_code for answer in answers}
    assert 303 == late.status_code
    sent = await call(installation.owner, search_messages, {"mailbox": "Sent", "q": "Once"})
    assert [id_in(late.headers["location"])] == [row.id for row in sent.results]
    assert 0 == (await call(installation.owner, list_drafts, {})).total


async def test_files_of_a_draft_stay_across_changes(
    installation: WebInstallation, owner: WebUser
) -> None:
    files = (("a.txt", b"first"), ("b.txt", b"second"))
    location = await write(owner, subject="S", body_text="x", do="draft", files=files)
    path = location.partition("?")[0]

    await write(owner, path, subject="T", do="draft", files=(("a.txt", b"first"),))
    await write(owner, path, remove="0")
    page = await write(owner, path, remove="5", status=409)
    assert "files of this draft were changed" in words(page)

    draft = await call(installation.owner, get_draft, {"draft_id": id_in(path)})
    assert ("T", [("b.txt", 6)]) == (
        draft.subject,
        [(f.filename, f.size) for f in draft.attachments],
    )


async def test_everything_that_is_written_can_be_changed_in_a_draft(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    await installation.new_inbox("second")
    asked = await incoming.arrive("Lunch?", "Where?")
    location = await write(owner, f"/compose?reply={asked}&quote=yes", do="draft")
    path = location.partition("?")[0]
    draft = await call(installation.owner, get_draft, {"draft_id": id_in(path)})
    assert (asked, "me@postroom.localhost") == (draft.in_reply_to, draft.from_)
    assert "Ana Lee wrote:\n> Where?" in (draft.body_text or "")

    editor = Editor(await owner.read(path))
    changed = {
        **editor.fields,
        "from": "second@postroom.localhost",
        "to": "x@example.com, Bo <bo@example.com>\nhalf a",
        "cc": "cy@example.com",
        "bcc": "di@example.com",
        "send_at": "2026-07-01T10:00",
        "do": "draft",
    }
    del changed["answers"]
    assert 303 == (await owner.http.post(path, data=changed)).status_code

    draft = await call(installation.owner, get_draft, {"draft_id": id_in(path)})
    assert ("x@example.com", "Bo <bo@example.com>", "half a") == draft.to
    assert (("cy@example.com",), ("di@example.com",)) == (draft.cc, draft.bcc)
    assert (None, "second@postroom.localhost") == (draft.in_reply_to, draft.from_)
    assert "2026-07-01T10:00" in await owner.read(path)
    refused = await write(owner, path, status=422)
    assert "half a" in refused


@pytest.mark.parametrize("typed", [
    {"send_at": "yesterday"}, {"send_at": "2020-01-01T00:00"}, {"subject": "x" * 999},
    {"from": "mallory@evil.example"}, {"answers": "msg_no"}, {"to": "x" * 20_001},
    {"attach-att_no": "a"}, {"remove": "-1"}, {"remove": "x"},
])  # fmt: skip
async def test_what_cannot_be_saved_or_sent_is_refused_and_stays_on_the_page(
    owner: WebUser, typed: dict[str, str]
) -> None:
    editor = Editor(await owner.read("/compose"))
    mail = {**editor.fields, "to": "a@example.com", "body_text": "My words.", **typed}

    answer = await owner.http.post(editor.action, data=mail)

    assert answer.status_code in (404, 409, 422)
    assert "My words." in answer.text
    assert 'role="alert"' in answer.text


async def test_a_draft_of_another_inbox_is_not_there_for_a_limited_key(
    installation: WebInstallation, owner: WebUser
) -> None:
    location = await write(owner, subject="Mine", body_text="secret", do="draft")
    path, inbox = location.partition("?")[0], await installation.new_inbox("other")
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "write", "send", inboxes=[inbox]))
        answers = [
            await person.get(path),
            await person.get(f"/compose?draft={id_in(path)}"),
            await person.post(path, to="a@example.com", subject="S", body_text="x", do="draft"),
            await person.post(path, to="a@example.com", subject="S", body_text="x"),
            await person.post(path, do="discard"),
        ]

    assert [404, 200, 404, 404, 404] == [answer.status_code for answer in answers]
    assert not [answer for answer in answers if "secret" in answer.text]
    assert "secret" in await owner.read(path)


async def test_only_known_contacts_are_suggested(
    installation: WebInstallation, incoming: IncomingMail, owner: WebUser
) -> None:
    await incoming.arrive("Once", sender="annie@evil.example", message_id="<e@x>")
    for number in range(3):
        await incoming.arrive(f"Soup {number}", message_id=f"<{number}@x>")
    other = await installation.new_inbox("other")

    assert ["ana@example.com"] == _offered(await owner.read("/compose/people?q=AN"))
    assert [] == _offered(await owner.read("/compose/people?q=%25"))
    assert [] == _offered(await owner.read("/compose/people?q="))
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", inboxes=[other]))
        assert [] == _offered(await person.read("/compose/people?q=an"))


def _offered(page: str) -> list[str]:
    return re.findall(r"<li>(.*?)</li>", page)


async def test_a_user_with_send_but_not_write_sends_without_a_draft(
    installation: WebInstallation,
) -> None:
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "send", approval="never"))
        editor = Editor(await person.read("/compose"))
        mail = {**editor.fields, "to": "a@example.com", "subject": "S", "body_text": "x"}
        places = [(await person.http.post(editor.action, data=mail)).headers["location"]
                  for _ in range(2)]  # fmt: skip

    assert 1 == len(set(places))
    assert "queued" == (await installation.message(id_in(places[0]))).status
