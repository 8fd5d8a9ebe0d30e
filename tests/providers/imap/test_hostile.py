"""Hostile servers: typed errors, bounded memory, and no hanging."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from postroom.errors import MailError, ProviderError, ProviderTimeout
from postroom.model.imap import ImapCriteria, ImapLocator, ImapSummary, ImapTimeouts
from postroom.ports.imap import ImapSession
from postroom.providers.imap.errors import InvalidResponse
from postroom.providers.imap.live import ImapAccounts
from postroom.providers.imap.responses import MailboxStatus, NewUid, SearchResult, read_row
from postroom.providers.imap.syntax import Framer
from tests.providers.imap.conftest import connected, local
from tests.providers.imap.memory import MB, growth_below
from tests.servers.imap_script import ImapCommand, scripted
from tests.servers.proxy import proxied

AT = ImapLocator("default", "INBOX", 7, 1)
PLAIN = "IMAP4rev1 LITERAL+"
QUICK = ImapTimeouts(connect_s=2, greeting_s=0.3, socket_s=0.3)


async def read_everything(session: ImapSession) -> None:
    """All requests that the tools make when they read."""
    await session.mailboxes()
    found = await session.find("INBOX", ImapCriteria(subject="Hello"), limit=5, max_matches=20_000)
    rows: dict[int, ImapSummary] = {}
    await session.summaries("INBOX", 7, found.uids or [1], snippet_chars=300, into=rows)
    await session.describe(AT)
    await session.source(AT, 2_000)


def long_line() -> Iterator[bytes]:
    yield b"* LIST () "
    for _ in range(1600):
        yield b"x" * 65_536


def many(line: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count // 1000):
        yield line * 1000
    yield b"{tag} OK done\r\n"


def deep(command: ImapCommand) -> bytes:
    nested = b"(" * 10_000 + b'"TEXT"' + b")" * 10_000
    row = b"* 1 FETCH (UID 1 FLAGS () BODYSTRUCTURE %s)\r\n" % nested
    return row + b"{tag} OK\r\n"


HOSTILE = {
    "a literal without end": {"LIST": b"* LIST () {4294967295}\r\nxxxx"},
    "a literal larger than asked for": {
        "UID FETCH": b"* 1 FETCH (UID 1 BODY[TEXT]<0> {30000000}\r\nxxxx"
    },
    "many literals in one response": {
        "LIST": lambda _: [b"* LIST"] + [b" {60000}\r\n" + b"x" * 60_000] * 200
    },
    "every UID there can be": {
        "UID SEARCH": b"* ESEARCH (TAG {tag}) UID COUNT 3 ALL 1:4294967295\r\n{tag} OK\r\n"
    },
    "a set of many ranges": {
        "UID SEARCH": b"* ESEARCH (TAG {tag}) UID COUNT 3 ALL "
        + b"1," * 1_900_000
        + b"1\r\n{tag} OK\r\n"
    },
    "a long plain search": {
        "UID SEARCH": b"* SEARCH" + b" 123456789" * 400_000 + b"\r\n{tag} OK\r\n"
    },
    "a structure of great depth": {"UID FETCH": deep},
    "a line of 100 MB": {"LIST": lambda _: long_line()},
    "a million responses": {"LIST": lambda _: many(b"* 1 EXPUNGE\r\n", 1_000_000)},
    "a million mailboxes": {"LIST": lambda _: many(b'* LIST () "/" abcdef\r\n', 1_000_000)},
    "many values": {"UID FETCH": b"* 1 FETCH (" + b"() " * 1_000_000 + b")\r\n{tag} OK\r\n"},
    "open quotes": {"UID FETCH": b'* 1 FETCH ("' + b'\\"' * 1_000_000 + b"\r\n{tag} OK\r\n"},
    "names that are no UTF-7": {
        "LIST": b'* LIST () "/" "&bad"\r\n* LIST () "/" "&AGE-&AGI-"\r\n'
        b'* LIST () "/" "\xff\xfe"\r\n* LIST () "/" {3}\r\na\x01b\r\n'
        b"* LIST () NIL &2D3-\r\n{tag} OK\r\n"
    },
    "another tag": {"LIST": b"X99 OK done\r\n"},
    "an answer twice": {"LIST": b"{tag} OK done\r\n{tag} OK done\r\n"},
    "NUL": {"LIST": b"* LIST () \x000\x00 x\r\n{tag} OK\r\n"},
    "no IMAP at all": {"LIST": b"HTTP/1.1 200 OK\r\n\r\n"},
    "a goodbye in between": {"LIST": b"* BYE \xff\xfe {10}\r\n"},
    "silence": {"LIST": b""},
    "half an answer": {"UID FETCH": b"* 1 FETCH (UID 1 BODY[TEXT]<0> {50}\r\nabc"},
    "numbers without end": {"EXAMINE": b"* " + b"9" * 100_000 + b" EXISTS\r\n{tag} OK\r\n"},
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_gets_a_typed_error_and_little_memory(name):
    async with (
        scripted(replies=HOSTILE[name]) as server,
        connected(local(server.port), timeouts=QUICK) as live,
    ):
        with growth_below(64 * MB), suppress(MailError):
            await live.read("default", read_everything)

    assert server.lines


async def test_an_unreadable_reply_is_reported():
    replies = {"LIST": b"* LIST () {4294967295}\r\nxxxx"}
    async with scripted(replies=replies) as server, connected(local(server.port)) as live:
        with pytest.raises(ProviderError, match="a literal of 4294967295 bytes") as error:
            await live.read("default", read_everything)

    assert not error.value.retryable


async def test_an_invalid_structure_does_not_hide_the_message():
    def fetch(command: ImapCommand) -> bytes:
        if b"BODYSTRUCTURE" in command.rest:
            return deep(command)
        return b"* 1 FETCH (UID 1 FLAGS () BODY[HEADER]<0> {4}\r\na\r\n\r)\r\n{tag} OK\r\n"

    async with (
        scripted(replies={"UID FETCH": fetch}) as server,
        connected(local(server.port)) as live,
    ):
        described = await live.read("default", lambda session: session.describe(AT))

    assert described is not None
    assert described.structure is None


@pytest.mark.parametrize(
    "options",
    [
        {"greeting": b""},
        {"replies": {"LOGIN": b""}},
        {"replies": {"LIST": b""}},
        {"replies": {"LIST": b"* LIST () {40}\r\nabc"}},
    ],
    ids=["greeting", "login", "command", "literal"],
)
async def test_a_silent_server_times_out(options):
    async with scripted(**options) as server, connected(local(server.port), timeouts=QUICK) as live:
        with pytest.raises(ProviderTimeout):
            await live.read("default", read_everything)


async def test_slow_bytes_do_not_extend_the_timeout_of_a_command(monkeypatch):
    replies = {"LIST": b"* LIST () NIL x\r\n" * 1000 + b"{tag} OK\r\n"}
    async with (
        scripted(replies=replies) as server,
        proxied(server.port) as proxy,
        connected(local(proxy.port)) as live,
        live.session("default") as session,
    ):
        proxy.bytes_per_s = 1_000.0
        monkeypatch.setattr("postroom.providers.imap.connection.COMMAND_S", 0.5)

        with pytest.raises(ProviderTimeout):
            await session.mailboxes()


async def test_a_thousand_failures_leak_no_descriptor_and_no_task():
    async with scripted() as server, connected(local(server.port)) as live:
        await fail(live, 20)
        before = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
        await fail(live, 1_000)
        after = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    assert after[0] <= before[0] + 4
    assert after[1] <= before[1] + 4


async def fail(live: ImapAccounts, times: int) -> None:
    for _ in range(times):
        async with live.fresh_session("default") as session:
            session.client.connection.close("given up")
            with pytest.raises(ProviderError):
                await session.mailboxes()


TRANSCRIPT = (
    b'* 2 EXISTS\r\n* OK [UIDVALIDITY 7] ok\r\n* LIST (\\Sent) "/" "Se&AOQ-nt"\r\n'
    b"* ESEARCH (TAG {tag}) UID COUNT 2 ALL 1:2\r\n* SEARCH 1 2\r\n"
    b'* 1 FETCH (UID 1 FLAGS (\\Seen) INTERNALDATE " 1-Mar-2026 10:00:00 +0100" RFC822.SIZE 99 '
    b'BODYSTRUCTURE (("TEXT" "PLAIN" ("CHARSET" "utf-8") NIL NIL "7BIT" 5 1 NIL NIL NIL)'
    b'("APPLICATION" "PDF" ("NAME" "a.pdf") NIL NIL "BASE64" 99 NIL ("ATTACHMENT" ("FILENAME" '
    b'"a.pdf")) NIL) "MIXED" ("BOUNDARY" "x") NIL NIL) BODY[HEADER]<0> {14}\r\nSubject: x\r\n\r\n '
    b'BODY[HEADER.FIELDS (DATE)]<0> {14}\r\nSubject: y\r\n\r\n BODY[TEXT]<0> "hi" BODY[] NIL)\r\n'
    b"{tag} OK [READ-ONLY] done\r\n"
)


def mutated(seed: int) -> bytes:
    """The transcript with some bytes changed, removed, repeated or moved."""
    chance = random.Random(seed)
    data = bytearray(TRANSCRIPT)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(data)), chance.randint(1, 40)
        kind = chance.randrange(5)
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            del data[at : at + size]
        elif kind == 2:
            data[at:at] = data[at : at + size]
        elif kind == 3:
            data[at:at] = chance.choice(
                (b"(", b")", b'"', b"{5}\r\n", b"\r\n", b"NIL", b"\0", b"~")
            )
        else:
            data[at:at] = b"%d" % chance.choice((0, 2**32, 2**63, 10**30))
    return bytes(data)


def test_ten_thousand_mutated_transcripts_are_read_or_refused():
    read_whole, refused = 0, 0
    with growth_below(64 * MB):
        for seed in range(10_000):
            hits, opened = SearchResult(), MailboxStatus()
            readers = (read_row, hits.take, opened.take, NewUid("COPYUID").take)
            try:
                for frame in Framer().feed(mutated(seed)):
                    for read in readers:
                        with suppress(InvalidResponse):
                            read(frame)
                read_whole += 1
            except InvalidResponse:
                refused += 1
            hits.newest(50)

    assert read_whole
    assert refused


async def test_mutated_transcripts_end_in_typed_errors():
    seeds = iter(range(10_000, 11_000))
    quick = ImapTimeouts(connect_s=2, greeting_s=2, socket_s=0.02)
    names = ("LIST", "EXAMINE", "STATUS", "UID SEARCH", "UID FETCH", "FETCH")
    replies = dict.fromkeys(names, lambda _: mutated(next(seeds)))
    async with (
        scripted(replies=replies) as server,
        connected(local(server.port), timeouts=quick) as live,
    ):
        for _ in range(150):
            with suppress(MailError):
                await live.read("default", read_everything)

    assert len(server.lines) >= 150
