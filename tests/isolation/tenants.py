"""Two tenants of one Postroom: each has one object of every kind, with recognisable words."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from datetime import timedelta
from typing import Any

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.account import RemoteRef
from postroom.model.key import OWNER
from postroom.operations import inboxes, keys, memories, rules, webhooks
from postroom.operations.mail import attachments, message_changes
from postroom.operations.outgoing import drafts, identities
from tests.mails import deliver, mail, new_inbox
from tests.stores.accounts import arrive, new_account

SOUGHT = "pangolin"
"""A word in the mail of both tenants that a caller may search for."""


@dataclass(frozen=True)
class Tenant:
    """One object of each kind. `word` occurs in everything that the tenant wrote or received."""

    word: str
    inbox: str
    address: str
    message: str
    waiting: str
    thread: str
    other_thread: str
    attachment: str
    draft: str
    identity: str
    webhook: str
    delivery: str
    rule: str
    plan: str
    key: str
    event: str
    account: str
    account_inbox: str
    live: str
    namespace: str
    memory: str

    @property
    def tokens(self) -> frozenset[str]:
        """The strings that no other caller may read."""
        return frozenset(astuple(self))


def unknown(like: Tenant) -> Tenant:
    """Ids of the same form that do not exist."""
    made = {
        name: f"{value[:4]}{place:0{len(value) - 4}}" if value[3:4] == "_" else f"unknown{name}"
        for place, (name, value) in enumerate(vars(like).items())
    }
    return replace(Tenant(**made), address="unknown@postroom.localhost", live="unknown")


def rule_yaml(name: str, *then: str, inbox: str | None = None, account: str | None = None) -> str:
    """A rule that every mail matches."""
    place = f"inbox: {inbox}\n" if inbox else f"account: {account}\n" if account else ""
    when = "[{size_bytes: {greater_than: 0}}]"
    return f"name: {name}\n{place}when: {when}\nthen: [{', '.join(then)}]\n"


async def populate(app: App, name: str, word: str) -> Tenant:
    """Create a tenant with one object of each kind, and a live account named *name*."""
    ctx = app.context(OWNER)
    made = await _mail(ctx, name, word)
    inbox = made["inbox"]
    hook = {"url": f"https://example.com/{word}", "inboxes": [inbox]}
    made["webhook"] = (await call(ctx, webhooks.create_webhook, hook)).id
    rule = {"rule_yaml": rule_yaml(word, "flag", inbox=inbox), "dry_run": False}
    made["rule"] = (await call(ctx, rules.create_rule, rule)).id  # type: ignore[union-attr]
    made |= await _account(ctx, name, word)
    at = await ctx.store.inbox(inbox, ctx.visible)
    assert at is not None
    await deliver(ctx, at, mail(f"{word} three", f"A {SOUGHT} of {word}."))
    told = await call(ctx, webhooks.list_deliveries, {"webhook_id": made["webhook"]})
    plan = await call(ctx, rules.run_rule_plan, {"rule_id": made["rule"]})
    seen = await call(ctx, webhooks.list_events, {"inbox_id": inbox})
    limited = {"name": word, "scopes": ["read"], "inboxes": [inbox], "namespaces": [name]}
    memory = {"namespace": name, "key": f"{word}/note", "text": f"{word} likes a {SOUGHT}."}
    await call(ctx, memories.memory_add, memory)
    return Tenant(
        **made,
        word=word,
        delivery=told.results[0].id,
        plan=plan.plan_id,
        event=seen.results[0].id,
        key=(await call(ctx, keys.create_key, limited)).id,
        live=f"{name}live",
        namespace=name,
        memory=memory["key"],
    )


async def _mail(ctx: RequestContext, name: str, word: str) -> dict[str, Any]:
    inbox = await new_inbox(ctx, name)
    await call(ctx, inboxes.rename_inbox, {"inbox_id": inbox.id, "name": f"Inbox of {word}"})
    file = (f"{word}.pdf", "application/pdf", word.encode())
    one = await deliver(ctx, inbox, mail(f"{word} one", f"A {SOUGHT}: {word}.", attachments=[file]))
    two = await deliver(ctx, inbox, mail(f"{word} two", f"Of {word}."))
    await call(ctx, message_changes.apply_label, {"message_ids": [one.message_id], "label": word})
    found = await call(ctx, attachments.list_attachments, {"message_id": one.message_id})
    outgoing_mail = {
        "inbox_id": inbox.id,
        "to": ["x@example.com"],
        "subject": word,
        "body_text": word,
    }
    draft = await call(ctx, drafts.create_draft, outgoing_mail)
    at = (ctx.clock() + timedelta(days=300)).isoformat()
    later = await call(ctx, drafts.create_draft, {**outgoing_mail, "send_at": at})
    sent = await call(ctx, drafts.send_draft, {"draft_id": later.id})
    alias = {"email": f"{name}-{word}@postroom.localhost", "name": word, "inbox_id": inbox.id}
    return {
        "inbox": inbox.id,
        "address": inbox.address,
        "message": one.message_id,
        "waiting": sent.message_id,
        "thread": one.thread_id,
        "other_thread": two.thread_id,
        "attachment": found.results[0].id,
        "draft": draft.id,
        "identity": (await call(ctx, identities.create_alias, alias)).id,
    }


async def _account(ctx: RequestContext, name: str, word: str) -> dict[str, str]:
    account = await new_account(ctx, f"{name}work")
    await arrive(ctx, account, mail(f"{word} four", f"A {SOUGHT}: {word}."), RemoteRef("1/I", "1"))
    return {"account": account.id, "account_inbox": account.inbox_id}


async def belongings(app: App, tenant: Tenant) -> dict[str, list[str]]:
    """Every row of the database that belongs to a tenant, by its inbox or its word."""

    def read(tx: Any) -> dict[str, list[str]]:
        ids = (tenant.inbox, tenant.account_inbox)
        rows = tx.all("SELECT number FROM inboxes WHERE id IN (:one, :two)", one=ids[0], two=ids[1])
        numbers = {row[0] for row in rows}
        tables = [table for (table,) in tx.all(TABLES) if table not in DERIVED]
        return {table: _own(tx, table, numbers, tenant) for table in tables}

    return await app.services.store.engine.read(read)  # type: ignore[attr-defined, no-any-return]


DERIVED = (
    "ranking_collections",
    "ranking_documents",
    "ranking_deletions",
    "ranking_segments",
    "ranking_postings",
)
"""The ranking index, which is created by the first search by meaning."""

TABLES = """
    SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name
"""


def _own(tx: Any, table: str, inboxes: set[int], tenant: Tenant) -> list[str]:
    columns = [row[0] for row in tx.all(f"SELECT name FROM pragma_table_info('{table}')")]
    at = columns.index("inbox") if "inbox" in columns else None
    rows = [(row, repr(row)) for row in tx.all(f"SELECT * FROM {table}")]
    return sorted(
        said
        for row, said in rows
        if (at is not None and row[at] in inboxes) or any(token in said for token in tenant.tokens)
    )
