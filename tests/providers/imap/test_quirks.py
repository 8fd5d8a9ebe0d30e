"""Workarounds for servers with wrong results, refusals or few capabilities."""

from __future__ import annotations

import re

import pytest

from postroom.errors import ProviderError
from postroom.model.imap import ImapCriteria, ImapFound, ImapLocator, ImapSummary
from postroom.providers.imap.live import ImapAccounts
from tests.providers.imap.conftest import connected, local
from tests.servers.imap_script import HEADER, ImapCommand, Mail, mails, scripted

AT = ImapLocator("default", "INBOX", 7, 1)
ALL = ImapCriteria()
PLAIN = "IMAP4rev1 LITERAL+"


async def find(
    live: ImapAccounts, criteria: ImapCriteria = ALL, *, limit: int = 3, max_matches: int = 20_000
) -> ImapFound:
    async with live.session("default") as session:
        return await session.find("INBOX", criteria, limit=limit, max_matches=max_matches)


def nothing(command: ImapCommand) -> bytes | None:
    """The extended search of some servers, which never finds anything."""
    if command.rest.startswith(b"RETURN"):
        return b"* ESEARCH (TAG {tag}) UID COUNT 0\r\n{tag} OK done\r\n"
    return None


@pytest.mark.parametrize("criteria", [ALL, ImapCriteria(subject="Hello")])
async def test_a_search_that_contradicts_the_count_is_repeated_without_esearch(criteria):
    async with (
        scripted(replies={"UID SEARCH": nothing}) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live, criteria)

    assert (5, (5, 4, 3)) == (found.total, found.uids)
    assert ["search_inconsistent"] == [note.code for note in found.notes]


async def test_even_without_any_search_a_mailbox_is_listed():
    empty = b"* SEARCH\r\n* ESEARCH (TAG {tag}) UID COUNT 0\r\n{tag} OK done\r\n"
    async with (
        scripted(replies={"UID SEARCH": empty}) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live)

    assert (5, (5, 4, 3)) == (found.total, found.uids)
    assert "search_inconsistent" in [note.code for note in found.notes]


async def test_status_overrides_a_count_of_zero():
    replies = {
        "UID SEARCH": nothing,
        "EXAMINE": None,
        "STATUS": b'* STATUS "INBOX" (MESSAGES 500)\r\n{tag} OK\r\n',
    }
    async with (
        scripted(replies=replies, mailboxes={b"INBOX": {}}) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live)

    assert "search_inconsistent" in [note.code for note in found.notes]


async def test_an_empty_search_of_a_correct_server_is_empty():
    async with scripted() as server, connected(local(server.port)) as live:
        found = await find(live, ImapCriteria(subject="nowhere"))
        again = await find(live, ImapCriteria(subject="nowhere"))

    assert (0, ()) == (found.total, found.notes) == (again.total, again.notes)
    assert 1 == len([line for line in server.commands() if line.startswith(b"STATUS")])


async def test_a_server_without_esearch_lists_its_matches():
    boxes = {b"INBOX": {uid: Mail(HEADER % uid) for uid in range(1, 10_001)}}
    async with (
        scripted(capabilities=PLAIN, mailboxes=boxes) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live)
        refused = await find(live, max_matches=9_999)

    assert (10_000, (10_000, 9_999, 9_998)) == (found.total, found.uids)
    assert (10_000, ()) == (refused.total, refused.uids)


async def test_a_refused_search_has_the_text_of_the_server():
    replies = {"UID SEARCH": b"{tag} NO the index is being rebuilt\r\n"}
    async with scripted(replies=replies) as server, connected(local(server.port)) as live:
        with pytest.raises(ProviderError, match="the index is being rebuilt") as refused:
            await find(live)

    assert "the index is being rebuilt" == refused.value.details["server_said"]


def only_ascii(command: ImapCommand) -> bytes | None:
    if b"CHARSET" in command.rest:
        return b"{tag} NO [BADCHARSET (US-ASCII)] no\r\n"
    return None


SUBJECTS = {1: b"Die =?utf-8?q?Gr=C3=B6=C3=9Fe?=", 2: b"Groesse", 3: b"=?utf-8?b?R3LDtsOfZW4=?="}


async def test_a_server_without_utf8_gets_ascii_and_we_compare_the_headers():
    boxes = {
        b"INBOX": {
            uid: Mail(b"From: a@example.com\r\nSubject: %s\r\n\r\ntext\r\n" % subject)
            for uid, subject in SUBJECTS.items()
        }
    }
    replies = {
        "UID SEARCH": lambda command: only_ascii(command) or b"* SEARCH 1 2 3\r\n{tag} OK\r\n"
    }
    async with (
        scripted(replies=replies, mailboxes=boxes) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live, ImapCriteria(subject="größe"))

    assert (2, (3, 1)) == (found.total, found.uids)
    searches = [line for line in server.commands() if line.startswith(b"UID SEARCH")]
    assert b'SUBJECT "gr"' in searches[-1]


async def test_a_text_without_ascii_is_refused_for_such_a_server():
    async with (
        scripted(replies={"UID SEARCH": only_ascii}) as server,
        connected(local(server.port)) as live,
    ):
        with pytest.raises(ProviderError, match="the server refused UID SEARCH"):
            await find(live, ImapCriteria(query="привет"))


async def test_a_partly_searched_text_is_noted():
    async with (
        scripted(replies={"UID SEARCH": only_ascii}) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live, ImapCriteria(query="Good mörning"))

    assert ["search_widened"] == [note.code for note in found.notes]
    assert 5 == found.total


async def test_synchronizing_literals_wait_for_the_continuation():
    async with (
        scripted(capabilities="IMAP4rev1 ESEARCH") as server,
        connected(local(server.port)) as live,
    ):
        await find(live, ImapCriteria(subject="ö"))

    assert any(b"{2}\r\n\xc3\xb6" in line for line in server.lines)


async def test_a_name_that_is_no_utf7_can_be_opened():
    async with (
        scripted(mailboxes={b"INBOX": mails(1), b"R&D": mails(2)}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        names = [mailbox.name for mailbox in await session.mailboxes()]
        found = await session.find("R&D", ALL, limit=5, max_matches=10)

    assert "R&D" in names
    assert 2 == found.total


async def test_a_server_of_rev2_alone_has_names_in_utf8():
    boxes = {b"INBOX": mails(1), "Entwürfe".encode(): mails(2)}
    async with (
        scripted(capabilities="IMAP4rev2 AUTH=PLAIN", mailboxes=boxes) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        found = await session.find("Entwürfe", ALL, limit=5, max_matches=10)

    assert 2 == found.total


async def test_missing_previews_are_made_from_the_text():
    def fetch(command: ImapCommand) -> bytes | None:
        if b"PREVIEW" not in command.rest:
            return None
        field = b"BODY[HEADER.FIELDS (DATE)]<0> {2}\r\n\r\n"
        return b"* 1 FETCH (UID 1 FLAGS () %s PREVIEW NIL)\r\n{tag} OK\r\n" % field

    rows: dict[int, ImapSummary] = {}
    async with (
        scripted(capabilities="IMAP4rev1 PREVIEW", replies={"UID FETCH": fetch}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        for _ in range(2):
            await session.summaries("INBOX", 7, [1], snippet_chars=100, into=rows)

    assert b"Good morning.\r\n" == rows[1].text
    previews = [line for line in server.commands() if b"PREVIEW" in line]
    assert 1 == len(previews)


async def test_unsolicited_flags_are_not_taken_for_a_result():
    def fetch(command: ImapCommand) -> bytes:
        other = b"* 2 FETCH (UID 2 FLAGS (\\Seen))\r\n* 1 FETCH (FLAGS (\\Answered))\r\n"
        return other + b"* 1 FETCH (UID 1 FLAGS (\\Flagged))\r\n* 3 EXPUNGE\r\n{tag} OK\r\n"

    async with (
        scripted(replies={"UID FETCH": fetch}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        flags = await session.flags(AT)

    assert (r"\Flagged",) == flags


async def test_the_new_uid_is_read_from_any_response():
    replies = {
        "UID MOVE": b"* OK [COPYUID 9 1 44] moved\r\n* 1 EXPUNGE\r\n{tag} OK done\r\n",
        "UID COPY": b"{tag} OK copied\r\n",
    }
    async with (
        scripted(replies=replies) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        moved = await session.move(AT, "Archive")
        copied = await session.copy(AT, "Archive")

    assert ImapLocator("default", "Archive", 9, 44) == moved
    assert copied is None


RAW = b"Subject: Long\r\n\r\n" + b"0123456789" * 50


def short_ranges(command: ImapCommand) -> bytes | None:
    """A server that sends at most 100 bytes at once, and reports a size that is too large."""
    found = re.search(rb"BODY\.PEEK\[\]<(\d+)\.(\d+)>", command.rest)
    size = b"RFC822.SIZE %d" % (len(RAW) + 10)
    if found is None:
        return b"* 1 FETCH (UID 1 FLAGS () INTERNALDATE NIL %s)\r\n{tag} OK\r\n" % size
    start = int(found[1])
    part = RAW[start : start + min(int(found[2]), 100)]
    row = b"* 1 FETCH (UID 1 %s BODY[]<%d> {%d}\r\n%s)\r\n{tag} OK\r\n"
    return row % (size, start, len(part), part)


async def test_a_source_that_comes_in_short_ranges_is_complete():
    async with (
        scripted(replies={"UID FETCH": short_ranges}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        whole = await session.source(AT, 2_000)
        start = await session.source(AT, 250)
        copy = await session.fetch_message(AT, 2_000)

    assert (RAW, len(RAW)) == whole
    assert (RAW[:250], len(RAW) + 10) == start
    assert copy is not None
    assert RAW == copy.raw


@pytest.mark.parametrize("content", [b"{0}\r\n", b"NIL"])
async def test_a_message_without_its_content_is_not_copied(content):
    def fetch(command: ImapCommand) -> bytes:
        body = b"BODY[] " + content if b"BODY" in command.rest else b"FLAGS ()"
        return b"* 1 FETCH (UID 1 RFC822.SIZE 500 %s)\r\n{tag} OK\r\n" % body

    async with (
        scripted(replies={"UID FETCH": fetch}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        for work in (session.source, session.fetch_message):
            with pytest.raises(ProviderError, match="no content of a message of 500 bytes"):
                await work(AT, 2_000)


async def test_the_first_of_two_refusals_is_reported():
    full = [b"{tag} NO [OVERQUOTA] the mailbox is full\r\n", b"{tag} BAD invalid name\r\n"]
    replies = {"UID COPY": lambda _: full.pop(0)}
    async with (
        scripted(replies=replies) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        with pytest.raises(ProviderError, match="the mailbox is full"):
            await session.copy(AT, "Entwürfe")


async def test_a_refused_extension_of_list_is_not_used():
    def listing(command: ImapCommand) -> bytes | None:
        return b"{tag} BAD no RETURN here\r\n" if b"RETURN" in command.rest else None

    async with (
        scripted(
            capabilities="IMAP4rev1 LIST-EXTENDED SPECIAL-USE", replies={"LIST": listing}
        ) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        assert ["INBOX"] == [mailbox.name for mailbox in await session.mailboxes()]
