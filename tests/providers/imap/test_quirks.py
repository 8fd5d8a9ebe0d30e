"""Servers that lie, refuse or know little: the way around each."""

from __future__ import annotations

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
    """The extended search of some servers: it finds nothing, ever."""
    if command.rest.startswith(b"RETURN"):
        return b"* ESEARCH (TAG {tag}) UID COUNT 0\r\n{tag} OK done\r\n"
    return None


@pytest.mark.parametrize("criteria", [ALL, ImapCriteria(subject="Hello")])
async def test_a_search_that_contradicts_the_count_is_done_in_another_way(criteria):
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


async def test_status_is_believed_over_a_count_of_zero():
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


async def test_nothing_found_by_a_server_that_tells_the_truth_is_nothing():
    async with scripted() as server, connected(local(server.port)) as live:
        found = await find(live, ImapCriteria(subject="nowhere"))
        again = await find(live, ImapCriteria(subject="nowhere"))

    assert (0, ()) == (found.total, found.notes) == (again.total, again.notes)
    assert 1 == len([line for line in server.commands() if line.startswith(b"STATUS")])


async def test_a_server_that_cannot_count_lists_in_one_line():
    boxes = {b"INBOX": {uid: Mail(HEADER % uid) for uid in range(1, 10_001)}}
    async with (
        scripted(capabilities=PLAIN, mailboxes=boxes) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live)
        refused = await find(live, max_matches=9_999)

    assert (10_000, (10_000, 9_999, 9_998)) == (found.total, found.uids)
    assert (10_000, ()) == (refused.total, refused.uids)


async def test_a_refused_search_carries_the_words_of_the_server():
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


async def test_a_text_that_such_a_server_cannot_read_at_all_is_refused():
    async with (
        scripted(replies={"UID SEARCH": only_ascii}) as server,
        connected(local(server.port)) as live,
    ):
        with pytest.raises(ProviderError, match="the server refused UID SEARCH"):
            await find(live, ImapCriteria(query="привет"))


async def test_a_text_that_it_reads_in_part_is_noted():
    async with (
        scripted(replies={"UID SEARCH": only_ascii}) as server,
        connected(local(server.port)) as live,
    ):
        found = await find(live, ImapCriteria(query="Good mörning"))

    assert ["search_widened"] == [note.code for note in found.notes]
    assert 5 == found.total


async def test_literals_wait_for_consent_where_the_server_wants_it():
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


async def test_previews_that_are_missing_are_made_from_the_text():
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


async def test_flags_told_by_the_way_are_not_taken_for_an_answer():
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


async def test_a_new_place_is_read_wherever_the_server_tells_it():
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
