"""The same results on each real server."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from postroom.errors import Conflict, NotFound, ProviderAuthFailed
from postroom.model.imap import (
    ImapCopyOf,
    ImapCriteria,
    ImapFound,
    ImapLocator,
    ImapSection,
    ImapSummary,
)
from postroom.providers.imap.live import ImapAccounts
from tests.mails import mail
from tests.providers.imap.conftest import account, connected
from tests.servers.imaplib_client import ImaplibMailbox, imaplib_mailbox

ALL = ImapCriteria()


async def find(
    live: ImapAccounts, box: ImaplibMailbox, criteria: ImapCriteria = ALL, **more: int
) -> ImapFound:
    options = {"limit": 10, "max_matches": 20_000, **more}
    async with live.session("default") as session:
        return await session.find(box.name, criteria, **options)


def at(box: ImaplibMailbox, uid: int) -> ImapLocator:
    return ImapLocator("default", box.name, box.uidvalidity, uid)


async def test_mailboxes_are_listed_with_inbox_first_and_their_special_use(live, box):
    async with live.session("default") as session:
        found = await session.mailboxes()

    assert "INBOX" == found[0].name
    assert box.name in [mailbox.name for mailbox in found]
    assert {r"\Sent", r"\Trash", r"\Drafts", r"\Junk"} <= {mailbox.special_use for mailbox in found}


@pytest.mark.parametrize(
    ("name", "wire_name"),
    [
        ("Entwürfe", "Entw&APw-rfe"),
        ("日本語", "&ZeVnLIqe-"),
        ("R&D", "R&-D"),
        ("a:b: c", "a:b: c"),
        ("😀 smile", "&2D3eAA- smile"),
    ],
)
async def test_a_mailbox_of_any_name_is_listed_searched_and_read(live, server, name, wire_name):
    with imaplib_mailbox(server, "dave", name, wire_name) as box:
        uid = box.append(mail("Hello"))
        async with connected(account(server, "dave")) as mine, mine.session("default") as session:
            names = [mailbox.name for mailbox in await session.mailboxes()]
            found = await session.find(name, ALL, limit=10, max_matches=100)
            described = await session.describe(at(box, uid))

    assert name in names
    assert (uid,) == found.uids
    assert described is not None


async def test_a_mailbox_name_may_have_quotes_and_backslashes(dovecot):
    with imaplib_mailbox(dovecot, "dave", 'say "x" \\ y', 'say "x" \\ y') as box:
        box.append(mail("Hello"))
        async with connected(account(dovecot, "dave")) as live:
            found = await find(live, box)

    assert 1 == found.total


async def test_a_search_counts_all_and_lists_the_newest_first(live, box):
    uids = [box.append(mail(f"Mail {number}")) for number in range(7)]

    found = await find(live, box, limit=3)

    assert (7, tuple(reversed(uids[-3:]))) == (found.total, found.uids)


async def test_a_search_continues_below_a_uid(live, box):
    uids = [box.append(mail(f"Mail {number}")) for number in range(5)]

    found = await find(live, box, limit=3, below=uids[3])

    assert (3, tuple(reversed(uids[:3]))) == (found.total, found.uids)


async def test_too_many_matches_are_counted_and_not_listed(live, box):
    for number in range(3):
        box.append(mail(f"Mail {number}"))

    found = await find(live, box, max_matches=2)

    assert (3, ()) == (found.total, found.uids)


@pytest.mark.parametrize(
    ("criteria", "subjects"),
    [
        (ImapCriteria(query="Grüße"), {"Zwei"}),
        (ImapCriteria(query='a "quoted" \\ word'), {"Drei"}),
        (ImapCriteria(from_="ana@"), {"Eins", "Drei"}),
        (ImapCriteria(from_="bo@", subject="zwei"), {"Zwei"}),
        (ImapCriteria(to="cleo"), {"Drei"}),
        (ImapCriteria(unread_only=True), {"Zwei", "Drei"}),
        (ImapCriteria(since=date(2026, 3, 2)), {"Zwei", "Drei"}),
        (ImapCriteria(before=date(2026, 3, 3)), {"Eins", "Zwei"}),
        (ImapCriteria(since=date(2026, 3, 2), before=date(2026, 3, 3)), {"Zwei"}),
        (ImapCriteria(query="nowhere"), set()),
    ],
)
async def test_every_criterion_finds_its_messages(live, box, criteria, subjects):
    by_uid = {
        box.append(
            mail("Eins", sender="ana@example.com"),
            [r"\Seen"],
            datetime(2026, 3, 1, 12, tzinfo=UTC),
        ): "Eins",
        box.append(
            mail("Zwei", "Viele Grüße", sender="bo@example.com"),
            at=datetime(2026, 3, 2, 12, tzinfo=UTC),
        ): "Zwei",
        box.append(
            mail("Drei", 'It has a "quoted" \\ word.', sender="ana@example.com", to="cleo@x.org"),
            at=datetime(2026, 3, 3, 12, tzinfo=UTC),
        ): "Drei",
    }

    found = await find(live, box, criteria)

    assert subjects == {by_uid[uid] for uid in found.uids}
    assert len(subjects) == found.total


@pytest.mark.parametrize("chars", [200, 500])
async def test_summaries_come_with_flags_date_and_the_beginning_of_the_text(live, box, chars):
    uid = box.append(
        mail("Hello", "First words.\n" + "more " * 200), [r"\Flagged"], datetime.now(UTC)
    )
    rows: dict[int, ImapSummary] = {}
    async with live.session("default") as session:
        await session.summaries(box.name, box.uidvalidity, [uid], snippet_chars=chars, into=rows)

    row = rows[uid]
    assert r"\Flagged" in row.flags
    assert b"Subject: Hello" in row.header
    assert abs((datetime.now(UTC) - row.arrived_at).total_seconds()) < 120
    assert "First words." in (row.preview or (row.text or b"").decode())


async def test_a_message_is_described_with_its_parts_and_stays_unread(live, box):
    uid = box.append(mail("Files", attachments=[("a.bin", "application/x-a", b"x" * 3000)]))

    async with live.session("default") as session:
        described = await session.describe(at(box, uid))
        section = ImapSection("1", 4, 5)
        pieces = await session.fetch_sections(at(box, uid), [section], ["2"])

    assert ["1", "2"] == [part.number for part in described.structure.children]
    assert b"morn" == pieces.sections[section]
    assert 3000 == pieces.sizes["2"]
    assert set() == box.flags(uid)


async def test_the_source_comes_byte_for_byte(live, box):
    uid = box.append(mail("Source", "Line one\nLine two"))

    async with live.session("default") as session:
        source = await session.source(at(box, uid), 1_000_000)
        beginning = await session.source(at(box, uid), 100)

    assert (box.raw(uid), len(box.raw(uid))) == source
    assert (box.raw(uid)[:100], len(box.raw(uid))) == beginning


async def test_a_copy_and_a_move_return_the_new_uid(live, box, server):
    uid = box.append(mail("Travels"), [r"\Seen"])
    with imaplib_mailbox(server, "alice") as there:
        async with live.session("default") as session:
            copied = await session.copy(at(box, uid), there.name)
            moved = await session.move(at(box, uid), there.name)

        assert [copied.uid, moved.uid] == there.uids()
        assert there.uidvalidity == copied.uidvalidity == moved.uidvalidity
        assert {r"\Seen"} == there.flags(copied.uid)
    assert [] == box.uids()


async def test_an_appended_message_keeps_flags_and_date(live, box):
    moment = datetime(2020, 2, 29, 13, 14, 15, tzinfo=UTC)
    message = ImapCopyOf(b"Subject: x\r\n\r\nText\r\n", (r"\Seen", "$Label1"), moment)

    async with live.session("default") as session:
        new = await session.append(box.name, message)

    assert {r"\Seen", "$Label1"} == box.flags(new.uid)
    assert "29-Feb-2020 13:14:15 +0000" == box.arrival(new.uid)
    assert message.raw == box.raw(new.uid)


async def test_removing_one_message_keeps_others_flagged_as_deleted(live, box):
    mine, theirs = box.append(mail("Mine")), box.append(mail("Theirs"))
    box.flag(theirs, r"\Deleted")
    box.close()

    async with live.session("default") as session:
        await session.change_flags(at(box, mine), add=[r"\Deleted"])
        await session.expunge(at(box, mine))

    assert [theirs] == box.uids()


async def test_a_recreated_mailbox_is_a_conflict_and_unchanged(live, box):
    old = at(box, box.append(mail("Old")))
    box.recreate()
    new = box.append(mail("New"))

    for work in ("describe", "exists", "expunge"):
        async with live.session("default") as session:
            with pytest.raises(Conflict):
                await getattr(session, work)(old)
    async with live.session("default") as session:
        with pytest.raises(Conflict):
            await session.change_flags(old, add=[r"\Deleted"])
        with pytest.raises(Conflict):
            await session.move(old, "INBOX")

    assert [new] == box.uids()
    assert set() == box.flags(new)


async def test_a_missing_message_or_mailbox_is_not_found(live, box):
    async with live.session("default") as session:
        assert await session.describe(at(box, 4711)) is None
        assert await session.source(at(box, 4711), 2000) is None
        assert not await session.exists(at(box, 4711))
        assert not await session.exists(at(box, 0))
        with pytest.raises(NotFound):
            await session.find("no such mailbox", ALL, limit=1, max_matches=1)


async def test_a_wrong_password_is_reported_and_not_shown(server):
    wrong = account(server)
    object.__setattr__(wrong, "secret", "wr0ng-canary")
    async with connected(wrong) as live:
        with pytest.raises(ProviderAuthFailed) as refused:
            await live.read("default", lambda session: session.mailboxes())

    assert "canary" not in str(refused.value)
