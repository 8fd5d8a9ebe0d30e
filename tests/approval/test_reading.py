"""Whichever operation shows the text of suspicious mail, its caller has read the mail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import MailError
from postroom.model.mail.message import Download
from postroom.operations.agent import writing
from postroom.operations.mail import attachments
from postroom.operations.outgoing import drafts
from postroom.store.transaction import Transaction
from tests.approval.conftest import KNOWN, KeyFactory
from tests.approval.test_risks import HIDDEN, ORDINARY, html_mail, send
from tests.callers import a_caller
from tests.hostile_content import ARGUMENTS, arguments_of, changes_last, hostile_installation
from tests.isolation.request_variants import every_operation
from tests.mails import deliver, mail

DEEP = "pangolin"
"""A word far below the beginning of a text, which a row of a list does not reach."""

MORE: dict[str, dict[str, Any]] = {
    "check_reply": {"message_id": "{message_id}"},
    "change_mail": {"ids": ["{message_id}"], "add_flags": ["seen"]},
    "find_mail": {"q": "News", "text": True},
    "forward_mail": {"ids": ["{message_id}"], "to": [KNOWN], "draft": True},
    "get_marked_message": {"message_id": "{message_id}"},
    "get_message_html": {"message_id": "{message_id}"},
    "get_plan_changes": {"plan_id": "{plan_id}"},
    "list_outgoing": {},
    "preview_forward": {"message_id": "{message_id}"},
    "preview_reply": {"message_id": "{message_id}"},
    "read_mail": {"ids": ["{message_id}"]},
    "reply_mail": {"ids": ["{message_id}"], "body": "Yes", "draft": True},
    "wait_for_mail": {},
}
WITHOUT_MAIL = frozenset(
    ("check_rule", "compare_rules", "edit_memory", "find_contacts", "finish_sign_in", "forget",
     "get_access_request", "get_account", "get_activity", "get_delivery", "get_health", "get_key",
     "get_load", "get_webhook", "grant_access", "list_namespaces", "list_rule_plans",
     "list_rule_states", "list_stopped_rules", "make_rule", "recall", "receive_posting",
     "remember", "replace_rule", "save_draft", "send_mail", "start_sign_in", "stream_events",
     "undo", "verify_audit")
)  # fmt: skip
"""Other operations, whose answers have no text of mail beyond the rows of lists."""

SHOWING = {
    "download_attachment", "download_message", "find_mail", "get_attachment_content",
    "get_marked_message", "get_message", "get_message_html", "get_thread", "preview_forward",
    "preview_reply", "read_mail", "wait_for_mail", "wait_for_message",
}  # fmt: skip
"""Operations that must show it here for the test to be significant."""


async def suspicious(ctx: RequestContext) -> dict[str, Any]:
    """An installation, whose things are those of a mail with hidden text."""
    things = await hostile_installation(ctx)
    inbox = (await ctx.store.inboxes_at([things["address"]]))[things["address"]]
    text = f"<p>{'Hello. ' * 200}{DEEP}</p>{HIDDEN}"
    raw = mail("News", text, attachments=[("a.txt", "text/plain", f"A {DEEP}.".encode())])
    added = await deliver(ctx, inbox, raw.replace(b"text/plain; charset", b"text/html; charset"))
    message = await ctx.store.message(added.message_id, ctx.visible)
    assert message is not None
    assert (True, False) == (bool(message.findings), DEEP in message.snippet)
    names = {"message_id": message.id, "thread_id": message.thread_id}
    return {**things, **names, "attachment_id": message.attachments[0].id}


async def shown_by(ctx: RequestContext, operation: Any, arguments: dict[str, Any]) -> str:
    try:
        result = await call(ctx, operation, arguments)
    except MailError:
        return ""
    if isinstance(result, Download):
        return b"".join([chunk async for chunk in result.chunks]).decode()
    return repr(result)


async def has_read(ctx: RequestContext, key_id: str) -> bool:
    def read(tx: Transaction) -> bool:
        sql = "SELECT 1 FROM suspicious_reads WHERE caller = :caller"
        return tx.one(sql, caller=key_id) is not None

    return bool(await ctx.store.engine.read(read))  # type: ignore[attr-defined]


def arguments_for(name: str, things: dict[str, Any]) -> list[dict[str, Any]]:
    """The samples of an operation, and other forms of those that read attachments."""
    known = {**ARGUMENTS, **MORE}
    found = [arguments_of(name, things, known)]
    if name == "get_attachment_content":
        found.append({**found[0], "format": "text"})
    if name == "read_mail":
        found += [{"ids": [things["attachment_id"]]}, {"ids": [things["thread_id"]]}]
    if name in ("wait_for_mail", "wait_for_message"):
        at = {"thread_id": things["thread_id"], "since": things["first_id"], "timeout_s": 1}
        found = [at]
    return found


def test_every_operation_is_tried_or_has_no_text_of_mail() -> None:
    assert set(every_operation()) == {*ARGUMENTS, *MORE, *WITHOUT_MAIL}


async def test_every_answer_with_the_text_of_suspicious_mail_counts_as_reading(
    ctx: RequestContext,
) -> None:
    things = await suspicious(ctx)
    showing, unnoticed = set(), []
    every = {n: one for n, one in every_operation().items() if n not in WITHOUT_MAIL}
    for name in sorted(every, key=changes_last):
        operation = every[name]
        if operation.destroys or name.startswith("add_"):
            continue
        for number, arguments in enumerate(arguments_for(name, things)):
            key_id = f"key_{name}{number}"
            agent = replace(ctx, caller=a_caller(key_id))
            if DEEP in await shown_by(agent, operation, arguments):
                showing.add(name)
                unnoticed += [] if await has_read(ctx, key_id) else [f"{name} {arguments}"]
    assert [] == unnoticed
    assert set() == SHOWING - showing


@pytest.mark.parametrize("html", [HIDDEN, ORDINARY])
async def test_hidden_text_of_an_attachment_counts_as_that_of_its_mail(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str, html: str
) -> None:
    agent = await new_key()
    file = ("a.html", "text/html", html.encode())
    message_id = await html_mail(outbox_ctx, ORDINARY, attachments=[file])
    message = await outbox_ctx.store.message(message_id, outbox_ctx.visible)
    assert message is not None

    wanted = {"attachment_id": message.attachments[0].id, "format": "text"}
    await call(agent, attachments.get_attachment_content, wanted)

    assert ("held" if html == HIDDEN else "queued") == (await send(agent, KNOWN)).status


async def test_a_draft_that_forwards_suspicious_mail_is_held(
    outbox_ctx: RequestContext, new_key: KeyFactory, received: str
) -> None:
    agent = await new_key()
    wanted = {"ids": [await html_mail(outbox_ctx, HIDDEN)], "to": [KNOWN], "draft": True}
    draft = (await call(agent, writing.forward_mail, wanted)).results[0]

    sent = await call(agent, drafts.send_draft, {"draft_id": draft.id})

    assert "held" == sent.status
