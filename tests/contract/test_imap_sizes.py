"""Answers of live tools fit a model's context, whatever the mailbox contains."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.live_imap import Agent, id_of
from tests.mails import mail
from tests.servers.imaplib_client import ImaplibMailbox

MOST, MAX_BY_DEFAULT = 100_000, 40_000
EVERYTHING = {
    "body_max_chars": 20_000,
    "include_html": True,
    "include_all_headers": True,
}


def raw(headers: str, body: str = "Hello.", kind: str = "text/plain") -> bytes:
    """A mail written by hand, since no library would write it."""
    lines = f"Content-Type: {kind}; charset=utf-8\nContent-Transfer-Encoding: 8bit\n{headers}"
    return f"{lines}\n\n{body}".encode()


def people(name: str) -> str:
    return f"{name}: " + ",\n ".join(
        f'"\\"{n}\\" {"x" * 100}" <p{n}@{"z" * 50}.example>' for n in range(500)
    )


def files(count: int) -> str:
    return "".join(
        f"--b\nContent-Type: application/{'t' * 60}\n"
        f'Content-Disposition: attachment; filename="{n}{"é" * 200}"\n\nx\n'
        for n in range(count)
    )


HOSTILE = {
    "500 recipients": raw(f"Subject: x\n{people('To')}\n{people('Cc')}"),
    "200 attachments": raw("Subject: x", files(200) + "--b--\n", "multipart/mixed; boundary=b"),
    "a subject of 60 KB": raw(f"Subject: {'long words ' * 5_500}"),
    "5,000 references": raw("References: " + "\n ".join(f"<{n}@r.example>" for n in range(5_000))),
    "many headers": raw("\n".join(f"X-{n}: {'v' * 200}" for n in range(900))),
    "text that doubles when written": raw("Subject: x", '"\\' * 50_000),
    "control characters": raw("Subject: \x01\x02" * 100, "\x01" * 50_000),
    "long HTML": raw("Subject: x", "<p>&quot;word&quot;</p>" * 9_000, "text/html"),
}


def size(body: dict[str, Any]) -> int:
    return len(json.dumps(body, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_message_is_too_long(agent: Agent, box: ImaplibMailbox, name: str) -> None:
    uid = box.append(HOSTILE[name])

    body = await agent.call("imap_get_message", message_id=id_of(box, uid), **EVERYTHING)

    assert size(body) <= MOST
    assert "ok" == body["data"]["status"] or "truncated" in str(body["data"]["issues"])


async def test_no_page_is_too_long(agent: Agent, box: ImaplibMailbox) -> None:
    for content in (*HOSTILE.values(), *HOSTILE.values()):
        box.append(content)
    options = {"limit": 50, "include_snippet": True, "snippet_max_chars": 500}

    body = await agent.call("imap_search_messages", mailbox=box.name, **options)

    assert size(body) <= MOST
    assert 2 * len(HOSTILE) == body["data"]["total"]


async def test_ordinary_mail_fits_in_much_less(agent: Agent, box: ImaplibMailbox) -> None:
    sender = "Ana Maria Lee-Example <ana.maria.lee@department.example.com>"
    for number in range(50):
        subject = f"Re: Quarterly figures for the north-western region, part {number}"
        uid = box.append(mail(subject, "I have looked at them. " * 200, sender=sender))

    page = await agent.call(
        "imap_search_messages", mailbox=box.name, limit=50, include_snippet=True
    )
    message = await agent.call("imap_get_message", message_id=id_of(box, uid))

    assert 50 == page["data"]["returned"]
    assert size(page) <= MAX_BY_DEFAULT
    assert size(message) <= MAX_BY_DEFAULT
