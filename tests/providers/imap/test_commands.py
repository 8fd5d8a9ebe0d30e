"""Each call makes exactly one IMAP command, whatever its arguments contain."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable

import pytest

from postroom.errors import MailError
from postroom.model.imap import ImapCopyOf, ImapCriteria, ImapLocator
from postroom.ports.imap import ImapSession
from postroom.providers.imap.client import Client, gather_both
from postroom.providers.imap.connection import Connection
from postroom.providers.imap.syntax import (
    command_segments,
    decode_name,
    encode_name,
    flag_list,
    mailbox_name,
    name_encodings,
    search_text,
    uid_sets,
)
from tests.providers.imap.conftest import connected, local
from tests.servers.imap_script import mails, scripted

AT = ImapLocator("default", "INBOX", 7, 1)
NASTY = (
    "a\r\nb LOGOUT",
    "a\nb LOGOUT",
    "a\rb",
    "a\0b",
    "a\x7fb",
    "{5}",
    "{5+}",
    "a {3}\r\nxyz",
    '"',
    "\\",
    '\\"',
    "a) b",
    "a] b",
    "*",
    "%",
    "NIL",
    "nil",
    "&AAo-",
    "&",
    "",
    " ",
    "\u2028",
    "\u0085",
    "é",
    "日本",
    "😀",
)
PIECES = (*NASTY, "x", "1 OR ALL", "(", ")", "~", "\t", "\x1b", "\x80", "\ufeff", "\ud7ff")


def is_one_command(data: bytes) -> bool:
    """Parse as a strict server does: one line, with literals skipped by their length."""
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0 or b"\n" in data[at:end] or b"\r" in data[at:end] or b"\0" in data[at:end]:
            return False
        literal = re.search(rb"\{(\d+)\+?\}$", data[at:end])
        if literal is None:
            return end + 2 == len(data)
        at = end + 2 + int(literal[1])


def test_half_a_million_texts_make_at_most_one_command_each():
    chance = random.Random(11)
    makers: tuple[Callable[[str], object], ...] = (
        search_text,
        lambda text: mailbox_name(text.encode()),
        lambda text: mailbox_name(name_encodings(text, is_utf8=False)[0]),
        lambda text: flag_list([text]),
    )
    made = 0
    for number in range(500_000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 4)))
        try:
            piece = makers[number % 4](text)
        except ValueError:
            continue
        made += 1
        segments = command_segments([b"P1", b"X", piece, b"Y"], chance.choice(("", "+", "-")))
        assert is_one_command(b"".join(segments)), text

    assert made > 100_000


SAYS: dict[str, Callable[[ImapSession, str], object]] = {
    "find": lambda s, text: s.find(text, ImapCriteria(), limit=1, max_matches=9),
    "query": lambda s, text: s.find("INBOX", ImapCriteria(query=text), limit=1, max_matches=9),
    "subject": lambda s, text: s.find("INBOX", ImapCriteria(subject=text), limit=1, max_matches=9),
    "describe": lambda s, text: s.describe(ImapLocator("default", text, 7, 1)),
    "copy": lambda s, text: s.copy(AT, text),
    "move": lambda s, text: s.move(AT, text),
    "append": lambda s, text: s.append(text, ImapCopyOf(b"x\r\nA1 LOGOUT\r\n", (), None)),
    "append a flag": lambda s, text: s.append("INBOX", ImapCopyOf(b"x", (text,), None)),
    "flags": lambda s, text: s.change_flags(AT, add=[text]),
}
ALLOWED = re.compile(
    rb"P\d+ (?:CAPABILITY|LOGIN|ID|EXAMINE|SELECT|STATUS|UID SEARCH|UID FETCH|UID STORE|UID COPY"
    rb"|UID MOVE|APPEND|LOGOUT|NOOP|FETCH)\b"
)


@pytest.mark.parametrize("what", SAYS)
async def test_a_server_receives_only_the_intended_commands(what):
    async with (
        scripted(mailboxes={b"INBOX": mails(3)}) as server,
        connected(local(server.port)) as live,
    ):
        for text in NASTY:
            async with live.session("default") as session:
                try:
                    await SAYS[what](session, text)  # type: ignore[misc]
                except (MailError, ValueError, KeyError):
                    session.client.connection.close("next")

    assert all(is_one_command(line) for line in server.lines), server.lines
    assert all(ALLOWED.match(line) for line in server.lines), server.lines


@pytest.mark.parametrize(
    "name", ["INBOX", "a/b", "R&D", "Entwürfe", "日本語/x", "😀", "~peter", "&"]
)
def test_mailbox_names_survive_encoding_and_decoding(name):
    assert name == decode_name(encode_name(name).encode())
    assert encode_name(name).isascii()


@pytest.mark.parametrize("wire", [b"&bad", b"&2D3-", b"a&", b"&AGE-", b"\xff", b"&ZeVnLIqe"])
def test_a_name_that_is_not_utf7_is_shown_unchanged_and_found_again(wire):
    shown = decode_name(wire)

    assert shown.encode() in name_encodings(shown, is_utf8=False) or b"\xff" in wire


def test_uids_become_short_sets():
    assert [b"1:3,7,9:10"] == list(uid_sets([10, 9, 7, 1, 2, 3, 3]))
    sets = list(uid_sets(range(1, 20_000, 2)))
    assert all(len(part) < 2_100 for part in sets)
    assert 10_000 == sum(part.count(b",") + 1 for part in sets)


async def test_only_names_with_special_characters_are_quoted():
    names = {b"INBOX": mails(1), b"With space": mails(1)}
    async with (
        scripted(mailboxes=names) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        await session.find("INBOX", ImapCriteria(), limit=1, max_matches=9)
        await session.find("With space", ImapCriteria(), limit=1, max_matches=9)

    examined = [line for line in server.commands() if line.startswith(b"EXAMINE")]
    assert [b"EXAMINE INBOX", b'EXAMINE "With space"'] == examined


async def test_a_charset_is_sent_only_when_a_text_needs_one():
    async with (
        scripted() as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        await session.find("INBOX", ImapCriteria(subject="Hello"), limit=1, max_matches=9)
        await session.find("INBOX", ImapCriteria(subject="Hallö"), limit=1, max_matches=9)

    searches = [line for line in server.commands() if b"SUBJECT" in line]
    assert [False, True] == [b"CHARSET UTF-8" in line for line in searches]


class RecordingTransport(asyncio.Transport):
    """A transport that records what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.writes.append(data)

    def abort(self) -> None:
        pass


async def test_concurrent_commands_are_sent_in_one_packet():
    """With two packets, a slow connection would need two round trips."""
    line, connection = RecordingTransport(), Connection(socket_s=60)
    connection.connection_made(line)
    connection.data_received(b"* OK ready\r\n")
    client = Client(connection)
    both = asyncio.ensure_future(gather_both(client.open(b"INBOX"), client.search([b"ALL"])))
    for _ in range(5):
        await asyncio.sleep(0)
    connection.data_received(b"* 0 EXISTS\r\nP1 OK\r\n* SEARCH\r\nP2 OK\r\n")
    await both

    assert [b"P1 EXAMINE INBOX\r\nP2 UID SEARCH ALL\r\n"] == line.writes
