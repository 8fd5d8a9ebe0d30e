"""The round trips and bytes of live IMAP, counted by a proxy in front of a real Dovecot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from tests.contract.live_imap import Agent, account_variables, agent_over_stdio, id_of
from tests.contract.requirements import requirement
from tests.mails import mail
from tests.servers.dovecot import Dovecot
from tests.servers.imaplib_client import ImaplibMailbox, imaplib_mailbox
from tests.servers.proxy import Proxy, proxied

KB = 1024
MB = 1024 * KB
MANY = 100_000


@pytest.fixture
async def proxy(dovecot: Dovecot) -> AsyncIterator[Proxy]:
    async with proxied(dovecot.imaps) as opened:
        yield opened


@pytest.fixture
async def counted(tmp_path: Path, dovecot: Dovecot, proxy: Proxy) -> AsyncIterator[Agent]:
    """An agent whose traffic with the account goes through the proxy."""
    variables = account_variables(dovecot, "DEFAULT", "alice")
    variables["MAIL_IMAP_DEFAULT_PORT"] = str(proxy.port)
    async with agent_over_stdio(tmp_path / "data", variables, "--toolsets", "imap") as agent:
        yield agent


@requirement("imap:cost-search")
@pytest.mark.parametrize("snippets", [{}, {"include_snippet": True}])
async def test_a_warm_page_of_fifty_takes_three_round_trips(
    counted: Agent, proxy: Proxy, box: ImaplibMailbox, snippets: dict[str, bool]
) -> None:
    for number in range(120):
        box.append(mail(f"Mail {number}"))
    page = {"mailbox": box.name, "limit": 50, **snippets}
    first = await counted.data("imap_search_messages", **page)
    proxy.reset()

    warm = await counted.data("imap_search_messages", **page)
    trips = proxy.round_trips
    proxy.reset()
    await counted.data("imap_search_messages", **page, cursor=first["next_cursor"])

    assert first["messages"] == warm["messages"]
    assert trips <= 3
    assert proxy.round_trips <= 3
    assert 0 == proxy.connections


@requirement("imap:cost-get")
async def test_a_warm_message_takes_three_round_trips(
    counted: Agent, proxy: Proxy, box: ImaplibMailbox
) -> None:
    files = [("a.bin", "application/octet-stream", b"x" * 100_000)]
    uid = box.append(mail("Hello", "word " * 2_000, html="<p>word</p>" * 900, attachments=files))
    await counted.data("imap_list_mailboxes")
    proxy.reset()

    data = await counted.data("imap_get_message", message_id=id_of(box, uid), include_html=True)

    assert 2_000 == len(data["message"]["body_text"])
    assert proxy.round_trips <= 3
    assert 0 == proxy.connections


@requirement("imap:cost-get")
async def test_of_a_mail_of_25_megabytes_only_the_text_is_read(
    counted: Agent, proxy: Proxy, box: ImaplibMailbox
) -> None:
    # Incompressible, or COMPRESS would hide bytes that are read unnecessarily.
    noise = Random(25).randbytes(25 * MB * 3 // 4)
    files = [("large.bin", "application/octet-stream", noise)]
    uid = box.append(mail("Large", "The text. " * 400, attachments=files))
    proxy.reset()

    data = await counted.data("imap_get_message", message_id=id_of(box, uid))

    assert data["message"]["body_text"].startswith("The text.")
    assert [len(noise)] == [row["size_bytes"] for row in data["message"]["attachments"]]
    assert 1 == proxy.connections
    assert proxy.bytes_from_server <= 100 * KB


@pytest.fixture(scope="session")
def huge(dovecot: Dovecot) -> str:
    """A mailbox of 100,000 messages."""
    raw = mail("One of many", "Some words.").replace(b"\n", b"\r\n")
    dovecot.fill("alice", "Huge", MANY, raw)
    return "Huge"


@requirement("imap:cost-search")
async def test_a_mailbox_of_100_000_messages_works(
    counted: Agent, proxy: Proxy, dovecot: Dovecot, huge: str
) -> None:
    with imaplib_mailbox(dovecot, "alice", huge) as box:
        uid = box.append(mail("The needle", "Found."))
        assert [uid] == box.find("SUBJECT", "needle")  # from here on the server has an index
    error = await counted.error("imap_search_messages", mailbox=huge)
    proxy.reset()

    refused = await counted.error("imap_search_messages", mailbox=huge)
    counting = proxy.bytes_from_server
    found = await counted.data("imap_search_messages", mailbox=huge, subject="needle")
    read = await counted.data("imap_get_message", message_id=found["messages"][0]["message_id"])

    assert f"{MANY + 1} messages match" in error["message"]
    assert error == refused
    assert counting <= 4 * KB
    assert ["The needle"] == [row["subject"] for row in found["messages"]]
    assert (uid, "Found.") == (read["message"]["uid"], read["message"]["body_text"])
    assert proxy.bytes_from_server <= 100 * KB
