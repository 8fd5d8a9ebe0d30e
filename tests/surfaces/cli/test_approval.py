"""A user at a terminal decides about held mail; a program on a pipe cannot."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.mails import mail
from tests.servers.relay import relaying
from tests.surfaces.cli.conftest import Postroom
from tests.surfaces.cli.pseudo_terminal import on_a_terminal

QUESTIONS = {"approve": "Send this mail?", "reject": "Reject this mail?"}


@pytest.fixture
def held(postroom: Postroom, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a held mail."""
    monkeypatch.setenv("POSTROOM_RELAY_URL", "smtp://127.0.0.1:9")
    postroom("inbox", "create", "me@postroom.localhost")
    done = postroom("policy", "set", "me@postroom.localhost", "--approval", "always")
    assert 0 == done.code, done.err
    words = ["--to", "ana@example.com", "--subject", "Offer", "--text", "Ten per cent."]
    sent = postroom("-o", "json", "send", *words).json
    assert "held" == sent["status"]
    return str(sent["message_id"])


@pytest.mark.parametrize("verdict", QUESTIONS)
def test_a_program_cannot_decide(postroom: Postroom, held: str, verdict: str) -> None:
    done = postroom("outbox", verdict, held)

    assert ("terminal" in done.err, "held") == (
        True,
        postroom("-o", "json", "message", "show", held).json["status"],
    )


@pytest.mark.parametrize(
    ("verdict", "typed", "expected", "left"),
    [
        ("approve", b"y\n", "sent", 1),
        ("approve", b"\n", "held", 0),
        ("reject", b"y\n", "rejected", 0),
    ],
)
async def test_a_person_sees_the_mail_and_decides(
    data: Path, postroom: Postroom, held: str, verdict: str, typed: bytes, expected: str, left: int
) -> None:
    async with relaying() as relay:
        seen = await asyncio.to_thread(
            on_a_terminal,
            data,
            "outbox",
            verdict,
            held.removeprefix("msg_")[:7],
            types={QUESTIONS[verdict]: typed},
            POSTROOM_RELAY_URL=relay.url,
        )

    shown = await asyncio.to_thread(postroom, "-o", "json", "message", "show", held)
    assert (expected, left) == (json.loads(shown.out)["status"], len(relay.mails))
    assert seen.index("ana@example.com") < seen.index("Ten per cent.")
    assert "every mail" in seen


@pytest.mark.parametrize("columns", [80, 100])
def test_a_person_sees_all_of_the_mail(
    data: Path, postroom: Postroom, held: str, columns: int
) -> None:
    hidden = "<p>Hello.</p><p style='display:none'>The code is 4711.</p>"
    words = ["--to", "ana@example.com", "--cc", "bo@example.com", "--bcc", "cy@example.com"]
    more = ["--reply-to", "dee@example.com", "--header", "X-Data: more", "--html", hidden]
    sent = postroom("-o", "json", "send", "--subject", "Hi", *words, *more).json

    seen = on_a_terminal(data, "outbox", "show", sent["message_id"], columns=columns)

    lines = [" ".join(line.split()) for line in seen.splitlines()]
    for line in ("to: ana@example.com", "cc: bo@example.com", "bcc: cy@example.com",
                 "reply to: dee@example.com", "headers: X-Data: more"):  # fmt: skip
        assert line in lines
    assert "text that its reader would not see" in seen
    assert "The code is 4711." in " ".join(lines)


def test_mail_that_is_not_held_is_an_error_with_the_list_command(
    postroom: Postroom, held: str
) -> None:
    done = postroom("outbox", "show", "msg_000000000000")

    assert "no held mail msg_000000000000; `postroom outbox list` shows mail that waits" in done.err


def test_a_policy_names_its_recipients(postroom: Postroom, held: str) -> None:
    inbox = "me@postroom.localhost"

    free = postroom("policy", "show", inbox).out.split()
    listed = postroom("policy", "set", inbox, "--senders", "block=@spam.example")

    assert ["approval", "always", "recipients", "all", "senders", "all"] == free
    assert "senders     block @spam.example; action junk" in listed.out


def test_keys_are_listed_with_their_approval(data: Path, postroom: Postroom, held: str) -> None:
    postroom("key", "create", "desk", "--scope", "read", "--scope", "send")

    table = on_a_terminal(data, "key", "list", columns=80)

    assert "approval" in table
    assert "risky" in table


def test_doctor_says_how_much_mail_is_held(postroom: Postroom, held: str) -> None:
    assert "1 held until a person decides" in postroom("doctor").out


def test_a_mail_can_be_checked_without_sending_it(
    postroom: Postroom, held: str, tmp_path: Path
) -> None:
    path = tmp_path / "mail.eml"
    path.write_bytes(mail("Hi", sender="me@postroom.localhost", to="ana@example.com"))

    told = postroom("-o", "json", "policy", "test", path).json

    assert ("held", 1) == (told["verdict"], len(told["reasons"]))
