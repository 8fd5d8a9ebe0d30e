"""Transmitted mail has the requested recipients, headers and files, and no others.

`SENT_MAILS=10000` tries more mails than a normal run. They are sent by the wheel that users
install, not by this tree.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import SMTP
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.postroom import Running, running
from tests.servers.relay import Mail, Relay, relaying
from tests.servers.wheel import unpacked

SLY = st.sampled_from(
    [
        "\r\nBcc: eve@evil.example",
        "\n",
        "\r",
        "\0",
        "\u2028",
        "=?utf-8?q?=0ABcc:_e@x.example?=",
        ">",
    ]
)
PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=60)
"""Ordinary text; a word that looks like an encoded word is plain text as well."""
TEXT = st.one_of(
    PLAIN, PLAIN, PLAIN, st.lists(st.one_of(PLAIN, SLY), min_size=1, max_size=4).map("".join)
)
LOCAL = st.from_regex(r"[a-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}", fullmatch=True)
ADDRESS = LOCAL.map(lambda name: f"{name}@example.com")
PEOPLE = st.lists(ADDRESS, max_size=4, unique=True)
FILES = st.lists(st.tuples(TEXT, st.binary(max_size=200)), max_size=3)
UNLIMITED = {
    "POSTROOM_LIMIT_SENDS_PER_HOUR": "100000",
    "POSTROOM_LIMIT_DOMAIN_SENDS_PER_HOUR": "100000",
}
SEARCHING = settings(
    max_examples=int(os.environ.get("SENT_MAILS", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("wheel"))


@dataclass
class WheelInstallation:
    """An installation of the wheel, and its relay."""

    rest: httpx2.AsyncClient
    relay: Relay


@pytest.fixture
async def installation(tmp_path: Path, wheel: Path) -> AsyncIterator[WheelInstallation]:
    """A server process that runs the wheel; no file of this tree is imported."""
    async with relaying() as relay:
        values = {"PYTHONPATH": str(wheel), "POSTROOM_RELAY_URL": relay.url, **UNLIMITED}
        with running(tmp_path / "data", **values) as services:
            assert is_from(wheel, services)
            login = {"Authorization": f"Bearer {services.key}"}
            async with httpx2.AsyncClient(base_url=services.url, headers=login, timeout=60) as rest:
                await rest.post("/v1/inboxes", json={"username": "me"})
                yield WheelInstallation(rest, relay)


def is_from(wheel: Path, services: Running) -> bool:
    """Whether the code of an installation is in the wheel."""
    words = [sys.executable, "-c", "import postroom; print(postroom.__file__)"]
    found = subprocess.run(words, env=services.env, capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()).is_relative_to(wheel)


async def transmitted(
    installation: WheelInstallation, outgoing_mail: dict[str, Any]
) -> Mail | None:
    """The mail that the relay received; None if the request was refused."""
    installation.relay.mails.clear()
    installation.relay.lines.clear()
    asked = {**outgoing_mail, "allow_duplicate": True, "wait_s": 30}
    response = await installation.rest.post("/v1/messages", json=asked)
    if response.status_code == 422:
        assert [] == installation.relay.mails
        return None
    assert (201, "sent") == (response.status_code, response.json()["status"])
    (mail,) = installation.relay.mails
    return mail


def people_of(mail: Mail, header: str) -> set[str]:
    parsed = message_from_bytes(mail.data, policy=SMTP)
    found = parsed[header]
    return {address.addr_spec for address in found.addresses} if found else set()


@SEARCHING
@given(to=PEOPLE.filter(bool), cc=PEOPLE, bcc=PEOPLE, subject=TEXT, text=TEXT, files=FILES)
async def test_the_envelope_headers_and_files_are_the_requested_ones(
    installation: WheelInstallation,
    to: list[str],
    cc: list[str],
    bcc: list[str],
    subject: str,
    text: str,
    files: list[tuple[str, bytes]],
) -> None:
    attachments = [
        {
            "filename": name,
            "content_type": "application/octet-stream",
            "content": base64.b64encode(content).decode(),
        }
        for name, content in files
    ]
    outgoing_mail = {"to": to, "cc": cc, "bcc": bcc, "subject": subject, "body_text": text}
    mail = await transmitted(installation, {**outgoing_mail, "attachments": attachments})
    if mail is None:
        return

    names = [line.split(b":")[0] for line in mail.data.split(b"\r\n\r\n")[0].split(b"\r\n")]
    parsed = message_from_bytes(mail.data, policy=SMTP)
    parts = [part for part in parsed.walk() if part.get_content_disposition() == "attachment"]
    assert {*to, *cc, *bcc} == set(mail.recipients)
    assert (set(to), set(cc)) == (people_of(mail, "To"), people_of(mail, "Cc"))
    assert not {b"Bcc", b"bcc"} & set(names)
    assert [digest(content) for _, content in files] == [
        digest(part.get_payload(decode=True)) for part in parts
    ]
    assert b"\r" not in mail.data.replace(b"\r\n", b"")
    assert b"\n" not in mail.data.replace(b"\r\n", b"")


def digest(content: object) -> str:
    assert isinstance(content, bytes)
    return hashlib.sha256(content).hexdigest()


@SEARCHING
@given(
    address=st.one_of(
        ADDRESS, st.tuples(PLAIN, SLY, PLAIN).map("".join), st.tuples(ADDRESS, SLY).map("".join)
    )
)
async def test_an_address_makes_one_command_to_the_relay_or_none(
    installation: WheelInstallation, address: str
) -> None:
    outgoing_mail = {"to": [address], "subject": "x", "body_text": "x"}
    mail = await transmitted(installation, outgoing_mail)

    verbs = [line.split()[0].upper() for line in installation.relay.lines]
    expected = ["MAIL", "RCPT", "DATA"] if mail else []
    assert expected == [verb for verb in verbs if verb not in ("EHLO", "QUIT", "RSET")]
    assert mail is None or len(mail.recipients) == 1
