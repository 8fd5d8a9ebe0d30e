"""Labels, flags, places, removal, and what threads know of it."""

from __future__ import annotations

from postroom.model.inbox import Inbox
from postroom.model.page import Slice
from postroom.model.stored import AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.pipeline.house import House
from tests.mails import deliver, mail, new_inbox


async def test_a_change_reports_each_message_apart(house: House, inbox: Inbox) -> None:
    added = await deliver(house, inbox, mail())

    result = await house.store.change_messages(
        [added.message_id, "msg_no"], Change(add_labels=("Work",)), None
    )

    assert ("partial", (added.message_id,)) == (result.status, result.succeeded)
    assert [("msg_no", "not_found")] == [(f.message_id, f.code) for f in result.failed]


async def test_flags_and_labels_are_replaced_whole(house: House, inbox: Inbox) -> None:
    added = await deliver(house, inbox, mail())
    ids = [added.message_id]

    await house.store.change_messages(ids, Change(flags=("seen", "flagged"), labels=("A",)), None)
    await house.store.change_messages(ids, Change(flags=("answered",), labels=("B", "c")), None)

    message = await house.store.message(added.message_id, None)
    assert message is not None
    assert (("answered",), ("B", "c")) == (message.flags, message.labels)
    assert () == await house.store.problems()


async def test_a_label_keeps_its_first_spelling_and_is_counted(house: House, inbox: Inbox) -> None:
    one, two = await deliver(house, inbox, mail()), await deliver(house, inbox, mail())
    ids = [one.message_id, two.message_id]

    await house.store.change_messages(ids[:1], Change(add_labels=("Straße",)), None)
    await house.store.change_messages(ids, Change(add_labels=("STRASSE", "zoo")), None)
    await house.store.change_messages(ids[1:], Change(remove_labels=("ZOO",)), None)

    found = await house.store.labels(None, Slice())
    assert [("Straße", 2), ("zoo", 1)] == [
        (label.name, label.message_count) for label in found.rows
    ]
    assert 0 == (await house.store.labels(frozenset({"inb_other"}), Slice())).total


async def test_moving_changes_the_place_and_makes_new_mailboxes(house: House, inbox: Inbox) -> None:
    added = await deliver(house, inbox, mail("Moved"))

    await house.store.change_messages([added.message_id], Change(move_to="Projects/北京"), None)

    found = await house.store.messages(MessageQuery(mailbox="projects/北京"))
    assert [("Projects/北京",)] == [row.mailboxes for row in found.rows]
    assert 0 == (await house.store.messages(MessageQuery(mailbox="Inbox"))).total


async def test_what_is_trashed_leaves_threads_counts_and_attachments(
    house: House, inbox: Inbox
) -> None:
    first = await deliver(house, inbox, mail("Plan", message_id="<p@example.com>"))
    files = [("a.txt", "text/plain", b"a")]
    reply = await deliver(
        house, inbox, mail("Re: Plan", in_reply_to="<p@example.com>", attachments=files)
    )

    await house.store.change_messages([reply.message_id], Change(move_to="Trash"), None)

    thread = await house.store.thread(first.thread_id, None, limit=50, before=None)
    assert thread is not None
    assert (1, [first.message_id]) == (thread.message_count, [m.id for m in thread.messages])
    by_thread = AttachmentQuery(thread_id=first.thread_id)
    assert 0 == (await house.store.attachments(by_thread)).total
    assert 1 == (await house.store.attachments(AttachmentQuery(message_id=reply.message_id))).total
    assert () == await house.store.problems()


async def test_a_thread_wholly_in_trash_is_unlisted_but_found_by_its_id(
    house: House, inbox: Inbox
) -> None:
    added = await deliver(house, inbox, mail())

    await house.store.change_messages([added.message_id], Change(move_to="Trash"), None)

    thread = await house.store.thread(added.thread_id, None, limit=50, before=None)
    assert thread is not None
    assert (0, 1) == ((await house.store.threads(ThreadQuery())).total, len(thread.messages))


async def test_removing_a_message_removes_its_rows_and_names_unused_blobs(
    house: House, inbox: Inbox
) -> None:
    files = [("a.txt", "text/plain", b"shared")]
    kept = await deliver(house, inbox, mail("Kept", attachments=files))
    gone = await deliver(house, inbox, mail("Gone", attachments=files))
    message = await house.store.message(gone.message_id, None)
    assert message is not None

    assert await house.store.remove_message(gone.message_id, frozenset()) is None
    unused = await house.store.remove_message(gone.message_id, None)

    assert (message.raw,) == unused
    assert await house.store.message(gone.message_id, None) is None
    assert [kept.message_id] == [m.id for m in (await house.store.messages(MessageQuery())).rows]
    assert 1 == (await house.store.threads(ThreadQuery())).total
    assert () == await house.store.problems()


async def test_threads_are_listed_newest_first_with_who_took_part(
    house: House, inbox: Inbox
) -> None:
    other = await new_inbox(house, "other")
    first = await deliver(house, inbox, mail("Plan", message_id="<p@example.com>"))
    await deliver(house, other, mail("Elsewhere"))
    await deliver(house, inbox, mail("Re: Plan", sender="cy@c.org", in_reply_to="<p@example.com>"))
    await house.store.change_messages([first.message_id], Change(add_labels=("Work",)), None)

    found = await house.store.threads(ThreadQuery(inbox_id=inbox.id))
    labelled = await house.store.threads(ThreadQuery(label="work"))

    assert [("Plan", 2)] == [(t.subject, t.message_count) for t in found.rows]
    assert ("ana@example.com", "bo@postroom.localhost", "cy@c.org") == found.rows[0].participants
    assert ("Work",) == found.rows[0].labels
    assert [first.thread_id] == [t.id for t in labelled.rows]


async def test_a_thread_is_read_backwards_oldest_first(house: House, inbox: Inbox) -> None:
    root = await deliver(house, inbox, mail("0", message_id="<r@example.com>"))
    for number in range(1, 5):
        await deliver(house, inbox, mail(f"{number}", in_reply_to="<r@example.com>"))

    newest = await house.store.thread(root.thread_id, None, limit=2, before=None)
    assert newest is not None
    older = await house.store.thread(root.thread_id, None, limit=10, before=newest.messages[0].id)
    assert older is not None

    assert (["3", "4"], True) == ([m.subject for m in newest.messages], newest.has_more)
    assert (["0", "1", "2"], False) == ([m.subject for m in older.messages], older.has_more)


async def test_threads_merge_and_split_by_hand_and_a_split_stays(
    house: House, inbox: Inbox
) -> None:
    one = await deliver(house, inbox, mail("One", message_id="<1@example.com>"))
    two = await deliver(house, inbox, mail("Two", message_id="<2@example.com>"))

    assert one.thread_id == await house.store.merge_threads([one.thread_id, two.thread_id], None)
    by_old_id = await house.store.thread(two.thread_id, None, limit=9, before=None)
    assert by_old_id is not None
    assert (one.thread_id, 2) == (by_old_id.id, by_old_id.message_count)
    await house.store.split_thread(one.thread_id, [two.message_id], "thr_new", None)
    late = await deliver(
        house, inbox, mail("Late", references=["<1@example.com>", "<2@example.com>"])
    )

    assert "thr_new" == late.thread_id
    thread = await house.store.thread(one.thread_id, None, limit=9, before=None)
    assert thread is not None
    assert ["One"] == [m.subject for m in thread.messages]
    split = await house.store.thread("thr_new", None, limit=9, before=None)
    assert split is not None
    assert "Two" == split.subject
    assert () == await house.store.problems()
