"""Operations of the client do what the REST API does, and return typed values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.client import file
from postroom.client.values.mail import ActionResult
from postroom.client.values.records import DryRunPlan, Rule
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthenticated
from tests.client.conftest import AnyClient, make_client
from tests.mails import mail

DAY = datetime(2027, 1, 1)  # noqa: DTZ001 - one without a zone is local
RULE = "name: Invoices\nwhen: [{subject: {contains: invoice}}]\nthen: [{apply_label: bills}]\n"


async def send(postroom, inbox, **more):
    given = {"subject": "Hello", "body_text": "Good morning.", "inbox_id": inbox.id, **more}
    return await postroom.send_message(inbox.address, **given)


async def arrived(postroom, inbox):
    found = await postroom.wait_for_message(inbox_id=inbox.id, since="-60", timeout_s=30)
    assert not found.timed_out
    return found.message


async def test_a_value_has_attributes_of_their_types(postroom, inbox):
    await send(postroom, inbox)

    message = await arrived(postroom, inbox)

    assert ("Hello", "Good morning.", "inbound") == (
        message.subject,
        message.text.strip(),
        message.direction,
    )
    assert timedelta(minutes=5) > datetime.now(UTC) - message.date
    assert message == type(message)(**{n: getattr(message, n) for n in message.__struct_fields__})
    assert "attachments" not in message.to_dict()
    assert "Hello" == message.to_dict()["subject"]


async def test_iterating_over_a_page_goes_through_all_pages(postroom, inbox):
    for number in range(5):
        await postroom.receive_message(inbox.address, mail(f"Mail {number}", to=inbox.address))

    page = await postroom.list_messages(inbox_id=inbox.id, limit=2)
    rows = await postroom.all_items(page)

    assert (5, 2, True) == (page.total, len(page.results), page.has_more)
    assert {f"Mail {number}" for number in range(5)} == {row.subject for row in rows}
    assert 5 == len(rows)


async def test_a_list_can_be_iterated_over_without_awaiting_its_first_page(server, postroom, inbox):
    await send(postroom, inbox)

    async for caller in make_client("AsyncPostroom", server.url, server.key):
        listed = caller.client.list_messages(inbox_id=inbox.id, limit=1, mailbox="*")
        found = [row.id async for row in listed]

    assert 2 == len(found)


async def test_files_are_sent_from_paths_bytes_and_attachments(postroom, inbox, tmp_path: Path):
    path = tmp_path / "Zahlen für März.csv"
    path.write_text("a,b\n1,2\n")
    await send(postroom, inbox, attachments=[path, file(b"\x89PNG", filename="dot.png")])
    first = await arrived(postroom, inbox)

    await postroom.forward_message(first.id, inbox.address, attachments=[first.attachments[0]])
    second = await postroom.wait_for_message(inbox_id=inbox.id, since=first.id, timeout_s=30)
    content = await postroom.download_attachment(first.attachments[0].id)
    text = await postroom.get_attachment_content(first.attachments[0].id, format="text")

    assert [("Zahlen für März.csv", "text/csv"), ("dot.png", "image/png")] == [
        (a.filename, a.content_type) for a in first.attachments
    ]
    assert "Zahlen für März.csv" in {a.filename for a in second.message.attachments}
    assert b"a,b\n1,2\n" == content.content
    assert path.name == content.save(tmp_path).name
    assert text.text.startswith("a,b")


@pytest.mark.parametrize("wrong", ["no-such-file.pdf", "."])
async def test_a_file_that_cannot_be_read_is_named_before_anything_is_sent(postroom, inbox, wrong):
    with pytest.raises(InvalidInput, match="cannot read"):
        await send(postroom, inbox, attachments=[wrong])

    assert 0 == (await postroom.list_messages(inbox_id=inbox.id, mailbox="*")).total


async def test_a_file_name_from_a_mail_cannot_leave_the_folder(postroom, inbox, tmp_path: Path):
    raw = mail("x", to=inbox.address, attachments=[("../../up.txt", "text/plain", b"x")])
    received = await postroom.receive_message(inbox.address, raw)
    message = await postroom.get_message(received.message_id)

    saved = (await postroom.download_attachment(message.attachments[0].id)).save(tmp_path)

    assert tmp_path == saved.parent


async def test_an_update_changes_what_is_given_and_clears_what_is_none(postroom, inbox):
    draft = await postroom.create_draft(
        to="ana@example.com", subject="One", body_text="x", inbox_id=inbox.id, send_at=DAY
    )

    renamed = await postroom.update_draft(draft.id, subject="Two")
    cleared = await postroom.update_draft(draft.id, send_at=None)

    assert draft.send_at is not None
    assert ("Two", draft.send_at) == (renamed.subject, renamed.send_at)
    assert ("Two", None) == (cleared.subject, cleared.send_at)


async def test_an_operation_with_two_result_types_returns_the_right_one(postroom, inbox):
    received = await postroom.receive_message(inbox.address, mail("Invoice 7", to=inbox.address))

    changed = await postroom.update_messages(
        message_ids=[received.message_id], add_labels=["bills"]
    )
    planned = await postroom.update_messages(
        filter={"inbox_id": inbox.id, "from": "ana@example.com"}, add_flags=["flagged"]
    )

    assert (ActionResult, "ok") == (type(changed), changed.status)
    assert (DryRunPlan, 1) == (type(planned), planned.total)
    assert DryRunPlan is type(await postroom.create_rule(RULE))
    rule = await postroom.create_rule(RULE, dry_run=False)
    assert (Rule, "Invoices") == (type(rule), rule.name)
    assert rule.id == (await postroom.delete_rule(rule.id)).id


async def test_a_deletion_returns_nothing(postroom, inbox):
    assert await postroom.delete_inbox(inbox.id) is None

    with pytest.raises(NotFound, match=inbox.id) as caught:
        await postroom.get_inbox(inbox.id)
    assert str(caught.value.details["request_id"]).startswith("req_")


async def test_an_error_names_the_wrong_arguments(postroom):
    with pytest.raises(InvalidInput) as caught:
        await postroom.list_messages(inbox_id="x" * 300, limit=1000)

    assert {"limit", "inbox_id"} == {p["field"] for p in caught.value.details["problems"]}


async def test_an_argument_that_does_not_exist_is_a_type_error(postroom):
    with pytest.raises(TypeError, match=r"create_inbox\(\): .*nme"):
        await postroom.create_inbox(nme="Bo")


async def test_a_key_and_its_limits(server, postroom, inbox):
    key = await postroom.create_key("reader", scopes=["read"], inboxes=[inbox.id])
    kind = type(postroom.client).__name__

    async for limited in make_client(kind, server.url, key.key):
        seen = await limited.all_items(await limited.list_inboxes())
        with pytest.raises(Forbidden):
            await limited.create_inbox()
    async for unauthorized in make_client(kind, server.url, "pk_wrong"):
        with pytest.raises(Unauthenticated):
            await unauthorized.list_inboxes()

    assert [inbox.id] == [one.id for one in seen]
    assert await postroom.delete_key(key.id) is None


async def test_printing_a_value_does_not_show_its_secret(postroom, inbox):
    key = await postroom.create_key("reader", scopes=["read"])
    webhook = await postroom.create_webhook("http://127.0.0.1:9/", inboxes=[inbox.id])

    for value, secret in ((key, key.key), (webhook, webhook.secret)):
        assert value.id in repr(value)
        assert "***" in repr(value)
        assert secret not in f"{value!r} {value} {[value]} {value.__rich_repr__()}"
        assert secret in str(value.to_dict())


async def test_a_key_without_read_gets_a_receipt(server, postroom, inbox):
    key = await postroom.create_key("writer", scopes=["write"], inboxes=[inbox.id])

    async for blind in make_client(type(postroom.client).__name__, server.url, key.key):
        draft = await blind.create_draft(to="ana@example.com", subject="One", body_text="x")

    assert draft.id.startswith("drf_")
    assert draft.created_at is not None


async def test_memories_are_kept_and_found(postroom, inbox):
    space = inbox.id
    await postroom.memory_add("tea", "Bo drinks green tea.", namespace=space, tags=["taste"])

    hits = await postroom.memory_search("What does Bo drink?", namespace=space)
    changed = await postroom.memory_update("tea", text="Bo drinks coffee.", namespace=space)

    assert ["tea"] == [hit.key for hit in await postroom.all_items(hits)]
    assert (2, "Bo drinks coffee.") == (changed.version, changed.text)
    assert (await postroom.memory_delete("tea", namespace=space)).key == "tea"


async def test_a_path_argument_may_hold_any_character(postroom, inbox):
    key = "a/b?c=d&e #%2F ü"
    await postroom.memory_add(key, "odd", namespace=inbox.id)

    found = await postroom.memory_get(key, namespace=inbox.id)

    assert key == found.key


async def test_a_taken_address_is_a_conflict(postroom, inbox):
    with pytest.raises(Conflict):
        await postroom.create_inbox(address=inbox.address)


async def test_a_wait_may_end_without_a_message(postroom: AnyClient, inbox):
    waited = await postroom.wait_for_message(inbox_id=inbox.id, timeout_s=1)

    assert (True, None) == (waited.timed_out, waited.message)
