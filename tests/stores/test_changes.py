"""Labels, flags, moves, removal, and their effect on threads."""

from __future__ import annotations

from postroom.model.inbox import Inbox
from postroom.model.mail.storage import AttachmentQuery, Change, MessageQuery, ThreadQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, NOTHING, only
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


async def test_a_change_reports_each_message_separately(services: Services, inbox: Inbox) -> None:
    added = await deliver(services, inbox, mail())

    result = await services.store.change_messages(
        [added.message_id, "msg_no"], Change(add_labels=("Work",)), EVERYTHING
    )

    assert ("partial", (added.message_id,)) == (result.status, result.succeeded)
    assert [("msg_no", "not_found")] == [(f.message_id, f.code) for f in result.failed]


async def test_flags_and_labels_are_replaced_entirely(services: Services, inbox: Inbox) -> None:
    added = await deliver(services, inbox, mail())
    ids = [added.message_id]

    await services.store.change_messages(
        ids, Change(flags=("seen", "flagged"), labels=("A",)), EVERYTHING
    )
    await services.store.change_messages(
        ids, Change(flags=("answered",), labels=("B", "c")), EVERYTHING
    )

    message = await services.store.message(added.message_id, EVERYTHING)
    assert message is not None
    assert (("answered",), ("B", "c")) == (message.flags, message.labels)
    assert () == await services.store.problems()


async def test_a_label_keeps_its_first_spelling_and_is_counted(
    services: Services, inbox: Inbox
) -> None:
    one, two = await deliver(services, inbox, mail()), await deliver(services, inbox, mail())
    ids = [one.message_id, two.message_id]

    await services.store.change_messages(ids[:1], Change(add_labels=("Straße",)), EVERYTHING)
    await services.store.change_messages(ids, Change(add_labels=("STRASSE", "zoo")), EVERYTHING)
    await services.store.change_messages(ids[1:], Change(remove_labels=("ZOO",)), EVERYTHING)

    found = await services.store.labels(EVERYTHING, Slice())
    assert [("Straße", 2), ("zoo", 1)] == [
        (label.name, label.message_count) for label in found.rows
    ]
    assert 0 == (await services.store.labels(only("inb_other"), Slice())).total


async def test_moving_creates_missing_mailboxes(services: Services, inbox: Inbox) -> None:
    added = await deliver(services, inbox, mail("Moved"))

    await services.store.change_messages(
        [added.message_id], Change(move_to="Projects/北京"), EVERYTHING
    )

    found = await services.store.messages(MessageQuery(visible=EVERYTHING, mailbox="projects/北京"))
    assert [("Projects/北京",)] == [row.mailboxes for row in found.rows]
    assert (
        0
        == (await services.store.messages(MessageQuery(visible=EVERYTHING, mailbox="Inbox"))).total
    )


async def test_trashed_mail_is_not_in_threads_counts_and_attachments(
    services: Services, inbox: Inbox
) -> None:
    first = await deliver(services, inbox, mail("Plan", message_id="<p@example.com>"))
    files = [("a.txt", "text/plain", b"a")]
    reply = await deliver(
        services, inbox, mail("Re: Plan", in_reply_to="<p@example.com>", attachments=files)
    )

    await services.store.change_messages([reply.message_id], Change(move_to="Trash"), EVERYTHING)

    thread = await services.store.thread(first.thread_id, EVERYTHING, limit=50, before=None)
    assert thread is not None
    assert (1, [first.message_id]) == (thread.message_count, [m.id for m in thread.messages])
    by_thread = AttachmentQuery(visible=EVERYTHING, thread_id=first.thread_id)
    assert 0 == (await services.store.attachments(by_thread)).total
    assert (
        1
        == (
            await services.store.attachments(
                AttachmentQuery(visible=EVERYTHING, message_id=reply.message_id)
            )
        ).total
    )
    assert () == await services.store.problems()


async def test_a_thread_entirely_in_trash_is_unlisted_but_found_by_id(
    services: Services, inbox: Inbox
) -> None:
    added = await deliver(services, inbox, mail())

    await services.store.change_messages([added.message_id], Change(move_to="Trash"), EVERYTHING)

    thread = await services.store.thread(added.thread_id, EVERYTHING, limit=50, before=None)
    assert thread is not None
    assert (0, 1) == (
        (await services.store.threads(ThreadQuery(visible=EVERYTHING))).total,
        len(thread.messages),
    )


async def test_removing_a_message_removes_its_rows_and_names_unused_blobs(
    services: Services, inbox: Inbox
) -> None:
    files = [("a.txt", "text/plain", b"shared")]
    kept = await deliver(services, inbox, mail("Kept", attachments=files))
    gone = await deliver(services, inbox, mail("Gone", attachments=files))
    message = await services.store.message(gone.message_id, EVERYTHING)
    assert message is not None

    assert await services.store.remove_message(gone.message_id, NOTHING) is None
    unused = await services.store.remove_message(gone.message_id, EVERYTHING)

    assert (message.raw,) == unused
    assert await services.store.message(gone.message_id, EVERYTHING) is None
    assert [kept.message_id] == [
        m.id for m in (await services.store.messages(MessageQuery(visible=EVERYTHING))).rows
    ]
    assert 1 == (await services.store.threads(ThreadQuery(visible=EVERYTHING))).total
    assert () == await services.store.problems()


async def test_threads_are_listed_newest_first_with_participants(
    services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    first = await deliver(services, inbox, mail("Plan", message_id="<p@example.com>"))
    await deliver(services, other, mail("Elsewhere"))
    await deliver(
        services, inbox, mail("Re: Plan", sender="cy@c.org", in_reply_to="<p@example.com>")
    )
    await services.store.change_messages(
        [first.message_id], Change(add_labels=("Work",)), EVERYTHING
    )

    found = await services.store.threads(ThreadQuery(visible=EVERYTHING, inbox_id=inbox.id))
    labelled = await services.store.threads(ThreadQuery(visible=EVERYTHING, label="work"))

    assert [("Plan", 2)] == [(t.subject, t.message_count) for t in found.rows]
    assert ("ana@example.com", "bo@postroom.localhost", "cy@c.org") == found.rows[0].participants
    assert ("Work",) == found.rows[0].labels
    assert [first.thread_id] == [t.id for t in labelled.rows]


async def test_a_thread_is_read_backwards_oldest_first(services: Services, inbox: Inbox) -> None:
    root = await deliver(services, inbox, mail("0", message_id="<r@example.com>"))
    for number in range(1, 5):
        await deliver(services, inbox, mail(f"{number}", in_reply_to="<r@example.com>"))

    newest = await services.store.thread(root.thread_id, EVERYTHING, limit=2, before=None)
    assert newest is not None
    older = await services.store.thread(
        root.thread_id, EVERYTHING, limit=10, before=newest.messages[0].id
    )
    assert older is not None

    assert (["3", "4"], True) == ([m.subject for m in newest.messages], newest.has_more)
    assert (["0", "1", "2"], False) == ([m.subject for m in older.messages], older.has_more)


async def test_threads_merge_and_split_by_hand_and_a_split_stays(
    services: Services, inbox: Inbox
) -> None:
    one = await deliver(services, inbox, mail("One", message_id="<1@example.com>"))
    two = await deliver(services, inbox, mail("Two", message_id="<2@example.com>"))

    assert one.thread_id == await services.store.merge_threads(
        [one.thread_id, two.thread_id], EVERYTHING
    )
    by_old_id = await services.store.thread(two.thread_id, EVERYTHING, limit=9, before=None)
    assert by_old_id is not None
    assert (one.thread_id, 2) == (by_old_id.id, by_old_id.message_count)
    await services.store.split_thread(one.thread_id, [two.message_id], "thr_new", EVERYTHING)
    late = await deliver(
        services, inbox, mail("Late", references=["<1@example.com>", "<2@example.com>"])
    )

    assert "thr_new" == late.thread_id
    thread = await services.store.thread(one.thread_id, EVERYTHING, limit=9, before=None)
    assert thread is not None
    assert ["One"] == [m.subject for m in thread.messages]
    split = await services.store.thread("thr_new", EVERYTHING, limit=9, before=None)
    assert split is not None
    assert "Two" == split.subject
    assert () == await services.store.problems()
