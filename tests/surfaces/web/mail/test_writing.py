"""Writing mail: new, reply, forward; with files, as a draft, or for later."""

from __future__ import annotations

import re

import pytest

from postroom.calls.operation import call
from postroom.operations.attachments import get_attachment_content
from postroom.operations.drafts import get_draft
from tests.surfaces.web.conftest import Office, Person, words
from tests.surfaces.web.mail.conftest import Letters


async def send(
    person: Person,
    path: str = "/compose",
    *,
    files: tuple[tuple[str, bytes], ...] = (),
    **form: str,
) -> str:
    """Send the form, and return where it leads."""
    parts = [("files", (name, content, "text/plain")) for name, content in files]
    fields = {"csrf": await person.token(), **form}
    response = await person.http.post(path, data=fields, files=parts or [("files", ("", b""))])
    assert 303 == response.status_code, words(response.text)
    return response.headers["location"]


def id_in(location: str) -> str:
    return location.partition("?")[0].rpartition("/")[2]


async def test_a_mail_is_sent_with_its_files(office: Office, owner: Person) -> None:
    await office.new_inbox("other")
    files = (("a b.txt", b"first"), ("ü.csv", b"\x00second"))

    location = await send(
        owner, to="Other <other@postroom.localhost>\r\n", cc="", bcc="", subject="Hello",
        body_text="One.\r\nTwo.", files=files, **{"from": "me@postroom.localhost"},
    )  # fmt: skip

    message = await office.message(id_in(location))
    assert ("delivered", "Hello") == (message.status, message.subject)
    assert "One.\nTwo." == message.text.strip()
    assert ["a b.txt", "ü.csv"] == [file.filename for file in message.attachments]
    found = await call(office.owner, get_attachment_content,
                       {"attachment_id": message.attachments[1].id})  # fmt: skip
    assert "AHNlY29uZA==" == found.content
    assert "Sent." in words(await owner.read(location))


async def test_a_reply_goes_to_the_sender_and_stays_in_the_thread(
    office: Office, letters: Letters, owner: Person
) -> None:
    asked = await letters.arrive("Lunch?", "Where?", cc="cy@example.com")

    page = await owner.read(f"/compose?reply={asked}")
    assert "Ana Lee &lt;ana@example.com&gt;" in page
    assert "cy@example.com" not in page.partition('name="bcc"')[0]
    assert 'value="Re: Lunch?"' in page
    to_all = await owner.read(f"/compose?reply={asked}&all=yes")
    assert "cy@example.com" in to_all.partition('name="bcc"')[0]
    location = await send(
        owner,
        f"/compose?reply={asked}",
        to="ana@example.com",
        subject="Re: Lunch?",
        body_text="Here.",
    )

    message, original = await office.message(id_in(location)), await office.message(asked)
    assert original.thread_id == message.thread_id
    assert original.internet_message_id == message.in_reply_to


async def test_a_forward_takes_the_attachments_along(
    office: Office, letters: Letters, owner: Person
) -> None:
    original = await letters.arrive(
        "Menu", "See it.", attachments=[("m.txt", "text/plain", b"soup")]
    )

    page = words(await owner.read(f"/compose?forward={original}"))
    assert "Its attachments go with it: m.txt" in page
    location = await send(
        owner,
        f"/compose?forward={original}",
        to="a@example.com",
        body_text="FYI",
        files=(("more.txt", b"x"),),
    )

    message = await office.message(id_in(location))
    assert "Fwd: Menu" == message.subject
    assert {"m.txt", "more.txt"} == {file.filename for file in message.attachments}
    assert message.text.startswith("FYI")
    assert "See it." in message.text


@pytest.mark.parametrize("kind", ["new", "reply", "forward"])
async def test_a_mail_can_be_kept_as_a_draft_and_changed(
    office: Office, letters: Letters, owner: Person, kind: str
) -> None:
    original = await letters.arrive("Menu", "See it.")
    path = {"new": "/compose"}.get(kind, f"/compose?{kind}={original}")

    location = await send(
        owner, path, to="a@example.com", subject="S", body_text="Words", do="draft"
    )

    draft = await call(office.owner, get_draft, {"draft_id": id_in(location)})
    assert ("a@example.com",) == draft.to
    assert "Words" in (draft.body_text or "")
    assert "Saved as a draft." in words(await owner.read(location))
    saved = await owner.post(
        f"/drafts/{draft.id}", to="b@example.com", subject="T", body_text="New", do="draft"
    )
    assert f"/drafts/{draft.id}?said=saved" == saved.headers["location"]
    changed = await call(office.owner, get_draft, {"draft_id": draft.id})
    assert (("b@example.com",), "T", "New") == (changed.to, changed.subject, changed.body_text)


async def test_a_mail_for_later_waits_for_its_time(office: Office, owner: Person) -> None:
    location = await send(owner, to="a@example.com", subject="S", body_text="x",
                          send_at="2027-01-31T09:30")  # fmt: skip

    message = await office.message(id_in(location))
    assert "scheduled" == message.status
    assert "2027-01-31T09:30:00+00:00" == (message.send_at and message.send_at.isoformat())
    assert location.startswith("/outgoing/")
    assert "It leaves at its time." in words(await owner.read(location))


async def test_what_is_held_says_so_and_leads_to_the_decision(office: Office) -> None:
    async with office.visitor() as person:
        key = await office.key("read", "write", "send", approval="always")
        await person.sign_in(key=key)

        location = await send(person, to="a@example.com", subject="S", body_text="x")

        assert location.startswith("/outgoing/")
        assert "Held: it leaves when it is approved." in words(await person.read(location))
        page = await person.read(f"/mail/{id_in(location)}")
        assert f'href="/outgoing/{id_in(location)}"' in page
    assert "held" == (await office.message(id_in(location))).status


async def test_what_was_typed_stays_when_a_mail_is_refused(owner: Person) -> None:
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


async def test_too_many_or_too_large_files_are_refused(owner: Person) -> None:
    fields = {"csrf": await owner.token(), "to": "a@example.com", "subject": "S", "body_text": "W"}

    many = [("files", (f"{number}.txt", b"x", "text/plain")) for number in range(21)]
    refused = await owner.http.post("/compose", data=fields, files=many)
    assert (422, True) == (refused.status_code, "at most 20 files" in refused.text)
    large = [("files", ("l.bin", b"x" * 41 * 1024 * 1024, "application/x"))]
    assert 413 == (await owner.http.post("/compose", data=fields, files=large)).status_code


@pytest.mark.parametrize("body", [b"", b"--b", b"--b\r\n\r\n", b"\xff" * 100, b"--b\r\n" * 600])
async def test_a_broken_form_is_refused(owner: Person, body: bytes) -> None:
    response = await owner.http.post(
        "/compose", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
    )

    assert 400 <= response.status_code < 500


async def test_who_may_not_send_gets_no_button(
    letters: Letters, office: Office, reader: Person
) -> None:
    message_id = await letters.arrive("Soup")

    for path in ("/mail", f"/mail/{message_id}"):
        assert "/compose" not in re.sub(r"aria-\w+", "", await reader.read(path))
    refused = await reader.post("/compose", to="a@example.com", subject="S", body_text="x")
    assert 403 == refused.status_code
