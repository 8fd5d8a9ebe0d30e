"""No scope includes another: a key that may write, send or administer reads nothing.

Every operation is called with keys without `read`, on objects that all contain one word; an answer
may contain the word only if the caller sent it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from mcp import Client

from postroom.calls.operation import call
from postroom.model.key import OWNER, Scope
from postroom.operations import memories, rules
from postroom.operations.outgoing import drafts, identities
from postroom.surfaces.mcp.server import make_server
from tests.isolation.conftest import SharedInstallation
from tests.isolation.request_variants import requests_of
from tests.isolation.tenants import Tenant, rule_yaml
from tests.isolation.test_matrix import TOOLS, Ask, steps_of_mcp, steps_of_rest
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import RestClient, rest_client

SETS = (["write"], ["send"], ["admin"], ["write", "send"], ["write", "send", "admin"])

ADMINISTRATIVE = {
    "create_key",
    "create_webhook",
    "delete_webhook",
    "list_deliveries",
    "list_keys",
    "list_webhooks",
    "redeliver",
    "renew_webhook",
    "update_webhook",
}
"""Operations for `admin`; the word is in URLs of webhooks and names of keys."""

MUST_WORK = {
    "write": {
        "apply_label",
        "apply_rule_plan",
        "create_draft",
        "create_rule",
        "delete_rule",
        "memory_add",
        "memory_delete",
        "memory_update",
        "merge_threads",
        "move_message",
        "receive_message",
        "rename_inbox",
        "split_thread",
        "sync_account",
        "undo_rule_plan",
        "update_draft",
        "update_identity",
        "update_message",
        "update_rule",
    },
    "send": {"cancel_message", "reply_to_message", "send_draft", "send_email", "send_message"},
    "admin": {"list_audit", "list_deliveries", "list_webhooks", "renew_webhook"},
}
"""Operations that must succeed in the walk for the test to be significant."""


async def with_words_everywhere(shared: SharedInstallation) -> Tenant:
    """The own tenant, with the word in every field that an answer could contain."""
    ctx, own = shared.app.context(OWNER), shared.own
    word = own.word
    inbox = await ctx.store.inbox(own.inbox, ctx.visible)
    assert inbox is not None
    raw = mail(
        f"{word} five",
        f"It says {word}.",
        sender=f"{word} <{word}@stranger.example>",
        cc=f"{word}@copy.example",
        headers=[("Reply-To", f"{word}@reply.example")],
    )
    got = await deliver(ctx, inbox, raw)
    to = {"inbox_id": own.inbox, "to": [f"{word}@there.example"], "subject": word}
    later = {**to, "body_text": word, "send_at": ctx.clock() + timedelta(days=9)}
    draft = await call(ctx, drafts.create_draft, {**to, "body_text": word})
    scheduled = await call(ctx, drafts.create_draft, later)
    sent = await call(ctx, drafts.send_draft, {"draft_id": scheduled.id})
    signature = {"identity_id": own.identity, "signature": f"-- {word}"}
    await call(ctx, identities.update_identity, signature)
    memory = {"key": "note", "namespace": own.namespace, "text": f"{word} says Hi Ana, thanks!"}
    about = [{"type": "about", "to": f"{word}@about.example"}]
    more = {"summary": word, "tags": [word], "links": about}
    await call(ctx, memories.memory_add, memory | more)
    rule = {"rule_yaml": rule_yaml(word, "flag", inbox=own.inbox)}
    plan = await call(ctx, rules.create_rule, rule)
    ids = {"message": got.message_id, "thread": got.thread_id, "waiting": sent.message_id}
    return replace(own, **ids, draft=draft.id, memory="note", plan=plan.plan_id)


async def leaks(
    steps: list[tuple[str, Any, Ask]], own: Tenant, scopes: list[str]
) -> tuple[list[str], set[str]]:
    """The revealed texts, and the operations that succeeded."""
    found: list[str] = []
    taken: set[str] = set()
    for name, operation, ask in sorted(steps, key=_order):
        for asked in requests_of(operation, own, own):
            is_taken, answer = await ask(asked.arguments)
            if is_taken:
                taken.add(operation.name)
                assert operation.scope in scopes, name
            if operation.name in ADMINISTRATIVE or own.word in str(asked.arguments):
                continue
            if own.word in answer:
                found.append(f"{name} {asked.arguments}: {answer[:600]}")
    return found, taken


def _order(step: tuple[str, Any, Ask]) -> int:
    """Plans are applied before anything changes; destructive operations come last."""
    operation = step[1]
    first = ("apply_rule_plan", "undo_rule_plan")
    return first.index(operation.name) - 2 if operation.name in first else int(operation.destroys)


def idle(steps: list[tuple[str, Any, Ask]], scopes: list[str], taken: set[str]) -> set[str]:
    """The operations that should have succeeded, and did not."""
    names = {operation.name for _, operation, _ in steps}
    return {name for scope in scopes for name in MUST_WORK[scope] & names} - taken


def limits_of(own: Tenant, *, is_limited: bool) -> dict[str, Any]:
    inboxes = [own.inbox, own.account_inbox]
    return {"inboxes": inboxes, "namespaces": [own.namespace]} if is_limited else {}


@pytest.mark.parametrize("is_limited", [True, False], ids=["limited", "unlimited"])
@pytest.mark.parametrize("scopes", SETS, ids="+".join)
async def test_a_key_without_read_reads_nothing_over_rest(
    shared: SharedInstallation, scopes: list[str], is_limited: bool
) -> None:
    own = await with_words_everywhere(shared)
    key = await shared.key(scopes, limits_of(own, is_limited=is_limited))

    async with rest_client(shared.app, key) as rest:
        steps = steps_of_rest(rest)
        found, taken = await leaks(steps, own, scopes)

    assert not found, "\n".join(found)
    assert set() == idle(steps, scopes, taken)


@pytest.mark.parametrize("scopes", SETS, ids="+".join)
async def test_a_key_without_read_reads_nothing_over_mcp(
    shared: SharedInstallation, scopes: list[str]
) -> None:
    own = await with_words_everywhere(shared)
    limits = limits_of(own, is_limited=True)
    caller = await shared.app.authenticate(await shared.key(scopes, limits))

    async with Client(make_server(shared.app, TOOLS, lambda _: caller)) as client:
        steps = steps_of_mcp(client)
        found, taken = await leaks(steps, own, scopes)

    assert not found, "\n".join(found)
    assert set() == idle(steps, scopes, taken)


async def refused(rest: RestClient, method: str, path: str, **body: Any) -> str:
    answer = await rest.send(method, path, json=body)
    assert 403 == answer.status_code, answer.text
    return str(answer.json()["detail"])


PASSED_ON = ("{forward: me@example.com}", "{webhook: 'https://example.com/me'}")


@pytest.mark.parametrize("action", PASSED_ON)
async def test_a_rule_that_forwards_mail_needs_read(
    shared: SharedInstallation, action: str
) -> None:
    key = await shared.key(["write", "send", "admin"], {"inboxes": [shared.own.inbox]})
    rule = {"rule_yaml": rule_yaml("Mine", action), "dry_run": False}

    async with rest_client(shared.app, key) as rest:
        detail = await refused(rest, "POST", "/v1/rules", **rule)

    assert "scope read" in detail


async def test_operations_that_forward_or_count_mail_need_read(shared: SharedInstallation) -> None:
    own = shared.own
    key = await shared.key(["write", "send", "admin"], {"inboxes": [own.inbox]})
    file = [{"attachment_id": own.attachment}]
    to = {"to": ["me@example.com"], "subject": "x", "body_text": "x"}
    plan = {"rule_yaml": rule_yaml("Mine", "flag")}

    async with rest_client(shared.app, key) as rest:
        said = [
            await refused(rest, "POST", "/v1/rules", **plan),
            await refused(rest, "POST", "/v1/messages", **to, attachments=file),
            await refused(rest, "POST", "/v1/drafts", **to, attachments=file),
            await refused(rest, "PATCH", f"/v1/drafts/{own.draft}", to=["me@example.com"]),
            await refused(rest, "PATCH", f"/v1/drafts/{own.draft}", attachments=file),
            await refused(rest, "POST", "/v1/webhooks", url="https://example.com/me"),
            await refused(
                rest, "PATCH", f"/v1/webhooks/{own.webhook}", url="https://example.com/me"
            ),
            await refused(
                rest, "POST", f"/v1/messages/{own.message}/forward", to=["me@example.com"]
            ),
            await refused(
                rest,
                "POST",
                f"/v1/messages/{own.message}/reply",
                body_text="x",
                attachments=file,
            ),
        ]

    assert all("scope read" in detail for detail in said), said


async def test_a_receipt_has_ids_statuses_and_what_was_sent(shared: SharedInstallation) -> None:
    own = await with_words_everywhere(shared)
    key = await shared.key(
        ["write", "send"], {"inboxes": [own.inbox], "namespaces": [own.namespace]}
    )

    async with rest_client(shared.app, key) as rest:
        changed = await rest.send(
            "PATCH", "/v1/memories/note", json={"namespace": own.namespace, "tags": ["mine"]}
        )
        replied = await rest.send(
            "POST", f"/v1/messages/{own.message}/reply", json={"body_text": "Hi"}
        )
        sent = await rest.send(
            "POST",
            "/v1/messages",
            json={"to": ["you@example.com"], "subject": "x", "body_text": "x"},
        )

    memory = changed.json()
    assert (["mine"], "note", 2) == (memory["tags"], memory["key"], memory["version"])
    assert not {"text", "summary", "links", "trust", "similar"} & set(memory)
    assert [{"status"}] == [set(r) for r in replied.json()["recipients"]]
    assert replied.json()["message_id"].startswith("msg_")
    assert "you@example.com" == sent.json()["recipients"][0]["address"]


async def test_a_key_with_read_gets_the_changed_object(shared: SharedInstallation) -> None:
    own = await with_words_everywhere(shared)
    scopes = [scope.value for scope in (Scope.READ, Scope.WRITE)]
    key = await shared.key(scopes, {"inboxes": [own.inbox], "namespaces": [own.namespace]})

    async with rest_client(shared.app, key) as rest:
        changed = await rest.send(
            "PATCH", "/v1/memories/note", json={"namespace": own.namespace, "tags": ["mine"]}
        )

    assert own.word in json.dumps(changed.json())
